"""The candidates of one step of a decoding, for any topology, and their gains.

A candidate is a particle of one type: its children are chosen among the particles found, its own objects among the
free ones. A step chooses one candidate, or several disjoint ones together. Which choices exist depends only on the
numbers of objects, so they are tabulated once. Choices that are impossible in an event have a gain of -inf.

Shapes: B rows, N nodes, F free nodes, Q choices of children, C choices of own objects, X candidates (Q C of each
type), J choices of a step, M particles that a step reveals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.state import Reveal, State
from pairton.decoding.terms import Outputs, triplet_types
from pairton.topology import Stage, Topology

__all__ = [
    "MAX_CHOICES",
    "Decay",
    "StepTable",
    "decay_of",
    "free_nodes",
    "gains",
    "n_turns",
    "next_step",
    "reveals",
    "step_table",
]

MAX_CHOICES = 20_000  # of a joint step; if there are more, its particles are revealed one at a time

Ints = npt.NDArray[np.integer[Any]]
Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.floating[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Decay:
    """A type of particle as the decoder sees it; positions count the slots of the particle from 0."""

    name: str
    layer: int  # index of the type in the edge logits
    count: int  # particles of this type in the topology
    width: int  # slots of one particle
    own: tuple[int, ...]  # positions of its own objects
    own_kinds: tuple[str, ...]  # kinds of its own objects
    own_names: tuple[str, ...]  # products of equal names are interchangeable
    children: tuple[tuple[str, tuple[int, ...]], ...]  # type and positions of each child
    child_choices: tuple[tuple[int, ...], ...]  # (Q, children): indices among the particles found
    potential: int  # index of the type in the triplet logits, -1 for none
    potential_order: tuple[int, ...]  # positions that index the triplet logits


@lru_cache(maxsize=256)
def decay_of(topology: Topology, name: str) -> Decay:
    """The decay of one type.

    >>> from pairton.topology import load_topology
    >>> top = decay_of(load_topology("ttbar_allhad"), "t")
    >>> top.own, top.children, top.child_choices
    ((2,), (('W', (0, 1)),), ((0,), (1,)))
    """
    same = topology.of_type(name)
    first = same[0].slots[0]
    own = tuple(slot - first for slot in same[0].own_slots)
    kinds = tuple(topology.slots[slot].kind for slot in same[0].own_slots)
    decays = dict(topology.decays)
    names = tuple(n for n in decays[name] if n not in decays) if name in decays else (name,)
    below = [topology.particles[child] for child in same[0].children]
    children = tuple((child.type, tuple(slot - first for slot in child.slots)) for child in below)
    pools = [range(len(topology.of_type(child))) for child, _ in children]
    choices = _distinct([list(pool) for pool in pools], [child for child, _ in children])
    symmetric = triplet_types(topology)
    order = tuple(range(len(same[0].slots)))
    if not symmetric.get(name, True):
        order = (*(position for _, positions in children for position in positions), *own)
    layer = list(symmetric).index(name) if name in symmetric else -1
    return Decay(
        name,
        topology.type_index(name),
        len(same),
        len(same[0].slots),
        own,
        kinds,
        names,
        children,
        choices,
        layer,
        order,
    )


def _distinct(pools: list[list[int]], names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Every choice of one member per pool; pools of the same name share members, chosen in increasing order."""
    rows = []
    for row in product(*pools):
        pairs = [(a, b) for j, b in enumerate(row) for i, a in enumerate(row[:j]) if names[i] == names[j]]
        if all(a < b for a, b in pairs):
            rows.append(row)
    return tuple(rows)


@lru_cache(maxsize=1024)
def own_choices(names: tuple[str, ...], n_free: int) -> Index:
    """(C, own): every choice of own objects among the free ones; products of equal names in increasing order.

    >>> own_choices(("q", "q"), 3).tolist(), own_choices(("a", "b"), 3).tolist()[:3]
    ([[0, 1], [0, 2], [1, 2]], [[0, 1], [0, 2], [1, 0]])
    """
    table = np.zeros((1, 0), dtype=np.intp)
    for k, name in enumerate(names):
        row, node = (axis.ravel() for axis in np.indices((len(table), n_free)))
        allowed = (table[row] != node[:, None]).all(axis=1)
        if name in names[:k]:
            last = k - 1 - names[:k][::-1].index(name)
            allowed &= table[row, last] < node
        table = np.concatenate([table[row], node[:, None]], axis=1)[allowed]
    return table


