"""How well methods do on events with truth: models, decodings, baselines and other people's answers, on one ruler.

One pass over the files; what stays in memory is a few numbers an event and method.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, InputError, ModelError, PairtonWarning, nearest
from pairton.evaluation import metrics
from pairton.evaluation.answers import Assignments, read_assignments
from pairton.evaluation.chi_square import MassChiSquare, invariant_mass, pair_products
from pairton.evaluation.scoreboard import Evaluation, Method, Promises
from pairton.evaluation.steps import FOLLOWED, Followed, follow
from pairton.events import Events
from pairton.events.domain import Domain
from pairton.events.objects import JET_FIELDS
from pairton.formats import as_for, expand, iterate
from pairton.formats.files import Paths
from pairton.reconstruction.assigning import Answer, Assigner, assign_prepared, decoding_of
from pairton.reconstruction.reconstruction import MAX_JETS, prepare, stored_assignment, windows
from pairton.topology import Topology, load_topology, same_tree

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["BASELINES", "REFERENCE_MIX", "evaluate"]

BASELINES = ("chi2",)
FIT_EVENTS = 20_000  # with truth, for the few numbers of a baseline
REFERENCE_MIX = {"ttbar_allhad": (0.36, 0.30, 0.34)}  # of fully labelled events in the paper's sample, by bin

Bools = npt.NDArray[np.bool_]
Watch = Callable[[Iterator[Events]], Iterator[Events]]
# method, events of a window, their rows in the input, answers by numbers in the input, scores
Observe = Callable[[Method, Events, npt.NDArray[np.intp], Answer, metrics.Scores], None]


def evaluate(
    paths: Paths,
    models: Sequence[Model] = (),
    *,
    decodings: Sequence[str] = (),
    beam: int | None = None,
    baselines: Sequence[str] = (),
    assignments: Sequence[str | Path] = (),
    select: bool = False,
    max_jets: int = MAX_JETS,
    jet_cuts: bool = True,
    mix: Sequence[float] | None = None,
    jet_scales: Sequence[float] = (),
    progress: Watch | None = None,
    observe: Observe | None = None,
    **options: Any,
) -> Evaluation:
    """Score models (each with each decoding), baselines and files of answers on the truth of some files.

    Every event is scored as it is; with `select`, jets and events pass the selection of the topology first. `mix`
    is the share of fully labelled events in each multiplicity bin to which efficiencies are also reweighted.
    Each of `jet_scales` is one more evaluation of every model and baseline, with pT and energy of all jets times
    that number; which jets and events there are stays as it was, and so does what a baseline was fitted on.
    `progress` may wrap the stream of windows, `observe` sees every method's answers to each. Further
    options are those of `pairton.iterate`.
    """
    files = expand(paths)
    options = {"topology": None} | as_for(models[0].topology if models else None, options)
    topology = options["topology"] = _topology(files, options)
    methods = _methods(models, decodings, beam)
    for name in baselines:
        methods.append(_baseline(name, files, select, options))
    methods += [_scaled(method, scale) for scale in jet_scales for method in methods]
    for path in assignments:
        methods.append(
            Method(Path(path).name, {"assignments": str(path)}, answers=read_assignments(path, topology))
        )
    if not methods:
        raise ConfigError("nothing to evaluate: give a model, a baseline or assignments")
    _name_apart(methods)
    for method in methods:
        if method.model is not None and not same_tree(method.model.topology, topology):
            raise ModelError(
                f"the model {method.name} is for {method.model.topology.name}, the events are read as "
                f"{topology.name}: give a model for it with --model, or answers with --assignments"
            )
    masses = []
    weights: set[float] = set()
    row = 0
    stream = windows(iterate(files, **options))
    for window in stream if progress is None else progress(stream):
        if window.truth is None:
            raise InputError(
                f"{files[0]}: no truth in it, and without it nothing can be said: give labelled events"
            )
        if window.weights is not None and len(window):
            weights |= {float(window.weights.min()), float(window.weights.max())}
        rows = np.arange(row, row + len(window))
        row += len(window)
        chosen = window.selected if select else np.ones(len(window), dtype=bool)
        events = window.select() if select else window
        masses.append(_mass(events))
        for method in methods:
            answer = _score(method, events, rows[chosen], window.ids[chosen], max_jets=max_jets, jet_cuts=jet_cuts)
            if observe is not None:
                observe(method, events, rows[chosen], answer, method.scores[-1])
    for method in methods:
        if method.answers is not None and len(method.answers) != row:
            raise InputError(
                f"{method.answers.path}: {len(method.answers)} answers for {row} events: "
                "give the file made from exactly these events"
            )
        if method.nowhere:
            warnings.warn(
                f"{method.name}: {method.nowhere} of {row} answers name jets that are not there, which count as "
                "none: are jets numbered from 0, as in the input?",
                PairtonWarning,
                stacklevel=2,
            )
    if len(weights) > 1:
        warnings.warn(
            f"events have weights from {min(weights):g} to {max(weights):g}, which are not used: each counts once",
            PairtonWarning,
            stacklevel=2,
        )
    default = REFERENCE_MIX.get(topology.name)
    chosen_mix = tuple(mix) if mix is not None else default
    if chosen_mix is not None and len(chosen_mix) != len(topology.bins):
        raise ConfigError(
            f"mix has {len(chosen_mix)} shares, but the bins are {', '.join(topology.bins)}: one each"
        )
    return Evaluation(topology, files, select, methods, np.concatenate(masses), chosen_mix)


# -- methods -----------------------------------------------------------------------------------------------


def _topology(files: list[str], options: Mapping[str, Any]) -> Topology:
    """The topology in which the files are read."""
    if options["topology"] is not None:
        return load_topology(options["topology"])
    first: Events = next(iterate(files[0], **{**options, "chunk": 1}))
    return first.topology


def _methods(models: Sequence[Model], decodings: Sequence[str], beam: int | None) -> list[Method]:
    result = []
    for model in models:
        for decoding in decodings or (None,):
            kind = decoding_of(model, decoding, beam if decoding in (None, "beam") else None)
            width = beam if kind == "beam" else None
            name = model.name if len(decodings) < 2 else f"{model.name}:{kind}"
            about = {"model": model.name, "decoding": kind, "beam": width}
            flows = model.takes_tokens and kind in FOLLOWED
            assign = Assigner(model, kind, width)
            steps: dict[str, list[Followed]] = {followed: [] for followed in FOLLOWED[kind]} if flows else {}
            result.append(Method(name, about, model, assign, domain=model.domain, flows=flows, steps=steps))
    return result


def _baseline(name: str, files: list[str], select: bool, options: Mapping[str, Any]) -> Method:
    if name not in BASELINES:
        known = ", ".join(BASELINES)
        raise ConfigError(f"no baseline {name!r}: choose one of {known}{nearest(name, BASELINES)}")
    first = Events.concatenate(list(_first(files, select, options)))
    fit = MassChiSquare.fit(first)
    about = {
        "baseline": name,
        "fitted_on": f"the first {len(first)} of these events",
        "masses": dict(fit.masses),
        "tag_rates": dict(fit.tag_rates),
    }

    def assign(jets: npt.NDArray[np.float32], jet_mask: Bools) -> Answer:
        assignment, probability = fit.assign(jets, jet_mask)
        unknown = np.full((len(jets), len(fit.topology.particles)), np.nan)
        return Answer(assignment, unknown, probability)

    cuts = fit.topology.selection
    return Method(name, about, assign=assign, domain=Domain(cuts.pt, cuts.abs_eta))


def _scaled(method: Method, scale: float) -> Method:
    """The same method, given jets of another energy scale."""
    if not 0 < scale < np.inf:
        raise ConfigError(f"a jet scale of {scale}: give a number above 0, such as 0.95 for 5 % less energy")
    return replace(
        method,
        name=f"{method.name} x {scale:g}",
        about={**method.about, "jet_scale": scale},
        flows=False,
        jet_scale=scale,
        scores=[],
        promises={},
        steps={},
    )


def _first(files: list[str], select: bool, options: Mapping[str, Any]) -> Iterator[Events]:
    """The first events: enough for a fit."""
    n = 0
    for events in iterate(files, **{**options, "chunk": FIT_EVENTS}):
        yield events.select() if select else events
        n += len(events)
        if n >= FIT_EVENTS:
            return


def _name_apart(methods: list[Method]) -> None:
    seen: dict[str, int] = {}
    for method in methods:
        seen[method.name] = seen.get(method.name, 0) + 1
        if seen[method.name] > 1:
            method.name = f"{method.name}#{seen[method.name]}"


# -- scores ------------------------------------------------------------------------------------------------


def _mass(events: Events) -> npt.NDArray[np.float64]:
    """(n,): invariant mass of all truth-matched jets of fully labelled events, NaN elsewhere."""
    mass = np.full(len(events), np.nan)
    full = events[events.complete]
    if len(full) and full.truth is not None:
        mass[events.complete] = invariant_mass(pair_products(full.dense()[0]), full.truth)
    return mass


def _score(
    method: Method,
    events: Events,
    rows: npt.NDArray[np.intp],
    ids: npt.NDArray[np.uint64],
    *,
    max_jets: int,
    jet_cuts: bool,
) -> Answer:
    """Add the events of a window; jets are compared by their number in the input."""
    topology = events.topology
    assert events.truth is not None
    truth = stored_assignment(events, events.truth)
    if method.answers is not None:
        answer = _given(method.answers, rows, ids, topology)
        if "index" not in ak.fields(events.jets):  # else other jets of the input may be meant
            nowhere = answer.assignment >= events.n_jets[:, None]
            method.nowhere += int(nowhere.any(axis=1).sum())
            answer = answer._replace(assignment=np.where(nowhere, -1, answer.assignment))
    else:
        assert method.assign is not None
        prepared = prepare(events, method.domain, max_jets=max_jets, jet_cuts=jet_cuts)
        if method.jet_scale != 1:
            scales = np.where(np.isin(JET_FIELDS, ("pt", "energy")), method.jet_scale, 1).astype(np.float32)
            prepared = replace(prepared, jets=prepared.jets * scales)
        found = assign_prepared(prepared, topology, method.assign)
        answer = found._replace(assignment=stored_assignment(events, found.assignment))
        for kind, steps in method.steps.items():
            assert method.model is not None
            steps.append(follow(method.model, kind, events, prepared, truth))
    method.unanswered += int(((answer.assignment < 0).all(axis=1) & events.present.any(axis=1)).sum())
    scores = metrics.score(topology, truth, answer.assignment, events.n_jets)
    method.scores.append(scores)
    if method.answers is None or method.answers.event_probability is not None:
        _add_probabilities(method, answer, truth, scores)
    return answer


def _add_probabilities(method: Method, answer: Answer, truth: npt.NDArray[Any], scores: metrics.Scores) -> None:
    """What was promised and what came of it."""
    topology = scores.topology
    full, right = scores.total[metrics.EVENT] > 0, scores.correct[metrics.EVENT] > 0
    method.promises.setdefault(metrics.EVENT, []).append(Promises(answer.event_probability, right, full))
    if method.model is None and method.answers is None:
        return  # a baseline has no probabilities of particles
    matched = metrics.matches(topology, answer.assignment, truth)
    for name in reversed(topology.types):
        of_type = [particle.index for particle in topology.of_type(name)]
        chances, found = answer.particle_probability[:, of_type].ravel(), matched[:, of_type].ravel()
        method.promises.setdefault(name, []).append(Promises(chances, found, np.repeat(full, len(of_type))))


def _given(
    answers: Assignments, rows: npt.NDArray[np.intp], ids: npt.NDArray[np.uint64], topology: Topology
) -> Answer:
    if len(rows) and rows[-1] >= len(answers):
        raise InputError(
            f"{answers.path}: {len(answers)} answers, but there are more events: "
            "give the file made from exactly these events"
        )
    if answers.ids is not None and not np.array_equal(answers.ids[rows], ids):
        raise InputError(f"{answers.path}: its events are not these, by their ids: give the file made from them")
    n = len(rows)
    event, particles = answers.event_probability, answers.particle_probability
    return Answer(
        answers.assignment[rows],
        np.full((n, len(topology.particles)), np.nan) if particles is None else particles[rows],
        np.full(n, np.nan) if event is None else event[rows],
    )
