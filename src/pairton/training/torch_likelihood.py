"""The torch twin of `pairton.decoding.likelihood`: the same tables, differentiable.

Shapes: B events, N nodes, C candidates, A assignments. Gathers run along rows of (C, B) and (A, B) tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pairton.decoding.likelihood import Enumeration, enumerate_assignments
from pairton.topology import Layout, Topology

__all__ = ["log_likelihood", "scores"]

Columns = tuple[Tensor, ...]


@lru_cache(maxsize=128)
def _tables(
    topology: Topology, layout: Layout, bound: int, device: torch.device
) -> tuple[list[tuple[str, Columns, Columns, Columns]], Columns]:
    """Root type -> flat indices of edges added, edges subtracted, potentials; and each root's candidate."""
    enumeration = enumerate_assignments(topology, layout, bound)

    def columns(table: npt.NDArray[np.integer[Any]]) -> Columns:
        return tuple(torch.as_tensor(table, device=device).long().T.contiguous())

    per_type = [
        (name, columns(added), columns(subtracted), columns(enumeration.triplet_tables[name]))
        for name, (added, subtracted) in enumeration.edge_tables.items()
    ]
    return per_type, columns(enumeration.roots)


def scores(enumeration: Enumeration, outputs: Mapping[str, Tensor]) -> Tensor:
    """(A, B): the sum of gains and potentials of every assignment."""
    bound = len(enumeration.assignments)
    per_type, roots = _tables(enumeration.topology, enumeration.layout, bound, outputs["edges"].device)
    batch = outputs["edges"].shape[0]
    edges = outputs["edges"].float().reshape(batch, -1).T.contiguous()
    triplets = None
    if "triplets" in outputs:
        triplets = outputs["triplets"].float().reshape(batch, -1).T.contiguous()
    candidates = {}
    for name, added, subtracted, potentials in per_type:
        terms = [edges.index_select(0, column) for column in added]
        terms += [-edges.index_select(0, column) for column in subtracted]
        if triplets is not None:
            terms += [triplets.index_select(0, column) for column in potentials]
        candidates[name] = torch.stack(terms).sum(dim=0)
    result = candidates[enumeration.root_types[0]].index_select(0, roots[0])
    for name, column in zip(enumeration.root_types[1:], roots[1:], strict=True):
        result = result + candidates[name].index_select(0, column)
    return result


def log_likelihood(
    enumeration: Enumeration, outputs: Mapping[str, Tensor], rows: Tensor, allowed: Tensor | None = None
) -> Tensor:
    """(B,): log P(truth); `rows` (B,) are the true assignments.

    allowed (B, A): for partly labelled events, the assignments that contain every known particle; theirs is the
    probability.
    """
    values = scores(enumeration, outputs)
    normaliser = torch.logsumexp(values, dim=0)
    if allowed is not None:
        return torch.logsumexp(values.masked_fill(~allowed.T, -torch.inf), dim=0) - normaliser
    return values.gather(0, rows[None])[0] - normaliser
