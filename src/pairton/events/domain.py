"""The objects and events that a model was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from pairton.errors import ModelError, shown

__all__ = ["Domain", "KindDomain"]


@dataclass(frozen=True)
class KindDomain:
    """Objects of one kind that a model was trained on."""

    pt: float = 0.0  # GeV, at least
    abs_eta: float = inf  # at most
    count: tuple[int, int] = (0, 1_000_000)  # fewest and most per event
    radius: float | None = None  # of jets; None for unknown
    binary: tuple[str, ...] = ()  # fields that were only ever 0 or 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no infinity."""
        abs_eta = None if self.abs_eta == inf else self.abs_eta
        rest = {"count": list(self.count), "radius": self.radius, "binary": list(self.binary)}
        return {"pt": self.pt, "abs_eta": abs_eta, **rest}


@dataclass(frozen=True)
class Domain:
    """What a model was trained on; outside it, its answers are a guess.

    >>> raw = {"jet": {"pt": 25, "abs_eta": 2.5, "count": [6, 16], "radius": 0.4, "binary": ["btag"]}}
    >>> Domain.from_dict(raw)["jet"].count
    (6, 16)
    """

    kinds: Mapping[str, KindDomain] = field(default_factory=dict)

    def __getitem__(self, kind: str) -> KindDomain:
        """What is known of a kind; no bounds where nothing is."""
        return self.kinds.get(kind, KindDomain())

    def to_dict(self) -> dict[str, Any]:
        return {kind: domain.to_dict() for kind, domain in self.kinds.items()}

    @classmethod
    def from_dict(cls, raw: object, source: str = "domain") -> Domain:
        try:
            if not isinstance(raw, Mapping):
                raise TypeError
            return cls({str(kind): _kind(part) for kind, part in raw.items()})
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ModelError(
                f"{source}: the domain is {shown(raw)}, but each kind needs pt, abs_eta and count: [fewest, most]"
            ) from None


def _kind(raw: Mapping[str, Any]) -> KindDomain:
    low, high = raw["count"]
    abs_eta, radius = raw["abs_eta"], raw.get("radius")
    return KindDomain(
        float(raw["pt"]),
        inf if abs_eta is None else float(abs_eta),
        (int(low), int(high)),
        None if radius is None else float(radius),
        tuple(map(str, raw.get("binary", ()))),
    )
