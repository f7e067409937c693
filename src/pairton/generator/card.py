"""Detector cards: the parameters of the fast simulation, from YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import note_input
from pairton._common.configuration import check_keys, parse_yaml, read_text, sensible
from pairton.errors import ConfigError, nearest, shown

__all__ = [
    "BTag",
    "Calorimeter",
    "Card",
    "Field",
    "Grid",
    "Jets",
    "Leptons",
    "Matching",
    "Muons",
    "load_card",
    "parse_card",
]

T = TypeVar("T")

CARDS = Path(__file__).parent / "cards"
MOST_TOWERS = 36_000  # rings, and towers of a ring


@dataclass(frozen=True)
class Field:
    """The cylinder with the magnetic field."""

    tesla: float
    radius: float  # m
    half_length: float  # m


@dataclass(frozen=True)
class Grid:
    """Rings of calorimeter towers in |eta|, each with its own number of towers in phi."""

    edges: npt.NDArray[np.float64]  # (rings + 1,): |eta|, rising
    n_phi: npt.NDArray[np.int64]  # (rings,): towers per ring


@dataclass(frozen=True)
class Calorimeter:
    """Towers, their resolution and their thresholds."""

    threshold: float  # GeV
    significance: float  # least energy of a tower, in units of its resolution
    grid: Grid
    eta_edges: npt.NDArray[np.float64]  # upper |eta| of each region of the resolution
    terms: npt.NDArray[np.float64]  # (regions, 3): constant, stochastic, noise

    def sigma(self, abs_eta: npt.NDArray[np.float64], energy: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The resolution in GeV."""
        region = np.minimum(np.searchsorted(self.eta_edges, abs_eta), len(self.eta_edges) - 1)
        constant, stochastic, noise = self.terms[region].T
        sigma: npt.NDArray[np.float64] = np.sqrt((constant * energy) ** 2 + stochastic**2 * energy + noise**2)
        return sigma


@dataclass(frozen=True)
class Muons:
    """Muons in the tracker, which become part of jets."""

    pt: float  # least pT in GeV
    eta_edges: npt.NDArray[np.float64]
    terms: npt.NDArray[np.float64]  # (regions, 3): efficiency, constant, slope


@dataclass(frozen=True)
class Leptons:
    """Electrons and muons of the hard process, which are stored as leptons."""

    pt: float  # least pT in GeV
    abs_eta: float  # largest |eta|
    efficiency: float
    resolution: float  # sigma(pT)/pT
    isolation: float  # least delta R to any jet


@dataclass(frozen=True)
class Jets:
    """Clustering, energy scale, and cuts on the jets that are stored."""

    radius: float
    scale: tuple[float, float]  # see `jet_finding.scale`
    pt: float  # GeV, after the scale
    abs_eta: float


