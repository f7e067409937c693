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
from pairton.evaluation.evaluation import Chunk, Metric, Table, formatted
from pairton.evaluation.plots import COLOURS, INK, RIGHT, WRONG, Plot, new_figure, plain
from pairton.evaluation.scores import matches
from pairton.evaluation.statistics import Difference, Efficiency, all_equal, normal_interval, weighted_ratio
from pairton.models.storage import by_fold
from pairton.reconstruction.result_columns import stored_assignment
from pairton.topology import Particle, Topology
from pairton.topology.assignments import canonical_within

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method
    from pairton.events import Events
    from pairton.events.acceptance import Accepted
    from pairton.models.model import Model

__all__ = ["Flow", "StepScores", "flow", "flow_plot", "links", "listed", "recovery_difference", "shortened"]

DECODINGS = ("one_shot", "steps")

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Counts = Sequence[Mapping[str, float]]  # after each step: history of +, ~ and - -> events, or sum of weights

FULL = 3  # with more steps, histories are shortened in the figure
EARLIER = "x"  # the history of events whose first wrong step was earlier
SCALE = 0.85  # height of all events of a step in the figure
GAP = 0.03  # between two histories, unless there are many
NODE = 0.16  # width of the bar of a history, in steps
LINE = 0.037  # height of a line of text
SIGNS = {"+": ("+", RIGHT), "~": ("~", COLOURS[5]), "-": ("−", WRONG), EARLIER: ("−", WRONG)}


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

    def objects(assignment: Ints) -> Ints:
        kept = [np.where(np.isin(np.arange(assignment.shape[1]), used), assignment, -1) for used in slots]
        return np.array([canonical_within(topology, *each) for each in zip(same, kept, strict=True)])

    return np.asarray((objects(state)[:, None] == objects(truth)[None]).all(axis=-1))


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


# -- the figure --------------------------------------------------------------------------------------------


def shortened(counts: Counts) -> list[dict[str, float]]:
    """Merge histories of many steps: right so far, wrong for the first time, and (EARLIER) wrong before.

    A negative sum of weights is drawn as zero.

    >>> shortened([{"+": 3, "-": 1}, {"++": 2, "+-": 1, "-+": 1, "--": 0}])
    [{'+': 3, '-': 1}, {'++': 2, '+-': 1, '-+': 1, '--': 0}]
    """
    drawn = [{name: max(value, 0) for name, value in each.items()} for each in counts]
    if len(drawn) <= FULL:
        return drawn
    result = []
    for k, each in enumerate(drawn):
        kept = ("+" * (k + 1), "+" * k + "~", "+" * k + "-")
        found = {name: each[name] for name in kept if name in each}
        result.append(found | ({EARLIER: max(sum(each.values()) - sum(found.values()), 0)} if k else {}))
    return result


