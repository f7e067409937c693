"""The exact likelihood by a list of all complete assignments: the slow reference of sums over sets.

Shapes: B events, A assignments, S slots.
"""

from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np

from pairton.decoding.terms import gain_terms, triplet_slots, triplet_types
from pairton.topology.assignments import canonical, canonical_within


class Enumeration(NamedTuple):
    """All assignments of the objects of a layout, one representative each."""

    topology: object
    assignments: np.ndarray  # (A, S), canonical and in lexicographic order


@lru_cache(maxsize=64)
def enumerate_assignments(topology, counts):
    layout = topology.layout(counts)
    rows = np.zeros((1, len(topology.slots)), dtype=np.int8)
    for kind in topology.object_kinds:
        places = [slot.index for slot in topology.slots if slot.kind == kind]
        picked = np.array(list(permutations(topology.nodes(kind, layout), len(places))), dtype=np.int8)
        before, rows = len(rows), np.repeat(rows, len(picked), axis=0)
        rows[:, places] = np.tile(picked.reshape(-1, len(places)), (before, 1))
    rows = rows[(canonical(topology, rows) == rows).all(axis=1)]
    return Enumeration(topology, rows[np.lexsort(rows.T[::-1])])


def index_of(enumeration, assignment):
    """(B,): the row of each assignment (B, S), however interchangeable products are ordered; -1 for none."""
    same = (canonical(enumeration.topology, assignment)[:, None] == enumeration.assignments).all(axis=2)
    return np.where(same.any(axis=1), same.argmax(axis=1), -1)


def contains(enumeration, particle, assignment):
    """(B, A): whether assignments have a particle of its type with its objects in `assignment` (B, S)."""
    topology, found = enumeration.topology, False
    objects = canonical_within(topology, particle, np.asarray(assignment))
    for other in topology.of_type(particle.type):
        found = found | (canonical_within(topology, other, enumeration.assignments) == objects[:, None]).all(
            axis=2
        )
    return found


def consistent(enumeration, assignment, revealed):
    """(B, A): assignments that contain every revealed particle (B, P) with its objects in `assignment`."""
    allowed = np.ones((len(assignment), len(enumeration.assignments)), dtype=bool)
    for particle in enumeration.topology.particles:
        allowed &= contains(enumeration, particle, assignment) | ~revealed[:, [particle.index]]
    return allowed


def scores(enumeration, outputs):
    """(B, A): the sum of gains and potentials of every assignment."""
    topology, kinds = enumeration.topology, list(triplet_types(enumeration.topology))
    at = enumeration.assignments.T.astype(np.intp)  # slot -> (A,)
    total = np.zeros((len(outputs["edges"]), at.shape[1]), dtype=np.float32)
    for particle in topology.particles:
        logits = outputs["edges"][:, topology.type_index(particle.type)]
        pairs, own = gain_terms(topology, particle)
        for i, j in pairs:
            total += logits[:, at[i], at[j]]
        for i in own:
            total -= logits[:, at[i], at[i]]
        if particle.type in kinds and "triplets" in outputs:
            i, j, k = (at[slot] for slot in triplet_slots(topology, particle))
            total += outputs["triplets"][:, kinds.index(particle.type), i, j, k]
    return total


def log_normaliser(scores):
    """(B,): log of the summed exponentials of (B, A)."""
    return np.logaddexp.reduce(scores, axis=1, dtype=np.float64)
