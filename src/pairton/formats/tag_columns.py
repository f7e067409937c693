"""Tags in flat tables and files for training: a btag, the score that a table is for, or evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError
from pairton.events.inputs import EVIDENCE
from pairton.events.tags import check_binary, not_binary, stated_table
from pairton.formats.base import ReadOptions
from pairton.formats.columns import Wanted
from pairton.formats.taggers import FEW, NO_TAGS, no_tags, without_tags

__all__ = ["TagColumns"]

Flat = npt.NDArray[Any]


class TagColumns:
    """The columns of jets with tags, and their conversion to a btag and evidence.

    With `--btag TABLE`, the field of the table is read. Without it, the evidence in the file is used, if there is
    any, or else the field of the table that its metadata state, as those of `pairton generate` do. Otherwise, only
    a btag is read.
    """

    def __init__(self, options: ReadOptions, metadata: Mapping[str, Any], path: str) -> None:
        self._none = options.btag == NO_TAGS
        if self._none:
            without_tags(options)
        column, self._cut = _btag_option(None if self._none else options.btag)
        self._on_score = self._cut is not None and _is_score(column, options)
        if self._on_score:
            named = {name: value for name, value in options.map.items() if name != "btag"}
        else:
            named = {**options.map, "btag": column} if column else dict(options.map)
        self.options = replace(options, map=named)
        self._table, self._path = options.tags, path
        self._own = options.tags is None and options.btag is None  # the user did not choose a tagger
        stated = stated_table(metadata) if self._own else None
        self._scores = (stated.field,) if stated is not None and stated.field != "btag" else ()
        self._chosen: tuple[str, ...] = ()
        kept = {name: value for name, value in metadata.items() if self._own or name not in ("btag", "tag_table")}
        used = stated if self._own else self._table
        new: dict[str, Any] = {"tag_table": used.to_dict()} if used is not None else {}
        new |= {"btag": options.btag} if options.btag else {}
        self.metadata: dict[str, Any] = {**kept, **new}

    def wanted(self, wanted: Wanted, has: Callable[[str], bool]) -> Wanted:
        """The fields of jets to read; `has`: whether the file has a column for a field."""
        required, optional = list(wanted.required), list(wanted.optional)
        if self._none:
            tags = ("btag", *EVIDENCE)
            required, optional = ([n for n in names if n not in tags] for names in (required, optional))
            return replace(wanted, required=tuple(required), optional=tuple(optional))
        if self._table is not None and self._table.field != "btag":
            asked = "btag" in self.options.map  # the user named a column, so the file must have it
            required = [*(name for name in required if name != "btag" or asked), self._table.field]
        elif self._own and self.options.evidence:
            if all(map(has, EVIDENCE)):
                required = [name for name in required if name != "btag"]
            optional += EVIDENCE if has(EVIDENCE[0]) else self._scores
        if not self._own:
            optional = [name for name in optional if name not in EVIDENCE]
        optional = [name for name in optional if name != "btag"] if self._on_score else [*optional, "btag"]
        self._chosen = tuple(name for name in (*EVIDENCE[:1], *self._scores) if name in optional and has(name))
        return replace(wanted, required=tuple(dict.fromkeys(required)), optional=tuple(dict.fromkeys(optional)))

    def complete(self, flat: dict[str, Flat], scale: float) -> None:
        """Make the btag 0 or 1, and add the evidence from the table; momenta are divided by `scale` to get GeV."""
        if self._none and self.options.evidence:
            flat |= no_tags(len(flat["pt"]))
        if "btag" in flat:
            flat["btag"] = _tagged(flat["btag"], self._cut)
            self._check_beside_table(flat["btag"])
        table = self._table
        if table is None:
            return
        values = flat[table.field]
        if len(values) >= FEW and not table.has_value(values).any():
            low, high = table.valid
            raise FormatError(
                f"{self._path}: {table.field} is not filled: none of {len(values)} jets has a value from {low:g} "
                f"to {high:g}, the range in the table {table.name}: choose another with --btag TABLE or --map"
            )
        check_binary(values, table)
        if "btag" not in flat:
            cut = table.tag_cut if self._cut is None else self._cut
            flat["btag"] = (values > cut) & table.has_value(values)
        if self.options.evidence:
            flat |= dict(zip(EVIDENCE, table.evidence(values, flat["pt"] / scale, flat["eta"]), strict=True))

    def _check_beside_table(self, btag: Flat) -> None:
        """Raise FormatError if the table is for another field, but the btag of the file is not 0 or 1."""
        table = self._table
        if table is None or table.field == "btag" or (value := not_binary(btag)) is None:
            return
        raise FormatError(
            f"{self._path}: btag of jets must be 0 or 1, but has values such as {value:g}: give --btag CUT to cut "
            f"on {table.field} instead, or --btag COLUMN:CUT to cut on another score"
        )

    @property
    def tagging(self) -> str:
        """The tagger in words; call `wanted` first."""
        if self._none:
            return NO_TAGS
        cut = f" > {self._cut:g}" if self._cut is not None else ""
        btag = f"{self.options.map.get('btag', 'btag')}{cut}"
        if self._table is not None:
            return f"{self._table.field} ({self._table.name})"
        return self._chosen[0] if self._chosen and self.options.evidence else btag


def _is_score(column: str | None, options: ReadOptions) -> bool:
    """Whether `--btag` cuts on the score of the table: it names that score, or no column at all."""
    table = options.tags
    if table is None or table.field == "btag":
        return False
    if column is None:
        return "btag" not in options.map
    return column in (table.field, options.map.get(table.field))


def _btag_option(option: str | None) -> tuple[str | None, float | None]:
    """Column and cut of `--btag COLUMN:CUT`, `--btag COLUMN` or `--btag CUT`.

    >>> _btag_option("score:0.7"), _btag_option("0.7"), _btag_option(None)
    (('score', 0.7), (None, 0.7), (None, None))
    """
    if option is None:
        return None, None
    name, _, cut = option.rpartition(":")
    try:
        value = float(cut)
        if not np.isfinite(value):
            raise ConfigError(f"btag {option!r}: the cut must be a number, as in 0.7 or score:0.7")
        return name or None, value
    except ValueError:
        if name:
            raise ConfigError(f"btag {option!r}: write a number after the colon, as in score:0.7") from None
        return option, None


def _tagged(btag: npt.NDArray[Any], cut: float | None) -> npt.NDArray[Any]:
    """1 for scores above the cut, else 0; NaN stays NaN. Without a cut, the scores are unchanged."""
    return btag if cut is None else np.where(np.isnan(btag), np.nan, btag > cut)
