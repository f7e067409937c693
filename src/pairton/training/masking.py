"""Masking processes draw what a network with tokens is trained on: the revealed particles of each event.

Random numbers are drawn for the whole batch of a step, so they do not depend on the number of processes.

Shapes: B events, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pairton._common.configuration import register
from pairton.errors import ConfigError, nearest, shown
from pairton.topology import Topology
from pairton.topology.assignments import present

__all__ = ["MASKINGS", "Masking", "draw_levels", "get_masking", "register_masking"]

# (topology, truth (B, S), random numbers) -> revealed particles (B, P); others are masked
Masking: TypeAlias = Callable[[Topology, npt.NDArray[np.integer[Any]], np.random.Generator], npt.NDArray[np.bool_]]


def draw_levels(
    topology: Topology, truth: npt.NDArray[np.integer[Any]], rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """The states that the decoding `steps` goes through: a random state of a random level.

    A particle that is not present is never revealed.
    """
    states, cumulated = _states(topology)
    drawn = np.searchsorted(cumulated[:-1], rng.random(len(truth)), side="right")
    return states[drawn] & present(topology, truth)


@lru_cache(maxsize=32)
def _states(topology: Topology) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """All states (states, P) but the last level, where nothing is masked, and their cumulative probabilities."""
    levels = topology.levels[:-1]
    weights = np.concatenate([np.full(len(level), 1 / len(levels) / len(level)) for level in levels])
    return np.concatenate(levels), np.cumsum(weights)


MASKINGS: dict[str, Masking] = {"levels": draw_levels}


def register_masking(name: str, masking: Masking) -> None:
    """Make a masking process available under a name, for `loss.masking` of a recipe."""
    register(MASKINGS, name, masking, "masking process")


def get_masking(name: str) -> Masking:
    """Return the masking process registered under a name."""
    if name not in MASKINGS:
        raise ConfigError(
            f"loss.masking is {shown(name)}, but must be one of {', '.join(MASKINGS)}{nearest(name, MASKINGS)}"
        )
    return MASKINGS[name]