@dataclass(frozen=True)
class BTag:
    """Tagging efficiencies. Rows of arrays are b, c, light."""

    cone: float  # largest delta R between a jet and a hadron that gives it its flavour
    hadron_pt: float  # least pT of such a hadron in GeV
    abs_eta: float  # jets beyond are never tagged
    terms: npt.NDArray[np.float64]  # (3, 5), binary tag: offset, slope, a, b, c
    points: npt.NDArray[np.float64]  # (3, points), score: efficiencies at its working points, falling

    def efficiency(self, flavour: npt.NDArray[np.int64], pt: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The efficiency of the binary tag. Flavour 0 is b, 1 is c, 2 is light."""
        offset, slope, a, b, c = self.terms[flavour].T
        return np.asarray(offset + slope * pt + a * np.tanh(b * pt) / (1 + c * pt), dtype=np.float64)

    def score(self, flavour: npt.NDArray[np.int64], quantile: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The score that a fraction `quantile` of the jets of a flavour exceeds.

        For b jets the score is 1 - quantile, and so uniform. For c and light jets, the logarithm of the efficiency
        is interpolated linearly between working points, and extrapolated beyond the last.
        """
        at = np.concatenate([[0.0], 1 - self.points[0], [1.0]])
        scores = 1 - quantile
        for row in (1, 2):
            log = np.concatenate([[0.0], -np.log(self.points[row])])
            slope = (log[-1] - log[-2]) / (at[-2] - at[-3])
            of_flavour = flavour == row
            log = np.append(log, log[-1] + slope * (1 - at[-2]))
            scores[of_flavour] = np.interp(-np.log(np.maximum(quantile[of_flavour], 1e-300)), log, at)
        return np.asarray(scores)


@dataclass(frozen=True)
class Matching:
    """How quarks are matched to jets."""

    radius: float  # largest delta R


@dataclass(frozen=True)
class Card:
    """All parameters of the detector.

    >>> card = load_card("atlas")
    >>> card.field.radius, len(card.ecal.grid.n_phi), card.jets.pt
    (1.15, 181, 20.0)
    """

    name: str
    field: Field
    ecal: Calorimeter
    hcal: Calorimeter
    deposits: Mapping[int, tuple[float, float]]  # |PDG code| -> energy shares in ECal and HCal; 0: all other codes
    muons: Muons
    leptons: Leptons
    jets: Jets
    btag: BTag
    matching: Matching
    text: str  # the file as read, for the metadata


def load_card(name_or_path: str | Path) -> Card:
    """Load a built-in card by name, or one from a YAML file."""
    path = Path(name_or_path)
    builtin = CARDS / f"{name_or_path}.yaml"
    if path.suffix not in (".yaml", ".yml"):
        known = sorted(p.stem for p in CARDS.glob("*.yaml"))
        if str(name_or_path) not in known:
            hint = nearest(str(name_or_path), known)
            raise ConfigError(f"no card {str(name_or_path)!r}: use {', '.join(known)} or a .yaml file{hint}")
        path = builtin
    note_input(path)
    return parse_card(read_text(path), where=path.name)


def parse_card(text: str, where: str = "card") -> Card:
    """Make a card from YAML text. Raise ConfigError for unknown keys and wrong values."""
    names = [f.name for f in fields(Card) if f.name != "text"]
    raw = _keys(parse_yaml(text, where), where, names)
    with sensible(where):
        return Card(
            name=str(raw["name"]),
            field=_plain(Field, raw["field"], f"{where}: field"),
            ecal=_calorimeter(raw["ecal"], f"{where}: ecal"),
            hcal=_calorimeter(raw["hcal"], f"{where}: hcal"),
            deposits=_deposits(raw["deposits"], f"{where}: deposits"),
            muons=_muons(raw["muons"], f"{where}: muons"),
            leptons=_plain(Leptons, raw["leptons"], f"{where}: leptons"),
            jets=_jets(raw["jets"], f"{where}: jets"),
            btag=_btag(raw["btag"], f"{where}: btag"),
            matching=_plain(Matching, raw["matching"], f"{where}: matching"),
            text=text,
        )


def _keys(raw: Any, where: str, names: list[str], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    return check_keys(raw, where, [*names, *optional], names)


def _positive(value: Any, where: str) -> float:
    number = float(value)
    if not np.isfinite(number) or number < 0:
        raise ConfigError(f"{where} is {shown(value)}, but must be a number of at least 0")
    return number


def _share(value: Any, where: str) -> float:
    if _positive(value, where) > 1:
        raise ConfigError(f"{where} is {shown(value)}, but must be between 0 and 1")
    return float(value)


def _above_zero(value: Any, where: str) -> float:
    if _positive(value, where) == 0:
        raise ConfigError(f"{where} is {shown(value)}, but must be above 0")
    return float(value)


def _checked(raw: Mapping[str, Any], name: str, where: str) -> float:
    above_zero = name in ("radius", "half_length")
    check = _share if name == "efficiency" else _above_zero if above_zero else _positive
    return check(raw[name], f"{where}.{name}")


def _plain(cls: type[T], raw: Any, where: str) -> T:
    names = [f.name for f in fields(cls) if f.default is MISSING]  # type: ignore[arg-type]
    raw = _keys(raw, where, names)
    return cls(**{name: _checked(raw, name, where) for name in names})


def _table(raw: Any, where: str, names: list[str]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Regions in |eta|: their upper edges, and one row of numbers per region."""
    if not isinstance(raw, list) or not raw:
        raise ConfigError(f"{where} must be a list of regions, each with below, {', '.join(names)}")
    rows = [_keys(region, where, ["below", *names]) for region in raw]
    edges = np.array([_positive(row["below"], f"{where}.below") for row in rows])
    if np.any(np.diff(edges) <= 0):
        raise ConfigError(f"{where} has regions below {edges.tolist()}: order them by rising |eta|")
    return edges, np.array([[_checked(row, name, where) for name in names] for row in rows])


def _calorimeter(raw: Any, where: str) -> Calorimeter:
    raw = _keys(raw, where, ["threshold", "significance", "towers", "resolution"])
    edges, terms = _table(raw["resolution"], f"{where}.resolution", ["constant", "stochastic", "noise"])
    return Calorimeter(
        threshold=_positive(raw["threshold"], f"{where}.threshold"),
        significance=_positive(raw["significance"], f"{where}.significance"),
        grid=_grid(raw["towers"], f"{where}.towers"),
        eta_edges=edges,
        terms=terms,
    )


def _grid(raw: Any, where: str) -> Grid:
    edges: list[float] = []
    n_phi: list[int] = []
    if not isinstance(raw, list) or not raw:
        raise ConfigError(f"{where} must be a list of rings, each with from, to, step and phi, or edges and phi")
    for part in raw:
        if isinstance(part, dict) and "edges" in part:
            part = _keys(part, where, ["edges", "phi"])
            more = [_positive(edge, f"{where}.edges") for edge in part["edges"]]
        else:
            part = _keys(part, where, ["from", "to", "step", "phi"])
            start, stop = (_positive(part[name], f"{where}.{name}") for name in ("from", "to"))
            rings = (stop - start) / _above_zero(part["step"], f"{where}.step")
            if rings > MOST_TOWERS:
                raise ConfigError(f"{where}.step is {shown(part['step'])}: more than {MOST_TOWERS} rings")
            more = np.linspace(start, stop, round(rings) + 1).tolist()
        around = 360 / _above_zero(part["phi"], f"{where}.phi")
        if around != round(around) or around > MOST_TOWERS:
            raise ConfigError(
                f"{where}.phi is {shown(part['phi'])} degrees, but must divide 360, into {MOST_TOWERS} at most"
            )
        if len(more) < 2:
            raise ConfigError(f"{where} has rings with fewer than two edges: give the lower and the upper one")
        if edges and not np.isclose(edges[-1], more[0]):
            raise ConfigError(f"{where} jumps from {edges[-1]} to {more[0]}: rings must be contiguous")
        edges += more[1:] if edges else more
        n_phi += [int(around)] * (len(more) - 1)
    if np.any(np.diff(edges) <= 0):
        raise ConfigError(f"{where} has edges that do not rise: order them by rising |eta|")
    return Grid(np.array(edges), np.array(n_phi, dtype=np.int64))


def _deposits(raw: Any, where: str) -> dict[int, tuple[float, float]]:
    if not isinstance(raw, dict) or "other" not in raw:
        raise ConfigError(f"{where} must map PDG codes, and `other`, to shares of ecal and hcal")
    shares = {}
    for code, share in raw.items():
        share = _keys(share, f"{where}.{code}", ["ecal", "hcal"])
        key = 0 if code == "other" else abs(int(code))
        shares[key] = (_share(share["ecal"], f"{where}.{code}"), _share(share["hcal"], f"{where}.{code}"))
        if sum(shares[key]) > 1 + 1e-9:
            raise ConfigError(f"{where}.{code} has shares that add up to {sum(shares[key]):g}: at most 1 is there")
    return shares


def _muons(raw: Any, where: str) -> Muons:
    raw = _keys(raw, where, ["pt", "regions"])
    edges, terms = _table(raw["regions"], f"{where}.regions", ["efficiency", "constant", "slope"])
    return Muons(_positive(raw["pt"], f"{where}.pt"), edges, terms)


def _jets(raw: Any, where: str) -> Jets:
    raw = _keys(raw, where, ["radius", "scale", "pt", "abs_eta"])
    a, b = raw["scale"]
    pt, abs_eta = (_positive(raw[name], f"{where}.{name}") for name in ("pt", "abs_eta"))
    radius = _above_zero(raw["radius"], f"{where}.radius")
    return Jets(radius, (float(a), float(b)), pt, abs_eta)


def _btag(raw: Any, where: str) -> BTag:
    flavours = ("b", "c", "light")
    raw = _keys(raw, where, ["cone", "hadron_pt", "abs_eta", *flavours, "points"])
    names = ("offset", "slope", "a", "b", "c")
    rows = [_keys(raw[flavour], f"{where}.{flavour}", [], names) for flavour in flavours]
    terms = np.array([[float(row.get(name, 0.0)) for name in names] for row in rows])
    given = _keys(raw["points"], f"{where}.points", list(flavours))
    points = [[1.0, *(float(value) for value in given[flavour])] for flavour in flavours]
    for flavour, row in zip(flavours, points, strict=True):
        if not 1 < len(row) == len(points[0]) or not np.all(np.diff(row) < 0) or row[-1] <= 0:
            raise ConfigError(
                f"{where}.points.{flavour} is {shown(given[flavour])}, but must fall between 1 and 0, with as "
                "many points for each flavour"
            )
    cone, hadron_pt, abs_eta = (
        _positive(raw[name], f"{where}.{name}") for name in ("cone", "hadron_pt", "abs_eta")
    )
    return BTag(cone, hadron_pt, abs_eta, terms, np.array(points)[:, 1:])
