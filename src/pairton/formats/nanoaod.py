"""CMS NanoAOD, versions 9 to 15, as TTree or RNTuple. Positions of jets are those in the collection `Jet`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import PairtonWarning
from pairton.formats.base import Format, ReadOptions
from pairton.formats.column_files import DEFAULT_CHUNK, Table
from pairton.formats.experiment import Collections, ExperimentSource, Flat, Flavour, named_collections
from pairton.formats.flat_objects import Chunk, FlatObjects, flat_fields
from pairton.formats.lepton_selection import OVERLAP_SETTINGS
from pairton.formats.root_files import RootFile
from pairton.formats.taggers import Scores
from pairton.formats.truth import TRUTH_SETTINGS, GenRecord
from pairton.formats.variations import choice
from pairton.formats.writing import KEY

__all__ = ["FORMATS", "FRACTIONS", "NanoAOD", "NanoAODSource", "tight_id"]

TREE = "Events"
COLLECTIONS: Collections = {
    "jet": (("Jet_",),),
    "electron": (("Electron_",),),
    "muon": (("Muon_",),),
    "lepton": (("Electron_", "Muon_"),),
    "photon": (("Photon_",),),
    "tau": (("Tau_",),),
    "fatjet": (("FatJet_",),),
    "met": (("PuppiMET_",), ("MET_",), ("PFMET_",)),
}
FLAVOURS = (  # tight leptons, as in analyses of one lepton and jets; the ID of electrons includes isolation
    Flavour("electron", "Electron_", ("mvaIso_WP80", "mvaFall17V2Iso_WP80", "cutBased >= 4")),
    Flavour("muon", "Muon_", ("tightId, pfRelIso04_all < 0.15",)),
)
EVENT = ("run", "luminosityBlock", "event")
RECORD = tuple(f"GenPart_{name}" for name in ("pdgId", "genPartIdxMother", "statusFlags", "eta", "phi"))
STATUS = "GenPart_status"

TAGGERS = ("UParTAK4B", "PNetB", "RobustParTAK4B", "DeepFlavB", "DeepB", "CSVV2")  # newest first

IS_HARD_PROCESS = 1 << 7  # bit of GenPart_statusFlags
INCOMING = 21  # status of incoming partons
TIGHT, LEPTON_VETO = 2, 4  # bits of Jet_jetId
PU_ID_BELOW = 50.0  # GeV; jets above are not from pile-up

# Columns that the jet ID is recomputed from if there is no Jet_jetId (version 15)
FRACTIONS = ("neHEF", "neEmEF", "chHEF", "chMultiplicity", "neMultiplicity")
VETO_FRACTIONS = ("muEF", "chEmEF")


class NanoAODSource(ExperimentSource):
    truth_rows = DEFAULT_CHUNK
    field_names: ClassVar[dict[str, str]] = {"pdgid": "pdgId", "flavour": "hadronFlavour"}
    flavours = FLAVOURS

    def __init__(self, tree: Table, options: ReadOptions) -> None:
        self.identification = choice(options.settings, "jet_id", ("tight", "tight_lepton_veto", "none"))
        self.collection = jets = options.settings.get("jets", "Jet")
        self.pile_up = choice(options.settings, "pu_id", ("loose", "none")) == "loose" and f"{jets}_puId" in tree
        hint = "; choose another collection of jets with --set jets=COLLECTION"
        tree.require([f"{jets}_pt"] if not options.map else [], hint=hint)
        btag = replace(options.btag, named=options.btag.named.removeprefix(f"{jets}_").removeprefix("btag"))
        begin, other = f"{jets}_btag", f"{jets}_{btag.score}"  # the score may have a name without the prefix btag
        columns = [name for name in sorted(tree.columns) if name.startswith(begin) or name == other]
        fields = [name.removeprefix(f"{jets}_") for name in columns]

        scores = {name.removeprefix("btag"): name for name in fields}

        def read(name: str, start: int, stop: int) -> ak.Array:
            column = f"{jets}_{scores[name]}"
            return tree.read([column], start, stop)[column]

        self.tag_scores = Scores(scores, TAGGERS, read, tree.n_events, tree.path)
        self.tagger = self.tag_scores.choose(btag, options.evidence)
        self.score = f"{jets}_{self.tagger.field}"
        self.id_columns = self._identification_columns(tree)
        self.has_ids = all(name in tree for name in EVENT)
        self.has_weights = "genWeight" in tree
        self.with_status = STATUS in tree
        super().__init__(tree, options, named_collections(COLLECTIONS, options.settings, "_"))
        self.metadata |= {"jets": jets} if jets != "Jet" else {}
        self.metadata |= {"jet_id": self.identification if self.id_columns else "none"}
        self.metadata |= {"pu_id": "loose" if self.pile_up else "none"}

    def _identification_columns(self, tree: Table) -> list[str]:
        jets = self.collection
        if self.identification == "none":
            return []
        if f"{jets}_jetId" in tree:
            return [f"{jets}_jetId"]
        names = FRACTIONS + (VETO_FRACTIONS if self.identification == "tight_lepton_veto" else ())
        columns = [f"{jets}_{name}" for name in names]
        if all(name in tree for name in columns):
            return columns
        warnings.warn(
            f"there is no jet identification: the file has neither {jets}_jetId nor the energy fractions to "
            "compute it: give --set jet_id=none if the jets were identified before",
            PairtonWarning,
            stacklevel=4,
        )
        return []

    def more_columns(self) -> Sequence[str]:
        return [
            *([self.score] if self.tagger.field else []),
            *self.id_columns,
            *([f"{self.collection}_puId"] if self.pile_up else []),
            *(EVENT if self.has_ids else ()),
            *(["genWeight"] if self.has_weights else []),
        ]

    def scores(self, rows: Chunk, counts: npt.NDArray[np.int64]) -> Flat:
        return rows.flat(self.score, counts)

    def jet_rules(self, rows: Chunk, jets: FlatObjects) -> dict[str, npt.NDArray[np.bool_]]:
        rules = {}
        if self.id_columns:
            part = {name.rpartition("_")[2]: rows.flat(name, jets.counts) for name in self.id_columns}
            passes = tight_id(part, jets.fields["eta"], self.identification == "tight_lepton_veto")
            rules[f"fail jet_id={self.identification}"] = passes
        if self.pile_up:  # 0 fails all working points, whatever the order of the bits
            passes = rows.flat(f"{self.collection}_puId", jets.counts) > 0
            rules["fail pu_id=loose"] = passes | (jets.fields["pt"] > PU_ID_BELOW)
        return rules

    def record_columns(self) -> Sequence[str]:
        return [*RECORD, *([STATUS] if self.with_status else [])]

    def record(self, rows: Chunk) -> GenRecord:
        entries = flat_fields(rows, {name.removeprefix("GenPart_"): (name,) for name in self.record_columns()})
        part = entries.fields
        hard = (part["statusFlags"] & IS_HARD_PROCESS) != 0
        hard &= part["status"] != INCOMING if self.with_status else part["genPartIdxMother"] >= 0
        return GenRecord(entries.counts, part["pdgId"], part["genPartIdxMother"], hard, part["eta"], part["phi"])

    def read_weights(self, rows: Chunk) -> npt.NDArray[np.float64] | None:
        return np.asarray(rows["genWeight"], dtype=np.float64) if self.has_weights else None

    def read_ids(self, rows: Chunk) -> npt.NDArray[np.uint64]:
        if not self.has_ids:
            return super().read_ids(rows)
        run, block, event = (np.asarray(rows[name]).astype(np.uint64) for name in EVENT)
        return np.stack([(run << np.uint64(32)) | block, event], axis=1)

    def carried(self, rows: Chunk) -> dict[str, ak.Array]:
        return {name: rows[name] for name in EVENT} if self.has_ids else {}


class NanoAOD(Format):
    name = "nanoaod"
    description = "CMS NanoAOD, versions 9 to 15: tree Events with Jet_pt, Jet_eta, …"
    suffixes: ClassVar[tuple[str, ...]] = (".root",)
    settings: ClassVar[dict[str, str]] = {
        "jets": "collection of jets, for example ScoutingPFJet; default: Jet",
        "jet_id": "tight (default), tight_lepton_veto or none",
        "pu_id": "loose (default; below 50 GeV, if the file has Jet_puId) or none",
        "electron_id": "conditions on fields of electrons, for example cutBased >= 3; default: the first that the "
        "file has of mvaIso_WP80, mvaFall17V2Iso_WP80, cutBased >= 4",
        "muon_id": "conditions on fields of muons; default: tightId, pfRelIso04_all < 0.15",
        **OVERLAP_SETTINGS,
        **TRUTH_SETTINGS,
        "met": "collection of missing energy; default: the first that the file has of PuppiMET, MET, PFMET",
    }
    reads_variations = True

    def recognises(self, file: RootFile) -> bool:
        return not {"Jet_pt", "nJet", "luminosityBlock"}.isdisjoint(file.columns(TREE))

    def open(self, file: RootFile, options: ReadOptions) -> NanoAODSource:
        return NanoAODSource(file.choose(options.tree, [TREE]), options)


def tight_id(part: Mapping[str, Flat], eta: Flat, lepton_veto: bool = False) -> npt.NDArray[np.bool_]:
    """Whether each jet passes the tight identification, from `jetId` or else from the energy fractions.

    part: columns of the jets, `jetId` or those of `FRACTIONS` and, for the lepton veto, of `VETO_FRACTIONS`. The
    criteria are those for AK4 PUPPI jets in Run 3, as CMS recommends them for version 15.

    >>> tight_id({"jetId": np.array([6, 2, 0])}, np.zeros(3), lepton_veto=True).tolist()
    [True, False, False]
    """
    if "jetId" in part:
        need = TIGHT | (LEPTON_VETO if lepton_veto else 0)
        return np.asarray((part["jetId"] & need) == need)
    # multiplicities are bytes in the file, and their sum must not overflow
    charged, neutral = (part[f"{kind}Multiplicity"].astype(np.int32) for kind in ("ch", "ne"))
    abs_eta = abs(eta)
    central = (part["neHEF"] < 0.99) & (part["neEmEF"] < 0.9) & (part["chHEF"] > 0.01) & (charged > 0)
    central &= charged + neutral > 1
    edge = (part["neHEF"] < 0.9) & (part["neEmEF"] < 0.99)
    forward = (part["neEmEF"] < 0.4) & (neutral >= 2)
    regions = [abs_eta <= 2.6, abs_eta <= 2.7, abs_eta <= 3.0]
    passes = np.select(regions, [central, edge, part["neHEF"] < 0.99], forward)
    if lepton_veto:
        passes = passes & ((abs_eta > 2.7) | ((part["muEF"] < 0.8) & (part["chEmEF"] < 0.8)))
    return passes


class NanoAODParquet(NanoAOD):
    name = "nanoaod_parquet"
    description = "CMS NanoAOD as Parquet: Jet_pt, Jet_eta, … with nJet or luminosityBlock"
    suffixes = (".parquet", ".pq")

    def recognises(self, file: Any) -> bool:
        is_nano = "nJet" in file or "luminosityBlock" in file  # files of Pairton may have the latter too
        return is_nano and file.text(KEY) is None and any(name.endswith("Jet_pt") for name in file.columns)

    def open(self, file: Any, options: ReadOptions) -> NanoAODSource:
        return NanoAODSource(file, options)


FORMATS = (NanoAOD(), NanoAODParquet())
