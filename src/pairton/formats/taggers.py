"""Choose the tagger in a file of an experiment: its score, the cut that makes a tag, and its efficiencies."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, InputError, PairtonWarning, nearest
from pairton.events.inputs import EVIDENCE
from pairton.events.tags import TagTable, tables_of
from pairton.formats.base import ReadOptions, Source

__all__ = [
    "NO_TAGS",
    "Filling",
    "OneTagger",
    "Tagger",
    "choose_tagger",
    "described",
    "first_values",
    "flat_values",
    "no_tags",
    "without_tags",
]

NO_TAGS = "none"  # `--btag none`
FEW = 20  # fewer jets are not enough to see whether a score is filled
ENOUGH = 200  # jets that are checked
ROWS = 500  # events that are read at once, until there are enough jets
SAME_CUT = 1e-6  # largest difference of equal cuts

Flat = npt.NDArray[Any]


@dataclass(frozen=True)
class Filling:
    """Whether the first values of a score are filled.

    >>> Filling.of(np.full(100, -3000.0), (0.0, 1.0)).filled
    False
    """

    jets: int
    known: int  # number of valid values
    low: float = math.nan  # smallest valid value
    high: float = math.nan  # largest valid value

    @classmethod
    def of(cls, values: Flat, valid: tuple[float, float] = (-math.inf, math.inf)) -> Filling:
        good = values[np.isfinite(values) & (values >= valid[0]) & (values <= valid[1])]
        return cls(len(values), len(good), *((float(good.min()), float(good.max())) if len(good) else ()))

    @property
    def filled(self) -> bool:
        """False if all of at least `FEW` jets have invalid values, or all valid values are equal."""
        return self.jets < FEW or self.low < self.high

    def described(self, name: str) -> dict[str, Any]:
        """Plain data, for JSON."""
        some = self.known > 0
        bounds = {"low": self.low if some else None, "high": self.high if some else None}
        return {"name": name, "filled": self.filled, "jets": self.jets, "known": self.known, **bounds}


@dataclass(frozen=True)
class Tagger:
    """A score, the cut above which a jet is tagged, and the efficiencies of the tagger."""

    name: str
    cut: float
    field: str  # name of the score in tables; empty: jets have no tags
    table: TagTable | None = None  # efficiencies; None: not known
    evidence: bool = True  # whether evidence is needed

    def fields(self, values: Flat, pt: Flat, eta: Flat) -> dict[str, Flat]:
        """btag of 0 or 1 and, if the efficiencies are known, the evidence of each jet; pT in GeV."""
        if not self.field:
            return no_tags(len(pt)) if self.evidence else {}
        with np.errstate(invalid="ignore"):
            tagged = values > self.cut
        if self.table is None or self.table.field != self.field:
            found: dict[str, Flat] = {"btag": tagged}
            values = tagged
        else:
            found = {"btag": tagged & self.table.has_value(values)}
        if self.table is not None and self.evidence:
            found |= dict(zip(EVIDENCE, self.table.evidence(values, pt, eta), strict=True))
        return found

    @property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {"btag": f"{self.name}:{self.cut:g}" if self.field else self.name}
        return found | ({"tag_table": self.table.to_dict()} if self.table is not None and self.evidence else {})

    def __str__(self) -> str:
        if not self.field:
            return self.name
        table = f" ({self.table.name})" if self.table is not None and self.evidence else ""
        return f"{self.name} > {self.cut:g}{table}"


def choose_tagger(
    options: ReadOptions,
    scores: Mapping[str, str],
    order: Sequence[str],
    look: Callable[[str], Flat],
    path: str,
) -> Tagger:
    """The tagger of `--btag TAGGER:CUT`, `--btag TAGGER` or `--btag TABLE`, or the first filled one of `order`.

    scores: tagger in the file -> name of its score in tables. look: function from a tagger to some values of its
    score. A default cut comes with a warning, since the right one depends on the data. FormatError if a score that
    the user chose is not filled.
    """
    if options.btag == NO_TAGS:
        return without_tags(options)
    name, cut = _asked(options, scores, order, path)
    chosen = options.tags
    if name is not None and chosen is not None and chosen.field == name:
        chosen = replace(chosen, field=scores[name])  # the user's name for the score
    if name is None:
        name, unfilled = _first_filled(scores, order, look, path)
        default = _default_table(scores[name], None)
        chosen = chosen or default
        assert default is not None  # every tagger in `order` has a table
        cut = default.tag_cut
        verb = "is" if len(unfilled) == 1 else "are"
        why = f", since {' and '.join(unfilled)} {verb} not filled" if unfilled else ""
        warnings.warn(
            f"by default, jets with {name} > {cut:g} are b-tagged (table {default.name}){why}: the right cut "
            f"depends on your data; give --btag {name}:CUT, or --btag TABLE for another era",
            PairtonWarning,
            stacklevel=4,
        )
        return Tagger(name, cut, scores[name], chosen, options.evidence)
    known = _default_table(scores[name], cut)
    chosen = chosen or known
    same = chosen if chosen is not None and chosen.field == scores[name] else known
    if not (filling := _look(look, name, same)).filled:
        raise FormatError(
            f"{path}: {name} is not filled: {_values(filling)}: choose one of the filled taggers: "
            f"{', '.join(_filled(scores, order, look)) or 'none'}"
        )
    if cut is None:
        if same is None:
            raise ConfigError(f"--btag {options.btag}: {name} has no default cut: give --btag {name}:CUT")
        cut = same.tag_cut
        if options.tags is None:
            warnings.warn(
                f"by default, jets with {name} > {cut:g} are b-tagged (table {same.name}): the right cut depends "
                f"on your data; give --btag {name}:CUT",
                PairtonWarning,
                stacklevel=4,
            )
    if same is not None and not same.valid[0] <= cut < same.valid[1]:
        low, high = same.valid
        raise ConfigError(
            f"--btag {name}:{cut:g}: the score {name} goes from {low:g} to {high:g}, so this cut tags no jet or "
            f"every jet: choose a cut such as {', '.join(f'{c:g}' for c in same.cuts)}"
        )
    return Tagger(name, cut, scores[name], chosen, options.evidence)


def without_tags(options: ReadOptions) -> Tagger:
    """The tagger of `--btag none`."""
    if options.tags is not None:
        raise ConfigError(
            f"--btag {NO_TAGS} and --tags {options.tags.name} contradict each other: give one of them"
        )
    return Tagger(NO_TAGS, math.nan, "", None, options.evidence)


def no_tags(n_jets: int) -> dict[str, Flat]:
    """The evidence of jets without tags: none for or against a b or c jet."""
    return {name: np.zeros(n_jets, dtype=np.float32) for name in EVIDENCE}


def described(
    scores: Mapping[str, str], look: Callable[[str], Flat], used: Tagger, order: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The scores in a file as plain data, those of `order` first: values, tables, and whether they are used.

    `cuts` are the working points of the first table. If a score is used, its table comes first.
    """
    found = []
    for name in sorted(scores, key=lambda name: (name not in order, order.index(name) if name in order else 0)):
        tables = list(tables_of(scores[name]))
        if name == used.name and used.table in tables:
            tables.insert(0, tables.pop(tables.index(used.table)))
        try:
            filling = _look(look, name, tables[0] if tables else None)
        except ConfigError:  # the score cannot be computed without a further setting
            filling = Filling(0, 0)
        found.append(filling.described(name) | {"tables": [table.name for table in tables]})
        found[-1]["cuts"] = tables[0].cuts.tolist() if tables else []
        found[-1]["used"] = str(used) if name == used.name else None
    return found


