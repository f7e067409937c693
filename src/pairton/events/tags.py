"""Tags as evidence: what the value of a tagger says about the flavour of a jet.

The scale of a score means nothing by itself. What counts is how often b, c and light jets get a value. So a
network takes two log likelihood ratios of each jet,

    b_evidence = log P(value | b) / P(value | light),    c_evidence = log P(value | c) / P(value | light),

from a table of efficiencies: the shares of b, c and light jets that pass each of a tagger's cuts. Models that take
them understand every tagger whose efficiencies are known. Zero means that nothing is known.

Shapes: J jets, K cuts, R ranges of pT. K cuts make K + 1 bins; a value is in bin k if it passes k cuts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.configuration import check_keys, parse_yaml, read_yaml, sensible
from pairton.errors import ConfigError, EventsError, nearest, shown
from pairton.events.inputs import EVIDENCE

__all__ = [
    "GENERATED",
    "TagTable",
    "builtin_tables",
    "check_binary",
    "is_generated",
    "load_table",
    "parse_table",
    "tables_of",
    "usual_table",
    "with_evidence",
]

FLAVOURS = ("b", "c", "light")
DEFAULT_TABLE = "generator"  # of tags of 0 or 1 about which nothing is known
GENERATED = ("score", "tagbin")  # fields of jets that `pairton generate` makes beside btag, the finest first
USUAL_POINT = 0.77  # of b jets are tagged, where a table does not say which of its cuts makes a tag
MOST_STRANGE = 0.01  # share of values other than 0 and 1 that tags of 0 or 1 may have
MOST = 8.0  # of either sign: no measurement of an efficiency is better than one in three thousand
TABLES = Path(__file__).parent / "tag_tables"

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class TagTable:
    """The efficiencies of a tagger at some cuts.

    >>> table = load_table("generator_points")
    >>> b, c = table.evidence(np.array([5.0, 1.0]), np.array([50.0, 50.0]), np.array([0.0, 0.0]))
    >>> b.round(2).tolist()  # passes the tightest cut; passes none
    [6.58, -1.86]
    """

    name: str
    field: str  # of jets, whose values are cut on
    cuts: Floats  # (K,), rising; a value passes a cut if it is above it
    efficiency: Floats  # (3, R, K): share of b, c and light jets that pass each cut
    edges: Floats  # (R - 1,): of the ranges of pT, GeV
    abs_eta: float = inf  # jets beyond have no tag
    has_c: bool = True  # without efficiencies for c jets, c_evidence is zero
    about: str = ""  # where the numbers come from
    measured: bool = True  # False: approximate, to be replaced by one's own
    valid: tuple[float, float] = (-inf, inf)  # values outside mean that a jet has no tag
    tag_point: int = 0  # of the cuts, the one that makes a tag of 0 or 1; 0: the one nearest to 77 % of b jets

    @property
    def tag_cut(self) -> float:
        """The cut that makes a `btag` of 0 or 1.

        >>> load_table("deepjet_2018").tag_cut
        0.2783
        """
        nearest_point = int(np.argmin(np.abs(self.efficiency[0].mean(axis=0) - USUAL_POINT)))
        return float(self.cuts[self.tag_point - 1 if self.tag_point else nearest_point])

    def has_value(self, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """(J,): which values the tagger can give; others stand for jets that it was not run on."""
        values = np.asarray(values, dtype=np.float64)
        return np.asarray(np.isfinite(values) & (values >= self.valid[0]) & (values <= self.valid[1]))

    def bins(self, values: npt.ArrayLike, eta: npt.ArrayLike) -> Index:
        """(J,): how many cuts each value passes; -1 where there is no tag."""
        values = np.asarray(values, dtype=np.float64)
        passed = np.searchsorted(self.cuts, values, side="left")
        return np.where(self.has_value(values) & (np.abs(np.asarray(eta)) <= self.abs_eta), passed, -1)

    def evidence(self, values: npt.ArrayLike, pt: npt.ArrayLike, eta: npt.ArrayLike) -> tuple[Floats, Floats]:
        """The log likelihood ratios of b and of c against light (J,), for values of the tagger."""
        b, c = self._ratios[:, self._span(pt), self.bins(values, eta)]
        return b, c

    @cached_property
    def _ratios(self) -> Floats:
        """(2, R, K + 2): of all bins; the last one stands for no tag."""
        bins = np.append(np.arange(len(self.cuts) + 1), -1)
        pt = np.concatenate([[0.0], self.edges])  # each in a range of its own
        found = [self.of_bins(bins, np.full(len(bins), value)) for value in pt]
        return np.stack([np.stack(ratio) for ratio in found], axis=1)

    def _span(self, pt: npt.ArrayLike) -> Index:
        """(J,): the range that each pT is in."""
        return np.searchsorted(self.edges, np.asarray(pt, dtype=np.float64), side="right")

    def of_bins(
        self, bins: Index, pt: npt.ArrayLike, kept: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Floats, Floats]:
        """As `evidence`, for bins (J,); with `kept` (J, K) as if the tagger had only those cuts."""
        n_cuts = len(self.cuts)
        places = np.arange(n_cuts + 2)
        ends = np.ones((len(bins), 1), dtype=bool)
        is_cut = np.concatenate([ends, np.ones((len(bins), n_cuts), bool) if kept is None else kept, ends], axis=1)
        lower = np.maximum.accumulate(np.where(is_cut, places, 0), axis=1)  # the last cut up to each place
        upper = np.minimum.accumulate(np.where(is_cut, places, n_cuts + 1)[:, ::-1], axis=1)[:, ::-1]
        row = np.arange(len(bins))
        found = np.maximum(bins, 0)
        below, above = lower[row, found], upper[row, found + 1]
        span = self._span(pt)
        passing = np.pad(self.efficiency, ((0, 0), (0, 0), (1, 1)), constant_values=((0, 0), (0, 0), (1, 0)))
        share = np.maximum(passing[:, span, below] - passing[:, span, above], 1e-12)  # (3, J)
        ratio = np.clip(np.log(share[:2] / share[2]), -MOST, MOST)
        ratio[1] *= self.has_c
        b, c = np.where(bins >= 0, ratio, 0.0)
        return b, c

    def drawn_cuts(self, rng: np.random.Generator, events: int) -> npt.NDArray[np.bool_]:
        """(events, K): cuts of a tagger of random resolution: all of them, some, or one.

        One of them is always a cut that analyses use: one that between half and 95 % of the b jets pass.
        """
        b_efficiency = self.efficiency[0].mean(axis=0)
        (usual,) = np.nonzero((b_efficiency >= 0.5) & (b_efficiency <= 0.95))
        usual = usual if len(usual) else np.arange(len(self.cuts))
        number = rng.choice([1, 2, 3, 4, 5, len(self.cuts)], size=events, p=[0.4, 0.1, 0.1, 0.1, 0.1, 0.2])
        number = np.minimum(number, len(self.cuts))
        order = np.argsort(rng.random((events, len(self.cuts))), axis=1)
        first = rng.choice(usual, size=events)
        rank = np.argsort(order, axis=1)  # of each cut in a random order
        swapped = np.where(rank == 0, rank[np.arange(events), first][:, None], rank)
        swapped[np.arange(events), first] = 0
        return np.asarray(swapped < number[:, None])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a table's file."""
        limit: dict[str, Any] = {"abs_eta": self.abs_eta} if self.abs_eta < inf else {}
        limit |= {"range": list(self.valid)} if self.valid != (-inf, inf) else {}
        limit |= {"tag_point": self.tag_point} if self.tag_point else {}
        ranges = {"pt": self.edges.tolist()} if len(self.edges) else {}
        rows = {
            flavour: (part if len(self.edges) else part[0]).tolist()
            for flavour, part in zip(FLAVOURS, self.efficiency, strict=True)
            if flavour != "c" or self.has_c
        }
        start = {"name": self.name, "field": self.field, "about": self.about, "measured": self.measured}
        return {**start, **limit, "cuts": self.cuts.tolist(), **ranges, "efficiency": rows}


