"""The paper's pairformer, on ordered pairs. Sub-layers and their order are those of AlphaFold 3, with RMSNorm.

Shapes: B events, N nodes, H heads, D single width, P pair width. Singles x (B, N, D), pairs z (B, N, N, P).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from pairton.network.layers import HIDDEN, Attention, RMSNorm, SharedDropout, Transition
from pairton.network.trunks.pair_index import PairIndex
from pairton.network.trunks.trunk import Trunk

if TYPE_CHECKING:
    from pairton.network.config import NetworkConfig

__all__ = ["Pairformer", "PairformerBlock", "TriangleAttention", "TriangleMultiplication"]

Direction = Literal["outgoing", "incoming"]


class TriangleMultiplication(nn.Module):
    """Updates edge ij from the two other sides of every triangle.

    outgoing: t_ij = sum_k a_ik b_jk      incoming: t_ij = sum_k a_ki b_kj
    """

    def __init__(self, width: int, channels: int, direction: Direction) -> None:
        super().__init__()
        self.equation = {"outgoing": "bikc,bjkc->bijc", "incoming": "bkic,bkjc->bijc"}[direction]
        self.norm = RMSNorm(width)
        self.sides = nn.Linear(width, 4 * channels, bias=False)
        self.gate = nn.Linear(width, width, bias=False)
        self.norm_out = RMSNorm(channels)
        self.out = nn.Linear(channels, width, bias=False)

    def forward(self, z: Tensor, pair_mask: Tensor | None) -> Tensor:
        z = self.norm(z)
        value, gate = self.sides(z).chunk(2, dim=-1)
        sides = value * torch.sigmoid(gate)
        if pair_mask is not None:
            sides = sides * pair_mask
        a, b = sides.chunk(2, dim=-1)
        t = torch.einsum(self.equation, a, b)
        update: Tensor = self.out(self.norm_out(t)) * torch.sigmoid(self.gate(z))
        return update


class TriangleAttention(nn.Module):
    """Edge ij attends to the edges ik at its start (or kj at its end), biased by the third side jk (or ki)."""

    def __init__(self, width: int, heads: int, direction: Direction) -> None:
        super().__init__()
        self.heads, self.direction = heads, direction
        self.norm = RMSNorm(width)
        self.query_key_value_gate = nn.Linear(width, 4 * width, bias=False)
        self.bias = nn.Linear(width, heads, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, z: Tensor, mask: Tensor | None) -> Tensor:
        if self.direction == "incoming":  # the ending node is the starting node of the transpose
            z = z.transpose(1, 2)
        z = self.norm(z)
        batch, n, width = z.shape[0], z.shape[1], z.shape[3]
        rows = self.query_key_value_gate(z)
        query, key, value, gate = rows.chunk(4, dim=-1)
        query, key, value = (self._rows(part) for part in (query, key, value))  # (B N, H, N, P / H)
        scores = (query @ key.transpose(-1, -2)) * (width // self.heads) ** -0.5
        bias = self.bias(z).permute(0, 3, 1, 2)  # (B, H, N, N): third side jk, the same for every i
        if mask is not None:
            bias = bias + HIDDEN * (~mask[:, None, None, :]).to(bias.dtype)
        scores = scores.reshape(batch, n, self.heads * n, n) + bias.reshape(batch, 1, self.heads * n, n)
        weights = torch.softmax(scores, dim=-1).reshape(batch * n, self.heads, n, n)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, n, n, width)
        update: Tensor = self.out(mixed * torch.sigmoid(gate))
        return update.transpose(1, 2) if self.direction == "incoming" else update

    def _rows(self, part: Tensor) -> Tensor:
        """(B, N, N, P) -> (B N, H, N, P / H): each row of the matrix is a sequence."""
        batch, n, _, width = part.shape
        return part.reshape(batch * n, n, self.heads, width // self.heads).transpose(1, 2)


class PairformerBlock(nn.Module):
    """Updates pairs from pairs, and singles by attention that is biased by pairs."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        pair = config.pair_width
        self.drop_rows, self.drop_columns = (SharedDropout(config.dropout, dim=dim) for dim in (1, 2))
        directions: tuple[Direction, Direction] = ("outgoing", "incoming")
        self.multiply = nn.ModuleList(
            TriangleMultiplication(pair, config.triangle_width or pair, direction)
            for direction in directions
            if config.triangle_multiplication
        )
        self.attend = nn.ModuleList(
            TriangleAttention(pair, config.pair_heads, direction)
            for direction in directions
            if config.triangle_attention
        )
        self.pair_transition = Transition(pair, config.transition)
        self.single_stream = config.single_stream
        if config.single_stream:
            self.attention = Attention(config.single_width, config.single_heads, pair)
            self.single_transition = Transition(config.single_width, config.transition)

    def forward(
        self, x: Tensor, z: Tensor, mask: Tensor | None, pair_mask: Tensor | None, index: PairIndex
    ) -> tuple[Tensor, Tensor]:
        for multiply in self.multiply:
            z = z + self.drop_rows(multiply(z, pair_mask))
        for attend, drop in zip(self.attend, (self.drop_rows, self.drop_columns), strict=False):
            z = z + drop(attend(z, mask))
        z = z + self.pair_transition(z)
        if self.single_stream:
            x = x + self.attention(x, z, mask)
            x = x + self.single_transition(x)
        return x, z


class Pairformer(Trunk):
    """Blocks on ordered pairs."""

    name, pairs = "pairformer", "ordered"
    block = PairformerBlock
