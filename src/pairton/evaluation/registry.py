"""The registries of metrics and baselines; code outside the package may add to them.

A metric counts something in chunks of events, and provides entries of the JSON, tables and figures. A baseline
assigns objects without a network. `Metric` and `Baseline` have an example each.

Shapes: n events, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from pairton._common.configuration import register
from pairton.decoding import Decoded
from pairton.evaluation.evaluation import Table
from pairton.evaluation.scores import Scores
from pairton.events import Events
from pairton.topology import Topology

if TYPE_CHECKING:
    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method
    from pairton.evaluation.plots import Plot

__all__ = ["BASELINES", "METRICS", "Baseline", "Chunk", "Metric", "merged", "register_baseline", "register_metric"]

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
            header = list(results[0][1])
            rows = [[method.title, *(result.get(key) for key in header)] for method, result in results]
            yield Table(self.title, ["method", *header], rows)

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


class Baseline(Protocol):
    """A way to assign objects that needs no network.

    >>> class Leading:
    ...     name = "leading"
    ...
    ...     def fit(self, events):
    ...         return self
    ...
    ...     def assign(self, events):  # the objects of highest pT, in the order of the slots
    ...         slots = len(events.topology.slots)
    ...         return np.tile(np.arange(slots), (len(events), 1)), np.full(len(events), np.nan)
    >>> register_baseline(Leading())  # now known to --baseline
    >>> del BASELINES["leading"]
    """

    @property
    def name(self) -> str: ...

    def fit(self, events: Events) -> Baseline:
        """The baseline, fitted on the truth of some events; it may have `about`, a mapping for the JSON.

        `events.weights` are ones if events have no weights, or if weights are not used.
        """

    def assign(self, events: Events) -> tuple[Ints, npt.NDArray[np.floating[Any]]]:
        """Assignments (n, S), -1 for none, and their probabilities (n,), NaN where unknown.

        `events` have only the objects that are used, in order of falling pT, and no truth.
        """


METRICS: dict[str, Metric] = {}
BASELINES: dict[str, Baseline] = {}


def register_metric(metric: Metric) -> None:
    """Add a metric to every evaluation."""
    register(METRICS, metric.name, metric, "metric")


def register_baseline(baseline: Baseline) -> None:
    """Add a baseline for `pairton evaluate --baseline NAME` and `pairton.evaluate(baselines=[NAME])`."""
    register(BASELINES, baseline.name, baseline, "baseline")
