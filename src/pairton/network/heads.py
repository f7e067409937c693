"""Heads: from embeddings to logits of edges and of triplets. All are symmetric by construction.

Shapes: B events, N jets, M pairs i <= j, T types, K types of three slots, F hidden width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairton.network.layers import RMSNorm
from pairton.network.symmetric import PairIndex

__all__ = ["EdgeHead", "HyperedgeHead", "PairReadout", "ThreeBodyPotential"]


class PairReadout(nn.Module):
    """One vector a pair: W x_i + W x_j, or V z_ij, or their sum: (B, M, F)."""

    def __init__(self, single_width: int | None, pair_width: int | None, hidden: int) -> None:
        super().__init__()
        self.single = self.pair = None
        if single_width is not None:
            self.single = nn.Sequential(RMSNorm(single_width), nn.Linear(single_width, hidden))
        if pair_width is not None:
            self.pair = nn.Sequential(RMSNorm(pair_width), nn.Linear(pair_width, hidden))

    def forward(self, x: Tensor, z: Tensor | None, index: PairIndex) -> Tensor:
        parts = []
        if self.single is not None:
            low, high = index.pairs(x.shape[1])
            projected = self.single(x)
            parts.append(projected.index_select(1, low) + projected.index_select(1, high))
        if self.pair is not None:
            parts.append(self.pair(z))
        vector: Tensor = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return vector


class EdgeHead(nn.Module):
    """A two-layer network for each type on the pair's vector: (B, M, F) -> (B, M, T)."""

    def __init__(self, types: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1)) for _ in range(types)
        )

    def forward(self, pairs: Tensor) -> Tensor:
        active = functional.silu(pairs)
        return torch.cat([layer(active) for layer in self.layers], dim=-1)


class ThreeBodyPotential(nn.Module):
    """u(z_ij, z_il, z_jl) = o . silu(U z_ij + V z_il + V z_jl), with U = V where all three jets are alike.

    The output starts at zero: training begins from the edges alone. (B, M, F) -> (B, K, N, N, N).
    """

    def __init__(self, symmetric: tuple[bool, ...], hidden: int) -> None:
        super().__init__()
        self.symmetric = symmetric
        self.sides = nn.ModuleList(nn.Linear(hidden, hidden * (1 if same else 2)) for same in symmetric)
        self.outs = nn.ModuleList(nn.Linear(hidden, 1, bias=False) for _ in symmetric)
        for out in self.outs:
            nn.init.zeros_(out.weight)  # type: ignore[arg-type]

    def forward(self, pairs: Tensor, index: PairIndex, n_jets: int) -> Tensor:
        low, high = index.pairs(n_jets)
        active = functional.silu(pairs)
        potentials = []
        for same, project, out in zip(self.symmetric, self.sides, self.outs, strict=True):
            projected = project(active)
            pair, side = (projected, projected) if same else projected.chunk(2, dim=-1)
            square = index.unpack(side, n_jets)  # (B, N, N, F)
            total = pair[:, :, None] + square.index_select(1, low) + square.index_select(1, high)  # (B, M, N, F)
            potentials.append(index.unpack(out(functional.silu(total))[..., 0], n_jets))
        return torch.stack(potentials, dim=1)


class HyperedgeHead(nn.Module):
    """HyPER's: a hyperedge of three jets is scored from their summed embeddings. (B, N, D) -> (B, K, N, N, N)."""

    def __init__(self, types: int, single_width: int, hidden: int) -> None:
        super().__init__()
        self.single = nn.Sequential(RMSNorm(single_width), nn.Linear(single_width, hidden))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1)) for _ in range(types)
        )

    def forward(self, x: Tensor, index: PairIndex) -> Tensor:
        n_jets = x.shape[1]
        low, high = index.pairs(n_jets)
        jets = self.single(x)
        pairs = jets.index_select(1, low) + jets.index_select(1, high)
        active = functional.silu(pairs[:, :, None] + jets[:, None])  # (B, M, N, F)
        scores = torch.cat([layer(active) for layer in self.layers], dim=-1)  # (B, M, N, K)
        return index.unpack(scores, n_jets).permute(0, 4, 1, 2, 3)
