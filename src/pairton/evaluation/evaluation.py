"""The result of an evaluation: results of metrics for each method, their tables, and plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from pairton._common.configuration import as_plain
from pairton._version import __version__
from pairton.evaluation.scores import EVENT, Scores
from pairton.evaluation.statistics import CONFIDENCE, Efficiency, all_equal, effective_entries
from pairton.events.domain import Bounds
from pairton.topology import Topology

if TYPE_CHECKING:
    from rich.console import Console

    from pairton.evaluation.methods import Method
    from pairton.evaluation.registry import Metric

__all__ = ["WIDTH", "Evaluation", "Table", "formatted", "show"]

WIDTH = 120  # characters, of tables as text


@dataclass(frozen=True)
class Evaluation:
    """The result of `pairton.evaluate`; see `table` and `to_dict`."""

    topology: Topology
    inputs: list[str]
    selected: bool
    methods: list[Method]
    metrics: Mapping[str, Metric]
    mix: tuple[float, ...] | None
    cuts: Bounds = field(default_factory=dict)  # of objects that are used and labelled
    objects_used: str = ""  # the same in words, and the other choice
    _cache: dict[tuple[str, ...], Any] = field(default_factory=dict, repr=False)

    def counted(self, metric: str, method: Method) -> Any:
        """The counts of a metric for a method, merged over all events; None if there are none."""
        key = ("counted", metric, method.name)
        if key not in self._cache:
            parts = method.counts.get(metric)
            self._cache[key] = self.metrics[metric].merge(parts) if parts else None
        return self._cache[key]

    def result(self, metric: str, method: Method | None = None) -> Any:
        """The result of a metric for a method, or its comparison of all methods; None if there is none."""
        key = ("result", metric, "" if method is None else method.name)
        if key not in self._cache:
            entry = self.metrics[metric]
            self._cache[key] = entry.comparison(self) if method is None else entry.result(self, method)
        return self._cache[key]

    def results(self, metric: str) -> list[tuple[Method, Any]]:
        """The methods for which a metric has a result, and the results."""
        every = [(method, self.result(metric, method)) for method in self.methods]
        return [(method, result) for method, result in every if result is not None]

    def scores(self, method: Method) -> Scores:
        """The numbers of right and possible answers per event."""
        scores: Scores = self.counted("efficiency", method)
        return scores

    def efficiency(self, method: Method) -> dict[str, dict[str, Efficiency]]:
        """`event` and each type -> multiplicity bin or `inclusive` -> efficiency."""
        efficiency: dict[str, dict[str, Efficiency]] = self.result("efficiency", method)
        return efficiency

    @property
    def weighted(self) -> bool:
        """Whether the events have unequal weights."""
        return not all_equal(self.scores(self.methods[0]).weight)

    # -- output --------------------------------------------------------------------------------------------

    def summary(self) -> list[str]:
        """Lines with the number of events, and the number without an answer per method."""
        first = self.scores(self.methods[0])
        labelled = {what: int(total.sum()) for what, total in first.total.items()}
        complete = labelled.pop(EVENT)
        listed = ", ".join(f"{count} {what}" for what, count in labelled.items())
        selected = "selected " if self.selected else ""
        number = f" (effective number {effective_entries(first.weight):,.0f})" if self.weighted else ""
        lines = [f"{len(first)} {selected}events with truth{number}, {complete} complete; labelled: {listed}"]
        lines += [self.objects_used] if self.objects_used else []
        cuts = "" if self.selected else "; --select leaves out events that fail the selection"
        return lines + [
            f"{method.name}: {method.unanswered} without an answer, which count as wrong{cuts}"
            for method in self.methods
            if method.unanswered
        ]

    def tables(self, full: bool = True) -> list[Table]:
        """The tables of all metrics, or of the most important ones."""
        chosen = [metric for metric in self.metrics.values() if full or metric.brief]
        return [table for metric in chosen for table in metric.tables(self)]

    def table(self, width: int = WIDTH, full: bool = True) -> str:
        """All tables as text, or the most important ones."""
        from rich.console import Console

        text = StringIO()
        show(Console(file=text, width=width), self.tables(full))
        return "\n".join([*self.summary(), text.getvalue()])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` writes it; the entries at the top level are those of the first method."""
        each = {method.name: {"method": method.about, **self._results(method)} for method in self.methods}
        first = self.scores(self.methods[0])
        weight = first.weight
        weights = {"sum": weight.sum(), "effective": effective_entries(weight), "negative": (weight < 0).sum()}
        result: dict[str, Any] = {
            "pairton_version": __version__,
            "inputs": self.inputs,
            "topology": self.topology.name,
            "selected": self.selected,
            "cuts": self.cuts,
            "events": len(first),
            **({"weights": weights} if self.weighted else {}),
            "complete": first.total[EVENT].sum(),
            "confidence": CONFIDENCE,
            **each[self.methods[0].name],
            "methods": each,
            **self._results(None),
        }
        plain: dict[str, Any] = as_plain(result)
        return plain

    def _results(self, method: Method | None) -> dict[str, Any]:
        every = {name: self.result(name, method) for name in self.metrics}
        return {name: result for name, result in every.items() if result is not None}


# -- tables --------------------------------------------------------------------------------------------------


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
