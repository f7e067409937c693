"""The true pattern of an event: which particles are present.

Shapes: n events, S slots, P particles.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.topology import Particle, Topology
from pairton.topology.assignments import present

__all__ = ["true_pattern"]

Ints = npt.NDArray[np.integer[Any]]
Key = tuple[Any, ...]


def true_pattern(topology: Topology, truth: Ints) -> npt.NDArray[np.int64]:
    """(n,): the index in `plan_of(topology).patterns` of the pattern of each truth (n, S).

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, -1, 2, 3, 4, 5], [-1, 1, -1, 3, 4, -1], [-1] * 6])
    >>> true_pattern(load_topology("ttbar_allhad"), truth).tolist()  # t + t, t, W, nothing
    [0, 2, 4, 5]
    """
    if not len(truth):
        return np.zeros(0, dtype=np.int64)
    known = _patterns(topology)
    rows, which = np.unique(present(topology, truth), axis=0, return_inverse=True)
    return np.array([known[_event_key(topology, row)] for row in rows], dtype=np.int64)[which.ravel()]


@lru_cache(maxsize=64)
def _patterns(topology: Topology) -> dict[Key, int]:
    """Present particles, regardless of their order -> index of the pattern."""
    found: dict[Key, int] = {}
    for number, pattern in enumerate(plan_of(topology).patterns):
        is_present = np.zeros(len(topology.particles), dtype=bool)
        for type_name, first in pattern.placed:
            (top,) = (particle for particle in topology.of_type(type_name) if particle.slots[0] == first)
            is_present |= np.array([set(particle.slots) <= set(top.slots) for particle in topology.particles])
        found[_event_key(topology, is_present)] = number
    return found


def _event_key(topology: Topology, is_present: npt.NDArray[np.bool_]) -> Key:
    return tuple(sorted(_key(topology, root, is_present) for root in topology.roots))


def _key(topology: Topology, particle: Particle, is_present: npt.NDArray[np.bool_]) -> Key:
    """The type, whether it is present, and if it is absent the keys of its children."""
    if is_present[particle.index]:
        return particle.type, 1, ()
    below = sorted(_key(topology, topology.particles[child], is_present) for child in particle.children)
    return particle.type, 0, tuple(below)