def builtin_tables() -> tuple[str, ...]:
    """Names of the tables that come with Pairton."""
    return tuple(_builtin())


@lru_cache(maxsize=1)
def _builtin() -> dict[str, TagTable]:
    """By name. A file may have `eras` with a list of cuts each: NAME_ERA, the most usual one first."""
    found: dict[str, TagTable] = {}
    for path in sorted(TABLES.glob("*.yaml")):
        raw = dict(read_yaml(path))
        eras = {f"{path.stem}_{era}": cuts for era, cuts in raw.pop("eras", {}).items()}
        for name, cuts in (eras or {path.stem: raw["cuts"]}).items():
            rows = {flavour: row[: len(cuts)] if eras else row for flavour, row in raw["efficiency"].items()}
            found[name] = parse_table({**raw, "name": name, "cuts": cuts, "efficiency": rows}, name)
    return found


def tables_of(field: str) -> tuple[TagTable, ...]:
    """The tables that come with Pairton for a field of jets; the default one first.

    >>> [table.name for table in tables_of("btagUParTAK4B")]
    ['upart_2024']
    """
    return tuple(table for table in _builtin().values() if table.field == field)


def load_table(table: TagTable | Mapping[str, Any] | str | os.PathLike[str]) -> TagTable:
    """A table by its name, from a YAML file, or from plain data.

    >>> load_table("generator").field
    'btag'
    """
    if isinstance(table, TagTable):
        return table
    if isinstance(table, Mapping):
        return parse_table(table)
    if Path(table).suffix in (".yaml", ".yml"):
        return parse_table(read_yaml(Path(table)), str(table))
    known = _builtin()
    if str(table) not in known:
        hint = nearest(str(table), known)
        raise ConfigError(
            f"no table of tags {str(table)!r}: `pairton tags` lists those that come with Pairton, one of your "
            f"own is a .yaml file{hint}"
        )
    return known[str(table)]


