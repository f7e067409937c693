"""What a trunk is: the blocks of a network, which update the embeddings of nodes and of pairs of nodes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from torch import Tensor, nn

from pairton.network.trunks.pair_index import PairIndex

if TYPE_CHECKING:
    from pairton.events.inputs import Inputs
    from pairton.network.config import NetworkConfig
    from pairton.topology import Topology

__all__ = ["Pairs", "Trunk"]

Pairs: TypeAlias = Literal["ordered", "packed"]


class Trunk(nn.ModuleList):
    """The blocks of a network.

    Shapes: B events, N nodes, M pairs i <= j, D single width, P pair width. Pairs are (B, N, N, P) if they are
    ordered, (B, M, P) if they are packed.
    """

    name: ClassVar[str]
    pairs: ClassVar[Pairs | None]  # form of the pairs that it works on; None: it has none
    features: ClassVar[str | None] = None  # its own features of nodes and pairs; None: `network.pair_features`
    needs_gates: ClassVar[bool] = True  # whether `network.gates` must be true

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(self.block(config) for _ in range(config.blocks))

    @classmethod
    def has_singles(cls, config: NetworkConfig) -> bool:
        """Whether the embeddings of nodes are updated, so that heads can use them."""
        return config.single_stream

    @classmethod
    def parts(
        cls, topology: Topology, config: NetworkConfig, inputs: Inputs
    ) -> tuple[nn.Module, nn.Module, nn.Module] | None:
        """Its own embedding (objects, tokens -> x, z), readout and head of edges; None: those of `Network`."""
        return None

    @staticmethod
    @abstractmethod
    def block(config: NetworkConfig) -> nn.Module:
        """A new block."""

    def forward(
        self, x: Tensor, z: Tensor | None, mask: Tensor | None, pair_mask: Tensor | None, index: PairIndex
    ) -> tuple[Tensor, Tensor | None]:
        """Update singles x (B, N, D) and pairs z by all blocks.

        mask         (B, N): which nodes are not padding; None without padding
        pair_mask    (B, N, N, 1) or (B, M, 1): 1 for pairs without padding, 0 for others
        """
        for block in self:
            x, z = block(x, z, mask, pair_mask, index)
        return x, z
