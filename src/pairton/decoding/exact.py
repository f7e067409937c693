"""The exact likelihood of an event: the best hypothesis, and probabilities from sums over all hypotheses.

If the network has the output `patterns`, the sums run over all hypotheses, including those with missing particles.
Otherwise they run over complete assignments only, and every probability assumes a complete event.
The sums of a mixture run over the hypotheses of all its topologies. The answer belongs to the most probable one.

Shapes: B events, N nodes, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.decodings import Decoded, Decoding, Task, register_decoding
from pairton.decoding.graph import masked_tokens
from pairton.decoding.patterns import LEAST, Question, allowed_nodes, exact_limit
from pairton.decoding.set_sums import Best, best, log_normaliser, log_scores, marginals, probabilities
from pairton.decoding.set_tables import SetTables, hypotheses, set_tables
from pairton.decoding.terms import BRANCH, Outputs, candidate_scores
from pairton.errors import ModelError
from pairton.events.nodes import Nodes
from pairton.topology import Layout, Topology
from pairton.topology.vocabulary import parts_of

__all__ = ["Sums", "by_layout", "packed", "sums_of", "unpacked"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
DEFAULT_QUESTION = Question()


# -- batches of events without padding ---------------------------------------------------------------------


def by_layout(nodes: Nodes, outputs: Outputs) -> Iterator[tuple[Layout, Index, Index, Outputs]]:
    """For each layout its rows, their nodes without padding (R, n), and the outputs for these nodes."""
    layouts, group = np.unique(nodes.counts, axis=0, return_inverse=True)
    for k, layout in enumerate(layouts):
        (rows,) = np.nonzero(group.reshape(-1) == k)
        order = np.argsort(~nodes.mask[rows], axis=1, kind="stable")[:, : layout.sum()]
        part: Outputs = {name: array[rows] for name, array in outputs.items()}
        if order.shape[1] < nodes.mask.shape[1]:
            part = packed(part, order)
        yield tuple(layout.tolist()), rows, order, part


def packed(outputs: Outputs, order: Index) -> Outputs:
    """The outputs for the nodes in `order` (B, n) only, along every axis of edges, triplets and branches."""
    result = dict(outputs)
    for name, array in outputs.items():
        first = 2 if name in ("edges", "triplets") else 1 if name.startswith(BRANCH) else array.ndim
        for axis in range(first, array.ndim):
            shape = [-1 if k in (0, axis) else 1 for k in range(array.ndim)]
            shape[0] = len(order)
            result[name] = np.take_along_axis(result[name], order.reshape(shape), axis=axis)
    return result


def unpacked(assignment: npt.NDArray[np.integer[Any]], order: Index) -> Index:
    """(B, k, S): the nodes of the batch from positions in `order` (B, n), the nodes of each event; -1 stays."""
    taken = np.take_along_axis(order[:, None], np.maximum(assignment, 0).astype(np.intp), axis=2)
    return np.where(assignment >= 0, taken, -1)


# -- sums --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sums:
    """The sums over all hypotheses, for events of one layout."""

    tables: SetTables
    scores: dict[str, npt.NDArray[Any]]  # form -> (C, B)
    terms: npt.NDArray[Any] | None  # (patterns, B): pattern terms of the score
    log_sums: Floats  # (patterns, B)
    present: dict[str, Floats]  # form -> (C, B): probability of each candidate
    question: Question = field(default_factory=Question)
    overlaps: Bools | None = None  # (B, N, N): objects that are not in one hypothesis

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

    def listed(self, k: int) -> Best:
        """The k most probable hypotheses among those that may be the answer."""
        return self._in_one_topology(
            lambda part, patterns: best(self.tables, self.scores, self.terms, k, patterns, self.overlaps)
        )

    def answer(self) -> Best:
        """The requested answer, one hypothesis per event; its score is -inf where none is possible."""
        return self.listed(1) if self.question.answer == "event" else self._in_one_topology(self._most_right)

    def _most_right(self, part: int, patterns: list[int]) -> Best:
        """The disjoint candidates with the largest sum of probabilities: the most particles expected to be right.

        If particles may be left out, the sum is that of probability - 1/2: candidates that are more likely absent
        than present are left out.
        """
        cost = LEAST if self._leaves_out(part) else 0.0
        excluded = {name: np.isneginf(scores) for name, scores in self.scores.items()}
        gain = {name: np.where(excluded[name], -np.inf, p - cost) for name, p in self.present.items()}
        possible = np.where(np.isneginf(self.log_sums), -np.inf, 0.0)
        most = best(self.tables, gain, possible, patterns=patterns, overlaps=self.overlaps)
        same = hypotheses(self.tables, most.assignment[:, 0], part)
        return most._replace(score=log_scores(self.tables, self.scores, same, self.terms)[:, None])

    def _in_one_topology(self, find: Callable[[int, list[int]], Best]) -> Best:
        """`find` with the patterns of the most probable topology of each event."""
        parts = range(len(parts_of(self.tables.topology)))
        each = [find(part, self.tables.patterns_of(part, complete=not self._leaves_out(part))) for part in parts]
        if len(each) == 1:
            return each[0]
        part, row = self.topology_probability.argmax(axis=1), np.arange(self.log_sums.shape[1])
        return Best(*(np.stack(arrays)[part, row] for arrays in zip(*each, strict=True)))

    def probability(self, ranked: Best) -> Floats:
        """(B, k): the probabilities of some hypotheses; NaN where none is possible."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.exp(ranked.score - self.log_normaliser[:, None]))

    def particle_probability(self, assignment: npt.NDArray[np.integer[Any]]) -> Floats:
        """(B, P): the probability of each particle of an assignment (B, S); NaN where it is absent."""
        return probabilities(self.tables, self.present, hypotheses(self.tables, assignment))


