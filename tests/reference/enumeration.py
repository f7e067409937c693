"""The exact likelihood by a list of all complete assignments: the slow reference of sums over sets.

    S(assignment) = sum over particles of their gain + sum of three-body potentials
    P(assignment) = exp S / sum over all assignments of exp S

Shapes: B events, N nodes, T types, S slots, A assignments, C candidates of a type, R root particles. Candidates of
a root type are scored first, (B, C); an assignment is then a sum of R gathers, (B, A).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from pairton.decoding.terms import Outputs, gain_terms, triplet_slots, triplet_types
from pairton.topology import JET, Layout, Particle, Topology
from pairton.topology.assignments import canonical, canonical_within

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Candidates:
    """Every way to choose the objects of one particle: nodes (C, slots of the type), sorted."""

    nodes: npt.NDArray[np.int8]
    n_nodes: int

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """One integer for each candidate, increasing."""
        return _pack(self.nodes, self.n_nodes)

    def find(self, nodes: Ints) -> npt.NDArray[np.intp]:
        """(B,): index of each row of canonical nodes, -1 where there is none."""
        return _find(self.keys, _pack(nodes, self.n_nodes), np.all((nodes >= 0) & (nodes < self.n_nodes), axis=1))


@dataclass(frozen=True)
class Enumeration:
    """All assignments of the objects of a layout, one representative each, and the tables that score them.

    >>> from pairton.topology import load_topology
    >>> enumeration = enumerate_assignments(load_topology("ttbar_allhad"), 6)
    >>> enumeration.assignments.shape, enumeration.candidates["t"].nodes.shape
    ((90, 6), (60, 3))
    >>> enumeration.assignments[0]
    array([0, 1, 2, 3, 4, 5], dtype=int8)
    """

    topology: Topology
    layout: Layout
    candidates: Mapping[str, Candidates]  # of every type
    assignments: npt.NDArray[np.int8]  # (A, S), canonical and sorted
    members: Mapping[str, npt.NDArray[np.int32]]  # type -> (A, particles of the type): their candidates
    roots: npt.NDArray[np.int32]  # (A, R): candidate of each root among those of its type

    @property
    def n_nodes(self) -> int:
        return sum(self.layout)

    @property
    def root_types(self) -> tuple[str, ...]:
        return tuple(root.type for root in self.topology.roots)

    @cached_property
    def edge_tables(self) -> dict[str, tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
        """Root type -> flat indices into (T, N, N) that are added, (C, .), and subtracted, (C, .)."""
        return {name: self._edge_table(name) for name in dict.fromkeys(self.root_types)}

    @cached_property
    def triplet_tables(self) -> dict[str, npt.NDArray[np.intp]]:
        """Root type -> flat indices into (K, N, N, N) of its candidates' potentials, (C, .)."""
        return {name: self._triplet_table(name) for name in dict.fromkeys(self.root_types)}

    @cached_property
    def membership(self) -> dict[str, sparse.csr_matrix]:
        """Type -> (C, A) of 0 and 1: which assignments contain a candidate."""
        tables = {}
        for name, member in self.members.items():
            columns = np.repeat(np.arange(len(member)), member.shape[1])
            ones = np.ones(member.size, dtype=np.float32)
            shape = (len(self.candidates[name].nodes), len(member))
            tables[name] = sparse.csr_matrix((ones, (member.ravel(), columns)), shape=shape)
        return tables

    def _below(self, type_name: str) -> tuple[Particle, list[Particle]]:
        root = next(p for p in self.topology.roots if p.type == type_name)
        return root, [p for p in self.topology.particles if root.index in self.topology.ancestry(p.index)]

    def _edge_table(self, type_name: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        root, below = self._below(type_name)
        nodes = self.candidates[type_name].nodes.astype(np.intp)
        added, subtracted = [], []
        for particle in below:
            layer = self.topology.type_index(particle.type) * self.n_nodes**2
            pairs, own = gain_terms(self.topology, particle)
            first = root.slots[0]
            added += [layer + nodes[:, i - first] * self.n_nodes + nodes[:, j - first] for i, j in pairs]
            subtracted += [layer + nodes[:, i - first] * (self.n_nodes + 1) for i in own]
        return _columns(added, len(nodes)), _columns(subtracted, len(nodes))

    def _triplet_table(self, type_name: str) -> npt.NDArray[np.intp]:
        root, below = self._below(type_name)
        nodes = self.candidates[type_name].nodes.astype(np.intp)
        types = triplet_types(self.topology)
        columns = []
        for particle in below:
            if particle.type in types:
                i, j, k = (nodes[:, slot - root.slots[0]] for slot in triplet_slots(self.topology, particle))
                layer = list(types).index(particle.type)
                columns.append(((layer * self.n_nodes + i) * self.n_nodes + j) * self.n_nodes + k)
        return _columns(columns, len(nodes))


# -- enumeration -------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def enumerate_assignments(topology: Topology, counts: int | Layout) -> Enumeration:
    """All assignments of the objects of a layout; made once and kept."""
    layout = topology.layout(counts)
    candidates: dict[str, Candidates] = {}
    for name in topology.types:
        nodes, _ = _combine(topology, topology.of_type(name)[0], candidates, layout)
        candidates[name] = Candidates(nodes, sum(layout))
    assignments, roots = _combine(topology, None, candidates, layout)
    members = {}
    for name in topology.types:
        found = [candidates[name].find(assignments[:, list(p.slots)]) for p in topology.of_type(name)]
        members[name] = np.stack(found, axis=1).astype(np.int32)
    return Enumeration(topology, layout, candidates, assignments, members, roots)


def _combine(
    topology: Topology, parent: Particle | None, candidates: Mapping[str, Candidates], layout: Layout
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32]]:
    """Disjoint choices of a particle's (or the event's) products: nodes (C, slots), choice of each product."""
    kinds = dict(topology.objects)
    nodes = np.zeros((1, 0), dtype=np.int8)
    choices = np.zeros((1, 0), dtype=np.int32)
    used = np.zeros(1, dtype=np.uint64)
    names: list[str] = []
    for name, is_particle in _product_names(topology, parent):
        if is_particle:
            options = candidates[name].nodes
        else:
            options = np.array(topology.nodes(kinds.get(name, JET), layout), dtype=np.int8)[:, None]
        masks = np.bitwise_or.reduce(np.uint64(1) << options.astype(np.uint64), axis=1)
        free = (used[:, None] & masks[None, :]) == 0
        if name in names:  # interchangeable: in increasing order only
            last = choices[:, len(names) - 1 - names[::-1].index(name)]
            free &= last[:, None] < np.arange(len(options))[None, :]
        row, option = np.nonzero(free)
        nodes = np.concatenate([nodes[row], options[option]], axis=1)
        choices = np.concatenate([choices[row], option[:, None].astype(np.int32)], axis=1)
        used = used[row] | masks[option]
        names.append(name)
    return nodes, choices


