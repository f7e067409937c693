"""Identify electrons and muons, and remove jets that overlap with them, in the same way for all formats.

No object is taken out of a collection. Leptons that fail the identification, and jets near identified leptons,
stay in their places and are marked as not usable.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, PairtonWarning
from pairton.formats.flat_objects import FlatObjects
from pairton.formats.identification import NONE, Identification
from pairton.topology import Topology, collection_name
from pairton.topology.kinds import KINDS, LEPTONS

__all__ = [
    "SETTINGS",
    "LeptonSelection",
    "Overlap",
    "stored_leptons",
    "stored_settings",
]

Bools = npt.NDArray[np.bool_]

LEAST_PT = 15.0
SETTINGS: Mapping[str, str] = {  # keys of `--set` that all formats with leptons share
    "overlap": "jets within this delta R of an identified lepton are not used; none: use all jets; default: 0.4",
    "lepton_pt": "smallest pT in GeV of leptons that remove jets; default: 15",
}


def stored_settings() -> dict[str, str]:
    """Settings of formats with one collection per kind of lepton and without a default identification."""
    return {
        f"{kind}_id": f"conditions on fields of {collection_name(kind)}, for example isolation < 0.1; default: "
        "none"
        for kind in LEPTONS
    } | dict(SETTINGS)


@dataclass(frozen=True)
class Overlap:
    """The removal of jets near leptons."""

    radius: float = KINDS["lepton"].overlap  # delta R; 0: all jets are used
    pt: float = LEAST_PT  # smallest pT of the lepton, GeV
    default: bool = True  # whether the user did not choose it

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Overlap:
        given = settings.get("overlap", str(KINDS["lepton"].overlap))
        radius = 0.0 if given.lower() == NONE else _number("overlap", given, 2 * np.pi)
        pt = _number("lepton_pt", settings.get("lepton_pt", str(LEAST_PT)))
        return cls(radius, pt, "overlap" not in settings)

    def metadata(self) -> dict[str, Any]:
        if not self.radius:
            return {"overlap": NONE}
        return {"overlap": self.radius, "lepton_pt": self.pt}


def _number(key: str, text: str, most: float = inf) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < most:
        example = "0.4, or none" if key == "overlap" else "15"
        raise ConfigError(f"set {key}={text}: give a number such as {example}")
    return value


@dataclass
class LeptonSelection:
    """Which leptons pass their identification, and the removal of jets near them."""

    overlap: Overlap = Overlap(0.0)
    # kind, or collection of an experiment -> conditions; objects of others all pass
    identifications: Mapping[str, Identification] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)  # the settings, for results
    announced: bool = False  # whether the user was told of the removal

    def passes(self, name: str, fields: Mapping[str, npt.NDArray[Any]]) -> Bools | None:
        """Whether each object passes, given its fields as in the file; None without an identification."""
        found = self.identifications.get(name)
        return None if found is None else found.passes(fields, len(fields["pt"]))

    def fields(self, kind: str) -> tuple[str, ...]:
        """Fields that the identification of a kind needs, beyond the momentum."""
        names = self.identifications[kind].fields if kind in self.identifications else ()
        return tuple(name for name in names if name not in ("pt", "eta", "phi"))

    def remove_overlaps(self, jets: FlatObjects, leptons: Iterable[FlatObjects], scale: float) -> None:
        """Mark jets near leptons; momenta are divided by `scale` to get GeV."""
        for each in leptons:
            hard = each.fields["pt"] / scale > self.overlap.pt
            near = jets.near(each, hard if each.usable is None else hard & each.usable, self.overlap.radius)
            if not (near if jets.usable is None else near & jets.usable).any():
                continue
            if self.overlap.default and not self.announced:
                self.announced = True
                warnings.warn(
                    f"by default, jets within delta R = {self.overlap.radius:g} of an identified lepton above "
                    f"{self.overlap.pt:g} GeV are not used: use them with --set overlap=none",
                    PairtonWarning,
                    stacklevel=2,
                )
            jets.keep(~near)


def stored_leptons(settings: Mapping[str, str], topology: Topology, selected: bool = False) -> LeptonSelection:
    """For flat tables and files for training: all leptons are used, unless a setting gives conditions.

    selected: whether the objects were selected already, as in a file that Pairton wrote
    """
    keys = {kind: f"{kind}_id" for kind in LEPTONS if f"{kind}_id" in settings}
    for kind, key in keys.items():
        if kind not in topology.kinds:
            raise ConfigError(
                f"set {key}=…: {topology.name} has the kinds {', '.join(topology.kinds)}, but no "
                f"{collection_name(kind)}: remove the setting"
            )
    overlap = Overlap.parse({"overlap": NONE, **settings} if selected else settings)
    chosen = {kind: Identification.parse(settings[key], key) for kind, key in keys.items()}
    metadata: dict[str, Any] = {f"{kind}_id": str(conditions) for kind, conditions in chosen.items()}
    if not selected or "overlap" in settings:
        metadata |= overlap.metadata()
    return LeptonSelection(overlap, chosen, metadata if set(LEPTONS) & set(topology.kinds) else {})
