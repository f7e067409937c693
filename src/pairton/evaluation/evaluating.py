"""`pairton.evaluate`: models, decodings, baselines and files of answers on the same events with truth.

It reads the events once, and keeps a few numbers per event and method in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

import pairton.evaluation.chi_square  # registers its baseline
import pairton.evaluation.head_metrics  # registers its metric
import pairton.evaluation.measures  # registers its metrics
import pairton.evaluation.neutrino_metric  # registers its metric
import pairton.evaluation.simple_baselines  # noqa: F401  # registers theirs
from pairton.errors import ConfigError, InputError, ModelError, PairtonError, PairtonWarning
from pairton.evaluation import metrics as counting
from pairton.evaluation.intervals import effective, even
from pairton.evaluation.methods import (
    baseline_method,
    check_files,
    file_method,
    model_baseline,
    model_methods,
    name_apart,
    scaled,
)
from pairton.evaluation.neutrino_metric import TRUE_MOMENTUM
from pairton.evaluation.registry import BASELINES, METRICS, Chunk, Metric
from pairton.evaluation.scoreboard import Evaluation, Method
from pairton.events import Events
from pairton.events.acceptance import MAX_OBJECTS
from pairton.events.domain import Bounds, Domain, as_cuts, chosen_cuts, describe_cuts, used_cuts
from pairton.events.splits import DEFAULT_FRACTIONS, fold_of
from pairton.formats import expand, has_pile_up, iterate, open_source, options_for
from pairton.formats.files import Paths
from pairton.models.folds import by_fold
from pairton.reconstruction.assigner import windows
from pairton.reconstruction.mixture_choice import truth_topology
from pairton.reconstruction.model_choice import models_to_evaluate
from pairton.reconstruction.result import stored_assignment
from pairton.reconstruction.run_settings import RunSettings, own_selection
from pairton.topology import Cuts, Topology, load_topology, same_tree
from pairton.topology.extras import bin_names
from pairton.topology.mixtures import find_part

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["REFERENCE_MIX", "evaluate"]

FEW = 50  # effective number of events, below which there is a warning
REFERENCE_MIX = {"ttbar_allhad": (0.36, 0.30, 0.34)}  # shares of complete events by bin, in the paper's sample

Rows = npt.NDArray[np.intp]
Watch = Callable[[Iterator[Events]], Iterator[Events]]


def evaluate(
    events: Events | Paths,
    model: Model | str | Path | Sequence[Model | str | Path] | None = None,
    *,
    decodings: Sequence[str] = (),
    baselines: Sequence[str] = (),
    assignments: Sequence[str | Path] = (),
    select: bool = False,
    split: str | None = None,
    max_objects: int = MAX_OBJECTS,
    cuts: bool | Bounds = True,
    jets: str | None = None,
    leptons: str | None = None,
    answer: str = "event",
    allow_absent: bool = False,
    prior: Mapping[str, float] | None = None,
    use_weights: bool = True,
    mix: Sequence[float] | None = None,
    jet_scales: Sequence[float] = (),
    metrics: Iterable[Metric] = (),
    progress: Watch | None = None,
    **options: Any,
) -> Evaluation:
    """Measure how often models, baselines and answers of other programs are right, on events with truth.

    Args:
        events: `Events` with truth, or the paths of files that have it.
        model: A model, its name or path, or a list of these; by default the model for the events, or none if
            `assignments` are given.
        decodings: Decodings to try with every model; by default the one that each was trained for.
        baselines: Names of registered baselines, such as "chi2", which are fitted on the first 20,000 events, or
            of models. They are given the objects that the first model uses.
        assignments: Files of answers: results of `pairton reconstruct`, predictions of SPANet or HyPER.
        select: First apply the selection of the topology to objects and events.
        split: Use only the events of a split of the first model: "train", "validation" or "test".
        max_objects: The largest number of objects of each kind; if there are more, those of highest pT are used.
        cuts: Leave out objects outside the domain of the model and, with `select` or for a file of an experiment,
            outside the topology's own cuts. Only objects that are used are labelled.
        jets: Cuts on jets in place of these, such as "pt>30,abs_eta<2.4"; "none" uses all jets.
        leptons: The same for leptons.
        answer: "event" or "particles", as in `pairton.reconstruct`.
        allow_absent: As in `pairton.reconstruct`.
        prior: As in `pairton.reconstruct`.
        use_weights: Use event weights; False counts every event once.
        mix: Shares of complete events in the multiplicity bins, for reweighted inclusive efficiencies.
        jet_scales: Factors on pT and energy of all jets. Every model and baseline is evaluated again with each.
            The selection of jets and events, and the fits of baselines, stay the same.
        metrics: Metrics in addition to the registered ones.
        progress: A function that wraps the stream of events, to show progress.
        **options: How to read the files, as for `pairton.iterate`.

    Returns:
        An `Evaluation`: `print(result.table())` shows it, `result.to_dict()` has all numbers.

    Raises:
        ConfigError: There is nothing to evaluate, or an option is unknown.
        InputError: The events have no truth, or cannot be read.
        ModelError: The model or the answers are for other events.

    Examples:
        >>> import pairton
        >>> result = pairton.evaluate("sample:ttbar_allhad", baselines=["chi2"])
        >>> result.to_dict()["methods"]["chi2"]["efficiency"]["event"]["inclusive"]["total"]
        588
    """
    given = events if isinstance(events, Events) else None
    if given is not None and options:
        raise ConfigError(
            f"evaluate has no option {next(iter(options))!r} for events in memory: give it for files"
        )
    files = ["events"] if isinstance(events, Events) else expand(events)
    if model is None:
        stored = options if given is None else {"topology": given.topology}
        model = models_to_evaluate(files, stored, baselines=baselines, answered=bool(assignments))
    models = _load(model, given, files, options)
    if given is None:
        options["topology"] = truth_topology(models, files, options)
    options = {"topology": None} | (options_for(models[0], options) if models else options)
    if given is None:
        options["keep"] = [*options.get("keep", ()), *_label_columns(models, files[0], options)]

    def read(**more: Any) -> Iterator[Events]:
        return iter([given]) if given is not None else iterate(files, **{**options, **more})

    def read_weighted(**more: Any) -> Iterator[Events]:
        return (_weighted(events, use_weights) for events in read(**more))

    known = options["topology"] if given is None else given.topology
    topology = options["topology"] = load_topology(known) if known is not None else next(read(chunk=1)).topology
    asked: dict[str, Any] = {"answer": answer, "allow_absent": allow_absent, "prior": prior or {}}
    settings = RunSettings(max_objects=max_objects, cuts=chosen_cuts(jets, leptons, cuts), **asked)
    pile_up = given.pile_up if given is not None else has_pile_up(files, options)
    strict = pile_up or select
    own = own_selection(models[0], topology) if models else topology.selection

    def cuts_for(model: Model | None, strict: bool = strict) -> Bounds:
        domain = Domain() if model is None else model.domain
        return used_cuts(settings.cuts, domain, topology.kinds, own if strict else None)

    first = models[0] if models else None  # decides which objects are labelled and selected
    used = cuts_for(first)
    objects_used = describe_cuts(used, cuts_for(first, not strict), strict)
    topology = options["topology"] = replace(topology, selection=replace(own, objects=as_cuts(used)))
    if given is not None:
        given = given.replace(topology=topology, variations=given.variations)
    methods = model_methods(models, decodings, settings)
    methods += [
        baseline_method(name, read_weighted, select)
        if name in BASELINES
        else model_baseline(name, topology, settings)
        for name in baselines
    ]
    methods += [scaled(method, scale) for scale in jet_scales for method in methods]
    methods += [file_method(path, topology) for path in assignments]
    if not methods:
        raise ConfigError("nothing to evaluate: give a model, a baseline or assignments")
    name_apart(methods)
    for method in methods:
        chooses = first if "baseline" in method.about else method.model or first  # which objects are used
        method.settings = replace(settings, decoding=method.decoding, cuts=cuts_for(chooses))
        method.about |= {} if method.answers else {"cuts": method.settings.cuts}
        if method.model is not None:
            method.settings = method.settings.for_model(method.model)
        if method.model is not None and find_part(method.model.topology, topology) is None:
            raise ModelError(
                f"the model {method.name} is for {method.model.topology.name}, but the events are read as "
                f"{topology.name}: give another model with --model, or answers with --assignments"
            )
    if mix is not None and not (all(0 <= share < np.inf for share in mix) and sum(mix) > 0):
        raise ConfigError(f"mix is {list(mix)}: give a share for each multiplicity bin, as in 36,30,34")
    chosen_mix = tuple(mix) if mix is not None else _paper_mix(topology)
    if chosen_mix is not None and len(chosen_mix) != len(bin_names(topology)):
        raise ConfigError(
            f"mix has {len(chosen_mix)} shares, but the bins are {', '.join(bin_names(topology))}: "
            "give one share per bin"
        )
    measured = METRICS | {metric.name: metric for metric in metrics}
    fractions = _fractions(models[0]) if models else DEFAULT_FRACTIONS
    scored, trained_on = 0, dict.fromkeys((model.name for model in models), 0)
    outside = dict.fromkeys((model.name for model in models), 0)
    row = 0
    stream = windows(read_weighted())
    for window in stream if progress is None else progress(stream):
        if window.truth is None:
            raise InputError(f"{files[0]} has no truth, which an evaluation needs: give labelled events")
        assert window.weights is not None
        rows = np.arange(row, row + len(window))
        row += len(window)
        if split is not None:
            inside = window.in_split(split, fractions)
            window, rows = window[inside], rows[inside]
        for k, model in enumerate(models):
            inside_cuts, cut = _labels_within(window, as_cuts(cuts_for(model)))
            outside[model.name] += cut
            window = window if k else inside_cuts  # the first model decides what is to be found
        scored += len(window)
        for model in models:
            trained_on[model.name] += _trained_on(model, window)
        if select:
            chunk = _chunk(methods, window.select(), rows[window.selected])
        else:  # objects that the experiment rejects, and with pile-up those that fail the cuts, are not used
            chunk = _chunk(methods, window.keep(window.passes if pile_up else window.usable), rows)
        for method in methods:
            for metric in measured.values():
                if (found := metric.count(chunk, method)) is not None:
                    method.counts.setdefault(metric.name, []).append(found)
    check_files(methods, row)
    for k, (name, count) in enumerate(outside.items()):
        why = f"the cuts of {name}" if settings.cuts is True else "the given cuts"
        counts_as = f"are wrong for it, but not for {models[0].name}" if k else "count as missing"
        if count and not select:
            warnings.warn(
                f"{count} labelled objects fail {why} and {counts_as}: --jets none uses all jets",
                PairtonWarning,
                stacklevel=2,
            )
    for name, count in trained_on.items():
        if count and split != "train":
            warnings.warn(
                f"{name} was trained on up to {count} of these {scored} events, which overestimates "
                "its efficiencies: give other events, or only those it has not seen with --split test",
                PairtonWarning,
                stacklevel=2,
            )
    result = Evaluation(topology, files, select, methods, measured, chosen_mix, used, objects_used)
    _warn_of_few(result)
    return result


def _label_columns(models: Sequence[Model], path: str, options: Mapping[str, Any]) -> list[str]:
    """The columns in a file with labels of declared heads, and with the momenta of true neutrinos."""
    wanted = dict.fromkeys(name for model in models for s in model.info.heads.values() for name in s.columns)
    known = models[0].topology if models else options["topology"]
    if known is not None and load_topology(known).neutrinos:
        wanted |= dict.fromkeys(TRUE_MOMENTUM)
    found = []
    for name in wanted:
        with suppress(PairtonError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_source(path, **{**options, "keep": [name]}):
                found.append(name)
    return [name for name in found if name not in options.get("keep", ())]


def _weighted(events: Events, use_weights: bool) -> Events:
    """The events with weights, which are 1 if they have none, so that files with and without can be mixed."""
    if events.weights is not None and use_weights:
        if not np.isfinite(events.weights).all():
            row = int(np.argmin(np.isfinite(events.weights)))
            number = ":".join(map(str, events.ids[row].tolist()))
            raise InputError(
                f"the weight of event {number} is {events.weights[row]}: correct it, or use no weights"
            )
        return events
    return events.replace(weights=np.ones(len(events)), variations=events.variations)


def _warn_of_few(result: Evaluation) -> None:
    """Warn if the effective number of complete events is small because of unequal weights."""
    scores = result.scores(result.methods[0])
    complete = scores.weight[scores.total[counting.EVENT] > 0]
    if not even(complete) and effective(complete) < FEW:
        warnings.warn(
            f"the {len(complete)} complete events have an effective number of {effective(complete):.1f}: below "
            f"{FEW} "
            "the intervals are unreliable; give more events, or count every event once with --no-weights",
            PairtonWarning,
            stacklevel=3,
        )


def _paper_mix(topology: Topology) -> tuple[float, ...] | None:
    """The mix of the paper's sample, if the decay tree and the bins are the same."""
    for name, mix in REFERENCE_MIX.items():
        reference = load_topology(name)
        if same_tree(reference, topology) and bin_names(reference) == bin_names(topology):
            return mix
    return None


