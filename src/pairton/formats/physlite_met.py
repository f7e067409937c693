"""Missing energy in PHYSLITE files, which do not store it: computed from leptons, jets and the track soft term.

The tool of ATLAS removes overlaps with an association map. Here, distances are used instead: a jet within 0.2 of
an identified electron is taken to be that electron. Photons and taus count as jets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError
from pairton.events.objects import make_met
from pairton.formats.column_files import Table
from pairton.formats.lepton_selection import Overlap

__all__ = ["SoftTerms", "summed_met"]

CORE = "MET_Core_AnalysisMETAuxDyn"
ASSOCIATIONS = "METAssoc_AnalysisMET"
SOFT_TRACKS = 0x4020  # bits of `source` for the soft term from tracks
JET_PT, FORWARD_PT, FORWARD, MOST_ETA = 20.0, 30.0, 2.4, 4.5  # cuts on the jets in the sum; pT in GeV
LEPTON_PT = 10.0  # smallest pT of the leptons in the sum, GeV
SAME = 0.2  # delta R between an electron and its jet

Columns = Mapping[str, ak.Array]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SoftTerms:
    """Columns of the soft term: tracks outside of jets, and tracks of jets that are too soft for the sum."""

    core: tuple[str, str, str]  # mpx, mpy, source
    tracks: tuple[str, ...]  # jettrkpx, jettrkpy; empty if the file has no associations

    @classmethod
    def find(cls, tree: Table, mark: str) -> SoftTerms:
        """Find the columns; FormatError if there are none. `mark` separates container and variable."""
        core = (f"{CORE}{mark}mpx", f"{CORE}{mark}mpy", f"{CORE}{mark}source")
        if missing := [name for name in core if name not in tree]:
            raise FormatError(
                f"{tree.path}: the missing energy cannot be computed without its soft term "
                f"({', '.join(missing)}): name columns of another one with --map met.pt=COLUMN,met.phi=COLUMN"
            )
        tracks = [
            next((c for c in tree.columns if c.startswith(ASSOCIATIONS) and c.endswith(f"jettrkp{axis}")), None)
            for axis in "xy"
        ]
        return cls(core, tuple(name for name in tracks if name) if all(tracks) else ())

    @property
    def columns(self) -> list[str]:
        return [*self.core, *self.tracks]

    def core_sum(self, found: Columns) -> tuple[Floats, Floats]:
        """x and y (n,) of the soft term from tracks outside of jets, in MeV."""
        mpx, mpy, source = (found[name] for name in self.core)
        is_soft = (source & SOFT_TRACKS) == SOFT_TRACKS
        return _sum(mpx[is_soft]), _sum(mpy[is_soft])

    def jet_tracks(self, found: Columns, jets: ak.Array) -> tuple[ak.Array, ak.Array] | None:
        """x and y of the tracks of each jet, in MeV. The last association is for tracks outside of jets."""
        if not self.tracks:
            return None
        counts = ak.num(jets, axis=1)
        lists = [found[name] for name in self.tracks]
        if not all(ak.all(ak.num(each, axis=1) > counts) for each in lists):
            return None  # associations and jets were thinned differently, so they cannot be paired
        x, y = (each[ak.local_index(each, axis=1) < counts] for each in lists)
        return x, y


def summed_met(
    found: Columns,
    soft: SoftTerms,
    jets: ak.Array,
    usable: ak.Array | None,
    electrons: Sequence[ak.Array],
    muons: Sequence[ak.Array],
    scale: float,
) -> ak.Array:
    """The missing energy in GeV, one object per event.

    jets               in GeV
    usable             whether each jet passes the jet vertex tag; None: all do
    electrons, muons   collections of identified leptons, in GeV
    scale              divides the soft terms to get GeV
    """
    x, y = (part / scale for part in soft.core_sum(found))
    hard = (jets.pt > JET_PT) & ((abs(jets.eta) < FORWARD) | (jets.pt > FORWARD_PT)) & (abs(jets.eta) < MOST_ETA)
    hard = hard if usable is None else hard & usable
    free = ak.ones_like(hard)
    for leptons in (*electrons, *muons):
        kept = leptons[leptons.pt > LEPTON_PT]
        x, y = x - _sum(kept.pt * np.cos(kept.phi)), y - _sum(kept.pt * np.sin(kept.phi))
    for leptons in electrons:
        free = free & ~Overlap(SAME).beside(jets, leptons[leptons.pt > LEPTON_PT])
    used = jets[hard & free]
    x, y = x - _sum(used.pt * np.cos(used.phi)), y - _sum(used.pt * np.sin(used.phi))
    if (tracks := soft.jet_tracks(found, jets)) is not None:
        left = ~hard & free
        x, y = x - _sum(tracks[0][left]) / scale, y - _sum(tracks[1][left]) / scale
    return make_met(np.hypot(x, y), np.arctan2(y, x))


def _sum(values: ak.Array) -> Floats:
    return np.asarray(ak.sum(values, axis=1), dtype=np.float64)
