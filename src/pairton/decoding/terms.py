"""Which logits of a network enter the gain of a particle and its three-body potential.

Shapes: B events, N nodes, T types, K types of three slots.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pairton.topology import Particle, Topology

__all__ = ["BRANCH", "Outputs", "gain_terms", "triplet_slots", "triplet_types"]

BRANCH = "branch."  # prefix of outputs of branches: branch.t1 is (B, N, ..., N), with one axis N per slot
# network outputs by name: edges (B, T, N, N), triplets (B, K, N, N, N), patterns (B, patterns), ...
Outputs = Mapping[str, npt.NDArray[np.float32]]


def gain_terms(topology: Topology, particle: Particle) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """The terms of a particle's gain: pairs of slots whose logit is added, slots whose diagonal is subtracted.

    gain = sum_{i<j in U} s_ij + sum_{u in U, v in S} s_uv - sum_{u in U} s_uu, with U the particle's own objects,
    S those of its children, and s the edge logits of its type. Pairs between two children are added too, since
    only the parent makes them siblings.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> gain_terms(ttbar, ttbar.particles[0])  # t1: b with the products of the W
    ([(0, 2), (1, 2)], (2,))
    """
    groups = [topology.particles[child].slots for child in particle.children]
    groups += [(slot,) for slot in particle.own_slots]
    pairs = [
        (min(i, j), max(i, j))
        for k, group in enumerate(groups)
        for other in groups[k + 1 :]
        for i in group
        for j in other
    ]
    return sorted(pairs), particle.own_slots


def triplet_types(topology: Topology) -> dict[str, bool]:
    """The types with three slots, in the order of `types`, and whether their potential is symmetric in all three.

    >>> from pairton.topology import load_topology
    >>> triplet_types(load_topology("ttbar_allhad"))
    {'t': False}
    """
    first = {name: topology.of_type(name)[0] for name in topology.types}
    return {name: not _has_pair(topology, p) for name, p in first.items() if len(p.slots) == 3}


def _has_pair(topology: Topology, particle: Particle) -> bool:
    """Whether a particle has one child of two objects and one object of its own, as in t -> W b."""
    return len(particle.own_slots) == 1 and [len(topology.particles[c].slots) for c in particle.children] == [2]


def triplet_slots(topology: Topology, particle: Particle) -> tuple[int, ...]:
    """The three slots of a particle in the order of its potential: first the child's pair, then its own object."""
    if _has_pair(topology, particle):
        return (*topology.particles[particle.children[0]].slots, *particle.own_slots)
    return particle.slots
