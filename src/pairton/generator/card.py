"""Detector cards: the parameters of the fast simulation, from YAML; the classes follow the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct
from msgspec.structs import astuple, replace

from pairton._common.atomic import note_input
from pairton._common.configuration import configure, parse_yaml, read_text
from pairton.errors import ConfigError, nearest
from pairton.events.tags import FLAVOURS, TagTable, parse_table

__all__ = [
    "BTag",
    "Calorimeter",
    "Card",
    "FatJets",
    "Field",
    "Grid",
    "Jets",
    "Leptons",
    "Rings",
    "load_card",
    "parse_card",
]

CARDS = Path(__file__).parent / "cards"
SCORE_CUTS = np.array([0.02, *np.arange(1, 20) / 20, 0.98])
MOST_TOWERS = 36_000  # rings, and towers of a ring

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Number = Annotated[float, Meta(ge=0, lt=1e9)]
AboveZero = Annotated[float, Meta(gt=0, lt=1e9)]
Part = Annotated[float, Meta(ge=0, le=1)]


class Field(Struct, frozen=True):
    """The cylinder with the magnetic field."""

    tesla: Number
    radius: AboveZero  # m
    half_length: AboveZero  # m


class Region(Struct, frozen=True):
    """Values up to some |eta|."""

    below: Number


def in_region(regions: Sequence[Region], abs_eta: Floats) -> tuple[npt.NDArray[np.bool_], list[Floats]]:
    """Which |eta| are within the regions, and each value there; beyond, those of the last region."""
    edges, *values = np.array([astuple(region) for region in regions]).T
    region = np.searchsorted(edges, abs_eta)
    return region < len(edges), [value[np.minimum(region, len(edges) - 1)] for value in values]


def _check_rising(regions: Iterable[Region], name: str) -> None:
    edges = [region.below for region in regions]
    if not edges or any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"{name} has regions below {edges}: order them by rising |eta|")


class Resolution(Region, frozen=True):
    """The resolution of a calorimeter."""

    constant: Number
    stochastic: Number
    noise: Number


class Rings(Struct, frozen=True, rename={"low": "from", "high": "to"}):
    """Rings of towers of equal width: their edges in |eta|, or the first, the last and the step between them."""

    phi: AboveZero  # width of a tower in degrees
    edges: tuple[Number, ...] = ()
    low: Number = 0.0
    high: Number = 0.0
    step: AboveZero = 1.0

    def __post_init__(self) -> None:
        if not (360 / self.phi).is_integer() or 360 / self.phi > MOST_TOWERS:
            raise ValueError(f"phi is {self.phi} degrees, but must divide 360, into {MOST_TOWERS} at most")
        if not self.edges and (self.high - self.low) / self.step > MOST_TOWERS:
            raise ValueError(f"step is {self.step}: more than {MOST_TOWERS} rings")
        if len(self.all_edges) < 2:
            raise ValueError("a ring has fewer than two edges: give the lower and the upper one")

    @property
    def all_edges(self) -> Sequence[float]:
        count = max(round((self.high - self.low) / self.step), 0) + 1
        return self.edges or np.linspace(self.low, self.high, count).tolist()


class Grid(NamedTuple):
    """Rings of calorimeter towers in |eta|, each with its own number of towers in phi."""

    edges: Floats  # (rings + 1,): |eta|, rising
    n_phi: Ints  # (rings,): towers per ring


class Calorimeter(Struct, frozen=True, dict=True):
    """Towers, their resolution and their thresholds."""

    threshold: Number  # GeV
    significance: Number  # least energy of a tower, in units of its resolution
    towers: tuple[Rings, ...]
    resolution: tuple[Resolution, ...]

    def __post_init__(self) -> None:
        _check_rising(self.resolution, "resolution")
        edges = [rings.all_edges for rings in self.towers]
        if not edges or any(not np.isclose(one[-1], other[0]) for one, other in pairwise(edges)):
            raise ValueError(f"towers end and begin at {[(e[0], e[-1]) for e in edges]}: rings must be contiguous")
        if np.any(np.diff(self.grid.edges) <= 0):
            raise ValueError("towers have edges that do not rise: order them by rising |eta|")

    @cached_property
    def grid(self) -> Grid:
        edges = [self.towers[0].all_edges[0], *(edge for rings in self.towers for edge in rings.all_edges[1:])]
        n_phi = [[round(360 / rings.phi)] * (len(rings.all_edges) - 1) for rings in self.towers]
        return Grid(np.array(edges), np.concatenate(n_phi).astype(np.int64))

    def sigma(self, abs_eta: Floats, energy: Floats) -> Floats:
        """The resolution in GeV."""
        constant, stochastic, noise = in_region(self.resolution, abs_eta)[1]
        return np.asarray(np.sqrt((constant * energy) ** 2 + stochastic**2 * energy + noise**2))


class Share(Struct, frozen=True):
    """The share of a particle's energy left in each calorimeter."""

    ecal: Part
    hcal: Part

    def __post_init__(self) -> None:
        if self.ecal + self.hcal > 1 + 1e-9:
            raise ValueError(f"has shares that add up to {self.ecal + self.hcal:g}: at most 1 is there")


