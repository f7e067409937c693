"""The two transformers of the paper's first ablation: a plain one, and one biased by fixed pair features."""

from __future__ import annotations

from torch import Tensor, nn

from pairton.network.layers import Attention, Transition

__all__ = ["TransformerBlock"]


class TransformerBlock(nn.Module):
    """Self-attention and a transition. With `pair_width`, pairs, which are not updated, bias the attention."""

    def __init__(self, width: int, heads: int, transition: int, pair_width: int | None = None) -> None:
        super().__init__()
        self.attention = Attention(width, heads, pair_width)
        self.transition = Transition(width, transition)

    def forward(self, x: Tensor, pairs: Tensor | None, mask: Tensor | None) -> Tensor:
        x = x + self.attention(x, pairs, mask)
        x = x + self.transition(x)
        return x
