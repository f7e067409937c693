"""Tags as evidence: the log likelihood ratios of a jet's flavour, given the value of a tagger.

The scale of a tagger's score has no meaning of its own. What matters is how often b, c and light jets have a
value. The network therefore takes two log likelihood ratios per jet,

    b_evidence = log P(value | b) / P(value | light),    c_evidence = log P(value | c) / P(value | light).

They are computed from a table of efficiencies: the shares of b, c and light jets that pass each cut of the tagger.
A model with these inputs works for every tagger whose efficiencies are known. Zero means no information.

Shapes: J jets, K cuts, R ranges of pT. K cuts make K + 1 bins; a value is in bin k if it passes k cuts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property, lru_cache
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Annotated, Any

import awkward as ak
import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from pairton._common.configuration import configure, read_yaml
from pairton.errors import ConfigError, EventsError, nearest, shown
from pairton.events.events import Events, Objects
from pairton.events.inputs import EVIDENCE
from pairton.topology import JET

__all__ = [
    "TagTable",
    "builtin_tables",
    "ensure_evidence",
    "load_table",
    "parse_table",
    "tag_caveat",
    "with_evidence",
    "with_table",
]

FLAVOURS = ("b", "c", "light")
DEFAULT_TABLE = "generator"  # for tags of 0 or 1 from an unknown tagger
DEFAULT_EFFICIENCY = 0.77  # for b jets, of the cut that makes a tag if a table does not name one
MOST_NOT_BINARY = 0.01  # largest share of values other than 0 and 1 in a binary tag
MOST = 8.0  # largest absolute evidence: no efficiency is measured better than one in three thousand
TABLES = Path(__file__).parent / "tag_tables"
ASSUMED = (
    "the tagger is unknown, so the efficiencies of Pairton's generator are assumed (about 70 % for b jets, 0.3 % "
    "for light jets): give the table of your tagger with --btag TABLE (`pairton list tags`)"
)

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]
Cuts = Annotated[tuple[float, ...], Meta(min_length=1, description="a list of rising numbers")]
Row = tuple[float | tuple[float, ...], ...]  # an efficiency for each cut, or such a tuple for each range of pT


class Efficiency(Struct, frozen=True, kw_only=True, omit_defaults=True):
    b: Row
    c: Row | None = None
    light: Row


class TagTable(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """The efficiencies of a tagger at some cuts on its value, as in a file.

    >>> table = load_table("generator_points")
    >>> b, c = table.evidence(np.array([5.0, 1.0]), np.array([50.0, 50.0]), np.array([0.0, 0.0]))
    >>> b.round(2).tolist()  # passes the tightest cut; passes none
    [6.58, -1.86]
    """

    name: str
    field: str = "btag"  # field of jets that has the value
    about: str = ""  # where the numbers come from
    measured: bool = True  # False: approximate; users should measure their own
    abs_eta: Annotated[float, Meta(gt=0)] = inf  # jets with a larger |eta| have no tag
    range: tuple[float, float] = (-inf, inf)  # jets with a value outside have no tag
    tag_point: int = 0  # number of the cut, from 1, that makes a tag; 0: the one with about 77 % of b jets
    cuts: Cuts  # a value passes a cut if it is above it
    pt: tuple[float, ...] = ()  # edges between the ranges of pT, GeV
    efficiency: Efficiency  # shares of jets that pass each cut, by flavour

    def __post_init__(self) -> None:
        for name, values in (("cuts", self.cuts), ("pt", self.pt)):
            if not all(low < high for low, high in pairwise((-inf, *values, inf))):
                raise ValueError(f"{name} is {shown(list(values))}, but must be a list of rising numbers")
        try:
            efficiencies = self.efficiencies
        except ValueError:  # rows of different lengths
            raise ValueError(
                f"efficiency must have {len(self.cuts)} numbers, one per cut, for each flavour and range of pT"
            ) from None
        if not ((efficiencies > 0) & (efficiencies < 1)).all() or (np.diff(efficiencies) > 0).any():
            raise ValueError("efficiencies must lie between 0 and 1 and fall from one cut to the next")
        if not self.range[0] <= self.cuts[0] or not self.cuts[-1] < self.range[1]:
            raise ValueError(f"range is {shown(list(self.range))}, but all cuts must be within it")
        if not 0 <= self.tag_point <= len(self.cuts):
            raise ValueError(f"tag_point is {self.tag_point}, but the cuts have the numbers 1 to {len(self.cuts)}")

    @cached_property
    def efficiencies(self) -> Floats:
        """(3, R, K): shares of b, c and light jets that pass each cut; c as light if the file has none."""
        rows = [self.efficiency.b, self.efficiency.c or self.efficiency.light, self.efficiency.light]
        shape = len(self.pt) + 1, len(self.cuts)
        parts = [np.array(row, np.float64) for row in rows]
        if any(part.shape[-1] != shape[1] for part in parts):  # one number is not for all cuts
            raise ValueError
        return np.array([np.broadcast_to(part, shape) for part in parts])

    @property
    def has_c(self) -> bool:
        """Whether there are efficiencies of c jets; if not, c_evidence is zero."""
        return self.efficiency.c is not None

    @property
    def tag_cut(self) -> float:
        """The cut that makes a `btag` of 0 or 1."""
        nearest_point = int(np.argmin(np.abs(self.efficiencies[0].mean(axis=0) - DEFAULT_EFFICIENCY)))
        return self.cuts[self.tag_point - 1 if self.tag_point else nearest_point]

    def has_value(self, values: npt.ArrayLike) -> Bools:
        """(J,): whether values are valid; others, such as NaN or -1, mark jets without a tag."""
        values = np.asarray(values, dtype=np.float64)
        return np.asarray(np.isfinite(values) & (values >= self.range[0]) & (values <= self.range[1]))

    def bins(self, values: npt.ArrayLike, eta: npt.ArrayLike) -> Index:
        """(J,): the number of cuts that each value passes; -1 for jets without a tag."""
        passed = np.searchsorted(self.cuts, np.asarray(values, dtype=np.float64), side="left")
        return np.where(self.has_value(values) & (np.abs(np.asarray(eta)) <= self.abs_eta), passed, -1)

    def evidence(self, values: npt.ArrayLike, pt: npt.ArrayLike, eta: npt.ArrayLike) -> tuple[Floats, Floats]:
        """b_evidence and c_evidence (J,) for values of the tagger."""
        b, c = self._ratios[:, np.searchsorted(self.pt, pt, side="right"), self.bins(values, eta)]
        return b, c

    @cached_property
    def _ratios(self) -> Floats:
        """(2, R, K + 2): b and c evidence of all bins; the last bin is for jets without a tag."""
        bins = np.append(np.arange(len(self.cuts) + 1), -1)
        one_in_each = (0.0, *self.pt)
        return np.stack([np.stack(self.of_bins(bins, np.full(len(bins), pt))) for pt in one_in_each], axis=1)

    def of_bins(self, bins: Index, pt: npt.ArrayLike, kept: Bools | None = None) -> tuple[Floats, Floats]:
        """Like `evidence`, for bins (J,); with `kept` (J, K), as if the tagger only had these cuts."""
        n_cuts = len(self.cuts)
        places = np.arange(n_cuts + 2)
        is_cut = np.ones((len(bins), n_cuts + 2), dtype=bool)
        if kept is not None:
            is_cut[:, 1:-1] = kept
        lower = np.maximum.accumulate(np.where(is_cut, places, 0), axis=1)  # last kept cut up to each one
        upper = np.minimum.accumulate(np.where(is_cut, places, n_cuts + 1)[:, ::-1], axis=1)[:, ::-1]
        row, passed = np.arange(len(bins)), np.maximum(bins, 0)
        below, above = lower[row, passed], upper[row, passed + 1]
        pt_range = np.searchsorted(self.pt, pt, side="right")
        passing = np.pad(self.efficiencies, ((0, 0), (0, 0), (1, 1)), constant_values=((0, 0), (0, 0), (1, 0)))
        share = np.maximum(passing[:, pt_range, below] - passing[:, pt_range, above], 1e-12)  # (3, J)
        ratio = np.clip(np.log(share[:2] / share[2]), -MOST, MOST)
        ratio[1] *= self.has_c
        b, c = np.where(bins >= 0, ratio, 0.0)
        return b, c

    def drawn_cuts(self, rng: np.random.Generator, events: int) -> Bools:
        """(events, K): a random subset of the cuts per event, as of a tagger with fewer working points.

        Each subset has a cut that analyses use, with an efficiency of 50 to 95 % for b jets, if there is one.
        """
        b_efficiency = self.efficiencies[0].mean(axis=0)
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
        plain: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(self)))  # with lists, as in a file
        return plain


@lru_cache(maxsize=1)
def builtin_tables() -> Mapping[str, TagTable]:
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
    """The built-in tables for a field of jets; the default one first."""
    return tuple(table for table in builtin_tables().values() if table.field == field)


def load_table(table: TagTable | Mapping[str, Any] | str | os.PathLike[str]) -> TagTable:
    """Load a table: a built-in one by name, one from a YAML file, or one from plain data."""
    if isinstance(table, TagTable):
        return table
    if isinstance(table, Mapping):
        return parse_table(table)
    if Path(table).suffix in (".yaml", ".yml"):
        return parse_table(read_yaml(Path(table)), str(table))
    if str(table) not in (known := builtin_tables()):
        raise ConfigError(
            f"no table of tags {str(table)!r}: give the name of a built-in table (`pairton list tags`) or a "
            f".yaml file{nearest(str(table), known)}"
        )
    return known[str(table)]


def parse_table(raw: object, source: str = "table") -> TagTable:
    """Read a table from plain data, as YAML or JSON gives it; `source` is named in errors."""
    if isinstance(raw, Mapping):
        raw = {**raw, "name": raw.get("name") or Path(source).stem}
    return configure(TagTable, raw, source)


def stated_table(metadata: Mapping[str, Any]) -> TagTable | None:
    """The table that metadata state for the tags of the jets; None if they state none."""
    table = metadata.get("tag_table")
    return None if table is None else parse_table(table, "tag_table")


# -- evidence of jets --------------------------------------------------------------------------------------


def with_evidence(jets: ak.Array, table: TagTable | None = None, nominal: ak.Array | None = None) -> ak.Array:
    """Add the fields b_evidence and c_evidence to jets; without the field of the table, they are unchanged.

    The default table is that of Pairton's generator. If `nominal` jets are given, their pT and eta decide.
    """
    table = table or load_table(DEFAULT_TABLE)
    if table.field not in ak.fields(jets):
        return jets
    momenta = jets if nominal is None else nominal
    columns = jets[table.field], momenta.pt, momenta.eta
    values, pt, eta = (np.asarray(ak.flatten(column), dtype=np.float64) for column in columns)
    check_binary(values, table)
    counts = ak.num(jets, axis=1)
    for name, evidence in zip(EVIDENCE, table.evidence(values, pt, eta), strict=True):
        jets = ak.with_field(jets, ak.unflatten(evidence.astype(np.float32), counts), name)
    return jets


def check_binary(values: Floats, table: TagTable) -> None:
    """Raise EventsError if a table is for tags of 0 or 1, but more than a few values are neither."""
    if table.field == "btag" and len(table.cuts) == 1 and (value := not_binary(values)) is not None:
        raise EventsError(
            f"btag of jets must be 0 or 1, but has values such as {value:g}: cut on the score with --btag CUT, or "
            "give a table of its efficiencies with --btag TABLE"
        )


def not_binary(values: Floats) -> float | None:
    """A value that is no tag of 0 or 1, if more than a few are none; negative and infinite ones mean no tag."""
    others = values[np.isfinite(values) & (values > 0) & (values != 1)]
    return float(others[0]) if len(others) > MOST_NOT_BINARY * len(values) else None


def ensure_evidence(events: Events) -> Events:
    """Add evidence to the jets, unless they have it already.

    It comes from the table that the metadata state, or from that of Pairton's generator for a `btag` of 0 or 1.
    """
    fields = ak.fields(events.jets)
    if EVIDENCE[0] not in fields:
        return with_table(events, _own_table(events) or load_table(DEFAULT_TABLE))
    if EVIDENCE[1] not in fields:  # no evidence for c jets
        jets = ak.with_field(events.jets, ak.zeros_like(events.jets[EVIDENCE[0]]), EVIDENCE[1])
        events = events.replace(jets=jets, variations=events.variations)
    table, varied = stated_table(events.metadata), events.variations.values()
    if table and any(JET in objects and EVIDENCE[0] not in ak.fields(objects[JET]) for objects in varied):
        events = events.replace(variations=_varied(events, table))
    return events


def with_table(events: Events, table: TagTable) -> Events:
    """Add the evidence of a table to the jets, and a `btag` of 0 or 1 if they have none.

    The metadata record the table. Raises EventsError if the jets lack the field that the table is for, unless they
    have the evidence of this table already.
    """
    if table.field not in ak.fields(events.jets):
        if EVIDENCE[0] in ak.fields(events.jets) and stated_table(events.metadata) == table:
            return events  # they were read with this table
        raise EventsError(
            f"the table {table.name} needs the field {table.field} of jets, but they have "
            f"{', '.join(ak.fields(events.jets))}: read the file with --btag {table.name} or --map "
            f"{table.field}=COLUMN, or pass the field to pairton.make_jets"
        )
    jets = with_evidence(events.jets, table)
    if "btag" not in ak.fields(jets):
        values = np.asarray(ak.flatten(jets[table.field]))
        tags = (values > table.tag_cut) & table.has_value(values)
        jets = ak.with_field(jets, ak.unflatten(tags.astype(np.float32), ak.num(jets, axis=1)), "btag")
    metadata = {**events.metadata, "tag_table": table.to_dict()}
    return events.replace(jets=jets, variations=_varied(events, table), metadata=metadata)


def tag_caveat(events: Events) -> str:
    """A warning if the efficiencies of the tagger are assumed or approximate; empty if they are known."""
    has_evidence = EVIDENCE[0] in ak.fields(events.jets)
    table = stated_table(events.metadata) if has_evidence else _own_table(events)
    if table is None and not has_evidence:
        return ASSUMED
    if table is None or table.measured:
        return ""
    return (
        f"the efficiencies in the table {table.name} are approximate: measure them in your simulation with "
        "`pairton measure tags`, and give the new table with --btag TABLE"
    )


def _own_table(events: Events) -> TagTable | None:
    """The table that the metadata state, if the jets have its field."""
    table = stated_table(events.metadata)
    return table if table is not None and table.field in ak.fields(events.jets) else None


def _varied(events: Events, table: TagTable) -> dict[str, Objects]:
    """The variations, with evidence from the tags of their jets and the nominal momenta.

    Jets without the field of the table have no evidence: `Events.varied` gives them that of the nominal jets.
    """
    return {
        name: {k: with_evidence(array, table, events.jets) if k == JET else array for k, array in objects.items()}
        for name, objects in events.variations.items()
    }