def _labels_within(events: Events, cuts: Mapping[str, Cuts]) -> tuple[Events, int]:
    """The events without labels on objects that fail cuts, and the number of labels removed."""
    assert events.truth is not None
    truth = events.truth.copy()
    for slot in events.topology.slots:
        objects, bounds = events.objects[slot.kind], cuts[slot.kind]
        counts, column = events.counts[slot.kind], truth[:, slot.index]
        inside = (objects.pt >= bounds.pt) & (abs(objects.eta) <= bounds.abs_eta)
        passes = np.append(np.asarray(ak.flatten(inside), dtype=bool), True)
        starts = np.cumsum(counts) - counts
        column[~passes[np.where(column >= 0, starts + column, -1)]] = -1
    return events.replace(truth=truth, variations=events.variations), int((truth != events.truth).sum())


def _chunk(methods: Sequence[Method], events: Events, rows: Rows) -> Chunk:
    """The answers of every method to some events, with their scores."""
    assert events.truth is not None
    truth = stored_assignment(events, events.truth)
    answers = {method.name: method.ask(method, events, rows) for method in methods}
    for method in methods:
        method.unanswered += int((~answers[method.name].answered & events.present.any(axis=1)).sum())
    scores = {
        name: counting.score(
            events.topology, truth, answer.assignment, events.counts[events.topology.main_kind], events.weights
        )
        for name, answer in answers.items()
    }
    return Chunk(events, rows, truth, answers, scores)


