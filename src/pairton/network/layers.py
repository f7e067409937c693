"""Layers that every network shares. Shapes: B events, N nodes, H heads, D width, P pair width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Attention", "RMSNorm", "SharedDropout", "Transition", "heads_last", "split_heads"]

HIDDEN = -1e9  # added to attention scores of padding; finite, because -inf gives NaN in rows of padding


class RMSNorm(nn.Module):
    """x / rms(x), times a learned scale. ONNX has no such operator, but ONNX Runtime fuses this form into one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.scale


class Transition(nn.Module):
    """Two layers on each element: C (silu(A x) * B x), or C silu(A x + a) without gates."""

    def __init__(self, width: int, factor: int, gates: bool = True) -> None:
        super().__init__()
        self.gates = gates
        self.norm = RMSNorm(width)
        self.expand = nn.Linear(width, (1 + gates) * factor * width, bias=not gates)
        self.contract = nn.Linear(factor * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        if self.gates:
            gate, value = self.expand.weight.chunk(2)  # two products give contiguous results
            active = functional.silu(functional.linear(normal, gate)) * functional.linear(normal, value)
        else:
            active = functional.silu(self.expand(normal))
        update: Tensor = self.contract(active)
        return update


class SharedDropout(nn.Module):
    """Dropout with one mask for all entries along a dimension, for whole rows or columns of the pair matrix."""

    def __init__(self, rate: float, dim: int) -> None:
        super().__init__()
        self.rate, self.dim = rate, dim

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        shape = list(x.shape)
        shape[self.dim] = 1
        return x * functional.dropout(x.new_ones(shape), self.rate)


class Attention(nn.Module):
    """Gated self-attention over nodes, (B, N, D) -> (B, N, D). With `pair_width`, pairs bias the scores."""

    def __init__(self, width: int, heads: int, pair_width: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.norm = RMSNorm(width)
        self.query_key_value_gate = nn.Linear(width, 4 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.bias = None
        if pair_width is not None:
            self.bias = nn.Sequential(RMSNorm(pair_width), nn.Linear(pair_width, heads, bias=False))

    def forward(self, x: Tensor, pairs: Tensor | None, mask: Tensor | None) -> Tensor:
        query, key, value, gate = self.query_key_value_gate(self.norm(x)).chunk(4, dim=-1)
        scores = split_heads(query, self.heads) @ split_heads(key, self.heads).transpose(-1, -2)  # (B, H, N, N)
        scores = scores * (x.shape[-1] // self.heads) ** -0.5
        if self.bias is not None:
            scores = scores + self.bias(pairs).permute(0, 3, 1, 2)
        if mask is not None:
            scores = scores + HIDDEN * (~mask[:, None, None, :]).to(scores.dtype)
        mixed = torch.softmax(scores, dim=-1) @ split_heads(value, self.heads)
        update: Tensor = self.out(heads_last(mixed) * torch.sigmoid(gate))
        return update


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, N, D) -> (B, H, N, D / H)."""
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def heads_last(x: Tensor) -> Tensor:
    """(B, H, N, D / H) -> (B, N, D)."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])
