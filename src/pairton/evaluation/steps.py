"""Step by step: which steps of complete events were right, and what is found after a wrong first one.

A model that reads tokens is followed twice from the same first step: with what it reveals (`steps`), and with
nothing revealed, where its first answer serves all steps (`one_shot`). A step is a stage of the model's topology.

Shapes: n events, K stages, S slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import Step, decode
from pairton.evaluation import metrics
from pairton.evaluation.intervals import bootstrap, ratio_interval
from pairton.events import Events
from pairton.events.acceptance import Accepted
from pairton.reconstruction.result import stored_assignment
from pairton.topology import Topology

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["FOLLOWED", "Followed", "follow", "recovery", "recovery_difference"]

FOLLOWED = ("one_shot", "steps")  # decodings; `exact` takes one step, the whole event

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Followed:
    """The steps of some events; only of those that were `asked` is anything said."""

    asked: Bools  # (n,): complete, with an answer
    right: Bools  # (n, K): whether all that a step revealed is right
    found: Mapping[str, npt.NDArray[np.int16]]  # type -> (n,): right particles in the end
    possible: Mapping[str, npt.NDArray[np.int16]]  # type -> (n,): that can be right once the first step is taken

    @property
    def lost(self) -> Bools:
        """(n,): events whose first step is wrong."""
        return self.asked & ~self.right[:, 0]


def follow(model: Model, decoding: str, events: Events, accepted: Accepted, truth: Ints) -> Followed:
    """The steps of a decoding of FOLLOWED; `truth` (n, S) has the numbers of objects in the input."""
    topology = model.topology  # the events may have other stages, but have the same tree
    asked = accepted.answerable & events.complete
    right = np.zeros((len(events), len(topology.stages)), dtype=bool)
    found, possible = ({name: np.zeros(len(events), dtype=np.int16) for name in topology.types} for _ in range(2))
    for layout, rows in accepted.by_layout(asked):
        nodes = accepted.batch(rows, layout)
        steps = decode(model.predict, topology, nodes, decoding=decoding, record=True).steps
        before = np.zeros(len(rows), dtype=np.int64)
        done = np.zeros(len(rows), dtype=np.int64)
        for k, step in enumerate(_stage_ends(topology, steps)):
            state = stored_assignment(events[rows], accepted.to_positions(step.assignment, rows, layout))
            matched = metrics.matches(topology, state, truth[rows])
            now, revealed = matched.sum(axis=1), step.revealed.sum(axis=1)
            right[rows, k] = now - before == revealed - done
            before, done = now, revealed
            if k == 0:
                for name, count in _possible(topology, state, step.revealed & ~matched, truth[rows]).items():
                    possible[name][rows] = count
        for name in topology.types:
            found[name][rows] = matched[:, [p.index for p in topology.of_type(name)]].sum(axis=1)
    return Followed(asked, right, found, possible)


def _stage_ends(topology: Topology, steps: Sequence[Step]) -> list[Step]:
    """The last step of each stage: one with too many joint choices takes a step for each of its particles."""
    ends: list[Step] = []
    taken = done = 0
    for stage in topology.stages:
        new = int(steps[taken].revealed[0].sum()) - done
        taken += 1 if stage.any or new >= len(stage.types) else len(stage.types)
        ends.append(steps[taken - 1])
        done = int(ends[-1].revealed[0].sum())
    return ends


def _possible(topology: Topology, state: Ints, wrong: Bools, truth: Ints) -> dict[str, npt.NDArray[np.int16]]:
    """Type -> (n,): true particles that can still be found, given a state with these wrong particles (n, P).

    Those that share no object with a wrong one; but a wrong particle takes a place of its own type and of each
    above.
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
    """Of the particles of each type that a wrong first step has left possible, the share that is found."""
    rng = np.random.default_rng(seed)
    lost = steps.lost
    return {
        name: metrics.Efficiency.of_particles(rng, steps.found[name][lost], steps.possible[name][lost])
        for name in reversed(list(steps.found))
    }


def recovery_difference(first: Followed, second: Followed, *, seed: int = 0) -> dict[str, metrics.Difference]:
    """Recovery of the first minus that of the second, of the events in which both took a wrong first step."""
    rng = np.random.default_rng(seed)
    lost = first.lost & second.lost
    result = {}
    for name in reversed(list(first.found)):
        counts = [each[name][lost] for steps in (first, second) for each in (steps.found, steps.possible)]
        totals = [int(count.sum()) for count in counts]
        value = low = high = np.nan
        if totals[1] and totals[3]:
            value = totals[0] / totals[1] - totals[2] / totals[3]
            sums = bootstrap(rng, *counts)
            kept = sums[(sums[:, 1] > 0) & (sums[:, 3] > 0)]
            change = kept[:, 0] / kept[:, 1] - kept[:, 2] / kept[:, 3]
            low, high = ratio_interval(change, np.ones_like(change))
        gained = counts[0].astype(np.int64) - counts[2]
        only = int(gained[gained > 0].sum()), int(-gained[gained < 0].sum())
        result[name] = metrics.Difference(value, low, high, *only)
    return result
