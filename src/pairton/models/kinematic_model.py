"""A kinematic fit as a model: it has no network, but is used like any other model.

The name `kinematic` stands for the built-in settings; the path of a YAML file for other settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pairton._common.parallel import cores
from pairton.decoding import Decoded, Outputs
from pairton.decoding.patterns import exact_limit
from pairton.events.domain import Domain
from pairton.events.nodes import Nodes
from pairton.kinematics.fit_settings import BUILT_IN, FitSettings, load_settings
from pairton.kinematics.fitting import KinematicFit
from pairton.models.storage import ModelInfo
from pairton.topology import Topology

__all__ = ["KinematicEngine", "is_kinematic", "kinematic_info"]


def is_kinematic(name: str | Path) -> bool:
    """Whether the name of a model means a kinematic fit.

    >>> is_kinematic("kinematic"), is_kinematic("fit.yaml"), is_kinematic("iterative")
    (True, True, False)
    """
    return str(name) == BUILT_IN or Path(name).suffix in (".yaml", ".yml")


@dataclass(frozen=True)
class KinematicEngine:
    """The kinematic fit of a topology; several threads may call it."""

    topology: Topology
    settings: FitSettings
    path: Path  # of the settings
    threads: int | None = None  # threads that call it; None: one per core
    library: ClassVar[str] = "numpy"

    @classmethod
    def load(cls, name: str | Path, topology: Topology, threads: int | None = None) -> KinematicEngine:
        """The fit with the built-in settings, or with those of a YAML file.

        Raises ConfigError if the file is invalid, and TopologyError or ModelError if the topology cannot be
        fitted: it has a lepton without a neutrino, or a particle without a mass.
        """
        built_in = Path(str(resources.files("pairton.kinematics") / f"{BUILT_IN}.yaml"))
        engine = cls(topology, load_settings(name), built_in if str(name) == BUILT_IN else Path(name), threads)
        _ = engine.fit  # raise errors now, not after the events were read
        return engine

    @property
    def at_once(self) -> int:
        return self.threads or cores()

    @cached_property
    def fit(self) -> KinematicFit:
        return KinematicFit(self.topology, self.settings)

    @cached_property
    def most_objects(self) -> int:
        """The largest number of objects per kind for which permutations are compared."""
        return exact_limit(self.topology, complete_only=True)

    def answer(self, nodes: Nodes) -> tuple[Decoded, Outputs]:
        """The best permutation of each event, and the fitted quantities: the fit needs no decoding."""
        return self.fit.answer(nodes)

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8] | None) -> Outputs:
        return self.answer(nodes)[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("topology", "settings", "path", "threads")}


def kinematic_info(engine: KinematicEngine) -> ModelInfo:
    """The info of a kinematic fit; its domain is the selection of the topology."""
    return ModelInfo(
        engine.topology,
        {"tokens": False},
        Domain.of_selection(engine.topology),
        engine.fit.inputs,
        engine.fit.axes,
        decoding=BUILT_IN,
        recipe={BUILT_IN: engine.settings.to_dict()},
    )
