"""Decodings in steps: each stage reveals particles, and the network sees what was revealed before it.

A step is an exact decoding of a small event, whose particles decay to free objects and to particles that earlier
steps revealed. Candidates that contradict those have a score of -inf. `pairton.decoding.set_sums` finds the best
choices, and the sum over all of them. A beam keeps several hypotheses of an event.

Shapes: B rows, each one hypothesis of an event, N nodes, S slots, P particles, K particles of one type, L slots of
one particle, C candidates of a type, k choices of a step, M particles that it reveals, R some rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.decoding.decodings import LISTED, Decoded, Decoding, Step, Task, register_decoding
from pairton.decoding.graph import visible_tokens
from pairton.decoding.patterns import Allowed, count_sums, largest_count
from pairton.decoding.set_sums import best, log_normaliser, log_sums
from pairton.decoding.set_tables import SetTables, set_tables
from pairton.decoding.terms import Outputs, logit_rows, rows_first, summed_logits, triplet_types
from pairton.events.nodes import Nodes
from pairton.topology import Layout, Particle, Stage, Topology
from pairton.topology.assignments import canonical

__all__ = ["run_steps"]

ABSENT = np.iinfo(np.int16).max  # node of a particle that is not revealed; sorts after every node
BEAM = 8  # hypotheses per event
EXPANSION = 8  # hypotheses kept before merging, in widths of the beam: several may lead to the same state

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
NodesOf = npt.NDArray[np.int16]


# -- what has been revealed --------------------------------------------------------------------------------


@dataclass
class Same:
    """The particles of one type: the revealed ones come first, sorted by their nodes."""

    nodes: NodesOf  # (B, K, L)
    taken: Bools  # (B, K): already has a parent
    probability: Floats  # (B, K): product of the steps that revealed it and its children

    @property
    def revealed(self) -> Bools:
        """(B, K)"""
        return np.asarray(self.nodes[:, :, 0] != ABSENT)

    @property
    def available(self) -> Bools:
        """(B, K): which are revealed and have no parent yet."""
        return self.revealed & ~self.taken

    def __getitem__(self, rows: Index) -> Same:
        return Same(self.nodes[rows], self.taken[rows], self.probability[rows])

    def add(self, rows: Index, nodes: NodesOf, probability: Floats) -> None:
        """Add one particle in some rows: nodes (R, L), probability (R,)."""
        at = rows, self.revealed.sum(axis=1)[rows]
        self.nodes[at], self.probability[at] = nodes, probability
        order = np.lexsort(np.moveaxis(self.nodes, 2, 0)[::-1], axis=-1)  # (B, K)
        self.nodes = np.take_along_axis(self.nodes, order[:, :, None], axis=1)
        self.taken = np.take_along_axis(self.taken, order, axis=1)
        self.probability = np.take_along_axis(self.probability, order, axis=1)


@dataclass
class State:
    """A batch of partial assignments, and the probability of the chain that led to each.

    A particle has no place in the decay tree until its parent is revealed: a topology may have a W both inside a
    top and at the root, and only the choice of the top decides which W is which. So a state keeps particles by
    type, and `place` puts them into slots.
    """

    topology: Topology
    of_type: dict[str, Same]
    free: Bools  # (B, N): nodes that some slot may take and that are neither padding nor used
    log_probability: Floats  # (B,)

    @classmethod
    def empty(cls, topology: Topology, nodes: Nodes) -> State:
        of_type = {}
        for name in topology.types:
            shape = len(nodes), len(topology.of_type(name))
            absent = np.full((*shape, len(topology.of_type(name)[0].slots)), ABSENT, dtype=np.int16)
            of_type[name] = Same(absent, np.zeros(shape, dtype=bool), np.ones(shape))
        return cls(topology, of_type, nodes.assignable(topology), np.zeros(len(nodes)))

    def __getitem__(self, rows: Index) -> State:
        """A copy of some rows, in that order."""
        of_type = {name: same[rows] for name, same in self.of_type.items()}
        return State(self.topology, of_type, self.free[rows], self.log_probability[rows])

    def place(self) -> tuple[npt.NDArray[np.int32], Bools]:
        """As an assignment (B, S), -1 where nothing is revealed, and which particles are revealed (B, P).

        Particles whose parent is unknown take the places that no revealed parent claims.
        """
        topology, rows = self.topology, len(self.free)
        assignment = np.full((rows, len(topology.slots)), -1, dtype=np.int32)
        revealed = np.zeros((rows, len(topology.particles)), dtype=bool)
        for name in reversed(topology.types):  # parents before children
            free = self.of_type[name].available
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
                assignment[at[:, None], slots[place]] = self.of_type[name].nodes[at, which[at, k]]
                revealed[at] |= below[place]
        return assignment, revealed


# -- the choices of a stage --------------------------------------------------------------------------------


class StepTree(NamedTuple):
    """Which particles can be revealed together: the assignments of a small decay tree.

    The tree has the particles of a stage. Particles found before, with numbers after those of the nodes, count as
    objects of it.
    """

    tables: SetTables
    products: dict[str, list[tuple[tuple[int, ...], str]]]  # type -> positions of each product, its type or ""
    first: dict[str, int]  # type -> number of its first particle

    @property
    def types(self) -> tuple[str, ...]:
        return self.tables.topology.event


@lru_cache(maxsize=64)
def step_tree(topology: Topology, types: tuple[str, ...], layout: Layout) -> StepTree:
    """The choices of particles of these types, one of each.

    >>> from pairton.topology import load_topology
    >>> tables = step_tree(load_topology("ttbar_allhad"), ("t", "t"), (8,)).tables
    >>> tables.topology.decays, tables.candidates["t"].objects.shape  # 8 b, 2 W
    ((('t', ('W found', 'b')),), (16, 2))
    """
    decays, products = dict(topology.decays), {}
    for name in dict.fromkeys(types):
        particle = topology.of_type(name)[0]
        own, below = iter(particle.own_slots), iter(topology.particles[child] for child in particle.children)
        products[name] = [
            (next(below).slots, each) if each in decays else ((next(own),), "")
            for each in decays.get(name, (name,))
        ]
    tables = set_tables(*_small(topology, types, layout), complete_only=True)
    return StepTree(tables, products, _first(topology, layout))


def _first(topology: Topology, layout: Layout) -> dict[str, int]:
    counts = [len(topology.of_type(name)) for name in topology.types]
    return dict(zip(topology.types, np.cumsum([sum(layout), *counts]).tolist(), strict=False))


def _small(topology: Topology, types: tuple[str, ...], layout: Layout) -> tuple[Topology, Allowed]:
    """The decay tree of a step, and the objects that each of its slots may take."""
    decays = dict(topology.decays)
    numbers = {kind: topology.nodes(kind, layout) for kind in topology.kinds}
    for name, first in _first(topology, layout).items():
        numbers[f"{name} found"] = range(first, first + len(topology.of_type(name)))
    small = {
        name: tuple(f"{product} found" if product in decays else product for product in decays[name])
        for name in types
        if name in decays
    }
    found = tuple((f"{name} found", f"{name} found") for name in topology.types)
    tree = Topology(topology.name, types, tuple(small.items()), objects=(*topology.objects, *found))
    return tree, tuple(tuple(numbers[slot.kind]) for slot in tree.slots)


def groups_of(stage: Stage) -> list[tuple[str, ...]]:
    """The types of the particles that a stage may reveal together."""
    return [(name,) for name in stage.types] if stage.any else [stage.types]


def most_objects(model: Any) -> int:
    """The largest number of objects per kind for which the sums of every step are possible."""
    topology = model.topology
    groups = {types for stage in topology.stages for types in groups_of(stage)}
    return largest_count(topology, lambda n: max(count_sums(*_small(topology, g, n), True) for g in groups))


def step_scores(tree: StepTree, state: State, outputs: Outputs) -> dict[str, Floats]:
    """Type -> (C, B): the own score of every candidate; -inf where it contradicts what was found."""
    topology, n_nodes = state.topology, outputs["edges"].shape[-1]
    potentials = not set(tree.types).isdisjoint(triplet_types(topology))
    flat = rows_first(outputs, ("edges", "triplets") if potentials else ("edges",))
    scores = {}
    for name, known in tree.tables.candidates.items():
        objects = known.objects.astype(np.intp)
        possible = np.empty((len(objects), len(state.free)), dtype=bool)
        possible[:] = ~state.of_type[name].revealed.all(axis=1)
        with_children = any(child for _, child in tree.products[name])
        at: dict[int, Index] = {}  # slot -> node: (C,), or (C, B) if it differs between rows
        for column, (slots, child) in zip(objects.T, tree.products[name], strict=True):
            if not child:
                possible &= state.free.T[column]
                at[slots[0]] = column[:, None] if with_children else column
                continue
            which, same = column - tree.first[child], state.of_type[child]
            possible &= same.available.T[which]
            inside = np.where(same.nodes == ABSENT, 0, same.nodes).astype(np.intp)
            at |= {slot: inside[:, which, k].T for k, slot in enumerate(slots)}
        score = summed_logits(logit_rows(topology, topology.forms[name], at, n_nodes), flat, len(objects))
        scores[name] = np.where(possible, score.astype(np.float64), -np.inf)
    return scores


class Choices(NamedTuple):
    """The most probable choices of a step, the best one first."""

    trees: list[StepTree]
    tree: Index  # (B, k): which tree the choice is of
    objects: npt.NDArray[np.int8]  # (B, k, slots of the tree)
    log_probability: Floats  # (B, k); -inf: there are fewer choices
    possible: Index  # (B,): number of possible choices; only if they are counted


def choices(
    state: State, stage: Stage, layout: Layout, outputs: Outputs, temperature: float, k: int, counted: bool
) -> Choices:
    """The k most probable choices of a stage in each row: of all its types together, or of any one of them."""
    trees = [step_tree(state.topology, types, layout) for types in groups_of(stage)]
    k = min(k, max(prod(len(tree.tables.candidates[name].objects) for name in tree.types) for tree in trees))
    sums, scores, objects, numbers = [], [], [], []
    width = max(len(tree.tables.topology.slots) for tree in trees)
    for tree in trees:
        own = {name: values / temperature for name, values in step_scores(tree, state, outputs).items()}
        sums.append(log_sums(tree.tables, own))
        ranked = best(tree.tables, own, None, k)
        scores.append(ranked.score)
        padding = (0, 0), (0, 0), (0, width - ranked.assignment.shape[2])
        objects.append(np.pad(ranked.assignment, padding, constant_values=-1))
        if counted:
            equal = {name: np.where(np.isneginf(values), -np.inf, 0.0) for name, values in own.items()}
            numbers.append(np.exp(log_sums(tree.tables, equal)).round())
    score = np.concatenate(scores, axis=1)  # (B, trees k)
    order = np.argsort(-score, axis=1, kind="stable")[:, :k]
    chances = np.take_along_axis(score, order, axis=1) - log_normaliser(np.concatenate(sums))[:, None]
    possible = np.concatenate(numbers).sum(axis=0).astype(np.intp) if counted else np.zeros(0, dtype=np.intp)
    chosen = np.concatenate(objects, axis=1)[np.arange(len(order))[:, None], order]
    return Choices(trees, order // k, chosen, chances, possible)


def reveal(state: State, few: Choices, row: Index, place: Index) -> State:
    """The rows `row` (R,) of a state, each with the particles of one choice: `place` (R,) in `few`."""
    grown = state[row]
    step = few.log_probability[row, place]
    grown.log_probability += step
    objects, tree_of = few.objects[row, place].astype(np.intp), few.tree[row, place]
    new = []  # added after all children are taken, since adding sorts
    for number, tree in enumerate(few.trees):
        (rows,) = np.nonzero(tree_of == number)
        for root in tree.tables.topology.roots:
            nodes = nodes_of(grown, tree, root, rows, objects[rows])
            probability = np.exp(step[rows])
            for slot, (_, child) in zip(root.slots, tree.products[root.type], strict=True):
                number_of = objects[rows, slot]
                if child:
                    which = number_of - tree.first[child]
                    probability *= grown.of_type[child].probability[rows, which]
                    grown.of_type[child].taken[rows, which] = True
                else:
                    grown.free[rows, number_of] = False
            new.append((root.type, rows, nodes, probability))
    for name, rows, nodes, probability in new:
        grown.of_type[name].add(rows, nodes, probability)
    return grown


def nodes_of(state: State, tree: StepTree, root: Particle, rows: Index, objects: Index) -> npt.NDArray[np.int16]:
    """(R, L): the nodes of a particle that a choice reveals, from the objects (R, slots of the tree)."""
    same = state.topology.of_type(root.type)[0]
    nodes = np.zeros((len(rows), len(same.slots)), dtype=np.int16)
    for slot, (slots, child) in zip(root.slots, tree.products[root.type], strict=True):
        inside = [position - same.slots[0] for position in slots]
        if child:
            nodes[:, inside] = state.of_type[child].nodes[rows, objects[:, slot] - tree.first[child]]
        else:
            nodes[:, inside[0]] = objects[:, slot]
    return nodes


# -- beams -------------------------------------------------------------------------------------------------
# Rows are sorted by event; `event` (B,) is the event of each row.


def most_probable(event: Index, log_probability: Floats, limit: int) -> tuple[Index, Index]:
    """Row and column of the `limit` most probable continuations of each event, sorted by event."""
    n_events, first = _starts(event)
    rank = np.arange(len(event)) - first[event]
    wide = np.full((n_events, int(rank.max()) + 1, log_probability.shape[1]), -np.inf)
    wide[event, rank] = log_probability
    flat = wide.reshape(n_events, -1)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :limit]
    owner, position = np.nonzero(np.isfinite(np.take_along_axis(flat, order, axis=1)))
    hypothesis, column = np.divmod(order[owner, position], log_probability.shape[1])
    return first[owner] + hypothesis, column


def merged(event: Index, state: State, width: int) -> tuple[Index, State]:
    """The `width` best hypotheses of each event, after equal states are merged into the most probable of them."""
    nodes = [same.nodes.reshape(len(event), -1) for same in state.of_type.values()]
    keys = np.ascontiguousarray(np.column_stack([event, *nodes]))
    _, group = np.unique(keys.view([("", keys.dtype)] * keys.shape[1]).ravel(), return_inverse=True)
    order = np.lexsort((np.arange(len(group)), -state.log_probability, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    leader = order[starts]  # the most probable of its group
    state.log_probability[leader] = np.logaddexp.reduceat(state.log_probability[order], starts)
    ranked = leader[np.lexsort((leader, -state.log_probability[leader], event[leader]))]
    _, first = _starts(event[ranked])
    kept = ranked[np.arange(len(ranked)) - first[event[ranked]] < width]
    return event[kept], state[kept]


def summed(event: Index, state: State) -> State:
    """The best hypothesis of each event; probabilities of particles are sums over all of its hypotheses."""
    _, first = _starts(event)
    answer = state[first]  # rows are sorted by event, then probability
    weight = np.exp(state.log_probability)
    for name, same in state.of_type.items():
        best = answer.of_type[name]
        holds = (best.nodes[event][:, :, None] == same.nodes[:, None]).all(axis=3).any(axis=2)  # (B, K)
        best.probability = np.zeros(best.probability.shape)
        np.add.at(best.probability, event, weight[:, None] * holds)
    return answer


def _starts(event: Index) -> tuple[int, Index]:
    """The number of events, and the first row of each."""
    count = np.bincount(event)
    return len(count), np.concatenate([[0], np.cumsum(count)[:-1]])


# -- decodings ---------------------------------------------------------------------------------------------


def run_steps(task: Task, refresh: bool = True, apart: bool = False) -> Decoded:
    """Reveal all stages.

    refresh   the network runs again before each stage, and sees what was revealed
    apart     one particle at a time, also in stages that reveal several together
    """
    topology, nodes, width = task.topology, task.nodes, task.width
    result = Decoded.empty(topology, len(nodes))
    state, event = State.empty(topology, nodes), np.arange(len(nodes))
    k = EXPANSION * width if width > 1 else LISTED if task.record else 1
    stages = [
        (part, temperature)
        for stage, temperature in zip(topology.stages, task.temperatures, strict=True)
        for part in ([Stage((name,)) for name in stage.types] if apart and not stage.any else [stage])
    ]
    for number, (stage, temperature) in enumerate(stages):
        if refresh or number == 0:
            asked = nodes[event] if width > 1 else nodes
            tokens = visible_tokens(topology, *state.place(), asked.mask)
            outputs = task.predict(asked, tokens)
        few = choices(state, stage, nodes.layout, outputs, temperature, k, task.record)
        if width > 1:
            row, place = most_probable(event, state.log_probability[:, None] + few.log_probability, k)
            event, state = merged(event[row], reveal(state, few, row, place), width)
            continue
        before, state = state, reveal(state, few, event, np.zeros(len(event), dtype=np.intp))
        if task.record:
            shown = *_particles(before, few), np.exp(few.log_probability), few.possible
            result.steps.append(Step(stage, tokens, outputs["edges"], *shown, *state.place()))
    if width > 1:
        state = summed(event, state)
    result.assignment[:] = canonical(topology, state.place()[0])
    result.event_probability[:] = np.exp(state.log_probability)
    for particle in topology.particles:
        same = state.of_type[particle.type]
        which = (same.nodes == result.assignment[:, None, list(particle.slots)]).all(axis=2).argmax(axis=1)
        result.particle_probability[:, particle.index] = same.probability[np.arange(len(which)), which]
    return result


def _particles(state: State, few: Choices) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int16]]:
    """The types (B, k, M) and the nodes (B, k, M, L) of the M particles of every choice."""
    topology = state.topology
    count = max(len(tree.types) for tree in few.trees)
    width = max(len(topology.of_type(name)[0].slots) for tree in few.trees for name in tree.types)
    types = np.full((*few.tree.shape, count), -1, dtype=np.int8)
    nodes = np.full((*types.shape, width), -1, dtype=np.int16)
    for number, tree in enumerate(few.trees):
        rows, place = np.nonzero((few.tree == number) & np.isfinite(few.log_probability))
        for m, root in enumerate(tree.tables.topology.roots):
            inside = nodes_of(state, tree, root, rows, few.objects[rows, place].astype(np.intp))
            nodes[rows, place, m, : inside.shape[1]] = inside
            types[rows, place, m] = topology.type_index(root.type)
    return types, nodes


for _name, _about, _run, _more in (
    ("steps", "stage by stage; the network sees what was revealed", run_steps, {}),
    ("one_shot", "stage by stage, from the first answer alone", partial(run_steps, refresh=False), {}),
    ("beam", "steps with several hypotheses", run_steps, {"fitted_as": "steps", "width": BEAM}),
    ("one_by_one", "steps, one particle each", partial(run_steps, apart=True), {"fitted_as": "steps"}),
):
    register_decoding(Decoding(_name, _about, _run, "stage", most_objects, **_more))
