"""Numbers against the truth: declared heads of a model, momenta of the answer, and pz of the neutrino.

Classifications have an accuracy and a ROC area, regressions a bias and a resolution. A head of particles is
labelled on the right particles of the answer, with the labels of the true particles. pT and masses of the answer
are compared with those of the labelled objects.

The columns `neutrino_px`, `neutrino_py` and `neutrino_pz` of the events have the true momentum of a neutrino in
GeV, NaN for none. Only topologies with one neutrino are evaluated.

Shapes: n events, P places (the particles or products that a head describes), C classes, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.evaluation.evaluation import Chunk, Metric, Table
from pairton.evaluation.plots import STYLES, Plot, Series, name_of_file, plot_series, roc_plot
from pairton.evaluation.statistics import (
    CONFIDENCE,
    Efficiency,
    area,
    cuts_at_efficiency,
    quantile,
    weighted_ratio,
)
from pairton.events.head_specs import HeadSpec, places_of
from pairton.events.vectors import polar
from pairton.reconstruction.momenta import particle_momenta
from pairton.reconstruction.result_columns import positions
from pairton.topology import Topology
from pairton.topology.assignments import canonical_within

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method
    from pairton.events import Events

__all__ = [
    "TRUE_MOMENTUM",
    "Estimate",
    "Heads",
    "Labelled",
    "NeutrinoMomentum",
    "Resolution",
    "judge_class",
    "judge_number",
    "roc_area",
]

REPLICAS = 200  # of a bootstrap of the resolution
SHARES = np.linspace(0, 1, 201)  # efficiencies in a ROC curve

CLOSE = 0.1  # a smaller relative difference counts as close
EDGES = (np.arange(-40, 42) - 0.5) / 40  # of the figure; right answers, at 0, are in the middle of a bin
TRUE_MOMENTUM = ("neutrino_px", "neutrino_py", "neutrino_pz")
TRUTH = "true objects"  # row for the neutrino that follows from the true assignment
SMALLEST = 5.0  # GeV: if the median pT is below, the columns have another unit

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Estimate(NamedTuple):
    """A number with its interval, and the number of labels; `value` is NaN if there are none."""

    value: float
    low: float
    high: float
    total: int


class Labelled(NamedTuple):
    """The labels (n, P) of a head, NaN for none, and its values: (n, P, C) or (n, P)."""

    labels: Floats
    values: Floats
    weight: Floats  # (n,): of the events

    @property
    def compared(self) -> Bools:
        values = self.values if self.values.ndim == 2 else self.values[..., 0]
        return np.isfinite(self.labels) & np.isfinite(values)

    @property
    def weights(self) -> Floats:
        """(L,): the weights of the labels that are compared."""
        return np.broadcast_to(self.weight[:, None], self.labels.shape)[self.compared]


class Heads(Metric):
    """Classifications and regressions, if the model has such heads and the events have their labels."""

    name, title = "heads", "Classes and numbers"
    brief = True

    def count(self, chunk: Chunk, method: Method) -> dict[str, Labelled] | None:
        answer, columns = chunk.answers[method.name], chunk.events.columns
        if method.model is None:
            return None
        found = {}
        for name, spec in method.model.info.heads.items():
            if name in answer.heads and all(column in columns for column in spec.columns):
                labels = np.stack(
                    [np.asarray(columns[column], dtype=np.float64) for column in spec.columns], axis=1
                )
                if spec.is_class:
                    labels[labels < 0] = np.nan
                values = answer.heads[name].astype(np.float64)
                if spec.of_event:
                    values = values[:, None]
                else:
                    labels = _labels_of_answer(chunk.events.topology, spec, labels, answer.assignment, chunk.truth)
                found[name] = Labelled(labels, values, chunk.weight)
        return found or None

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None or method.model is None:
            return None
        specs = method.model.info.heads
        judge = {name: judge_class if specs[name].is_class else judge_number for name in counted}
        return {name: judge[name](labelled) for name, labelled in counted.items()}

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        classes = {"labels": "labels", "accuracy": "accuracy", "ROC area": "roc_area"}
        numbers = {key: key for key in ("labels", "bias", "resolution")} | {"spread of the labels": "spread"}
        results = evaluation.results(self.name)
        names = dict.fromkeys(name for _, heads in results for name in heads)
        every = [(f"{name}: {m.title}", heads[name]) for name in names for m, heads in results if name in heads]
        for title, key, columns in (("classes", "accuracy", classes), ("numbers", "resolution", numbers)):
            rows = [(name, each) for name, each in every if key in each]
            if rows:
                yield Table.of(title, "head", columns, rows)

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        counted = {method.name: evaluation.counted(self.name, method) or {} for method in evaluation.methods}
        for name in dict.fromkeys(name for heads in counted.values() for name in heads):
            yield _roc(name, counted)


def _labels_of_answer(
    topology: Topology, spec: HeadSpec, labels: Floats, answer: npt.NDArray[Any], truth: npt.NDArray[Any]
) -> Floats:
    """(n, P): the label of the true place with the same objects as each place of the answer; NaN for none."""
    result = np.full(labels.shape, np.nan)
    true = [_objects(topology, spec, truth, k) for k in range(labels.shape[1])]
    for k in range(labels.shape[1]):
        own = _objects(topology, spec, answer, k)
        for other, objects in enumerate(true):
            same = (own == objects).all(axis=1) & (own >= 0).all(axis=1)
            result[same, k] = labels[same, other]
    return result


def _objects(topology: Topology, spec: HeadSpec, assignment: npt.NDArray[Any], place: int) -> npt.NDArray[Any]:
    if spec.of in topology.types:
        return canonical_within(topology, topology.of_type(spec.of)[place], assignment)
    return assignment[:, list(places_of(topology, spec.of)[place].slots)]


# -- numbers -----------------------------------------------------------------------------------------------


def judge_class(labelled: Labelled) -> dict[str, Any]:
    """Accuracy of the most probable class, and the area under the ROC curve: of three or more classes the mean."""
    compared = labelled.compared
    right = (labelled.values.argmax(axis=2) == np.nan_to_num(labelled.labels, nan=-1)) & compared
    accuracy = Efficiency.of(right.sum(axis=1), compared.sum(axis=1), labelled.weight)
    labels, chances = labelled.labels[compared].astype(int), labelled.values[compared]  # (L,), (L, C)
    classes = chances.shape[1]
    which, weights = [1] if classes == 2 else range(classes), labelled.weights
    areas = [roc_area(labels == k, chances[:, k], weights) for k in which]
    result: dict[str, Any] = {"labels": int(compared.sum()), "accuracy": accuracy}
    if classes == 2:
        return {**result, "roc_area": areas[0]}
    seen = [area for area in areas if np.isfinite(area.value)] or areas  # a class without events has no area
    value, low, high, _ = np.mean(seen, axis=0).tolist()
    return {**result, "roc_area": Estimate(value, low, high, len(labels)), "roc_area_by_class": areas}


def judge_number(labelled: Labelled) -> dict[str, Any]:
    """Bias, resolution (half the width of the central 68 % of differences), RMS, and the spread of the labels."""
    compared = labelled.compared
    labels, total = labelled.labels[compared], int(compared.sum())
    weight = labelled.weights
    if not total or not weight.sum() > 0:
        none = Estimate(np.nan, np.nan, np.nan, 0)
        return {"labels": total, "bias": none, "resolution": none, "rms": np.nan, "spread": np.nan}
    difference = labelled.values[compared] - labels
    bias, error = weighted_ratio(difference, np.ones(total), weight)
    rng = np.random.default_rng(0)
    drawn = (rng.choice(total, total) for _ in range(REPLICAS))
    again = [_half_width(difference[rows], weight[rows]) for rows in drawn]
    low, high = np.nanquantile(again, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {
        "labels": total,
        "bias": Estimate(bias, bias - error, bias + error, total),
        "resolution": Estimate(_half_width(difference, weight), float(low), float(high), total),
        "rms": float(np.sqrt(max(np.average(difference**2, weights=weight), 0.0))),
        "spread": _half_width(labels, weight),
    }


def _half_width(values: Floats, weight: Floats) -> float:
    low, high = quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], weight)
    return float(high - low) / 2


def roc_area(signal: Bools, scores: Floats, weight: Floats | float = 1.0) -> Estimate:
    """The area under the ROC curve of scores (L,) with weights (L,), with DeLong's standard deviation.

    >>> roc_area(np.array([False, False, True, True]), np.array([0.1, 0.4, 0.35, 0.8])).value
    0.75
    """
    value, error, inside, outside = area(scores, signal, weight)
    return Estimate(value, value - error, value + error, inside + outside)


def _roc(head: str, counted: dict[str, Any]) -> Plot | None:
    """For a head with two classes."""
    series: list[Series] = []
    for method, found in counted.items():
        if head in found and found[head].values.shape[2:] == (2,):
            each, compared = found[head], found[head].compared
            class_1 = each.labels[compared] == 1
            cuts = cuts_at_efficiency(each.values[compared][:, 1], class_1, SHARES, each.weights)
            if cuts.cut and np.isfinite(cuts.background_efficiency).all():
                series.append(Series(method, cuts.efficiency, cuts.background_efficiency, len(series)))
    caption = "Labelled events or particles above a cut on the probability of class 1."
    return roc_plot(name_of_file(f"roc_{head}"), f"ROC of {head}", caption, ("class 1", "class 0"), series)


# -- momenta -----------------------------------------------------------------------------------------------


class Resolution(Metric):
    """pT of the root particles, by falling pT, and the mass of their sum, relative to the truth.

    The truth is computed from the labelled objects as measured, so it shows the effect of wrong answers and not
    that of the detector.
    """

    name, title = "resolution", "Momenta of the answer"

    def count(self, chunk: Chunk, method: Method) -> dict[str, Floats] | None:
        events = chunk.events[chunk.events.complete]
        if not len(events):
            return None
        assert events.truth is not None
        found = positions(events, chunk.answers[method.name].assignment[chunk.events.complete])
        predicted, true = _quantities(events, found), _quantities(events, events.truth)
        weight = chunk.weight[chunk.events.complete]
        return {name: np.stack([predicted[name], true[name], weight], axis=1) for name in true}

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None:
            return None
        result = {}
        for name, values in counted.items():
            away, weight = _relative(values)
            if weight.sum() > 0:
                mean = float(np.average(away, weights=weight))
                variance = float(np.average((away - mean) ** 2, weights=weight))
                close = float(np.average(np.abs(away) <= CLOSE, weights=weight))
                moments = {"mean": mean, "deviation": float(np.sqrt(max(variance, 0.0)))}
                result[name] = {**moments, "close": close, "total": len(away)}
        return result or None

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        columns = {"entries": "total", "mean": "mean", "standard deviation": "deviation"}
        columns[f"within {CLOSE:.0%}"] = "close"
        for method, found in evaluation.results(self.name):
            yield Table.of(f"{method.title}, complete events", "relative difference", columns, found.items())

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        yield _plot(evaluation)


def _relative(values: Floats) -> tuple[Floats, Floats]:
    """The finite relative differences and their weights, from (n, 3): answer, truth, weight."""
    away = values[:, 0] / values[:, 1] - 1
    known = np.isfinite(away)
    return away[known], values[known, 2]


def _quantities(events: Events, assignment: npt.NDArray[np.integer[Any]]) -> dict[str, Floats]:
    """(n,) each: `pT(t1)`, `pT(t2)`, … by falling pT for each type of root, and `m(tt)` of their sum."""
    found, topology = particle_momenta(events, assignment), events.topology
    pt = polar(found.p4)["pt"]
    result: dict[str, Floats] = {}
    for name in dict.fromkeys(root.type for root in topology.roots):
        same = [root.index for root in topology.roots if root.type == name]
        ordered = -np.sort(-pt[:, same], axis=1)  # NaN stays last
        for k in range(len(same)):
            result[f"pT({name}{k + 1 if len(same) > 1 else ''})"] = ordered[:, k]
    return result | {f"m({name})": polar(p4)["mass"] for name, p4 in found.systems.items()}


def _plot(evaluation: Evaluation) -> Plot | None:
    counted = evaluation.counted("resolution", evaluation.methods[0]) or {}
    series: list[Series] = []
    for name, values in counted.items():
        away, weight = _relative(values)
        if weight.sum() > 0:
            clipped = np.clip(away, EDGES[0], np.nextafter(EDGES[-1], 0))
            shares, k = np.histogram(clipped, EDGES, weights=weight)[0] / weight.sum(), len(series)
            series.append(Series(name, EDGES, shares, k, STYLES[k % len(STYLES)]))
    labels = "answer / truth - 1", f"share of events / {EDGES[1] - EDGES[0]:.3f}"
    caption = (
        f"{evaluation.methods[0].name}, complete events: effect of wrong answers on momenta. The truth is "
        "computed from the labelled objects as measured. The first and last bins include underflow and overflow."
    )

    def finish(axes: Axes) -> None:
        axes.set(yscale="log", ylim=(min(y for one in series for y in one.y if y > 0) / 2, 3))

    how: dict[str, Any] = {"x": (EDGES[0], EDGES[-1]), "finish": finish, "loc": "upper right"}
    return plot_series("resolution", "Momenta of the answer", caption, labels, series, **how)


# -- the longitudinal momentum of a neutrino --------------------------------------------------------------


class Solved(NamedTuple):
    """The true neutrino of some events, and the solutions for it."""

    true: Floats  # (n, 3)
    pz: Floats  # (n, 2): the solution that is used, and the other one; NaN for none
    real: npt.NDArray[np.bool_]  # (n,)
    weight: Floats  # (n,)


class NeutrinoMomentum(Metric):
    """pz of the neutrino minus the true one, for every answer and for the true assignment."""

    name, title = "neutrino_pz", "Longitudinal momentum of the neutrino"

    def count(self, chunk: Chunk, method: Method) -> dict[str, Solved] | None:
        events = chunk.events
        if len(events.topology.neutrinos) != 1 or not all(name in events.columns for name in TRUE_MOMENTUM):
            return None
        found = {method.name: _solved(chunk, positions(events, chunk.answers[method.name].assignment))}
        if method is chunk.methods[0] and events.truth is not None:
            found[TRUTH] = _solved(chunk, events.truth)
        return found

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None or _unit_is_wrong(counted[method.name]):
            return None
        found = {name: _summary(solved) for name, solved in counted.items()}
        return found[method.name] | ({"true_objects": found[TRUTH]} if TRUTH in found else {})

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        counted = evaluation.counted(self.name, evaluation.methods[0])
        if counted is not None and _unit_is_wrong(next(iter(counted.values()))):
            note = f"the median pT is below {SMALLEST:g}, so these columns are not in GeV and are not compared"
            yield Table(", ".join(TRUE_MOMENTUM), notes=[note])
        results = [(method.title, result) for method, result in evaluation.results(self.name)]
        rows = [(TRUTH, found["true_objects"]) for _, found in results if "true_objects" in found] + results
        if rows:
            columns = {"neutrinos": "neutrinos", "real solutions": "real", "better one used": "better"}
            columns |= {"bias [GeV]": "bias", "resolution [GeV]": "resolution"}
            yield Table.of("pz of the neutrino, minus the true one", "", columns, rows)


def _solved(chunk: Chunk, assignment: npt.NDArray[np.integer[Any]]) -> Solved:
    events = chunk.events
    true = np.stack([np.asarray(events.columns[name], np.float64) for name in TRUE_MOMENTUM], axis=1)
    found = particle_momenta(events, assignment).neutrinos
    return Solved(true, found.p4[:, :, 0, 2], found.solutions > 0, chunk.weight)


def _unit_is_wrong(solved: Solved) -> bool:
    size = np.hypot(*solved.true[np.isfinite(solved.true).all(axis=1), :2].T)
    return bool(len(size)) and float(np.median(size)) < SMALLEST


def _summary(solved: Solved) -> dict[str, Any]:
    known = np.isfinite(solved.true).all(axis=1) & np.isfinite(solved.pz).all(axis=1)
    pz, true, real = solved.pz[known], solved.true[known, 2], solved.real[known]
    better = np.abs(pz[real, 0] - true[real]) <= np.abs(pz[real, 1] - true[real])
    weight = solved.weight[known]
    found = judge_number(Labelled(true[:, None], pz[:, :1], weight))
    return {
        "neutrinos": int(known.sum()),
        "real": Efficiency.of(real, np.ones(len(real)), weight),
        "better": Efficiency.of(better, np.ones(len(better)), weight[real]),
        "bias": found["bias"],
        "resolution": found["resolution"],
    }