class MuonRegion(Region, frozen=True):
    """The efficiency and resolution of muons."""

    efficiency: Part
    constant: Number
    slope: Number


class Muons(Struct, frozen=True):
    """Muons in the tracker, which become part of jets."""

    pt: Number  # least pT in GeV
    regions: tuple[MuonRegion, ...]

    def __post_init__(self) -> None:
        _check_rising(self.regions, "regions")


class Leptons(Struct, frozen=True):
    """Electrons and muons of the hard process, which are stored as leptons."""

    pt: Number  # least pT in GeV
    abs_eta: Number  # largest |eta|
    efficiency: Part
    resolution: Number  # sigma(pT)/pT
    isolation: Number  # least delta R to any jet


class Jets(Struct, frozen=True):
    """Clustering, energy scale, and cuts on the jets that are stored."""

    radius: AboveZero
    scale: tuple[float, float]  # see `jets.scale`
    pt: Number  # GeV, after the scale
    abs_eta: Number


class Curve(Struct, frozen=True):
    """The efficiency of the binary tag for one flavour: offset + slope pT + a tanh(b pT) / (1 + c pT)."""

    offset: float = 0.0
    slope: float = 0.0
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0


class Points(Struct, frozen=True):
    """The efficiencies of each class of jets at the working points of a score, falling; first the signal."""

    def __post_init__(self) -> None:
        for name, row in zip(self.__struct_fields__, astuple(self), strict=True):
            falls = all(high > low for high, low in pairwise((1.0, *row)))
            if not 0 < len(row) == len(astuple(self)[0]) or not falls or row[-1] <= 0:
                raise ValueError(
                    f"{name} is {list(row)}, but must fall between 1 and 0, with as many points for each flavour"
                )

    def score(self, row: Ints, quantile: Floats, signal: int = 0) -> Floats:
        """The score that a fraction `quantile` of the jets of a class exceeds; `row` is the class of each jet.

        For the signal the score is 1 - quantile, and so uniform. For others, the logarithm of the efficiency is
        interpolated linearly between working points, and extrapolated beyond the last.
        """
        scores = 1 - quantile
        for other in set(range(len(astuple(self)))) - {signal}:
            of_class = row == other
            at, log = self._curve(other, signal)
            scores[of_class] = np.interp(-np.log(np.maximum(quantile[of_class], 1e-300)), log, at)
        return np.asarray(scores)

    def efficiency(self, row: int, scores: Floats, signal: int = 0) -> Floats:
        """The share of the jets of a class that exceed scores; the inverse of `score`."""
        at, log = self._curve(row, signal)
        share = 1 - scores if row == signal else np.exp(-np.interp(scores, at, log))
        return np.clip(share, 1e-9, 0.9999)  # neither 0 nor 1, for the logarithms of a table

    def _curve(self, row: int, signal: int) -> tuple[Floats, Floats]:
        """Scores, and minus the logarithm of the share of the jets of a class that exceed them."""
        points = np.array(astuple(self))
        at = np.concatenate([[0.0], 1 - points[signal], [1.0]])
        log = np.concatenate([[0.0], -np.log(points[row])])
        slope = (log[-1] - log[-2]) / (at[-2] - at[-3])
        return at, np.append(log, log[-1] + slope * (1 - at[-2]))


class FlavourPoints(Points, frozen=True):
    """Working points of the b tag."""

    b: tuple[float, ...]
    c: tuple[float, ...]
    light: tuple[float, ...]


class LargePoints(Points, frozen=True):
    """Working points of a tagger of large jets."""

    top: tuple[float, ...]
    wz: tuple[float, ...]
    hbb: tuple[float, ...]
    other: tuple[float, ...]


