"""Reconstruction in memory: from events to a `Reconstruction`.

Answers are reproducible. Objects are put in a canonical order before the network runs, and their indices are
mapped back. Events are batched by layout within fixed windows of rows, so chunks in which a file is read do not
matter.

Shapes: B events of a batch, n events of a window, S slots, P particles.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded, Outputs, decode, get_decoding
from pairton.errors import ModelError, PairtonWarning
from pairton.events import Events, Status
from pairton.events.acceptance import Accepted, accept
from pairton.events.inputs import EVIDENCE, LARGE_EVIDENCE
from pairton.events.large_tags import large_tag_caveat
from pairton.events.nodes import Nodes
from pairton.events.splits import fold_of
from pairton.events.tags import ensure_evidence, tag_caveat
from pairton.kinematics.fit_settings import BUILT_IN, transfer_caveat
from pairton.models.storage import by_fold
from pairton.reconstruction.momenta import varied_events
from pairton.reconstruction.result import Reconstruction, by_falling_pt, check_columns
from pairton.reconstruction.result_columns import (
    DECODED,
    MODEL_FOLD,
    N_BTAGS,
    best_columns,
    head_shape,
    head_values,
    output_columns,
    pattern_columns,
    place_sizes,
    topology_columns,
    truth_columns,
)
from pairton.reconstruction.run_settings import RunSettings, hypotheses, knows_missing
from pairton.topology import JET, Layout, Topology, same_tree

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["BATCH", "WINDOW", "Assigner", "batch_size", "windows"]

BATCH = 128  # largest number of events per call of the network, so that every core has some
BATCH_BYTES = 2**25  # memory of one call of the network
TRIPLE_BYTES = 640  # memory of a network in ONNX Runtime, per event and triple of objects
TAG_CUT = 0.5  # a jet above it is b-tagged
SURE = 300  # if none or all of so many jets are b-tagged, something is wrong
WINDOW = 4096  # rows of the input that are batched together


class Answers(NamedTuple):
    """The answers to the events of a window."""

    accepted: Accepted
    decoded: Decoded  # assignments are positions in `events.objects`
    described: dict[str, npt.NDArray[Any]]  # outputs that describe events


class Assigner:
    """Assigns the objects of events to particles, with a model and settings; several threads may call it."""

    def __init__(self, model: Model, settings: RunSettings) -> None:
        self.model, self.settings = model, settings.for_model(model)
        info = model.info
        check_columns(info.topology, info.heads, {k: info.outputs[k] for k in self._others}, f"{model.name}: ")
        self._checked: set[str] = set()  # what was warned of, or not, with the first events
        self.temperatures = model.temperatures
        if model.temperatures is not None:
            decoding = get_decoding(str(self.settings.decoding))
            if model.decoding not in (decoding.name, decoding.fitted_as):
                self.temperatures = None  # they were fitted for another decoding

    @property
    def _others(self) -> list[str]:
        """Names of the outputs that describe events, besides the heads that the recipe declares."""
        axes, known = self.model.info.outputs, (*DECODED, *self.model.info.heads)
        return [name for name in axes if name not in known and "node" not in axes[name]]

    @cached_property
    def members(self) -> tuple[Assigner, ...]:
        """One per fold of events, with its own network and temperatures; without folds, only itself."""
        folds = getattr(self.model, "folds", ())
        return tuple(Assigner(each, self.settings) for each in folds) or (self,)

    def check(self, topology: Topology) -> None:
        """Raise ModelError if the events have another decay tree than the model."""
        if not same_tree(topology, self.model.topology):
            raise ModelError(
                f"the model {self.model.name} is for {self.model.topology.name}, but the events are for "
                f"{topology.name}: choose a model for their topology, or read them with the topology of the model"
            )

    def accept(self, events: Events) -> Accepted:
        """The objects that the model uses."""
        return accept(
            events,
            self.model.domain,
            self.model.inputs,
            max_objects=self.settings.max_objects,
            cuts=self.settings.cuts,
            needs=self.settings.needs(self.model),
        )

    def with_evidence(self, events: Events) -> Events:
        """The events with the evidence of tags, if needed; warns once if a tagger or a detector is assumed."""
        settings = self.model.info.recipe.get(BUILT_IN)
        if settings and self._first("detector"):
            _warn(transfer_caveat(settings, events.metadata))
        inputs = self.model.inputs
        for kind in inputs.kinds:
            if not set(LARGE_EVIDENCE).isdisjoint(inputs.fields(kind)) and self._first(f"evidence of {kind}"):
                _warn(large_tag_caveat(events, kind))
        if JET not in inputs.kinds or set(EVIDENCE).isdisjoint(inputs.fields(JET)):
            return events
        found = ensure_evidence(events)
        if self._first("evidence"):
            _warn(tag_caveat(events))
        return found

    def _first(self, what: str) -> bool:
        """Whether something is checked for the first time."""
        new = what not in self._checked
        self._checked.add(what)
        return new

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of outputs that describe events; if their axes do not tell, an artificial event is run."""
        axes, heads = self.model.info.outputs, self.model.info.heads
        declared = {name: head_shape(spec, self.model.topology) for name, spec in heads.items()}
        names = self._others
        topology, inputs = self.model.topology, self.model.inputs
        sizes = place_sizes(topology)
        if all(axis in sizes for name in names for axis in axes[name]):
            return {name: tuple(sizes[axis] for axis in axes[name]) for name in names} | declared
        event = {
            kind: np.ones((1, max(1, slots), len(inputs.columns(kind))), dtype=np.float32)
            for kind, slots in zip(topology.kinds, topology.slots_per_kind, strict=True)
        }
        outputs = self.members[0].model.predict(Nodes.full(event))
        return {name: outputs[name].shape[1:] for name in names} | declared

    def assign(self, nodes: Nodes) -> tuple[Decoded, Outputs]:
        """The answers for a batch, and the outputs of the network that describe events."""
        found, described = self._answer(nodes)
        found.drop(~_all_finite(described, len(nodes)))  # before places of absent particles become NaN
        for name, spec in self.model.info.heads.items():
            if name in described:  # absent if no event can have an answer
                described[name] = head_values(spec, self.model.topology, described[name], found.assignment)
        return found, described

    def _answer(self, nodes: Nodes) -> tuple[Decoded, dict[str, npt.NDArray[Any]]]:
        """As `assign`, before events whose outputs are not finite lose their answers."""
        if (answer := getattr(self.model, "answer", None)) is not None:
            found, outputs = answer(nodes)
            return found, dict(outputs)
        described: dict[str, npt.NDArray[Any]] = {}
        wanted, reads = self.shapes, get_decoding(str(self.settings.decoding)).reads

        def predict(nodes: Nodes, tokens: npt.NDArray[np.uint8]) -> Outputs:
            outputs = self.model.predict(nodes, tokens)
            for name in wanted:  # from the first call, in which nothing was revealed
                described.setdefault(name, outputs[name])
            decoded = (name for name in outputs if name in DECODED or name.startswith(reads))
            return {name: outputs[name] for name in decoded}

        found = decode(
            predict,
            self.model.topology,
            nodes,
            decoding=str(self.settings.decoding),
            temperatures=self.temperatures,
            question=self.settings.question,
        )
        return found, described

    def assign_all(
        self, accepted: Accepted, ids: npt.NDArray[np.uint64], nominal: Answers | None = None
    ) -> Answers:
        """As `assign`, for events of all layouts and folds; assignments are positions in `events.objects`.

        nominal: answers to these events before a variation; they hold where the used objects are the same
        """
        n = len(accepted.status)
        found = Decoded.empty(self.model.topology, n, self.settings.best)
        outputs = {k: np.full((n, *shape), np.nan, dtype=np.float32) for k, shape in self.shapes.items()}
        todo = accepted.answerable
        if nominal is not None:
            rows = np.flatnonzero(same := todo & _same_objects(accepted, nominal.accepted))
            found.fill(rows, nominal.decoded, same)
            for name, array in nominal.described.items():
                outputs[name][rows] = array[rows]
            todo = todo & ~same

        def fill(batch: tuple[Assigner, Layout, npt.NDArray[np.intp]]) -> None:
            member, layout, rows = batch
            answer, described = member.assign(accepted.batch(rows, layout))
            found.fill(rows, _at_positions(answer, accepted, rows, layout))
            for name, array in described.items():
                outputs[name][rows] = array

        width = hypotheses(self.settings.decoding)
        batches = [
            (member, layout, some)
            for member, (_, in_fold) in zip(self.members, by_fold(self.model, ids), strict=True)
            for layout, rows in accepted.by_layout(todo & in_fold)
            for size in [batch_size(layout, width)]
            for some in np.split(rows, range(size, len(rows), size))
        ]
        threads = min(len(batches), getattr(self.model, "at_once", 1))
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            for _ in map(fill, batches) if pool is None else pool.map(fill, batches):
                pass
        return Answers(accepted, found, outputs)

    def run(self, window: Events, nominal: Answers | None = None) -> Reconstruction:
        """Reconstruct the events of one window, and their variations; `nominal`: as for `assign_all`."""
        window = self.with_evidence(window)
        accepted = self.accept(window)
        answers = self.assign_all(accepted, window.ids, nominal)
        found, momenta, exchanged = by_falling_pt(window, answers.decoded)
        tags = self.count_tags(window, accepted)
        info = self.model.info
        outputs = {**output_columns(info.topology, info.heads, info.outputs, answers.described, exchanged), **tags}
        outputs |= topology_columns(self.model.topology, found)
        outputs |= (
            pattern_columns(window.topology, found)
            if knows_missing(self.model, str(self.settings.decoding))
            else {}
        )
        outputs |= truth_columns(window, found.assignment) if self.settings.truth else {}
        outputs |= best_columns(window, found) if self.settings.best else {}
        if len(self.members) > 1:
            outputs[MODEL_FOLD] = fold_of(window.ids, len(self.members)).astype(np.int32)
        status = self.status_of(accepted, tags)
        status[accepted.answerable & ~found.answered] = Status.BAD_OUTPUT
        return Reconstruction(
            window,
            found.assignment,
            status,
            found.event_probability,
            found.particle_probability,
            found.exact,
            dict(zip(window.topology.kinds, accepted.nodes.counts.T, strict=True)),
            outputs,
            {name: self.run(varied_events(window, name), answers) for name in window.variations},
            solved=momenta,
        )

    def count_tags(self, events: Events, accepted: Accepted) -> dict[str, npt.NDArray[Any]]:
        """`n_btags` (n,): the number of b-tagged jets among those used, if the model takes tags or their evidence.

        Warns once if none or all jets are tagged.
        """
        domain, inputs = self.model.domain, self.model.inputs
        fields = inputs.fields(JET) if JET in inputs.kinds else ()
        takes = "btag" in domain[JET].binary or not set(EVIDENCE).isdisjoint(fields)
        if not takes or "btag" not in ak.fields(events.jets):
            return {}
        mask = accepted.nodes.masks[JET]
        starts = np.cumsum(events.n_jets) - events.n_jets
        flat = np.asarray(ak.flatten(events.jets.btag))
        tagged = mask.copy()
        tagged[mask] = flat[(starts[:, None] + accepted.position[JET])[mask]] > TAG_CUT
        share = tagged[mask].mean() if mask.any() else 0.5
        if mask.sum() >= SURE and share in (0, 1) and self._first("tags"):
            _warn(
                f"{'none' if share == 0 else 'every one'} of {mask.sum()} jets has a b-tag: the tagger may not be "
                "filled, or its cut may be out of range; choose another with --btag TAGGER:CUT (`pairton inspect` "
                "lists the taggers)"
            )
        return {N_BTAGS: tagged.sum(axis=1).astype(np.int32)}

    def status_of(self, accepted: Accepted, tags: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
        """(n,): the status of events before their answers; `tags` from `count_tags`.

        Events must pass the selection of the model's topology, as those of the training did.
        """
        counts = dict(zip(self.model.topology.kinds, accepted.nodes.counts.T, strict=True))
        selected = self.model.topology.selection.accepts(counts, tags.get(N_BTAGS))
        status = accepted.status.copy()
        status[(status == Status.OK) & ~selected] = Status.OUTSIDE_SELECTION
        return status


def _warn(text: str) -> None:
    if text:
        warnings.warn(text, PairtonWarning, stacklevel=3)


def _at_positions(answer: Decoded, accepted: Accepted, rows: npt.NDArray[np.intp], layout: Layout) -> Decoded:
    """Answers with positions in `events.objects` instead of nodes."""
    best = answer.best
    if best is not None:
        each = [accepted.to_positions(best[:, k], rows, layout) for k in range(best.shape[1])]
        best = np.stack(each, axis=1)
    return replace(answer, assignment=accepted.to_positions(answer.assignment, rows, layout), best=best)


def _same_objects(one: Accepted, other: Accepted) -> npt.NDArray[np.bool_]:
    """(n,): events that have the same used objects in both."""
    same = (one.nodes.counts == other.nodes.counts).all(axis=1)
    for kind, values in one.nodes.values.items():
        width = min(values.shape[1], other.nodes.values[kind].shape[1])  # equal counts: the rest is padding
        pairs = (values, other.nodes.values[kind]), (one.position[kind], other.position[kind])
        for mine, its in pairs:
            same &= (mine[:, :width] == its[:, :width]).reshape(len(same), -1).all(axis=1)
    return np.asarray(same)


def batch_size(layout: Layout, width: int = 1) -> int:
    """The number of events per call of the network; it depends only on the layout and the width of a beam.

    >>> [batch_size((n,)) for n in (6, 8, 12, 16, 32)]
    [128, 102, 30, 12, 1]
    """
    return int(np.clip(BATCH_BYTES // (TRIPLE_BYTES * max(1, sum(layout)) ** 3 * width), 1, BATCH))


def _all_finite(outputs: Outputs, events: int) -> npt.NDArray[np.bool_]:
    """(B,): whether all outputs of an event are finite."""
    good = np.ones(events, dtype=bool)
    for array in outputs.values():
        good &= np.isfinite(array).reshape(events, -1).all(axis=1)
    return good


def windows(chunks: Sequence[Events] | Iterator[Events], size: int = WINDOW) -> Iterator[Events]:
    """The events of all chunks, cut at multiples of `size` rows; one empty window if there are no events."""
    waiting: list[Events] = []
    held = 0
    some = False
    for chunk in chunks:
        start = 0
        while held + len(chunk) - start >= size:
            stop = start + size - held
            yield Events.concatenate([*waiting, chunk[start:stop]])
            some, waiting, held, start = True, [], 0, stop
        if start < len(chunk) or not (waiting or some):  # keep an empty first chunk, which has the columns
            waiting.append(chunk[start:])
            held += len(chunk) - start
    if held or not some:
        yield Events.concatenate(waiting)
