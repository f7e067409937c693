"""What has been revealed so far, for a batch of events or hypotheses: the particles found, by type.

A particle has no place in the decay tree until its parent is found: a topology may have a W both inside a top and
at the root, and only the choice of the top decides which W is which. A state therefore keeps the sorted nodes of
the particles found, by type; `place` puts them into slots.

Shapes: B rows, N nodes, S slots, P particles, K particles of one type, L slots of one particle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.events.nodes import Nodes
from pairton.topology import Layout, Topology

__all__ = ["ABSENT", "Found", "Reveal", "State"]

ABSENT = np.iinfo(np.int16).max  # node of a particle not yet found; sorts after every node

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass
class Found:
    """Particles of one type: those that were found come first, sorted by their nodes."""

    nodes: npt.NDArray[np.int16]  # (B, K, L)
    count: npt.NDArray[np.int16]  # (B,)
    taken: Bools  # (B, K): already has a parent
    probability: npt.NDArray[np.float64]  # (B, K): product of the steps that revealed it and its children

    def __getitem__(self, rows: npt.NDArray[Any]) -> Found:
        return Found(self.nodes[rows], self.count[rows], self.taken[rows], self.probability[rows])

    def sort(self) -> None:
        order = np.lexsort(np.moveaxis(self.nodes, 2, 0)[::-1], axis=-1)  # (B, K)
        self.nodes = np.take_along_axis(self.nodes, order[:, :, None], axis=1)
        self.taken = np.take_along_axis(self.taken, order, axis=1)
        self.probability = np.take_along_axis(self.probability, order, axis=1)


@dataclass(frozen=True)
class Reveal:
    """One particle to be added in some rows of a state."""

    type: str
    rows: npt.NDArray[np.intp]  # (R,)
    nodes: Ints  # (R, L)
    new: Ints  # (R, own slots): those of `nodes` that were free
    children: Sequence[tuple[str, Ints]]  # for each child its type, and which of the particles found it is (R,)


@dataclass
class State:
    """A batch of partial assignments, and the probability of the chain that led to each."""

    topology: Topology
    found: dict[str, Found]
    free: Bools  # (B, N): nodes that some slot may take and that are neither padding nor used
    layout: Layout  # of the nodes, padding included
    log_probability: npt.NDArray[np.float64]  # (B,)

    @classmethod
    def empty(cls, topology: Topology, nodes: Nodes) -> State:
        rows = len(nodes)
        found = {}
        for name in topology.types:
            same = topology.of_type(name)
            shape = (rows, len(same))
            found[name] = Found(
                np.full((*shape, len(same[0].slots)), ABSENT, dtype=np.int16),
                np.zeros(rows, dtype=np.int16),
                np.zeros(shape, dtype=bool),
                np.ones(shape),
            )
        return cls(topology, found, nodes.assignable(topology), nodes.layout, np.zeros(rows))

    def __len__(self) -> int:
        return len(self.free)

    def __getitem__(self, rows: npt.NDArray[Any]) -> State:
        """A copy of some rows, in that order."""
        found = {name: same[rows] for name, same in self.found.items()}
        return State(self.topology, found, self.free[rows], self.layout, self.log_probability[rows])

    def is_kind(self, kind: str) -> Bools:
        """(N + 1,): which nodes are of a kind; the last entry, for the node -1 (none), is False."""
        return np.isin(np.arange(sum(self.layout) + 1), self.topology.nodes(kind, self.layout))

    def available(self, name: str) -> Bools:
        """(B, K): particles of a type that were found and have no parent yet."""
        same = self.found[name]
        return (np.arange(same.taken.shape[1]) < same.count[:, None]) & ~same.taken

    def reveal(self, reveals: Sequence[Reveal], log_probability: npt.NDArray[Any]) -> None:
        """Add the particles of one step; its probability (B,) comes as a logarithm, which does not underflow."""
        self.log_probability = self.log_probability + log_probability
        probability = np.exp(log_probability)
        weights = [self._take_children(reveal, probability) for reveal in reveals]
        for reveal, weight in zip(reveals, weights, strict=True):  # after all children are taken: adding sorts
            same = self.found[reveal.type]
            at = same.count[reveal.rows]
            same.nodes[reveal.rows, at] = reveal.nodes
            same.probability[reveal.rows, at] = weight
            same.count[reveal.rows] += 1
            for column in reveal.new.T:
                self.free[reveal.rows, column] = False
        for name in dict.fromkeys(reveal.type for reveal in reveals):
            self.found[name].sort()

    def _take_children(self, reveal: Reveal, probability: npt.NDArray[Any]) -> npt.NDArray[Any]:
        weight = np.array(probability[reveal.rows], dtype=np.float64)
        for name, which in reveal.children:
            self.found[name].taken[reveal.rows, which] = True
            weight *= self.found[name].probability[reveal.rows, which]
        return weight

    def place(self) -> tuple[npt.NDArray[np.int32], Bools]:
        """As an assignment (B, S), -1 where nothing is revealed, and which particles are revealed (B, P).

        Particles whose parent is unknown take the places that no revealed parent claims.
        """
        topology, rows = self.topology, np.arange(len(self))
        assignment = np.full((len(self), len(topology.slots)), -1, dtype=np.int32)
        revealed = np.zeros((len(self), len(topology.particles)), dtype=bool)
        for name in reversed(topology.types):  # parents before children
            places = np.array([p.index for p in topology.of_type(name)])
            slots = np.array([p.slots for p in topology.of_type(name)])
            order = np.argsort(revealed[:, places], axis=1, kind="stable")  # unclaimed places first
            free = self.available(name)
            which = np.argsort(~free, axis=1, kind="stable")
            for k in range(len(places)):
                (at,) = np.nonzero(free.sum(axis=1) > k)
                if len(at):
                    place = order[at, k]
                    assignment[rows[at][:, None], slots[place]] = self.found[name].nodes[at, which[at, k]]
                    self._mark(revealed, at, places[place])
        return assignment, revealed

    def _mark(self, revealed: Bools, rows: npt.NDArray[np.intp], particles: npt.NDArray[np.intp]) -> None:
        """Mark particles and all their descendants as revealed."""
        for particle in self.topology.particles:
            above = list(self.topology.ancestry(particle.index))
            revealed[rows[np.isin(particles, above)], particle.index] = True

    def keys(self) -> npt.NDArray[np.int16]:
        """(B, .): rows are equal where the same particles were found, in whatever order."""
        return np.concatenate([same.nodes.reshape(len(self), -1) for same in self.found.values()], axis=1)
