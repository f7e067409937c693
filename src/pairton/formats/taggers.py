"""B-tags: what the argument `btag` asks for, the score and the cut that make a tag, and its efficiencies."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt
from msgspec import structs

from pairton.errors import ConfigError, FormatError, PairtonWarning, nearest, shown
from pairton.events.inputs import EVIDENCE
from pairton.events.tags import (
    TagTable,
    builtin_tables,
    check_binary,
    load_table,
    not_binary,
    stated_table,
    tables_of,
)
from pairton.formats.columns import Wanted
from pairton.formats.working_points import working_point

__all__ = ["BTag", "Filling", "Scores", "TagColumns", "Tagger"]

NO_TAGS = "none"  # `--btag none`
FEW = 20  # fewer jets are not enough to see whether a score is filled
ENOUGH = 200  # jets that are checked
ROWS = 500  # events that are read at once, until there are enough jets
MAX_SCORE = 1e10  # no tagger gives more: the object is bad
SAME_CUT = 1e-6  # largest difference of equal cuts

Flat = npt.NDArray[Any]


@dataclass(frozen=True)
class BTag:
    """What `btag` asks for: TAGGER[:CUT], CUT, TABLE[:CUT], TAGGER:FILE.json:POINT or none.

    >>> BTag.parse("PNetB:0.3").cut, BTag.parse("deepjet_2018:0.7").score, BTag.parse("none").none
    (0.3, 'btagDeepFlavB', True)
    """

    text: str = ""  # as it was given; empty: the reader chooses
    named: str = ""  # tagger, or column of a flat table
    cut: float | None = None  # above which a jet is tagged
    table: TagTable | None = None  # efficiencies

    @classmethod
    def parse(cls, given: BTag | TagTable | Mapping[str, Any] | str | os.PathLike[str] | None) -> BTag:
        """A table is a `TagTable`, plain data, the name of a built-in one or the path of a YAML file."""
        if given is None or isinstance(given, BTag):
            return given or cls()
        if isinstance(given, TagTable | Mapping):
            table = load_table(given)
            return cls(table.name or "table", table=table)
        if not isinstance(given, str | os.PathLike):
            raise ConfigError(f'btag is {shown(given)}, but must be text such as "TAGGER:CUT", or a table')
        text = os.fspath(given)
        name, colon, last = text.rpartition(":")
        try:
            cut: float | None = float(last)
        except ValueError:
            name, cut = (name, math.nan) if colon and not _is_table(text) else (text, None)
            if (point := working_point(text)) is not None:
                name, cut = point
                text = f"{name}:{cut}"  # results state the cut
        if cut is not None and not math.isfinite(cut):
            raise ConfigError(f"--btag {text}: the cut {last!r} must be a number, as in TAGGER:0.5")
        if _is_table(name):
            return cls(text, "", cut, load_table(name))
        return cls(text, name, cut)

    @property
    def none(self) -> bool:
        """Whether to run without tags."""
        return self.text == NO_TAGS

    @property
    def score(self) -> str:
        """The score to cut on, or that a table is for; empty if the file decides."""
        return self.named or (self.table.field if self.table is not None and self.table.field != "btag" else "")

    @property
    def plain(self) -> str | dict[str, Any]:
        """Plain data for the settings of a result: the content of a table, not its name."""
        if self.table is None:
            return self.text
        return self.table.to_dict() | ({} if self.cut is None else {"cut": self.cut})


def _is_table(name: str) -> bool:
    return Path(name).suffix in (".yaml", ".yml") or name in builtin_tables()


@dataclass(frozen=True)
class Tagger:
    """A score, the cut above which a jet is tagged, and the efficiencies of the tagger."""

    name: str = NO_TAGS
    cut: float = math.nan
    field: str = ""  # name of the score in tables; empty: jets have no tags
    table: TagTable | None = None  # efficiencies; None: not known
    evidence: bool = True  # whether evidence is needed

    def fields(self, values: Flat, pt: Flat, eta: Flat) -> dict[str, Flat]:
        """btag of 0 or 1 and, if the efficiencies are known, the evidence of each jet; pT in GeV."""
        if not self.field:  # none for or against a b or c jet
            return {name: np.zeros(len(pt), dtype=np.float32) for name in EVIDENCE if self.evidence}
        with np.errstate(invalid="ignore"):
            tagged = values > self.cut
        found: dict[str, Flat] = {"btag": tagged}
        if self.table is not None and self.table.field == self.field:
            found["btag"] = tagged & self.table.has_value(values)
        else:
            values = tagged
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


# -- files of experiments, with several scores -------------------------------------------------------------


@dataclass(frozen=True)
class Filling:
    """Whether the first values of a score are filled.

    >>> Filling.of(np.full(100, -3000.0), (0.0, 1.0)).filled
    False
    """

    jets: int = 0
    known: int = 0  # number of valid values
    low: float | None = None  # smallest valid value
    high: float | None = None  # largest valid value

    @classmethod
    def of(cls, values: Flat, valid: tuple[float, float] = (-math.inf, math.inf)) -> Filling:
        good = values[np.isfinite(values) & (values >= valid[0]) & (values <= valid[1])]
        return cls(len(values), len(good), *((float(good.min()), float(good.max())) if len(good) else ()))

    @property
    def filled(self) -> bool:
        """False if all of at least `FEW` jets have invalid values, or all valid values are equal."""
        return self.jets < FEW or self.low != self.high


class Scores:
    """The b-tag scores in a file of an experiment.

    fields      tagger -> name of its score in tables
    order       taggers with a default cut, the preferred one first
    read        function from a tagger and rows [start, stop) to the scores of their jets
    """

    def __init__(
        self,
        fields: Mapping[str, str],
        order: Sequence[str],
        read: Callable[[str, int, int], ak.Array],
        n_events: int,
        path: str,
    ) -> None:
        self.fields, self._path, self._n_events, self._read = fields, path, n_events, read
        self._order, self._ranked = order, [name for name in order if name in fields]
        self._names = ", ".join(fields) or "no scores"

    def filling(self, name: str, table: TagTable | None) -> Filling:
        """Whether the score of the first jets is filled."""
        parts = [np.zeros(0)]
        for start in range(0, self._n_events, ROWS):
            column = self._read(name, start, min(start + ROWS, self._n_events))
            parts.append(np.asarray(ak.flatten(column, axis=None), dtype=np.float64))
            if sum(map(len, parts)) >= ENOUGH:
                break
        values = np.concatenate(parts)
        return Filling.of(values) if table is None else Filling.of(values, table.range)

    def choose(self, btag: BTag, evidence: bool) -> Tagger:
        """The tagger that `btag` asks for, or else the first one that is filled.

        A default cut comes with a warning, since the right one depends on the data. FormatError if a score that
        the user chose is not filled.
        """
        if btag.none:
            return Tagger(evidence=evidence)
        asked = self._asked(btag)
        name, why = (asked, "") if asked is not None else self._first_filled()
        field, own, cut = self.fields[name], btag.table, btag.cut
        if own is not None and own.field == name:
            own = structs.replace(own, field=field)  # the user's name for the score
        known = own if own is not None and own.field == field else _default_table(field, cut)
        if asked is not None and not (filling := self.filling(name, known)).filled:
            others = [
                each for each in self._ranked if self.filling(each, _default_table(self.fields[each])).filled
            ]
            values = f"all have the value {filling.low:g}" if filling.known else "have no valid value"
            raise FormatError(
                f"{self._path}: {name} is not filled: the first {filling.jets} jets {values}: choose one of the "
                f"filled taggers: {', '.join(others) or 'none'}"
            )
        if cut is None:
            if known is None:
                raise ConfigError(f"--btag {btag.text}: {name} has no default cut: give --btag {name}:CUT")
            cut = known.tag_cut
            if known is not own:
                warnings.warn(
                    f"by default, jets with {name} > {cut:g} are b-tagged (table {known.name}){why}: the right "
                    f"cut depends on your data; give --btag {name}:CUT, or --btag TABLE for another era",
                    PairtonWarning,
                    stacklevel=4,
                )
        if known is not None and not known.range[0] <= cut < known.range[1]:
            low, high = known.range
            raise ConfigError(
                f"--btag {name}:{cut:g}: the score {name} goes from {low:g} to {high:g}, so this cut tags no jet "
                f"or every jet: choose a cut such as {', '.join(f'{c:g}' for c in known.cuts)}"
            )
        return Tagger(name, cut, field, own or known, evidence)

    def _asked(self, btag: BTag) -> str | None:
        """The tagger that the user named, or that the table is for."""
        if names := [name for name, field in self.fields.items() if btag.score in (name, field)]:
            return names[0]
        has = f"{self._path} has {self._names}{nearest(btag.score, [*self.fields, *self.fields.values()])}"
        if btag.named:
            raise ConfigError(f"--btag {btag.text}: no tagger {btag.named!r}; {has}")
        if btag.score and btag.table is not None:
            raise ConfigError(f"--btag {btag.text}: the table {btag.table.name} is for {btag.score}; {has}")
        if btag.cut is not None:
            example = f"{next(iter(self._ranked), 'TAGGER')}:{btag.cut:g}"
            raise ConfigError(
                f"--btag {btag.text} is a cut without a tagger; {has}: write, for example, --btag {example}"
            )
        return None

    def _first_filled(self) -> tuple[str, str]:
        """The first filled tagger, and why it is not one before it."""
        for place, name in enumerate(self._ranked):
            if self.filling(name, _default_table(self.fields[name])).filled:
                verb = "is" if place == 1 else "are"
                return name, f", since {' and '.join(self._ranked[:place])} {verb} not filled" if place else ""
        which = f"none of the taggers {', '.join(self._order)}" if self._order else "no tagger with a known cut"
        raise FormatError(
            f"{self._path}: the file has {which}, or they are not filled; it has {self._names}: give "
            "--btag TAGGER:CUT, or --btag none to run without tags"
        )

    def described(self, used: Tagger) -> list[dict[str, Any]]:
        """The scores as plain data: values, tables, and whether they are used.

        `cuts` are the working points of the first table. If a score is used, its table comes first.
        """
        found = []
        for name in dict.fromkeys([*self._ranked, *self.fields]):
            tables = list(tables_of(self.fields[name]))
            if name == used.name and used.table in tables:
                tables.insert(0, tables.pop(tables.index(used.table)))
            try:
                filling = self.filling(name, tables[0] if tables else None)
            except ConfigError:  # the score cannot be computed without a further setting
                filling = Filling()
            about = {"name": name, "filled": filling.filled, **asdict(filling)}
            about |= {"tables": [t.name for t in tables], "cuts": list(tables[0].cuts) if tables else []}
            found.append(about | {"used": str(used) if name == used.name else None})
        return found


def _default_table(field: str, cut: float | None = None) -> TagTable | None:
    """The built-in table of a score: the one of the era that has this cut, or else the first one."""
    known = tables_of(field)
    same = (table for table in known if cut is not None and (np.abs(np.array(table.cuts) - cut) < SAME_CUT).any())
    return next(same, known[0] if known else None)


# -- flat tables and files for training, with columns for fields -------------------------------------------


class TagColumns:
    """The columns of jets with tags, and their conversion to a btag and evidence.

    With `--btag TABLE`, the field of the table is read. Without it, the evidence in the file is used, if there is
    any, or else the field of the table that its metadata state, as those of `pairton generate` do. Otherwise, only
    a btag is read.
    """

    def __init__(
        self, btag: BTag, names: Mapping[str, str], evidence: bool, metadata: Mapping[str, Any], path: str
    ) -> None:
        """names: `map` of the options, which `self.map` replaces; evidence: whether it may be needed."""
        self._btag, self._table, self._evidence, self._path = btag, btag.table, evidence, path
        self.map = {**names, "btag": btag.named} if btag.named and not btag.none else dict(names)
        self._field = btag.score if btag.table is not None else ""  # the score that the table is for
        self._on_score = bool(self._field) and btag.cut is not None and "btag" not in names
        stated = None if btag.text else stated_table(metadata)
        self._scores = (stated.field,) if stated is not None and stated.field != "btag" else ()
        self._chosen: tuple[str, ...] = ()
        self._tagger: Tagger | None = Tagger(evidence=evidence) if btag.none else None
        if (table := btag.table) is not None:
            cut = table.tag_cut if btag.cut is None else btag.cut
            self._tagger = Tagger(table.name, cut, table.field, table, evidence)
        used = table if btag.text else stated
        new: dict[str, Any] = {} if used is None else {"tag_table": used.to_dict()}
        if btag.text and (table is None or btag.cut is not None):
            new["btag"] = btag.text if table is None else f"{table.field}:{btag.cut:g}"
        kept = {
            name: value for name, value in metadata.items() if not btag.text or name not in ("btag", "tag_table")
        }
        self.metadata: dict[str, Any] = {**kept, **new}

    def wanted(self, wanted: Wanted, has: Callable[[str], bool]) -> Wanted:
        """The fields of jets to read; `has`: whether the file has a column for a field."""
        required, optional = list(wanted.required), [*wanted.optional, "btag"]
        unused: set[str] = set()  # fields that are not read, even if the file has them
        if self._btag.none:
            unused = {"btag", *EVIDENCE}
            required = [name for name in required if name not in unused]
        elif self._btag.text:
            unused = {*EVIDENCE, *(["btag"] if self._on_score else [])}
            if self._field:
                asked = "btag" in self.map  # the user named a column, so the file must have it
                required = [*(name for name in required if name != "btag" or asked), self._field]
        elif self._evidence:
            if all(map(has, EVIDENCE)):
                required = [name for name in required if name != "btag"]
            optional += EVIDENCE if has(EVIDENCE[0]) else self._scores
        optional = [name for name in optional if name not in unused]
        self._chosen = tuple(name for name in (*EVIDENCE[:1], *self._scores) if name in optional and has(name))
        return replace(wanted, required=tuple(dict.fromkeys(required)), optional=tuple(dict.fromkeys(optional)))

    def complete(self, flat: dict[str, Flat], scale: float) -> None:
        """Make the btag 0 or 1, and add the evidence from the table; momenta are divided by `scale` to get GeV."""
        if "btag" in flat and (cut := self._btag.cut) is not None:
            score = flat["btag"]
            flat["btag"] = np.where(np.abs(score) < MAX_SCORE, score > cut, np.nan)  # NaN also for NaN
        if self._tagger is None:
            return
        if self._table is not None:
            self._check(flat, self._table)
        values = flat.get(self._tagger.field, flat["pt"])
        found = self._tagger.fields(values, flat["pt"] / scale, flat["eta"])
        flat |= {name: column for name, column in found.items() if name != "btag" or name not in flat}

    def _check(self, flat: Mapping[str, Flat], table: TagTable) -> None:
        """Raise FormatError if the field of the table is not filled, or a btag beside it is not 0 or 1."""
        values = flat[table.field]
        if self._field and "btag" in flat and (value := not_binary(flat["btag"])) is not None:
            raise FormatError(
                f"{self._path}: btag of jets must be 0 or 1, but has values such as {value:g}: give --btag "
                f"{table.name}:CUT to cut on {table.field} instead"
            )
        if len(values) >= FEW and not table.has_value(values).any():
            low, high = table.range
            raise FormatError(
                f"{self._path}: {table.field} is not filled: none of {len(values)} jets has a value from {low:g} "
                f"to {high:g}, the range in the table {table.name}: choose another with --btag TABLE or --map"
            )
        check_binary(values, table)

    @property
    def tagging(self) -> str:
        """The tagger in words; call `wanted` first."""
        if self._btag.none:
            return NO_TAGS
        if self._table is not None:
            return f"{self._table.field} ({self._table.name})"
        if self._chosen and self._evidence:
            return self._chosen[0]
        cut = self._btag.cut
        return self.map.get("btag", "btag") + (f" > {cut:g}" if cut is not None else "")
