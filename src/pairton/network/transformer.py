"""The two transformers of the paper's first ablation: plain, and with a bias from fixed pair features."""

from __future__ import annotations

from torch import Tensor, nn

from pairton.network.layers import Attention, Transition

__all__ = ["TransformerBlock"]


class TransformerBlock(nn.Module):
    """Self-attention and a transition; `pair_width` switches the bias on, from pairs that are never updated."""

    def __init__(self, width: int, heads: int, transition: int, pair_width: int | None = None) -> None:
        super().__init__()
        self.attention = Attention(width, heads, pair_width)
        self.transition = Transition(width, transition)

    def forward(self, x: Tensor, pairs: Tensor | None, mask: Tensor | None) -> Tensor:
        x = x + self.attention(x, pairs, mask)
        x = x + self.transition(x)
        return x
