"""The network alone: one pass, from objects, masks and perhaps tokens to all outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from pairton.events.nodes import Nodes
from pairton.export.targets.target import Arrays, Target, by_kind, some_events
from pairton.models.storage import ModelInfo
from pairton.network import Network
from pairton.network.engine import predictor

__all__ = ["StepTarget"]


class StepGraph(nn.Module):
    """The network with separate inputs, as ONNX needs, instead of mappings."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        kinds = self.network.topology.kinds
        tokens = inputs[2 * len(kinds)] if len(inputs) > 2 * len(kinds) else None
        return tuple(self.network(*by_kind(kinds, inputs), tokens).values())


class StepTarget(Target):
    """The network alone."""

    name = "step"
    tolerance = 1e-4  # rounding reached 1.1e-5 in a trained network

    def __init__(self, network: Network, info: ModelInfo) -> None:
        super().__init__(network, info)
        self.about = {"graph": self.name}
        self.graph, self.outputs = StepGraph(network), network.outputs
        slots = network.topology.slots_per_kind
        layouts = [tuple(n + 1 for n in slots), *(tuple(max(1, n) + more for n in slots) for more in (0, 3))]
        self.cases = [some_events(network, layout) for layout in layouts]

    def inputs(self, nodes: Nodes) -> dict[str, npt.NDArray[Any]]:
        tokens = self._tokens(nodes)
        return super().inputs(nodes) | ({} if tokens is None else {"tokens": tokens})

    def expected(self, nodes: Nodes) -> Arrays:
        return predictor(self.network)(nodes, self._tokens(nodes))

    def _tokens(self, nodes: Nodes) -> npt.NDArray[np.uint8] | None:
        if not self.network.config.tokens:
            return None
        n_events, n_nodes = nodes.mask.shape
        shape = n_events, len(self.network.topology.types), n_nodes, n_nodes
        tokens = np.random.default_rng(1).integers(0, 3, shape)
        return np.maximum(tokens, tokens.swapaxes(2, 3)).astype(np.uint8)