def _fractions(model: Model) -> tuple[float, float, float]:
    """The fractions of training, validation and test events of a model."""
    data = model.info.recipe.get("data", {})
    train, validation, _ = DEFAULT_FRACTIONS
    train, validation = data.get("train_fraction", train), data.get("validation_fraction", validation)
    return train, validation, max(0.0, 1 - train - validation)


def _trained_on(model: Model, events: Events) -> int:
    """How many events may have been used to train the network that reconstructs them.

    These are events of the same sources in the training split, except the fold that the network was not trained
    on.
    """
    return sum(_seen(member, events[in_fold]) for member, in_fold in by_fold(model, events.ids))


def _seen(model: Model, events: Events) -> int:
    known = model.info.seen
    seen = np.zeros(len(events), dtype=bool)
    for fraction in set(known.values()):
        sources = np.array([int(source, 16) for source, own in known.items() if own == fraction], dtype=np.uint64)
        seen |= np.isin(events.ids[:, 0], sources) & events.in_split("train", (fraction, 0.0, 1 - fraction))
    if (folds := model.info.data.get("folds")) is not None:
        seen &= fold_of(events.ids, folds) != model.info.data["fold"]
    return int(seen.sum())


def _load(model: Any, events: Events | None, files: Sequence[str], options: Mapping[str, Any]) -> list[Model]:
    from pairton.models.engines import load_model
    from pairton.reconstruction.model_choice import load_for_files

    def load(each: str | Path) -> Model:
        if events is None:
            return load_for_files(each, files, options)
        return load_model(each, topology=events.topology)

    several = model if isinstance(model, list | tuple) else [model]
    return [load(each) if isinstance(each, str | Path) else each for each in several]
