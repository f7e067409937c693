"""Tables of an evaluation, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Table", "formatted", "show"]


@dataclass(frozen=True)
class Table:
    """A table whose rows begin with a name. A cell is text, a number, or a value with `low` and `high`.

    Tables of one metric with the same header and row names, one per method, are shown side by side on the page.
    """

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    notes: Sequence[str] = ()  # lines below the table


def formatted(cell: Any, digits: int = 3) -> tuple[str, str]:
    """The value of a cell and its interval, as text; None and NaN are a dash.

    >>> from pairton.evaluation.statistics import Efficiency
    >>> formatted(Efficiency(0.5, 0.45, 0.56, 5, 10)), formatted(0.25), formatted("6 jets"), formatted(np.nan)
    (('0.500', '-.050 +.060'), ('0.250', ''), ('6 jets', ''), ('-', ''))
    """
    value = getattr(cell, "value", cell)
    if not isinstance(value, float | np.floating):
        return ("-" if value is None else str(value)), ""
    if np.isnan(value):
        return "-", ""
    text = f"{value:.{digits}f}"
    if cell is value:
        return text, ""
    low, high = (f"{width:.{digits}f}".removeprefix("0") for width in (value - cell.low, cell.high - value))
    return text, f"-{low} +{high}"


def show(console: Console, tables: Iterable[Table]) -> None:
    """Print tables; of those without rows, title and notes are printed."""
    from rich.table import Table as Drawn

    for table in tables:
        if table.rows:
            drawn = Drawn(table.header[0], title=table.title, title_justify="left")
            for name in table.header[1:]:
                drawn.add_column(name, justify="right")
            for name, *cells in table.rows:
                drawn.add_row(str(name), *(" ".join(formatted(cell)).rstrip() for cell in cells))
            console.print(drawn)
        elif table.notes:
            console.print(table.title, markup=False, highlight=False)
        for note in table.notes:
            console.print(f"  {note}", markup=False, highlight=False, soft_wrap=True)
