"""The jets and events that a model was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairton.errors import ModelError, shown

__all__ = ["Domain"]


@dataclass(frozen=True)
class Domain:
    """What a model was trained on; outside it, its answers are a guess.

    >>> Domain.from_dict({"pt": 25, "abs_eta": 2.5, "radius": 0.4, "btag": "binary", "jets": [6, 16]}).jets
    (6, 16)
    """

    pt: float = 0.0  # GeV, jets above
    abs_eta: float = float("inf")  # jets below
    radius: float | None = None  # of the jets, None for unknown
    btag: str = "binary"  # or continuous
    jets: tuple[int, int] = (0, 1_000_000)  # fewest and most in an event

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no infinity."""
        abs_eta = None if self.abs_eta == float("inf") else self.abs_eta
        return {
            "pt": self.pt,
            "abs_eta": abs_eta,
            "radius": self.radius,
            "btag": self.btag,
            "jets": list(self.jets),
        }

    @classmethod
    def from_dict(cls, raw: object, source: str = "domain") -> Domain:
        try:
            if not isinstance(raw, Mapping):
                raise TypeError
            low, high = raw["jets"]
            abs_eta, radius = raw["abs_eta"], raw["radius"]
            return cls(
                float(raw["pt"]),
                float("inf") if abs_eta is None else float(abs_eta),
                None if radius is None else float(radius),
                str(raw["btag"]),
                (int(low), int(high)),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ModelError(
                f"{source}: the domain is {shown(raw)}, but needs pt, abs_eta, radius, btag and jets: "
                "[fewest, most]"
            ) from None
