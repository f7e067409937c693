"""The network of the paper's authors, as in their code, which differs from the paper's text (recipe `paper`).

Three trunks have its embedding, blocks and head: `authors` (the pairformer), `authors_biased` (a transformer that
fixed pairs bias) and `authors_transformer` (without pairs).

Shapes: B events, N jets, H heads, T types, D single width, P pair width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairton.decoding.graph import MASKED
from pairton.errors import ConfigError
from pairton.events.inputs import Inputs
from pairton.network.config import NetworkConfig
from pairton.network.features import LOG_SCALE
from pairton.network.heads import Embedding, Head
from pairton.network.layers import HIDDEN, SharedDropout, heads_last, split_heads
from pairton.network.trunks import PairIndex, Trunk, register_trunk
from pairton.network.trunks.trunk import Pairs
from pairton.topology import Topology

__all__ = ["Authors", "AuthorsBiased", "AuthorsTransformer"]

LEAST = 1e-10  # GeV, added before logarithms of energies
LEAST_PAIR = 1e-4  # added to squared distances and to masses, and the least squared mass and norm
EPSILON = torch.finfo(torch.float32).eps  # of the RMS norms: torch's default in single precision


def node_features(jets: Tensor) -> Tensor:
    """(B, N, 5), pt, eta, phi, energy, b-tag, -> (B, N, 6)."""
    pt, eta, phi, energy, tag = jets.unbind(dim=-1)
    logs = [torch.log(value + LEAST) - LOG_SCALE for value in (energy, pt)]
    return torch.stack([*logs, eta, torch.cos(phi), torch.sin(phi), tag], dim=-1)


def pair_features(features: Tensor) -> Tensor:
    """(B, N, 6) -> (B, N, N, 6): |delta eta|, delta phi, delta R, log mass, |delta cos|, |delta sin| normed."""
    log_energy, log_pt, eta, cosine, sine, _ = features.unbind(dim=-1)

    def difference(x: Tensor) -> Tensor:
        return x[:, :, None] - x[:, None]

    pt = torch.exp(log_pt + LOG_SCALE)
    parts = [torch.exp(log_energy + LOG_SCALE), pt * cosine, pt * sine, pt * torch.sinh(eta)]
    energy, x, y, z = (part[:, :, None] + part[:, None] for part in parts)
    mass = torch.sqrt((energy**2 - x**2 - y**2 - z**2).clamp(min=LEAST_PAIR))
    d_eta, d_cos, d_sin = difference(eta).abs(), difference(cosine), difference(sine)
    d_phi = torch.remainder(difference(torch.atan2(sine, cosine)) + math.pi, 2 * math.pi) - math.pi
    norm = torch.sqrt((d_cos**2 + d_sin**2).clamp(min=LEAST_PAIR))
    distance = torch.sqrt(d_eta**2 + d_phi**2 + LEAST_PAIR)
    log_mass = torch.log(mass + LEAST_PAIR) - LOG_SCALE
    return torch.stack([d_eta, d_phi, distance, log_mass, d_cos.abs() / norm, d_sin.abs() / norm], dim=-1)


class Norm(nn.Module):
    """x / rms(x), times a learned scale if there is one."""

    def __init__(self, width: int, epsilon: float = EPSILON, scaled: bool = True) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.scale = nn.Parameter(torch.ones(width)) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        normal = x / torch.sqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.epsilon)
        return normal if self.scale is None else normal * self.scale


class GatedLayers(nn.Module):
    """Two layers, the first with gates: B (A_1 x * silu(A_2 x))."""

    def __init__(self, width: int, factor: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, 2 * factor * width)
        self.contract = nn.Linear(factor * width, width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.expand(x).chunk(2, dim=-1)
        update: Tensor = self.contract(value * functional.silu(gate))
        return update


def two_layers(width: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())


class AuthorsEmbedding(nn.Module):
    """Jets and tokens -> singles (B, N, D) and pairs (B, N, N, P), or None without pairs."""

    def __init__(self, topology: Topology, config: NetworkConfig, inputs: Inputs) -> None:
        super().__init__()
        jets = tuple(item.field for item in inputs[topology.kinds[0]])
        if len(topology.kinds) > 1 or jets != ("btag",):
            raise ConfigError(
                f"network.architecture {config.architecture} takes jets with the input btag alone: set "
                "inputs: {jet: [btag]} and a topology of jets, or architecture: pairformer"
            )
        single, pair, n_types = config.single_width, config.pair_width, len(topology.types)
        self.jets = nn.Sequential(
            nn.Linear(6, single, bias=False), nn.SiLU(), GatedLayers(single, config.transition)
        )
        self.with_pairs = config.architecture != AuthorsTransformer.name
        if self.with_pairs:
            self.sides = nn.ModuleList(nn.Linear(6, pair, bias=False) for _ in range(2))
            self.of_sides = nn.Sequential(nn.LayerNorm(pair), nn.SiLU(), GatedLayers(pair, config.transition))
            self.pairs = two_layers(6, pair)
            # without tokens, the entry `MASKED` of each table is a constant that is learned
            self.tokens = nn.ModuleList(nn.Embedding(MASKED + 1, pair // n_types) for _ in range(n_types))

    def forward(self, objects: Mapping[str, Tensor], tokens: Tensor | None) -> tuple[Tensor, Tensor | None]:
        (jets,) = objects.values()
        return self.embed(node_features(jets), tokens)

    def embed(self, features: Tensor, tokens: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The embeddings of node features (B, N, 6) and tokens (B, T, N, N), None if all are masked."""
        x: Tensor = self.jets(features)
        if not self.with_pairs:
            return x, None
        first, second = (side(features) for side in self.sides)
        z = self.of_sides(first[:, :, None] + second[:, None]) + self.pairs(pair_features(features))
        if tokens is None:
            masked = torch.tensor(MASKED, device=z.device)
            constant = [table(masked) for table in self.tokens]
            return x, z + torch.cat(constant[::-1])
        shown = [table(tokens[:, k].long()) for k, table in enumerate(self.tokens)]
        return x, z + torch.cat(shown[::-1], dim=-1)  # parents come first


