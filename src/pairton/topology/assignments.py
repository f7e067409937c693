"""Assignments of objects to slots: which particles are present in one, and when two are the same.

Shapes: B events, S slots, P particles. An assignment is (B, S): slot -> index of an object, -1 where it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.topology.tree import Particle, Topology

__all__ = ["canonical", "canonical_within", "present"]

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


def present(topology: Topology, assignment: Ints) -> Bools:
    """(B, P): particles whose every slot has an object."""
    found = np.asarray(assignment) >= 0
    return np.stack([found[:, list(p.slots)].all(1) for p in topology.particles], axis=1)


def canonical(topology: Topology, assignment: Ints) -> Ints:
    """The same representative for every assignment that differs only by interchangeable products.

    >>> from pairton.topology import load_topology
    >>> canonical(load_topology("ttbar_allhad"), np.array([[5, 4, 3, 1, 0, 2], [0, 1, 2, 4, 5, 3]]))
    array([[0, 1, 2, 4, 5, 3],
           [0, 1, 2, 4, 5, 3]])
    """
    return _sorted_siblings(topology.sibling_groups, np.asarray(assignment))


def canonical_within(topology: Topology, particle: Particle, assignment: Ints) -> Ints:
    """(B, slots of the particle): its objects, interchangeable products below it in order."""
    alone = np.full_like(assignment, -1)
    inside = list(particle.slots)
    alone[:, inside] = assignment[:, inside]
    within = [g for g in topology.sibling_groups if {slot for slots in g for slot in slots} <= set(inside)]
    return _sorted_siblings(within, alone)[:, inside]


def _sorted_siblings(groups: Sequence[tuple[tuple[int, ...], ...]], assignment: Ints) -> Ints:
    """Sort the members of each group of interchangeable products, deepest group first."""
    result = np.array(assignment)
    base = int(result.max(initial=0)) + 2  # objects and -1
    for siblings in groups:
        members = np.stack([result[:, list(slots)] for slots in siblings], axis=1)  # (B, members, slots)
        keys = [members[:, :, k] for k in reversed(range(members.shape[2]))]
        if base ** members.shape[2] < 2**62:  # one integer that sorts like the tuple of objects
            packed = sum((key.astype(np.int64) + 1) * base**k for k, key in enumerate(keys))
            order = np.argsort(packed, axis=1, kind="stable")
        else:
            order = np.lexsort(keys, axis=1)
        members = np.take_along_axis(members, order[:, :, None], axis=1)
        for k, slots in enumerate(siblings):
            result[:, list(slots)] = members[:, k]
    return result
