"""Assignments of objects to slots: which particles are present, and which assignments are equivalent.

Shapes: B events, S slots, P particles. An assignment is (B, S): slot -> index of an object, -1 if the slot is
empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.topology.tree import Particle, Topology

__all__ = ["MERGED", "STATES", "aligned", "canonical", "canonical_within", "in_use", "present", "ranked", "states"]

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


STATES = ("absent", "resolved", "merged")
MERGED = 2


def states(topology: Topology, assignment: Ints) -> npt.NDArray[np.int8]:
    """(B, P): the state of each particle, an index in `STATES`.

    A particle is resolved if each of its products is there: objects, and particles in any state. Nothing below a
    merged particle is there by itself.

    >>> from pairton.topology import parse_topology
    >>> both = parse_topology({"name": "x", "event": ["H", "H"], "particles": {"H": [["b", "b"], ["J"]]}})
    >>> [STATES[k] for k in states(both, np.array([[3, 0, -1, -1, -1, 5]]))[0]]
    ['resolved', 'merged']
    """
    filled = np.asarray(assignment) >= 0
    if not topology.merged:
        every = [filled[:, list(particle.slots)].all(axis=1) for particle in topology.particles]
        return np.stack(every, axis=1).astype(np.int8)
    result = np.zeros((len(filled), len(topology.particles)), dtype=np.int8)
    for particle in reversed(topology.particles):  # children first
        products = filled[:, list(particle.own_slots)], result[:, list(particle.children)] > 0
        result[:, particle.index] = np.concatenate(products, axis=1).all(axis=1)
        if particle.merged_slot >= 0:
            result[filled[:, particle.merged_slot], particle.index] = MERGED
    for particle in topology.particles:  # parents first
        above = list(topology.ancestry(particle.index))[1:]
        result[(result[:, above] == MERGED).any(axis=1), particle.index] = 0
    return result


def in_use(topology: Topology, state: Ints) -> Bools:
    """(B, S): whether a slot has an object of a particle that is there, from its state (B, P)."""
    each = state[:, [slot.particle for slot in topology.slots]]
    return np.asarray(each == 1 + np.array([slot.merged for slot in topology.slots]))


def present(topology: Topology, assignment: Ints) -> Bools:
    """(B, P): whether a particle is there, resolved or merged."""
    return np.asarray(states(topology, assignment) > 0)


def canonical(topology: Topology, assignment: Ints) -> Ints:
    """Put interchangeable products in a standard order, so that equivalent assignments become equal.

    Products with more filled slots come first; ties are sorted by the indices of their objects.

    >>> from pairton.topology import load_topology
    >>> canonical(load_topology("ttbar_allhad"), np.array([[5, 4, 3, 1, 0, 2], [0, 1, -1, 4, 5, 3]]))
    array([[ 0,  1,  2,  4,  5,  3],
           [ 4,  5,  3,  0,  1, -1]])
    """
    return _sorted_siblings(topology.sibling_groups, np.asarray(assignment))


def canonical_within(topology: Topology, particle: Particle, assignment: Ints) -> Ints:
    """(B, span of the particle): its objects, with the interchangeable products below it in standard order."""
    inside = list(particle.span)
    alone = np.full_like(assignment, -1)
    alone[:, inside] = assignment[:, inside]
    groups = [g for g in topology.sibling_groups if {slot for slots in g for slot in slots} <= set(inside)]
    return _sorted_siblings(groups, alone)[:, inside]


def aligned(topology: Topology, assignment: Ints, other: Ints) -> Ints:
    """An assignment (B, S) with its interchangeable products in the order that agrees best with another one.

    That is the order in which most particles have all their objects in common, and of these most slots.

    >>> from pairton.topology import load_topology
    >>> truth, answer = np.array([[0, 1, 2, 3, 4, -1]]), np.array([[5, 4, 3, 1, 0, 2]])
    >>> aligned(load_topology("ttbar_allhad"), truth, answer).tolist()
    [[3, 4, -1, 1, 0, 2]]
    """
    assignment, other = np.asarray(assignment), np.asarray(other)
    best, most = assignment, np.full(len(assignment), -1)
    for order in topology.symmetries:
        moved = assignment[:, order]
        same = (moved == other) & (moved >= 0)
        equal = [(moved == other)[:, list(p.span)].all(axis=1) for p in topology.particles]
        whole = np.stack(equal, axis=1) & present(topology, moved)
        agreement = whole.sum(axis=1) * (len(topology.slots) + 1) + same.sum(axis=1)
        best = np.where((agreement > most)[:, None], moved, best)
        most = np.maximum(agreement, most)
    return best


def ranked(topology: Topology, values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The order of slots (B, S) and particles (B, P) by falling values (B, P) of interchangeable particles.

    Everything below a particle moves with it. Equal values keep their order; NaN comes last.

    >>> from pairton.topology import load_topology
    >>> slots, particles = ranked(load_topology("ttbar_allhad"), np.array([[50.0, 0.0, 90.0, 0.0]]))
    >>> slots.tolist(), particles.tolist()
    ([[3, 4, 5, 0, 1, 2]], [[2, 3, 0, 1]])
    """
    absent = np.isnan(values)
    falling = np.where(absent, np.inf, -np.asarray(values, dtype=np.float64))
    for particle in reversed(topology.particles):  # an absent particle is sorted by the hardest one below it
        if particle.children:
            below_it = falling[:, list(particle.children)].min(axis=1)
            falling[:, particle.index] = np.where(absent[:, particle.index], below_it, falling[:, particle.index])
    slots = np.tile(np.arange(len(topology.slots)), (len(values), 1))
    particles = np.tile(np.arange(len(topology.particles)), (len(values), 1))
    every = range(len(topology.particles))
    below = [[k for k in every if index in topology.ancestry(k)] for index in every]
    families = [p.children for p in reversed(topology.particles)] + [tuple(p.index for p in topology.roots)]
    types = [particle.type for particle in topology.particles]
    for family in families:  # the deepest first
        for name in dict.fromkeys(types[index] for index in family):
            if len(same := [index for index in family if types[index] == name]) > 1:
                order = np.lexsort((falling[:, same], absent[:, same]), axis=1)
                _rearrange(slots, [list(topology.particles[index].span) for index in same], order)
                _rearrange(particles, [below[index] for index in same], order)
    return slots, particles


