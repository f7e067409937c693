"""The inside-outside algorithm of `pairton.decoding.set_sums` in torch, for the loss and for graphs.

Shapes: B events, C candidates of a form, P patterns, n sets of a factor, K ways to make a set. Scores are (C, B)
per form, pattern terms (P, B). A score of -inf excludes a candidate. It is replaced by a finite number, so that
gradients stay finite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from pairton.decoding.set_sums import blocked_sets
from pairton.decoding.set_tables import Hypotheses, Leaf, SetTables
from pairton.decoding.terms import score_terms

__all__ = [
    "IMPOSSIBLE",
    "candidate_scores",
    "inside",
    "log_likelihood",
    "log_scores",
    "log_sums",
    "rows_of",
    "totals_of",
]

IMPOSSIBLE = -1e30

Scores = Mapping[str, Tensor]

Tables = Mapping[str, Tensor]  # "child t 0": candidates (C,); "way 2 1": (K, n) of entry 2, for its right sets
Function = Callable[[Tensor], Tensor]


@lru_cache(maxsize=128)
def _index(tables: SetTables, device: torch.device) -> Tables:
    known = tables.candidates.items()
    index: dict[str, npt.NDArray[Any]] = {
        f"child {name} {k}": rows for name, c in known for k, (_, rows) in enumerate(c.children)
    }
    index |= {f"way {k} {side}": w for k, e in enumerate(tables.entries) for side, w in enumerate(e.ways)}
    return {name: torch.as_tensor(table, device=device).long() for name, table in index.items()}


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


def log_sums(
    tables: SetTables, scores: Scores, terms: Tensor | None = None, overlaps: Tensor | None = None
) -> Tensor:
    """(P, B): log of the sum of exp S over all hypotheses of each pattern; about IMPOSSIBLE if there are none.

    overlaps: (B, N, N), objects that are not in one hypothesis

    >>> from pairton.decoding.patterns import allowed_nodes
    >>> from pairton.decoding.set_tables import set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> tables = set_tables(hh4b, allowed_nodes(hh4b, 4))
    >>> log_sums(tables, {"H": torch.zeros(6, 1)}).exp()[:, 0].round().tolist()  # H + H, H, nothing
    [3.0, 6.0, 1.0]
    """
    some = next(iter(scores.values()))
    index = _index(tables, some.device)
    finite = {name: values.clamp(min=IMPOSSIBLE) for name, values in scores.items()}
    totals = totals_of(tables, finite, index, _padded)
    values = inside(tables, totals, index, lambda terms: terms.logsumexp(dim=0), _padded)
    known = None if overlaps is None else overlaps.numpy(force=True)
    for k, blocked in blocked_sets(tables, known).items():
        mask = torch.as_tensor(blocked, device=some.device)
        values[k] = torch.cat([values[k][:-1].masked_fill(mask, IMPOSSIBLE), values[k][-1:]])
    nothing = some.new_zeros(some.shape[1])
    sums = torch.stack([values[p.entry].logsumexp(dim=0) if p.entry >= 0 else nothing for p in tables.patterns])
    return sums if terms is None else sums + terms


def totals_of(tables: SetTables, scores: Scores, at: Tables, padded: Function) -> dict[str, Tensor]:
    """Type -> (C, B): scores with those of all particles further down the tree, and the row that `padded` adds."""
    totals: dict[str, Tensor] = {}
    for name, known in tables.candidates.items():
        total = scores[name]
        for k, (child, _) in enumerate(known.children):
            total = total + totals[child].index_select(0, at[f"child {name} {k}"])
        totals[name] = padded(total)
    return totals


def inside(tables: SetTables, totals: Scores, at: Tables, summed: Function, padded: Function) -> list[Tensor]:
    """The inside pass: the value (n, B) of every set of objects, for each entry of the tables.

    summed   the sum over the ways (K, n, B) to make a set: a logarithm of sums, or a maximum
    padded   adds the row that tables with sets of different numbers of ways need
    """
    values: list[Tensor] = []
    for k, entry in enumerate(tables.entries):
        factors = [totals[entry.form]] if isinstance(entry, Leaf) else [values[entry.left], values[entry.right]]
        taken = [rows_of(factor, at[f"way {k} {side}"]) for side, factor in enumerate(factors)]
        values.append(padded(summed(taken[0] if len(taken) == 1 else taken[0] + taken[1])))
    return values


def rows_of(values: Tensor, table: Tensor) -> Tensor:
    """(K, n, B): rows of `values` (m, B), by their numbers in a table (K, n)."""
    return values.index_select(0, table.reshape(-1)).reshape(table.shape[0], table.shape[1], values.shape[1])


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


def log_likelihood(
    tables: SetTables,
    scores: Scores,
    chosen: Hypotheses,
    terms: Tensor | None = None,
    overlaps: Tensor | None = None,
) -> Tensor:
    """(B,): the log likelihood of one hypothesis per event. Its negative mean is the loss.

    >>> import numpy as np
    >>> from pairton.decoding.patterns import allowed_nodes
    >>> from pairton.decoding.set_tables import hypotheses, set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> tables = set_tables(hh4b, allowed_nodes(hh4b, 4))
    >>> truth = hypotheses(tables, np.array([[3, 0, -1, 2]]))  # one H
    >>> log_likelihood(tables, {"H": torch.zeros(6, 1)}, truth).exp().round(decimals=3).tolist()  # one of ten
    [0.10000000149011612]
    """
    return log_scores(scores, chosen, terms) - log_sums(tables, scores, terms, overlaps).logsumexp(dim=0)


def _padded(values: Tensor) -> Tensor:
    return _with_row(values, IMPOSSIBLE)


def _with_row(values: Tensor, last: float) -> Tensor:
    return torch.cat([values, values.new_full((1, values.shape[1]), last)])
