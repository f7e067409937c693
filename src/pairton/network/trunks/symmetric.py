"""The symmetric pairformer. It keeps only pairs i <= j, which halves the cost; every update is symmetric in i, j.

Shapes: B events, N nodes, M = N (N + 1) / 2 pairs, H heads, D single width, P pair width. Singles x (B, N, D),
pairs z (B, M, P). Pair ij has the position j (j + 1) / 2 + i, which does not depend on N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairton.network.layers import HIDDEN, Attention, RMSNorm, SharedDropout, Transition
from pairton.network.trunks.pair_index import PairIndex
from pairton.network.trunks.trunk import Trunk

if TYPE_CHECKING:
    from pairton.network.config import NetworkConfig

__all__ = [
    "Symmetric",
    "SymmetricBlock",
    "SymmetricTriangleAttention",
    "SymmetricTriangleMultiplication",
    "triangle_product",
    "triangle_product_in_graph",
    "triangle_product_on_cpu",
]


def triangle_product(sides: Tensor, index: PairIndex, n_nodes: int) -> Tensor:
    """t_ij = sum_k (a_ik c_jk + c_ik a_jk): (B, M, 2 P), a and c concatenated, -> (B, M, P)."""
    a, c = index.unpack(sides, n_nodes).permute(0, 3, 1, 2).chunk(2, dim=1)  # (B, P, N, N)
    return index.fold((a @ c.transpose(-1, -2)).permute(0, 2, 3, 1))


def triangle_product_on_cpu(sides: Tensor, index: PairIndex, n_nodes: int) -> Tensor:
    """`triangle_product` as multiply-adds along channels: on a CPU, small matrix products take twice as long."""
    result: Tensor = _TriangleProduct.apply(sides, index, n_nodes)  # type: ignore[no-untyped-call]
    return result


def triangle_product_in_graph(sides: Tensor, index: PairIndex, n_nodes: int) -> Tensor:
    """`triangle_product` as one sum, without transposes and small matrix products, for exported graphs."""
    a, c = index.unpack(sides, n_nodes).chunk(2, dim=-1)  # (B, N, N, P)
    return index.fold((a[:, :, None] * c[:, None]).sum(dim=3))


class _TriangleProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sides: Tensor, index: PairIndex, n_nodes: int) -> Tensor:
        square = index.unpack(sides, n_nodes)
        ctx.save_for_backward(square)
        ctx.index = index
        a, c = square.chunk(2, dim=-1)  # (B, N, N, P)
        product = torch.zeros(a.shape, dtype=a.dtype)
        for k in range(n_nodes):
            product.addcmul_(a[:, :, k, None], c[:, None, :, k])
        return index.fold(product)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (square,) = ctx.saved_tensors
        a, c = square.chunk(2, dim=-1)
        n_nodes = square.shape[1]
        low, high = ctx.index.pairs(n_nodes)
        twice = 1 + (low == high).to(gradient.dtype)[:, None]  # t_ii = 2 p_ii
        g = ctx.index.unpack(gradient * twice, n_nodes)
        result = torch.zeros(square.shape, dtype=square.dtype)
        for_a, for_c = result.chunk(2, dim=-1)
        for k in range(n_nodes):
            for_a.addcmul_(g[:, :, k, None], c[:, k, None])
            for_c.addcmul_(g[:, :, k, None], a[:, k, None])
        return ctx.index.fold(result) / twice, None, None


def _product_for(x: Tensor) -> Callable[[Tensor, PairIndex, int], Tensor]:
    """The fastest product that can be used. While a graph is traced or compiled, n_nodes is not a number yet."""
    if torch._C._get_tracing_state() is not None:
        return triangle_product_in_graph
    eager = not torch.compiler.is_compiling() and x.device.type == "cpu" and x.dtype == torch.float32
    return triangle_product_on_cpu if eager else triangle_product


class SymmetricTriangleMultiplication(nn.Module):
    """t_ij = sum_k (a_ik c_jk + c_ik a_jk): the triangle update that keeps z_ij = z_ji."""

    def __init__(self, width: int, channels: int, gates: bool = True) -> None:
        super().__init__()
        self.gates = gates
        self.norm = RMSNorm(width)
        self.sides_and_gate = nn.Linear(width, 4 * channels + width if gates else 2 * channels, bias=False)
        self.norm_out = RMSNorm(channels)
        self.out = nn.Linear(channels, width, bias=False)

    def forward(self, z: Tensor, index: PairIndex, n_nodes: int, pair_mask: Tensor | None) -> Tensor:
        normal, weight, both = self.norm(z), self.sides_and_gate.weight, 2 * self.out.in_features
        sides = functional.linear(normal, weight[:both])  # several products give contiguous results
        if self.gates:
            sides = sides * torch.sigmoid(functional.linear(normal, weight[both : 2 * both]))
        if pair_mask is not None:
            sides = sides * pair_mask
        update: Tensor = self.out(self.norm_out(_product_for(sides)(sides, index, n_nodes)))
        if self.gates:
            update = update * torch.sigmoid(functional.linear(normal, weight[2 * both :]))
        return update


class SymmetricTriangleAttention(nn.Module):
    """Edge ij attends to the edges ik at i, biased by the third side jk; added to the same at j."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = RMSNorm(width)
        self.query_key_value_gate = nn.Linear(width, 4 * width, bias=False)
        self.bias = nn.Linear(width, heads, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, z: Tensor, index: PairIndex, n_nodes: int, mask: Tensor | None) -> Tensor:
        z = self.norm(z)
        batch, width = z.shape[0], z.shape[2]
        sides, gate = self.query_key_value_gate(z).split([3 * width, width], dim=-1)
        square = index.unpack(sides, n_nodes)  # (B, N, N, 3 P)
        rows = square.reshape(batch * n_nodes, n_nodes, 3 * self.heads, width // self.heads).transpose(1, 2)
        query, key, value = rows.chunk(3, dim=1)  # (B N, H, N, P / H)
        scores = (query @ key.transpose(-1, -2)) * (width // self.heads) ** -0.5
        bias = index.unpack(self.bias(z), n_nodes).permute(0, 3, 1, 2)  # (B, H, N, N)
        if mask is not None:
            bias = bias + HIDDEN * (~mask[:, None, None, :]).to(bias.dtype)
        scores = scores.reshape(batch, n_nodes, self.heads * n_nodes, n_nodes)
        scores = scores + bias.reshape(batch, 1, self.heads * n_nodes, n_nodes)
        weights = torch.softmax(scores, dim=-1).reshape(batch * n_nodes, self.heads, n_nodes, n_nodes)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, n_nodes, n_nodes, width)
        update: Tensor = self.out(index.fold(mixed) * torch.sigmoid(gate))
        return update


class SymmetricBlock(nn.Module):
    """Updates pairs from pairs, and singles, if there are any, by attention that is biased by pairs."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        pair, gates = config.pair_width, config.gates
        self.drop = SharedDropout(config.dropout, dim=1)
        self.multiply = None
        if config.triangle_multiplication:
            self.multiply = SymmetricTriangleMultiplication(pair, config.triangle_width or pair, gates)
        self.attend = SymmetricTriangleAttention(pair, config.pair_heads) if config.triangle_attention else None
        self.pair_transition = Transition(pair, config.transition, gates)
        self.single_stream = config.single_stream
        if config.single_stream:
            self.attention = Attention(config.single_width, config.single_heads, pair)
            self.single_transition = Transition(config.single_width, config.transition)

    def forward(
        self, x: Tensor, z: Tensor, mask: Tensor | None, pair_mask: Tensor | None, index: PairIndex
    ) -> tuple[Tensor, Tensor]:
        n_nodes = x.shape[1]
        if self.multiply is not None:
            z = z + self.drop(self.multiply(z, index, n_nodes, pair_mask))
        if self.attend is not None:
            z = z + self.drop(self.attend(z, index, n_nodes, mask))
        z = z + self.pair_transition(z)
        if self.single_stream:
            x = x + self.attention(x, index.unpack(z, n_nodes), mask)
            x = x + self.single_transition(x)
        return x, z


class Symmetric(Trunk):
    """Blocks on packed pairs."""

    name, pairs, features, needs_gates = "symmetric", "packed", "symmetric", False
    block = SymmetricBlock
