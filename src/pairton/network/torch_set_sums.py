"""`pairton.decoding.set_sums` in torch: the same tables, and differentiable.

Shapes: B events, C candidates of a type, P patterns, n sets of a factor, K ways to make a set. Scores are (C, B)
per type, pattern terms (P, B). A score of -inf excludes a candidate. It is replaced by a finite number, so that
gradients stay finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pairton.decoding.candidate_scores import score_terms
from pairton.decoding.set_tables import Hypotheses, Leaf, SetTables

__all__ = ["IMPOSSIBLE", "candidate_scores", "log_likelihood", "log_scores", "log_sums"]

IMPOSSIBLE = -1e30

Scores = Mapping[str, Tensor]


class _Index(NamedTuple):
    children: dict[str, list[tuple[str, Tensor]]]  # type -> type of each child, its candidate (C,)
    ways: list[list[Tensor]]  # per entry: (K, n) of candidates, or of left sets and of right sets


@lru_cache(maxsize=128)
def _index(tables: SetTables, device: torch.device) -> _Index:
    def moved(table: npt.NDArray[np.integer[Any]]) -> Tensor:
        return torch.as_tensor(table, device=device).long()

    children = {
        name: [(child, moved(rows)) for child, rows in known.children] for name, known in tables.candidates.items()
    }
    return _Index(children, [[moved(table) for table in entry.ways] for entry in tables.entries])


def candidate_scores(tables: SetTables, edges: Tensor, triplets: Tensor | None = None) -> dict[str, Tensor]:
    """Type -> (C, B): the score of every candidate, without its children, from logits of edges and triplets."""
    flat_edges = edges.reshape(len(edges), -1).T.contiguous()
    flat_triplets = None if triplets is None else triplets.reshape(len(edges), -1).T.contiguous()
    scores = {}
    for name, terms in _score_terms(tables, edges.shape[-1], edges.device).items():
        taken = [flat_edges.new_zeros(terms[0].shape[1], len(edges))]  # a candidate with one child has no edge
        taken += [flat_edges.index_select(0, row) for row in terms[0]]
        taken += [-flat_edges.index_select(0, row) for row in terms[1]]
        if flat_triplets is not None:
            taken += [flat_triplets.index_select(0, row) for row in terms[2]]
        scores[name] = torch.stack(taken).sum(dim=0)
    return scores


@lru_cache(maxsize=128)
def _score_terms(tables: SetTables, n_nodes: int, device: torch.device) -> dict[str, list[Tensor]]:
    """`score_terms` on a device."""
    terms = score_terms(tables, n_nodes)
    return {name: [torch.as_tensor(rows, device=device) for rows in parts] for name, parts in terms.items()}


def log_sums(tables: SetTables, scores: Scores, terms: Tensor | None = None) -> Tensor:
    """(P, B): log of the sum of exp S over all hypotheses of each pattern; about IMPOSSIBLE if there are none.

    >>> from pairton.decoding.set_tables import allowed_nodes, set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> tables = set_tables(hh4b, allowed_nodes(hh4b, 4))
    >>> log_sums(tables, {"H": torch.zeros(6, 1)}).exp()[:, 0].round().tolist()  # H + H, H, nothing
    [3.0, 6.0, 1.0]
    """
    some = next(iter(scores.values()))
    index = _index(tables, some.device)
    totals: dict[str, Tensor] = {}  # (C + 1, B): scores with those of all particles further down the tree
    for name, children in index.children.items():
        total = scores[name].clamp(min=IMPOSSIBLE)
        for child, rows in children:
            total = total + totals[child].index_select(0, rows)
        totals[name] = _with_row(total, IMPOSSIBLE)
    values: list[Tensor] = []  # (n + 1, B)
    for entry, ways in zip(tables.entries, index.ways, strict=True):
        factors = [totals[entry.type]] if isinstance(entry, Leaf) else [values[entry.left], values[entry.right]]
        taken = [factor.index_select(0, table.reshape(-1)) for factor, table in zip(factors, ways, strict=True)]
        term = taken[0] if len(taken) == 1 else taken[0] + taken[1]
        values.append(_with_row(term.view(*ways[0].shape, some.shape[1]).logsumexp(dim=0), IMPOSSIBLE))
    nothing = some.new_zeros(some.shape[1])
    sums = torch.stack([values[p.entry].logsumexp(dim=0) if p.entry >= 0 else nothing for p in tables.patterns])
    return sums if terms is None else sums + terms


def log_scores(scores: Scores, chosen: Hypotheses, terms: Tensor | None = None) -> Tensor:
    """(B,): the score S of one hypothesis per event, from `set_tables.hypotheses`; -inf if it is impossible."""
    some = next(iter(scores.values()))
    pattern = torch.as_tensor(chosen.pattern, device=some.device)
    total = some.new_zeros(some.shape[1])
    if terms is not None:
        total = total + terms.gather(0, pattern.clamp(min=0)[None])[0]
    for name, found in chosen.candidates.items():
        rows = torch.as_tensor(found, device=some.device)
        own = _with_row(scores[name], 0.0)  # the last row is for absent particles
        total = total + own.gather(0, torch.where(rows < 0, len(own) - 1, rows)).sum(dim=0)
    return total.masked_fill(pattern < 0, -torch.inf)


def log_likelihood(tables: SetTables, scores: Scores, chosen: Hypotheses, terms: Tensor | None = None) -> Tensor:
    """(B,): the log likelihood of one hypothesis per event. Its negative mean is the loss.

    >>> from pairton.decoding.set_tables import allowed_nodes, hypotheses, set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> tables = set_tables(hh4b, allowed_nodes(hh4b, 4))
    >>> truth = hypotheses(tables, np.array([[3, 0, -1, 2]]))  # one H
    >>> log_likelihood(tables, {"H": torch.zeros(6, 1)}, truth).exp().round(decimals=3).tolist()  # one of ten
    [0.10000000149011612]
    """
    return log_scores(scores, chosen, terms) - log_sums(tables, scores, terms).logsumexp(dim=0)


def _with_row(values: Tensor, last: float) -> Tensor:
    return torch.cat([values, values.new_full((1, values.shape[1]), last)])
