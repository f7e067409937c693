"""Pairs of nodes i <= j, packed, and as square matrices. Shapes: B events, N nodes, M = N (N + 1) / 2 pairs.

Pair ij has the position j (j + 1) / 2 + i, which does not depend on N.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pairton.events.nodes import MOST_OBJECTS

__all__ = ["PairIndex"]


class PairIndex(nn.Module):
    """Converts between packed pairs (B, M, ...) and square matrices (B, N, N, ...)."""

    square: Tensor  # (MOST_OBJECTS, MOST_OBJECTS): position of each pair
    low: Tensor  # (M,): the smaller node of each pair
    high: Tensor  # (M,): the larger

    def __init__(self) -> None:
        super().__init__()
        nodes = torch.arange(MOST_OBJECTS)
        low, high = torch.minimum(nodes[:, None], nodes), torch.maximum(nodes[:, None], nodes)
        square = high * (high + 1) // 2 + low
        pairs = torch.tensor([(i, j) for j in range(MOST_OBJECTS) for i in range(j + 1)])
        for name, table in (("square", square), ("low", pairs[:, 0]), ("high", pairs[:, 1])):
            self.register_buffer(name, table.contiguous(), persistent=False)

    def pairs(self, n_nodes: int) -> tuple[Tensor, Tensor]:
        """The nodes i and j, i <= j, of every pair, (M,) each."""
        count = n_nodes * (n_nodes + 1) // 2
        return self.low[:count], self.high[:count]

    def unpack(self, packed: Tensor, n_nodes: int) -> Tensor:
        """(B, M, ...) -> (B, N, N, ...)."""
        flat = packed.index_select(1, self.square[:n_nodes, :n_nodes].reshape(-1))
        return flat.reshape(packed.shape[0], n_nodes, n_nodes, *packed.shape[2:])

    def fold(self, matrix: Tensor) -> Tensor:
        """(B, N, N, ...) -> (B, M, ...): matrix + its transpose, at i <= j."""
        n_nodes = matrix.shape[1]
        low, high = self.pairs(n_nodes)
        flat = matrix.reshape(matrix.shape[0], n_nodes * n_nodes, *matrix.shape[3:])
        return flat.index_select(1, low * n_nodes + high) + flat.index_select(1, high * n_nodes + low)

    def pack(self, matrix: Tensor) -> Tensor:
        """(B, N, N, ...) -> (B, M, ...): the entries at i <= j."""
        n_nodes = matrix.shape[1]
        low, high = self.pairs(n_nodes)
        return matrix.reshape(matrix.shape[0], n_nodes * n_nodes, *matrix.shape[3:]).index_select(
            1, low * n_nodes + high
        )
