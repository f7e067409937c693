"""Decodings in steps: each stage reveals particles, and the network sees what was revealed before it.

A step is an exact decoding of a small event, whose particles decay to free objects and to particles that were
found before. Candidates that contradict what was found have a score of -inf. `pairton.decoding.set_sums` finds the
best choices, and the sum over all of them.

Shapes: B rows, each one hypothesis of an event, N nodes, L slots of one particle, C candidates of a type, k
choices of a step, M particles that it reveals, R some rows.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.decoding.beam import merged, most_probable, summed
from pairton.decoding.candidate_scores import logit_rows, rows_first, summed_logits
from pairton.decoding.decodings import LISTED, Decoded, Decoding, Described, Step, Task, register_decoding
from pairton.decoding.graph import visible_tokens
from pairton.decoding.set_sums import best, log_normaliser, log_sums
from pairton.decoding.set_tables import SetTables, count_sums, largest_count, set_tables
from pairton.decoding.state import ABSENT, State
from pairton.decoding.terms import Outputs, triplet_types
from pairton.topology import Layout, Particle, Stage, Topology
from pairton.topology.assignments import canonical

BEAM = 8  # hypotheses per event
EXPANSION = 8  # hypotheses kept before merging, in widths of the beam: several may lead to the same state

Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


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


def _small(
    topology: Topology, types: tuple[str, ...], layout: Layout
) -> tuple[Topology, tuple[tuple[int, ...], ...]]:
    """The decay tree of a step, and the objects that each of its slots may take."""
    decays = dict(topology.decays)
    numbers = {kind: topology.nodes(kind, layout) for kind in topology.kinds}
    for name, first in _first(topology, layout).items():
        numbers[f"{name} found"] = range(first, first + len(topology.of_type(name)))
    small = Topology(
        topology.name,
        types,
        tuple(
            (name, tuple(f"{product} found" if product in decays else product for product in decays[name]))
            for name in dict.fromkeys(types)
            if name in decays
        ),
        objects=(*topology.objects, *((f"{name} found", f"{name} found") for name in topology.types)),
    )
    return small, tuple(tuple(numbers[slot.kind]) for slot in small.slots)


def groups_of(stage: Stage) -> list[tuple[str, ...]]:
    """The types of the particles that a stage may reveal together."""
    return [(name,) for name in stage.types] if stage.any else [stage.types]


def most_objects(model: Described) -> int:
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
        possible[:] = state.found[name].count < len(topology.of_type(name))
        with_children = any(child for _, child in tree.products[name])
        at: dict[int, Index] = {}  # slot -> node: (C,), or (C, B) if it differs between rows
        for column, (slots, child) in zip(objects.T, tree.products[name], strict=True):
            if not child:
                possible &= state.free.T[column]
                at[slots[0]] = column[:, None] if with_children else column
                continue
            which, same = column - tree.first[child], state.found[child]
            possible &= same.available.T[which]
            inside = np.where(same.nodes == ABSENT, 0, same.nodes).astype(np.intp)
            at |= {slot: inside[:, which, k].T for k, slot in enumerate(slots)}
        score = summed_logits(logit_rows(topology, name, at, n_nodes), flat, len(objects))
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
    most = max(prod(len(tree.tables.candidates[name].objects) for name in tree.types) for tree in trees)
    k, sums, ranked, numbers = min(k, most), [], [], []
    for tree in trees:
        scores = {name: s / temperature for name, s in step_scores(tree, state, outputs).items()}
        sums.append(log_sums(tree.tables, scores))
        ranked.append(best(tree.tables, scores, None, k).overall())
        if counted:
            equal = {name: np.where(np.isneginf(values), -np.inf, 0.0) for name, values in scores.items()}
            numbers.append(np.exp(log_sums(tree.tables, equal)).round())
    width = max(each.assignment.shape[2] for each in ranked)
    objects = np.full((len(state.free), len(trees), ranked[0].score.shape[1], width), -1, dtype=np.int8)
    for number, each in enumerate(ranked):
        objects[:, number, :, : each.assignment.shape[2]] = each.assignment
    score = np.concatenate([each.score for each in ranked], axis=1)
    order = np.argsort(-score, axis=1, kind="stable")[:, : ranked[0].score.shape[1]]
    tree_of = order // ranked[0].score.shape[1]
    chosen = objects.reshape(len(objects), -1, width)[np.arange(len(objects))[:, None], order]
    chances = np.take_along_axis(score, order, axis=1) - log_normaliser(np.concatenate(sums))[:, None]
    possible = np.concatenate(numbers).sum(axis=0).astype(np.intp) if counted else np.zeros(0, dtype=np.intp)
    return Choices(trees, tree_of, chosen, chances, possible)


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
                    probability *= grown.found[child].probability[rows, which]
                    grown.found[child].taken[rows, which] = True
                else:
                    grown.free[rows, number_of] = False
            new.append((root.type, rows, nodes, probability))
    for name, rows, nodes, probability in new:
        grown.found[name].add(rows, nodes, probability)
    return grown


def nodes_of(state: State, tree: StepTree, root: Particle, rows: Index, objects: Index) -> npt.NDArray[np.int16]:
    """(R, L): the nodes of a particle that a choice reveals, from the objects (R, slots of the tree)."""
    same = state.topology.of_type(root.type)[0]
    nodes = np.zeros((len(rows), len(same.slots)), dtype=np.int16)
    for slot, (slots, child) in zip(root.slots, tree.products[root.type], strict=True):
        inside = [position - same.slots[0] for position in slots]
        if child:
            nodes[:, inside] = state.found[child].nodes[rows, objects[:, slot] - tree.first[child]]
        else:
            nodes[:, inside[0]] = objects[:, slot]
    return nodes


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
        same = state.found[particle.type]
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
