"""Cross-entropy of triplets, for networks that score three objects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pairton.decoding.graph import adjacency
from pairton.decoding.terms import triplet_types
from pairton.network import Network
from pairton.topology import Topology
from pairton.training.losses.loss import Examples, Loss, Target, check_triplets, counted_sum

if TYPE_CHECKING:
    from pairton.training.recipes import Recipe

__all__ = ["Triplets", "true_triplets", "unordered"]


class Triplets(Loss):
    """Cross-entropy of triplets."""

    name, decoding = "triplets", "exact"

    def check(self, recipe: Recipe) -> None:
        check_triplets(self.name, recipe, "object_sum")

    def target(self, examples: Examples) -> Target:
        n_nodes = examples.nodes.mask.shape[1]
        every = np.ones((len(examples), n_nodes), dtype=bool)
        known = adjacency(examples.topology, examples.truth, every)[1][:, 0]  # (B, N, N)
        all_three = known[:, :, :, None] & known[:, None, :, :] & known[:, :, None, :] & unordered(n_nodes)
        truth = true_triplets(examples.topology, examples.truth, n_nodes)
        return {"truth": truth, "counted": np.array(np.broadcast_to(all_three[:, None], truth.shape))}

    def per_event(self, network: Network, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        return counted_sum(outputs["triplets"], target)


@lru_cache(maxsize=64)
def unordered(n_nodes: int) -> npt.NDArray[np.bool_]:
    """(N, N, N): whether i < j < l."""
    i, j, k = np.indices((n_nodes,) * 3)
    return np.asarray((i < j) & (j < k))


def true_triplets(
    topology: Topology, truth: npt.NDArray[np.integer[Any]], n_nodes: int
) -> npt.NDArray[np.float32]:
    """(B, K, N, N, N) for K types of three slots: 1 at i < j < l of every particle of the type."""
    types = list(triplet_types(topology))
    triplets = np.zeros((len(truth), len(types), n_nodes, n_nodes, n_nodes), dtype=np.float32)
    for k, name in enumerate(types):
        for particle in topology.of_type(name):
            nodes = np.sort(truth[:, list(particle.slots)], axis=1)
            (rows,) = np.nonzero(nodes[:, 0] >= 0)
            triplets[rows, k, nodes[rows, 0], nodes[rows, 1], nodes[rows, 2]] = 1
    return triplets
