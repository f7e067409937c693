"""The loss of HyPER (arXiv:2402.10149)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from msgspec import Meta
from torch import Tensor

from pairton.decoding.graph import adjacency
from pairton.decoding.hyper_decoding import HYPER, check_hyper
from pairton.network import Network
from pairton.training.losses.loss import Examples, Loss, Target, binary_cross_entropy, check_triplets
from pairton.training.losses.triplets import true_triplets, unordered

if TYPE_CHECKING:
    from pairton.training.recipes import Recipe

__all__ = ["Hyper"]


class Hyper(Loss):
    """Alpha times the mean cross-entropy of hyperedges plus 1 - alpha times that of edges, per event.

    An event without a labelled hyperedge has alpha = 0. Edges are those of particles of two objects. As in HyPER,
    objects without a label are taken to form no edge and no hyperedge.
    """

    name, decoding = HYPER, HYPER
    settings: ClassVar = {"hyper_alpha": (Annotated[float, Meta(ge=0, le=1)], 0.8)}  # share of hyperedges; HyPER's

    def check(self, recipe: Recipe) -> None:
        check_triplets(self.name, recipe, "hyper")
        if recipe.decoding == HYPER:
            check_hyper(recipe.topology)

    def target(self, examples: Examples) -> Target:
        topology, n_nodes = examples.topology, examples.nodes.mask.shape[1]
        triplets = true_triplets(topology, examples.truth, n_nodes)
        pairs = [k for k, name in enumerate(topology.types) if len(topology.of_type(name)[0].slots) == 2]
        edges = adjacency(topology, examples.truth, examples.nodes.mask)[0][:, pairs]
        upper = np.triu(np.ones((n_nodes, n_nodes), dtype=bool), 1)
        alpha = examples.recipe.loss.settings["hyper_alpha"] * (triplets > 0).any(axis=(1, 2, 3, 4))
        places = {"pairs": np.array(pairs), "upper": upper, "ordered": np.array(unordered(n_nodes))}
        return {"edges": edges, "triplets": triplets, "alpha": alpha.astype(np.float32), **places}

    def per_event(self, network: Network, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        edges = binary_cross_entropy(outputs["edges"][:, target["pairs"]], target["edges"])
        triplets = binary_cross_entropy(outputs["triplets"], target["triplets"])
        alpha: Tensor = target["alpha"]
        hyperedges = triplets[:, :, target["ordered"]].flatten(1).mean(dim=1)
        return alpha * hyperedges + (1 - alpha) * edges[:, :, target["upper"]].flatten(1).mean(dim=1)
