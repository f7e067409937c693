"""The score of a candidate: which logits of a network enter the gain of a particle and its three-body potential.

Shapes: B events, N nodes, T types, K types of three slots, C candidates of a type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.decoding.set_tables import SetTables
from pairton.topology import Form, Particle, Topology

__all__ = [
    "BRANCH",
    "Outputs",
    "ScoreTerms",
    "candidate_scores",
    "gain_terms",
    "logit_rows",
    "rows_first",
    "score_terms",
    "summed_logits",
    "triplet_slots",
    "triplet_types",
]

BRANCH = "branch."  # prefix of outputs of branches: branch.t1 is (B, N, ..., N), with one axis N per slot
# network outputs by name: edges (B, T, N, N), triplets (B, K, N, N, N), patterns (B, patterns), ...
Outputs = Mapping[str, npt.NDArray[np.float32]]
Index = npt.NDArray[np.intp]
Flat = tuple[npt.NDArray[Any], npt.NDArray[Any] | None]


def gain_terms(
    topology: Topology, particle: Particle, form: Form | None = None
) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """The terms of a particle's gain: pairs of slots whose logit is added, slots whose diagonal is subtracted.

    gain = sum_{i<j in U} s_ij + sum_{u in U, v in S} s_uv - sum_{u in U} s_uu, with U the particle's own objects,
    S those of its children, and s the edge logits of its type. Pairs between two children are added too, since
    only the parent makes them siblings. A merged particle has one object, which is its own. By default nothing is
    merged.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> gain_terms(ttbar, ttbar.particles[0])  # t1: b with the products of the W
    ([(0, 2), (1, 2)], (2,))
    """
    form = form or topology.forms[particle.type]
    own = (particle.merged_slot,) if form.merged else particle.own_slots
    groups = [
        tuple(topology.particles[child].span[k] for k in topology.forms[name].filled)
        for child, name in zip(particle.children, form.children, strict=False)
    ]
    groups += [(slot,) for slot in own]
    pairs = [
        (min(i, j), max(i, j))
        for k, group in enumerate(groups)
        for other in groups[k + 1 :]
        for i in group
        for j in other
    ]
    return sorted(pairs), own


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


# -- scores of candidates ------------------------------------------------------------------------------------


class ScoreTerms(NamedTuple):
    """Which logits make up the score of each candidate, as rows of flattened outputs: (terms, C) each."""

    added: Index  # rows of edges, flattened to (T N N, B)
    subtracted: Index  # rows of edges
    potentials: Index  # rows of triplets, flattened to (K N N N, B)


def score_terms(tables: SetTables, n_nodes: int) -> dict[str, ScoreTerms]:
    """The score terms of each type for outputs with `n_nodes` nodes; made once and kept with the tables.

    >>> from pairton.decoding.patterns import allowed_nodes
    >>> from pairton.decoding.set_tables import set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> terms = score_terms(set_tables(hh4b, allowed_nodes(hh4b, 4)), 4)["H"]
    >>> terms.added.tolist(), terms.subtracted[:, 0].tolist()  # pairs 01, 02, 12, 03, 13, 23; the diagonal
    ([[1, 2, 6, 3, 7, 11]], [0, 5])
    """
    if n_nodes not in tables.derived:
        result = {}
        for name, known in tables.candidates.items():
            form = tables.topology.forms[name]
            span = tables.topology.of_type(form.type)[0].span
            at = dict(zip(span, known.objects.T.astype(np.intp), strict=True))  # slot -> (C,)
            parts = (np.array(rows, dtype=np.intp) for rows in logit_rows(tables.topology, form, at, n_nodes))
            result[name] = ScoreTerms(*(rows.reshape(len(rows), len(known.objects)) for rows in parts))
        tables.derived[n_nodes] = result
    terms: dict[str, ScoreTerms] = tables.derived[n_nodes]
    return terms


def logit_rows(topology: Topology, form: Form, at: Mapping[int, Any], n_nodes: int) -> tuple[list[Any], ...]:
    """Which logits make up the own scores of particles of a form, as in `ScoreTerms`.

    at: the node of each slot, for some choices of nodes: (C,), or (C, B) if they differ between events; arrays of
    numpy or torch
    """
    particle, triplets = topology.of_type(form.type)[0], list(triplet_types(topology))
    layer = topology.type_index(form.type) * n_nodes
    pairs, own = gain_terms(topology, particle, form)
    added = [(layer + at[i]) * n_nodes + at[j] for i, j in pairs]
    subtracted = [(layer + at[i]) * n_nodes + at[i] for i in own]
    potentials = []
    if form.name in triplets:  # only if nothing is merged
        i, j, k = (at[slot] for slot in triplet_slots(topology, particle))
        potentials = [((triplets.index(form.name) * n_nodes + i) * n_nodes + j) * n_nodes + k]
    return added, subtracted, potentials


def rows_first(outputs: Outputs, names: Sequence[str] = ("edges", "triplets")) -> Flat:
    """The logits of edges (T N N, B) and triplets (K N N N, B), or None: indexing then takes whole rows."""
    flat = {
        name: np.ascontiguousarray(outputs[name].reshape(len(outputs[name]), -1).T)
        for name in names
        if name in outputs
    }
    return flat["edges"], flat.get("triplets")


def summed_logits(rows: Sequence[Sequence[Index] | Index], logits: Flat, count: int) -> npt.NDArray[np.float32]:
    """(C, B): the sum of the logits in these rows, from `logit_rows`, for `count` candidates."""
    edges, triplets = logits
    total = np.zeros((count, edges.shape[1]), dtype=np.float32)
    for row in rows[0]:
        total += _taken(edges, row)
    for row in rows[1]:
        total -= _taken(edges, row)
    if triplets is not None:
        for row in rows[2]:
            total += _taken(triplets, row)
    return total


def _taken(logits: npt.NDArray[Any], row: Index) -> npt.NDArray[Any]:
    return logits[row] if row.ndim == 1 else np.take_along_axis(logits, row, axis=0)


def candidate_scores(tables: SetTables, outputs: Outputs) -> dict[str, npt.NDArray[Any]]:
    """Form -> (C, B): the own score of every candidate, from logits of edges and triplets."""
    logits, terms = rows_first(outputs), score_terms(tables, outputs["edges"].shape[-1])
    return {name: summed_logits(rows, logits, rows.added.shape[1]) for name, rows in terms.items()}
