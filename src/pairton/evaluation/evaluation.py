"""An evaluation: metrics, their results for each method, tables, and plain data for JSON.

A metric counts something in chunks of events, and provides entries of the JSON, tables and figures; code outside
the package may register more. Shapes: n events, S slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.configuration import as_plain, register
from pairton._version import __version__
from pairton.decoding import Decoded
from pairton.evaluation.scores import EVENT, Scores
from pairton.evaluation.statistics import CONFIDENCE, Efficiency, all_equal, effective_entries
from pairton.events import Events
from pairton.events.domain import Bounds
from pairton.topology import Topology

if TYPE_CHECKING:
    from rich.console import Console

    from pairton.evaluation.methods import Method
    from pairton.evaluation.plots import Plot

__all__ = [
    "METRICS",
    "WIDTH",
    "Chunk",
    "Evaluation",
    "Metric",
    "Table",
    "formatted",
    "merged",
    "register_metric",
    "show",
]

WIDTH = 120  # characters, of tables as text

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Chunk:
    """Some events, and the answers of every method. Objects have their indices in the input, -1 for none."""

    events: Events  # with `select`, only what passes the selection
    rows: Ints  # (n,): rows of the input
    truth: Ints  # (n, S)
    methods: Sequence[Method]
    answers: Mapping[str, Decoded]  # by the name of the method
    scores: Mapping[str, Scores]  # by the name of the method: right and possible answers

    @property
    def weight(self) -> npt.NDArray[np.float64]:
        """(n,): the weights of the events; ones if they have none."""
        return self.events.each_weight


class Metric:
    """A quantity that an evaluation measures. Subclass it, and register an instance.

    Only `name` and `result` are needed. `result` may use `evaluation.scores(method)`, the right and possible
    answers of each event, or `evaluation.counted(self.name, method)`, what `count` returned, merged over all
    chunks. `plots` may use `pairton.evaluation.plots`.

    >>> class Unanswered(Metric):
    ...     name, title = "unanswered", "Events without an answer"
    ...
    ...     def count(self, chunk, method):
    ...         return {"events": int((chunk.answers[method.name].assignment < 0).all(axis=1).sum())}
    ...
    ...     def result(self, evaluation, method):
    ...         return evaluation.counted(self.name, method)
    >>> register_metric(Unanswered())  # now in the tables, in the JSON and on the page
    >>> del METRICS["unanswered"]
    """

    name: str  # key in the JSON
    title: str = ""  # heading
    brief: bool = False  # whether its tables are among the few that `pairton evaluate` prints by default

    def count(self, chunk: Chunk, method: Method) -> Any:
        """The counts of one method in a chunk of events; None for none."""
        return None

    def merge(self, counts: Sequence[Any]) -> Any:
        """Merge the counts of all chunks."""
        return merged(counts)

    def result(self, evaluation: Evaluation, method: Method) -> Any:
        """The result of one method, for the JSON; None for none."""
        return None

    def comparison(self, evaluation: Evaluation) -> Any:
        """A result of several methods together, for the top level of the JSON; None for none."""
        return None

    def tables(self, evaluation: Evaluation) -> Iterable[Table]:
        """Tables for screen and page; by default one row per method, if results are mappings."""
        results = evaluation.results(self.name)
        if self.title and results and all(isinstance(result, Mapping) for _, result in results):
            columns = {key: key for key in results[0][1]}
            yield Table.of(self.title, "method", columns, ((method.title, each) for method, each in results))

    def plots(self, evaluation: Evaluation) -> Iterable[Plot | None]:
        """Figures for the page; None entries are skipped."""
        return ()


def merged(parts: Sequence[Any]) -> Any:
    """Merge counts: arrays are concatenated, numbers added, mappings, named tuples and dataclasses merged by item.

    Of anything else, the first one is kept.

    >>> merged([{"events": 2, "mass": np.array([80.0])}, {"events": 3, "mass": np.array([81.0, 79.0])}])
    {'events': 5, 'mass': array([80., 81., 79.])}
    """
    first = parts[0]
    if isinstance(first, Mapping):
        return {key: merged([part[key] for part in parts]) for key in first}
    if is_dataclass(first) and not isinstance(first, type | Topology):
        names = [field.name for field in fields(first)]
        return replace(first, **{name: merged([getattr(part, name) for part in parts]) for name in names})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(merged(items) for items in zip(*parts, strict=True)))
    if isinstance(first, np.ndarray) and first.ndim:
        return np.concatenate(parts)
    return sum(parts) if isinstance(first, int | float | np.number) else first


METRICS: dict[str, Metric] = {}


def register_metric(metric: Metric) -> None:
    """Add a metric to every evaluation."""
    register(METRICS, metric.name, metric, "metric")


# -- the result --------------------------------------------------------------------------------------------


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

    # -- output ---------------------------------------------------------------------------------------------

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


# -- tables ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table whose rows begin with a name. A cell is text, a number, or a value with `low` and `high`.

    Tables of one metric with the same header and row names, one per method, are shown side by side on the page.
    """

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    notes: Sequence[str] = ()  # lines below the table

    @classmethod
    def of(
        cls,
        title: str,
        first: str,
        columns: Mapping[str, str],
        results: Iterable[tuple[str, Mapping[str, Any]]],
        notes: Sequence[str] = (),
    ) -> Table:
        """A row per named result, after a column with the heading `first`; `columns` maps headings to keys."""
        rows = [[name, *(result.get(key) for key in columns.values())] for name, result in results]
        return cls(title, [first, *columns], rows, notes)


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
