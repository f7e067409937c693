"""Heads compute the named outputs of a network from its embeddings.

The name of a head is the name of its output in torch, in ONNX files and in engines. A head that you add also has a
loss on columns of the events. Register it with `register_head`, and name it in a recipe:

    heads: {my_head: 0.1}  # name: weight of its loss

Shapes: B events, N nodes, M pairs i <= j, T types, K types of three slots, D single width, F pair width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairton._common.configuration import register
from pairton.decoding.patterns import plan_of
from pairton.decoding.views import PRESENCE, presence_names
from pairton.errors import ConfigError, nearest, shown
from pairton.network.layers import RMSNorm
from pairton.network.trunks import PairIndex
from pairton.topology import Topology

__all__ = [
    "HEADS",
    "EdgeHead",
    "Embedding",
    "Head",
    "ObjectSumHead",
    "PairReadout",
    "PatternHead",
    "PresenceHead",
    "ThreeBodyPotential",
    "get_head",
    "register_head",
]


@dataclass(frozen=True)
class Embedding:
    """The embeddings of a batch, from which heads compute their outputs."""

    singles: Tensor  # (B, N, D)
    pairs: Tensor  # (B, M, F)
    mask: Tensor | None  # (B, N): which nodes are not padding; None without padding
    index: PairIndex

    @property
    def n_nodes(self) -> int:
        return self.singles.shape[1]

    def pooled(self) -> Tensor:
        """(B, 2 F): mean and maximum over pairs, for outputs per event."""
        if self.mask is None:
            return torch.cat([self.pairs.mean(dim=1), self.pairs.amax(dim=1)], dim=-1)
        low, high = self.index.pairs(self.n_nodes)
        inside = (self.mask.index_select(1, low) & self.mask.index_select(1, high)).to(self.pairs.dtype)[..., None]
        mean = (self.pairs * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
        return torch.cat([mean, (self.pairs - (1 - inside) * 1e9).amax(dim=1)], dim=-1)


class Head(nn.Module):
    """One named output of a network."""

    name: ClassVar[str]
    axes: tuple[str, ...] = ()  # of the output, after the axis of events; padding is set to zero on "node" axes
    columns: ClassVar[tuple[str, ...]] = ()  # columns of the events that the loss needs

    def __init__(self, topology: Topology, width: int) -> None:
        """`width` is the pair width F."""
        super().__init__()

    @abstractmethod
    def forward(self, embedding: Embedding) -> Tensor:
        """The output (B, ...), with the axes in `axes`."""

    def loss(self, output: Tensor, labels: Mapping[str, Tensor]) -> Tensor:
        """(B,): the loss per event. Zero by default, for heads that are trained by other losses."""
        return output.reshape(len(output), -1).sum(dim=1) * 0


HEADS: dict[str, type[Head]] = {}


def register_head(head: type[Head]) -> type[Head]:
    """Make a head available under its name. Use it as a decorator."""
    register(HEADS, head.name, head, "head")
    return head


def get_head(name: str) -> type[Head]:
    """Return the head registered under a name."""
    if name not in HEADS:
        known = ", ".join(HEADS) or "none"
        raise ConfigError(
            f"no head {shown(name)}: registered are {known}{nearest(name, HEADS)}; import the module that has it"
        )
    return HEADS[name]


class PairReadout(nn.Module):
    """One vector per pair: W x_i + W x_j, or V z_ij, or their sum: (B, M, F)."""

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


def _two_layers(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))


class EdgeHead(Head):
    """Edge logits (B, T, N, N): two layers per type on the pairs; zero for types without edges.

    Without `loops`, the logits of an object with itself are zero: for losses that do not train them, as HyPER's.
    """

    name, axes = "edges", ("type", "node", "node")

    def __init__(self, types: tuple[bool, ...], hidden: int, loops: bool = True) -> None:
        """`types` says, for each type, whether it has edges."""
        nn.Module.__init__(self)
        self.types, self.loops = types, loops
        self.layers = nn.ModuleList(_two_layers(hidden) for has_edges in types if has_edges)

    def forward(self, embedding: Embedding) -> Tensor:
        active = functional.silu(embedding.pairs)
        layers = iter(self.layers)
        none = torch.zeros_like(active[..., :1])
        columns = [next(layers)(active) if has_edges else none for has_edges in self.types]
        logits = torch.cat(columns, dim=-1)
        if not self.loops:
            low, high = embedding.index.pairs(embedding.n_nodes)
            logits = logits * (low != high).to(logits.dtype)[:, None]
        return embedding.index.unpack(logits, embedding.n_nodes).permute(0, 3, 1, 2)


class ThreeBodyPotential(Head):
    """Potential u(z_ij, z_il, z_jl) = o . silu(U z_ij + V z_il + V z_jl), with U = V for three equivalent objects.

    It is computed for i < j and another object l; other entries of the output (B, K, N, N, N) are zero. All are
    zero at the start of a training, which begins from the edges alone.
    """

    name, axes = "triplets", ("triplet_type", "node", "node", "node")

    def __init__(self, symmetric: tuple[bool, ...], width: int, hidden: int) -> None:
        """`width` is the pair width F, and `hidden` the width of the sum."""
        nn.Module.__init__(self)
        self.symmetric = symmetric
        self.sides = nn.ModuleList(nn.Linear(width, hidden * (1 if same else 2)) for same in symmetric)
        self.outs = nn.ModuleList(nn.Linear(hidden, 1, bias=False) for _ in symmetric)
        for out in self.outs:
            nn.init.zeros_(out.weight)  # type: ignore[arg-type]

    def forward(self, embedding: Embedding) -> Tensor:
        n_nodes, index = embedding.n_nodes, embedding.index
        third, first, second = index.triples(n_nodes)
        active = functional.silu(embedding.pairs)
        potentials = []
        for same, project, out in zip(self.symmetric, self.sides, self.outs, strict=True):
            projected = project(active)
            pair, side = (projected, projected) if same else projected.chunk(2, dim=-1)
            total = pair.index_select(1, third) + side.index_select(1, first) + side.index_select(1, second)
            potentials.append(index.unpack_triples(out(functional.silu(total))[..., 0], n_nodes))
        return torch.stack(potentials, dim=1)


class PatternHead(Head):
    """One score per event and pattern of the topology (B, patterns). It is zero at the start of a training."""

    name, axes = "patterns", ("pattern",)

    def __init__(self, topology: Topology, width: int) -> None:
        super().__init__(topology, width)
        self.layers = _from_pooled(width, len(plan_of(topology).patterns))

    def forward(self, embedding: Embedding) -> Tensor:
        terms: Tensor = self.layers(embedding.pooled())
        return terms


class PresenceHead(Head):
    """Coefficients (B, F) of what is present, for the patterns of any topology: `pairton.decoding.views`."""

    name, axes = PRESENCE, (PRESENCE,)

    def __init__(self, topology: Topology, width: int) -> None:
        super().__init__(topology, width)
        self.layers = _from_pooled(width, len(presence_names(topology)))

    def forward(self, embedding: Embedding) -> Tensor:
        coefficients: Tensor = self.layers(embedding.pooled())
        return coefficients


def _from_pooled(width: int, outputs: int) -> nn.Sequential:
    """Two layers on the pooled pairs, whose outputs are zero at the start of a training."""
    layers = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, outputs))
    for weights in layers[-1].parameters():
        nn.init.zeros_(weights)
    return layers


class ObjectSumHead(Head):
    """Scores of triplets (B, K, N, N, N) from the summed embeddings of their objects.

    This is the simplest head for triplets. HyPER's (`pairton.network.hyper_head`) adds attention.
    """

    name, axes = "triplets", ("triplet_type", "node", "node", "node")

    def __init__(self, types: int, single_width: int, hidden: int) -> None:
        nn.Module.__init__(self)
        self.single = nn.Sequential(RMSNorm(single_width), nn.Linear(single_width, hidden))
        self.layers = nn.ModuleList(_two_layers(hidden) for _ in range(types))

    def forward(self, embedding: Embedding) -> Tensor:
        low, high = embedding.index.pairs(embedding.n_nodes)
        singles = self.single(embedding.singles)
        pairs = singles.index_select(1, low) + singles.index_select(1, high)
        active = functional.silu(pairs[:, :, None] + singles[:, None])  # (B, M, N, F)
        scores = torch.cat([layer(active) for layer in self.layers], dim=-1)  # (B, M, N, K)
        return embedding.index.unpack(scores, embedding.n_nodes).permute(0, 4, 1, 2, 3)
