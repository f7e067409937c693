"""Tags as evidence: the log likelihood ratios of a jet's flavour, given the value of a tagger.

The scale of a tagger's score has no meaning of its own. What matters is how often b, c and light jets have a
value. The network therefore takes two log likelihood ratios per jet,

    b_evidence = log P(value | b) / P(value | light),    c_evidence = log P(value | c) / P(value | light).

They are computed from a table of efficiencies: the shares of b, c and light jets that pass each cut of the tagger.
A model with these inputs works for every tagger whose efficiencies are known. Zero means no information.

Shapes: J jets, K cuts, R ranges of pT. K cuts make K + 1 bins; a value is in bin k if it passes k cuts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Annotated, Any

import awkward as ak
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from pairton._common.configuration import configure, read_yaml
from pairton.errors import ConfigError, EventsError, nearest, shown
from pairton.events.inputs import EVIDENCE

__all__ = [
    "DEFAULT_TABLE",
    "TagTable",
    "builtin_tables",
    "check_binary",
    "load_table",
    "not_binary",
    "parse_table",
    "stated_table",
    "tables_of",
    "with_evidence",
]

FLAVOURS = ("b", "c", "light")
DEFAULT_TABLE = "generator"  # for tags of 0 or 1 from an unknown tagger
CARDS = {  # table -> the efficiencies that it repeats, in cards of older generated files; the finest first
    "generator_score": "light: [0.034483, 0.0088496, 0.0031949, 0.00083056]",
    DEFAULT_TABLE: "b: {a: 24.0, b: 0.003, c: 0.086}",
}
DEFAULT_EFFICIENCY = 0.77  # for b jets, of the cut that makes a tag if a table does not name one
MOST_NOT_BINARY = 0.01  # largest share of values other than 0 and 1 in a binary tag
MOST = 8.0  # largest absolute evidence: no efficiency is measured better than one in three thousand
TABLES = Path(__file__).parent / "tag_tables"

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class TagTable:
    """The efficiencies of a tagger at some cuts on its value.

    >>> table = load_table("generator_points")
    >>> b, c = table.evidence(np.array([5.0, 1.0]), np.array([50.0, 50.0]), np.array([0.0, 0.0]))
    >>> b.round(2).tolist()  # passes the tightest cut; passes none
    [6.58, -1.86]
    """

    name: str
    field: str  # field of jets that has the value
    cuts: Floats  # (K,), rising; a value passes a cut if it is above it
    efficiency: Floats  # (3, R, K): share of b, c and light jets that pass each cut
    edges: Floats  # (R - 1,): between the ranges of pT, GeV
    abs_eta: float = inf  # jets with a larger |eta| have no tag
    has_c: bool = True  # False: no efficiencies for c jets, so that c_evidence is zero
    about: str = ""  # where the numbers come from
    measured: bool = True  # False: approximate; users should measure their own
    valid: tuple[float, float] = (-inf, inf)  # jets with a value outside have no tag
    tag_point: int = 0  # number of the cut, from 1, that makes a tag; 0: the one with about 77 % of b jets

    @property
    def tag_cut(self) -> float:
        """The cut that makes a `btag` of 0 or 1.

        >>> load_table("deepjet_2018").tag_cut
        0.2783
        """
        nearest_point = int(np.argmin(np.abs(self.efficiency[0].mean(axis=0) - DEFAULT_EFFICIENCY)))
        return float(self.cuts[self.tag_point - 1 if self.tag_point else nearest_point])

    def has_value(self, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """(J,): whether values are valid; others, such as NaN or -1, mark jets without a tag."""
        values = np.asarray(values, dtype=np.float64)
        return np.asarray(np.isfinite(values) & (values >= self.valid[0]) & (values <= self.valid[1]))

    def bins(self, values: npt.ArrayLike, eta: npt.ArrayLike) -> Index:
        """(J,): the number of cuts that each value passes; -1 for jets without a tag."""
        values = np.asarray(values, dtype=np.float64)
        passed = np.searchsorted(self.cuts, values, side="left")
        return np.where(self.has_value(values) & (np.abs(np.asarray(eta)) <= self.abs_eta), passed, -1)

    def evidence(self, values: npt.ArrayLike, pt: npt.ArrayLike, eta: npt.ArrayLike) -> tuple[Floats, Floats]:
        """b_evidence and c_evidence (J,) for values of the tagger."""
        b, c = self._ratios[:, self._pt_range(pt), self.bins(values, eta)]
        return b, c

    @cached_property
    def _ratios(self) -> Floats:
        """(2, R, K + 2): b and c evidence of all bins; the last bin is for jets without a tag."""
        bins = np.append(np.arange(len(self.cuts) + 1), -1)
        pt = np.concatenate([[0.0], self.edges])  # one value in each range
        found = [self.of_bins(bins, np.full(len(bins), value)) for value in pt]
        return np.stack([np.stack(ratio) for ratio in found], axis=1)

    def _pt_range(self, pt: npt.ArrayLike) -> Index:
        """(J,): the index of the range that each pT is in."""
        return np.searchsorted(self.edges, np.asarray(pt, dtype=np.float64), side="right")

    def of_bins(
        self, bins: Index, pt: npt.ArrayLike, kept: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Floats, Floats]:
        """Like `evidence`, for bins (J,); with `kept` (J, K), as if the tagger only had these cuts."""
        n_cuts = len(self.cuts)
        places = np.arange(n_cuts + 2)
        ends = np.ones((len(bins), 1), dtype=bool)
        is_cut = np.concatenate([ends, np.ones((len(bins), n_cuts), bool) if kept is None else kept, ends], axis=1)
        lower = np.maximum.accumulate(np.where(is_cut, places, 0), axis=1)  # last kept cut up to each one
        upper = np.minimum.accumulate(np.where(is_cut, places, n_cuts + 1)[:, ::-1], axis=1)[:, ::-1]
        row = np.arange(len(bins))
        found = np.maximum(bins, 0)
        below, above = lower[row, found], upper[row, found + 1]
        pt_range = self._pt_range(pt)
        passing = np.pad(self.efficiency, ((0, 0), (0, 0), (1, 1)), constant_values=((0, 0), (0, 0), (1, 0)))
        share = np.maximum(passing[:, pt_range, below] - passing[:, pt_range, above], 1e-12)  # (3, J)
        ratio = np.clip(np.log(share[:2] / share[2]), -MOST, MOST)
        ratio[1] *= self.has_c
        b, c = np.where(bins >= 0, ratio, 0.0)
        return b, c

    def drawn_cuts(self, rng: np.random.Generator, events: int) -> npt.NDArray[np.bool_]:
        """(events, K): a random subset of the cuts per event, as of a tagger with fewer working points.

        Each subset has a cut that analyses use, with an efficiency of 50 to 95 % for b jets, if there is one.
        """
        b_efficiency = self.efficiency[0].mean(axis=0)
        (usual,) = np.nonzero((b_efficiency >= 0.5) & (b_efficiency <= 0.95))
        usual = usual if len(usual) else np.arange(len(self.cuts))
        number = rng.choice([1, 2, 3, 4, 5, len(self.cuts)], size=events, p=[0.4, 0.1, 0.1, 0.1, 0.1, 0.2])
        number = np.minimum(number, len(self.cuts))
        order = np.argsort(rng.random((events, len(self.cuts))), axis=1)
        first = rng.choice(usual, size=events)
        rank = np.argsort(order, axis=1)  # rank of each cut in a random order
        swapped = np.where(rank == 0, rank[np.arange(events), first][:, None], rank)
        swapped[np.arange(events), first] = 0
        return np.asarray(swapped < number[:, None])

    def to_dict(self) -> dict[str, Any]:
        """Plain data as in the file of a table."""
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
    """Names of the built-in tables."""
    return tuple(_builtin())


@lru_cache(maxsize=1)
def _builtin() -> dict[str, TagTable]:
    """Built-in tables by name. A file with `eras`, each with its cuts, gives one table NAME_ERA per era."""
    found: dict[str, TagTable] = {}
    for path in sorted(TABLES.glob("*.yaml")):
        raw = dict(read_yaml(path))
        eras = {f"{path.stem}_{era}": cuts for era, cuts in raw.pop("eras", {}).items()}
        for name, cuts in (eras or {path.stem: raw["cuts"]}).items():
            rows = {flavour: row[: len(cuts)] if eras else row for flavour, row in raw["efficiency"].items()}
            found[name] = parse_table({**raw, "name": name, "cuts": cuts, "efficiency": rows}, name)
    return found


def tables_of(field: str) -> tuple[TagTable, ...]:
    """The built-in tables for a field of jets; the default one first.

    >>> [table.name for table in tables_of("btagUParTAK4B")]
    ['upart_2024']
    """
    return tuple(table for table in _builtin().values() if table.field == field)


def load_table(table: TagTable | Mapping[str, Any] | str | os.PathLike[str]) -> TagTable:
    """Load a table: a built-in one by name, one from a YAML file, or one from plain data.

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
            f"no table of tags {str(table)!r}: give the name of a built-in table (`pairton list tags`) or a "
            f".yaml file{hint}"
        )
    return known[str(table)]


