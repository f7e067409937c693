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
from pairton.decoding.patterns import Question, plan_of
from pairton.decoding.terms import Outputs
from pairton.errors import ConfigError, nearest, shown
from pairton.events.nodes import MOST_OBJECTS, Nodes
from pairton.topology import Stage, Topology

__all__ = [
    "DECODINGS",
    "LISTED",
    "Decoded",
    "Decoding",
    "Predict",
    "Step",
    "Task",
    "decode",
    "get_decoding",
    "register_decoding",
    "whole_event",
]

LISTED = 20  # choices in the record of a step
LARGEST_LOGIT = 1e30  # sums of a thousand, over any allowed temperature, stay finite in single precision
TEMPERATURES = 1e-3, 1e3  # allowed range; fitted ones are near 1
PROBABILITIES = (
    "particle_probability",
    "event_probability",
    "pattern_probability",
    "topology_probability",
    "best_probability",
)

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]
Predict = Callable[[Nodes, npt.NDArray[np.uint8]], Outputs]  # takes tokens (B, T, N, N), which it may ignore


@dataclass(frozen=True)
class Step:
    """The record of one step: the input and output of the network, and the best choices; the first is taken.

    A choice is one particle, or several that are revealed together. Types with fewer slots than others have -1 at
    the end of their row of `nodes`. If there are fewer choices than columns, the others have -1 everywhere.
    """

    stage: Stage | None  # None: the whole event at once
    tokens: npt.NDArray[np.uint8]  # (B, T, N, N)
    edges: npt.NDArray[np.float32]  # (B, T, N, N): logits
    types: npt.NDArray[np.int8]  # (B, C choices, particles of the choice): indices in `Topology.types`
    nodes: npt.NDArray[np.int16]  # (B, C, particles of the choice, slots)
    probability: npt.NDArray[np.float64]  # (B, C)
    possible: Index  # (B,): number of possible choices, with those that are not listed
    assignment: npt.NDArray[np.int32]  # (B, S): after the step, -1 where nothing is revealed
    revealed: Bools  # (B, P)


@dataclass(frozen=True)
class Decoded:
    """The result of a decoding, one row per event.

    If an event has no answer, its assignment is -1 and its probabilities are NaN. If an answer leaves a particle
    out, the slots of that particle are -1 and its probability is NaN.
    """

    assignment: npt.NDArray[np.int32]  # (B, S): nodes; interchangeable products are in canonical order
    particle_probability: npt.NDArray[np.float64]  # (B, P)
    event_probability: npt.NDArray[np.float64]  # (B,): of the assignment; in steps, of the chain of choices
    exact: Bools  # (B,): the probabilities come from sums over all hypotheses
    pattern_probability: npt.NDArray[np.float64]  # (B, patterns); NaN if the network has no output `patterns`
    topology_probability: npt.NDArray[np.float64]  # (B, topologies of a mixture); no columns without a mixture
    heads: Outputs = field(default_factory=dict)  # (B, ...): outputs of the model's heads for the answer, by name
    steps: list[Step] = field(default_factory=list)  # if recorded: only the events with enough objects
    best: npt.NDArray[np.int32] | None = None  # (B, K, S): the most probable hypotheses, on request; -1 for none
    best_probability: npt.NDArray[np.float64] | None = None  # (B, K); NaN for none

    @property
    def answered(self) -> Bools:
        """(B,): whether each event has an answer; the answer may be that nothing is present."""
        return np.isfinite(self.event_probability) | (self.assignment >= 0).any(axis=1)

    @classmethod
    def empty(cls, topology: Topology, events: int, best: int = 0) -> Decoded:
        """No answer for any event, with room for the `best` hypotheses."""
        return cls(
            np.full((events, len(topology.slots)), -1, dtype=np.int32),
            np.full((events, len(topology.particles)), np.nan),
            np.full(events, np.nan),
            np.zeros(events, dtype=bool),
            np.full((events, len(plan_of(topology).patterns)), np.nan),
            np.full((events, len(topology.alternatives)), np.nan),
            best=np.full((events, best, len(topology.slots)), -1, dtype=np.int32) if best else None,
            best_probability=np.full((events, best), np.nan) if best else None,
        )

    def fill(self, rows: Index, found: Decoded, selected: Bools | slice = slice(None)) -> None:
        """Copy the answers in `found`, or only the `selected` ones, into these rows."""
        for name in ("assignment", "exact", "best", *PROBABILITIES):
            if getattr(self, name) is not None:
                getattr(self, name)[rows] = getattr(found, name)[selected]

    def drop(self, rows: Bools) -> None:
        """Remove the answers of some events."""
        if not rows.any():
            return
        empty = {"assignment": -1, "best": -1, "exact": False, **dict.fromkeys(PROBABILITIES, np.nan)}
        for name, nothing in empty.items():
            if getattr(self, name) is not None:
                getattr(self, name)[rows] = nothing


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
    """A way to get from the outputs of a network to an assignment; `limit` and `check` are called with a model."""

    name: str
    about: str  # one line for help texts
    run: Callable[[Task], Decoded]
    temperatures: Literal["event", "stage"] = "event"  # one for the event, or one per stage
    limit: Callable[[Any], int] = lambda model: MOST_OBJECTS  # objects of each kind; larger events are truncated
    check: Callable[[Any], None] = lambda model: None  # raises an error if it does not fit a model
    reads: str = "edges"  # the outputs that it needs, by the start of their names
    fitted_as: str | None = None  # another decoding whose fitted temperatures it uses
    knows_missing: bool = False  # it takes a `Question`, merged particles, and fewer objects than slots
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
    record         keep every step, except those of `exact` and of a beam, which have none
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
    run = get_decoding(decoding)
    width = run.width or 1
    if width > 1 and record:
        raise ConfigError(f"a beam of {width} has no single chain to record: use steps")
    if not (question.is_default or run.knows_missing):
        raise ConfigError(f"{decoding} decoding takes no other answer, absent particles or prior: use exact")
    if not run.knows_missing:
        topology.refuse_merged(f"{decoding} decoding")
    count, (least, most) = run.n_temperatures(topology), TEMPERATURES
    values = (1.0,) * count if temperatures is None else tuple(float(value) for value in temperatures)
    if len(values) != count or not all(least <= value <= most for value in values):
        takes = "one" if count == 1 else f"one per stage ({', '.join(map(str, topology.stages))})"
        raise ConfigError(
            f"temperatures are {list(values)}, but {run.name} decoding takes {takes}, from {least:g} to {most:g}"
        )
    result = Decoded.empty(topology, len(nodes), question.best)
    enough = nodes.can_fill(topology)
    if run.knows_missing:
        enough |= nodes.can_hold(topology, question.needs(topology))
    (rows,) = np.nonzero(enough)
    if len(rows):
        selected = replace(nodes if len(rows) == len(nodes) else nodes[rows], rows=np.arange(len(rows)))
        checked = CheckedOutputs(predict, len(selected))
        answer = run.run(Task(checked, topology, selected, values, width, record, question))
        good = checked.good & np.isfinite(answer.event_probability)
        result.fill(rows[good], answer, good)
        result.steps.extend(answer.steps)
    return result


