"""Heads that a recipe declares: classes and regressions of events, particles and decay products (`HeadSpec`).

A head of the event reads the pooled pairs. A head of particles gives each pair of objects a vector. Its value for
a particle is the mean over all pairs of the particle's objects, including each object with itself. The same output
can thus be read for any assignment: the true one in training, the answer in a reconstruction.

Shapes: B events, N nodes, M pairs i <= j, P places (particles or slots that a head has a value for), K slots per
place, C values per place: one per class, or 1 for a regression.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairton.errors import ModelError
from pairton.events.head_specs import HeadSpec
from pairton.network.heads import Embedding, Head
from pairton.topology import Topology

__all__ = ["TaskHead", "place_values"]

MOST_LOG = 30.0  # bound on values that are learned as logarithms


class TaskHead(Head):
    """Output of a head of the event: (B,) or class logits (B, C); of a head of particles: (B, C, N, N)."""

    name = ""

    def __init__(self, spec: HeadSpec, topology: Topology, width: int) -> None:
        """`width` is the pair width."""
        nn.Module.__init__(self)
        if (spec.classes if spec.is_class else spec.scale) is None:
            raise ModelError(
                f"the head on {', '.join(spec.columns)} lacks its classes, or the mean and deviation of its "
                "labels: train the model again"
            )
        self.spec = spec
        self.axes = ("class",) * spec.is_class if spec.of_event else ("class", "node", "node")
        incoming = 2 * width if spec.of_event else width
        self.layers = nn.Sequential(nn.Linear(incoming, width), nn.SiLU(), nn.Linear(width, spec.width))

    def forward(self, embedding: Embedding) -> Tensor:
        if self.spec.of_event:
            values: Tensor = self.layers(embedding.pooled())
            return values if self.spec.is_class else self._in_units(self._scaled(values[:, 0]))
        values = self._scaled(self.layers(functional.silu(embedding.pairs)))
        return embedding.index.unpack(values, embedding.n_nodes).permute(0, 3, 1, 2)

    def loss(self, output: Tensor, labels: Mapping[str, Tensor]) -> Tensor:
        """(B,): the loss, summed over the places with a label. `labels` is from `head_specs.labels_of`."""
        spec, truth, counted = self.spec, labels["labels"], labels["counted"]
        if spec.of_event:
            values = output.float()[:, None] if spec.is_class else output.float()[:, None, None]
        else:
            values = place_values(output.float(), labels["slots"])  # (B, P, C)
            values = values if spec.is_class else self._in_units(values)
        if spec.is_class:
            flat = functional.cross_entropy(values.flatten(0, 1), truth.flatten().long(), reduction="none")
            return (flat.reshape(truth.shape) * counted).sum(dim=1)
        found = values[..., 0]
        if spec.loss == "log_gaussian":
            found, truth = torch.asinh(found / 2), torch.asinh(truth / 2)
        pull = (found - truth) / float(spec.scale or 1)
        each = pull.abs() if spec.loss == "laplacian" else pull.square()
        return (each * counted).sum(dim=1)

    def _scaled(self, value: Tensor) -> Tensor:
        """Regressions, scaled to the mean and deviation of the labels or of their logarithms; logits unchanged."""
        spec = self.spec
        return value if spec.is_class else float(spec.offset or 0) + float(spec.scale or 1) * value

    def _in_units(self, value: Tensor) -> Tensor:
        if self.spec.loss != "log_gaussian":
            return value
        value = value.clamp(-MOST_LOG, MOST_LOG)
        return torch.exp(value) - torch.exp(-value)  # 2 sinh, which cannot be exported


def place_values(output: Tensor, slots: Tensor) -> Tensor:
    """(B, P, C): the mean of `output` (B, C, N, N) over all pairs of nodes of each place (B, P, K)."""
    events, channels, nodes = output.shape[:3]
    k = slots.shape[2]
    flat = (slots[:, :, :, None] * nodes + slots[:, :, None, :]).reshape(events, 1, -1)  # (B, 1, P K K)
    picked = output.reshape(events, channels, -1).gather(2, flat.expand(-1, channels, -1))
    return picked.reshape(events, channels, slots.shape[1], k * k).mean(dim=3).transpose(1, 2)
