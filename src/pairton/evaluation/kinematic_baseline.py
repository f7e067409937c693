"""The baseline `kinematic`: the most probable permutation of a kinematic fit with the built-in settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation.registry import register_baseline
from pairton.events import Events
from pairton.models.engines import load_model
from pairton.reconstruction.running import Assigner, RunSettings

__all__ = ["KinematicLikelihood"]


@dataclass(frozen=True)
class KinematicLikelihood:
    """`KinematicLikelihood().fit(events)`, then `assign` other events of that topology.

    `pairton evaluate --model fit.yaml` evaluates a fit with other settings.
    """

    assigner: Assigner | None = None
    name: str = "kinematic"

    @property
    def about(self) -> dict[str, Any]:
        return {"fitted_on": "none of these events: built-in settings"}

    def fit(self, events: Events) -> KinematicLikelihood:
        """The fit for the topology of these events; their truth is not used."""
        model = load_model("kinematic", topology=events.topology)
        return KinematicLikelihood(Assigner(model, RunSettings(cuts=False)))

    def assign(self, events: Events) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """The best permutations (n, S), -1 where none is allowed, and their probabilities (n,)."""
        assigner = self.assigner or self.fit(events).assigner
        assert assigner is not None
        found, _ = assigner.assign_all(assigner.accept(assigner.with_evidence(events)), events.ids)
        return found.assignment, found.event_probability


register_baseline(KinematicLikelihood())