Row = tuple[float | tuple[float, ...], ...]  # an efficiency for each cut, or such a tuple for each range of pT


class _Efficiency(Struct):
    b: Row
    light: Row
    c: Row | None = None


class _File(Struct):
    """A table as a file has it."""

    cuts: tuple[float, ...]
    efficiency: _Efficiency
    pt: tuple[float, ...] = ()
    name: str | None = None
    field: str = "btag"
    about: str = ""
    measured: bool = True
    abs_eta: Annotated[float, Meta(gt=0)] = inf
    range: tuple[float, float] = (-inf, inf)
    tag_point: int = 0


def parse_table(raw: object, source: str = "table") -> TagTable:
    """Read a table from plain data, as YAML or JSON gives it; `source` is named in errors."""
    file = configure(_File, raw, source)
    for name, values in (("cuts", file.cuts), ("pt", file.pt)):
        rising = all(low < high for low, high in pairwise((-inf, *values, inf)))
        if not rising or (name == "cuts" and not values):
            raise ConfigError(f"{source}: {name} is {shown(list(values))}, but must be a list of rising numbers")
    rows, c = file.efficiency, file.efficiency.c
    shape = len(file.pt) + 1, len(file.cuts)
    try:
        parts = [np.array(row, np.float64) for row in (rows.b, rows.light if c is None else c, rows.light)]
        efficiency = np.array([np.broadcast_to(part, (shape[0], part.shape[-1])) for part in parts])
        matches = efficiency.shape[1:] == shape
    except ValueError:  # rows of different lengths
        matches = False
    if not matches:
        raise ConfigError(
            f"{source}: efficiency must have {shape[1]} numbers per flavour, one per cut, for each of the "
            f"{shape[0]} ranges of pT"
        )
    if not ((efficiency > 0) & (efficiency < 1)).all() or (np.diff(efficiency) > 0).any():
        raise ConfigError(f"{source}: efficiencies must lie between 0 and 1 and fall from one cut to the next")
    low, high = file.range
    if not low <= file.cuts[0] or not file.cuts[-1] < high:
        raise ConfigError(f"{source}: range is {shown([low, high])}, but all cuts must be within it")
    if not 0 <= file.tag_point <= len(file.cuts):
        raise ConfigError(
            f"{source}: tag_point is {file.tag_point}, but must be the number of a cut, 1 to {len(file.cuts)}"
        )
    return TagTable(
        name=file.name or Path(source).stem,
        field=file.field,
        cuts=np.array(file.cuts),
        efficiency=efficiency,
        edges=np.array(file.pt, np.float64),
        abs_eta=file.abs_eta,
        has_c=c is not None,
        about=file.about,
        measured=file.measured,
        valid=file.range,
        tag_point=file.tag_point,
    )