def parse_table(raw: object, source: str = "table") -> TagTable:
    """A table from what YAML or JSON gave."""
    known = ["name", "field", "about", "measured", "abs_eta", "range", "tag_point", "cuts", "pt", "efficiency"]
    given = check_keys(raw, source, known, ["cuts", "efficiency"])
    rows = check_keys(given["efficiency"], f"{source}: efficiency", FLAVOURS, ["b", "light"])
    with sensible(source):
        cuts = np.array(given["cuts"], dtype=np.float64)
        edges = np.array(given.get("pt", []), dtype=np.float64)
        low, high = map(float, given.get("range", (-inf, inf)))
        table = TagTable(
            name=str(given.get("name", Path(source).stem)),
            field=str(given.get("field", "btag")),
            cuts=cuts,
            efficiency=np.array([_rows(rows.get(f, rows["light"]), len(edges) + 1) for f in FLAVOURS]),
            edges=edges,
            abs_eta=float(given.get("abs_eta", inf)),
            has_c="c" in rows,
            about=str(given.get("about", "")),
            measured=bool(given.get("measured", True)),
            valid=(low, high),
            tag_point=int(given.get("tag_point", 0)),
        )
    _check(table, source)
    return table


def _rows(raw: Any, ranges: int) -> Floats:
    rows = np.array(raw, dtype=np.float64)
    return np.broadcast_to(rows, (ranges, rows.shape[-1]))


def _check(table: TagTable, source: str) -> None:
    cuts, edges = table.cuts, table.edges
    if cuts.ndim != 1 or not len(cuts) or not np.isfinite(cuts).all() or (np.diff(cuts) <= 0).any():
        raise ConfigError(f"{source}: cuts is {shown(cuts.tolist())}, but must be a list of rising numbers")
    if edges.ndim != 1 or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ConfigError(f"{source}: pt is {shown(edges.tolist())}, but must be a list of rising numbers")
    shape = (len(FLAVOURS), len(edges) + 1, len(cuts))
    if table.efficiency.shape != shape:
        raise ConfigError(
            f"{source}: efficiency needs {len(cuts)} numbers for each flavour, one per cut, in each of the "
            f"{len(edges) + 1} ranges of pT"
        )
    falling = (np.diff(table.efficiency, axis=2) <= 0).all()
    if not falling or not ((table.efficiency > 0) & (table.efficiency < 1)).all():
        raise ConfigError(f"{source}: efficiencies must lie between 0 and 1 and fall from one cut to the next")
    if not table.valid[0] < table.valid[1] or (cuts < table.valid[0]).any() or (cuts >= table.valid[1]).any():
        raise ConfigError(f"{source}: range is {shown(list(table.valid))}, but all cuts must be within it")
    if not 0 <= table.tag_point <= len(cuts):
        raise ConfigError(f"{source}: tag_point is {table.tag_point}, but must be from 1 to {len(cuts)}: a cut")
    if not table.abs_eta > 0:
        raise ConfigError(f"{source}: abs_eta is {table.abs_eta:g}, but must be above 0")


