"""The assembled network: raw jets and visible tokens in, logits of edges and triplets out.

Shapes: B events, N jets, M pairs i <= j, T types, K types of three slots, D single width, P pair width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pairton.decoding.graph import MASKED, MOST_JETS
from pairton.decoding.likelihood import triplet_types
from pairton.errors import ConfigError
from pairton.network.config import NetworkConfig
from pairton.network.features import JET_FEATURES, PAIR_FEATURES, TokenEmbedding, jet_features, pair_features
from pairton.network.heads import EdgeHead, HyperedgeHead, PairReadout, ThreeBodyPotential
from pairton.network.pairformer import PairformerBlock
from pairton.network.symmetric import PairIndex, SymmetricBlock
from pairton.network.transformer import TransformerBlock
from pairton.topology import Topology

__all__ = ["Network", "NetworkOutput"]


class NetworkOutput(NamedTuple):
    """Symmetric logits of edges (B, T, N, N), and of triplets (B, K, N, N, N) where the network has them."""

    edges: Tensor
    triplets: Tensor | None


class Network(nn.Module):
    """A network for one topology.

    >>> from pairton.topology import load_topology
    >>> network = Network(load_topology("ttbar_allhad"), NetworkConfig())
    >>> jets = torch.tensor([[[80.0, 0.1 * k, 0.5 * k, 90.0, 0.0] for k in range(7)]])
    >>> network(jets, None, None).edges.shape
    torch.Size([1, 2, 7, 7])
    """

    def __init__(self, topology: Topology, config: NetworkConfig) -> None:
        super().__init__()
        self.topology, self.config = topology, config
        kinds = triplet_types(topology)
        if config.triplets != "none" and not kinds:
            raise ConfigError(
                f"network.triplets is {config.triplets}, but {topology.name} has no particle of three jets: "
                "set triplets: none"
            )
        self.index = PairIndex()
        single, pair = config.single_width, config.pair_width
        # the symmetric network's pairs start from both jets' embeddings, even where no single stream follows
        self.embed_jets = nn.Linear(JET_FEATURES[self.pair_kind], single if config.has_singles else pair)
        self.jets_to_pairs = None
        if config.kind == "symmetric":
            self.jets_to_pairs = nn.Linear(single if config.has_singles else pair, pair, bias=False)
        if config.kind != "transformer":
            self.embed_pairs = nn.Linear(PAIR_FEATURES[self.pair_kind] + (config.kind == "symmetric"), pair)
            self.embed_tokens = TokenEmbedding(len(topology.types), pair) if config.tokens else None
        self.blocks = nn.ModuleList(self._block() for _ in range(config.blocks))

        from_single = config.edges_from != "pair"
        hidden = single if from_single else pair
        self.readout = PairReadout(
            single if from_single else None, pair if config.edges_from != "single" else None, hidden
        )
        self.edge_types = [
            name for name in topology.types if config.triplets != "hyperedge" or name not in kinds
        ]  # a hyperedge stands for the edges of its type
        self.edge_head = EdgeHead(len(self.edge_types), hidden) if self.edge_types else None
        self.potential = self.hyperedge = None
        if config.triplets == "potential":
            self.potential = ThreeBodyPotential(tuple(kinds.values()), hidden)
        elif config.triplets == "hyperedge":
            self.hyperedge = HyperedgeHead(len(kinds), single, single)

    @property
    def pair_kind(self) -> str:
        return "symmetric" if self.config.kind == "symmetric" else self.config.pair_features

    def _block(self) -> nn.Module:
        config = self.config
        if "transformer" in config.kind:
            pair_width = config.pair_width if config.kind == "biased_transformer" else None
            return TransformerBlock(config.single_width, config.single_heads, config.transition, pair_width)
        sizes: dict[str, Any] = {
            "single_heads": config.single_heads,
            "pair_heads": config.pair_heads,
            "transition": config.transition,
            "dropout": config.dropout,
            "single_stream": config.single_stream,
            "triangle_multiplication": config.triangle_multiplication,
            "triangle_attention": config.triangle_attention,
        }
        if config.kind == "symmetric":
            return SymmetricBlock(config.single_width, config.pair_width, gates=config.gates, **sizes)
        return PairformerBlock(config.single_width, config.pair_width, **sizes)

    def forward(self, jets: Tensor, jet_mask: Tensor | None = None, tokens: Tensor | None = None) -> NetworkOutput:
        """jets (B, N, 5); jet_mask (B, N), None without padding; tokens (B, T, N, N), None for all masked."""
        n_jets = jets.shape[1]
        if n_jets > MOST_JETS:
            raise ConfigError(f"an event has {n_jets} jets, more than the {MOST_JETS} that a network takes")
        x = self.embed_jets(jet_features(jets, self.pair_kind))
        x, z = self._trunk(jets, x, jet_mask, tokens)
        pairs = self.readout(x, z, self.index)  # (B, M, F)
        edges = self._edges(pairs, n_jets)
        triplets = None
        if self.potential is not None:
            triplets = self.potential(pairs, self.index, n_jets)
        elif self.hyperedge is not None:
            triplets = self.hyperedge(x, self.index)
        if jet_mask is not None:
            real = jet_mask.to(edges.dtype)
            inside = real[:, None, :, None] * real[:, None, None, :]
            edges = edges * inside
            if triplets is not None:
                triplets = triplets * inside[..., None] * real[:, None, None, None, :]
        return NetworkOutput(edges, triplets)

    def _trunk(
        self, jets: Tensor, x: Tensor, jet_mask: Tensor | None, tokens: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Singles (B, N, D), and pairs (B, M, P) where there are any."""
        if self.config.kind == "symmetric":
            z = self._embed_symmetric(jets, x, tokens)
            inside = None
            if jet_mask is not None:
                low, high = self.index.pairs(jets.shape[1])
                inside = (jet_mask.index_select(1, low) & jet_mask.index_select(1, high)).to(z.dtype)[..., None]
            for block in self.blocks:
                x, z = block(x, z, self.index, jet_mask, inside)
            return x, z
        if self.config.kind == "transformer":
            for block in self.blocks:
                x = block(x, None, jet_mask)
            return x, None
        z = self.embed_pairs(pair_features(jets[:, :, None], jets[:, None], self.pair_kind))
        if self.embed_tokens is not None:
            z = z + self.embed_tokens(self._tokens(jets, tokens))
        if self.config.kind == "biased_transformer":
            for block in self.blocks:
                x = block(x, z, jet_mask)
        else:
            inside = None
            if jet_mask is not None:
                inside = (jet_mask[:, :, None] & jet_mask[:, None, :]).to(z.dtype)[..., None]
            for block in self.blocks:
                x, z = block(x, z, jet_mask, inside)
        return x, self.index.fold(z)

    def _embed_symmetric(self, jets: Tensor, x: Tensor, tokens: Tensor | None) -> Tensor:
        low, high = self.index.pairs(jets.shape[1])
        features = pair_features(jets.index_select(1, low), jets.index_select(1, high), "symmetric")
        diagonal = (low == high).to(features.dtype)[None, :, None].expand(features.shape[0], -1, 1)
        assert self.jets_to_pairs is not None
        both: Tensor = self.jets_to_pairs(x)
        z: Tensor = self.embed_pairs(torch.cat([features, diagonal], dim=-1))
        z = z + both.index_select(1, low) + both.index_select(1, high)
        if self.embed_tokens is not None:
            packed = self.index.pack(self._tokens(jets, tokens).permute(0, 2, 3, 1))  # (B, M, T)
            z = z + self.embed_tokens(packed.permute(0, 2, 1))
        return z

    def _tokens(self, jets: Tensor, tokens: Tensor | None) -> Tensor:
        if tokens is not None:
            return tokens
        batch, n_jets = jets.shape[:2]
        shape = (batch, len(self.topology.types), n_jets, n_jets)
        return torch.full(shape, MASKED, dtype=torch.long, device=jets.device)

    def _edges(self, pairs: Tensor, n_jets: int) -> Tensor:
        """(B, M, F) -> (B, T, N, N), zero for types that hyperedges stand for."""
        if self.edge_head is None:
            return pairs.new_zeros(pairs.shape[0], len(self.topology.types), n_jets, n_jets)
        edges = self.index.unpack(self.edge_head(pairs), n_jets).permute(0, 3, 1, 2)
        if len(self.edge_types) == len(self.topology.types):
            return edges
        layers = [
            edges[:, self.edge_types.index(name)] if name in self.edge_types else torch.zeros_like(edges[:, 0])
            for name in self.topology.types
        ]
        return torch.stack(layers, dim=1)
