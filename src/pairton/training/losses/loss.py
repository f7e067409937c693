"""What a loss is, and the events that it is computed on.

A loss is returned as a sum and a count, so that it can be added up over processes and parts of a batch.

Shapes: B events, N nodes, T types, S slots, P particles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import functional

from pairton.decoding.views import view_of
from pairton.errors import ConfigError
from pairton.events.head_specs import HeadSpec, labels_of
from pairton.events.nodes import Nodes
from pairton.network import Network
from pairton.topology import Layout, Topology

if TYPE_CHECKING:
    from pairton.training.recipes import Recipe

__all__ = [
    "Arrays",
    "Examples",
    "HeadLoss",
    "Loss",
    "Target",
    "binary_cross_entropy",
    "check_triplets",
    "counted_sum",
]

Ints = npt.NDArray[np.integer[Any]]
Arrays = Mapping[str, npt.NDArray[Any]]
Target = Mapping[str, Any]  # tensors and other data


@dataclass(frozen=True)
class Examples:
    """Labelled events of one topology and layout."""

    recipe: Recipe
    nodes: Nodes
    truth: Ints  # (B, S): nodes, -1 for none
    visible: npt.NDArray[np.uint8] | None = (
        None  # (B, T, N, N): tokens of the state that was drawn; None: no state
    )
    columns: Arrays = field(default_factory=dict)  # (B,): labels of heads
    weights: npt.NDArray[np.float32] | None = None  # (B,), with a mean of 1 over all training events; None: all 1
    tree: Topology | None = None  # the topology of the events, or the mixture; None: that of the recipe
    part: int = 0  # number of the topology of the events in a mixture
    prepared: Mapping[str, Arrays] = field(default_factory=dict)  # name of a loss -> its `Loss.prepare`, (B, ...)

    def __len__(self) -> int:
        return len(self.truth)

    def __getitem__(self, rows: Any) -> Examples:
        def taken(arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
            return {name: values[rows] for name, values in arrays.items()}

        return replace(
            self,
            nodes=self.nodes[rows],
            truth=self.truth[rows],
            visible=None if self.visible is None else self.visible[rows],
            columns=taken(self.columns),
            weights=None if self.weights is None else self.weights[rows],
            prepared={name: taken(arrays) for name, arrays in self.prepared.items()},
        )

    @property
    def topology(self) -> Topology:
        return self.tree or self.recipe.topology

    def of_topology(self, outputs: Any) -> dict[str, Any]:
        """The outputs of the network for the topology of the events."""
        view = view_of(self.recipe.topology, self.topology)
        return view.outputs(outputs, view.order(self.nodes.layout))

    @property
    def tokens(self) -> npt.NDArray[np.uint8] | None:
        """(B, T, N, N): the tokens that a network gets as input; None if it has none."""
        return self.visible if self.recipe.network.tokens else None


class Loss(ABC):
    """One term of the training loss."""

    name: ClassVar[str]  # of its weight in a recipe, and in the logs
    settings: ClassVar[Mapping[str, tuple[Any, Any]]] = {}  # its own settings in `loss`: name -> type, default
    decoding: ClassVar[str | None] = None  # default decoding of a model that is trained with it
    validated: ClassVar[bool] = False  # whether the best model is chosen by it

    def check(self, recipe: Recipe) -> None:  # noqa: B027 - most losses fit every recipe
        """Raise ConfigError unless the loss can train this recipe."""

    def possible(self, recipe: Recipe, topology: Topology, layout: Layout) -> bool:
        """Whether events of a topology and layout can be trained with it. If not, masked edges take its place."""
        return True

    def prepare(self, examples: Examples) -> Arrays:
        """The part of the target that depends on truth and columns alone, (B, ...): computed once per training."""
        return {}

    @abstractmethod
    def target(self, examples: Examples) -> Target:
        """What the outputs are compared with. `counted`, if there is one: (B, ...), the entries that count."""

    @abstractmethod
    def per_event(self, network: Network, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        """(B,): the loss, summed over the counted entries of each event."""


class HeadLoss(Loss):
    """The loss of a further head (`pairton.network.heads`), which compares its output with columns of events."""

    def __init__(self, name: str, spec: HeadSpec | None) -> None:
        """`spec` is that of a head that a recipe declares; None for a registered head."""
        self.name, self.spec = name, spec  # type: ignore[misc]
        self.validated = spec is not None  # type: ignore[misc]

    def target(self, examples: Examples) -> Target:
        if self.spec is not None:
            return labels_of(self.spec, examples.columns, examples.topology, examples.truth)
        return {name: np.asarray(values, np.float32) for name, values in examples.columns.items()}

    def per_event(self, network: Network, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        head: Any = network.heads[self.name]
        loss: Tensor = head.loss(outputs[self.name], target)
        return loss


def check_triplets(loss: str, recipe: Recipe, head: str) -> None:
    """Raise ConfigError unless the network has the head that a loss trains."""
    if recipe.network.triplets != head:
        raise ConfigError(
            f"loss.{loss} trains the head of network.triplets: {head}, but network.triplets is "
            f"{recipe.network.triplets}: set both, or neither"
        )


def binary_cross_entropy(logits: Tensor, truth: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits.float(), truth.float(), reduction="none")


def counted_sum(logits: Tensor, target: Target) -> Tensor:
    """(B,): the sum of the cross-entropies of the counted entries."""
    total: Tensor = (binary_cross_entropy(logits, target["truth"]) * target["counted"]).flatten(1).sum(dim=1)
    return total
