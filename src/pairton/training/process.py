"""Draws what a network with tokens is trained on (the revealed particles of each event), and augmentations.

Random numbers are drawn for the whole batch of a step, so they do not depend on the number of processes.

Shapes: B events, N objects, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.events.head_specs import IN_GEV, HeadSpec
from pairton.events.inputs import MOMENTUM
from pairton.events.nodes import Nodes
from pairton.topology import Topology
from pairton.topology.assignments import present
from pairton.training.recipes import AugmentationConfig

__all__ = ["Symmetry", "draw_revealed"]


@lru_cache(maxsize=32)
def _states(topology: Topology) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """All states (states, P) but the last level, where nothing is hidden, and their cumulative probabilities."""
    levels = topology.levels[:-1]
    weights = np.concatenate([np.full(len(level), 1 / len(levels) / len(level)) for level in levels])
    return np.concatenate(levels), np.cumsum(weights)


def draw_revealed(
    topology: Topology, truth: npt.NDArray[np.integer[Any]], rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """(B, P): the revealed particles of each event, from a random state of a random level.

    A particle that is not present is never revealed.
    """
    states, cumulated = _states(topology)
    drawn = np.searchsorted(cumulated[:-1], rng.random(len(truth)), side="right")
    return states[drawn] & present(topology, truth)


@dataclass(frozen=True)
class Symmetry:
    """A rotation, a reflection and an energy scale for each event of a batch."""

    turn: npt.NDArray[np.float64] | None = None  # (B, 1): angle of rotation about the beam
    signs: npt.NDArray[np.float32] | None = None  # (B, 1, 2): signs of eta and phi
    scale: npt.NDArray[np.float32] | None = None  # (B, 1, 1): factor of energies and momenta

    @classmethod
    def draw(cls, events: int, config: AugmentationConfig, rng: np.random.Generator) -> Symmetry:
        turn = rng.uniform(-np.pi, np.pi, (events, 1)) if config.rotate else None
        signs = rng.choice(np.array([-1, 1], dtype=np.float32), (events, 1, 2)) if config.reflect else None
        scale = None
        if config.energy_jitter > 0:
            scale = np.exp(config.energy_jitter * rng.standard_normal((events, 1, 1))).astype(np.float32)
        return cls(turn, signs, scale)

    def of_nodes(self, nodes: Nodes) -> Nodes:
        """The transformed objects."""
        pt, eta, phi, energy = range(len(MOMENTUM))
        changed = {}
        for kind, given in nodes.values.items():
            values = given.copy()
            if self.turn is not None:
                values[:, :, phi] = _angle(values[:, :, phi] + self.turn)
            if self.signs is not None:
                values[:, :, [eta, phi]] *= self.signs
            if self.scale is not None:
                values[:, :, [pt, energy]] *= self.scale
            changed[kind] = values
        return Nodes(changed, nodes.masks)

    def of_labels(self, columns: Mapping[str, Any], specs: Iterable[HeadSpec]) -> dict[str, Any]:
        """The columns (B,) by name; labels of heads that are components of vectors are transformed."""
        changed = dict(columns)
        for spec in specs:
            for name in spec.columns:
                changed[name] = self._of_label(columns, spec, name)
        return changed

    def _of_label(self, columns: Mapping[str, Any], spec: HeadSpec, name: str) -> Any:
        eta, phi = (1.0, 1.0) if self.signs is None else self.signs[:, 0].T
        value = columns[name]
        if self.scale is not None and spec.component in IN_GEV:
            value = value * self.scale[:, 0, 0]
        if spec.component in ("pz", "eta"):
            return value * eta
        if spec.component == "phi":
            return value * phi if self.turn is None else _angle(value + self.turn[:, 0]) * phi
        if spec.component in ("px", "py"):
            if self.turn is not None:
                sine = np.sin(self.turn[:, 0]) * (-1 if spec.component == "px" else 1)
                partner = columns[spec.partners[name]] * (1 if self.scale is None else self.scale[:, 0, 0])
                value = value * np.cos(self.turn[:, 0]) + partner * sine
            return value * phi if spec.component == "py" else value
        return value


def _angle(phi: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The angle in [-pi, pi)."""
    return np.mod(phi + np.pi, 2 * np.pi) - np.pi
