"""ATLAS DAOD_PHYSLITE, as TTree or RNTuple, in MeV. Positions of jets are those in `AnalysisJets`, unsorted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, PairtonWarning
from pairton.formats.base import Format, ReadOptions
from pairton.formats.column_files import DEFAULT_CHUNK
from pairton.formats.columns import Chosen
from pairton.formats.experiment import Collections, ExperimentSource, Flat, Flavour
from pairton.formats.flat_objects import Chunk, FlatObjects
from pairton.formats.lepton_selection import OVERLAP_SETTINGS
from pairton.formats.physlite_met import SoftTerms, summed_met
from pairton.formats.physlite_truth import TruthContainers
from pairton.formats.root_files import RootFile, RootTree
from pairton.formats.taggers import Scores
from pairton.formats.truth import TRUTH_SETTINGS, GenRecord
from pairton.formats.variations import choice
from pairton.topology import JET
from pairton.topology.kinds import FATJET

__all__ = ["FORMATS", "Physlite"]

TREES = {"CollectionTree": ".", "EventData": ":"}  # TTree, RNTuple -> separator of container and variable
JETS = "AnalysisJetsAuxDyn"
LARGE_JETS = "AnalysisLargeRJetsAuxDyn"  # groomed with soft drop
# probabilities of GN2X, and their weights in the background of an H to bb
GN2X = {"GN2Xv01_phbb": 0.0, "GN2Xv01_phcc": 0.02, "GN2Xv01_ptop": 0.25, "GN2Xv01_pqcd": 0.73}
GN2X_SCORE = "gn2x_hbb"
TAGS = "BTagging_AntiKt4EMPFlowAuxDyn"
INFO = "EventInfoAuxDyn"
CONTAINERS = {  # of kinds other than jets; missing energy is computed from the other objects
    "electron": ("AnalysisElectronsAuxDyn",),
    "muon": ("AnalysisMuonsAuxDyn",),
    "lepton": ("AnalysisElectronsAuxDyn", "AnalysisMuonsAuxDyn"),
    "photon": ("AnalysisPhotonsAuxDyn",),
    "tau": ("AnalysisTauJetsAuxDyn",),
    FATJET: (LARGE_JETS,),
}
TRACKS = "ptvarcone30_Nonprompt_All_MaxWeightTTVA"  # prefix of the track isolation
# tight electrons and medium muons with the isolation `Tight_VarRad`; the first possible one. Two bits of the
# quality are 0 tight, 1 medium, 2 loose, 3 very loose; the others are flags.
IDENTIFICATIONS = {
    "electron": (
        f"DFCommonElectronsLHTight, {TRACKS}LooseCone_pt1000 / pt < 0.06, topoetcone20 / pt < 0.06",
        "DFCommonElectronsLHTight, topoetcone20 / pt < 0.06",
    ),
    "muon": (
        f"(quality & 3) <= 1, {TRACKS}_pt1000 / pt < 0.04, topoetcone20 / pt < 0.15",
        "(quality & 3) <= 1, ptvarcone30 / pt < 0.04, topoetcone20 / pt < 0.15",
    ),
}
NUMBERS = ("runNumber", "lumiBlock", "eventNumber")
CHANNEL = "mcChannelNumber"
WEIGHTS = "mcEventWeights"
JVT_FLAGS = ("NNJvtPass", "DFCommonJets_passJvt")
JVT = "Jvt"  # the discriminant, for files without a flag
JVT_CUT, JVT_BELOW, JVT_ETA = 0.5, 60_000.0, 2.4  # default working point: cut, largest pT in MeV, largest |eta|


@dataclass(frozen=True)
class Fractions:
    """Fractions of charm and tau in the background of a discriminant; the rest is light."""

    charm: float
    tau: float = 0.0

    @classmethod
    def of(cls, tagger: str, given: str | None) -> Fractions:
        """The fractions that the user gave, or those of the tagger."""
        if given is None:
            if tagger not in FRACTIONS:
                raise ConfigError(
                    f"the fractions of {tagger} are not known: give --set fractions=CHARM or --set "
                    "fractions=CHARM,TAU"
                )
            return FRACTIONS[tagger]
        try:
            charm, tau = [*map(float, given.split(",")), 0.0][:2]
        except ValueError:
            charm, tau = -1.0, 0.0
        if not (charm >= 0 and tau >= 0 and charm + tau <= 1):
            raise ConfigError(
                f"set fractions={given}: write CHARM or CHARM,TAU, two numbers >= 0 that add up to at most 1"
            )
        return cls(charm, tau)

    @property
    def parts(self) -> tuple[str, ...]:
        """The probabilities of a tagger that the discriminant needs."""
        return ("pb", "pc", "pu", "ptau") if self.tau else ("pb", "pc", "pu")

    def discriminant(self, pb: ak.Array, pc: ak.Array, pu: ak.Array, ptau: ak.Array | float = 0.0) -> ak.Array:
        """log(p_b / background), where the background is weighted by the fractions."""
        background = self.charm * pc + (1 - self.charm - self.tau) * pu + self.tau * ptau
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(pb / background)


TAGGERS = ("GN2v01", "GN2v00", "DL1dv01", "DL1r")  # newest first
FRACTIONS = {
    "GN2v01": Fractions(0.2, 0.01),
    "GN2v00": Fractions(0.1),
    "DL1dv01": Fractions(0.018),
    "DL1r": Fractions(0.018),
}


class PhysliteSource(ExperimentSource):
    scale = 1000.0
    units = "MeV"
    truth_rows = DEFAULT_CHUNK
    field_names: ClassVar[dict[str, str]] = {
        "mass": "m",
        "msoftdrop": "m",
        "flavour": "HadronConeExclTruthLabelID",
    }

    def __init__(self, tree: RootTree, options: ReadOptions) -> None:
        self.mark = ":" if tree.is_rntuple else "."
        if "pt" not in options.map:
            tree.require([f"{JETS}{self.mark}pt"])
        present = [
            name.removeprefix(TAGS)[1:].removesuffix("_pb")
            for name in tree.columns
            if name.startswith(TAGS) and name.endswith("_pb")
        ]

        given = options.settings.get("fractions")

        def columns(name: str) -> list[str]:
            return [f"{TAGS}{self.mark}{name}_{part}" for part in Fractions.of(name, given).parts]

        def read(name: str, start: int, stop: int) -> ak.Array:
            tree.require(columns(name))
            found = tree.read(columns(name), start, stop)
            return Fractions.of(name, given).discriminant(*(found[column] for column in columns(name)))

        # other fractions make another score, which has no table
        scores = {name: name if given is None else f"{name},{given}" for name in present}
        self.tag_scores = Scores(scores, () if given else TAGGERS, read, tree.n_events, tree.path)
        self.tagger = self.tag_scores.choose(options.btag, options.evidence)
        self._tag_columns: list[str] = []
        self._links: list[str] = []
        if self.tagger.field:
            self.fractions = Fractions.of(self.tagger.name, given)
            self._tag_columns, self._links = (
                columns(self.tagger.name),
                _links(tree, f"{JETS}{self.mark}btaggingLink"),
            )
        self.jvt = self._jvt_column(tree, choice(options.settings, "jvt", ("pass", "none")))
        self.info = {
            name: f"{INFO}{self.mark}{name}"
            for name in (*NUMBERS, CHANNEL, WEIGHTS)
            if f"{INFO}{self.mark}{name}" in tree
        }
        self.flavours = tuple(
            Flavour(kind, f"{CONTAINERS[kind][0]}{self.mark}", defaults)
            for kind, defaults in IDENTIFICATIONS.items()
        )
        self.particles = TruthContainers(tree, self.mark)
        self.soft: SoftTerms | None = None
        if {JET, "met"} <= set(options.topology.kinds) and "met.pt" not in options.map:
            self.soft = SoftTerms.find(tree, self.mark)
        large = [f"{LARGE_JETS}{self.mark}{name}" for name in GN2X]
        self._large_tags = large if FATJET in options.topology.kinds and all(c in tree for c in large) else []
        containers = {JET: (JETS,), **CONTAINERS}
        super().__init__(
            tree, options, {kind: (tuple(name + self.mark for name in each),) for kind, each in containers.items()}
        )
        self.metadata |= {"jvt": self.jvt or "none"}
        if self.tagger.field:
            self.metadata["fractions"] = [self.fractions.charm, self.fractions.tau]
        if self.soft is not None:
            self.metadata["met"] = "sum of leptons, jets and the track soft term"
            warnings.warn(
                "the missing energy is computed from leptons, jets and the track soft term, because PHYSLITE "
                "files do not store it: to use another, name its columns with --map met.pt=COLUMN,met.phi=COLUMN",
                PairtonWarning,
                stacklevel=4,
            )

    def _find(self, kind: str, collections: Collections) -> dict[str, Chosen]:
        return {} if kind == "met" and self.soft is not None else super()._find(kind, collections)

    def read_kind(self, rows: Chunk, kind: str) -> FlatObjects:
        if kind != "met" or self.soft is None:
            found = super().read_kind(rows, kind)
            if kind == FATJET and self._large_tags:
                parts = np.array([rows.flat(column, found.counts) for column in self._large_tags])
                weights = np.array([*GN2X.values()])
                with np.errstate(divide="ignore", invalid="ignore"):
                    found.fields[GN2X_SCORE] = np.log(parts[0] / (weights @ parts))
            return found
        jets = super().read_kind(rows, JET)
        if (passes := self._passes_jvt(rows, jets)) is not None:
            jets.keep(passes)
        electrons, muons = (self.identified(rows, kind) for kind in ("electron", "muon"))
        return summed_met(rows, self.soft, jets, electrons, muons, self.scale)

    def _jvt_column(self, tree: RootTree, wanted: str) -> str | None:
        if wanted == "none":
            return None
        for name in (*JVT_FLAGS, JVT):
            if f"{JETS}{self.mark}{name}" in tree:
                return name
        warnings.warn(
            f"there is no jet vertex tag ({', '.join((*JVT_FLAGS, JVT))}) in the file, so jets from pile-up are "
            "used: give --set jvt=none if that is right",
            PairtonWarning,
            stacklevel=4,
        )
        return None

    def kept_column(self, name: str) -> str:
        return name if name in self.file else name.replace(".", self.mark)

    def more_columns(self) -> Sequence[str]:
        return [
            *self._tag_columns,
            *self._links,
            *self._large_tags,
            *(self.soft.columns if self.soft is not None else []),
            *([f"{JETS}{self.mark}{self.jvt}"] if self.jvt else []),
            *self.info.values(),
        ]

    def scores(self, rows: Chunk, counts: npt.NDArray[np.int64]) -> Flat:
        scores = self.fractions.discriminant(*(rows[column] for column in self._tag_columns))
        for name in self._links:
            if not np.array_equal(rows.jagged(name)[0], counts):
                raise FormatError(f"{self.path}: {name} and the jets have different lengths: write the file again")
        # a null link points beyond the container, or has the key 0 and any position; its jet is not tagged
        linked = rows.jagged(self._links[0])[1].astype(np.int64)
        n_tags = np.asarray(ak.num(scores, axis=1), dtype=np.int64)
        event = np.repeat(np.arange(len(counts)), counts)
        first = np.concatenate([[0], np.cumsum(n_tags)])
        valid = (linked >= 0) & (linked < n_tags[event])
        for key in self._links[1:]:
            valid &= rows.jagged(key)[1] != 0
        flat = np.append(np.asarray(ak.flatten(scores)), -np.inf)
        return flat[np.where(valid, first[event] + linked, -1)]

    def jet_rules(self, rows: Chunk, jets: FlatObjects) -> dict[str, npt.NDArray[np.bool_]]:
        passes = self._passes_jvt(rows, jets)
        return {} if passes is None else {f"fail jvt ({self.jvt})": passes}

    def _passes_jvt(self, rows: Chunk, jets: FlatObjects) -> npt.NDArray[np.bool_] | None:
        if self.jvt is None:
            return None
        flag = rows.flat(f"{JETS}{self.mark}{self.jvt}", jets.counts)
        if self.jvt != JVT:
            return np.asarray(flag != 0)
        hard = (jets.fields["pt"] >= JVT_BELOW) | (abs(jets.fields["eta"]) >= JVT_ETA)
        return np.asarray(hard | (flag > JVT_CUT))

    def record_columns(self) -> Sequence[str]:
        return self.particles.columns

    def record(self, rows: Chunk) -> GenRecord:
        return self.particles.record(rows)

    def read_weights(self, rows: Chunk) -> npt.NDArray[np.float64] | None:
        if WEIGHTS not in self.info:
            return None
        nominal = ak.firsts(rows[self.info[WEIGHTS]], axis=1)
        if bool(ak.all(ak.is_none(nominal))) and len(nominal):  # data
            return None
        return np.asarray(ak.fill_none(nominal, 1.0), dtype=np.float64)

    def read_ids(self, rows: Chunk) -> npt.NDArray[np.uint64]:
        if not all(name in self.info for name in NUMBERS):
            return super().read_ids(rows)
        run, block, event = (np.asarray(rows[self.info[name]]).astype(np.uint64) for name in NUMBERS)
        if CHANNEL in self.info:  # simulated samples share their run numbers
            channel = np.asarray(rows[self.info[CHANNEL]]).astype(np.uint64)
            run = np.where(channel > 0, channel, run)
        return np.stack([(run << np.uint64(32)) | block, event], axis=1)

    def carried(self, rows: Chunk) -> dict[str, ak.Array]:
        return {name: rows[column] for name, column in self.info.items() if name != WEIGHTS}


class Physlite(Format):
    name = "physlite"
    description = "ATLAS DAOD_PHYSLITE: tree CollectionTree or EventData with AnalysisJetsAuxDyn"
    suffixes = (".root",)
    settings: ClassVar[dict[str, str]] = {
        "jvt": "pass (default: jets must pass the jet vertex tag, if the file has it) or none",
        "electron_id": "conditions on fields of electrons; default: DFCommonElectronsLHTight and isolation",
        "muon_id": "conditions on fields of muons; default: (quality & 3) <= 1 and isolation",
        **OVERLAP_SETTINGS,
        **TRUTH_SETTINGS,
        "fractions": "CHARM or CHARM,TAU: fractions in the discriminant of a tagger, if they are not known",
    }
    reads_variations = True

    def recognises(self, file: RootFile) -> bool:
        columns = [column for name in TREES for column in file.columns(name)]
        return any(column.startswith((JETS, "AnalysisJets", INFO)) for column in columns)

    def open(self, file: RootFile, options: ReadOptions) -> PhysliteSource:
        return PhysliteSource(file.choose(options.tree, list(TREES)), options)


def _links(tree: RootTree, name: str) -> list[str]:
    """The column with the positions that links point to, and the one with the keys of the containers, if any.

    The names depend on the version of the file.
    """
    inside = [column for column in tree.columns if column.startswith(name) and column.endswith("m_persIndex")]
    tree.require(inside or [f"{name}.m_persIndex"])
    key = inside[0].removesuffix("m_persIndex") + "m_persKey"
    return [inside[0], *([key] if key in tree else [])]


FORMATS = (Physlite(),)
