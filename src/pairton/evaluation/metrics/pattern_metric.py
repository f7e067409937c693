"""Which particles are present: the most probable pattern against the true one.

Shapes: n events, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.evaluation.plots import INK, RIGHT, Plot, mixed, new_axes, plain
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.tables import Table
from pairton.topology import Particle, Topology
from pairton.topology.assignments import present

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["Patterns", "true_pattern"]

Ints = npt.NDArray[np.integer[Any]]
Key = tuple[Any, ...]


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
        edges = np.arange(size + 1) - 0.5
        axes.pcolormesh(edges, edges, np.array(image), edgecolors="#aeb6bf", linewidth=0.5)
        for i in range(size if size <= 8 else 0):
            for j in range(size):
                colour = "white" if share[i, j] > 0.55 else INK
                axes.annotate(str(events[i, j]), (j, i), ha="center", va="center", fontsize=10, color=colour)
        axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
        axes.set_xticks(range(size), [plain(name) for name in names], fontsize=9, rotation=30)
        axes.set_yticks(range(size), [plain(name) for name in names], fontsize=9)
        axes.minorticks_off()
        axes.tick_params(length=0, which="both", top=False, right=False)
        return figure

    rows = [
        {"true": true, "most_probable": predicted, "events": int(events[i, j]), "weight": float(weights[i, j])}
        for i, true in enumerate(names)
        for j, predicted in enumerate(names)
    ]
    caption = "Numbers of events; the colour is the share of the row. Events on the diagonal are recognised."
    return Plot("patterns", "Particles that are present", caption, draw, rows)


# -- the true pattern --------------------------------------------------------------------------------------


def true_pattern(topology: Topology, truth: Ints) -> npt.NDArray[np.int64]:
    """(n,): the index in `plan_of(topology).patterns` of the pattern of each truth (n, S).

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, -1, 2, 3, 4, 5], [-1, 1, -1, 3, 4, -1], [-1] * 6])
    >>> true_pattern(load_topology("ttbar_allhad"), truth).tolist()  # t + t, t, W, nothing
    [0, 2, 4, 5]
    """
    if not len(truth):
        return np.zeros(0, dtype=np.int64)
    numbers = _numbers(topology)
    rows, which = np.unique(present(topology, truth), axis=0, return_inverse=True)
    return np.array([numbers[_event_key(topology, row)] for row in rows], dtype=np.int64)[which.ravel()]


@lru_cache(maxsize=64)
def _numbers(topology: Topology) -> dict[Key, int]:
    """Present particles, regardless of their order -> index of the pattern."""
    numbers: dict[Key, int] = {}
    for number, pattern in enumerate(plan_of(topology).patterns):
        filled = np.full(len(topology.slots), -1)
        for name, first in pattern.placed:
            filled[first : first + len(topology.of_type(name)[0].slots)] = 0
        numbers[_event_key(topology, present(topology, filled[None])[0])] = number
    return numbers


def _event_key(topology: Topology, is_present: npt.NDArray[np.bool_]) -> Key:
    def key(particle: Particle) -> Key:
        """The type, whether it is present, and if it is absent the keys of its children."""
        if is_present[particle.index]:
            return particle.type, 1, ()
        return particle.type, 0, tuple(sorted(key(topology.particles[child]) for child in particle.children))

    return tuple(sorted(key(root) for root in topology.roots))