def stated_table(metadata: Mapping[str, Any]) -> TagTable | None:
    """The table that metadata state for the tags of the jets; None if they state none.

    Older files of `pairton generate` have the card instead; built-in tables have its default efficiencies.
    """
    table, made = metadata.get("tag_table"), metadata.get("generator")
    if table is not None:
        return parse_table(table, "tag_table")
    card = str(made.get("card")) if isinstance(made, Mapping) else ""
    return next((load_table(name) for name, part in CARDS.items() if part in card), None)


def with_evidence(jets: ak.Array, table: TagTable | None = None) -> ak.Array:
    """Add the fields b_evidence and c_evidence to jets.

    The default table is for a `btag` of 0 or 1 with the efficiencies of Pairton's generator. Jets without the
    field of the table are returned unchanged. Raises EventsError if the table is for tags of 0 or 1, but the field
    has scores.

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
    """Raise EventsError if a table is for tags of 0 or 1, but more than a few values are neither."""
    if table.field != "btag" or len(table.cuts) > 1:
        return
    if (value := not_binary(values)) is not None:
        raise EventsError(
            f"btag of jets must be 0 or 1, but has values such as {value:g}: cut on the score with "
            "--btag CUT, or give a table of its efficiencies with --btag TABLE"
        )


def not_binary(values: Floats) -> float | None:
    """A value that is no tag of 0 or 1, if more than a few are none; negative and infinite ones mean no tag.

    >>> not_binary(np.array([1.0, 0.0, 0.3])), not_binary(np.array([1.0, 0.0, -1.0]))
    (0.3, None)
    """
    others = values[np.isfinite(values) & (values > 0) & (values != 1)]
    return float(others[0]) if len(others) > MOST_NOT_BINARY * len(values) else None