class CheckedOutputs:
    """Runs a network and checks its outputs, since a decoding would turn even NaN or infinity into an answer.

    Bad values are replaced by zero, and `good` is False for their events, which then get no answer.
    """

    def __init__(self, predict: Predict, events: int) -> None:
        self.predict = predict
        self.good = np.ones(events, dtype=bool)

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8]) -> Outputs:
        outputs = self.predict(nodes, tokens)
        if all((np.abs(array) <= LARGEST_LOGIT).all() for array in outputs.values()):
            return outputs  # nearly always; the padding need not be looked up
        mask = nodes.mask
        pairs = mask[:, None, :, None] & mask[:, None, None, :]
        inside = {"edges": pairs, "triplets": pairs[..., None] & mask[:, None, None, None]}
        clean = {}
        for name, array in outputs.items():
            finite = np.abs(array) <= LARGEST_LOGIT  # False for NaN
            wrong = ~finite & inside[name] if name in inside else ~finite  # padding may hold any value
            assert nodes.rows is not None
            self.good[nodes.rows[wrong.reshape(len(array), -1).any(axis=1)]] = False
            clean[name] = np.where(finite, array, np.float32(0))
        return clean


def whole_event(
    topology: Topology,
    tokens: npt.NDArray[np.uint8],
    edges: npt.NDArray[np.float32],
    listed: npt.NDArray[np.integer[Any]],
    chances: npt.NDArray[np.float64],
) -> Step:
    """The record of a decoding in one step, whose choices are assignments (B, k, S), the answer first."""
    width = max(len(root.slots) for root in topology.roots)
    nodes = np.full((*listed.shape[:2], len(topology.roots), width), -1, dtype=np.int16)
    for k, root in enumerate(topology.roots):
        nodes[:, :, k, : len(root.slots)] = listed[:, :, list(root.slots)]
    types = np.array([topology.type_index(root.type) for root in topology.roots], dtype=np.int8)
    possible = (listed >= 0).any(axis=2).sum(axis=1)
    everything = np.ones((len(listed), len(topology.particles)), dtype=bool)
    types = np.broadcast_to(types, nodes.shape[:3])
    return Step(None, tokens, edges, types, nodes, chances, possible, listed[:, 0].astype(np.int32), everything)
