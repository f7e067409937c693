"""Missing energy in PHYSLITE files, which do not store it: computed from leptons, jets and the track soft term.

The tool of ATLAS removes overlaps with an association map. Here, distances are used instead: a jet within 0.2 of
an identified electron is taken to be that electron. Photons and taus count as jets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError
from pairton.formats.column_files import Table
from pairton.formats.flat_objects import Chunk, FlatObjects

__all__ = ["SoftTerms", "summed_met"]

CORE = "MET_Core_AnalysisMETAuxDyn"
ASSOCIATIONS = "METAssoc_AnalysisMET"
SOFT_TRACKS = 0x4020  # bits of `source` for the soft term from tracks
JET_PT, FORWARD_PT, FORWARD, MOST_ETA = 20.0, 30.0, 2.4, 4.5  # cuts on the jets in the sum; pT in GeV
LEPTON_PT = 10.0  # smallest pT of the leptons in the sum, GeV
SAME = 0.2  # delta R between an electron and its jet

Bools = npt.NDArray[np.bool_]
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

    def core_sum(self, rows: Chunk) -> tuple[Floats, Floats]:
        """x and y (n,) of the soft term from tracks outside of jets."""
        mpx, mpy, source = (rows[name] for name in self.core)
        is_soft = (source & SOFT_TRACKS) == SOFT_TRACKS
        x, y = (np.asarray(ak.sum(part[is_soft], axis=1), dtype=np.float64) for part in (mpx, mpy))
        return x, y

    def jet_tracks(self, rows: Chunk, jets: FlatObjects) -> tuple[Floats, Floats] | None:
        """x and y of the tracks of each jet. The last association is for tracks outside of jets."""
        if not self.tracks:
            return None
        lists = [rows[name] for name in self.tracks]
        if not all(ak.all(ak.num(each, axis=1) > jets.counts) for each in lists):
            return None  # associations and jets were thinned differently, so they cannot be paired
        x, y = (np.asarray(ak.flatten(a[ak.local_index(a, axis=1) < jets.counts]), np.float64) for a in lists)
        return x, y


def summed_met(
    rows: Chunk,
    soft: SoftTerms,
    jets: FlatObjects,
    electrons: Sequence[FlatObjects],
    muons: Sequence[FlatObjects],
    gev: float,
) -> FlatObjects:
    """The missing energy, one object per event, in the units of the file; `gev` is 1 GeV.

    jets               those that pass the jet vertex tag are usable
    electrons, muons   collections of leptons; the identified ones are usable
    """
    x, y = soft.core_sum(rows)

    def subtract(part: FlatObjects, used: Bools, own_x: Floats | None = None, own_y: Floats | None = None) -> None:
        """Subtract the momenta, or other vectors, of the objects that are used."""
        nonlocal x, y
        pt, phi = (np.asarray(part.fields[name], np.float64) for name in ("pt", "phi"))
        for_x, for_y = (pt * np.cos(phi), pt * np.sin(phi)) if own_x is None or own_y is None else (own_x, own_y)
        x = x - np.bincount(part.event[used], for_x[used], minlength=len(x))
        y = y - np.bincount(part.event[used], for_y[used], minlength=len(y))

    pt, eta = jets.fields["pt"], abs(jets.fields["eta"])
    hard = (pt > JET_PT * gev) & ((eta < FORWARD) | (pt > FORWARD_PT * gev)) & (eta < MOST_ETA)
    hard &= jets.passing
    free = np.ones(len(jets), dtype=bool)
    for k, leptons in enumerate((*electrons, *muons)):
        kept = leptons.passing & (leptons.fields["pt"] > LEPTON_PT * gev)
        subtract(leptons, kept)
        if k < len(electrons):
            free &= ~jets.near(leptons, kept, SAME)
    subtract(jets, hard & free)
    if (tracks := soft.jet_tracks(rows, jets)) is not None:
        subtract(jets, ~hard & free, *tracks)
    one = np.ones(len(x), dtype=np.int64)
    return FlatObjects(one, {"pt": np.hypot(x, y), "phi": np.arctan2(y, x)})
