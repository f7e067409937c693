"""The assembled network, from objects and tokens to outputs by name.

Shapes: B events, N nodes (objects of all kinds), M pairs i <= j, T types, D single width, P pair width, F columns
per kind of object.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pairton.decoding.graph import MASKED
from pairton.decoding.terms import triplet_types
from pairton.decoding.views import PRESENCE, view_of
from pairton.errors import ConfigError
from pairton.events.head_specs import HeadSpec
from pairton.events.inputs import MOMENTUM, Inputs
from pairton.events.nodes import MOST_OBJECTS
from pairton.network.config import NetworkConfig
from pairton.network.features import (
    NODE_FEATURES,
    PAIR_FEATURES,
    TokenEmbedding,
    node_features,
    pair_features,
    transverse_part,
)
from pairton.network.heads import (
    EdgeHead,
    Embedding,
    Head,
    ObjectSumHead,
    PairReadout,
    PatternHead,
    PresenceHead,
    ThreeBodyPotential,
    get_head,
)
from pairton.network.hyper_head import HyperHead
from pairton.network.task_heads import TaskHead
from pairton.network.trunks import PairIndex, get_trunk
from pairton.topology import Topology
from pairton.topology.kinds import KINDS

__all__ = ["Network", "TreeNetwork"]


class Network(nn.Module):
    """A network for one topology.

    >>> from pairton.topology import load_topology
    >>> network = Network(load_topology("ttbar_allhad"), NetworkConfig())
    >>> jets = torch.tensor([[[80.0, 0.1 * k, 0.5 * k, 90.0, 0.0] for k in range(7)]])
    >>> {name: tuple(output.shape) for name, output in network({"jet": jets}).items()}
    {'edges': (1, 2, 7, 7)}
    """

    def __init__(
        self,
        topology: Topology,
        config: NetworkConfig,
        inputs: Inputs | None = None,
        heads: Mapping[str, HeadSpec] | None = None,
    ) -> None:
        """`heads` are the heads declared in a recipe. Registered heads are named in `config.heads`."""
        super().__init__()
        self.topology, self.config = topology, config
        self.inputs = Inputs.default(topology) if inputs is None else inputs
        if unknown := [item.field for kind in self.inputs.kinds for item in self.inputs[kind] if item.measures]:
            raise ConfigError(
                f"the input {unknown[0]} has no mean and deviation yet, which come from training events: "
                "train the network"
            )
        triplets = triplet_types(topology)
        if config.triplets != "none" and not triplets:
            raise ConfigError(
                f"network.triplets is {config.triplets}, but {topology.name} has no particle of three objects: "
                "set triplets: none, or auto"
            )
        self.trunk = get_trunk(config.architecture)
        self.index = PairIndex()
        single, pair = config.single_width, config.pair_width
        # a symmetric network without a single stream still starts its pairs from embeddings of nodes
        width = single if config.has_singles else pair
        parts = self.trunk.parts(topology, config, self.inputs)
        self.embedding = None if parts is None else parts[0]
        if parts is None:
            self._make_embedding(width)
        self.blocks = self.trunk(config)

        from_single = config.edges_from != "pair"
        hidden = single if from_single else pair
        if parts is None:
            sides = single if from_single else None, pair if config.edges_from != "single" else None
            with_edges = tuple(not (config.scores_triplets and name in triplets) for name in topology.types)
            readout: nn.Module = PairReadout(*sides, hidden)
            edges: nn.Module = EdgeHead(with_edges, hidden, config.triplets != "hyper")
        else:
            _, readout, edges = parts
        self.readout, self.heads = readout, nn.ModuleDict({"edges": edges})
        if config.triplets == "potential":
            self.heads["triplets"] = ThreeBodyPotential(
                tuple(triplets.values()), hidden, config.potential_width or hidden
            )
        elif config.triplets == "object_sum":
            self.heads["triplets"] = ObjectSumHead(len(triplets), single, single)
        elif config.triplets == "hyper":
            self.heads["triplets"] = HyperHead(len(triplets), single, hidden, single)
        if config.patterns == PRESENCE:
            self.heads[PRESENCE] = PresenceHead(topology, hidden)
        elif config.patterns:
            self.heads["patterns"] = PatternHead(topology, hidden)
        for name in config.heads:
            self.heads[name] = get_head(name)(topology, hidden)
        for name, spec in (heads or {}).items():
            self.heads[name] = TaskHead(spec, topology, hidden)

    def _make_embedding(self, width: int) -> None:
        """The layers that embed nodes, with a width of their own, and pairs."""
        topology, config, pair = self.topology, self.config, self.config.pair_width
        own = NODE_FEATURES[self.features]
        self.embed = nn.ModuleDict(
            {kind: nn.Linear(own + len(self.inputs[kind]), width) for kind in topology.kinds}
        )
        self.nodes_to_pairs = self.kinds_to_pairs = self.sides_to_pairs = None
        if self.trunk.pairs == "packed":
            self.nodes_to_pairs = nn.Linear(width, pair, bias=False)
        if self.trunk.pairs is not None:
            diagonal = self.trunk.pairs == "packed"  # one more feature: whether i = j
            self.embed_pairs = nn.Linear(PAIR_FEATURES[self.features] + diagonal, pair)
            self.embed_tokens = TokenEmbedding(len(topology.types), pair) if config.tokens else None
            if config.objects_into_pairs:
                self.sides_to_pairs = nn.Linear(width, 2 * pair, bias=False)
            if not diagonal and len(topology.kinds) > 1:
                self.kinds_to_pairs = nn.Embedding(len(topology.kinds), pair)

    @property
    def features(self) -> str:
        return self.trunk.features or self.config.pair_features

    @property
    def outputs(self) -> dict[str, tuple[str, ...]]:
        """The axes of each output, after the axis of events."""
        return {name: head.axes for name, head in self.heads.items() if isinstance(head, Head)}

    def forward(
        self,
        objects: Mapping[str, Tensor],
        masks: Mapping[str, Tensor] | None = None,
        tokens: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the outputs by name.

        objects   kind -> (B, objects, F): pt, eta, phi, energy, further inputs; a kind may be missing
        masks     kind -> (B, objects): which objects are not padding; None without padding
        tokens    (B, T, N, N); None if all are masked
        """
        parts = {kind: objects[kind] for kind in self.topology.kinds if kind in objects}
        momenta = torch.cat([part[..., : len(MOMENTUM)] for part in parts.values()], dim=1)  # (B, N, 4)
        if momenta.shape[1] > MOST_OBJECTS:
            raise ConfigError(f"an event has {momenta.shape[1]} objects: networks take up to {MOST_OBJECTS}")
        mask = None if masks is None else torch.cat([masks[kind] for kind in parts], dim=1)
        if self.embedding is None:
            x, z = self._embedded(parts, momenta, tokens)
        else:
            x, z = self.embedding(objects, tokens)
        pair_mask = None if mask is None or z is None else self._pair_mask(mask).to(z.dtype)[..., None]
        x, z = self.blocks(x, z, mask, pair_mask, self.index)
        if self.trunk.pairs == "ordered":
            z = self.index.fold(z)
        embedding = Embedding(x, self.readout(x, z, self.index), mask, self.index)
        outputs = {name: head(embedding) for name, head in self.heads.items()}
        if mask is not None:
            for name, axes in self.outputs.items():
                for k in [k for k, axis in enumerate(axes) if axis == "node"]:
                    along = (slice(None), *(slice(None) if i == k else None for i in range(len(axes))))
                    outputs[name] = outputs[name] * mask.to(momenta.dtype)[along]
        return outputs

    def for_topology(self, tree: Topology) -> TreeNetwork:
        """The network for events of a topology whose particles it knows."""
        return TreeNetwork(self, tree)

    def _embedded(
        self, parts: Mapping[str, Tensor], momenta: Tensor, tokens: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Embeddings of nodes (B, N, D), and of pairs, if there are any."""
        x = torch.cat(
            [
                self.embed[kind](node_features(part, self.features, self.inputs[kind]))
                for kind, part in parts.items()
            ],
            dim=1,
        )
        # (N,): the kind of each node; computed from the inputs, whose shapes may vary in an exported graph
        numbers = {kind: k for k, kind in enumerate(self.topology.kinds)}
        kinds = torch.cat(
            [torch.zeros_like(part[0, :, 0], dtype=torch.long) + numbers[kind] for kind, part in parts.items()]
        )
        if self.trunk.pairs is None:
            return x, None
        pairs = self._ordered_pairs if self.trunk.pairs == "ordered" else self._packed_pairs
        return x, pairs(momenta, x, tokens, kinds)

    def _pair_mask(self, mask: Tensor) -> Tensor:
        """(B, N, N) or (B, M): pairs without padding."""
        if self.trunk.pairs == "ordered":
            return mask[:, :, None] & mask[:, None, :]
        low, high = self.index.pairs(mask.shape[1])
        return mask.index_select(1, low) & mask.index_select(1, high)

    def _ordered_pairs(self, momenta: Tensor, x: Tensor, tokens: Tensor | None, kinds: Tensor) -> Tensor:
        """Embeddings of pairs (B, N, N, P)."""
        z: Tensor = self.embed_pairs(
            self._pair_features(momenta[:, :, None], momenta[:, None], kinds[:, None], kinds)
        )
        if self.sides_to_pairs is not None:
            first, second = self.sides_to_pairs(x).chunk(2, dim=-1)  # (B, N, P) each
            z = z + first[:, :, None] + second[:, None]
        if self.kinds_to_pairs is not None:
            kind = self.kinds_to_pairs(kinds)
            z = z + kind[:, None] + kind
        if self.embed_tokens is not None:
            z = z + self.embed_tokens(self._tokens(momenta, tokens))
        return z

    def _pair_features(self, first: Tensor, second: Tensor, kinds_1: Tensor, kinds_2: Tensor) -> Tensor:
        """Features of pairs of momenta; only transverse ones if an object has no longitudinal momentum."""
        transverse = [k for k, kind in enumerate(self.topology.kinds) if KINDS[kind].transverse]
        if transverse:
            flat = torch.stack([(kinds_1 == k) | (kinds_2 == k) for k in transverse]).any(dim=0)[..., None]
            first = torch.where(flat, transverse_part(first), first)
            second = torch.where(flat, transverse_part(second), second)
        return pair_features(first, second, self.features)

    def _packed_pairs(self, momenta: Tensor, x: Tensor, tokens: Tensor | None, kinds: Tensor) -> Tensor:
        """Embeddings of pairs i <= j, (B, M, P)."""
        low, high = self.index.pairs(momenta.shape[1])
        sides = momenta.index_select(1, low), momenta.index_select(1, high)
        features = self._pair_features(*sides, kinds.index_select(0, low), kinds.index_select(0, high))
        diagonal = (low == high).to(features.dtype)[None, :, None].expand(features.shape[0], -1, 1)
        assert self.nodes_to_pairs is not None
        both: Tensor = self.nodes_to_pairs(x)
        z: Tensor = self.embed_pairs(torch.cat([features, diagonal], dim=-1))
        z = z + both.index_select(1, low) + both.index_select(1, high)
        if self.embed_tokens is not None:
            packed = self.index.pack(self._tokens(momenta, tokens).permute(0, 2, 3, 1))  # (B, M, T)
            z = z + self.embed_tokens(packed.permute(0, 2, 1))
        return z

    def _tokens(self, momenta: Tensor, tokens: Tensor | None) -> Tensor:
        if tokens is not None:
            return tokens
        batch, n_nodes = momenta.shape[:2]
        shape = (batch, len(self.topology.types), n_nodes, n_nodes)
        return torch.full(shape, MASKED, dtype=torch.long, device=momenta.device)


class TreeNetwork(nn.Module):
    """A network of particles, with the outputs for events of one topology: `pairton.decoding.views`."""

    def __init__(self, network: Network, tree: Topology) -> None:
        super().__init__()
        self.network, self.topology, self.config = network, tree, network.config
        self.view, self.inputs = view_of(network.topology, tree), network.inputs.of(tree)
        self.heads = network.heads

    @property
    def outputs(self) -> dict[str, tuple[str, ...]]:
        return self.view.axes(self.network.outputs)

    def forward(
        self,
        objects: Mapping[str, Tensor],
        masks: Mapping[str, Tensor] | None = None,
        tokens: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """As that of the network; the numbers of objects may vary in an exported graph."""
        order = None
        if self.view.kinds != list(self.topology.kinds):
            counts = [objects[kind].shape[1] for kind in self.view.kinds]
            every = torch.arange(sum(counts))
            starts = {kind: sum(counts[:k]) for k, kind in enumerate(self.view.kinds)}
            parts = [every[starts[k] :][: objects[k].shape[1]] for k in self.topology.kinds]
            order = torch.cat(parts)
        return self.view.outputs(self.network(objects, masks, tokens), order)
