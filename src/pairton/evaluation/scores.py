"""Which particles, and which whole events, are right; efficiencies and paired differences from these counts.

A particle is right if a particle of its type was predicted with exactly its objects, in the same parts of the
decay: those of each child, and its own. The order of interchangeable products does not matter. The efficiency of a
type refers to all true particles whose objects are all labelled. The efficiency of the event refers to complete
events, and requires that all slots are right.

Shapes: n events, S slots, P particles. Assignments are (n, S), -1 for an empty slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation.statistics import Difference, Efficiency
from pairton.topology import Topology
from pairton.topology.assignments import canonical, canonical_within, present
from pairton.topology.extras import bin_index, bin_names

__all__ = [
    "EVENT",
    "INCLUSIVE",
    "Scores",
    "differences",
    "efficiencies",
    "efficiency_against",
    "matches",
    "reweighted",
    "same_hypothesis",
    "score",
]

EVENT = "event"
INCLUSIVE = "inclusive"

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


def matches(topology: Topology, assignment: Ints, other: Ints) -> Bools:
    """(n, P): whether each particle is present in `assignment`, and with the same objects in `other`.

    >>> from pairton.topology import load_topology
    >>> truth, swapped = np.array([[0, 1, 2, 3, 4, 5]]), np.array([[4, 3, 5, 0, 2, 1]])
    >>> matches(load_topology("ttbar_allhad"), truth, swapped)  # t1, its W, t2, its W
    array([[False, False,  True,  True]])
    """
    assignment, other = np.asarray(assignment), np.asarray(other)
    same = present(topology, assignment)
    for name in topology.types:
        same_type = topology.of_type(name)
        candidates = [canonical_within(topology, p, other) for p in same_type]
        for particle in same_type:
            jets = canonical_within(topology, particle, assignment)
            same[:, particle.index] &= np.any([(jets == c).all(axis=1) for c in candidates], axis=0)
    return same


def same_hypothesis(topology: Topology, truth: Ints, predicted: Ints) -> Bools:
    """(n,): whether exactly the true particles were predicted, each with its objects, and no others.

    A particle is present if all its objects are; objects of other particles are ignored.

    >>> from pairton.topology import load_topology
    >>> truth, answer = np.array([[0, 1, 2, 3, -1, 5]]), np.array([[-1, -1, -1, 1, 0, 2]])
    >>> same_hypothesis(load_topology("ttbar_allhad"), truth, answer)  # one top, and nothing of the other
    array([ True])
    """
    owners = [slot.particle for slot in topology.slots]
    kept = [
        canonical(topology, np.where(present(topology, each)[:, owners], each, -1)) for each in (truth, predicted)
    ]
    return np.asarray((kept[0] == kept[1]).all(axis=1))


@dataclass(frozen=True)
class Scores:
    """The number of right and of possible answers per event, from which all efficiencies follow.

    `correct` and `total` map `event` and each type, parents first, to counts (n,).
    """

    topology: Topology
    correct: Mapping[str, npt.NDArray[np.int16]]
    total: Mapping[str, npt.NDArray[np.int16]]
    n_jets: Ints  # (n,)
    weight: npt.NDArray[np.float64]  # (n,)

    def __len__(self) -> int:
        return len(self.n_jets)

    def __getitem__(self, where: slice | Bools | Ints) -> Scores:
        correct, total = ({k: n[where] for k, n in counts.items()} for counts in (self.correct, self.total))
        return Scores(self.topology, correct, total, self.n_jets[where], self.weight[where])

    @property
    def bins(self) -> npt.NDArray[np.intp]:
        """(n,): the multiplicity bin; -1 if there are fewer jets than slots, which count only as inclusive."""
        return bin_index(self.topology, self.n_jets)

    @property
    def cells(self) -> dict[str, Bools]:
        """Name of each multiplicity bin, and `inclusive` -> mask of its events."""
        bins = self.bins
        named = {name: bins == k for k, name in enumerate(bin_names(self.topology))}
        return named | {INCLUSIVE: np.ones(len(self), dtype=bool)}

    def efficiencies(self) -> dict[str, dict[str, Efficiency]]:
        """`event` and each type -> multiplicity bin or `inclusive` -> efficiency."""
        return {
            what: {
                cell: Efficiency.of(correct[inside], self.total[what][inside], self.weight[inside])
                for cell, inside in self.cells.items()
            }
            for what, correct in self.correct.items()
        }


def score(
    topology: Topology, truth: Ints, predicted: Ints, n_jets: Ints, weight: npt.ArrayLike | None = None
) -> Scores:
    """Count right and possible answers, from `truth` (n, S), `predicted` (n, S) and `n_jets` (n,).

    `weight` (n,) is stored with the counts; by default every event has weight 1.
    """
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    possible = present(topology, truth)
    right = matches(topology, truth, predicted)
    complete = np.asarray(possible[:, [root.index for root in topology.roots]].all(axis=1))
    same: Bools = (canonical(topology, truth) == canonical(topology, predicted)).all(axis=1)
    correct = {EVENT: (complete & same).astype(np.int16)}
    total: dict[str, npt.NDArray[np.int16]] = {EVENT: complete.astype(np.int16)}
    for name in reversed(topology.types):
        of_type = [particle.index for particle in topology.of_type(name)]
        correct[name] = np.asarray(right[:, of_type].sum(axis=1), dtype=np.int16)
        total[name] = np.asarray(possible[:, of_type].sum(axis=1), dtype=np.int16)
    weights = np.ones(len(truth)) if weight is None else np.asarray(weight, dtype=np.float64)
    return Scores(topology, correct, total, np.asarray(n_jets), weights)


def efficiencies(
    topology: Topology, truth: Ints, predicted: Ints, n_jets: Ints, weight: npt.ArrayLike | None = None
) -> dict[str, dict[str, Efficiency]]:
    """`event` and each type -> multiplicity bin or `inclusive` -> efficiency, with event weights (n,).

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, -1]])
    >>> predicted = np.array([[3, 4, 5, 1, 0, 2], [0, 1, 5, 3, 6, 2]])
    >>> result = efficiencies(load_topology("ttbar_allhad"), truth, predicted, np.array([6, 7]))
    >>> {what: f"{cells['inclusive'].correct} of {cells['inclusive'].total}" for what, cells in result.items()}
    {'event': '1 of 1', 't': '2 of 3', 'W': '3 of 4'}
    """
    return score(topology, truth, predicted, n_jets, weight).efficiencies()


def reweighted(scores: Scores, mix: Sequence[float]) -> dict[str, Efficiency]:
    """Inclusive efficiencies if the shares of complete events in the multiplicity bins were `mix`.

    Samples differ in their numbers of jets, and so in their inclusive efficiencies. `correct` and `total` are
    those of the sample itself. NaN if a bin with a share above 0 has no complete event.
    """
    inside = scores.bins >= 0
    scores = scores[inside]
    bins, wanted = scores.bins, np.asarray(mix, dtype=np.float64) / np.sum(mix)
    complete = np.bincount(bins, scores.weight * scores.total[EVENT], len(wanted))
    factors = np.divide(wanted, complete, out=np.zeros_like(wanted), where=complete > 0)
    result = {}
    for what, correct in scores.correct.items():
        share = Efficiency.of(correct, scores.total[what], scores.weight * factors[bins])
        if ((complete <= 0) & (wanted != 0)).any():
            share = share._replace(value=np.nan, low=np.nan, high=np.nan)
        result[what] = share
    return result


def efficiency_against(scores: Scores, variable: npt.NDArray[Any], edges: Sequence[float]) -> list[Efficiency]:
    """The event efficiency in bins [low, high) of a variable (n,)."""
    where = np.where(scores.total[EVENT] > 0, np.digitize(variable, edges) - 1, -1)
    inside = [where == k for k in range(len(edges) - 1)]
    return [
        Efficiency.of(scores.correct[EVENT][rows], scores.total[EVENT][rows], scores.weight[rows])
        for rows in inside
    ]


def differences(first: Scores, second: Scores) -> dict[str, dict[str, Difference]]:
    """First minus second, on the same events: `event` and each type -> bin -> difference."""
    result: dict[str, dict[str, Difference]] = {}
    for what, total in first.total.items():
        change = first.correct[what].astype(np.int64) - second.correct[what]
        result[what] = {
            cell: Difference.of(change[inside], total[inside], first.weight[inside], test=what == EVENT)
            for cell, inside in first.cells.items()
        }
    return result
