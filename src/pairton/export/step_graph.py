"""One pass of the network as a graph, with separate inputs, as ONNX needs, instead of mappings."""

from __future__ import annotations

from torch import Tensor, nn

from pairton.network.network import Network

__all__ = ["StepGraph", "by_kind"]


def by_kind(kinds: tuple[str, ...], inputs: tuple[Tensor, ...]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Objects and masks by kind, from the inputs `kind, kind_mask, kind, kind_mask, ...`."""
    objects = dict(zip(kinds, inputs[::2], strict=False))
    masks = dict(zip(kinds, inputs[1::2], strict=False))
    return objects, masks


class StepGraph(nn.Module):
    """A graph from objects, masks and, if the network has them, tokens to all outputs of the network."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        kinds = self.network.topology.kinds
        objects, masks = by_kind(kinds, inputs[: 2 * len(kinds)])
        tokens = inputs[2 * len(kinds)] if len(inputs) > 2 * len(kinds) else None
        return tuple(self.network(objects, masks, tokens).values())