class BTag(Struct, frozen=True, dict=True):
    """Tagging efficiencies. Rows of arrays are b, c, light."""

    cone: Number  # largest delta R between a jet and a hadron that gives it its flavour
    hadron_pt: Number  # least pT of such a hadron in GeV
    abs_eta: AboveZero  # jets beyond are never tagged
    b: Curve
    c: Curve
    light: Curve
    points: FlavourPoints

    @cached_property
    def working_points(self) -> Floats:
        """(3, points): the efficiencies of `points`."""
        return np.array(astuple(self.points))

    def efficiency(self, flavour: Ints, pt: Floats) -> Floats:
        """The efficiency of the binary tag. Flavour 0 is b, 1 is c, 2 is light."""
        offset, slope, a, b, c = np.array([astuple(curve) for curve in (self.b, self.c, self.light)])[flavour].T
        return np.asarray(offset + slope * pt + a * np.tanh(b * pt) / (1 + c * pt), dtype=np.float64)


class SoftDrop(Struct, frozen=True):
    """Grooming: soft branches with z < cut (dR / radius)^beta are dropped."""

    cut: Part
    beta: float


class Taggers(Struct, frozen=True):
    """Independent taggers of large jets, each with the efficiencies of all classes."""

    top: LargePoints
    wz: LargePoints
    hbb: LargePoints


class FatJets(Struct, frozen=True):
    """Large jets: clustering, grooming, cuts on those that are stored, and taggers."""

    radius: AboveZero
    pt: Number  # GeV, after the scale of jets
    abs_eta: Number
    soft_drop: SoftDrop
    taggers: Taggers


class Matching(Struct, frozen=True):
    """How quarks are matched to jets."""

    radius: AboveZero  # largest delta R


class Card(Struct, frozen=True):
    """All parameters of the detector.

    >>> card = load_card("atlas")
    >>> card.field.radius, len(card.ecal.grid.n_phi), card.jets.pt
    (1.15, 181, 20.0)
    """

    name: str
    field: Field
    ecal: Calorimeter
    hcal: Calorimeter
    deposits: dict[int | Literal["other"], Share]  # |PDG code| -> energy shares; `other`: all other codes
    muons: Muons
    leptons: Leptons
    jets: Jets
    btag: BTag
    matching: Matching
    fatjets: FatJets | None = None
    text: str = ""  # the file as read, for the metadata

    def __post_init__(self) -> None:
        if "other" not in self.deposits:
            raise ValueError("deposits must have shares of ecal and hcal for PDG codes, and for `other`")

    def shares(self, codes: Iterable[int]) -> Floats:
        """(n, 2): shares of the energy in ECal and HCal for |PDG codes| (n,)."""
        known = {abs(int(code)): share for code, share in self.deposits.items() if code != "other"}
        rows = [astuple(known.get(int(code), self.deposits["other"])) for code in codes]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def tag_table(self) -> TagTable:
        """The efficiencies of the score at 21 cuts.

        >>> from pairton.events.tags import load_table
        >>> load_card("atlas").tag_table().to_dict() == load_table("generator_score").to_dict()
        True
        """
        rows = {name: self.btag.points.efficiency(row, SCORE_CUTS) for row, name in enumerate(FLAVOURS)}
        raw = {
            "name": "generator_score",
            "field": "score",
            "about": f"the card {self.name} of `pairton generate`, at any pT",
            "abs_eta": self.btag.abs_eta,
            "cuts": SCORE_CUTS.tolist(),
            "efficiency": {name: [float(f"{share:.5g}") for share in row] for name, row in rows.items()},
        }
        return parse_table(raw, "score")


def load_card(name_or_path: str | Path) -> Card:
    """Load a built-in card by name, or one from a YAML file."""
    path, built_in = Path(name_or_path), {path.stem: path for path in CARDS.glob("*.yaml")}
    if path.suffix not in (".yaml", ".yml"):
        if str(path) not in built_in:
            hint = nearest(str(path), built_in)
            raise ConfigError(f"no card {str(path)!r}: use {', '.join(sorted(built_in))} or a .yaml file{hint}")
        path = built_in[str(path)]
    note_input(path)
    return parse_card(read_text(path), where=path.name)


def parse_card(text: str, where: str = "card") -> Card:
    """Make a card from YAML text. Raise ConfigError for unknown keys and wrong values."""
    return replace(configure(Card, parse_yaml(text, where), where), text=text)