def _rearrange(columns: Ints, members: Sequence[list[int]], order: npt.NDArray[np.intp]) -> None:
    """Reorder the members of a group in place; a member is a list of columns, the order is (B, members)."""
    parts = np.take_along_axis(np.stack([columns[:, member] for member in members], axis=1), order[:, :, None], 1)
    for k, member in enumerate(members):
        columns[:, member] = parts[:, k]


def _sorted_siblings(groups: Sequence[tuple[tuple[int, ...], ...]], assignment: Ints) -> Ints:
    """Sort the members of each group of interchangeable products, deepest group first."""
    result = np.array(assignment)
    base = int(result.max(initial=0)) + 2  # number of different values: the objects and -1
    for siblings in groups:
        columns = [list(slots) for slots in siblings]
        members = np.stack([result[:, slots] for slots in columns], axis=1)  # (B, members, slots)
        keys = [members[:, :, k] for k in reversed(range(members.shape[2]))]
        keys.append((members < 0).sum(axis=2) - 1)  # the last key is the primary one
        if base ** members.shape[2] * len(keys) < 2**62:  # one integer that sorts like the tuple of keys
            packed = sum((key.astype(np.int64) + 1) * base**k for k, key in enumerate(keys))
            order = np.argsort(packed, axis=1, kind="stable")
        else:
            order = np.lexsort(keys, axis=1)
        _rearrange(result, columns, order)
    return result
