"""The methods that are evaluated: models with a decoding, baselines, and files of answers, each as a `Method`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded
from pairton.errors import ConfigError, InputError, ModelError, PairtonWarning, nearest
from pairton.evaluation.answers import Assignments, read_assignments
from pairton.evaluation.baselines import BASELINES, Baseline
from pairton.events import Events
from pairton.events.acceptance import Accepted, accept
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.kinematics.fit_settings import BUILT_IN
from pairton.models.kinematic_model import is_kinematic
from pairton.models.storage import builtin_models
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.result_columns import stored_assignment
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.topology import JET, Topology

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = [
    "Method",
    "baseline_method",
    "check_files",
    "file_method",
    "model_baseline",
    "model_methods",
    "scaled",
    "with_unique_names",
]

FIT_EVENTS = 20_000  # events with truth on which a baseline is fitted

Rows = npt.NDArray[np.intp]


@dataclass
class Method:
    """A method to evaluate (a model with a decoding, a baseline, a file of answers), and the counts of metrics."""

    name: str
    about: dict[str, Any]
    ask: Callable[[Method, Events, npt.NDArray[np.intp]], Decoded]  # itself, events, rows of the input
    model: Model | None = None
    decoding: str | None = None  # of the model
    answers: Assignments | None = None  # from a file
    domain: Domain = field(default_factory=Domain)  # range of objects that are used
    inputs: Inputs | None = None  # fields of objects that it needs; None: only the four-momentum
    settings: RunSettings = DEFAULT_SETTINGS
    jet_scale: float = 1.0  # factor on pT and energy of all jets
    counts: dict[str, list[Any]] = field(default_factory=dict)  # metric -> one entry per chunk
    unanswered: int = 0  # number of events with a true particle but without an answer
    unknown_objects: int = 0  # number of answers from a file that name objects which do not exist

    @property
    def title(self) -> str:
        """Its name, and its decoding unless the name contains it."""
        return f"{self.name} ({self.decoding})" if self.decoding and self.decoding not in self.name else self.name

    def accept(self, events: Events) -> Accepted:
        """The objects that the method uses."""
        inputs = self.inputs or Inputs(tuple((kind, ()) for kind in events.topology.kinds))
        most, cuts = self.settings.max_objects, self.settings.cuts
        needs = () if self.model is None else self.settings.needs(self.model)
        accepted = accept(events, self.domain, inputs, max_objects=most, cuts=cuts, needs=needs)
        if self.jet_scale == 1:
            return accepted
        scales = np.where(np.isin(inputs.columns(JET), ("pt", "energy")), self.jet_scale, 1).astype(np.float32)
        nodes = accepted.nodes
        return replace(accepted, nodes=Nodes({**nodes.values, JET: nodes.values[JET] * scales}, nodes.masks))


# -- models ------------------------------------------------------------------------------------------------


def model_methods(models: Sequence[Model], decodings: Sequence[str], settings: RunSettings) -> list[Method]:
    """Every model with every decoding; by default with the decoding that it was trained for."""
    result = []
    for model in models:
        for asked in decodings or (None,):
            assigner = Assigner(model, replace(settings, decoding=asked))
            decoding = assigner.settings.decoding
            name = model.name if len(decodings) < 2 else f"{model.name}:{decoding}"
            about: dict[str, Any] = {"model": model.name, "decoding": decoding}
            if len(assigner.members) > 1:
                about["folds"] = len(assigner.members)
            if not settings.question.is_default:
                about |= {name: getattr(settings, name) for name in ("answer", "allow_absent", "prior")}
            ask = partial(_ask_model, assigner)
            result.append(Method(name, about, ask, model, decoding, domain=model.domain, inputs=model.inputs))
    return result


def _ask_model(assigner: Assigner, method: Method, events: Events, rows: Rows) -> Decoded:
    accepted = method.accept(assigner.with_evidence(events))
    assigner.count_tags(events, accepted)
    _, found, heads = assigner.assign_all(accepted, events.ids)
    return replace(found, assignment=stored_assignment(events, found.assignment), heads=heads)


def scaled(method: Method, scale: float) -> Method:
    """The same method with jets of another energy scale."""
    if not 0 < scale < np.inf:
        raise ConfigError(f"the jet scale is {scale}: give a number above 0, such as 0.95 for 5 % less energy")
    about = {**method.about, "jet_scale": scale}
    return replace(method, name=f"{method.name} x {scale:g}", about=about, jet_scale=scale, counts={})


# -- baselines ---------------------------------------------------------------------------------------------


def model_baseline(name: str, topology: Topology, settings: RunSettings) -> Method:
    """A model as a baseline: it is given the objects that the first model uses."""
    from pairton.models.model import load_model

    if not (is_kinematic(name) or name in builtin_models() or Path(name).exists()):
        known = [*BASELINES, BUILT_IN]
        raise ConfigError(
            f"no baseline {name!r}: choose one of {', '.join(known)}, or a model{nearest(name, known)}"
        )
    (method,) = model_methods([load_model(name, topology=topology)], (), settings)
    method.about |= {"baseline": name, "fitted_on": "none of these events"}
    return method


def baseline_method(name: str, read: Callable[..., Iterator[Events]], select: bool) -> Method:
    """A registered baseline, fitted on the first events."""
    parts: list[Events] = []
    n = 0
    for events in read(chunk=FIT_EVENTS):
        some = events[:FIT_EVENTS]
        parts.append(some.select() if select else some.keep(some.usable))
        n += len(events)
        if n >= FIT_EVENTS:
            break
    first = Events.concatenate(parts)
    baseline = BASELINES[name].fit(first)
    about = {"baseline": name, "fitted_on": f"the first {len(first)} of these events"}
    return Method(name, about | getattr(baseline, "about", {}), partial(_ask_baseline, baseline))


def _ask_baseline(baseline: Baseline, method: Method, events: Events, rows: Rows) -> Decoded:
    """The answers of a baseline to events with enough objects; it gets only the used objects, and no truth."""
    accepted = method.accept(events)
    (some,) = np.nonzero(accepted.answerable)
    objects = {}
    for kind, position in accepted.position.items():
        kept = position[some]
        objects[kind] = events.objects[kind][some][ak.unflatten(kept[kept >= 0], (kept >= 0).sum(axis=1))]
    if method.jet_scale != 1:
        for name in ("pt", "energy"):
            objects[JET] = ak.with_field(objects[JET], objects[JET][name] * method.jet_scale, name)
    used = Events(objects, events.topology, ids=events.ids[some], metadata=events.metadata)
    slots = events.topology.slots
    found, probability = baseline.assign(used)
    if np.shape(found) != (len(some), len(slots)) or np.shape(probability) != (len(some),):
        raise ModelError(
            f"the baseline {baseline.name} returns assignments of the shape {np.shape(found)} and probabilities "
            f"of the shape {np.shape(probability)}, but must return {(len(some), len(slots))} and {(len(some),)}"
        )
    answer = Decoded.empty(events.topology, len(events))
    for slot in slots:
        column = np.take_along_axis(
            accepted.position[slot.kind][some], np.maximum(found[:, [slot.index]], 0), axis=1
        )
        answer.assignment[some, slot.index] = np.where(found[:, slot.index] >= 0, column[:, 0], -1)
    answer.event_probability[some] = probability
    return replace(answer, assignment=stored_assignment(events, answer.assignment))


# -- answers from files ------------------------------------------------------------------------------------


def file_method(path: str | Path, topology: Topology) -> Method:
    """The answers of a file."""
    answers = read_assignments(path, topology)
    return Method(Path(path).name, {"assignments": str(path)}, _ask_file, answers=answers)


def _ask_file(method: Method, events: Events, rows: Rows) -> Decoded:
    answers = method.answers
    assert answers is not None
    if len(rows) and rows[-1] >= len(answers):
        raise InputError(
            f"{answers.path}: {len(answers)} answers, but there are more events: "
            "give the file that was made from exactly these events"
        )
    if answers.ids is not None and not np.array_equal(answers.ids[rows], events.ids):
        raise InputError(
            f"{answers.path}: the ids of its events differ: give the file that was made from these events"
        )
    found = Decoded.empty(events.topology, len(rows))
    found.assignment[:] = answers.assignment[rows]
    unknown = np.zeros(found.assignment.shape, dtype=bool)  # objects that the event does not have
    for slot in events.topology.slots:
        if "index" not in ak.fields(events.objects[slot.kind]):  # else they may be objects that are not used
            unknown[:, slot.index] = found.assignment[:, slot.index] >= events.counts[slot.kind]
    found.assignment[unknown] = -1
    method.unknown_objects += int(unknown.any(axis=1).sum())
    for name in ("event_probability", "particle_probability", "pattern_probability"):
        if (known := getattr(answers, name)) is not None:
            getattr(found, name)[:] = known[rows]
    return found


def check_files(methods: Sequence[Method], n_events: int) -> None:
    """Check that every file has one answer per event; warn if answers name objects that do not exist."""
    for method in methods:
        if method.answers is not None and len(method.answers) != n_events:
            raise InputError(
                f"{method.answers.path}: {len(method.answers)} answers for {n_events} events: "
                "give the file that was made from exactly these events"
            )
        if method.unknown_objects:
            warnings.warn(
                f"{method.name}: {method.unknown_objects} of {n_events} answers name objects that do not exist, "
                "which count as empty slots: number objects from 0, as in the input",
                PairtonWarning,
                stacklevel=3,
            )


def with_unique_names(methods: list[Method]) -> None:
    """Append a number to names that several methods share."""
    seen: dict[str, int] = {}
    for method in methods:
        seen[method.name] = seen.get(method.name, 0) + 1
        if seen[method.name] > 1:
            method.name = f"{method.name}#{seen[method.name]}"
