"""Metrics of declared heads: accuracy and ROC area of classifications, bias and resolution of regressions.

A head of particles is labelled on the right particles of the answer, with the labels of the true particles.

Shapes: n events, P places (the particles or products that a head describes), C classes, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.evaluation.plots import COLOURS, Line, Plot, draw_lines, in_rows, name_of_file, plain
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.statistics import (
    CONFIDENCE,
    Efficiency,
    area,
    cuts_at_efficiency,
    quantile,
    weighted_ratio,
)
from pairton.evaluation.tables import Table
from pairton.events.head_specs import HeadSpec, places_of
from pairton.topology import Topology
from pairton.topology.assignments import canonical_within

if TYPE_CHECKING:
    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["Estimate", "Heads", "Labelled", "judge_class", "judge_number", "roc_area"]

REPLICAS = 200  # of a bootstrap of the resolution
SHARES = np.linspace(0, 1, 201)  # efficiencies in a ROC curve

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
        results = evaluation.results(self.name)
        classes = {"labels": "labels", "accuracy": "accuracy", "ROC area": "roc_area"}
        numbers = {key: key for key in ("labels", "bias", "resolution")} | {"spread of the labels": "spread"}
        for title, key, columns in (("classes", "accuracy", classes), ("numbers", "resolution", numbers)):
            names = dict.fromkeys(name for _, result in results for name in result if key in result[name])
            rows = [
                [f"{name}: {method.title}", *(result[name][column] for column in columns.values())]
                for name in names
                for method, result in results
                if name in result
            ]
            if rows:
                yield Table(title, ["head", *columns], rows)

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
    """The rejection of class 0 against the efficiency of class 1, for a head with two classes."""
    lines: list[Line] = []
    rows = []
    for method, found in counted.items():
        if head in found and found[head].values.shape[2:] == (2,):
            each, compared = found[head], found[head].compared
            class_1 = each.labels[compared] == 1
            cuts = cuts_at_efficiency(each.values[compared][:, 1], class_1, SHARES, each.weights)
            if cuts.cut and np.isfinite(cuts.background_efficiency).all():
                rejection, colour = 1 - np.array(cuts.background_efficiency), COLOURS[len(lines) % len(COLOURS)]
                lines.append(Line(plain(method), cuts.efficiency, rejection.tolist(), colour))
                columns = {"signal": cuts.efficiency, "background": cuts.background_efficiency}
                rows += in_rows(columns, method=method)
    if not lines:
        return None
    labels = "efficiency of class 1", "rejection of class 0"
    draw = draw_lines(*labels, lines, top=1.02, diagonal=(1, 0), loc="lower left")
    caption = (
        "Share of class 0 that a cut rejects, against the share of class 1 that it keeps. Dashed: random choice."
    )
    return Plot(name_of_file(f"roc_{head}"), f"ROC of {head}", caption, draw, rows)
