"""Pairs of nodes i <= j, packed, and as square matrices. Shapes: B events, N nodes, M = N (N + 1) / 2 pairs.

Pair ij has the position j (j + 1) / 2 + i, which does not depend on N.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

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

    def triples(self, n_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """The positions of the pairs ij, il and jl of all triples with i < j and a third node l, (R,) each."""
        nodes = torch.arange(n_nodes, device=self.low.device)
        low, high = (node[:, None] for node in self.pairs(n_nodes - 1))
        high = high + 1
        third = nodes[2:] - 2
        third = third + (third >= low)
        third = third + (third >= high)  # all nodes but i and j
        square = self.square[:n_nodes, :n_nodes].reshape(-1)
        pairs = low * n_nodes + high + 0 * third, low * n_nodes + third, high * n_nodes + third
        pair, first, second = (square.index_select(0, places.reshape(-1)) for places in pairs)
        return pair, first, second

    def unpack_triples(self, packed: Tensor, n_nodes: int) -> Tensor:
        """(B, R) -> (B, N, N, N): values of triples for i, j, l and j, i, l; zero where two nodes are the same."""
        third = torch.arange(n_nodes, device=packed.device)
        one, other = third[:, None, None], third[:, None]
        low, high = torch.minimum(one, other), torch.maximum(one, other)
        row = (high * (high - 1) // 2 + low) * (n_nodes - 2) + third - 1 * (third > low) - 1 * (third > high)
        different = (low < high) & (third != low) & (third != high)
        flat = functional.pad(packed, (1, 0)).index_select(1, ((row + 1) * different).reshape(-1))
        return flat.reshape(packed.shape[0], n_nodes, n_nodes, n_nodes)
