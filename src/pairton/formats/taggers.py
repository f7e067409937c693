"""Which tagger of an experiment's file is used: its score, the cut that makes a tag, its table of efficiencies."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, InputError, PairtonWarning, nearest
from pairton.events.inputs import EVIDENCE
from pairton.events.tags import TagTable, tables_of
from pairton.formats.base import ReadOptions, Source

__all__ = ["Filling", "OneTagger", "Tagger", "choose_tagger", "described", "first_values"]

FEW = 20  # jets, of which nothing can be said
ENOUGH = 200  # jets that are looked at to see whether a score is filled
ROWS = 500  # events that are read for that, and as many again until there are enough jets
SAME_CUT = 1e-6

Flat = npt.NDArray[Any]


@dataclass(frozen=True)
class Filling:
    """What the first values of a score are like.

    >>> Filling.of(np.full(100, -3000.0), (0.0, 1.0)).filled
    False
    """

    jets: int
    known: int  # values that the tagger can give
    low: float = math.nan  # of those
    high: float = math.nan

    @classmethod
    def of(cls, values: Flat, valid: tuple[float, float] = (-math.inf, math.inf)) -> Filling:
        good = values[np.isfinite(values) & (values >= valid[0]) & (values <= valid[1])]
        return cls(len(values), len(good), *((float(good.min()), float(good.max())) if len(good) else ()))

    @property
    def filled(self) -> bool:
        """Not so if many jets have no value that is possible, or all the same one."""
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
    field: str  # of jets, as tables call the score
    table: TagTable | None = None  # None: nothing is known of its efficiencies
    evidence: bool = True  # whether anybody asks for it

    def fields(self, values: Flat, pt: Flat, eta: Flat) -> dict[str, Flat]:
        """btag of 0 or 1 and, where the efficiencies are known, the evidence of each jet; pT in GeV."""
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
        said: dict[str, Any] = {"btag": f"{self.name}:{self.cut:g}"}
        return said | ({"tag_table": self.table.to_dict()} if self.table is not None and self.evidence else {})

    def __str__(self) -> str:
        table = f" ({self.table.name})" if self.table is not None and self.evidence else ""
        return f"{self.name} > {self.cut:g}{table}"


def choose_tagger(
    options: ReadOptions,
    scores: Mapping[str, str],
    order: Sequence[str],
    look: Callable[[str], Flat],
    path: str,
) -> Tagger:
    """The tagger of `--btag TAGGER:CUT`, `--btag TAGGER` or `--tags TABLE`, or the first filled one of `order`.

    scores: taggers of the file -> the field that tables call them by. look: some values of a score. A default is
    announced, since no file says for which data its cut holds. A score that was asked for must be filled.
    """
    name, cut = _asked(options, scores, order, path)
    chosen = options.tags
    if name is not None and chosen is not None and chosen.field == name:
        chosen = replace(chosen, field=scores[name])  # the user's name for the score
    if name is None:
        name, unfilled = _first_filled(scores, order, look, path)
        default = _usual_table(scores[name], None)
        chosen = chosen or default
        assert default is not None  # of every tagger in an order there is a table
        cut = default.tag_cut
        why = f", since there are no values in {' and '.join(unfilled)}" if unfilled else ""
        warnings.warn(
            f"b-tagged means {name} > {cut:g} (table {default.name}), by default{why}: the right cut depends on "
            f"your data; give --btag {name}:CUT, or --tags TABLE for another era",
            PairtonWarning,
            stacklevel=4,
        )
        return Tagger(name, cut, scores[name], chosen, options.evidence)
    known = _usual_table(scores[name], cut)
    chosen = chosen or known
    same = chosen if chosen is not None and chosen.field == scores[name] else known
    if not (filling := _look(look, name, same)).filled:
        raise FormatError(
            f"{path}: {name} is not filled: {_values(filling)}; taggers that are filled: "
            f"{', '.join(_filled(scores, order, look)) or 'none'}"
        )
    if cut is None:
        if same is None:
            raise ConfigError(f"--btag {options.btag}: {name} has no default cut: give --btag {name}:CUT")
        cut = same.tag_cut
        if options.tags is None:
            warnings.warn(
                f"b-tagged means {name} > {cut:g} (table {same.name}), by default: the right cut depends on your "
                f"data; give --btag {name}:CUT",
                PairtonWarning,
                stacklevel=4,
            )
    if same is not None and not same.valid[0] <= cut < same.valid[1]:
        low, high = same.valid
        raise ConfigError(
            f"--btag {name}:{cut:g}: the score {name} goes from {low:g} to {high:g}, so this cut tags no jet or "
            f"every jet; its usual cuts are {', '.join(f'{c:g}' for c in same.cuts)}"
        )
    return Tagger(name, cut, scores[name], chosen, options.evidence)


def described(
    scores: Mapping[str, str], look: Callable[[str], Flat], used: Tagger, order: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """What is known of each score of a file, as plain data: its values, its tables, whether it is used.

    `cuts` are the working points of the first table, which is the one in use if the score is used.

    Those of `order` come first.
    """
    found = []
    for name in sorted(scores, key=lambda name: (name not in order, order.index(name) if name in order else 0)):
        tables = list(tables_of(scores[name]))
        if name == used.name and used.table in tables:  # that one first
            tables.insert(0, tables.pop(tables.index(used.table)))
        try:
            filling = _look(look, name, tables[0] if tables else None)
        except ConfigError:  # what its values are must be said first
            filling = Filling(0, 0)
        found.append(filling.described(name) | {"tables": [table.name for table in tables]})
        found[-1]["cuts"] = tables[0].cuts.tolist() if tables else []
        found[-1]["used"] = str(used) if name == used.name else None
    return found


def _asked(
    options: ReadOptions, scores: Mapping[str, str], order: Sequence[str], path: str
) -> tuple[str | None, float | None]:
    """Tagger and cut of `--btag`, or the tagger of `--tags`."""
    table, given = options.tags, options.btag
    of_table = None
    if table is not None and table.field != "btag":
        of_table = next((name for name, field in scores.items() if table.field in (name, field)), None)
        if of_table is None:
            raise ConfigError(
                f"{path}: the table {table.name} is for {table.field}, but the file has the scores "
                f"{', '.join(scores) or 'none'}{nearest(table.field, scores.values())}"
            )
    if given is None:
        return of_table, None
    name, colon, cut = given.partition(":")
    if not colon and name.replace(".", "", 1).isdigit():
        first = of_table or next((tagger for tagger in order if tagger in scores), "TAGGER")
        raise ConfigError(
            f"--btag {given} is a cut without a tagger: {path} has {', '.join(scores) or 'none'}; write "
            f"--btag {first}:{given}"
        )
    if name not in scores:
        raise ConfigError(
            f"--btag {given}: {path} has no tagger {name!r}, but {', '.join(scores) or 'none'}"
            f"{nearest(name, scores)}"
        )
    if of_table not in (None, name):
        raise ConfigError(f"--btag {given} and --tags {table.name if table else ''} name two taggers: choose one")
    return name, _number(given, cut) if colon else None


def _usual_table(field: str, cut: float | None) -> TagTable | None:
    """The table of a score that comes with Pairton: of the era that has this cut, else the most usual one."""
    known = tables_of(field)
    if cut is not None:
        known = (*(t for t in known if (np.abs(t.cuts - cut) < SAME_CUT).any()), *known)
    return known[0] if known else None


def _first_filled(
    scores: Mapping[str, str], order: Sequence[str], look: Callable[[str], Flat], path: str
) -> tuple[str, list[str]]:
    """The first tagger of an order that the file has and that is filled, and those before it that are not."""
    there = [name for name in order if name in scores]
    if not there:
        found = ", ".join(scores) or "no b-tag score at all"
        known = f"none of the taggers {', '.join(order)}" if order else "no tagger with a known cut"
        raise FormatError(f"{path}: {known}, but {found}: give --btag TAGGER:CUT")
    unfilled: list[str] = []
    for name in there:
        filling = _look(look, name, _usual_table(scores[name], None))
        if filling.filled:
            return name, unfilled
        unfilled.append(name)
    raise FormatError(
        f"{path}: none of the taggers {', '.join(there)} is filled: {_values(filling)}; give --btag TAGGER:CUT"
    )


def _filled(scores: Mapping[str, str], order: Sequence[str], look: Callable[[str], Flat]) -> list[str]:
    there = [name for name in order if name in scores]
    return [name for name in there if _look(look, name, _usual_table(scores[name], None)).filled]


def _look(look: Callable[[str], Flat], name: str, table: TagTable | None) -> Filling:
    return Filling.of(look(name), table.valid if table is not None else (-math.inf, math.inf))


def _values(filling: Filling) -> str:
    if filling.known:
        return f"the first {filling.jets} jets all have the value {filling.low:g}"
    return f"none of the first {filling.jets} jets has a value that the tagger can give"


def _number(given: str, cut: str) -> float:
    try:
        value = float(cut)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"--btag {given}: the cut {cut!r} must be a number, as in TAGGER:0.5")
    return value


def first_values(read: Callable[[int, int], Flat], n_events: int) -> Flat:
    """Values of the first jets of a file; `read` gives those of some rows."""
    parts = [np.zeros(0)]
    for start in range(0, n_events, ROWS):
        parts.append(np.asarray(read(start, min(start + ROWS, n_events)), dtype=np.float64))
        if sum(map(len, parts)) >= ENOUGH:
            break
    return np.concatenate(parts)


class OneTagger:
    """Refuses files of one run whose tags mean different things, unless the user said which to take."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._asked = options.get("btag") is not None or options.get("tags") is not None
        self._first: tuple[str, str] | None = None  # path, tagger

    def check(self, source: Source) -> None:
        path, tagger = self._first = self._first or (source.path, source.tagging)
        if source.tagging != tagger and not self._asked:
            raise InputError(
                f"{source.path} has the tags {source.tagging}, but {path} has {tagger}: give one that all files "
                "have with --btag TAGGER:CUT or --tags TABLE, or work on them one by one"
            )
