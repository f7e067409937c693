"""The forward process: from true assignments to the states and tokens a network is trained on; augmentation.

Shapes: B events, N objects, S slots, P particles, T types. Every draw is made for the whole batch of a step, so
that it does not depend on how many processes share the batch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.events.inputs import MOMENTUM
from pairton.events.nodes import Nodes
from pairton.topology import Topology
from pairton.topology.assignments import present
from pairton.training.recipes import AugmentationConfig

__all__ = ["augment", "draw_revealed"]


@lru_cache(maxsize=32)
def _states(topology: Topology) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """(states, P) of all levels but the last, where nothing is hidden, and the cumulated probability of each."""
    levels = topology.levels[:-1]
    weights = np.concatenate([np.full(len(level), 1 / len(levels) / len(level)) for level in levels])
    return np.concatenate(levels), np.cumsum(weights)


def draw_revealed(
    topology: Topology, truth: npt.NDArray[np.integer[Any]], rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """(B, P): the revealed particles of each event: a level at random, then one of its states at random.

    A particle with a missing product is never revealed.
    """
    states, cumulated = _states(topology)
    drawn = np.searchsorted(cumulated[:-1], rng.random(len(truth)), side="right")
    return states[drawn] & present(topology, truth)


def augment(nodes: Nodes, config: AugmentationConfig, rng: np.random.Generator) -> Nodes:
    """The same events seen from another angle, in a mirror, with another energy scale."""
    events = len(nodes)
    pt, eta, phi, energy = range(len(MOMENTUM))
    turn = rng.uniform(-np.pi, np.pi, (events, 1)) if config.rotate else None
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), (events, 1, 2)) if config.reflect else None
    scale = None
    if config.energy_jitter > 0:
        scale = np.exp(config.energy_jitter * rng.standard_normal((events, 1, 1))).astype(np.float32)
    changed = {}
    for kind, given in nodes.values.items():
        values = given.copy()
        if turn is not None:
            values[:, :, phi] = np.mod(values[:, :, phi] + turn + np.pi, 2 * np.pi) - np.pi
        if signs is not None:
            values[:, :, [eta, phi]] *= signs
        if scale is not None:
            values[:, :, [pt, energy]] *= scale
        changed[kind] = values
    return Nodes(changed, nodes.masks)
