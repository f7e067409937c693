"""Exact decoding of networks that score each particle on its own, as SPANet does with one branch per particle.

A branch gives log probabilities of all choices of objects for its particle. The probability of an assignment is
the product over branches, among all assignments in which no object is used twice:

    P(objects of t1, objects of t2) = A1(objects of t1) A2(objects of t2) / sum over all disjoint choices

The branches of interchangeable particles differ, so here an assignment says which branch has which objects. The
answer is the most probable one. Its probability, and those of its particles, are sums over the exchanges of
interchangeable branches.

Shapes: B events, N nodes, S slots, P particles, C candidates of a type, K branches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.decodings import LISTED, Decoded, Decoding, Task, register_decoding, whole_event
from pairton.decoding.exact import Sums, by_layout, unpacked
from pairton.decoding.graph import masked_tokens
from pairton.decoding.patterns import exact_limit
from pairton.decoding.set_sums import log_scores, marginals
from pairton.decoding.set_tables import hypotheses, set_tables
from pairton.decoding.terms import BRANCH, Outputs
from pairton.errors import ModelError
from pairton.topology import Layout, Topology
from pairton.topology.assignments import canonical_within
from pairton.topology.extras import labels_of

__all__ = ["BRANCHES", "BranchPlan", "BranchSums", "branch_plan", "branch_sums"]

SMALL = 1e-6  # smallest probability that is turned into a logit
BRANCHES = "branches"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class BranchPlan:
    """A topology in which every branch has a type of its own, and its relation to the original topology."""

    names: tuple[str, ...]  # names of the branches: the particles of SPANet
    apart: Topology  # the same tree, but with one root per branch, each of a type of its own
    slots: tuple[int, ...]  # slot of the original topology for each slot of `apart`
    exchanges: tuple[tuple[int, ...], ...]  # orders of the slots of `apart` that exchange interchangeable branches
    places: tuple[tuple[int, ...], ...]  # original particle -> equivalent particles of `apart`, its own one first

    def assigned(self, assignment: Ints) -> Ints:
        """(..., S): an assignment to slots of the original topology, from one to slots of `apart`."""
        result = np.empty_like(assignment)
        result[..., list(self.slots)] = assignment
        return result


@lru_cache(maxsize=16)
def branch_plan(topology: Topology) -> BranchPlan:
    """The branches of a topology, from SPANet's names of its slots.

    >>> from pairton.topology import load_topology
    >>> plan = branch_plan(load_topology("ttbar_allhad"))
    >>> plan.names, plan.exchanges, plan.apart.event
    (('t1', 't2'), ((0, 1, 2, 3, 4, 5), (3, 4, 5, 0, 1, 2)), ('branch_0', 'branch_1'))
    """
    owner = [label.split("/")[0] for label in labels_of(topology, "spanet")]
    names, by_slots = tuple(dict.fromkeys(owner)), {p.slots: p for p in topology.particles}
    roots = []
    for name in names:
        slots_of_branch = tuple(slot for slot, other in enumerate(owner) if other == name)
        if slots_of_branch not in by_slots:
            raise ModelError(f"{topology.name} has no particle with the slots of {name}: give SPANet's event file")
        roots.append(by_slots[slots_of_branch])
    decays, own = dict(topology.decays), {root.index for root in roots}
    inside = [p.type for p in topology.particles if own & {*topology.ancestry(p.index)} and p.index not in own]
    first = {f"branch_{k}": decays[root.type] for k, root in enumerate(roots)}
    apart = Topology(
        f"{topology.name}, branches apart",
        tuple(first),
        tuple((first | {name: decays[name] for name in inside}).items()),
        objects=topology.objects,
    )
    slots = tuple(slot for root in roots for slot in root.slots)
    moved = {tuple(owner[slot] for slot in row) for row in topology.symmetries[:, [r.slots[0] for r in roots]]}
    exchanges = sorted(tuple(s for name in row for s in apart.roots[names.index(name)].slots) for row in moved)
    at = {frozenset(slots[s] for s in particle.slots): particle.index for particle in apart.particles}
    place = [at.get(frozenset(particle.slots), -1) for particle in topology.particles]
    alike = {name: [place[particle.index] for particle in topology.of_type(name)] for name in topology.types}
    places = tuple(
        () if index < 0 else tuple(dict.fromkeys([index, *alike[particle.type]]))
        for index, particle in zip(place, topology.particles, strict=True)
    )
    return BranchPlan(names, apart, slots, tuple(exchanges), places)


@dataclass(frozen=True)
class BranchSums:
    """The sums over all assignments to the slots of `plan.apart`, for events of one layout."""

    plan: BranchPlan
    sums: Sums

    def probability(self, assignment: Ints) -> Floats:
        """(B,): the probability of an assignment, summed over exchanges of interchangeable branches."""
        total, sums = np.zeros(len(assignment)), self.sums
        for exchange in self.plan.exchanges:
            score = log_scores(sums.tables, sums.scores, hypotheses(sums.tables, assignment[:, list(exchange)]))
            with np.errstate(invalid="ignore"):
                total += np.exp(score - sums.log_normaliser)
        return total

    def particle_probability(self, assignment: Ints) -> Floats:
        """(B, P): the probability of each particle, in any branch; NaN for a particle that contains branches."""
        rows, apart = np.arange(len(assignment)), self.plan.apart
        result = np.full((len(assignment), len(self.plan.places)), np.nan)
        for index, alike in enumerate(self.plan.places):
            if alike:
                objects = canonical_within(apart, apart.particles[alike[0]], assignment)
                result[:, index] = 0
            for name in dict.fromkeys(apart.particles[other].type for other in alike):
                which = self.sums.tables.candidates[name].find(objects)
                result[:, index] += np.where(which >= 0, self.sums.present[name][which, rows], 0.0)
        return result

    def edges(self, topology: Topology, n_nodes: int) -> npt.NDArray[np.float32]:
        """(B, T, N, N): logits that two objects share a particle; on the diagonal, that one is in none."""
        events = self.sums.log_sums.shape[1]
        chances = np.zeros((events, len(topology.types), n_nodes, n_nodes))
        for k, name in enumerate(topology.types):
            alike = self.plan.places[topology.of_type(name)[0].index]
            for other in dict.fromkeys(self.plan.apart.particles[place].type for place in alike):
                objects = self.sums.tables.candidates[other].objects.astype(np.intp)
                for i, j in product(range(objects.shape[1]), repeat=2):
                    at: Any = (slice(None), objects[:, i], objects[:, j])
                    np.add.at(chances[:, k], at, self.sums.present[other].T)
        diagonal = np.arange(n_nodes)
        chances[:, :, diagonal, diagonal] = 1 - chances[:, :, diagonal, diagonal]
        chances = np.clip(chances, SMALL, 1 - SMALL)
        return np.log(chances / (1 - chances)).astype(np.float32)


def branch_sums(topology: Topology, layout: Layout, outputs: Outputs, temperature: float = 1.0) -> BranchSums:
    """Sum over all assignments, for events of one layout; the outputs of the network have no padding."""
    plan = branch_plan(topology)
    allowed = tuple(tuple(topology.nodes(slot.kind, layout)) for slot in plan.apart.slots)
    tables = set_tables(plan.apart, allowed, True)
    events = len(next(iter(outputs.values())))
    scores = {name: np.zeros((len(c.objects), events), dtype=np.float32) for name, c in tables.candidates.items()}
    for name, root in zip(plan.names, plan.apart.roots, strict=True):
        chances = outputs[f"{BRANCH}{name}"]  # (B, N, ..., N)
        objects = tables.candidates[root.type].objects.astype(np.intp)
        flat = np.ravel_multi_index(tuple(objects.T), chances.shape[1:])
        scores[root.type] = np.ascontiguousarray(chances.reshape(events, -1)[:, flat].T) / np.float32(temperature)
    return BranchSums(plan, Sums(tables, scores, None, *marginals(tables, scores)))


def _run_branches(task: Task) -> Decoded:
    topology, nodes = task.topology, task.nodes
    result = Decoded.empty(topology, len(nodes))
    tokens = masked_tokens(topology, len(nodes), nodes.mask.shape[1])
    outputs = {name: array for name, array in task.predict(nodes, tokens).items() if name.startswith(BRANCH)}
    listed = np.full((len(nodes), LISTED, len(topology.slots)), -1, dtype=np.int16)
    chances = np.zeros((len(nodes), LISTED))
    edges = np.zeros(tokens.shape, dtype=np.float32)
    for layout, rows, order, part in by_layout(nodes, outputs):
        found = branch_sums(topology, layout, part, task.temperatures[0])
        ranked = found.sums.listed(LISTED if task.record else 1)
        assignments = found.plan.assigned(unpacked(ranked.assignment, order))  # (B, k, S)
        result.assignment[rows] = assignments[:, 0]
        result.event_probability[rows] = found.probability(ranked.assignment[:, 0])
        result.particle_probability[rows] = found.particle_probability(ranked.assignment[:, 0])
        if task.record:
            listed[rows] = assignments
            chances[rows] = found.sums.probability(ranked)
            at = rows[:, None, None, None], np.arange(tokens.shape[1])[:, None, None]
            edges[(*at, order[:, None, :, None], order[:, None, None, :])] = found.edges(topology, order.shape[1])
    result.exact[:] = True
    if task.record:
        result.steps.append(whole_event(topology, tokens, edges, listed, chances))
    return result


def _most_objects(model: Any) -> int:
    limit = exact_limit(branch_plan(model.topology).apart, complete_only=True)
    return min(limit, getattr(model.engine, "most_objects", limit))


register_decoding(
    Decoding(
        BRANCHES,
        "the most probable assignment, from networks of SPANet",
        _run_branches,
        limit=_most_objects,
        reads=BRANCH,
    )
)