def _asked(
    options: ReadOptions, scores: Mapping[str, str], order: Sequence[str], path: str
) -> tuple[str | None, float | None]:
    """Tagger and cut of `--btag`, or the tagger of the table."""
    table, given = options.tags, options.btag
    of_table = None
    if table is not None and table.field != "btag":
        of_table = next((name for name, field in scores.items() if table.field in (name, field)), None)
        if of_table is None:
            raise ConfigError(
                f"{path}: the table {table.name} is for {table.field}, but the file has the scores "
                f"{', '.join(scores) or 'none'}: choose a table for one of them"
                f"{nearest(table.field, scores.values())}"
            )
    if given is None:
        return of_table, None
    name, colon, cut = given.partition(":")
    if not colon and name.replace(".", "", 1).isdigit():
        first = of_table or next((tagger for tagger in order if tagger in scores), "TAGGER")
        raise ConfigError(
            f"--btag {given} is a cut without a tagger: {path} has {', '.join(scores) or 'none'}: write, for "
            f"example, --btag {first}:{given}"
        )
    if name not in scores:
        raise ConfigError(
            f"--btag {given}: {path} has no tagger {name!r}, but {', '.join(scores) or 'none'}"
            f"{nearest(name, scores)}"
        )
    if of_table not in (None, name):
        raise ConfigError(
            f"--btag {given} and --tags {table.name if table else ''} are for different taggers: choose one"
        )
    return name, _number(given, cut) if colon else None


