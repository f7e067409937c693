"""Which steps of a decoding were right in complete events, and which particles are found after a wrong first step.

A model that reads tokens is decoded twice: with tokens for what was revealed (`steps`), and with the outputs of
the first call for all steps (`one_shot`). The first step is the same. A step is a stage of the model's topology.

A step is judged by the objects that it adds: the direct decay products of its particles, such as the b of a top.
If the W of a top is right, its b must be that of the same top; if it is wrong, that of any top whose W was not
found.

Shapes: n events, K stages, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import Step, decode
from pairton.evaluation import metrics
from pairton.evaluation.intervals import bootstrap, even, normal_interval, ratio_interval, weighted_ratio
from pairton.events import Events
from pairton.events.acceptance import Accepted
from pairton.models.folds import by_fold
from pairton.reconstruction.result import stored_assignment
from pairton.topology import Particle, Topology
from pairton.topology.assignments import canonical_within

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["FOLLOWED", "Followed", "follow", "recovery", "recovery_difference"]

FOLLOWED = ("one_shot", "steps")  # decodings in steps; `exact` has only one

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Followed:
    """The steps of some events; all fields hold only for events that were `asked`."""

    asked: Bools  # (n,): events that are complete and have an answer
    shares: npt.NDArray[np.float32]  # (n, K): share of the particles of a step whose own objects are right
    found: Mapping[str, npt.NDArray[np.int16]]  # type -> (n,): right particles after the last step
    possible: Mapping[str, npt.NDArray[np.int16]]  # type -> (n,): particles that can be right after the first step
    weight: npt.NDArray[np.float64]  # (n,)

    @property
    def lost(self) -> Bools:
        """(n,): events whose first step is wrong."""
        return self.asked & (self.shares[:, 0] < 1)


def follow(model: Model, decoding: str, events: Events, accepted: Accepted, truth: Ints) -> Followed:
    """Follow the steps of a decoding; `truth` (n, S) has the indices of objects in the input."""
    topology = model.topology  # that of the events has the same tree, but may have other stages
    asked = accepted.answerable & events.complete
    shares = np.zeros((len(events), len(topology.stages)), dtype=np.float32)
    found, possible = ({name: np.zeros(len(events), dtype=np.int16) for name in topology.types} for _ in range(2))
    batches = (
        (member, layout, rows)
        for member, in_fold in by_fold(model, events.ids)
        for layout, rows in accepted.by_layout(asked & in_fold)
    )
    for member, layout, rows in batches:
        nodes = accepted.batch(rows, layout)
        steps = decode(member.predict, topology, nodes, decoding=decoding, record=True).steps
        before = np.full(truth[rows].shape, -1)
        for k, step in enumerate(_stage_ends(topology, steps)):
            state = stored_assignment(events[rows], accepted.to_positions(step.assignment, rows, layout))
            matched = metrics.matches(topology, state, truth[rows])
            new = step.revealed & ~metrics.matches(
                topology, state, before
            )  # by objects, since particles may change places
            right = _added(topology, state, truth[rows]) & new
            shares[rows, k] = right.sum(axis=1) / new.sum(axis=1)
            before = state
            if k == 0:
                for name, count in _possible(topology, state, step.revealed & ~matched, truth[rows]).items():
                    possible[name][rows] = count
        for name in topology.types:
            found[name][rows] = matched[:, [p.index for p in topology.of_type(name)]].sum(axis=1)
    weight = np.ones(len(events)) if events.weights is None else events.weights
    return Followed(asked, shares, found, possible, weight)


def _stage_ends(topology: Topology, steps: Sequence[Step]) -> list[Step]:
    """The last step of each stage; a stage with too many joint choices has one step per particle."""
    ends: list[Step] = []
    taken = done = 0
    for stage in topology.stages:
        new = int(steps[taken].revealed[0].sum()) - done
        taken += 1 if stage.any or new >= len(stage.types) else len(stage.types)
        ends.append(steps[taken - 1])
        done = int(ends[-1].revealed[0].sum())
    return ends


def _added(topology: Topology, state: Ints, truth: Ints) -> Bools:
    """(n, P): whether the own objects of a particle are those of the true particle that has its children."""
    right = np.zeros((len(state), len(topology.particles)), dtype=bool)
    for name in topology.types:
        same = topology.of_type(name)
        own = _equal(topology, same, state, truth, [p.own_slots for p in same])
        below = np.zeros_like(own)
        if same[0].children:
            below = _equal(topology, same, state, truth, [sorted(set(p.slots) - set(p.own_slots)) for p in same])
        free = ~below.any(axis=0)  # true particles whose children were not found
        for i, particle in enumerate(same):
            of_these = np.where(below[i].any(axis=0), below[i], free & bool(particle.own_slots))
            right[:, particle.index] = (own[i] & of_these).any(axis=0)
    return right


def _equal(
    topology: Topology, same: Sequence[Particle], state: Ints, truth: Ints, slots: Sequence[Sequence[int]]
) -> Bools:
    """(particle in the state, true particle, n): whether they have the same objects in these of their slots."""
    sides = []
    for assignment in (state, truth):
        objects = []
        for particle, chosen in zip(same, slots, strict=True):
            alone = np.full_like(assignment, -1)
            alone[:, list(chosen)] = assignment[:, list(chosen)]
            objects.append(canonical_within(topology, particle, alone))
        sides.append(objects)
    return np.array([[(found == true).all(axis=1) for true in sides[1]] for found in sides[0]])


def _possible(topology: Topology, state: Ints, wrong: Bools, truth: Ints) -> dict[str, npt.NDArray[np.int16]]:
    """Type -> (n,): the number of true particles that can still be found, given wrong particles (n, P) in a state.

    They must not share an object with a wrong particle. A wrong particle also takes one place of its own type, and
    one of each type above.
    """
    intact = np.zeros(truth.shape, dtype=bool)  # (n, S): true objects that no wrong particle has
    for kind in topology.object_kinds:
        taken = np.zeros((len(state), int(max(state.max(initial=0), truth.max(initial=0))) + 1), dtype=bool)
        slots = [slot.index for slot in topology.slots if slot.kind == kind]
        for particle in topology.particles:
            (rows,) = np.nonzero(wrong[:, particle.index])
            for slot in set(particle.slots) & set(slots):
                taken[rows, state[rows, slot]] = True
        intact[:, slots] = ~np.take_along_axis(taken, truth[:, slots], axis=1)
    result = {}
    for name in topology.types:
        same = topology.of_type(name)
        left = np.sum([intact[:, list(p.slots)].all(axis=1) for p in same], axis=0)
        spoiled = np.zeros(len(state), dtype=np.int64)
        for place in same:
            below = [p.index for p in topology.particles if place.index in topology.ancestry(p.index)]
            spoiled += wrong[:, below].any(axis=1)
        result[name] = np.minimum(left, len(same) - spoiled).astype(np.int16)
    return result


def recovery(steps: Followed, *, seed: int = 0) -> dict[str, metrics.Efficiency]:
    """The share found of the particles of each type that are still possible after a wrong first step."""
    rng = np.random.default_rng(seed)
    lost = steps.lost
    return {
        name: metrics.Efficiency.of_particles(
            rng, steps.found[name][lost], steps.possible[name][lost], steps.weight[lost]
        )
        for name in reversed(list(steps.found))
    }


def recovery_difference(first: Followed, second: Followed, *, seed: int = 0) -> dict[str, metrics.Difference]:
    """The first recovery minus the second, in events in which both took a wrong first step."""
    rng = np.random.default_rng(seed)
    lost = first.lost & second.lost
    result = {}
    for name in reversed(list(first.found)):
        counts = [each[name][lost] for steps in (first, second) for each in (steps.found, steps.possible)]
        weight = first.weight[lost]
        shares = [weighted_ratio(counts[k], counts[k + 1], weight)[0] for k in (0, 2)]
        value, low, high = shares[0] - shares[1], np.nan, np.nan
        if np.isfinite(value) and even(weight):
            sums = bootstrap(rng, *counts)
            kept = sums[(sums[:, 1] > 0) & (sums[:, 3] > 0)]
            change = kept[:, 0] / kept[:, 1] - kept[:, 2] / kept[:, 3]
            low, high = ratio_interval(change, np.ones_like(change))
        elif np.isfinite(value):
            pulls = [
                (counts[2 * k] - share * counts[2 * k + 1]) / np.sum(weight * counts[2 * k + 1])
                for k, share in enumerate(shares)
            ]
            low, high = normal_interval(value, float(np.sqrt(np.sum((weight * (pulls[0] - pulls[1])) ** 2))))
        gained = counts[0].astype(np.int64) - counts[2]
        only = int(gained[gained > 0].sum()), int(-gained[gained < 0].sum())
        result[name] = metrics.Difference(value, low, high, *only)
    return result
