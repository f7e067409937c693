"""What has been revealed so far, for a batch of hypotheses: the particles found, by type.

A particle has no place in the decay tree until its parent is found: a topology may have a W both inside a top and
at the root, and only the choice of the top decides which W is which. So a state keeps the particles found by type,
and `place` puts them into slots.

Shapes: B rows, N nodes, S slots, P particles, K particles of one type, L slots of one particle, R some rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pairton.events.nodes import Nodes
from pairton.topology import Topology

__all__ = ["ABSENT", "Found", "State"]

ABSENT = np.iinfo(np.int16).max  # node of a particle not yet found; sorts after every node

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


@dataclass
class Found:
    """Particles of one type: those that were found come first, sorted by their nodes."""

    nodes: npt.NDArray[np.int16]  # (B, K, L)
    taken: Bools  # (B, K): already has a parent
    probability: Floats  # (B, K): product of the steps that revealed it and its children

    @property
    def count(self) -> Index:
        """(B,): how many were found."""
        return np.asarray((self.nodes[:, :, 0] != ABSENT).sum(axis=1))

    @property
    def available(self) -> Bools:
        """(B, K): which were found and have no parent yet."""
        return np.asarray((self.nodes[:, :, 0] != ABSENT) & ~self.taken)

    def __getitem__(self, rows: Index) -> Found:
        return Found(self.nodes[rows], self.taken[rows], self.probability[rows])

    def add(self, rows: Index, nodes: npt.NDArray[np.int16], probability: Floats) -> None:
        """Add one particle in some rows: nodes (R, L), probability (R,)."""
        at = rows, self.count[rows]
        self.nodes[at], self.probability[at] = nodes, probability
        order = np.lexsort(np.moveaxis(self.nodes, 2, 0)[::-1], axis=-1)  # (B, K)
        self.nodes = np.take_along_axis(self.nodes, order[:, :, None], axis=1)
        self.taken = np.take_along_axis(self.taken, order, axis=1)
        self.probability = np.take_along_axis(self.probability, order, axis=1)


@dataclass
class State:
    """A batch of partial assignments, and the probability of the chain that led to each."""

    topology: Topology
    found: dict[str, Found]
    free: Bools  # (B, N): nodes that some slot may take and that are neither padding nor used
    log_probability: Floats  # (B,)

    @classmethod
    def empty(cls, topology: Topology, nodes: Nodes) -> State:
        found = {}
        for name in topology.types:
            shape = len(nodes), len(topology.of_type(name))
            absent = np.full((*shape, len(topology.of_type(name)[0].slots)), ABSENT, dtype=np.int16)
            found[name] = Found(absent, np.zeros(shape, dtype=bool), np.ones(shape))
        return cls(topology, found, nodes.assignable(topology), np.zeros(len(nodes)))

    def __getitem__(self, rows: Index) -> State:
        """A copy of some rows, in that order."""
        found = {name: same[rows] for name, same in self.found.items()}
        return State(self.topology, found, self.free[rows], self.log_probability[rows])

    def place(self) -> tuple[npt.NDArray[np.int32], Bools]:
        """As an assignment (B, S), -1 where nothing is revealed, and which particles are revealed (B, P).

        Particles whose parent is unknown take the places that no revealed parent claims.
        """
        topology, rows = self.topology, len(self.free)
        assignment = np.full((rows, len(topology.slots)), -1, dtype=np.int32)
        revealed = np.zeros((rows, len(topology.particles)), dtype=bool)
        for name in reversed(topology.types):  # parents before children
            free = self.found[name].available
            count = free.sum(axis=1)
            if not count.any():
                continue
            same = topology.of_type(name)
            slots = np.array([p.slots for p in same])
            below = np.array([[p.index in topology.ancestry(q.index) for q in topology.particles] for p in same])
            unclaimed = np.argsort(revealed[:, [p.index for p in same]], axis=1, kind="stable")
            which = np.argsort(~free, axis=1, kind="stable")
            for k in range(count.max()):
                (at,) = np.nonzero(count > k)
                place = unclaimed[at, k]
                assignment[at[:, None], slots[place]] = self.found[name].nodes[at, which[at, k]]
                revealed[at] |= below[place]
        return assignment, revealed

    def keys(self) -> npt.NDArray[np.int16]:
        """(B, .): rows are equal where the same particles were found, in whatever order."""
        return np.concatenate([f.nodes.reshape(len(self.free), -1) for f in self.found.values()], axis=1)
