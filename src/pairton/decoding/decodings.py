"""Decodings by name, and `decode`, which runs one on a batch of events.

Shapes: B events, N nodes, T types, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pairton._common.configuration import register
from pairton.decoding.beam import run_beam
from pairton.decoding.chain import Predict, Step, run_chain
from pairton.decoding.checked_outputs import CheckedOutputs
from pairton.decoding.exact import packed, rows_of, sums_of
from pairton.decoding.graph import masked_tokens
from pairton.decoding.patterns import plan_of
from pairton.decoding.question import Question
from pairton.decoding.state import State
from pairton.decoding.terms import Outputs
from pairton.errors import ConfigError, ModelError, nearest, shown
from pairton.events.nodes import Nodes
from pairton.topology import Stage, Topology
from pairton.topology.assignments import canonical
from pairton.topology.mixtures import Part, parts_of

__all__ = [
    "DECODINGS",
    "LISTED",
    "Decoded",
    "Decoding",
    "Task",
    "decode",
    "get_decoding",
    "register_decoding",
    "unpacked",
    "whole_event",
]

LISTED = 20  # assignments in the record of an exact decoding
TEMPERATURES = 1e-3, 1e3  # allowed range; fitted ones are near 1
PROBABILITIES = ("particle_probability", "event_probability", "pattern_probability", "topology_probability")

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Decoded:
    """The result of a decoding, one row per event.

    If an event has no answer, its assignment is -1 and its probabilities are NaN. If an answer leaves a particle
    out, the slots of that particle are -1 and its probability is NaN.
    """

    assignment: npt.NDArray[np.int32]  # (B, S): nodes; interchangeable products are in canonical order
    particle_probability: npt.NDArray[np.float64]  # (B, P)
    event_probability: npt.NDArray[
        np.float64
    ]  # (B,): of the assignment; for steps and one_shot, of the chain of choices
    exact: Bools  # (B,): the probabilities come from sums over all hypotheses
    pattern_probability: npt.NDArray[np.float64]  # (B, patterns); NaN if the network has no output `patterns`
    topology_probability: npt.NDArray[np.float64]  # (B, topologies of a mixture); no columns without a mixture
    heads: Outputs = field(default_factory=dict)  # (B, ...): outputs of the model's heads for the answer, by name
    steps: list[Step] = field(default_factory=list)  # if recorded: only the events with enough objects

    @property
    def answered(self) -> Bools:
        """(B,): whether each event has an answer; the answer may be that nothing is present."""
        return np.isfinite(self.event_probability) | (self.assignment >= 0).any(axis=1)

    @classmethod
    def empty(cls, topology: Topology, events: int) -> Decoded:
        """No answer for any event."""
        return cls(
            np.full((events, len(topology.slots)), -1, dtype=np.int32),
            np.full((events, len(topology.particles)), np.nan),
            np.full(events, np.nan),
            np.zeros(events, dtype=bool),
            np.full((events, len(plan_of(topology).patterns)), np.nan),
            np.full((events, len(topology.alternatives)), np.nan),
        )

    def fill(self, rows: Index, found: Decoded, selected: Bools | slice = slice(None)) -> None:
        """Copy the answers in `found`, or only the `selected` ones, into these rows."""
        for name in ("assignment", "exact", *PROBABILITIES):
            getattr(self, name)[rows] = getattr(found, name)[selected]

    def within(self, topology: Topology, part: Part) -> Decoded:
        """The answers with the columns of one topology of a mixture, in which the question was asked."""
        number = parts_of(topology).index(part)
        patterns = [k for k, pattern in enumerate(plan_of(topology).patterns) if pattern.part == number]
        return replace(
            self,
            assignment=self.assignment[:, part.slots],
            particle_probability=self.particle_probability[:, part.particles],
            pattern_probability=self.pattern_probability[:, patterns],
        )

    def drop(self, rows: Bools) -> None:
        """Remove the answers of some events."""
        if not rows.any():
            return
        self.assignment[rows], self.exact[rows] = -1, False
        for name in PROBABILITIES:
            getattr(self, name)[rows] = np.nan


@dataclass(frozen=True)
class Task:
    """The input of a decoding: a network, events, and settings.

    The events have enough objects for all slots, unless the decoding has `knows_missing`.
    """

    predict: Predict
    topology: Topology
    nodes: Nodes
    temperatures: tuple[float, ...]  # gains are divided by them
    width: int = 1  # hypotheses to keep
    record: bool = False
    question: Question = field(default_factory=Question)


@dataclass(frozen=True)
class Decoding:
    """A way to get from the outputs of a network to an assignment."""

    name: str
    about: str  # one line for help texts
    run: Callable[[Task], Decoded]
    asks_again: bool  # it runs the network again, with tokens for what was revealed
    temperatures: Literal["event", "stage"]  # one for the event, or one per stage
    exportable: bool = False  # `pairton export --whole` can put it into the ONNX graph
    fitted_as: str | None = None  # another decoding whose fitted temperatures it uses
    knows_missing: bool = False  # it takes a `Question`, and events with fewer objects than slots
    only_own: bool = False  # only for models that name it, as it reads other outputs than `edges`
    width: int | None = None  # hypotheses per event; another number is part of the name, as in beam:5

    def n_temperatures(self, topology: Topology) -> int:
        return 1 if self.temperatures == "event" else len(topology.stages)


DECODINGS: dict[str, Decoding] = {}
DEFAULT_QUESTION = Question()


def register_decoding(decoding: Decoding) -> None:
    """Make a decoding available by its name, in Python and on the command line."""
    register(DECODINGS, decoding.name, decoding, "decoding")


def get_decoding(name: str) -> Decoding:
    """The decoding of this name, such as steps, beam or beam:5; ConfigError if there is none."""
    base, colon, number = name.partition(":")
    if base not in DECODINGS:
        known = ", ".join(DECODINGS)
        raise ConfigError(f"no decoding {shown(name)}: choose one of {known}{nearest(base, DECODINGS)}")
    decoding = DECODINGS[base]
    if not colon:
        return decoding
    if decoding.width is None or not number.isdecimal() or int(number) < 1:
        raise ConfigError(
            f"no decoding {shown(name)}: beam takes the number of hypotheses to keep, 1 or more, as in beam:5"
        )
    return replace(decoding, name=name, width=int(number))


def decode(
    predict: Predict,
    topology: Topology,
    nodes: Nodes,
    *,
    decoding: str = "exact",
    temperatures: Sequence[float] | None = None,
    record: bool = False,
    question: Question = DEFAULT_QUESTION,
) -> Decoded:
    """Assign nodes to the slots of the topology.

    predict        runs the network: takes nodes and tokens, returns outputs by name
    topology       the decay tree to look for
    nodes          the objects of the events
    decoding       a name in `DECODINGS`; beam:5 is a beam of five hypotheses
    temperatures   gains are divided by them: one for the event, or one per stage, depending on the decoding
    record         keep every step: input and output of the network, candidates, choice; not for a beam
    question       which answer, whether it may leave particles out, and a prior; only for the decoding `exact`

    An event has no answer if the network gives NaN, infinity or values beyond 1e30 for it. It has none either if
    it has fewer objects of a kind than slots, unless the network has the output `patterns` and the decoding is
    `exact`: then the answer contains the particles that fit, and only events without objects have none. Raises
    ConfigError for an unknown decoding, or for settings that the decoding does not take.

    >>> from pairton.topology import load_topology
    >>> logits = np.zeros((1, 1, 4, 4), dtype=np.float32)
    >>> logits[0, 0, [0, 2, 1, 3], [2, 0, 3, 1]] = 5  # objects 0 and 2, 1 and 3 are pairs
    >>> event = Nodes.full({"jet": np.zeros((1, 4, 5), dtype=np.float32)})
    >>> answer = decode(lambda nodes, tokens: {"edges": logits}, load_topology("hh4b"), event)
    >>> answer.assignment.tolist(), answer.event_probability.round(3).tolist()
    ([[0, 2, 1, 3]], [1.0])
    """
    chosen = get_decoding(decoding)
    width = chosen.width or 1
    if width > 1 and record:
        raise ConfigError(f"a beam of {width} has no single chain to record: use steps")
    given = _temperatures(topology, chosen, temperatures)
    if not (question.is_default or chosen.knows_missing):
        raise ConfigError(f"{decoding} decoding takes no other answer, absent particles or prior: use exact")
    result = Decoded.empty(topology, len(nodes))
    enough = nodes.can_fill(topology)
    if chosen.knows_missing:
        enough |= nodes.can_hold(topology, question.needs(topology))
    (rows,) = np.nonzero(enough)
    if not len(rows):
        return result
    selected = replace(nodes if len(rows) == len(nodes) else nodes[rows], rows=np.arange(len(rows)))
    checked = CheckedOutputs(predict, len(selected))
    found = chosen.run(Task(checked, topology, selected, given, width, record, question))
    good = checked.good & np.isfinite(found.event_probability)
    result.fill(rows[good], found, good)
    result.steps.extend(found.steps)
    return result


def _temperatures(topology: Topology, decoding: Decoding, given: Sequence[float] | None) -> tuple[float, ...]:
    wanted = decoding.n_temperatures(topology)
    values = (1.0,) * wanted if given is None else tuple(float(value) for value in given)
    least, most = TEMPERATURES
    if len(values) != wanted or not all(least <= value <= most for value in values):
        takes = "one" if wanted == 1 else f"one per stage ({', '.join(map(str, topology.stages))})"
        raise ConfigError(
            f"temperatures are {list(values)}, but {decoding.name} decoding takes {takes}, from {least:g} to "
            f"{most:g}"
        )
    return values


# -- built-in decodings ----------------------------------------------------------------------------------


def _run_exact(task: Task) -> Decoded:
    """The best hypothesis, with probabilities from sums over all hypotheses."""
    topology, nodes, question = task.topology, task.nodes, task.question
    result = Decoded.empty(topology, len(nodes))
    n_nodes = nodes.mask.shape[1]
    tokens = masked_tokens(topology, len(nodes), n_nodes)
    outputs = task.predict(nodes, tokens)
    if "patterns" not in outputs and (question.prior or question.allow_absent):
        raise ModelError(
            "the network knows complete events only, so it can neither leave particles out nor take a prior: "
            "use a model that was trained with network.patterns"
        )
    listed = np.full((len(nodes), LISTED, len(topology.slots)), -1, dtype=np.int16)
    chances = np.zeros((len(nodes), LISTED))
    choice = np.zeros(len(nodes), dtype=np.intp)
    layouts, group = np.unique(nodes.counts, axis=0, return_inverse=True)
    for k, layout in enumerate(layouts):
        if "patterns" not in outputs and (layout < topology.slots_per_kind).any():
            continue
        (same,) = np.nonzero(group.reshape(-1) == k)
        order = np.argsort(~nodes.mask[same], axis=1, kind="stable")[:, : layout.sum()]
        part = rows_of(outputs, same)
        if layout.sum() < n_nodes:
            part = packed(part, order)
        sums = sums_of(topology, tuple(layout.tolist()), part, task.temperatures[0], question)
        found = sums.answer()
        # the map preserves the order of nodes, so the canonical order stays
        result.assignment[same] = unpacked(found.assignment, order)[:, 0]
        result.event_probability[same] = sums.probability(found)[:, 0]
        result.particle_probability[same] = sums.particle_probability(found.assignment[:, 0])
        if "patterns" in outputs:
            result.pattern_probability[same] = sums.pattern_probability
        if topology.alternatives:
            result.topology_probability[same] = sums.topology_probability
        result.exact[same] = True
        if task.record:
            few = sums.listed(LISTED)
            count, row = few.score.shape[1], np.arange(len(same))
            is_answer = (few.assignment == found.assignment).all(axis=2)
            choice[same] = at = np.where(is_answer.any(axis=1), is_answer.argmax(axis=1), count - 1)
            few.assignment[row, at], few.score[row, at] = found.assignment[:, 0], found.score[:, 0]
            listed[same, :count], chances[same, :count] = unpacked(few.assignment, order), sums.probability(few)
    if task.record:
        result.steps.append(whole_event(topology, tokens, outputs, listed, chances, choice, result.assignment))
    return result


def unpacked(assignment: npt.NDArray[np.integer[Any]], order: Index) -> Index:
    """(B, k, S): the nodes of the batch from positions in `order` (B, n), the nodes of each event; -1 stays."""
    taken = np.take_along_axis(order[:, None], np.maximum(assignment, 0).astype(np.intp), axis=2)
    return np.where(assignment >= 0, taken, -1)


def whole_event(
    topology: Topology,
    tokens: npt.NDArray[np.uint8],
    outputs: Outputs,
    listed: npt.NDArray[np.int16],
    chances: npt.NDArray[np.float64],
    choice: Index,
    assignment: npt.NDArray[np.int32],
) -> Step:
    """The record of an exact decoding: one step, whose choices are the most probable hypotheses."""
    types = (tuple(root.type for root in topology.roots),) * LISTED
    width = max(len(root.slots) for root in topology.roots)
    nodes = np.full((len(listed), LISTED, len(topology.roots), width), -1, dtype=np.int16)
    for k, root in enumerate(topology.roots):
        nodes[:, :, k, : len(root.slots)] = listed[:, :, list(root.slots)]
    everything = np.ones((len(listed), len(topology.particles)), dtype=bool)
    return Step(None, tokens, outputs["edges"], types, nodes, chances, choice, assignment, everything)


def _run_steps(task: Task, refresh: bool = True) -> Decoded:
    """Stage by stage; with `refresh`, the network runs before each stage and sees what was revealed."""
    result = Decoded.empty(task.topology, len(task.nodes))
    state, steps = run_chain(
        task.predict,
        task.topology,
        task.nodes,
        temperatures=task.temperatures,
        refresh=refresh,
        record=task.record,
    )
    _enter(result, np.arange(len(task.nodes)), state)
    result.steps.extend(steps)
    return result


def _run_one_shot(task: Task) -> Decoded:
    return _run_steps(task, refresh=False)


def _run_beam(task: Task) -> Decoded:
    if task.width == 1:
        return _run_steps(task)
    result = Decoded.empty(task.topology, len(task.nodes))
    found = run_beam(task.predict, task.topology, task.nodes, width=task.width, temperatures=task.temperatures)
    _enter(result, np.arange(len(task.nodes)), found)
    return result


def _run_one_by_one(task: Task) -> Decoded:
    """Steps that reveal one particle each: the 4-step variant of the paper."""
    stages, temperatures = [], []
    for stage, temperature in zip(task.topology.stages, task.temperatures, strict=True):
        parts = [stage] if stage.any else [Stage((name,)) for name in stage.types]
        stages += parts
        temperatures += [temperature] * len(parts)
    topology = task.topology.with_stages(stages)
    return _run_steps(Task(task.predict, topology, task.nodes, tuple(temperatures), record=task.record))


def _enter(result: Decoded, rows: Index, state: State) -> None:
    """Copy complete states into the rows of the result."""
    topology = state.topology
    assignment = np.asarray(canonical(topology, state.place()[0]))
    result.assignment[rows] = assignment
    result.event_probability[rows] = np.exp(state.log_probability)
    for particle in topology.particles:
        same = state.found[particle.type]
        here = assignment[:, list(particle.slots)]
        which = (same.nodes == here[:, None]).all(axis=2).argmax(axis=1)
        result.particle_probability[rows, particle.index] = same.probability[np.arange(len(rows)), which]


for _entry in (
    Decoding(
        "exact", "the best of all assignments, in one pass", _run_exact, False, "event", True, knows_missing=True
    ),
    Decoding("steps", "stage by stage; the network sees what was revealed", _run_steps, True, "stage"),
    Decoding("one_shot", "stage by stage, from the first answer alone", _run_one_shot, False, "stage"),
    Decoding("beam", "steps with several hypotheses", _run_beam, True, "stage", fitted_as="steps", width=8),
    Decoding("one_by_one", "steps, one particle each", _run_one_by_one, True, "stage", fitted_as="steps"),
):
    register_decoding(_entry)
