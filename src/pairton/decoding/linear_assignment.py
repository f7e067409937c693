"""A joint stage of one new object per particle as a linear assignment, for stages too large to enumerate.

Objects are gone through one by one; for every set of particles that have theirs, the best gain and the sum over
all ways are kept. That is exact, works on whole batches, and grows as 2 to the number of particles, but only
linearly with the objects.

Shapes: B rows, Q particles that may be revealed (one child each), C objects, M particles that are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.candidates import decay_of
from pairton.topology import Stage, Topology

__all__ = ["best_matching", "is_matching"]

MAX_PARTICLES = 12  # 4096 sets

Floats = npt.NDArray[np.floating[Any]]
Index = npt.NDArray[np.intp]


def is_matching(topology: Topology, stage: Stage) -> bool:
    """Whether all particles of a stage are of one type, with one child and one object of their own.

    >>> from pairton.topology import load_topology
    >>> [is_matching(load_topology("tttt_allhad"), stage) for stage in load_topology("tttt_allhad").stages]
    [False, False, False, False, True]
    """
    if stage.any or len(set(stage.types)) > 1:
        return False
    decay = decay_of(topology, stage.types[0])
    return len(decay.own) == len(decay.children) == 1 and len(decay.child_choices) <= MAX_PARTICLES


def best_matching(
    gain: Floats, size: int, temperature: float = 1.0
) -> tuple[Index, Index, npt.NDArray[np.float64]]:
    """Of gains (B, Q, C) the best `size` disjoint ones: particles (B, M), objects (B, M), probability (B,).

    >>> best_matching(np.array([[[3.0, 2.0], [2.0, -5.0]]]), 2)[:2]  # 2 + 2 is more than 3 - 5
    (array([[0, 1]]), array([[1, 0]]))
    """
    batch, n_particles, n_objects = gain.shape
    sets = np.arange(1 << n_particles)
    best = np.full((len(sets), batch), -np.inf)
    best[0] = 0
    total = best.copy()  # logarithm of the summed exponentials
    last = np.full((n_objects, len(sets), batch), -1, dtype=np.int8)  # who gets an object, if anybody
    for item in range(n_objects):
        before, before_total = best.copy(), total.copy()
        for particle in range(n_particles):
            having = sets[sets >> particle & 1 == 1]
            value = gain[:, particle, item].astype(np.float64)
            grown = before[having ^ (1 << particle)] + value
            better = grown > best[having]
            best[having] = np.where(better, grown, best[having])
            last[item, having] = np.where(better, particle, last[item, having])
            ways = before_total[having ^ (1 << particle)] + value / temperature
            total[having] = np.logaddexp(total[having], ways)
    wanted = np.array([s for s in sets if int(s).bit_count() == size])
    left = wanted[best[wanted].argmax(axis=0)]  # (B,): the set that is revealed
    top = np.take_along_axis(best, left[None], axis=0)[0]
    probability = np.exp(top / temperature - np.logaddexp.reduce(total[wanted], axis=0))
    object_of = np.full((batch, n_particles), -1)
    rows = np.arange(batch)
    for item in reversed(range(n_objects)):
        owner = last[item, left, rows]
        (given,) = np.nonzero(owner >= 0)
        object_of[given, owner[given]] = item
        left[given] ^= 1 << owner[given].astype(np.intp)
    particles = np.argsort(object_of < 0, axis=1, kind="stable")[:, :size]
    return particles, np.take_along_axis(object_of, particles, axis=1), probability
