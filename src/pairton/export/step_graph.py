"""One call of the network as a graph: flat inputs, which ONNX files have, in place of mappings."""

from __future__ import annotations

from torch import Tensor, nn

from pairton.network.network import Network

__all__ = ["StepGraph", "by_kind"]


def by_kind(kinds: tuple[str, ...], inputs: tuple[Tensor, ...]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Objects and masks from `kind, kind_mask, kind, kind_mask, ...`."""
    objects = dict(zip(kinds, inputs[::2], strict=False))
    masks = dict(zip(kinds, inputs[1::2], strict=False))
    return objects, masks


class StepGraph(nn.Module):
    """Objects, masks and, for a network that takes them, tokens in; outputs in the order of their names out."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        kinds = self.network.topology.kinds
        objects, masks = by_kind(kinds, inputs[: 2 * len(kinds)])
        tokens = inputs[2 * len(kinds)] if len(inputs) > 2 * len(kinds) else None
        return tuple(self.network(objects, masks, tokens).values())
