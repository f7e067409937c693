"""Identify electrons and muons, and remove jets that overlap with them, in the same way for all formats.

No object is taken out of a collection. Leptons that fail the identification, and jets near identified leptons,
stay in their places and are marked as not usable.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pairton.errors import ConfigError, PairtonWarning
from pairton.formats.expressions import NONE, Expression
from pairton.formats.flat_objects import FlatObjects
from pairton.topology import Topology, collection_name
from pairton.topology.kinds import KINDS, LEPTONS

__all__ = ["OVERLAP_SETTINGS", "STORED_SETTINGS", "LeptonSelection", "identification", "stored_leptons"]

OVERLAP_SETTINGS: Mapping[str, str] = {  # keys of `--set` that all formats with leptons share
    "overlap": "jets within this delta R of an identified lepton are not used; none: use all jets; default: 0.4",
    "lepton_pt": "smallest pT in GeV of leptons that remove jets; default: 15",
}
STORED_SETTINGS = {  # of formats with one collection per kind of lepton and without a default identification
    f"{kind}_id": f"conditions on fields of {collection_name(kind)}, for example isolation < 0.1; default: none"
    for kind in LEPTONS
} | dict(OVERLAP_SETTINGS)


def identification(text: str, key: str) -> Expression:
    """The conditions of an identification, from the setting with a key."""
    return Expression.parse(text, f"set {key}")


@dataclass
class LeptonSelection:
    """Which leptons pass their identification, and the removal of jets near them."""

    radius: float = 0.0  # delta R of the removal; 0: all jets are used
    pt: float = 0.0  # smallest pT of leptons that remove jets, GeV
    # kind, or collection of an experiment -> conditions; objects of others all pass
    conditions: Mapping[str, Expression] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)  # the settings, for results
    announced: bool = False  # whether the user chose the removal, or was told of it

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> LeptonSelection:
        """The removal that settings ask for, without identifications."""
        given = settings.get("overlap", str(KINDS["lepton"].overlap))
        radius = 0.0 if given.lower() == NONE else _number("overlap", given, 2 * np.pi, "0.4, or none")
        pt = _number("lepton_pt", settings.get("lepton_pt", "15"), np.inf, "15")
        metadata = {"overlap": radius, "lepton_pt": pt} if radius else {"overlap": NONE}
        return cls(radius, pt, metadata=metadata, announced="overlap" in settings)

    def identify(self, name: str, objects: FlatObjects) -> None:
        """Mark objects that fail the conditions, given their fields as in the file."""
        if name in self.conditions:
            objects.keep(self.conditions[name].holds(objects.fields, len(objects)))

    def fields(self, name: str) -> tuple[str, ...]:
        """Fields that an identification needs, beyond the momentum."""
        names = self.conditions[name].names if name in self.conditions else ()
        return tuple(each for each in names if each not in ("pt", "eta", "phi"))

    def remove_overlaps(self, jets: FlatObjects, leptons: Iterable[FlatObjects], scale: float) -> None:
        """Mark jets near leptons; momenta are divided by `scale` to get GeV."""
        for each in leptons:
            near = jets.near(each, each.passing & (each.fields["pt"] / scale > self.pt), self.radius)
            if not (near & jets.passing).any():
                continue
            if not self.announced:
                self.announced = True
                warnings.warn(
                    f"by default, jets within delta R = {self.radius:g} of an identified lepton above "
                    f"{self.pt:g} GeV are not used: use them with --set overlap=none",
                    PairtonWarning,
                    stacklevel=2,
                )
            jets.keep(~near)


def stored_leptons(settings: Mapping[str, str], topology: Topology, selected: bool) -> LeptonSelection:
    """For flat tables and files for training: all leptons are used, unless a setting gives conditions.

    selected: whether the objects were selected already, as in a file that Pairton wrote
    """
    found = LeptonSelection.from_settings({"overlap": NONE, **settings} if selected else settings)
    keys = {kind: f"{kind}_id" for kind in LEPTONS if f"{kind}_id" in settings}
    if others := [kind for kind in keys if kind not in topology.kinds]:
        raise ConfigError(
            f"set {keys[others[0]]}=…: {topology.name} has the kinds {', '.join(topology.kinds)}, but no "
            f"{collection_name(others[0])}: remove the setting"
        )
    found.conditions = {kind: identification(settings[key], key) for kind, key in keys.items()}
    overlap = {} if selected and "overlap" not in settings else found.metadata
    found.metadata = {keys[kind]: str(conditions) for kind, conditions in found.conditions.items()} | dict(overlap)
    if not set(LEPTONS) & set(topology.kinds):
        found.metadata = {}
    return found


def _number(key: str, text: str, most: float, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < most:
        raise ConfigError(f"set {key}={text}: give a number such as {example}")
    return value
