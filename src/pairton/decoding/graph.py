"""Assignments as graphs: adjacency matrices, and the tokens that a state makes visible.

Shapes: B events, N nodes, T types, S slots, P particles. An assignment is (B, S): slot -> node, -1 where it has
none. A state is an assignment and `revealed` (B, P): which particles are known; the children of a revealed
particle are revealed too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.topology import Particle, Topology

__all__ = [
    "EDGE",
    "MASKED",
    "NO_EDGE",
    "adjacency",
    "known_ancestry",
    "visible_tokens",
]

NO_EDGE, EDGE, MASKED = 0, 1, 2

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Tokens = npt.NDArray[np.uint8]

_NONE, _UNKNOWN = -1, -2  # membership of a node in the particles of one type; 0, 1, ... is a member


def adjacency(topology: Topology, assignment: Ints, mask: Bools) -> tuple[Tokens, Bools]:
    """The true matrices, and which of their entries are known: two (B, T, N, N) arrays.

    Off the diagonal 1 says that two objects belong to one particle of the type, on it that one belongs to none.
    Where every slot is filled all entries between the nodes of `mask` (B, N) are known; where some are
    missing, only those between nodes with a label: another one may be the missing one.

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
    fully: Bools = np.all(found, axis=1, keepdims=True)
    sure = np.where(fully, mask, labelled)  # (B, N)
    edges = []
    for name in topology.types:
        member = np.full(mask.shape, _NONE, dtype=np.int8)
        for k, particle in enumerate(topology.of_type(name)):
            for slot in particle.slots:
                _enter(member, assignment, found[:, slot], slot, k)
        same = (member[:, :, None] == member[:, None, :]) & (member[:, :, None] >= 0)
        _set_diagonal(same, member == _NONE)
        edges.append(same)
    known = sure[:, :, None] & sure[:, None, :]
    known = np.broadcast_to(known[:, None], (len(known), len(topology.types), n_nodes, n_nodes))
    return (np.stack(edges, axis=1) & known).astype(np.uint8), known


def visible_tokens(topology: Topology, assignment: Ints, revealed: Bools, mask: Bools) -> Tokens:
    """(B, T, N, N): what the revealed particles imply, MASKED elsewhere; padding is never visible.

    The objects of a revealed particle are known members of it, and of its ancestors as far as its type tells them;
    they are known to be in no particle outside that ancestry. Once all particles of a type are complete, the
    objects left over are in none.
    """
    assignment = np.asarray(assignment)
    tokens = [_tokens_of_type(*_membership(topology, name, assignment, revealed, mask)) for name in topology.types]
    pairs = mask[:, None, :, None] & mask[:, None, None, :]
    return np.where(pairs, np.stack(tokens, axis=1), np.uint8(MASKED))


# -- membership of nodes in the particles of one type -------------------------------------------------------


def _membership(
    topology: Topology, type_name: str, assignment: Ints, revealed: Bools, mask: Bools
) -> tuple[npt.NDArray[np.int8], Bools]:
    """(B, N): the particle of the type that a node is known to be in, none, or unknown; and if it is complete."""
    member = np.full(mask.shape, _UNKNOWN, dtype=np.int8)
    in_complete = np.zeros(mask.shape, dtype=bool)
    rank = {p.index: k for k, p in enumerate(topology.of_type(type_name))}
    for particle in topology.particles:  # parents before children: a revealed parent knows more and wins below
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
    """Particles that a slot below a revealed particle is known to be in, and types of which it may yet be."""
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
        if len(parents) > 1 or not _one_place(topology, current):  # a W of a top or of none; a W of H -> W W
            ancestors: set[str] = set()
            for same in topology.of_type(current.type):
                ancestors |= {topology.particles[i].type for i in topology.ancestry(same.index)}
            return chain, ancestors - {current.type}
        current = topology.particles[current.parent]
        chain.append(current.index)


def _one_place(topology: Topology, particle: Particle) -> bool:
    """Whether it does not matter in which of several parents of one type a particle is put.

    Two W of H -> W W, with two H, may be siblings or not; those of two t -> W b cannot be.
    """
    parents = topology.of_type(topology.particles[particle.parent].type)
    return len(parents) == 1 or all(len(parent.children) == 1 for parent in parents)


def _tokens_of_type(member: npt.NDArray[np.int8], in_complete: Bools) -> Tokens:
    """(B, N, N) from membership: the one rule of which entries follow from what is known."""
    row, column = member[:, :, None], member[:, None, :]
    same = (row == column) & (row >= 0)
    both_known = (row != _UNKNOWN) & (column != _UNKNOWN)
    excluded = (row == _NONE) | (column == _NONE) | in_complete[:, :, None] | in_complete[:, None, :]
    tokens = np.where(same, EDGE, np.where(both_known | excluded, NO_EDGE, MASKED)).astype(np.uint8)
    _set_diagonal(tokens, np.where(member == _UNKNOWN, MASKED, member == _NONE).astype(np.uint8))
    return tokens


def _enter(target: npt.NDArray[Any], assignment: Ints, where: Bools, slot: int, value: int) -> None:
    """Write `value` at the node of a slot, in those events of `where` (B) that have one."""
    (rows,) = np.nonzero(where & (assignment[:, slot] >= 0))
    target[rows, assignment[rows, slot]] = value


def _set_diagonal(matrices: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    index = np.arange(matrices.shape[-1])
    matrices[:, index, index] = values
