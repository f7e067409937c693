"""Random rotations, reflections and energy scales of events, with their labels.

Random numbers are drawn for the whole batch of a step, so they do not depend on the number of processes.

Shapes: B events, N objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.events.head_specs import IN_GEV, HeadSpec
from pairton.events.inputs import MOMENTUM
from pairton.events.nodes import Nodes

__all__ = ["Augmentation", "AugmentationConfig"]


@dataclass(frozen=True)
class AugmentationConfig:
    """Random transformations of events that do not change the answer."""

    rotate: bool = False  # rotate the event about the beam by a random angle
    reflect: bool = False  # eta -> -eta and phi -> -phi, each at random
    energy_jitter: float = 0.0  # relative width of a random energy scale, common to all objects of an event


@dataclass(frozen=True)
class Augmentation:
    """A rotation, a reflection and an energy scale for each event of a batch."""

    turn: npt.NDArray[np.float64] | None = None  # (B, 1): angle of rotation about the beam
    signs: npt.NDArray[np.float32] | None = None  # (B, 1, 2): signs of eta and phi
    scale: npt.NDArray[np.float32] | None = None  # (B, 1, 1): factor of energies and momenta

    @classmethod
    def draw(cls, events: int, config: AugmentationConfig, rng: np.random.Generator) -> Augmentation:
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