@dataclass(frozen=True)
class StepTable:
    """The choices of one step for a number of free nodes; candidates run over types, children, own objects."""

    decays: tuple[Decay, ...]
    n_free: int
    decay: Index  # (X,): index in `decays` of each candidate
    children: Index  # (X,): row of the type's child_choices
    own: Index  # (X,): row of the type's own_choices
    choices: Index  # (J, M): candidates revealed together
    quota: tuple[int, ...] | None  # most particles of each type in the whole stage; None: those of the topology


def _columns(decays: Sequence[Decay], n_free: int) -> tuple[Index, Index, Index]:
    parts = []
    for k, decay in enumerate(decays):
        shape = (len(decay.child_choices), len(own_choices(decay.own_names, n_free)))
        children, own = (axis.ravel() for axis in np.indices(shape))
        parts.append((np.full(children.shape, k), children, own))
    merged = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return merged[0], merged[1], merged[2]


@lru_cache(maxsize=256)
def step_table(topology: Topology, stage: Stage, n_free: int, together: bool = True) -> StepTable | None:
    """The choices of a stage, or with `together=False` of one of its particles; None if they exceed MAX_CHOICES.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> step_table(ttbar, ttbar.stages[0], 7).choices.shape  # pairs of nodes
    (21, 1)
    >>> step_table(ttbar, ttbar.stages[2], 3).choices.shape  # a b for each W
    (6, 2)
    """
    decays = tuple(decay_of(topology, name) for name in dict.fromkeys(stage.types))
    columns = _columns(decays, n_free)
    counts = tuple(stage.types.count(decay.name) for decay in decays)
    single = np.arange(len(columns[0]))[:, None]
    if stage.any or len(stage.types) == 1:
        return StepTable(decays, n_free, *columns, single, None)
    if not together:
        return StepTable(decays, n_free, *columns, single, counts)
    joint = _joint_choices(decays, counts, columns, n_free, MAX_CHOICES)
    return None if joint is None else StepTable(decays, n_free, *columns, joint, None)


def n_turns(topology: Topology, stage: Stage, state: State) -> int:
    """How many steps a stage takes: one, or one per particle if there are too many joint choices."""
    together = step_table(topology, stage, free_nodes(state).shape[1]) is not None
    return 1 if together else len(stage.types)


def next_step(topology: Topology, stage: Stage, state: State, together: bool) -> tuple[Index, StepTable]:
    """The free nodes (B, F), and the choices of the next step of a stage."""
    free = free_nodes(state)
    step = step_table(topology, stage, free.shape[1], together)
    assert step is not None
    return free, step


def free_nodes(state: State) -> Index:
    """(B, F): the nodes that are neither padding nor used, in order, then -1."""
    count = state.free.sum(axis=1)
    width = int(count.max(initial=0))
    order = np.argsort(~state.free, axis=1, kind="stable")[:, :width]
    return np.where(np.arange(width) < count[:, None], order, -1)


def _joint_choices(
    decays: Sequence[Decay], counts: Sequence[int], columns: tuple[Index, Index, Index], n_free: int, bound: int
) -> Index | None:
    """(J, M): all choices of disjoint candidates, `counts` of each type; None if there are more than `bound`."""
    which, children, own = columns
    if len(which) > bound:
        return None
    # what a candidate uses: free nodes, then children of each type
    pools = list(dict.fromkeys(child for decay in decays for child, _ in decay.children))
    sizes = [max((q for decay in decays for row in decay.child_choices for q in row), default=0) + 1] * len(pools)
    starts = n_free + np.concatenate([[0], np.cumsum(sizes, dtype=np.intp)])
    uses = np.zeros((len(which), int(starts[-1])), dtype=np.float32)
    for k, decay in enumerate(decays):
        (rows,) = np.nonzero(which == k)
        for nodes in own_choices(decay.own_names, n_free)[own[rows]].T:
            uses[rows, nodes] = 1
        for c, (child, _) in enumerate(decay.children):
            picked = np.array([row[c] for row in decay.child_choices])[children[rows]]
            uses[rows, starts[pools.index(child)] + picked] = 1
    table = np.zeros((1, 0), dtype=np.intp)
    used = np.zeros((1, uses.shape[1]), dtype=np.float32)
    for k, count in enumerate(counts):
        (options,) = np.nonzero(which == k)
        for turn in range(count):
            allowed = (used @ uses[options].T) == 0
            if turn:  # particles of one type are interchangeable
                allowed &= table[:, -1:] < options
            row, option = np.nonzero(allowed)
            if len(row) > bound:
                return None
            table = np.concatenate([table[row], options[option][:, None]], axis=1)
            used = used[row] + uses[options[option]]
    return table


