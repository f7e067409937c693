"""Metrics of all events, complete or not, as in data: calibration of probabilities, and the effect of cuts.

Event weights are used. Events without an answer are left out, but counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.evaluation.curves import Area, area, kept_at
from pairton.evaluation.intervals import effective
from pairton.evaluation.metrics import COMPLETE, EVENT
from pairton.evaluation.presence import true_pattern
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.tables import Table

if TYPE_CHECKING:
    from pairton.evaluation.scoreboard import Evaluation, Method

__all__ = ["ENOUGH", "NEAR", "Areas", "Patterns", "Purity", "bins_off"]

ENOUGH = 500  # entries that a bin of probability needs to be judged
NEAR = 0.03  # allowed difference of mean probability and true share
SHOWN = (0.9, 0.7, 0.5, 0.3, 0.1)  # efficiencies in the table of cuts
GRID = tuple(k / 100 for k in range(1, 101))  # efficiencies in the JSON and the figure
TITLES = {EVENT: "answer right", COMPLETE: "event complete"}
PROBABILITY, IF_COMPLETE = "event_probability", "event_probability_if_complete"


class Areas(Metric):
    """ROC areas: how well probabilities separate right from wrong answers, and complete from other events."""

    name, title = "area", "All events"

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        known = evaluation.probabilities(method)
        if EVENT not in known:
            return None
        every = known[EVENT]
        found = {"right": _area(every.probability, every.right, every.weight)}
        if COMPLETE in known:
            found["right_if_complete"] = _area(evaluation.if_complete(method), every.right, every.weight)
            found[COMPLETE] = _area(known[COMPLETE].probability, every.complete, every.weight)
        answered = np.isfinite(every.probability)
        weights = {"weight": float(every.weight[answered].sum()), "effective": effective(every.weight[answered])}
        return {"events": len(answered), "answered": int(answered.sum()), **weights, **found}

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for method in evaluation.methods:
            areas = evaluation.result(self.name, method) or {}
            under = {EVENT: areas.get("right"), COMPLETE: areas.get(COMPLETE)}
            rows = []
            for what, found in evaluation.result("calibration_all", method).items():
                if found["difference"] is not None:  # there are entries, and their weights add up above 0
                    difference = f"{found['difference']:+.3f} ± {found['deviation']:.3f}"
                    off, many, worst = bins_off(found["bins"])
                    cells = [found["total"], found["probability"], found["right"], difference, f"{off} of {many}"]
                    rows.append([TITLES.get(what, f"{what} right"), *cells, worst, _with_error(under.get(what))])
            if rows:
                header = ["probability", "entries", "mean", "true", "difference", "bins off", "worst", "area"]
                if_complete = areas.get("right_if_complete")
                notes = [
                    f"bins of 0.1 with {ENOUGH}+ entries; off: by more than {NEAR} and two standard deviations",
                    *([f"area of the probability if complete: {_with_error(if_complete)}"] if if_complete else []),
                ]
                yield Table(f"{method.title}, all events", header, rows, notes)


def _with_error(found: Area | None) -> str:
    return "" if found is None or np.isnan(found.value) else f"{found.value:.3f} ± {found.error:.3f}"


def _area(number: npt.NDArray[Any], inside: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> Area:
    known = np.isfinite(number)
    return area(number[known], inside[known], weight[known])


def bins_off(bins: Sequence[Mapping[str, Any]]) -> tuple[int, int, str]:
    """Of the bins with at least ENOUGH entries: the number that are off, the number of bins, and the worst bin.

    A bin is off if its mean probability differs from the true share by more than NEAR and by more than two
    standard deviations.

    >>> rows = [{"from": 0.1, "difference": 0.2, "deviation": 0.1, "total": 9},
    ...         {"from": 0.2, "difference": 0.06, "deviation": 0.04, "total": 600},
    ...         {"from": 0.5, "difference": -0.04, "deviation": 0.004, "total": 900}]
    >>> bins_off(rows)
    (1, 2, '0.2: +0.060 ± 0.040')
    """
    many = [row for row in bins if row["total"] >= ENOUGH]
    if not many:
        return 0, 0, ""
    off = sum(abs(row["difference"]) > max(NEAR, 2 * row["deviation"]) for row in many)
    worst = max(many, key=lambda row: abs(row["difference"]))
    return off, len(many), f"{worst['from']:.1f}: {worst['difference']:+.3f} ± {worst['deviation']:.3f}"


class Purity(Metric):
    """The purity after a cut on the probability, against the share of right answers that the cut keeps."""

    name, title = "purity", "A cut on the probability, all events"

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        known = evaluation.probabilities(method)
        if EVENT not in known:
            return None
        _, right, _, weight = known[EVENT]
        found = {}
        numbers = {PROBABILITY: known[EVENT].probability}
        if COMPLETE in known:
            numbers[IF_COMPLETE] = evaluation.if_complete(method)
        for name, number in numbers.items():
            some = np.isfinite(number)
            found[name] = kept_at(number[some], right[some], GRID, weight[some])._asdict()
        return found if found[PROBABILITY]["purity"] else None

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        rows = []
        for method in evaluation.methods:
            for name, found in (evaluation.result(self.name, method) or {}).items():
                which = "" if name == PROBABILITY else ", if complete"
                purities = [found["purity"][GRID.index(share)] for share in SHOWN]
                rows.append([f"{method.title}{which}", *purities])
        if rows:
            header = ["right answers kept", *(f"{share:.0%}" for share in SHOWN)]
            yield Table("purity: share of right answers among the events kept by a cut", header, rows)


class Patterns(Metric):
    """Which particles are present: the most probable pattern against the true one."""

    name, title = "patterns", "What is in the events"

    def count(self, chunk: Chunk, method: Method) -> dict[str, npt.NDArray[Any]] | None:
        chance = chunk.answers[method.name].pattern_probability
        known = np.isfinite(chance).all(axis=1)
        if not known.any():
            return None
        topology, weight = chunk.events.topology, chunk.weight[known]
        size = len(plan_of(topology).patterns)
        true, predicted = true_pattern(topology, chunk.truth[known]), chance[known].argmax(axis=1)
        both = true * size + predicted
        return {
            "events": np.bincount(both, minlength=size**2)[None],
            "weights": np.bincount(both, weight, size**2)[None],
            "predicted": (weight[:, None] * chance[known]).sum(axis=0)[None],
        }

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None:
            return None
        names = [pattern.name for pattern in plan_of(evaluation.topology).patterns]
        square = len(names), len(names)
        weights = counted["weights"].sum(axis=0).reshape(square)
        total = weights.sum()
        return {
            "names": names,
            "events": counted["events"].sum(axis=0).reshape(square),  # true, most probable
            "weights": weights,
            "true": weights.sum(axis=1) / total,
            "probability": counted["predicted"].sum(axis=0) / total,
        }

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for method in evaluation.methods:
            if (found := evaluation.result(self.name, method)) is not None:
                rows = [
                    [name, *(int(n) for n in counts), found["true"][k], found["probability"][k]]
                    for k, (name, counts) in enumerate(zip(found["names"], found["events"], strict=True))
                ]
                header = ["true, against most probable", *found["names"], "share", "mean probability"]
                yield Table(f"{method.title}, particles that are present", header, rows)