def is_generated(metadata: Mapping[str, Any]) -> bool:
    """Whether events were made by `pairton generate` with the tags of its card, as their metadata say.

    >>> is_generated({}), is_generated({"generator": {"seed": 1}})
    (False, True)
    """
    made = metadata.get("generator")
    return isinstance(made, Mapping) and _has_usual_tags(str(made.get("card", "")))


@lru_cache(maxsize=8)
def _has_usual_tags(card: str) -> bool:
    """Whether a detector card has the efficiencies of our tables, as far as it says: users may change them."""
    points, binary = load_table("generator_points").efficiency[:, 0], load_table(DEFAULT_TABLE)
    pt = (binary.edges[4] + binary.edges[5]) / 2  # GeV, the middle of a range
    nothing = dict.fromkeys(("offset", "slope", "a", "b", "c"), 0.0)
    try:
        own = (parse_yaml(card, "card") or {}).get("btag", {})
        given = own.get("points")
        if given is not None and not np.allclose([given[f] for f in FLAVOURS], points, rtol=1e-3):
            return False
        rows = [nothing | own[flavour] for flavour in FLAVOURS if flavour in own]
        found = [r["offset"] + r["slope"] * pt + r["a"] * np.tanh(r["b"] * pt) / (1 + r["c"] * pt) for r in rows]
        return not found or np.allclose(found, binary.efficiency[:, 5, 0], rtol=1e-3)
    except (ConfigError, AttributeError, KeyError, TypeError, ValueError):
        return False


def usual_table(jets: ak.Array, metadata: Mapping[str, Any]) -> TagTable:
    """The table for jets of which nothing is said: the finest one of `pairton generate` for the jets it made.

    For others their `btag` of 0 or 1 is taken at the efficiencies of the generator's card.
    """
    if is_generated(metadata):
        fields = ak.fields(jets)
        names = [name for name in ("generator_score", "generator_points") if load_table(name).field in fields]
        return load_table([*names, DEFAULT_TABLE][0])
    return load_table(DEFAULT_TABLE)


def with_evidence(jets: ak.Array, table: TagTable | None = None) -> ak.Array:
    """Jets (ragged records) with the fields b_evidence and c_evidence, from the field that the table is for.

    Without a table, a `btag` of 0 or 1 is taken at the efficiencies of the generator's card. Jets without the
    field are returned as they are. Raises EventsError for a score where tags of 0 or 1 are expected.

    >>> from pairton.events.objects import make_jets
    >>> jets = make_jets(pt=[[100.0, 100.0]], eta=[[0.0, 0.0]], phi=[[0.0, 1.0]], mass=[[5.0, 5.0]], btag=[[1, 0]])
    >>> with_evidence(jets).b_evidence.to_numpy().astype(float).round(2).tolist()
    [[5.56, -1.31]]
    """
    table = load_table(DEFAULT_TABLE) if table is None else table
    if table.field not in ak.fields(jets):
        return jets
    pt, eta, values = (np.asarray(ak.flatten(jets[name]), dtype=np.float64) for name in ("pt", "eta", table.field))
    check_binary(values, table)
    counts = ak.num(jets, axis=1)
    for name, evidence in zip(EVIDENCE, table.evidence(values, pt, eta), strict=True):
        jets = ak.with_field(jets, ak.unflatten(evidence.astype(np.float32), counts), name)
    return jets


def check_binary(values: Floats, table: TagTable) -> None:
    """Refuse a score where a table is for tags of 0 or 1; a few other values may stand for jets without a tag."""
    if table.field != "btag" or len(table.cuts) > 1:
        return
    strange = values[np.isfinite(values) & (values > 0) & (values != 1)]
    if len(strange) > MOST_STRANGE * len(values):
        raise EventsError(
            f"btag of jets must be 0 or 1, but has values such as {strange[0]:g}: cut on the score with "
            "--btag CUT, or give a table of its efficiencies with --tags TABLE"
        )
