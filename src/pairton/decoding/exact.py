"""The exact likelihood of an event: the best hypothesis, with the probability of everything in it.

A model whose network has the output `patterns` knows events in which particles are missing: its sums run over all
hypotheses. Without it they run over complete assignments alone, and every probability holds for complete events.

Shapes: B events, N nodes, S slots, P particles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.candidate_scores import candidate_scores
from pairton.decoding.set_sums import Best, best, log_normaliser, marginals, probabilities
from pairton.decoding.set_tables import SetTables, allowed_nodes, hypotheses, set_tables
from pairton.decoding.terms import Outputs
from pairton.topology import Layout, Topology

__all__ = ["Sums", "packed", "rows_of", "sums_of"]

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


def rows_of(outputs: Outputs, rows: npt.NDArray[Any] | slice) -> Outputs:
    """The outputs for some events."""
    return {name: array[rows] for name, array in outputs.items()}


def packed(outputs: Outputs, order: Index) -> Outputs:
    """The outputs with edges and triplets of the nodes of `order` (B, n) alone."""
    rows = np.arange(len(order))[:, None, None]
    row, column = order[:, :, None], order[:, None, :]
    result = {**outputs, "edges": outputs["edges"].transpose(0, 2, 3, 1)[rows, row, column].transpose(0, 3, 1, 2)}
    if "triplets" in outputs:
        triplets = outputs["triplets"].transpose(0, 2, 3, 4, 1)
        at = rows[..., None], order[:, :, None, None], order[:, None, :, None], order[:, None, None, :]
        result["triplets"] = triplets[at].transpose(0, 4, 1, 2, 3)
    return result


@dataclass(frozen=True)
class Sums:
    """The sums over the hypotheses of some events of one layout."""

    tables: SetTables
    scores: dict[str, npt.NDArray[Any]]  # type -> (C, B)
    terms: npt.NDArray[Any] | None  # (patterns, B)
    log_sums: Floats  # (patterns, B)
    present: dict[str, Floats]  # type -> (C, B): probability of each candidate

    @property
    def log_normaliser(self) -> Floats:
        return log_normaliser(self.log_sums)

    @property
    def pattern_probability(self) -> Floats:
        """(B, patterns)."""
        return np.asarray(np.exp(self.log_sums - self.log_normaliser).T)

    def best_complete(self, k: int = 1) -> Best:
        """The most probable hypotheses in which every particle is present."""
        return best(self.tables, self.scores, self.terms, k, patterns=[0]).overall()

    def best(self, k: int = 1) -> Best:
        """The most probable hypotheses, complete or not."""
        return best(self.tables, self.scores, self.terms, k).overall()

    def probability(self, found: Best) -> Floats:
        """(B, k): of some hypotheses."""
        return np.asarray(np.exp(found.score - self.log_normaliser[:, None]))

    def particle_probability(self, assignment: npt.NDArray[np.integer[Any]]) -> Floats:
        """(B, P): of the particles of an assignment (B, S); NaN where one is absent."""
        return probabilities(self.tables, self.present, hypotheses(self.tables, assignment))


def sums_of(topology: Topology, layout: Layout, outputs: Outputs, temperature: float = 1.0) -> Sums:
    """Sum over all hypotheses of events of one layout, from the outputs of a network without padding."""
    tables = set_tables(topology, allowed_nodes(topology, layout), "patterns" not in outputs)
    scores = candidate_scores(tables, outputs)
    terms = np.ascontiguousarray(outputs["patterns"].T) if "patterns" in outputs else None
    if temperature != 1:
        scores = {name: values / np.float32(temperature) for name, values in scores.items()}
        terms = None if terms is None else terms / np.float32(temperature)
    return Sums(tables, scores, terms, *marginals(tables, scores, terms))
