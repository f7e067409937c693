"""Which particles are present: the most probable pattern against the true one.

Shapes: n events, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.decoding.set_tables import allowed_nodes, set_tables
from pairton.evaluation.plots import INK, RIGHT, Plot, draw_cells, in_rows, mixed, new_axes, plain
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.tables import Table
from pairton.topology import Topology
from pairton.topology.assignments import present

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["Patterns", "true_pattern"]

Ints = npt.NDArray[np.integer[Any]]


class Patterns(Metric):
    """Numbers of events, and sums of weights, by true and by most probable pattern."""

    name, title = "patterns", "What is in the events"

    def count(self, chunk: Chunk, method: Method) -> dict[str, npt.NDArray[Any]] | None:
        chance = chunk.answers[method.name].pattern_probability
        known = np.isfinite(chance).all(axis=1)
        if not known.any():
            return None
        topology, weight = chunk.events.topology, chunk.weight[known]
        size = len(plan_of(topology).patterns)
        both = true_pattern(topology, chunk.truth[known]) * size + chance[known].argmax(axis=1)
        return {
            "events": np.bincount(both, minlength=size**2)[None],
            "weights": np.bincount(both, weight, size**2)[None],
            "predicted": (weight[:, None] * chance[known]).sum(axis=0)[None],
        }

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None:
            return None
        names = [pattern.name for pattern in plan_of(evaluation.topology).patterns]
        square = len(names), len(names)
        weights = counted["weights"].sum(axis=0).reshape(square)
        return {
            "names": names,
            "events": counted["events"].sum(axis=0).reshape(square),  # true, most probable
            "weights": weights,
            "true": weights.sum(axis=1) / weights.sum(),
            "probability": counted["predicted"].sum(axis=0) / weights.sum(),
        }

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for method, result in evaluation.results(self.name):
            rows = [
                [name, *(int(n) for n in counts), result["true"][k], result["probability"][k]]
                for k, (name, counts) in enumerate(zip(result["names"], result["events"], strict=True))
            ]
            header = ["true, against most probable", *result["names"], "share", "mean probability"]
            yield Table(f"{method.title}, particles that are present", header, rows)

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        result = evaluation.result(self.name, evaluation.methods[0])
        if result is not None:
            yield _plot(result["names"], result["events"], result["weights"])


def _plot(names: list[str], events: Ints, weights: npt.NDArray[np.float64]) -> Plot:
    sums = weights.sum(axis=1, keepdims=True)
    share = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    share = np.clip(share, 0, 1)  # some weights may be negative
    size = len(names)

    def draw() -> Figure:
        figure, axes = new_axes("most probable", "true")
        image = [[mixed(RIGHT, value) for value in row] for row in share]
        draw_cells(axes, image, [plain(name) for name in names], 9, rotation=30)
        for i in range(size if size <= 8 else 0):
            for j in range(size):
                colour = "white" if share[i, j] > 0.55 else INK
                axes.annotate(str(events[i, j]), (j, i), ha="center", va="center", fontsize=10, color=colour)
        return figure

    rows = []
    for true, counts, sums_of_weights in zip(names, events.tolist(), weights.tolist(), strict=True):
        columns = {"most_probable": names, "events": counts, "weight": sums_of_weights}
        rows += in_rows(columns, true=true)
    caption = "Numbers of events; the colour is the share of the row. Events on the diagonal are recognised."
    return Plot("patterns", "Particles that are present", caption, draw, rows)


def true_pattern(topology: Topology, truth: Ints) -> npt.NDArray[np.intp]:
    """(n,): the index in `plan_of(topology).patterns` of the pattern of each truth (n, S).

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, -1, 2, 3, 4, 5], [-1, 1, -1, 3, 4, -1], [-1] * 6])
    >>> true_pattern(load_topology("ttbar_allhad"), truth).tolist()  # t + t, t, W, nothing
    [0, 2, 4, 5]
    """
    tables = set_tables(topology, allowed_nodes(topology, topology.slots_per_kind))
    return tables.pattern_of(present(topology, truth)[:, [slot.particle for slot in topology.slots]])
