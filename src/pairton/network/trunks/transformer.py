"""The two transformers of the paper's first ablation: a plain one, and one biased by fixed pair features."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from pairton.network.layers import Attention, Transition
from pairton.network.trunks.pair_index import PairIndex
from pairton.network.trunks.trunk import Pairs, Trunk

if TYPE_CHECKING:
    from pairton.network.config import NetworkConfig

__all__ = ["BiasedTransformer", "Transformer"]


class _Block(nn.Module):
    """Self-attention and a transition. With `pair_width`, pairs, which are not updated, bias the attention."""

    def __init__(self, config: NetworkConfig, pair_width: int | None) -> None:
        super().__init__()
        self.attention = Attention(config.single_width, config.single_heads, pair_width)
        self.transition = Transition(config.single_width, config.transition)

    def forward(
        self, x: Tensor, z: Tensor | None, mask: Tensor | None, pair_mask: Tensor | None, index: PairIndex
    ) -> tuple[Tensor, Tensor | None]:
        x = x + self.attention(x, z, mask)
        x = x + self.transition(x)
        return x, z


class Transformer(Trunk):
    """Blocks without pairs."""

    name = "transformer"
    pairs: ClassVar[Pairs | None] = None

    @classmethod
    def has_singles(cls, config: NetworkConfig) -> bool:
        return True

    @staticmethod
    def block(config: NetworkConfig) -> nn.Module:
        return _Block(config, None)


class BiasedTransformer(Transformer):
    """Blocks whose attention is biased by features of pairs."""

    name, pairs = "biased_transformer", "ordered"

    @staticmethod
    def block(config: NetworkConfig) -> nn.Module:
        return _Block(config, config.pair_width)
