"""Scores of candidates for `pairton.decoding.set_sums`, from the outputs of a network.

The own score of a candidate is its gain plus, for types of three slots, its potential. It does not contain the
scores of the particles below it. Shapes: B events, N nodes, T types, C candidates of a type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.decoding.set_tables import SetTables
from pairton.decoding.terms import Outputs, gain_terms, triplet_slots, triplet_types

__all__ = ["ScoreTerms", "candidate_scores", "score_terms"]

Index = npt.NDArray[np.intp]


class ScoreTerms(NamedTuple):
    """Which logits make up the score of each candidate, as rows of flattened outputs: (terms, C) each."""

    added: Index  # rows of edges, flattened to (T N N, B)
    subtracted: Index  # rows of edges
    potentials: Index  # rows of triplets, flattened to (K N N N, B)


def score_terms(tables: SetTables, n_nodes: int) -> dict[str, ScoreTerms]:
    """The score terms of each type for outputs with `n_nodes` nodes; made once and kept with the tables.

    >>> from pairton.decoding.set_tables import allowed_nodes, set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> terms = score_terms(set_tables(hh4b, allowed_nodes(hh4b, 4)), 4)["H"]
    >>> terms.added.tolist(), terms.subtracted[:, 0].tolist()  # pairs 01, 02, 12, 03, 13, 23; the diagonal
    ([[1, 2, 6, 3, 7, 11]], [0, 5])
    """
    if n_nodes not in tables.derived:
        tables.derived[n_nodes] = _score_terms(tables, n_nodes)
    found: dict[str, ScoreTerms] = tables.derived[n_nodes]
    return found


def _score_terms(tables: SetTables, n_nodes: int) -> dict[str, ScoreTerms]:
    topology = tables.topology
    triplets = list(triplet_types(topology))
    result = {}
    for name, known in tables.candidates.items():
        particle = topology.of_type(name)[0]
        at = dict(zip(particle.slots, known.objects.T.astype(np.intp), strict=True))  # slot -> (C,)
        layer = topology.type_index(name) * n_nodes
        pairs, own = gain_terms(topology, particle)
        added = [(layer + at[i]) * n_nodes + at[j] for i, j in pairs]
        subtracted = [(layer + at[i]) * n_nodes + at[i] for i in own]
        potentials = []
        if name in triplets:
            i, j, k = (at[slot] for slot in triplet_slots(topology, particle))
            potentials = [((triplets.index(name) * n_nodes + i) * n_nodes + j) * n_nodes + k]
        count = len(known.objects)
        rows = (
            np.array(part, dtype=np.intp).reshape(len(part), count) for part in (added, subtracted, potentials)
        )
        result[name] = ScoreTerms(*rows)
    return result


def candidate_scores(tables: SetTables, outputs: Outputs) -> dict[str, npt.NDArray[Any]]:
    """Type -> (C, B): the own score of every candidate, from logits of edges and triplets."""
    events, n_nodes = len(outputs["edges"]), outputs["edges"].shape[-1]
    edges = np.ascontiguousarray(
        outputs["edges"].reshape(events, -1).T
    )  # (T N N, B): indexing then takes whole rows
    triplets = None
    if "triplets" in outputs:
        triplets = np.ascontiguousarray(outputs["triplets"].reshape(events, -1).T)
    scores = {}
    for name, terms in score_terms(tables, n_nodes).items():
        total = np.zeros((terms.added.shape[1], events), dtype=np.float32)
        for row in terms.added:
            total += edges[row]
        for row in terms.subtracted:
            total -= edges[row]
        if triplets is not None:
            for row in terms.potentials:
                total += triplets[row]
        scores[name] = total
    return scores
