"""Assignments as graphs: adjacency matrices, and the tokens that show a network what is already known.

A token is an entry of a visible adjacency matrix: no edge, edge, or masked. An assignment (B, S) gives the node of
each slot, -1 for none. `revealed` (B, P) says which particles are known; the children of a revealed particle are
revealed too. Shapes: B events, N nodes, T types, S slots, P particles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.topology import Particle, Topology
from pairton.topology.assignments import present

__all__ = [
    "EDGE",
    "MASKED",
    "NO_EDGE",
    "adjacency",
    "known_ancestry",
    "masked_tokens",
    "visible_tokens",
]

NO_EDGE, EDGE, MASKED = 0, 1, 2

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Tokens = npt.NDArray[np.uint8]

_NONE, _UNKNOWN = -1, -2  # membership of a node in the particles of one type; 0, 1, ... is a member


def adjacency(topology: Topology, assignment: Ints, mask: Bools) -> tuple[Tokens, Bools]:
    """The true adjacency matrices, and which of their entries are known: two (B, T, N, N) arrays.

    Off the diagonal, 1 means that two objects belong to the same particle of the type. On the diagonal, 1 means
    that an object belongs to no particle of the type. If all particles are there, all entries between the nodes of
    `mask` (B, N) are known. If not, only those between assigned nodes are: any other node may be the missing one.

    >>> from pairton.topology import load_topology
    >>> edges, known = adjacency(load_topology("hh4b"), np.array([[0, 2, 1, 4]]), np.ones((1, 5), dtype=bool))
    >>> edges[0, 0]
    array([[0, 0, 1, 0, 0],
           [0, 0, 0, 0, 1],
           [1, 0, 0, 0, 0],
           [0, 0, 0, 1, 0],
           [0, 1, 0, 0, 0]], dtype=uint8)
    """
    assignment = np.asarray(assignment)
    found = assignment >= 0
    n_nodes = mask.shape[1]
    labelled = np.zeros(mask.shape, dtype=bool)
    for slot in range(len(topology.slots)):
        _enter(labelled, assignment, found[:, slot], slot, True)
    complete = present(topology, assignment)[:, [root.index for root in topology.roots]].all(axis=1, keepdims=True)
    certain = np.where(complete, mask, labelled)  # (B, N)
    edges = []
    for name in topology.types:
        member = np.full(mask.shape, _NONE, dtype=np.int8)
        for k, particle in enumerate(topology.of_type(name)):
            for slot in particle.span:
                _enter(member, assignment, found[:, slot], slot, k)
        same = (member[:, :, None] == member[:, None, :]) & (member[:, :, None] >= 0)
        _set_diagonal(same, member == _NONE)
        edges.append(same)
    known = certain[:, :, None] & certain[:, None, :]
    known = np.broadcast_to(known[:, None], (len(known), len(topology.types), n_nodes, n_nodes))
    return (np.stack(edges, axis=1) & known).astype(np.uint8), known


def visible_tokens(topology: Topology, assignment: Ints, revealed: Bools, mask: Bools) -> Tokens:
    """(B, T, N, N): the entries that follow from the revealed particles; all others, and padding, are MASKED.

    The objects of a revealed particle are members of it, and of its ancestors where its type leaves no choice of
    them. They are in no particle outside that ancestry. Once all particles of a type are revealed, the remaining
    objects are in none.
    """
    assignment = np.asarray(assignment)
    tokens = [_tokens_of_type(*_membership(topology, name, assignment, revealed, mask)) for name in topology.types]
    pairs = mask[:, None, :, None] & mask[:, None, None, :]
    return np.where(pairs, np.stack(tokens, axis=1), np.uint8(MASKED))


def masked_tokens(topology: Topology, events: int, n_nodes: int) -> Tokens:
    """(B, T, N, N): tokens that show nothing."""
    return np.full((events, len(topology.types), n_nodes, n_nodes), MASKED, dtype=np.uint8)


# -- membership of nodes in the particles of one type -------------------------------------------------------


def _membership(
    topology: Topology, type_name: str, assignment: Ints, revealed: Bools, mask: Bools
) -> tuple[npt.NDArray[np.int8], Bools]:
    """Two (B, N): the particle of the type that holds each node, or none, or unknown; whether it is revealed."""
    member = np.full(mask.shape, _UNKNOWN, dtype=np.int8)
    in_complete = np.zeros(mask.shape, dtype=bool)
    rank = {p.index: k for k, p in enumerate(topology.of_type(type_name))}
    for particle in topology.particles:  # parents first: a revealed parent settles its children
        shown = revealed[:, particle.index]
        if particle.parent >= 0:
            shown = shown & ~revealed[:, particle.parent]
        if not shown.any():
            continue
        for slot in particle.slots:
            chain, open_types = known_ancestry(topology, topology.slots[slot].particle, particle)
            inside = next((index for index in chain if index in rank), None)
            if inside is not None:
                _enter(member, assignment, shown, slot, rank[inside])
                _enter(in_complete, assignment, shown & revealed[:, inside], slot, True)
            elif type_name not in open_types:
                _enter(member, assignment, shown, slot, _NONE)
    all_done: Bools = np.all(revealed[:, list(rank)], axis=1)
    member[all_done[:, None] & (member == _UNKNOWN)] = _NONE
    return member, in_complete


def known_ancestry(topology: Topology, lowest: int, revealed: Particle) -> tuple[list[int], set[str]]:
    """The particles that certainly contain a slot of a revealed particle, and the types that may contain it."""
    chain = []
    for index in topology.ancestry(lowest):
        chain.append(index)
        if index == revealed.index:
            break
    current = revealed
    while True:
        parents = {
            topology.particles[p.parent].type if p.parent >= 0 else "" for p in topology.of_type(current.type)
        }
        if parents == {""}:
            return chain, set()
        if len(parents) > 1 or not _one_place(topology, current):  # W in a top or at the root; W in H -> W W
            ancestors: set[str] = set()
            for same in topology.of_type(current.type):
                ancestors |= {topology.particles[i].type for i in topology.ancestry(same.index)}
            return chain, ancestors - {current.type}
        current = topology.particles[current.parent]
        chain.append(current.index)


def _one_place(topology: Topology, particle: Particle) -> bool:
    """Whether all choices of a parent for this particle are equivalent.

    Two W from two H -> W W may or may not share a parent; two W from two t -> W b cannot.
    """
    parents = topology.of_type(topology.particles[particle.parent].type)
    return len(parents) == 1 or all(len(parent.children) == 1 for parent in parents)


def _tokens_of_type(member: npt.NDArray[np.int8], in_complete: Bools) -> Tokens:
    """(B, N, N): the tokens of one type, from the membership of its nodes."""
    row, column = member[:, :, None], member[:, None, :]
    same = (row == column) & (row >= 0)
    both_known = (row != _UNKNOWN) & (column != _UNKNOWN)
    excluded = (row == _NONE) | (column == _NONE) | in_complete[:, :, None] | in_complete[:, None, :]
    tokens = np.where(same, EDGE, np.where(both_known | excluded, NO_EDGE, MASKED)).astype(np.uint8)
    _set_diagonal(tokens, np.where(member == _UNKNOWN, MASKED, member == _NONE).astype(np.uint8))
    return tokens


def _enter(target: npt.NDArray[Any], assignment: Ints, where: Bools, slot: int, value: int) -> None:
    """Write `value` at the node of a slot, in the events `where` (B,) whose slot is filled."""
    (rows,) = np.nonzero(where & (assignment[:, slot] >= 0))
    target[rows, assignment[rows, slot]] = value


def _set_diagonal(matrices: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    index = np.arange(matrices.shape[-1])
    matrices[:, index, index] = values
