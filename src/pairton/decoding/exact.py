"""The exact likelihood of an event: the best hypothesis, and probabilities from sums over all hypotheses.

If the network has the output `patterns`, the sums run over all hypotheses, including those with missing particles.
Otherwise they run over complete assignments only, and every probability assumes a complete event.
The sums of a mixture run over the hypotheses of all its topologies. The answer belongs to the requested topology,
or else to the most probable one.

Shapes: B events, N nodes, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.candidate_scores import candidate_scores
from pairton.decoding.question import LEAST, Question
from pairton.decoding.set_sums import (
    Best,
    best,
    log_normaliser,
    log_scores,
    marginals,
    probabilities,
)
from pairton.decoding.set_tables import SetTables, allowed_nodes, hypotheses, set_tables
from pairton.decoding.terms import Outputs
from pairton.topology import Layout, Topology
from pairton.topology.mixtures import parts_of

__all__ = ["Sums", "expected_best", "packed", "rows_of", "sums_of"]

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
DEFAULT_QUESTION = Question()


def rows_of(outputs: Outputs, rows: npt.NDArray[Any] | slice) -> Outputs:
    """The outputs for some events."""
    return {name: array[rows] for name, array in outputs.items()}


def packed(outputs: Outputs, order: Index) -> Outputs:
    """The outputs with the edges and triplets of the nodes in `order` (B, n) only."""
    rows = np.arange(len(order))[:, None, None]
    row, column = order[:, :, None], order[:, None, :]
    result = {**outputs, "edges": outputs["edges"].transpose(0, 2, 3, 1)[rows, row, column].transpose(0, 3, 1, 2)}
    if "triplets" in outputs:
        triplets = outputs["triplets"].transpose(0, 2, 3, 4, 1)
        at = rows[..., None], order[:, :, None, None], order[:, None, :, None], order[:, None, None, :]
        result["triplets"] = triplets[at].transpose(0, 4, 1, 2, 3)
    return result


def expected_best(
    tables: SetTables,
    present: Mapping[str, Floats],
    terms: Floats | None = None,
    patterns: Sequence[int] | None = None,
    cost: float = 0.0,
) -> Best:
    """The disjoint candidates with the largest sum of probabilities: the most particles expected to be right.

    present    probability of each candidate, from `marginals`
    terms      -inf excludes a pattern, 0 allows it
    patterns   the patterns to consider; None: all
    cost       subtracted per candidate; 1/2 leaves out those that are more likely absent than present

    >>> from pairton.decoding.set_tables import allowed_nodes, set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> tables = set_tables(hh4b, allowed_nodes(hh4b, 4))  # candidates 01, 02, 12, 03, 13, 23
    >>> present = {"H": np.array([[0.6], [0.1], [0.1], [0.0], [0.0], [0.3]])}
    >>> [expected_best(tables, present, cost=cost).assignment[0, 0].tolist() for cost in (0.0, 0.5)]
    [[0, 1, 2, 3], [0, 1, -1, -1]]
    """
    gain = {name: values - cost for name, values in present.items()}
    return best(tables, gain, terms, patterns=patterns).overall()


@dataclass(frozen=True)
class Sums:
    """The sums over all hypotheses, for events of one layout."""

    tables: SetTables
    scores: dict[str, npt.NDArray[Any]]  # type -> (C, B)
    terms: npt.NDArray[Any] | None  # (patterns, B): pattern terms of the score
    log_sums: Floats  # (patterns, B)
    present: dict[str, Floats]  # type -> (C, B): probability of each candidate
    question: Question = field(default_factory=Question)

    @property
    def log_normaliser(self) -> Floats:
        return log_normaliser(self.log_sums)

    @property
    def pattern_probability(self) -> Floats:
        """(B, patterns): the probability of each pattern; NaN where no hypothesis is possible."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.exp(self.log_sums - self.log_normaliser).T)

    @property
    def topology_probability(self) -> Floats:
        """(B, topologies): the probability of each topology of a mixture; 1 without a mixture."""
        chances = self.pattern_probability
        parts = range(len(parts_of(self.tables.topology)))
        return np.stack([chances[:, self.tables.patterns_of(part)].sum(axis=1) for part in parts], axis=1)

    @property
    def leaves_out(self) -> bool:
        """Whether the answer may leave out particles: on request, or if no complete hypothesis is possible."""
        return all(map(self._leaves_out, range(len(parts_of(self.tables.topology)))))

    def _leaves_out(self, part: int) -> bool:
        complete = self.tables.patterns_of(part, complete=True)
        return self.question.allow_absent or bool(np.isneginf(self.log_sums[complete]).all())

    def best_complete(self, k: int = 1) -> Best:
        """The most probable hypotheses in which every particle is present."""
        complete = [number for number, pattern in enumerate(self.tables.patterns) if pattern.complete]
        return best(self.tables, self.scores, self.terms, k, complete).overall()

    def best(self, k: int = 1) -> Best:
        """The most probable hypotheses, complete or not."""
        return best(self.tables, self.scores, self.terms, k).overall()

    def listed(self, k: int) -> Best:
        """The k most probable hypotheses among those that may be the answer."""

        def find(part: int) -> Best:
            patterns = self.tables.patterns_of(part, complete=not self._leaves_out(part))
            return best(self.tables, self.scores, self.terms, k, patterns).overall()

        return self._in_one_topology(find)

    def answer(self) -> Best:
        """The requested answer, one hypothesis per event; its score is -inf where none is possible."""
        if self.question.answer == "event":
            return self.listed(1)
        present = {k: np.where(np.isneginf(self.scores[k]), -np.inf, p) for k, p in self.present.items()}
        possible = np.where(np.isneginf(self.log_sums), -np.inf, 0.0)

        def find(part: int) -> Best:
            leaves_out = self._leaves_out(part)
            patterns = self.tables.patterns_of(part, complete=not leaves_out)
            found = expected_best(self.tables, present, possible, patterns, LEAST if leaves_out else 0.0)
            chosen = hypotheses(self.tables, found.assignment[:, 0], part)
            score = log_scores(self.tables, self.scores, chosen, self.terms)
            return Best(found.assignment, score[:, None], found.pattern)

        return self._in_one_topology(find)

    def _in_one_topology(self, find: Callable[[int], Best]) -> Best:
        """Apply `find` to the requested topology, or to the most probable topology of each event."""
        names = [part.name for part in parts_of(self.tables.topology)]
        if self.question.topology is not None or len(names) == 1:
            return find(0 if self.question.topology is None else names.index(self.question.topology))
        found = [find(part) for part in range(len(names))]
        chosen, row = self.topology_probability.argmax(axis=1), np.arange(self.log_sums.shape[1])
        return Best(*(np.stack(arrays)[chosen, row] for arrays in zip(*found, strict=True)))

    def probability(self, found: Best) -> Floats:
        """(B, k): the probabilities of some hypotheses; NaN where none is possible."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.exp(found.score - self.log_normaliser[:, None]))

    def particle_probability(self, assignment: npt.NDArray[np.integer[Any]]) -> Floats:
        """(B, P): the probability of each particle of an assignment (B, S); NaN where it is absent."""
        return probabilities(self.tables, self.present, hypotheses(self.tables, assignment))


def sums_of(
    topology: Topology,
    layout: Layout,
    outputs: Outputs,
    temperature: float = 1.0,
    question: Question = DEFAULT_QUESTION,
) -> Sums:
    """Sum over all hypotheses, for events of one layout; the outputs of the network have no padding.

    The prior of the question multiplies the odds of patterns: its logarithm is added to the pattern terms.
    """
    tables = set_tables(topology, allowed_nodes(topology, layout), "patterns" not in outputs)
    scores = candidate_scores(tables, outputs)
    terms: npt.NDArray[Any] | None = None
    if "patterns" in outputs:
        terms = np.ascontiguousarray(outputs["patterns"].T)
    if temperature != 1:
        scores = {name: values / np.float32(temperature) for name, values in scores.items()}
        terms = None if terms is None else terms / np.float32(temperature)
    if terms is not None and question.prior:
        terms = terms + question.log_prior(topology)[:, None]
    return Sums(tables, scores, terms, *marginals(tables, scores, terms), question)
