"""The paper's loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from torch import Tensor

from pairton.decoding.graph import MASKED, adjacency
from pairton.decoding.terms import triplet_types
from pairton.network import Network
from pairton.training.losses.loss import Examples, Loss, Target, counted_sum
from pairton.training.masking import get_masking

if TYPE_CHECKING:
    from pairton.training.recipes import Recipe

__all__ = ["MaskedEdges"]


class MaskedEdges(Loss):
    """Cross-entropy of masked edges, except edges of types that are scored by triplets instead."""

    name = "masked_edges"
    settings: ClassVar = {"masking": (str, "levels")}  # which particles are revealed to a network with tokens

    def check(self, recipe: Recipe) -> None:
        get_masking(recipe.loss.settings["masking"])

    def target(self, examples: Examples) -> Target:
        topology = examples.topology
        edges, known = adjacency(topology, examples.truth, examples.nodes.mask)
        hidden = known if examples.tokens is None else known & (examples.tokens == MASKED)
        if examples.recipe.network.scores_triplets:
            with_edges = np.array([name not in triplet_types(topology) for name in topology.types])
            hidden = hidden & with_edges[:, None, None]
        return {"truth": edges, "counted": np.array(hidden)}

    def per_event(self, network: Network, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        return counted_sum(outputs["edges"], target)
