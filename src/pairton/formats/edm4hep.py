"""EDM4hep in ROOT files of podio, as Delphes and the simulations of e+e- colliders write it; in GeV.

Jet.{energy, momentum.x, momentum.y, momentum.z}      collections of reconstructed particles
Electron_objIdx.index, Muon_…, Photon_…               positions of leptons and photons in ReconstructedParticles
ParticleIDs, _ParticleIDs_parameters                  of Delphes: the bits of the b-tag of each jet
Particle, _Particle_parents                           the generator record
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError
from pairton.formats.base import Format, ReadOptions
from pairton.formats.column_files import Table
from pairton.formats.experiment import Collections, ExperimentSource, Flat, Flavour, named_collections
from pairton.formats.flat_objects import Chunk, flat_fields
from pairton.formats.lepton_selection import OVERLAP_SETTINGS
from pairton.formats.root_files import RootFile, RootTree
from pairton.formats.taggers import Tagger
from pairton.formats.truth import TRUTH_SETTINGS, GenRecord
from pairton.topology import JET

__all__ = ["FORMATS", "Edm4hep"]

TREE = "events"
ALL = "ReconstructedParticles"
COLLECTIONS: Collections = {
    JET: (("Jet.",),),
    "electron": (("Electron.",),),
    "muon": (("Muon.",),),
    "lepton": (("Electron.", "Muon."),),
    "photon": (("Photon.",),),
    "met": (("MissingET.",),),
}
FLAVOURS = (Flavour("electron", "Electron."), Flavour("muon", "Muon."))
PARENTS = ("Particle.parents_begin", "Particle.parents_end", "_Particle_parents.index")
RECORD = ("Particle.PDG", "Particle.generatorStatus", "Particle.eta", "Particle.phi", "Particle.mother")
TAGS = ("ParticleIDs.parameters_begin", "ParticleIDs.parameters_end", "_ParticleIDs_parameters")
JETS_OF_TAGS = "_ParticleIDs_particle.index"
HARD = 23  # status of outgoing particles of the hard process in Pythia 8
FIELDS = ("pt", "eta", "phi", "energy", "mass", "charge")


class ParticleTable(Table):
    """A tree, with columns computed from those of EDM4hep: Jet.pt, Electron.pt, Jet.tag, Particle.mother."""

    def __init__(self, tree: RootTree) -> None:
        self.path, self.title, self.n_events, self._tree = tree.path, tree.title, tree.n_events, tree
        self._made: dict[str, tuple[tuple[str, ...], Callable[..., ak.Array]]] = {}
        known = set(tree.columns)
        for name in (name.removesuffix("momentum.x") for name in tree.columns if name.endswith(".momentum.x")):
            self._momenta(name, known)
        for kind in ("Electron", "Muon", "Photon"):
            index = f"{kind}_objIdx.index"
            for field in FIELDS if index in known else ():
                if (column := f"{ALL}.{field}") in known | self._made.keys():
                    self._made[f"{kind}.{field}"] = ((column, index), lambda values, at: values[at])
            if (isolation := f"{kind}_IsolationVar") in known:
                self._made[f"{kind}.IsolationVar"] = ((isolation,), lambda values: values)
        if known.issuperset(PARENTS):
            self._made["Particle.mother"] = (PARENTS, _first)
        if known.issuperset((*TAGS, JETS_OF_TAGS, "Jet.energy")):
            self._made["Jet.tag"] = ((*TAGS, JETS_OF_TAGS, "Jet.energy"), _tags)
        self.columns = (*tree.columns, *self._made)

    def _momenta(self, prefix: str, known: set[str]) -> None:
        x, y, z = (f"{prefix}momentum.{axis}" for axis in "xyz")
        if known.issuperset((y, z)):
            self._made[f"{prefix}pt"] = (x, y), np.hypot
            self._made[f"{prefix}phi"] = (x, y), lambda x, y: np.arctan2(y, x)
            self._made[f"{prefix}eta"] = (x, y, z), lambda x, y, z: np.arcsinh(z / np.hypot(x, y))

    @property
    def source_id(self) -> int:
        return self._tree.source_id

    def read(self, names: Iterable[str], start: int, stop: int) -> Mapping[str, ak.Array]:
        names = list(dict.fromkeys(names))
        self.require(names)
        raw = dict(self._tree.read(self._raw(names), start, stop))
        with np.errstate(divide="ignore", invalid="ignore"):
            return {name: self._value(name, raw) for name in names}

    def _raw(self, names: Iterable[str]) -> list[str]:
        """The columns of the file that some columns are computed from."""
        return [
            raw for name in names for raw in (self._raw(self._made[name][0]) if name in self._made else [name])
        ]

    def _value(self, name: str, raw: dict[str, ak.Array]) -> ak.Array:
        if name not in raw:
            needed, compute = self._made[name]
            raw[name] = compute(*(self._value(each, raw) for each in needed))
        return raw[name]

    def text(self, name: str) -> str | None:
        return self._tree.text(name)

    def close(self) -> None:
        self._tree.close()


def _first(begin: ak.Array, end: ak.Array, values: ak.Array, missing: int = -1) -> ak.Array:
    """The first value of each range of values; `missing` for empty ones."""
    there = begin < end
    found = ak.mask(values, ak.local_index(values) >= 0)[ak.mask(begin, there)]
    return ak.fill_none(found, missing)


def _tags(begin: ak.Array, end: ak.Array, values: ak.Array, at: ak.Array, jets: ak.Array) -> ak.Array:
    """The first parameter for each jet. Other particles have no parameters."""
    tagged = begin < end
    first, at, counts = values[begin[tagged]], at[tagged], ak.num(jets)
    begins = np.cumsum(counts) - counts
    flat = np.zeros(ak.sum(counts), dtype=np.int64)
    inside = at < counts
    flat[ak.to_numpy(ak.flatten((at + begins)[inside]))] = ak.to_numpy(ak.flatten(first[inside])).astype(np.int64)
    return ak.unflatten(flat, counts)


class Edm4hepSource(ExperimentSource):
    truth_rows = 2_000  # a record has some hundred particles
    flavours = FLAVOURS
    field_names: ClassVar[dict[str, str]] = {"met": "pt"}

    def __init__(self, tree: RootTree, options: ReadOptions) -> None:
        table, btag = ParticleTable(tree), options.btag
        self.collection = options.settings.get("jets", "Jet")
        self.tagger = Tagger(evidence=options.evidence)
        self.bit = 0 if btag.cut is None else int(btag.cut)
        if not btag.none and (btag.text or self._tag in table):
            table.require([self._tag], hint="; give --btag none to run without tags")
            if btag.named or self.bit != (btag.cut or 0) or self.bit not in range(32):
                raise ConfigError(f"--btag {btag.text}: give the bit of the tag, from 0 to 31, or a table")
            self.tagger = Tagger("tag", 0.5, "btag", btag.table, options.evidence)
        super().__init__(table, options, named_collections(COLLECTIONS, options.settings, "."))
        self.tagging = str(self.bit) if self.tagger.field else str(self.tagger)
        self.metadata |= {"btag": f"{self._tag}:{self.bit}"} if self.tagger.field else {}

    @property
    def _tag(self) -> str:
        return f"{self.collection}.tag"

    def more_columns(self) -> Sequence[str]:
        weight = ["EventHeader.weight"] if "EventHeader.weight" in self.tree else []
        number = ["EventHeader.eventNumber"] if "EventHeader.eventNumber" in self.tree else []
        return [*([self._tag] if self.tagger.field else []), *weight, *number]

    def scores(self, rows: Chunk, counts: npt.NDArray[np.int64]) -> Flat:
        return (rows.flat(self._tag, counts) >> self.bit) & 1

    def record_columns(self) -> Sequence[str]:
        return RECORD

    def record(self, rows: Chunk) -> GenRecord:
        entries = flat_fields(rows, {name.removeprefix("Particle."): (name,) for name in RECORD})
        part = entries.fields
        hard = part["generatorStatus"] == HARD
        return GenRecord.of(entries.counts, part["PDG"], part["mother"], part["eta"], part["phi"], hard)

    def read_weights(self, rows: Chunk) -> npt.NDArray[np.float64] | None:
        if "EventHeader.weight" not in rows:
            return None
        return np.asarray(ak.fill_none(ak.firsts(rows["EventHeader.weight"]), 1.0), dtype=np.float64)

    def carried(self, rows: Chunk) -> dict[str, Any]:
        name = "EventHeader.eventNumber"
        return {"event": ak.fill_none(ak.firsts(rows[name]), -1)} if name in rows else {}


class Edm4hep(Format):
    name = "edm4hep"
    description = "EDM4hep in ROOT files of podio: tree events with Jet.momentum.x, Particle.PDG, …"
    suffixes = (".root",)
    settings: ClassVar[dict[str, str]] = {
        "jets": "collection of jets; default: Jet",
        "electron_id": "conditions on fields of electrons, for example IsolationVar < 0.1; default: none",
        "muon_id": "conditions on fields of muons; default: none",
        "met": "collection of missing energy; default: MissingET",
        **OVERLAP_SETTINGS,
        **TRUTH_SETTINGS,
    }
    reads_variations = True

    def recognises(self, file: RootFile) -> bool:
        return any(name.endswith(".momentum.x") for name in file.columns(TREE))

    def open(self, file: RootFile, options: ReadOptions) -> Edm4hepSource:
        return Edm4hepSource(file.choose(options.tree, [TREE]), options)


FORMATS = (Edm4hep(),)
