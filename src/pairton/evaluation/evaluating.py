"""`pairton.evaluate`: models, decodings, baselines and files of answers on the same events with truth.

It reads the events once, and keeps a few numbers per event and method in memory.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

import pairton.evaluation.baselines  # registers the built-in ones
import pairton.evaluation.metrics  # noqa: F401  # registers the built-in ones
from pairton.errors import ConfigError, InputError, ModelError, PairtonError, PairtonWarning
from pairton.evaluation.baselines import BASELINES
from pairton.evaluation.evaluation import METRICS, Chunk, Evaluation, Metric
from pairton.evaluation.methods import (
    Method,
    baseline_method,
    check_files,
    file_method,
    model_baseline,
    model_methods,
    scaled,
    with_unique_names,
)
from pairton.evaluation.metrics.numbers import TRUE_MOMENTUM
from pairton.evaluation.scores import EVENT, score
from pairton.evaluation.statistics import all_equal, effective_entries
from pairton.events import Events
from pairton.events.acceptance import MAX_OBJECTS
from pairton.events.domain import Bounds, Domain, as_cuts, describe_cuts, used_cuts
from pairton.events.splits import DEFAULT_FRACTIONS, fold_of
from pairton.formats.files import Paths
from pairton.formats.truth import BadLabels
from pairton.models.storage import by_fold
from pairton.reconstruction.assigner import windows
from pairton.reconstruction.result_columns import stored_assignment
from pairton.reconstruction.run import Run
from pairton.reconstruction.run_settings import RunSettings, own_selection
from pairton.topology import Cuts, Topology, load_topology, same_tree
from pairton.topology.extras import bin_names

if TYPE_CHECKING:
    from pairton.models.model import Model

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
    prior: Mapping[str, float] | str | Path | None = None,
    use_weights: bool = True,
    mix: Sequence[float] | None = None,
    jet_scales: Sequence[float] = (),
    metrics: Iterable[Metric] = (),
    threads: int | None = None,
    engine: str = "onnx",
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
        threads: As in `pairton.reconstruct`.
        engine: As in `pairton.reconstruct`.
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
    if isinstance(events, Events) and options:
        raise ConfigError(
            f"evaluate has no option {next(iter(options))!r} for events in memory: give it for files"
        )
    how: dict[str, Any] = {"answer": answer, "allow_absent": allow_absent, "prior": prior}
    settings = RunSettings.of(max_objects=max_objects, cuts=cuts, jets=jets, leptons=leptons, **how)
    requested = () if model is None and assignments else model
    how = {"engine": engine, "threads": threads, "labelled": True, "baselines": baselines}
    with Run(events, requested, **how, **options) as run:
        models, topology, files = run.models, run.topology, run.files or ["events"]
        for path in assignments:
            if any(
                os.path.exists(file) and os.path.exists(path) and os.path.samefile(file, path) for file in files
            ):
                warning = f"--assignments {path} is an input too: its truth is scored against itself"
                warnings.warn(warning, PairtonWarning, stacklevel=2)
        run.options["keep"] = [*run.options.get("keep", ()), *_label_columns(run)]
        strict = run.pile_up or select
        own = own_selection(models[0], topology) if models else topology.selection

        def cuts_for(model: Model | None, strict: bool = strict) -> Bounds:
            domain = Domain() if model is None else model.domain
            return used_cuts(settings.cuts, domain, topology.kinds, own if strict else None)

        def read(**how: Any) -> Iterator[Events]:
            chunks = run.chunks(topology=topology, bad_labels=BadLabels(), **how)
            return (_labelled(chunk, files[0], use_weights) for chunk in chunks)

        first = models[0] if models else None  # decides which objects are labelled and selected
        used = cuts_for(first)
        objects_used = describe_cuts(used, cuts_for(first, not strict), strict)
        topology = replace(topology, selection=replace(own, objects=as_cuts(used)))
        methods = model_methods(models, decodings, settings)
        methods += [
            baseline_method(name, read, select) if name in BASELINES else model_baseline(name, topology, settings)
            for name in baselines
        ]
        methods += [scaled(method, scale) for scale in jet_scales for method in methods]
        methods += [file_method(path, topology) for path in assignments]
        if not methods:
            raise ConfigError("nothing to evaluate: give a model, a baseline or assignments")
        with_unique_names(methods)
        for method in methods:
            chooses = first if "baseline" in method.about else method.model or first  # which objects are used
            _configure(method, topology, replace(settings, cuts=cuts_for(chooses)))
        shares = _mix(mix, topology)
        measured = METRICS | {metric.name: metric for metric in metrics}
        label_cuts = {model.name: as_cuts(cuts_for(model)) for model in models}
        stream = windows(read())
        scored, rows, seen, outside = _measure(
            stream if progress is None else progress(stream),
            models,
            methods,
            measured,
            label_cuts,
            select,
            run.pile_up,
            split,
        )
    check_files(methods, rows)
    result = Evaluation(topology, files, select, methods, measured, shares, used, objects_used)
    why = "the given cuts" if settings.cuts is not True else ""
    doubts = [
        *_labels_cut({} if select else outside, why),
        *_seen_in_training({} if split == "train" else seen, scored),
    ]
    for doubt in [*doubts, *_few_events(result)]:
        warnings.warn(doubt, PairtonWarning, stacklevel=2)
    return result


def _label_columns(run: Run) -> list[str]:
    """The columns of the first file with labels of declared heads, and with the momenta of true neutrinos."""
    groups = [spec.columns for model in run.models for spec in model.info.heads.values()]
    groups += [TRUE_MOMENTUM] if (run.models[0] if run.models else run).topology.neutrinos else []
    stored: list[str] = []
    for names in groups if run.first is not None else ():
        with suppress(PairtonError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run.source(keep=names)
            stored += names
    return [name for name in dict.fromkeys(stored) if name not in run.options.get("keep", ())]


def _labelled(events: Events, name: str, use_weights: bool) -> Events:
    """The events, which must have truth, with weights: ones if there are none, or if they are not used."""
    if events.truth is None:
        raise InputError(
            f"{name} has no truth, which an evaluation needs: label events, or use `pairton reconstruct`"
        )
    if events.weights is None or not use_weights:
        return events.replace(weights=np.ones(len(events)))
    if not np.isfinite(events.weights).all():
        row = int(np.argmin(np.isfinite(events.weights)))
        number = ":".join(map(str, events.ids[row].tolist()))
        raise InputError(f"the weight of event {number} is {events.weights[row]}: correct it, or use no weights")
    return events


def _configure(method: Method, topology: Topology, settings: RunSettings) -> None:
    """Give a method its settings; ModelError if its model is for other events."""
    method.settings = replace(settings, decoding=method.decoding)
    method.about |= {} if method.answers else {"cuts": settings.cuts}
    if method.model is not None:
        method.settings = method.settings.for_model(method.model)
        if not same_tree(method.model.topology, topology):
            raise ModelError(
                f"the model {method.name} is for {method.model.topology.name}, but the events are read as "
                f"{topology.name}: give another model with --model, or answers with --assignments"
            )


def _measure(
    stream: Iterable[Events],
    models: Sequence[Model],
    methods: Sequence[Method],
    metrics: Mapping[str, Metric],
    label_cuts: Mapping[str, Mapping[str, Cuts]],
    select: bool,
    pile_up: bool,
    split: str | None,
) -> tuple[int, int, dict[str, int], dict[str, int]]:
    """Count with every metric, window by window.

    Returns the number of events that were scored, and of rows that were read; for each model the number of events
    that it may have been trained on, and of labelled objects that fail its cuts.
    """
    fractions = _fractions(models[0]) if models else DEFAULT_FRACTIONS
    seen, outside = (dict.fromkeys(label_cuts, 0) for _ in range(2))
    scored = row = 0
    for window in stream:
        rows = np.arange(row, row + len(window))
        row += len(window)
        if split is not None:
            inside = window.in_split(split, fractions)
            window, rows = window[inside], rows[inside]
        for k, (name, cuts) in enumerate(label_cuts.items()):
            inside_cuts, cut = _labels_within(window, cuts)
            outside[name] += cut
            window = window if k else inside_cuts  # the first model decides what is to be found
        scored += len(window)
        for model in models:
            seen[model.name] += _trained_on(model, window)
        if select:
            chunk = _chunk(methods, window.select(), rows[window.selected])
        else:  # objects that the experiment rejects, and with pile-up those that fail the cuts, are not used
            chunk = _chunk(methods, window.keep(window.passes if pile_up else window.usable), rows)
        for method in methods:
            for metric in metrics.values():
                if (count := metric.count(chunk, method)) is not None:
                    method.counts.setdefault(metric.name, []).append(count)
    return scored, row, seen, outside


# -- warnings ----------------------------------------------------------------------------------------------


def _labels_cut(outside: Mapping[str, int], why: str) -> Iterator[str]:
    """Labelled objects that fail cuts; `why` names the cuts, by default those of each model."""
    for k, (name, count) in enumerate(outside.items()):
        counts_as = f"are wrong for it, but not for {next(iter(outside))}" if k else "count as missing"
        if count:
            cuts = why or f"the cuts of {name}"
            yield f"{count} labelled objects fail {cuts} and {counts_as}: --jets none uses all jets"


def _seen_in_training(seen: Mapping[str, int], scored: int) -> Iterator[str]:
    for name, count in seen.items():
        if count:
            yield (
                f"{name} was trained on up to {count} of these {scored} events, which overestimates "
                "its efficiencies: give other events, or only those it has not seen with --split test"
            )


def _few_events(result: Evaluation) -> Iterator[str]:
    """The effective number of complete events, if unequal weights make it small."""
    scores = result.scores(result.methods[0])
    complete = scores.weight[scores.total[EVENT] > 0]
    number = effective_entries(complete)
    if not all_equal(complete) and number < FEW:
        yield (
            f"the {len(complete)} complete events have an effective number of {number:.1f}: below {FEW} the "
            "intervals are unreliable; give more events, or count every event once with --no-weights"
        )


# -- parts -------------------------------------------------------------------------------------------------


def _mix(mix: Sequence[float] | None, topology: Topology) -> tuple[float, ...] | None:
    """The shares that the user gave, or those of the paper's sample if tree and bins are the same."""
    if mix is None:
        for name, shares in REFERENCE_MIX.items():
            reference = load_topology(name)
            if same_tree(reference, topology) and bin_names(reference) == bin_names(topology):
                return shares
        return None
    if not (all(0 <= share < np.inf for share in mix) and sum(mix) > 0):
        raise ConfigError(f"mix is {list(mix)}: give a share for each multiplicity bin, as in 36,30,34")
    bins = bin_names(topology)
    if len(mix) != len(bins):
        raise ConfigError(f"mix has {len(mix)} shares, but the bins are {', '.join(bins)}: give one share per bin")
    return tuple(mix)


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
    topology, counts = events.topology, events.counts[events.topology.main_kind]
    truth = stored_assignment(events, events.truth)
    answers, scores = {}, {}
    for method in methods:
        answer = answers[method.name] = method.ask(method, events, rows)
        method.unanswered += int((~answer.answered & events.present.any(axis=1)).sum())
        scores[method.name] = score(topology, truth, answer.assignment, counts, events.weights)
    return Chunk(events, rows, truth, methods, answers, scores)


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
