"""Transfer functions: the probability density of a measured energy, given the true one.

    W(E_measured | E) = sum over components  share * Normal(E_measured; scale * E + offset, sigma(E)),
    sigma(E)^2 = (a E)^2 + b^2 E + c^2,

with one set of components per bin of |eta|. A single component with scale 1 and offset 0 is the Gaussian of
KLFitter's tests. Each component of the missing energy has sigma^2 = b^2 S + c^2, with S the scalar sum of the pT
of all jets and leptons that are used.

Shapes: G components, F fits, V measured objects of a fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct
from msgspec.structs import astuple, replace

from pairton._common.configuration import configure

__all__ = ["Component", "EtaBin", "MetResolution", "Response", "Transfer", "parse_transfer", "response"]

Floats = npt.NDArray[np.float64]
RARE = 0.2  # components with a smaller share, relative to the largest one, are rare
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


class Component(Struct, frozen=True, omit_defaults=True):
    """One normal distribution of the measured energy around scale * E + offset."""

    share: Positive = 1.0
    scale: Positive = 1.0
    offset: float = 0.0  # GeV
    a: float = 0.0
    b: float = 0.0  # sqrt(GeV)
    c: float = 0.0  # GeV

    def __post_init__(self) -> None:
        if not 0 < self.sigma(50.0) < math.inf or not math.isfinite(self.share + self.scale + self.offset):
            raise ValueError("one of a, b, c must be above 0, and all numbers finite")

    def sigma(self, energy: npt.ArrayLike) -> Floats:
        """The width at these true energies.

        >>> Component(a=0.03, b=0.5, c=1.6).sigma(100.0).round(2).item()
        6.05
        """
        energy = np.asarray(energy, np.float64)
        return np.sqrt((self.a * energy) ** 2 + self.b**2 * energy + self.c**2)


class EtaBin(Struct, frozen=True, omit_defaults=True):
    """The components up to some |eta|; the last bin also holds beyond its edge."""

    abs_eta: Positive = math.inf
    components: tuple[Component, ...] = ()

    def __post_init__(self) -> None:
        if abs((total := sum(component.share for component in self.components)) - 1) > 1e-3:
            raise ValueError(f"the shares of the components add up to {total:g}, but must add up to 1")


class MetResolution(Struct, frozen=True):
    """The resolution of each component of the missing energy: sigma^2 = b^2 S + c^2."""

    b: NotNegative = 0.0  # sqrt(GeV)
    c: NotNegative = 20.0  # GeV

    def __post_init__(self) -> None:
        if not 0 < self.b + self.c < math.inf:
            raise ValueError(f"b is {self.b:g} and c {self.c:g}: give finite numbers, one above 0")


class Transfer(Struct, frozen=True):
    """The transfer functions of b jets, other jets and leptons, and the resolution of the missing energy."""

    b: tuple[EtaBin, ...]
    light: tuple[EtaBin, ...]
    lepton: tuple[EtaBin, ...]
    met: MetResolution

    def __post_init__(self) -> None:
        for name in ("b", "light", "lepton"):
            edges = [each.abs_eta for each in getattr(self, name)]
            if not edges or any(low >= high for low, high in pairwise(edges)):
                raise ValueError(f"{name} must list bins, each with abs_eta above that of the previous bin")


def parse_transfer(raw: object, source: str) -> Transfer:
    """Transfer functions from parsed YAML; a bin has `components`, or is a single component itself.

    >>> jets = [{"abs_eta": 1.7, "a": 0.03, "b": 0.52, "c": 1.6}, {"abs_eta": 3.2, "a": 0.05, "b": 0.7}]
    >>> parsed = parse_transfer({"b": jets, "light": jets, "lepton": [{"a": 0.02}], "met": {"c": 20}}, "transfer")
    >>> parsed.b[1].components[0].b, parsed.met.c
    (0.7, 20.0)
    """
    if isinstance(raw, Mapping):
        raw = {name: list(map(_as_bin, bins)) if isinstance(bins, list) else bins for name, bins in raw.items()}
    return configure(Transfer, raw, source)


def _as_bin(raw: object) -> object:
    """A single component as a bin with one component."""
    if not isinstance(raw, Mapping) or "components" in raw:
        return raw
    edge = {name: raw[name] for name in raw if name == "abs_eta"}
    return {**edge, "components": [{name: raw[name] for name in raw if name != "abs_eta"}]}


@dataclass(frozen=True)
class Response:
    """The components of the transfer functions of measured objects: arrays (G, V, F)."""

    share: Floats
    scale: Floats
    offset: Floats
    a2: Floats
    b2: Floats
    c2: Floats

    def take(self, fits: npt.NDArray[Any]) -> Response:
        """Some of the fits."""
        return Response(*(getattr(self, field.name).take(fits, axis=-1) for field in fields(self)))

    def smooth(self) -> Response:
        """A single normal distribution with the mean and variance of the components that are not rare."""
        if len(self.share) == 1:
            return self
        share = np.where(self.share >= RARE * self.share.max(axis=0), self.share, 0)
        share = share / share.sum(axis=0)

        def mean(values: Floats) -> Floats:
            return np.asarray((share * values).sum(axis=0, keepdims=True))

        scale, offset = mean(self.scale), mean(self.offset)
        d_scale, d_offset = self.scale - scale, self.offset - offset
        parts = self.a2 + d_scale**2, self.b2 + 2 * d_scale * d_offset, self.c2 + d_offset**2
        return Response(np.ones_like(scale), scale, offset, *map(mean, parts))

    def log_density(self, energy: Floats, measured: Floats) -> Floats:
        """(V, F): log W(measured | energy)."""
        pull = measured - self.scale * energy - self.offset
        per = 1 / ((self.a2 * energy + self.b2) * energy + self.c2)
        weight, most = self._weights(per, pull * pull * per)
        return np.asarray(np.log(weight.sum(axis=0)) + most)

    def derivatives(self, energy: Floats, measured: Floats) -> tuple[Floats, Floats]:
        """The first and second derivative of log W by the true energy, (V, F) each."""
        pull = measured - self.scale * energy - self.offset
        slope = self.a2 * energy  # becomes d variance / dE; `per` becomes 1 / variance
        per = slope + self.b2
        slope += per
        per = 1 / (per * energy + self.c2)
        square = pull * pull * per
        slope *= per
        ratio = self.scale * per
        first = ratio * pull + 0.5 * slope * (square - 1)
        second = self.a2 * per * (square - 1) + slope * slope * (0.5 - square)
        second -= ratio * (self.scale + 2 * slope * pull)
        if len(first) == 1:
            return first[0], second[0]
        weight, _ = self._weights(per, square)
        weight /= weight.sum(axis=0)
        mean = (weight * first).sum(axis=0)
        return mean, (weight * (second + first * first)).sum(axis=0) - mean * mean

    def _weights(self, per: Floats, square: Floats) -> tuple[Floats, Floats]:
        """Densities of the components (G, V, F) over exp(most), so that they do not vanish; `most` (V, F)."""
        most = -0.5 * square.min(axis=0)
        return self.share * np.sqrt(per) * np.exp(-0.5 * square - most), most - HALF_LOG_2PI


def response(bins: Sequence[Sequence[EtaBin]], abs_eta: Floats) -> Response:
    """The components for the |eta| (V, F) of each object; `bins` has one entry per object of a fit.

    Bins with fewer components than others are padded with copies of their first component with a share of 0.
    """
    most = max(len(each.components) for entries in bins for each in entries)
    numbers = np.zeros((6, most, *abs_eta.shape))
    for v, entries in enumerate(bins):
        edges = np.array([each.abs_eta for each in entries[:-1]])
        which = np.searchsorted(edges, abs_eta[v], side="left")  # (F,)
        for g in range(most):
            parts = [
                each.components[g] if g < len(each.components) else replace(each.components[0], share=0.0)
                for each in entries
            ]
            numbers[:, g, v] = np.array([astuple(part) for part in parts]).T[:, which]
    share, scale, offset, a, b, c = numbers
    return Response(share, scale, offset, a**2, b**2, c**2)