def sums_of(
    topology: Topology,
    layout: Layout,
    outputs: Outputs,
    temperature: float = 1.0,
    question: Question = DEFAULT_QUESTION,
    overlaps: Bools | None = None,
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
    return Sums(tables, scores, terms, *marginals(tables, scores, terms, overlaps), question, overlaps)


def run_exact(task: Task) -> Decoded:
    """The best hypothesis, with probabilities from sums over all hypotheses."""
    topology, nodes, question = task.topology, task.nodes, task.question
    result = Decoded.empty(topology, len(nodes), question.best)
    outputs = task.predict(nodes, masked_tokens(topology, len(nodes), nodes.mask.shape[1]))
    if "patterns" not in outputs and (question.prior or question.allow_absent):
        raise ModelError(
            "the network knows complete events only, so it can neither leave particles out nor take a prior: "
            "use a model that was trained with network.patterns"
        )
    for layout, rows, order, part in by_layout(nodes, outputs):
        if "patterns" not in outputs and not nodes[rows[:1]].can_fill(topology).all():
            continue
        overlaps = nodes.overlaps
        if overlaps is not None:
            overlaps = overlaps[rows[:, None, None], order[:, :, None], order[:, None]]
        sums = sums_of(topology, layout, part, task.temperatures[0], question, overlaps)
        answer = sums.answer()
        # the map preserves the order of nodes, so the canonical order stays
        result.assignment[rows] = unpacked(answer.assignment, order)[:, 0]
        result.event_probability[rows] = sums.probability(answer)[:, 0]
        result.particle_probability[rows] = sums.particle_probability(answer.assignment[:, 0])
        if result.best is not None and result.best_probability is not None:
            listed = sums.listed(question.best)
            result.best[rows] = unpacked(listed.assignment, order)
            result.best_probability[rows] = sums.probability(listed)
        if "patterns" in outputs:
            result.pattern_probability[rows] = sums.pattern_probability
        if topology.alternatives:
            result.topology_probability[rows] = sums.topology_probability
        result.exact[rows] = True
    return result


def _limit(model: Any) -> int:
    return exact_limit(model.topology, complete_only="patterns" not in model.info.outputs)


def _check(model: Any) -> None:
    """Raise ModelError if the sums cannot hold as many objects as a tree has slots."""
    topology, limit = model.topology, _limit(model)
    if limit < (slots := max(topology.slots_per_kind)):
        raise ModelError(
            f"{topology.name} has {slots} slots of one kind, but sums over all its assignments hold up to {limit} "
            "objects: leave out some of its particles"
        )


register_decoding(
    Decoding(
        "exact",
        "the best of all assignments, in one pass",
        run_exact,
        limit=_limit,
        check=_check,
        knows_missing=True,
    )
)
