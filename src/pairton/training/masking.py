"""Masking processes draw what a network with tokens is trained on: the part of each event that it is shown.

A process is a function of `Unmasked` events. It returns the revealed particles (B, P), or the visible entries
(B, T, N, N). Random numbers are drawn for the whole batch, so they do not depend on the number of processes.

Shapes: B events, N nodes, T types, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pairton._common.configuration import register
from pairton.decoding.graph import MASKED, Tokens, adjacency, visible_tokens
from pairton.errors import ConfigError, nearest, shown
from pairton.topology import Topology
from pairton.topology.assignments import present

__all__ = ["MASKINGS", "Masking", "Unmasked", "draw_edges", "draw_levels", "draw_particles", "draw_tokens"]
__all__ += ["get_masking", "level_states", "register_masking"]

Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Unmasked:
    """Labelled events of one layout, of which a process reveals a part."""

    topology: Topology
    truth: npt.NDArray[np.integer[Any]]  # (B, S): nodes, -1 for none
    mask: Bools  # (B, N): which nodes are not padding
    rng: np.random.Generator
    level_weights: tuple[float, ...] = ()  # `loss.level_weights`; empty: all levels are equally likely


Masking: TypeAlias = Callable[[Unmasked], Bools]


def draw_levels(events: Unmasked) -> Bools:
    """The states that the decoding `steps` goes through: a random state of a random level.

    A particle that is not present is never revealed.
    """
    states, cumulated = level_states(events.topology, events.level_weights)
    drawn = np.searchsorted(cumulated[:-1], events.rng.random(len(events.truth)), side="right")
    return np.asarray(states[drawn] & present(events.topology, events.truth))


def draw_particles(events: Unmasked) -> Bools:
    """Any particles in any order: a share that is uniform from 0 to 1, and what decays from them."""
    shape = len(events.truth), len(events.topology.particles)
    revealed = events.rng.random(shape) < events.rng.random((shape[0], 1))
    for particle in events.topology.particles:  # parents first
        revealed[:, list(particle.children)] |= revealed[:, [particle.index]]
    return np.asarray(revealed & present(events.topology, events.truth))


def draw_edges(events: Unmasked) -> Bools:
    """Any entries of the matrices, in any order: a share of them that is uniform from 0 to 1."""
    n_events, n_nodes = events.mask.shape
    drawn = events.rng.random((n_events, len(events.topology.types), n_nodes, n_nodes))
    drawn = np.triu(drawn) + np.triu(drawn, 1).swapaxes(-1, -2)  # entries ij and ji are one
    return np.asarray(drawn < events.rng.random((n_events, 1, 1, 1)))


@lru_cache(maxsize=32)
def level_states(topology: Topology, weights: tuple[float, ...] = ()) -> tuple[Bools, npt.NDArray[np.float64]]:
    """All states (states, P) but the last level, where nothing is masked, and their cumulative probabilities."""
    levels = topology.levels[:-1]
    shares = np.array(weights or [1.0] * len(levels))
    if len(shares) != len(levels) or not (shares >= 0).all() or not shares.sum() > 0:
        raise ConfigError(
            f"loss.level_weights is {list(weights)}, but must have {len(levels)} numbers from 0, not all 0: one "
            "for each level of the chain in which something is masked"
        )
    each = [np.full(len(level), share / len(level)) for level, share in zip(levels, shares, strict=True)]
    return np.concatenate(levels), np.cumsum(np.concatenate(each)) / shares.sum()


def draw_tokens(
    name: str, events: Unmasked, answers: npt.NDArray[np.integer[Any]] | None = None, wrong: float = 0.0
) -> Tokens:
    """(B, T, N, N): the tokens that a process shows, of `answers` in place of the truth in a share `wrong`."""
    topology, mask = events.topology, events.mask
    visible = get_masking(name)(events)
    if visible.ndim == 4:  # entries
        edges, known = adjacency(topology, events.truth, mask)
        return np.where(visible & known, edges, np.uint8(MASKED))
    shown_truth = events.truth
    if answers is not None:
        replaced = events.rng.random((len(answers), 1)) < wrong
        shown_truth = np.where(replaced, answers, shown_truth)
    return visible_tokens(topology, shown_truth, visible & present(topology, shown_truth), mask)


MASKINGS: dict[str, Masking] = {"levels": draw_levels, "particles": draw_particles, "edges": draw_edges}


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
