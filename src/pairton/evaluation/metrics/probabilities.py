"""Predicted probabilities against what is right: calibration, ROC areas, and cuts.

In complete events every particle can be right. All events are as in data, where it is not known which ones are
complete: a particle whose jet is missing cannot be right. Events without an answer are left out, but counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.evaluation import statistics
from pairton.evaluation.evaluation import Chunk, Metric, Table
from pairton.evaluation.plots import DASHED, DOTTED, Plot, Series, plot_series
from pairton.evaluation.scores import EVENT, matches, same_hypothesis
from pairton.evaluation.statistics import Area, cuts_at_efficiency, effective_entries
from pairton.topology.assignments import present

if TYPE_CHECKING:
    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = [
    "COMPLETE",
    "GRID",
    "Areas",
    "Calibration",
    "Limit",
    "Probabilities",
    "Purity",
    "bins_off",
    "if_complete",
    "probabilities",
]

COMPLETE = "complete"  # probability that every particle is present, from a model that knows patterns
IF_COMPLETE = "if_complete"  # probability of the answer, given that the event is complete

ENOUGH = 500  # entries that a bin of probability needs to be judged
DRAWN = 10  # entries that a bin of probability needs to be drawn
NEAR = 0.03  # allowed difference of mean probability and true share
IN_TABLE = (0.9, 0.7, 0.5, 0.3, 0.1)  # efficiencies in the table of cuts
GRID = tuple(k / 100 for k in range(1, 101))  # efficiencies in the JSON and the figures
TITLES = {EVENT: "answer right", COMPLETE: "event complete"}
NAME, NAME_IF_COMPLETE = "event_probability", "event_probability_if_complete"


class Probabilities(NamedTuple):
    """Predicted probabilities of events or particles, one entry each."""

    probability: npt.NDArray[np.floating[Any]]
    right: npt.NDArray[np.bool_]  # whether the event or particle is right
    complete: npt.NDArray[np.bool_]  # whether the event is complete
    weight: npt.NDArray[np.float64]  # of the event

    def where(self, rows: npt.NDArray[np.bool_]) -> Probabilities:
        """Some of the entries."""
        return Probabilities(self.probability[rows], self.right[rows], self.complete[rows], self.weight[rows])


def probabilities(evaluation: Evaluation, method: Method) -> dict[str, Probabilities]:
    """`event`, each type, and for a model that knows patterns `complete` and `if_complete` -> probabilities."""
    counted: dict[str, Probabilities] = evaluation.counted("calibration", method)
    return {what: each for what, each in counted.items() if np.isfinite(each.probability).any()}


def if_complete(evaluation: Evaluation, method: Method) -> Probabilities:
    """The probability of each answer, given that the event is complete."""
    known = probabilities(evaluation, method)
    return known.get(IF_COMPLETE, known[EVENT])


@dataclass(frozen=True)
class Calibration(Metric):
    """Probabilities against the share that is right, for complete events or for all events.

    An event is right if the answer has exactly the particles that are present.
    """

    name: str = "calibration"
    title: str = "Calibration"
    complete: bool = True

    def count(self, chunk: Chunk, method: Method) -> dict[str, Probabilities] | None:
        if not self.complete:
            return None  # uses the counts of the metric for complete events
        scores, answer, topology = chunk.scores[method.name], chunk.answers[method.name], chunk.events.topology
        complete = scores.total[EVENT] > 0
        right = answer.answered & same_hypothesis(topology, chunk.truth, answer.assignment)
        matched = matches(topology, answer.assignment, chunk.truth)
        of_pattern = answer.pattern_probability[:, plan_of(topology).complete].sum(axis=1)  # NaN if unknown
        conditional = np.full(len(complete), np.nan)
        np.divide(answer.event_probability, of_pattern, out=conditional, where=of_pattern > 0)
        there = present(topology, answer.assignment)[:, [root.index for root in topology.roots]]
        conditional[np.isfinite(of_pattern) & ~there.all(axis=1)] = 0  # a particle is left out
        result = {
            EVENT: Probabilities(answer.event_probability, right, complete, chunk.weight),
            COMPLETE: Probabilities(of_pattern, complete, complete, chunk.weight),
            IF_COMPLETE: Probabilities(conditional, right, complete, chunk.weight),
        }
        for name in reversed(topology.types):
            of_type = [particle.index for particle in topology.of_type(name)]
            chances = answer.particle_probability[:, of_type].ravel()
            each = np.repeat(np.arange(len(complete)), len(of_type))
            result[name] = Probabilities(chances, matched[:, of_type].ravel(), complete[each], chunk.weight[each])
        return result

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, dict[str, Any]]:
        known, result = probabilities(evaluation, method), {}
        for what, each in known.items():
            if what == IF_COMPLETE:
                continue
            if self.complete and what == EVENT:
                each = if_complete(evaluation, method)
            elif self.complete and COMPLETE in known:
                continue  # probabilities of particles hold for all events
            if self.complete:
                each = each.where(each.complete)
            complete = None if self.complete else each.complete
            result[what] = statistics.calibration(
                each.probability, each.right, complete=complete, weight=each.weight
            )
        return result

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        results = ((method.title, found.get(EVENT)) for method, found in evaluation.results(self.name))
        rows = [(title, found) for title, found in results if found and found["total"]]
        if self.complete and rows:  # all events are in the table of `Areas`
            columns = {"complete": "total", "mean P(event)": "probability", "right": "right"}
            columns["mean |difference|"] = "error"
            yield Table.of("calibration of P(event), if complete", "method", columns, rows)

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        if self.complete:
            yield _calibration_plot(evaluation)
            yield _cut_plot(evaluation)


class Limit(Metric):
    """Mean probability of the answer against the share that is right, for complete events, by multiplicity.

    If probabilities are calibrated, no other choice of answers from the same network is right more often, so their
    mean is the limit of that network.
    """

    name = "limit"

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, dict[str, Any]]:
        result: dict[str, dict[str, Any]] = {}
        if EVENT in probabilities(evaluation, method):
            every = if_complete(evaluation, method)
            for cell, inside in evaluation.scores(method).cells.items():
                each = every.where(every.complete & inside)
                means = statistics.calibration(each.probability, each.right, weight=each.weight)
                result[cell] = {name: means[name] for name in means if name not in ("bins", "error")}
        return result


class Areas(Metric):
    """ROC areas: how well probabilities separate right from wrong answers, and complete from other events."""

    name, title = "area", "All events"
    brief = True

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        known = probabilities(evaluation, method)
        if EVENT not in known:
            return None
        every = known[EVENT]
        areas = {"right": _area(every)}
        if COMPLETE in known:
            conditional = _area(if_complete(evaluation, method))
            areas |= {"right_if_complete": conditional, COMPLETE: _area(known[COMPLETE])}
        answered = np.isfinite(every.probability)
        weight = every.weight[answered]
        sums = {"weight": float(weight.sum()), "effective": effective_entries(weight)}
        return {"events": len(answered), "answered": int(answered.sum()), **sums, **areas}

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        header = ["probability", "entries", "mean", "true", "difference", "bins off", "worst", "area"]
        for method in evaluation.methods:
            areas = evaluation.result(self.name, method) or {}
            under = {EVENT: areas.get("right", ""), COMPLETE: areas.get(COMPLETE, "")}
            rows = []
            for what, found in evaluation.result("calibration_all", method).items():
                if found["difference"] is not None:  # there are entries, and their weights add up above 0
                    difference = f"{found['difference']:+.3f} ± {found['deviation']:.3f}"
                    off, many, worst = bins_off(found["bins"])
                    cells = [found["total"], found["probability"], found["right"], difference, f"{off} of {many}"]
                    area = str(under.get(what, ""))
                    rows.append([TITLES.get(what, f"{what} right"), *cells, worst, area])
            if rows:
                notes = [
                    f"bins of 0.1 with {ENOUGH}+ entries; off: by more than {NEAR} and two standard deviations"
                ]
                if "right_if_complete" in areas:
                    notes.append(f"area of the probability if complete: {areas['right_if_complete']}")
                yield Table(f"{method.title}, all events", header, rows, notes)


def _area(each: Probabilities) -> Area:
    each = each.where(np.isfinite(each.probability))
    return statistics.area(each.probability, each.right, each.weight)


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
        known = probabilities(evaluation, method)
        result = {}
        for name, what in ((NAME, EVENT), (NAME_IF_COMPLETE, IF_COMPLETE)):
            if what in known:
                found = _cuts(known[what])._asdict()
                result[name] = {"mistaken" if key == "background_efficiency" else key: found[key] for key in found}
        return result if NAME in result and result[NAME]["purity"] else None

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        rows = []
        for method, result in evaluation.results(self.name):
            for name, found in result.items():
                which = "" if name == NAME else ", if complete"
                rows.append([f"{method.title}{which}", *(found["purity"][GRID.index(s)] for s in IN_TABLE)])
        if rows:
            header = ["right answers kept", *(f"{share:.0%}" for share in IN_TABLE)]
            yield Table("purity: share of right answers among the events kept by a cut", header, rows)

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        series = []
        for k, (method, result) in enumerate(evaluation.results(self.name)):
            for name, found in result.items():
                more, style = ("", "-") if name == NAME else (", if complete", DASHED)
                label = f"{method.name}{more}"
                series.append(Series(label, found["efficiency"], found["purity"], k, style))
        caption = (
            "All events above a cut on the probability of the answer. Dashed: a cut on the probability that "
            "the answer is right if the event is complete."
        )
        labels = "share of right answers kept", "right answers among events kept"
        title, top = "Purity and efficiency of a cut, all events", 1.05 + 0.08 * len(series)
        yield plot_series("purity", title, caption, labels, series, x=(0, 1), y=(0, top), loc="upper right")


def _cuts(each: Probabilities) -> statistics.Cuts:
    each = each.where(np.isfinite(each.probability))
    return cuts_at_efficiency(each.probability, each.right, GRID, each.weight)


# -- figures -----------------------------------------------------------------------------------------------


def _calibration_plot(evaluation: Evaluation) -> Plot | None:
    """Predicted probability against the share that is right: of complete events, dashed, and of all events."""
    series: list[Series] = []
    colour: dict[str, int] = {}  # of the events of each method
    for metric, more, style in (("calibration_all", "", "-"), ("calibration", ", if complete", DASHED)):
        for method, result in evaluation.results(metric):
            for what, found in result.items():
                bins = [row for row in found["bins"] if row["total"] >= DRAWN]
                first = method is evaluation.methods[0] and not more
                if found["bins"] and (first or what == EVENT):
                    keys = "probability", "value", "low", "high"
                    at, share, low, high = (np.array([row[key] for row in bins]) for key in keys)
                    number = colour.setdefault(method.name, len(series)) if what == EVENT else len(series)
                    label = f"{method.name}, {what}{more}"
                    series.append(Series(label, at, share, number, style, low, high))
    caption = (
        "On the diagonal, answers of 80 % probability are right in 80 % of cases. Solid: all events, as in data; "
        "answers to incomplete events are wrong if they have a particle that is not present, so a model that "
        "knows complete events only lies below the diagonal. Dashed: complete events."
    )
    labels = "predicted probability", "share that is right"
    how: dict[str, Any] = {"x": (0, 1), "y": (0, 1.05), "diagonal": (0, 1), "loc": "upper left"}
    return plot_series("calibration", "Calibration", caption, labels, series, **how)


def _cut_plot(evaluation: Evaluation) -> Plot | None:
    """Efficiency and purity of a cut on the event probability."""
    series: list[Series] = []
    for method in evaluation.methods:
        if EVENT not in (known := probabilities(evaluation, method)):
            continue
        complete, every = _cuts(known[EVENT].where(known[EVENT].complete)), _cuts(known[EVENT])
        if complete.cut:
            k = len(series) // 3
            series += [
                Series(f"{method.name}: right among kept", complete.cut, complete.purity, k),
                Series("kept", complete.cut, complete.kept, k, DASHED),
                Series("right, of all events", every.cut, every.purity, k, DOTTED),
            ]
    caption = (
        "Dashed: share of complete events above the cut. Solid: share of right answers among them. Dotted: share "
        "of right answers among all events above the cut, as in data; events with a missing object cannot be "
        "right."
    )
    labels, title = ("cut on the event probability", "share"), "Efficiency and purity of a cut"
    top = 1.1 + 0.1 * (len(series) // 2 + 1)  # with room for the legend
    how: dict[str, Any] = {"x": (0, 1), "y": (0, top), "loc": "upper left", "ncols": 2}
    return plot_series("probability_cut", title, caption, labels, series, **how)
