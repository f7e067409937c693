"""ROOT files of Delphes, with branches such as `Jet.PT`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError
from pairton.events.matching import is_one_of
from pairton.formats.base import Format, ReadOptions
from pairton.formats.column_files import Table
from pairton.formats.columns import combined
from pairton.formats.experiment import Collections, ExperimentSource, Flat, Flavour, named_collections
from pairton.formats.flat_objects import Chunk, FlatObjects, flat_fields
from pairton.formats.lepton_selection import OVERLAP_SETTINGS
from pairton.formats.root_files import RootFile
from pairton.formats.taggers import Tagger
from pairton.formats.truth import TRUTH_SETTINGS, GenRecord
from pairton.topology import JET
from pairton.topology.kinds import FATJET

__all__ = ["FORMATS", "Delphes", "DelphesSource"]

TREE = "Delphes"
TAU = "FatJet.Tau[5]"  # N-subjettiness for N from 1 to 5
RECORD = tuple(f"Particle.{name}" for name in ("PID", "Status", "M1", "Eta", "Phi"))
HARD = (22, 23, 3)  # status of the hard process: 22 and 23 in Pythia 8, 3 in Pythia 6 and Herwig 6
INCOMING, RESONANCE = 21, 22  # status of incoming partons and of resonances in Pythia 8
FINAL, DECAYED = 1, 2  # status in HepMC
PHOTON, LEPTONS = 22, (11, 13, 15)
RADIATING = (6, 24, 34, 37)  # charged resonances (t, W, W', H+), whose photons are radiated
BITS = 32
COLLECTIONS: Collections = {
    JET: (("Jet.",),),
    "electron": (("Electron.",),),
    "muon": (("Muon.",),),
    "lepton": (("Electron.", "Muon."),),
    "photon": (("Photon.",),),
    FATJET: (("FatJet.",),),
    "met": (("MissingET.",),),
}


FLAVOURS = (Flavour("electron", "Electron."), Flavour("muon", "Muon."))  # identified and isolated by the card


class DelphesSource(ExperimentSource):
    truth_rows = 2_000  # a record has some thousand particles
    field_names: ClassVar[dict[str, str]] = {
        name: name.upper() if name in ("pt", "met") else name.capitalize()
        for name in ("pt", "eta", "phi", "mass", "charge", "met")
    } | {"flavour": "Flavor"}
    flavours = FLAVOURS
    tag, weight, number = "BTag", "Event.Weight", "Event.Number"  # names of columns
    needs_tag = True

    def __init__(self, tree: Table, options: ReadOptions) -> None:
        collection, btag = options.settings.get("jets", "Jet"), options.btag
        if btag.table is not None and btag.table.field.lower() != "btag":
            raise ConfigError(
                f"--btag {btag.table.name} is for {btag.table.field}, but tags of Delphes are 0 or 1: choose a "
                "table for btag, such as delphes_cms"
            )
        self.tagger = Tagger(evidence=options.evidence)
        self.tag_column = f"{collection}.{btag.named.removeprefix(f'{collection}.') or self.tag}"
        if not btag.none and (self.needs_tag or btag.text or self.tag_column in tree):
            tree.require([self.tag_column], hint="; choose another collection of jets with --set jets=COLLECTION")
            bit = 0.0 if btag.cut is None else btag.cut
            if (btag.named and btag.cut is None) or bit not in range(BITS):
                raise ConfigError(
                    f"--btag {btag.text}: the bit must be a number from 0 to {BITS - 1}, as in {self.tag}:0"
                )
            self.bit = int(bit)
            self.tagger = Tagger(self.tag, 0.5, "btag", btag.table, options.evidence)
        super().__init__(tree, options, named_collections(COLLECTIONS, options.settings, "."))
        if self.tagger.field:
            self.tagging = f"{self.tag_column}:{self.bit}"
            self.metadata |= {"btag": self.tagging}
            self.tagging += f" ({btag.table.name})" if btag.table else ""

    def read_kind(self, rows: Chunk, kind: str) -> FlatObjects:
        found = super().read_kind(rows, kind)
        if kind == FATJET and TAU in self.tree:
            tau = np.asarray(ak.flatten(rows[TAU], axis=1), dtype=np.float64)  # (jets, 5)
            for name, above in (("tau21", 1), ("tau32", 2)):
                found.fields[name] = combined(name, [tau[:, above], tau[:, above - 1]])
        return found

    def more_columns(self) -> Sequence[str]:
        tags = [self.tag_column] if self.tagger.field else []
        tags += [TAU] if FATJET in self.topology.kinds and TAU in self.tree else []
        return [*tags, *(name for name in (self.weight, self.number) if name in self.tree)]

    def scores(self, rows: Chunk, counts: npt.NDArray[np.int64]) -> Flat:
        return (rows.flat(self.tag_column, counts).astype(np.int64) >> self.bit) & 1

    def record_columns(self) -> Sequence[str]:
        return RECORD

    def record(self, rows: Chunk) -> GenRecord:
        entries = flat_fields(rows, {name.removeprefix("Particle."): (name,) for name in RECORD})
        part = entries.fields
        status = np.abs(part["Status"])
        hard = np.isin(status, HARD)
        record = GenRecord(entries.counts, part["PID"], part["M1"], hard, part["Eta"], part["Phi"])
        return replace(record, hard=hard | _without_shower(record, status))

    def read_weights(self, rows: Chunk) -> npt.NDArray[np.float64] | None:
        return _scalar(rows[self.weight], 1.0).astype(np.float64) if self.weight in rows else None

    def carried(self, rows: Chunk) -> dict[str, ak.Array]:
        return {"event": ak.Array(_scalar(rows[self.number], -1))} if self.number in rows else {}


class Delphes(Format):
    name = "delphes"
    description = "Delphes: tree Delphes with Jet.PT, Jet.Eta, …"
    suffixes = (".root",)
    settings: ClassVar[dict[str, str]] = {
        "jets": "collection of jets, for example JetPUPPI; default: Jet",
        "electron_id": "conditions on fields of electrons, for example IsolationVar < 0.1; default: none",
        "muon_id": "conditions on fields of muons; default: none",
        **OVERLAP_SETTINGS,
        **TRUTH_SETTINGS,
        "met": "collection of missing energy, for example PuppiMissingET; default: MissingET",
    }
    reads_variations = True

    def recognises(self, file: RootFile) -> bool:
        return any(column.startswith(("Jet.", "Event.", "Particle.")) for column in file.columns(TREE))

    def open(self, file: RootFile, options: ReadOptions) -> DelphesSource:
        return DelphesSource(file.choose(options.tree, [TREE]), options)


def _without_shower(record: GenRecord, status: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Leptons and photons of Pythia's hard process that did not radiate.

    Delphes stores the status of HepMC, which is 23 only if the shower made a copy of the particle. Otherwise it is
    1, or 2 for a tau that decays. Their mother is an incoming parton, or a resonance or its copy.
    """
    hard = np.zeros(len(status), dtype=bool)
    entries = np.flatnonzero(np.isin(status, (FINAL, DECAYED)) & is_one_of(record.code, (*LEPTONS, PHOTON)))
    mother = record.mothers(entries)
    entries, mother = entries[mother >= 0], mother[mother >= 0]
    resonances = replace(record, hard=status == RESONANCE)
    decayed = resonances.hard[mother] | resonances.is_copy(mother)
    decayed &= (record.code[entries] != PHOTON) | ~is_one_of(record.code[mother], RADIATING)
    hard[entries[decayed | (status[mother] == INCOMING)]] = True
    return hard


def _scalar(column: ak.Array, missing: float) -> npt.NDArray[np.number]:
    """One value per event, from a branch that Delphes writes as lists with one element."""
    if column.ndim > 1:
        column = ak.fill_none(ak.firsts(column, axis=1), missing)
    return np.asarray(column)


FORMATS = (Delphes(),)