def _default_table(field: str, cut: float | None) -> TagTable | None:
    """The built-in table of a score: the one of the era that has this cut, or else the first one."""
    known = tables_of(field)
    if cut is not None:
        known = (*(t for t in known if (np.abs(t.cuts - cut) < SAME_CUT).any()), *known)
    return known[0] if known else None


def _first_filled(
    scores: Mapping[str, str], order: Sequence[str], look: Callable[[str], Flat], path: str
) -> tuple[str, list[str]]:
    """The first filled tagger of `order` in the file, and the taggers before it that are not filled."""
    available = [name for name in order if name in scores]
    if not available:
        known = f"none of the taggers {', '.join(order)}" if order else "no tagger with a known cut"
        raise FormatError(
            f"{path}: the file has {known}; its b-tag scores are {', '.join(scores) or 'none'}: give --btag "
            "TAGGER:CUT, or --btag none to run without tags"
        )
    unfilled: list[str] = []
    for name in available:
        filling = _look(look, name, _default_table(scores[name], None))
        if filling.filled:
            return name, unfilled
        unfilled.append(name)
    raise FormatError(
        f"{path}: none of the taggers {', '.join(available)} is filled: {_values(filling)}: give --btag TAGGER:CUT"
    )


def _filled(scores: Mapping[str, str], order: Sequence[str], look: Callable[[str], Flat]) -> list[str]:
    available = [name for name in order if name in scores]
    return [name for name in available if _look(look, name, _default_table(scores[name], None)).filled]


def _look(look: Callable[[str], Flat], name: str, table: TagTable | None) -> Filling:
    return Filling.of(look(name), table.valid if table is not None else (-math.inf, math.inf))


def _values(filling: Filling) -> str:
    if filling.known:
        return f"the first {filling.jets} jets all have the value {filling.low:g}"
    return f"none of the first {filling.jets} jets has a valid value"


def _number(given: str, cut: str) -> float:
    try:
        value = float(cut)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"--btag {given}: the cut {cut!r} must be a number, as in TAGGER:0.5")
    return value


def first_values(read: Callable[[int, int], Flat], n_events: int) -> Flat:
    """Values of the first jets in a file; `read` returns the values for rows [start, stop)."""
    parts = [np.zeros(0)]
    for start in range(0, n_events, ROWS):
        parts.append(np.asarray(read(start, min(start + ROWS, n_events)), dtype=np.float64))
        if sum(map(len, parts)) >= ENOUGH:
            break
    return np.concatenate(parts)


def flat_values(column: ak.Array) -> Flat:
    """All values of a ragged column."""
    return np.asarray(ak.flatten(column, axis=None), dtype=np.float64)


class OneTagger:
    """Checks that all files of a run have the same tagger, unless the user chose one."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._asked = options.get("btag") is not None or options.get("tags") is not None
        self._first: tuple[str, str] | None = None  # path, tagger

    def check(self, source: Source) -> None:
        """Raise InputError if the tagger of a file differs from that of the first one."""
        path, tagger = self._first = self._first or (source.path, source.tagging)
        if source.tagging != tagger and not self._asked:
            raise InputError(
                f"{source.path} has the tagger {source.tagging}, but {path} has {tagger}: choose one for all "
                "files with --btag TAGGER:CUT or --btag TABLE, or run on them separately"
            )
