"""A kinematic fit as a model: no network, but the same way from events to results.

`kinematic` has the settings that come with Pairton; the path of a YAML file has one's own.
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
from pairton.decoding import Outputs
from pairton.events.acceptance import selection_domain
from pairton.events.nodes import Nodes
from pairton.kinematics.fit_decoding import KINEMATIC, answer_outputs
from pairton.kinematics.fit_settings import BUILT_IN, FitSettings, load_settings
from pairton.kinematics.fitting import KinematicFit
from pairton.models.storage import ModelInfo
from pairton.topology import Topology

__all__ = ["KinematicEngine", "is_kinematic", "kinematic_info"]


def is_kinematic(name: str | Path) -> bool:
    """Whether the name of a model means a kinematic fit.

    >>> is_kinematic("kinematic"), is_kinematic("mine.yaml"), is_kinematic("iterative")
    (True, True, False)
    """
    return str(name) == BUILT_IN or Path(name).suffix in (".yaml", ".yml")


@dataclass(frozen=True)
class KinematicEngine:
    """The fit of a topology; several threads may call it."""

    topology: Topology
    settings: FitSettings
    path: Path  # of the settings
    threads: int | None = None  # that call it; None: one for each core
    library: ClassVar[str] = "numpy"

    @classmethod
    def load(cls, name: str | Path, topology: Topology, threads: int | None = None) -> KinematicEngine:
        """The fit with the built-in settings, or with those of a YAML file.

        Raises ConfigError where the file is not understood, TopologyError and ModelError where the topology cannot
        be fitted: a lepton without its neutrino, a particle without a known mass.
        """
        built_in = Path(str(resources.files("pairton.kinematics") / f"{BUILT_IN}.yaml"))
        engine = cls(topology, load_settings(name), built_in if str(name) == BUILT_IN else Path(name), threads)
        _ = engine.fit  # an error now, not after the events were read
        return engine

    @property
    def at_once(self) -> int:
        return self.threads or cores()

    @cached_property
    def fit(self) -> KinematicFit:
        return KinematicFit(self.topology, self.settings)

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8] | None) -> Outputs:
        found, fitted = self.fit.assign(nodes)
        return {**fitted, **answer_outputs(found)}

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("topology", "settings", "path", "threads")}


def kinematic_info(engine: KinematicEngine) -> ModelInfo:
    """What there is to say of a kinematic fit: the objects it uses are those of the topology's selection."""
    return ModelInfo(
        engine.topology,
        {"tokens": False},
        selection_domain(engine.topology),
        engine.fit.inputs,
        engine.fit.axes,
        decoding=KINEMATIC,
        recipe={KINEMATIC: engine.settings.to_dict()},
    )