# -- gains -------------------------------------------------------------------------------------------------


def gains(
    step: StepTable,
    state: State,
    outputs: Outputs,
    free: Index,
    *,
    before: Mapping[str, Ints] | None = None,
) -> Floats:
    """(B, J): what each choice of the step adds to the score of the answer; -inf where it is impossible.

    `free` (B, F) lists the free nodes, then -1. `before` holds the numbers of particles when the stage began.
    """
    parts = [_decay_gains(decay, step.n_free, state, outputs, free) for decay in step.decays]
    for k, decay in enumerate(step.decays):
        count = state.found[decay.name].count
        more = count < decay.count
        if step.quota is not None and before is not None:
            more &= count - before[decay.name] < step.quota[k]
        parts[k][~more] = -np.inf
    each = np.concatenate(parts, axis=1)
    total = each[:, step.choices[:, 0]]
    for column in step.choices.T[1:]:
        total += each[:, column]
    return total


def _decay_gains(decay: Decay, n_free: int, state: State, outputs: Outputs, free: Index) -> Floats:
    """(B, Q C): the gains of the candidates of one type; `terms.gain_terms` has the formula."""
    rows = np.arange(len(free))[:, None]
    logits = outputs["edges"][:, decay.layer]
    own = own_choices(decay.own_names, n_free)
    nodes = np.maximum(free, 0)[:, own]  # (B, C, own)
    possible = (free[:, own] >= 0).all(axis=2)
    if len(state.topology.object_kinds) > 1:
        for i, kind in enumerate(decay.own_kinds):
            possible &= state.is_kind(kind)[free[:, own[:, i]]]
    value = np.zeros(possible.shape, dtype=np.float32)
    for i in range(own.shape[1]):
        for j in range(i):
            value += logits[rows, nodes[:, :, j], nodes[:, :, i]]
        value -= logits[rows, nodes[:, :, i], nodes[:, :, i]]
    result = []
    for choice in decay.child_choices:
        total, allowed = value.copy(), possible.copy()
        position: dict[int, Index] = {p: nodes[:, :, i] for i, p in enumerate(decay.own)}  # (B, C) or (B, 1)
        seen: list[Index] = []
        for (child, positions), which in zip(decay.children, choice, strict=True):
            allowed &= state.available(child)[:, which : which + 1]
            inside = np.where(allowed.any(axis=1, keepdims=True), state.found[child].nodes[:, which], 0).astype(
                np.intp
            )
            for other in seen:  # siblings
                for k in range(inside.shape[1]):
                    total += logits[rows, other, inside[:, k : k + 1]].sum(axis=1, keepdims=True)
            around = logits[rows, inside, :].sum(axis=1)  # (B, N): to any node
            for i in range(own.shape[1]):
                total += np.take_along_axis(around, nodes[:, :, i], axis=1)
            seen.append(inside)
            position |= {p: inside[:, k : k + 1] for k, p in enumerate(positions)}
        if decay.potential >= 0 and "triplets" in outputs:
            first, second, third = (position[p] for p in decay.potential_order)
            total += outputs["triplets"][rows, decay.potential, first, second, third]
        result.append(np.where(allowed, total, -np.inf))
    return np.concatenate(result, axis=1)


def reveals(step: StepTable, state: State, free: Index, choice: Index) -> list[Reveal]:
    """The particles revealed by `choice` (B,): one row of the step's choices per event."""
    result = []
    for column in step.choices.T:
        picked = column[choice]  # (B,): candidate
        for k, decay in enumerate(step.decays):
            (rows,) = np.nonzero(step.decay[picked] == k)
            if not len(rows):
                continue
            nodes = np.zeros((len(rows), decay.width), dtype=np.int16)
            own = own_choices(decay.own_names, step.n_free)[step.own[picked[rows]]]
            new = np.take_along_axis(free[rows], own, axis=1)
            nodes[:, list(decay.own)] = new
            found = np.array(decay.child_choices, dtype=np.intp)[step.children[picked[rows]]]  # (R, children)
            children = []
            for c, (name, positions) in enumerate(decay.children):
                nodes[:, list(positions)] = state.found[name].nodes[rows, found[:, c]]
                children.append((name, found[:, c]))
            result.append(Reveal(decay.name, rows, nodes, new, children))
    return result
