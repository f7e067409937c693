"""What is right in each event: particles, and the event as a whole.

The order of interchangeable products is free. A particle is right when some particle of its type was predicted
with exactly its jets, each in its own part of the decay: the jets of every child, and its own. An efficiency of a
type counts the particles of the truth whose every jet is labelled; that of the event counts the complete events,
whose every slot is labelled, and asks for all of them at once.

Shapes: n events, S slots, P particles. Assignments are (n, S), -1 where a slot has no jet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.topology import Topology
from pairton.topology.assignments import canonical, canonical_within, present

__all__ = ["EVENT", "INCLUSIVE", "Scores", "matches", "same_hypothesis", "score"]

EVENT = "event"
INCLUSIVE = "inclusive"

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


def matches(topology: Topology, assignment: Ints, other: Ints) -> Bools:
    """(n, P): particles that are complete in `assignment` and found, with the same jets, in `other`.

    >>> from pairton.topology import load_topology
    >>> truth, swapped = np.array([[0, 1, 2, 3, 4, 5]]), np.array([[4, 3, 5, 0, 2, 1]])
    >>> matches(load_topology("ttbar_allhad"), truth, swapped)  # t1, its W, t2, its W
    array([[False, False,  True,  True]])
    """
    assignment, other = np.asarray(assignment), np.asarray(other)
    found = present(topology, assignment)
    for name in topology.types:
        same_type = topology.of_type(name)
        candidates = [canonical_within(topology, p, other) for p in same_type]
        for particle in same_type:
            jets = canonical_within(topology, particle, assignment)
            found[:, particle.index] &= np.any([(jets == c).all(axis=1) for c in candidates], axis=0)
    return found


def same_hypothesis(topology: Topology, truth: Ints, predicted: Ints) -> Bools:
    """(n,): events in which exactly the particles of the truth were predicted, each with its jets, and no other.

    A particle is present where all its jets are; the jets of one that is not do not matter.

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
    """Right and possible answers of every event, and its weight; all else is counting.

    `correct` and `total` map `event` and each type, parents first, to (n,) counts.
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
        """(n,): multiplicity bin; -1 for an event with fewer jets than slots, which counts as inclusive only."""
        return self.topology.bin_index(self.n_jets)

    @property
    def cells(self) -> dict[str, Bools]:
        """Name of each bin, and of all together -> its events."""
        bins = self.bins
        named = {name: bins == k for k, name in enumerate(self.topology.bins)}
        return named | {INCLUSIVE: np.ones(len(self), dtype=bool)}


def score(
    topology: Topology, truth: Ints, predicted: Ints, n_jets: Ints, weight: npt.ArrayLike | None = None
) -> Scores:
    """Count right and possible answers of events with `truth` (n, S), `predicted` (n, S) and `n_jets` (n,).

    `weight` (n,) is kept with the counts; by default every event has weight 1.
    """
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    possible = present(topology, truth)
    right = matches(topology, truth, predicted)
    complete: Bools = np.all(possible, axis=1)
    same: Bools = (canonical(topology, truth) == canonical(topology, predicted)).all(axis=1)
    correct = {EVENT: (complete & same).astype(np.int16)}
    total: dict[str, npt.NDArray[np.int16]] = {EVENT: complete.astype(np.int16)}
    for name in reversed(topology.types):
        of_type = [particle.index for particle in topology.of_type(name)]
        correct[name] = np.asarray(right[:, of_type].sum(axis=1), dtype=np.int16)
        total[name] = np.asarray(possible[:, of_type].sum(axis=1), dtype=np.int16)
    weights = np.ones(len(truth)) if weight is None else np.asarray(weight, dtype=np.float64)
    return Scores(topology, correct, total, np.asarray(n_jets), weights)
