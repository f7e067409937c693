"""The selection of objects and events in a topology."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from pairton._common.configuration import check_keys, configure
from pairton.errors import TopologyError
from pairton.topology.kinds import JET, collection_name, counted

__all__ = ["Cuts", "Selection"]

Limit = Annotated[float, Meta(ge=0, description="a number of 0 or more")]
Count = Annotated[int, Meta(ge=0, description="a whole number of 0 or more")]
Bounds = Annotated[tuple[Count, ...], Meta(min_length=2, max_length=2, description="[fewest, most]")]


@dataclass(frozen=True)
class Cuts:
    """Which objects of one kind are used. Both limits are inclusive, because files store rounded values."""

    pt: Limit = 0.0  # minimum, GeV
    abs_eta: Limit = inf  # maximum

    def __str__(self) -> str:
        parts = [f"pT > {self.pt:g} GeV"] * (self.pt > 0) + [f"|eta| < {self.abs_eta:g}"] * (self.abs_eta < inf)
        return ", ".join(parts)


@dataclass(frozen=True)
class Selection:
    """Cuts without truth: first on objects, then on the numbers of remaining objects per event.

    >>> str(Selection({"jet": Cuts(pt=25)}, {"jet": (6, None)})), str(Selection())
    ('6+ jets; jets pT > 25 GeV', 'no cuts')
    """

    objects: Mapping[str, Cuts] = field(default_factory=dict)  # kind -> cuts
    counts: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)  # kind -> (fewest, most or None)
    btags: int = 0  # fewest b-tagged jets

    def cuts(self, kind: str) -> Cuts:
        """The cuts on objects of a kind; by default there are none."""
        return self.objects.get(kind, Cuts())

    def failures(
        self, counts: Mapping[str, npt.NDArray[np.integer]], btags: npt.NDArray[np.integer] | None
    ) -> dict[str, npt.NDArray[np.bool_]]:
        """Reason -> (n,): events that have too few or too many objects of a kind, or b-tags; None: unknown.

        >>> Selection(counts={"lepton": (2, 2)}).failures({"lepton": np.array([0, 2, 3])}, None)
        {'fewer than 2 leptons': array([ True, False, False]), 'more than 2 leptons': array([False, False,  True])}
        """
        found = {}
        for kind, (fewest, most) in self.counts.items():
            found[f"fewer than {counted(fewest, kind)}"] = counts[kind] < fewest
            if most is not None:
                found[f"more than {counted(most, kind)}"] = counts[kind] > most
        return (
            found
            if btags is None
            else found | {f"fewer than {self.btags} b-tag{'s' * (self.btags > 1)}": btags < self.btags}
        )

    def accepts(
        self, counts: Mapping[str, npt.NDArray[np.integer]], btags: npt.NDArray[np.integer] | None
    ) -> npt.NDArray[np.bool_]:
        """(n,): whether events have the required numbers (n,) of objects by kind, and of b-tags; None: unknown."""
        none = np.zeros(len(next(iter(counts.values()))), dtype=bool)
        return np.asarray(~np.logical_or.reduce([none, *self.failures(counts, btags).values()]))

    def includes(self, other: Selection) -> bool:
        """Whether every event that the other selection accepts is accepted by this one too."""
        for kind, (fewest, most) in self.counts.items():
            own, cuts = self.cuts(kind), other.cuts(kind)
            other_fewest, other_most = other.counts.get(kind, (0, None))
            if fewest and (other_fewest < fewest or own.pt > cuts.pt or own.abs_eta < cuts.abs_eta):
                return False
            if most is not None and (other_most is None or other_most > most or own != cuts):
                return False
        own, cuts = self.cuts(JET), other.cuts(JET)
        return self.btags == 0 or (other.btags >= self.btags and own.pt <= cuts.pt and own.abs_eta >= cuts.abs_eta)

    @classmethod
    def parse(cls, raw: object, kinds: Iterable[str]) -> Selection:
        """Read plain data as in the file of a topology with these kinds of objects."""
        names = {collection_name(kind): kind for kind in kinds}
        parts = check_keys(raw, "selection", [*names, "event"], error=TopologyError)
        event = check_keys(parts.pop("event", {}), "selection.event", [*names, "btags"], error=TopologyError)
        btags = configure(dict[str, Count], {"btags": event.pop("btags", 0)}, "selection.event", TopologyError)
        counts = {}
        for key, value in configure(dict[str, Count | Bounds], event, "selection.event", TopologyError).items():
            fewest, most = value if isinstance(value, tuple) else (value, None)
            if most is not None and most < fewest:
                raise TopologyError(f"selection.event.{key} is [{fewest}, {most}], but must be in this order")
            counts[names[key]] = fewest, most
        cuts = configure(dict[str, Cuts], parts, "selection", TopologyError)
        return cls({names[key]: value for key, value in cuts.items()}, counts, btags["btags"])

    def to_dict(self) -> dict[str, Any]:
        """Plain data as in the file of a topology."""
        objects = {
            collection_name(kind): {"pt": cuts.pt} | ({"abs_eta": cuts.abs_eta} if cuts.abs_eta < inf else {})
            for kind, cuts in self.objects.items()
        }
        counts = {
            collection_name(kind): fewest if most is None else [fewest, most]
            for kind, (fewest, most) in self.counts.items()
        }
        return {**objects, "event": {**counts, "btags": self.btags}}

    def __hash__(self) -> int:
        return hash((tuple(self.objects.items()), tuple(self.counts.items()), self.btags))

    def __str__(self) -> str:
        events = []
        for kind, (fewest, most) in self.counts.items():
            bounds = f"{fewest}+" if most is None else str(fewest) if most == fewest else f"{fewest} to {most}"
            events.append(counted(bounds, kind))
        events += [f"{self.btags}+ b-tags"] * (self.btags > 0)
        objects = [f"{collection_name(kind)} {cuts}" for kind, cuts in self.objects.items() if str(cuts)]
        return "; ".join(part for part in (", ".join(events), *objects) if part) or "no cuts"