def links(before: Mapping[str, float], now: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """History before, history after, and number of events, for two steps; from top to bottom."""
    found = [(history[:-1], history, count) for history, count in now.items() if history[:-1] in before]
    if EARLIER in now:
        found += [(old, EARLIER, count) for old, count in before.items() if not old.endswith("+")]
    return [link for link in found if link[2] > 0]


def flow_plot(name: str, flow: Mapping[str, Any]) -> Plot | None:
    """One-shot on the left, step by step on the right; both begin with the same first step, in the middle.

    `flow` is a result of the metric: `stages`, and counts for `one_shot` and `steps`.
    """
    if not (flow.get("one_shot") and flow.get("steps")):
        return None
    sides = {-1: shortened(flow["one_shot"]), 1: shortened(flow["steps"])}
    stages = [str(stage) for stage in flow["stages"]]
    depth, total = len(stages), sum(sides[1][0].values())
    if not total:
        return None

    def draw() -> Figure:
        figure = new_figure(max(10.0, 4.2 * depth), 5.6)
        axes = figure.subplots()
        titles = [(side * k, 1.09, plain(stages[k])) for side in sides for k in range(side < 0, depth)]
        for x, y, text in [*titles, (-0.5, 1.17, "← one-shot"), (0.5, 1.17, "step by step →")]:
            weight = "bold" if y < 1.1 else "normal"
            axes.annotate(text, (x, y), ha="center", fontsize=13, fontweight=weight, color=INK)
        for side, counts in sides.items():
            _draw_side(axes, side, counts, total, stages)
        axes.set(xlim=(-depth + 0.45, depth - 0.45), ylim=(-0.03, 1.24))
        axes.axis("off")
        return figure

    rows = [
        {"decoding": decoding, "step": k + 1, "stage": stages[k], "history": history, "events": count}
        for decoding in DECODINGS
        for k, each in enumerate(flow[decoding])
        for history, count in each.items()
    ]
    events = f"{total}" if isinstance(total, int) else f"Weighted (sum {total:.4g})"
    caption = (
        f"{events} complete events of {name}: right (blue, +) and wrong (orange, −) after each step, with the "
        "share of the events of the previous bar. Steps that reveal several particles are split by how many of "
        "them are right. The first step is common to both sides."
    )
    return Plot("flow", "Right and wrong steps, one-shot and step by step", caption, draw, rows)


def _draw_side(axes: Axes, side: int, counts: Counts, total: float, stages: Sequence[str]) -> None:
    """Bars of histories, the best at the top, joined by bands whose height is the number of events."""
    t = np.linspace(0, 1, 40)
    smooth = t * t * (3 - 2 * t)
    upper: dict[str, float] = {}  # of the bar of each history
    for k, each in enumerate(counts):
        leave, upper, top = upper, {}, 1.0
        for history, count in each.items():
            upper[history] = top
            top -= SCALE * count / total + (min(GAP, (1 - SCALE) / len(each)) if count else 0)
        flows, came = links(counts[k - 1], each) if k else [], dict.fromkeys(each, total)
        enter = upper.copy()
        for old, new, count in flows:
            came[new] = sum(link[2] for link in flows if link[0] == old)
            edge, height = leave[old] + (enter[new] - leave[old]) * smooth, SCALE * count / total
            x = side * (k - 1 + NODE / 2 + (1 - NODE) * t)
            axes.fill_between(x, edge - height, edge, color=SIGNS[new[-1]][1], alpha=0.28, linewidth=0)
            leave[old], enter[new] = leave[old] - height, enter[new] - height
        free = 2.0  # labels of small bars do not overlap
        for history, high in (upper if k or side > 0 else {}).items():
            count, height = each[history], SCALE * each[history] / total
            if count:
                ends = [side * k - NODE / 2, side * k + NODE / 2]
                axes.fill_between(ends, high - height, high, color=SIGNS[history[-1]][1], linewidth=0)
                words = _words(stages[k], any(name.endswith("~") for name in each))
                text = _text(words[history[-1]], history, count, count / came[history])
                free = min(high - height / 2, free - LINE)
                if k:
                    where: dict[str, Any] = {"ha": "left" if side > 0 else "right", "color": INK}
                    axes.annotate(text, (side * (k + NODE / 2 + 0.03), free), va="center", fontsize=10, **where)
                else:
                    where = {"ha": "center", "color": "white", "rotation": 90, "fontweight": "bold"}
                    lines = "\n".join(text.rsplit("  ", 1))
                    axes.annotate(lines, (0, high - height / 2), va="center", fontsize=10, **where)


def _words(stage: str, split: bool) -> dict[str, str]:
    """Words for the outcomes of a step; of a step that may be partly right, for how many particles are right."""
    words = {sign: text for sign, (text, _) in SIGNS.items()}
    if split and stage.count(" + ") == 1:
        return words | {"+": "both", "~": "one", "-": "none"}
    return words | ({"+": "all", "~": "some", "-": "none"} if split else {})


def _text(word: str, history: str, count: float, share: float) -> str:
    number = f"{count:,}".replace(",", " ") if isinstance(count, int) else f"{count:.4g}"
    return f"{word} {number}" if history == EARLIER else f"{word}  {number}  {share:.1%}"
