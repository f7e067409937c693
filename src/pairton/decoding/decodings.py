"""Decodings by name, and `decode`, which runs one on a batch of events.

Shapes: B events, N nodes, T types, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from pairton.decoding.beam import run_beam
from pairton.decoding.chain import Predict, Step, run_chain
from pairton.decoding.checked_outputs import CheckedOutputs
from pairton.decoding.exact import packed, rows_of, sums_of
from pairton.decoding.graph import MASKED
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
    "BEAM",
    "DECODINGS",
    "LISTED",
    "Decoded",
    "Decoding",
    "Task",
    "decode",
    "get_decoding",
    "register_decoding",
    "whole_event",
]

BEAM = 8  # hypotheses of a beam, where nothing else is said
LISTED = 20  # assignments in the record of an exact decoding
TEMPERATURES = 1e-3, 1e3  # least and most: fitted ones are near 1
PROBABILITIES = ("particle_probability", "event_probability", "pattern_probability", "topology_probability")

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Decoded:
    """One row per event. Without an answer the assignment is -1 and probabilities are NaN.

    An answer may leave particles out: their slots are -1 and their probability NaN. With nothing present, all are.
    """

    assignment: npt.NDArray[np.int32]  # (B, S): nodes, in canonical order of interchangeable products
    particle_probability: npt.NDArray[np.float64]  # (B, P)
    event_probability: npt.NDArray[np.float64]  # (B,): of the assignment; of the chain for steps and one_shot
    exact: Bools  # (B,): from a sum over all hypotheses, not from steps
    pattern_probability: npt.NDArray[np.float64]  # (B, patterns); NaN where the network knows complete events only
    topology_probability: npt.NDArray[np.float64]  # (B, topologies of a mixture); none for any other topology
    heads: Outputs = field(default_factory=dict)  # (B, ...): what declared heads say of the answer, by name
    steps: list[Step] = field(default_factory=list)  # with record=True, of the events with enough objects

    @property
    def answered(self) -> Bools:
        """(B,): events with an answer, which may be that nothing is present."""
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

    def fill(self, rows: Index, found: Decoded, mine: Bools | slice = slice(None)) -> None:
        """Write the answers for some events, all or `mine` of those found, into their rows."""
        for name in ("assignment", "exact", *PROBABILITIES):
            getattr(self, name)[rows] = getattr(found, name)[mine]

    def within(self, topology: Topology, part: Part) -> Decoded:
        """Answers of a mixture as answers in one of its topologies, which they were asked in."""
        number = parts_of(topology).index(part)
        patterns = [k for k, pattern in enumerate(plan_of(topology).patterns) if pattern.part == number]
        return replace(
            self,
            assignment=self.assignment[:, part.slots],
            particle_probability=self.particle_probability[:, part.particles],
            pattern_probability=self.pattern_probability[:, patterns],
        )

    def drop(self, rows: Bools) -> None:
        """Take back the answers for some events."""
        if not rows.any():
            return
        self.assignment[rows], self.exact[rows] = -1, False
        for name in PROBABILITIES:
            getattr(self, name)[rows] = np.nan


@dataclass(frozen=True)
class Task:
    """What a decoding gets: a network to ask, events, and how to go about it.

    The events have enough objects for all slots, unless the decoding says that it takes others too.
    """

    predict: Predict
    topology: Topology
    nodes: Nodes
    temperatures: tuple[float, ...]  # that gains are divided by
    beam: int = 1
    record: bool = False
    question: Question = field(default_factory=Question)


@dataclass(frozen=True)
class Decoding:
    """A way to find the assignment."""

    name: str
    about: str  # one line for help texts
    run: Callable[[Task], Decoded]
    asks_again: bool  # it shows the network what was revealed, as tokens
    temperatures: Literal["event", "stage"]  # one for the event, or one per stage
    exportable: bool = False  # as one ONNX graph, by `pairton export --whole`
    fitted_as: str | None = None  # the decoding whose temperatures hold for it, if they are not its own
    knows_missing: bool = False  # it takes questions, and events with fewer objects than slots
    only_own: bool = False  # for models that name it alone: it reads other outputs than `edges`

    def n_temperatures(self, topology: Topology) -> int:
        return 1 if self.temperatures == "event" else len(topology.stages)


DECODINGS: dict[str, Decoding] = {}
DEFAULT_QUESTION = Question()


def register_decoding(decoding: Decoding) -> None:
    """Make a decoding known by its name, in Python and on the command line."""
    DECODINGS[decoding.name] = decoding


def get_decoding(name: str) -> Decoding:
    """A decoding by its name."""
    if name not in DECODINGS:
        known = ", ".join(DECODINGS)
        raise ConfigError(f"no decoding {shown(name)}: choose one of {known}{nearest(name, DECODINGS)}")
    return DECODINGS[name]


def decode(
    predict: Predict,
    topology: Topology,
    nodes: Nodes,
    *,
    decoding: str = "exact",
    beam: int | None = None,
    temperatures: Sequence[float] | None = None,
    record: bool = False,
    question: Question = DEFAULT_QUESTION,
) -> Decoded:
    """Assign nodes to the slots of the topology.

    predict        asks the network: nodes and tokens in, outputs by name out
    decoding       a name in `DECODINGS`
    beam           hypotheses that a beam keeps; for the decoding `beam` alone
    temperatures   gains are divided by them: one for the event, or one per stage, as the decoding says
    record         keep every step: what the network saw and said, the candidates, the choice; not for a beam
    question       which answer, whether it may leave particles out, and a prior; for the decoding `exact` alone

    An event for which the network gives something else than numbers, or numbers beyond 1e30, whose sums are none,
    has no answer. Nor has one with fewer objects of a kind than slots for it, unless the network has the output
    `patterns` and the decoding is `exact`: then its answer is what fits, and only one without objects has none.

    >>> from pairton.topology import load_topology
    >>> logits = np.zeros((1, 1, 4, 4), dtype=np.float32)
    >>> logits[0, 0, [0, 2, 1, 3], [2, 0, 3, 1]] = 5  # objects 0 and 2, 1 and 3 are pairs
    >>> event = Nodes.full({"jet": np.zeros((1, 4, 5), dtype=np.float32)})
    >>> answer = decode(lambda nodes, tokens: {"edges": logits}, load_topology("hh4b"), event)
    >>> answer.assignment.tolist(), answer.event_probability.round(3).tolist()
    ([[0, 2, 1, 3]], [1.0])
    """
    chosen = get_decoding(decoding)
    width = _beam(decoding, beam, record)
    given = _temperatures(topology, chosen, temperatures)
    if not (question.is_default or chosen.knows_missing):
        raise ConfigError(f"{decoding} decoding gives one answer: ask for another, or with a prior, with exact")
    result = Decoded.empty(topology, len(nodes))
    enough = nodes.can_fill(topology)
    if chosen.knows_missing:
        enough |= nodes.can_hold(topology, question.needs(topology))
    (rows,) = np.nonzero(enough)
    if not len(rows):
        return result
    here = replace(nodes if len(rows) == len(nodes) else nodes[rows], rows=np.arange(len(rows)))
    checked = CheckedOutputs(predict, len(here))
    found = chosen.run(Task(checked, topology, here, given, width, record, question))
    good = checked.good & np.isfinite(found.event_probability)
    result.fill(rows[good], found, good)
    result.steps.extend(found.steps)
    return result


def _beam(decoding: str, beam: int | None, record: bool) -> int:
    """The width of the beam; 1 for none."""
    if decoding != "beam":
        if beam is not None:
            raise ConfigError(f"a beam of {beam} is for the decoding 'beam', not {decoding!r}: leave one out")
        return 1
    width = BEAM if beam is None else beam
    if width < 1:
        raise ConfigError(f"a beam of {width} keeps no hypothesis: give 1 or more")
    if width > 1 and record:
        raise ConfigError(f"a beam of {width} has no single chain to record: use steps")
    return width


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


# -- the decodings that come with Pairton ------------------------------------------------------------------


def _run_exact(task: Task) -> Decoded:
    """The best hypothesis, from sums over all of them."""
    topology, nodes, question = task.topology, task.nodes, task.question
    result = Decoded.empty(topology, len(nodes))
    n_nodes = nodes.mask.shape[1]
    tokens = np.full((len(nodes), len(topology.types), n_nodes, n_nodes), MASKED, dtype=np.uint8)
    outputs = task.predict(nodes, tokens)
    if "patterns" not in outputs and (question.prior or question.allow_absent):
        raise ModelError(
            "the network knows complete events only, so that no particle can be left out and no prior be changed: "
            "take a model that was trained with network.patterns"
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
        # an order-preserving map keeps the canonical order
        result.assignment[same] = _renamed(found.assignment, order)[:, 0]
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
            listed[same, :count], chances[same, :count] = _renamed(few.assignment, order), sums.probability(few)
    if task.record:
        result.steps.append(whole_event(topology, tokens, outputs, listed, chances, choice, result.assignment))
    return result


def _renamed(assignment: npt.NDArray[np.int8], order: Index) -> npt.NDArray[np.intp]:
    """(B, k, S): nodes of the batch from places in `order` (B, n); -1 stays."""
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
    """Stage by stage; with `refresh` the network sees what was revealed."""
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
    if task.beam == 1:
        return _run_steps(task)
    result = Decoded.empty(task.topology, len(task.nodes))
    found = run_beam(task.predict, task.topology, task.nodes, width=task.beam, temperatures=task.temperatures)
    _enter(result, np.arange(len(task.nodes)), found)
    return result


def _run_one_by_one(task: Task) -> Decoded:
    """Steps, but never two particles at once: the paper's 4-step variant."""
    stages, temperatures = [], []
    for stage, temperature in zip(task.topology.stages, task.temperatures, strict=True):
        parts = [stage] if stage.any else [Stage((name,)) for name in stage.types]
        stages += parts
        temperatures += [temperature] * len(parts)
    topology = task.topology.with_stages(stages)
    return _run_steps(Task(task.predict, topology, task.nodes, tuple(temperatures), record=task.record))


def _enter(result: Decoded, rows: Index, state: State) -> None:
    """Write complete states into the rows of the result."""
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
    Decoding("beam", "steps with several hypotheses", _run_beam, True, "stage", fitted_as="steps"),
    Decoding("one_by_one", "steps, one particle each", _run_one_by_one, True, "stage", fitted_as="steps"),
):
    register_decoding(_entry)
