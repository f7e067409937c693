"""The paper's loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from torch import Tensor

from pairton.decoding.graph import MASKED, adjacency
from pairton.decoding.terms import triplet_types
from pairton.errors import ConfigError
from pairton.network import Network
from pairton.training.losses.loss import Examples, Loss, Target, counted_sum
from pairton.training.masking import get_masking, level_states

if TYPE_CHECKING:
    from pairton.training.recipes import Recipe

__all__ = ["MaskedEdges"]


class MaskedEdges(Loss):
    """Cross-entropy of masked edges, except edges of types that are scored by triplets instead."""

    name = "masked_edges"
    settings: ClassVar = {
        "masking": (str, "levels"),  # process that draws what is revealed to a network with tokens
        "level_weights": (tuple[float, ...], ()),  # of `levels`; empty: all are equally likely
        # share of events in which the revealed particles are those that the network itself answers
        "wrong": (Annotated[float, Meta(ge=0, le=1)], 0.0),
        # masked: what the network does not see; drawn: also without tokens, leave out entries of a state that is
        # drawn, as the authors' one-shot loss does; next: only the types of the next step
        "entries": (Literal["masked", "drawn", "next"], "masked"),
    }

    def check(self, recipe: Recipe) -> None:
        settings = recipe.loss.settings
        get_masking(settings["masking"])
        level_states(recipe.topology, settings["level_weights"])
        if not recipe.network.tokens and (settings["entries"] == "next" or settings["wrong"]):
            raise ConfigError(
                "loss.entries next and loss.wrong are for networks with tokens: set network.tokens: true"
            )

    def target(self, examples: Examples) -> Target:
        topology = examples.topology
        edges, known = adjacency(topology, examples.truth, examples.nodes.mask)
        hidden = known if examples.visible is None else known & (examples.visible == MASKED)
        if examples.visible is not None and examples.recipe.loss.settings["entries"] == "next":
            order = [topology.type_index(name) for stage in topology.stages for name in stage.types]
            order = list(dict.fromkeys(order))
            # the first type with something to find
            first = np.argmax(np.asarray(hidden.any(axis=(2, 3)))[:, order], axis=1)
            hidden = hidden & (np.arange(len(order)) == np.array(order)[first][:, None])[:, :, None, None]
        if examples.recipe.network.scores_triplets:
            with_edges = np.array([name not in triplet_types(topology) for name in topology.types])
            hidden = hidden & with_edges[:, None, None]
        return {"truth": edges, "counted": np.array(hidden)}

    def per_event(self, network: Network, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        return counted_sum(outputs["edges"], target)
