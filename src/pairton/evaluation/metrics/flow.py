"""The flow of complete events through right and wrong steps, with `one_shot` and `steps` of the same model.

It is measured if both decodings of a model that reads tokens are evaluated. `steps` has tokens for what was
revealed; `one_shot` uses the outputs of the first call for all steps. The first step is the same.

A step is a stage of the model's topology. It is judged by the objects that it adds: the direct decay products of
its particles, such as the b of a top. If the W of a top is right, its b must be that of the same top; if it is
wrong, that of any top whose W was not found.

Shapes: n events, K stages, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import decode
from pairton.evaluation.evaluation import Table, formatted
from pairton.evaluation.metrics.sankey import flow_plot
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.scores import matches
from pairton.evaluation.statistics import Difference, Efficiency, all_equal, normal_interval, weighted_ratio
from pairton.models.storage import by_fold
from pairton.reconstruction.result_columns import stored_assignment
from pairton.topology import Particle, Topology
from pairton.topology.assignments import canonical_within

if TYPE_CHECKING:
    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method
    from pairton.evaluation.plots import Plot
    from pairton.events import Events
    from pairton.events.acceptance import Accepted
    from pairton.models.model import Model

__all__ = ["Flow", "StepScores", "flow", "listed", "recovery", "recovery_difference", "score_steps"]

DECODINGS = ("one_shot", "steps")

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


class Flow(Metric):
    """Right and wrong steps, and recovery; the plot is as in the paper."""

    name, title = "flow", "Steps"

    def count(self, chunk: Chunk, method: Method) -> StepScores | None:
        if method.model is None or not _both_decodings(chunk.methods, method):
            return None
        decoding, accepted = str(method.decoding), method.accept(chunk.events)
        return score_steps(method.model, decoding, chunk.events, accepted, chunk.truth)

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        pair = _both_decodings(evaluation.methods, method)
        if not pair or method.model is None:
            return None
        each = {decoding: evaluation.counted(self.name, pair[decoding]) for decoding in DECODINGS}
        stages = method.model.topology.stages
        split = [len(stage.types) > 1 and not stage.any for stage in stages]
        flows = {name: flow(s.shares[s.counted], split, s.weight[s.counted]) for name, s in each.items()}
        shares: dict[str, Any] = {name: recovery(scores) for name, scores in each.items()}
        shares["difference"] = recovery_difference(each["steps"], each["one_shot"])
        return {"stages": [str(stage) for stage in stages], **flows, "recovery": shares}

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for method, result in evaluation.results(self.name):
            if method.decoding != "steps":  # the same for both decodings
                continue
            notes = [f"right (+), partly right (~) and wrong (-) steps, after {', '.join(result['stages'])}:"]
            for decoding in DECODINGS:
                counts = (
                    " ".join(f"{k} {n if isinstance(n, int) else f'{n:.4g}'}" for k, n in each.items())
                    for each in result[decoding]
                )
                notes.append(f"{decoding:8}  {'; '.join(counts)}")
            notes.append("recovery: share found of the particles that are still possible after a wrong first step")
            for name, cells in result["recovery"].items():
                notes.append(f"{name if name in DECODINGS else 'steps minus one_shot'}  {listed(cells)}")
            yield Table(f"steps of {method.title}", notes=notes)

    def plots(self, evaluation: Evaluation) -> list[Plot | None]:
        return [flow_plot(method.name, result) for method, result in evaluation.results(self.name)[:1]]


def _both_decodings(methods: Sequence[Method], method: Method) -> dict[str, Method]:
    """The methods with both decodings of a model that reads tokens; empty if one is not evaluated."""
    if method.model is None or not method.model.info.takes_tokens:
        return {}
    same = [each for each in methods if each.model is method.model and each.jet_scale == method.jet_scale == 1]
    pair = {each.decoding: each for each in same if each.decoding in DECODINGS}
    return {name: pair[name] for name in DECODINGS} if len(pair) == 2 and method in pair.values() else {}


def listed(cells: dict[str, Any]) -> str:
    """Values with intervals, and the number of particles for shares, in one line."""
    totals = {name: f" of {cell.total}" if hasattr(cell, "total") else "" for name, cell in cells.items()}
    return "; ".join(f"{name} {' '.join(formatted(cell))}{totals[name]}" for name, cell in cells.items())


# -- which steps are right ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepScores:
    """The steps of some events; all fields hold only for events that are `counted`."""

    counted: Bools  # (n,): events that are complete and have an answer
    shares: npt.NDArray[np.float32]  # (n, K): share of the particles of a step whose own objects are right
    right: Mapping[str, npt.NDArray[np.int16]]  # type -> (n,): right particles after the last step
    possible: Mapping[str, npt.NDArray[np.int16]]  # type -> (n,): particles that can be right after the first step
    weight: npt.NDArray[np.float64]  # (n,)

    @property
    def lost(self) -> Bools:
        """(n,): events whose first step is wrong."""
        return self.counted & (self.shares[:, 0] < 1)


def score_steps(model: Model, decoding: str, events: Events, accepted: Accepted, truth: Ints) -> StepScores:
    """Decode again, and compare every step with the truth (n, S): indices of objects in the input."""
    topology = model.topology  # that of the events has the same tree, but may have other stages
    counted = accepted.answerable & events.complete
    shares = np.zeros((len(events), len(topology.stages)), dtype=np.float32)
    right, possible = ({name: np.zeros(len(events), dtype=np.int16) for name in topology.types} for _ in range(2))
    batches = (
        (member, layout, rows)
        for member, in_fold in by_fold(model, events.ids)
        for layout, rows in accepted.by_layout(counted & in_fold)
    )
    for member, layout, rows in batches:
        nodes = accepted.batch(rows, layout)
        steps = decode(member.predict, topology, nodes, decoding=decoding, record=True).steps
        before = np.full(truth[rows].shape, -1)
        for k, step in enumerate(steps):
            state = stored_assignment(events[rows], accepted.to_positions(step.assignment, rows, layout))
            correct = matches(topology, state, truth[rows])
            new = step.revealed & ~matches(topology, state, before)  # by objects: particles may change places
            shares[rows, k] = (_own_right(topology, state, truth[rows]) & new).sum(axis=1) / new.sum(axis=1)
            before = state
            if k == 0:
                for name, count in _possible(topology, state, step.revealed & ~correct, truth[rows]).items():
                    possible[name][rows] = count
        for name in topology.types:
            right[name][rows] = correct[:, [p.index for p in topology.of_type(name)]].sum(axis=1)
    weight = events.each_weight
    return StepScores(counted, shares, right, possible, weight)


def _own_right(topology: Topology, state: Ints, truth: Ints) -> Bools:
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
        for particle, used in zip(same, slots, strict=True):
            alone = np.full_like(assignment, -1)
            alone[:, list(used)] = assignment[:, list(used)]
            objects.append(canonical_within(topology, particle, alone))
        sides.append(objects)
    return np.array([[(one == true).all(axis=1) for true in sides[1]] for one in sides[0]])


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


# -- numbers -----------------------------------------------------------------------------------------------


def flow(
    shares: npt.NDArray[Any], split: Sequence[bool] = (), weight: npt.NDArray[Any] | None = None
) -> list[dict[str, float]]:
    """The number of events with each history of right (+) and wrong (-) steps, after the first, second, ... step.

    `shares` (n, K) is the share of each step that is right. Steps marked in `split` may also be partly right (~);
    in other steps this counts as wrong. With unequal weights (n,), the sum of weights replaces the number of
    events.

    >>> flow(np.array([[True, True], [True, False], [False, True], [True, True]]))
    [{'+': 3, '-': 1}, {'++': 2, '+-': 1, '-+': 1, '--': 0}]
    >>> flow(np.array([[1.0, 1.0], [1.0, 0.5], [0.0, 0.5]]), [False, True])[1]
    {'++': 1, '+~': 1, '+-': 0, '-+': 0, '-~': 1, '--': 0}
    >>> flow(np.array([[True], [False], [True]]), weight=np.array([2.0, 1.0, 0.5]))
    [{'+': 2.5, '-': 1.0}]
    """
    shares = np.asarray(shares, dtype=np.float64)
    result = []
    names = [""]
    code = np.zeros(len(shares), dtype=np.int64)
    weight = None if weight is None or all_equal(weight) else weight
    for k in range(shares.shape[1]):
        outcomes = "+~-" if k < len(split) and split[k] else "+-"
        outcome = np.where(shares[:, k] >= 1, 0, len(outcomes) - 1)
        if len(outcomes) > 2:
            outcome[(shares[:, k] > 0) & (shares[:, k] < 1)] = 1
        code = len(outcomes) * code + outcome
        names = [name + sign for name in names for sign in outcomes]
        result.append(dict(zip(names, np.bincount(code, weight, len(names)).tolist(), strict=True)))
    return result


def recovery(steps: StepScores) -> dict[str, Efficiency]:
    """The share found of the particles of each type that are still possible after a wrong first step."""
    lost = steps.lost
    return {
        name: Efficiency.of(steps.right[name][lost], steps.possible[name][lost], steps.weight[lost])
        for name in reversed(list(steps.right))
    }


def recovery_difference(first: StepScores, second: StepScores) -> dict[str, Difference]:
    """The first recovery minus the second, in events in which both took a wrong first step."""
    lost = first.lost & second.lost
    weight, result = first.weight[lost], {}
    for name in reversed(list(first.right)):
        shares, residues = [], []  # residues: what each event adds to the deviation of a share
        for steps in (first, second):
            right, possible = steps.right[name][lost], steps.possible[name][lost]
            share, _ = weighted_ratio(right, possible, weight)
            shares.append(share)
            residues.append(weight * (right - share * possible) / max(float(np.sum(weight * possible)), 1e-300))
        deviation = float(np.sqrt(np.sum((residues[0] - residues[1]) ** 2)))
        gained = first.right[name][lost].astype(np.int64) - second.right[name][lost]
        only = int(gained[gained > 0].sum()), int(-gained[gained < 0].sum())
        value = shares[0] - shares[1]
        result[name] = Difference(value, *normal_interval(value, deviation), *only)
    return result
