"""A model and a way to decode it as one function of jets, asked in batches of events with equally many jets.

Shapes: B events of a batch, n of a window, S slots, P particles, N jets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton._common.parallel import in_parallel
from pairton.decoding import METHODS, decode
from pairton.errors import ConfigError, ModelError, nearest
from pairton.events.acceptance import Prepared
from pairton.topology import Stage, Topology, same_tree

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = [
    "BATCH",
    "DECODINGS",
    "ONE_BY_ONE",
    "Answer",
    "Assign",
    "Assigner",
    "assign_prepared",
    "decoding_of",
]

BATCH = 128  # events of one call of the network: few enough to stay in cache, and for every core to have some
ONE_BY_ONE = "one_by_one"  # steps, but never two particles at once: the paper's 4-step variant
DECODINGS = (*METHODS, ONE_BY_ONE)

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer[Any]]


class Answer(NamedTuple):
    """For a batch: jets in slots (B, S), -1 for none; probabilities of particles (B, P) and of events (B,)."""

    assignment: Ints
    particle_probability: npt.NDArray[Any]
    event_probability: npt.NDArray[Any]


Assign = Callable[[npt.NDArray[np.float32], Bools], Answer]  # jets (B, N, 5) and their mask (B, N)


class Assigner:
    """A model and a way to decode it as one function of jets, which several threads may call at once."""

    def __init__(self, model: Model, decoding: str | None = None, beam: int | None = None) -> None:
        self.model, self.beam = model, beam
        self.method = decoding_of(model, decoding, beam)
        self.topology = model.topology
        self.temperatures = model.temperatures if _same_gains(self.method, str(model.decoding)) else None
        self.at_once: int = getattr(model, "at_once", 1)  # anything with `predict` is a model
        if self.method == ONE_BY_ONE:
            stages = [[s] if s.any else [Stage((name,)) for name in s.types] for s in self.topology.stages]
            self.topology = self.topology.with_stages([stage for part in stages for stage in part])
            if self.temperatures is not None:
                shared = zip(self.temperatures, stages, strict=True)
                self.temperatures = tuple(heat for heat, part in shared for _ in part)
            self.method = "steps"

    def check(self, topology: Topology) -> None:
        """Refuse events of another decay tree."""
        if not same_tree(topology, self.model.topology):
            raise ModelError(
                f"the model {self.model.name} is for {self.model.topology.name}, the events are for "
                f"{topology.name}: choose a model for their topology, or read them with the topology of the model"
            )

    def __call__(self, jets: npt.NDArray[np.float32], jet_mask: Bools) -> Answer:
        found = decode(
            self.model.predict,
            self.topology,
            jets,
            jet_mask,
            method=self.method,
            beam=self.beam,
            temperatures=self.temperatures,
        )
        return Answer(found.assignment, found.particle_probability, found.event_probability)


def _same_gains(method: str, fitted: str) -> bool:
    """Whether temperatures fitted for one decoding hold for another: its stages, gains and tokens are the same."""
    return method == fitted or (fitted == "steps" and method in ("beam", ONE_BY_ONE))


def decoding_of(model: Model, decoding: str | None, beam: int | None = None) -> str:
    """The decoding that is meant: what was asked for, a beam if a width was, else what the model is made for."""
    if decoding is None:
        return "beam" if beam is not None else str(model.decoding)
    if decoding not in DECODINGS:
        known = ", ".join(DECODINGS)
        raise ConfigError(f"no decoding {decoding!r}: choose one of {known}{nearest(decoding, DECODINGS)}")
    return decoding


def assign_prepared(prepared: Prepared, topology: Topology, assign: Assign) -> Answer:
    """Assign one window: batches of equal jet count, in the order of rows; indices into `events.jets`.

    As many batches at once as the engine is meant for; what is in a batch does not depend on it.
    """
    n = len(prepared.status)
    assignment = np.full((n, len(topology.slots)), -1, dtype=np.int32)
    particle_probability = np.full((n, len(topology.particles)), np.nan)
    event_probability = np.full(n, np.nan)

    def fill(batch: npt.NDArray[np.intp]) -> None:
        jets = np.ascontiguousarray(prepared.jets[batch, : prepared.counts[batch[0]]])
        answer = assign(jets, np.ones(jets.shape[:2], dtype=bool))
        found = np.take_along_axis(prepared.position[batch], np.maximum(answer.assignment, 0), axis=1)
        assignment[batch] = np.where(answer.assignment >= 0, found, -1)
        particle_probability[batch] = answer.particle_probability
        event_probability[batch] = answer.event_probability

    batches: list[npt.NDArray[np.intp]] = []
    for n_jets in np.unique(prepared.counts[prepared.answerable])[::-1]:  # the longest first: all end together
        (rows,) = np.nonzero(prepared.answerable & (prepared.counts == n_jets))
        batches += np.split(rows, range(BATCH, len(rows), BATCH))
    in_parallel(fill, batches, getattr(assign, "at_once", 1))
    return Answer(assignment, particle_probability, event_probability)