def _product_names(topology: Topology, parent: Particle | None) -> list[tuple[str, bool]]:
    """Products in the order of their slots: (name, is it a particle)."""
    decays = dict(topology.decays)
    if parent is None:
        return [(root.type, True) for root in topology.roots]
    if parent.type not in decays:  # a plain object at the root
        return [(parent.type, False)]
    return [(name, name in decays) for name in decays[parent.type]]


def index_of(enumeration: Enumeration, assignment: Ints) -> npt.NDArray[np.intp]:
    """(B,): the row of each assignment (B, S), however interchangeable products are ordered; -1 if incomplete."""
    same = canonical(enumeration.topology, np.asarray(assignment))
    keys = _pack(enumeration.assignments, enumeration.n_nodes)
    inside = np.all((same >= 0) & (same < enumeration.n_nodes), axis=1)
    return _find(keys, _pack(same, enumeration.n_nodes), inside)


def consistent(enumeration: Enumeration, assignment: Ints, revealed: Bools) -> Bools:
    """(B, A): assignments that contain every revealed particle (B, P) with its nodes in `assignment`."""
    topology = enumeration.topology
    allowed = np.ones((len(assignment), len(enumeration.assignments)), dtype=bool)
    for particle in topology.particles:
        (rows,) = np.nonzero(revealed[:, particle.index])
        if not len(rows):
            continue
        nodes = canonical_within(topology, particle, np.asarray(assignment)[rows])
        wanted = enumeration.candidates[particle.type].find(nodes)  # (rows,)
        member = enumeration.members[particle.type]  # (A, particles of the type)
        allowed[rows] &= (member[None, :, :] == wanted[:, None, None]).any(axis=2)
    return allowed


# -- scores and probabilities ------------------------------------------------------------------------------


def scores(enumeration: Enumeration, outputs: Outputs) -> Floats:
    """(B, A): the sum of gains and potentials of every assignment."""
    edges = outputs["edges"]
    flat = np.ascontiguousarray(edges.reshape(len(edges), -1).T)  # (T N N, B): gathers take whole rows
    per_type = {}
    for name, (added, subtracted) in enumeration.edge_tables.items():
        total = np.zeros((len(added), flat.shape[1]), dtype=np.float32)
        for column in added.T:
            total += flat[column]
        for column in subtracted.T:
            total -= flat[column]
        per_type[name] = total
    if "triplets" in outputs:
        potentials = np.ascontiguousarray(outputs["triplets"].reshape(len(edges), -1).T)
        for name, table in enumeration.triplet_tables.items():
            for column in table.T:
                per_type[name] += potentials[column]
    result = np.zeros((len(enumeration.assignments), flat.shape[1]), dtype=np.float32)
    for k, name in enumerate(enumeration.root_types):
        result += per_type[name].take(enumeration.roots[:, k], axis=0)
    return result.T


def log_normaliser(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(B,): log of the summed exponentials of (B, A); -inf entries are excluded assignments."""
    top = scores.max(axis=1)
    shift = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return np.asarray(shift + np.log(np.exp(scores - shift[:, None]).sum(axis=1, dtype=np.float64)))


def marginals(enumeration: Enumeration, scores: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Type -> (B, C): the probability that a candidate of the type is in the event, from scores (B, A).

    Each row sums to the number of particles of the type.
    """
    probability = np.exp(scores - log_normaliser(scores)[:, None])
    return {name: np.asarray((table @ probability.T).T) for name, table in enumeration.membership.items()}


def _pack(nodes: Ints, n_nodes: int) -> npt.NDArray[np.int64]:
    """One integer that sorts like the row of nodes."""
    key = np.zeros(len(nodes), dtype=np.int64)
    for column in nodes.T:
        key = key * n_nodes + column
    return key


def _find(keys: npt.NDArray[Any], wanted: npt.NDArray[Any], valid: Bools) -> npt.NDArray[np.intp]:
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(valid & (keys[index] == wanted), index, -1)


def _columns(columns: list[npt.NDArray[np.intp]], rows: int) -> npt.NDArray[np.intp]:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), dtype=np.intp)