class TriangleMultiplication(nn.Module):
    """t_ij = sum_k a_ik b_jk (outgoing) or a_ki b_kj (incoming), times a Linear layer of a sigmoid."""

    def __init__(self, width: int, direction: Literal["outgoing", "incoming"]) -> None:
        super().__init__()
        self.equation = "bikc,bjkc->bijc" if direction == "outgoing" else "bkic,bkjc->bijc"
        self.norm = Norm(width)
        self.sides = nn.Linear(width, 4 * width, bias=False)  # a, its gate, b, its gate
        self.gate = nn.Linear(width, width)

    def forward(self, z: Tensor, mask: Tensor | None, pair_mask: Tensor | None) -> Tensor:
        y = self.norm(z)
        a, gate_a, b, gate_b = self.sides(y).chunk(4, dim=-1)
        a, b = a * torch.sigmoid(gate_a), b * torch.sigmoid(gate_b)
        if pair_mask is not None:
            a, b = a * pair_mask, b * pair_mask
        update: Tensor = self.gate(torch.sigmoid(y)) * torch.einsum(self.equation, a, b)
        return update


class TriangleAttention(nn.Module):
    """Edge ij attends to ik, biased by jk (starting), or to kj, biased by ki (ending)."""

    def __init__(self, width: int, heads: int, direction: Literal["starting", "ending"]) -> None:
        super().__init__()
        self.heads, self.ending = heads, direction == "ending"
        self.norm = Norm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.bias = nn.Linear(width, heads, bias=False)
        self.gate = nn.Linear(width, width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, z: Tensor, mask: Tensor | None, pair_mask: Tensor | None) -> Tensor:
        if self.ending:  # the same in the transposed matrix
            return self._starting(z.transpose(1, 2), mask).transpose(1, 2)
        return self._starting(z, mask)

    def _starting(self, z: Tensor, mask: Tensor | None) -> Tensor:
        y = self.norm(z)
        batch, n, _, width = y.shape
        rows = self.query_key_value(y).reshape(batch * n, n, 3 * width).chunk(3, dim=-1)
        query, key, value = (split_heads(part, self.heads) for part in rows)  # (B N, H, N, P / H)
        scores = (query @ key.transpose(-1, -2)) * (width // self.heads) ** -0.5
        bias = self.bias(y).permute(0, 3, 1, 2)  # (B, H, N, N): of jk, the same for every i
        if mask is not None:
            bias = bias + HIDDEN * (~mask[:, None, None, :]).to(bias.dtype)
        scores = scores.reshape(batch, n, self.heads * n, n) + bias.reshape(batch, 1, self.heads * n, n)
        weights = torch.softmax(scores, dim=-1).reshape(batch * n, self.heads, n, n)
        mixed = heads_last(weights @ value).reshape(batch, n, n, width)
        update: Tensor = self.out(mixed * torch.sigmoid(self.gate(y)))
        return update


class BiasedAttention(nn.Module):
    """Gated attention over jets with biases from pairs. The heads together have twice the width."""

    def __init__(self, width: int, heads: int, pair_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = Norm(width)
        self.query_key_value = nn.Linear(width, 3 * 2 * width, bias=False)
        self.bias = nn.Sequential(Norm(pair_width), nn.Linear(pair_width, heads, bias=False))
        self.gate = nn.Linear(width, 2 * width)
        self.out = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor, z: Tensor, mask: Tensor | None) -> Tensor:
        y = self.norm(x)
        query, key, value = self.query_key_value(y).chunk(3, dim=-1)
        mixed = attend(query, key, value, self.heads, self.bias(z).permute(0, 3, 1, 2), mask)
        update: Tensor = self.out(mixed * torch.sigmoid(self.gate(y)))
        return update


class PlainAttention(nn.Module):
    """Attention over jets with normed queries and keys."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.norm_query, self.norm_key = Norm(width // heads), Norm(width // heads)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, z: Tensor | None, mask: Tensor | None) -> Tensor:
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        query, key = self._normed(query, self.norm_query), self._normed(key, self.norm_key)
        update: Tensor = self.out(attend(query, key, value, self.heads, None, mask))
        return update

    def _normed(self, x: Tensor, norm: nn.Module) -> Tensor:
        """The norm of each head's part of x."""
        parts: Tensor = norm(x.reshape(*x.shape[:2], self.heads, -1))
        return parts.reshape(x.shape)


def attend(
    query: Tensor, key: Tensor, value: Tensor, heads: int, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Attention with `heads` heads over nodes, (B, N, D) -> (B, N, D)."""
    scores = split_heads(query, heads) @ split_heads(key, heads).transpose(-1, -2)  # (B, H, N, N)
    scores = scores * (query.shape[-1] // heads) ** -0.5
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores + HIDDEN * (~mask[:, None, None, :]).to(scores.dtype)
    return heads_last(torch.softmax(scores, dim=-1) @ split_heads(value, heads))


class PairformerBlock(nn.Module):
    """Updates pairs from pairs, and singles by attention that is biased by pairs."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        single, pair = config.single_width, config.pair_width
        self.drop_rows, self.drop_columns = (SharedDropout(config.dropout, dim=dim) for dim in (1, 2))
        self.outgoing = TriangleMultiplication(pair, "outgoing")
        self.incoming = TriangleMultiplication(pair, "incoming")
        self.starting = TriangleAttention(pair, config.pair_heads, "starting")
        self.ending = TriangleAttention(pair, config.pair_heads, "ending")
        self.pair_layers = two_layers(pair, pair)
        self.attention = BiasedAttention(single, config.single_heads, pair)
        self.single_layers = two_layers(single, single)

    def forward(
        self, x: Tensor, z: Tensor, mask: Tensor | None, pair_mask: Tensor | None, index: PairIndex
    ) -> tuple[Tensor, Tensor]:
        z = z + self.drop_rows(self.outgoing(z, mask, pair_mask))
        z = z + self.drop_rows(self.incoming(z, mask, pair_mask))
        z = z + self.drop_rows(self.starting(z, mask, pair_mask))
        z = z + self.drop_columns(self.ending(z, mask, pair_mask))
        z = z + self.pair_layers(z)
        x = x + self.attention(x, z, mask)
        x = x + self.single_layers(x)
        return x, z


class TransformerLayer(nn.Module):
    """Attention and gated layers. Both start nearly switched off: their learned scales are about 1e-5."""

    def __init__(self, config: NetworkConfig, attention: nn.Module) -> None:
        super().__init__()
        width = config.single_width
        self.norm = Norm(width, epsilon=1e-5, scaled=False)
        self.attention, self.layers = attention, GatedLayers(width, config.transition)
        self.attention_scale, self.layers_scale = (nn.Parameter(torch.rand(width) * 2e-5) for _ in range(2))

    def forward(
        self, x: Tensor, z: Tensor | None, mask: Tensor | None, pair_mask: Tensor | None, index: PairIndex
    ) -> tuple[Tensor, Tensor | None]:
        x = x + self.attention_scale * self.attention(self.norm(x), z, mask)
        x = x + self.layers_scale * self.layers(self.norm(x))
        return x, z


class AuthorsReadout(nn.Module):
    """One vector per pair i <= j, V h_i + V h_j with normed singles h: (B, M, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.single = nn.Sequential(Norm(width), nn.Linear(width, width, bias=False))

    def forward(self, x: Tensor, z: Tensor | None, index: PairIndex) -> Tensor:
        low, high = index.pairs(x.shape[1])
        projected = self.single(x)
        vectors: Tensor = projected.index_select(1, low) + projected.index_select(1, high)
        return vectors


class AuthorsEdges(Head):
    """Edge logits (B, T, N, N): one layer for all types."""

    name, axes = "edges", ("type", "node", "node")

    def __init__(self, n_types: int, width: int) -> None:
        nn.Module.__init__(self)
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, n_types))

    def forward(self, embedding: Embedding) -> Tensor:
        logits = self.layers(embedding.pairs)
        return embedding.index.unpack(logits, embedding.n_nodes).permute(0, 3, 1, 2)


@register_trunk
class Authors(Trunk):
    """The authors' pairformer. Without tokens, it is their one-shot network."""

    name = "authors"
    pairs: ClassVar[Pairs | None] = "ordered"

    @staticmethod
    def block(config: NetworkConfig) -> nn.Module:
        return PairformerBlock(config)

    @classmethod
    def parts(
        cls, topology: Topology, config: NetworkConfig, inputs: Inputs
    ) -> tuple[nn.Module, nn.Module, nn.Module]:
        embedding = AuthorsEmbedding(topology, config, inputs)
        return (
            embedding,
            AuthorsReadout(config.single_width),
            AuthorsEdges(len(topology.types), config.single_width),
        )


@register_trunk
class AuthorsBiased(Authors):
    """The authors' transformer, whose attention is biased by pairs as they were embedded."""

    name = "authors_biased"

    @staticmethod
    def block(config: NetworkConfig) -> nn.Module:
        return TransformerLayer(
            config, BiasedAttention(config.single_width, config.single_heads, config.pair_width)
        )


@register_trunk
class AuthorsTransformer(Authors):
    """The authors' transformer without pairs."""

    name = "authors_transformer"
    pairs = None

    @staticmethod
    def block(config: NetworkConfig) -> nn.Module:
        return TransformerLayer(config, PlainAttention(config.single_width, config.single_heads))
