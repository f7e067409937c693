"""The built-in metrics of complete events; they are registered here.

`pairton.evaluation.all_events` and `pairton.evaluation.background` have the metrics of all events, complete or
not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.evaluation import metrics
from pairton.evaluation.all_events import Areas, Patterns, Purity
from pairton.evaluation.background import Background
from pairton.evaluation.intervals import quantile
from pairton.evaluation.metrics import COMPLETE, EVENT, IF_COMPLETE, INCLUSIVE
from pairton.evaluation.registry import Chunk, Metric, register_metric
from pairton.evaluation.resolution import Resolution
from pairton.evaluation.steps import FOLLOWED, Followed, follow, recovery, recovery_difference
from pairton.evaluation.tables import Table, formatted
from pairton.events.vectors import polar
from pairton.reconstruction.result import slot_momenta
from pairton.topology import collection_name
from pairton.topology.extras import bin_names

if TYPE_CHECKING:
    from pairton.evaluation.scoreboard import Evaluation, Method

__all__ = ["Probabilities"]

MASS_BINS = 8  # with equal numbers of events, or sums of weights
MASS_STEP = 10.0  # GeV; the edges are rounded to multiples


def _cells(evaluation: Evaluation) -> list[str]:
    """Headings of columns: one per multiplicity bin, and inclusive."""
    return [
        *(f"{name} {collection_name(evaluation.topology.main_kind)}" for name in bin_names(evaluation.topology)),
        INCLUSIVE,
    ]


class Efficiencies(Metric):
    """Efficiencies by multiplicity; it counts the scores of all events."""

    name, title = "efficiency", "Efficiencies"

    def count(self, chunk: Chunk, method: Method) -> metrics.Scores:
        return chunk.scores[method.name]

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, dict[str, metrics.Efficiency]]:
        return metrics.table(evaluation.scores(method))

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        mix = evaluation.mix or ()
        shares = [f"mix {'/'.join(f'{100 * share / sum(mix):.0f}' for share in mix)}"] if mix else []
        for method in evaluation.methods:
            weighted = evaluation.result("reweighted", method)
            rows = [
                [what, *cells.values(), *([weighted["efficiency"][what]] if weighted else [])]
                for what, cells in evaluation.efficiency(method).items()
            ]
            yield Table(method.title, ["efficiency", *_cells(evaluation), *shares], rows)


class Reweighted(Metric):
    """Inclusive efficiencies for another mix of multiplicities, as a column of the table of efficiencies."""

    name = "reweighted"

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        if evaluation.mix is None:
            return None
        mix = dict(zip(bin_names(evaluation.topology), evaluation.mix, strict=True))
        return {"mix": mix, "efficiency": metrics.reweighted(evaluation.scores(method), evaluation.mix)}


# -- probabilities -----------------------------------------------------------------------------------------


class Probabilities(NamedTuple):
    """Predicted probabilities of events or particles, one entry each."""

    probability: npt.NDArray[np.floating[Any]]
    right: npt.NDArray[np.bool_]  # whether the event or particle is right
    complete: npt.NDArray[np.bool_]  # whether the event is complete
    weight: npt.NDArray[np.float64]  # of the event


@dataclass(frozen=True)
class Calibration(Metric):
    """Probabilities against the share that is right.

    Either for complete events, in which every particle can be right, or for all events, as in data, where it is
    not known which ones are complete: a particle whose jet is missing cannot be right. An event is right if the
    answer has exactly the particles that are present.
    """

    name: str = "calibration"
    title: str = "Calibration"
    complete: bool = True

    def count(self, chunk: Chunk, method: Method) -> dict[str, Probabilities] | None:
        if not self.complete:
            return None  # uses the counts of the metric for complete events
        scores, answer, topology = chunk.scores[method.name], chunk.answers[method.name], chunk.events.topology
        complete = scores.total[EVENT] > 0
        right = answer.answered & metrics.same_hypothesis(topology, chunk.truth, answer.assignment)
        matched = metrics.matches(topology, answer.assignment, chunk.truth)
        found = {EVENT: Probabilities(answer.event_probability, right, complete, chunk.weight)}
        of_pattern = answer.pattern_probability[:, 0]  # NaN if unknown: `Evaluation.probabilities` leaves that out
        found[COMPLETE] = Probabilities(of_pattern, complete, complete, chunk.weight)
        given = np.full(len(complete), np.nan)
        np.divide(answer.event_probability, of_pattern, out=given, where=of_pattern > 0)
        given[np.isfinite(of_pattern) & (answer.assignment < 0).any(axis=1)] = 0  # a particle is left out
        found[IF_COMPLETE] = Probabilities(given, right, complete, chunk.weight)
        for name in reversed(topology.types):
            of_type = [particle.index for particle in topology.of_type(name)]
            chances = answer.particle_probability[:, of_type].ravel()
            each = np.repeat(np.arange(len(complete)), len(of_type))
            found[name] = Probabilities(chances, matched[:, of_type].ravel(), complete[each], chunk.weight[each])
        return found

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, dict[str, Any]]:
        result = {}
        for what, (probability, right, complete, weight) in evaluation.probabilities(method).items():
            if what == IF_COMPLETE:
                continue
            if not self.complete:
                result[what] = metrics.calibration(probability, right, complete=complete, weight=weight)
            elif what == EVENT:
                chance = evaluation.if_complete(method)
                result[what] = metrics.calibration(chance[complete], right[complete], weight=weight[complete])
            elif not evaluation.knows_patterns(method):  # else probabilities of particles hold for all events
                result[what] = metrics.calibration(probability[complete], right[complete], weight=weight[complete])
        return result

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        rows = []
        for method in evaluation.methods if self.complete else ():
            found = evaluation.result(self.name, method)
            if EVENT in found and found[EVENT]["total"]:
                keys = ("total", "probability", "right", "error")
                rows.append([method.title, *(found[EVENT][key] for key in keys)])
        if rows:
            header = ["method", "complete", "mean P(event)", "right", "mean |difference|"]
            yield Table("calibration of P(event), if complete", header, rows)


class Limit(Metric):
    """Mean probability of the answer against the share that is right, for complete events, by multiplicity.

    If probabilities are calibrated, no other choice of answers from the same network is right more often, so their
    mean is the limit of that network.
    """

    name = "limit"

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, dict[str, Any]]:
        result: dict[str, dict[str, Any]] = {}
        if EVENT in (known := evaluation.probabilities(method)):
            probability, (_, right, complete, weight) = evaluation.if_complete(method), known[EVENT]
            for cell, inside in evaluation.scores(method).cells.items():
                rows = complete & inside
                means = metrics.calibration(probability[rows], right[rows], weight=weight[rows])
                result[cell] = {name: means[name] for name in means if name not in ("bins", "error")}
        return result


# -- steps -------------------------------------------------------------------------------------------------


class Flow(Metric):
    """Right and wrong steps in complete events, for the decodings `one_shot` and `steps`."""

    name, title = "flow", "Steps"

    def count(self, chunk: Chunk, method: Method) -> dict[str, Followed] | None:
        if method.model is None or not method.takes_steps:
            return None
        prepared = method.accept(chunk.events)
        return {each: follow(method.model, each, chunk.events, prepared, chunk.truth) for each in FOLLOWED}

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None or method.model is None:
            return None
        found: dict[str, Any] = {decoding: recovery(steps) for decoding, steps in counted.items()}
        found["difference"] = recovery_difference(counted["steps"], counted["one_shot"])
        stages = method.model.topology.stages
        split = [len(stage.types) > 1 and not stage.any for stage in stages]
        flows = {
            decoding: metrics.flow(steps.shares[steps.asked], split, steps.weight[steps.asked])
            for decoding, steps in counted.items()
        }
        return {"stages": [str(stage) for stage in stages], **flows, "recovery": found}

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for method in evaluation.methods:
            if (found := evaluation.result(self.name, method)) is not None:
                notes = [f"right (+), partly right (~) and wrong (-) steps, after {', '.join(found['stages'])}:"]
                for decoding in FOLLOWED:
                    histories = (
                        " ".join(f"{k} {_number(n)}" for k, n in counts.items()) for counts in found[decoding]
                    )
                    notes.append(f"{decoding:8}  {'; '.join(histories)}")
                notes.append(
                    "recovery: share found of the particles that are still possible after a wrong first step"
                )
                for name, cells in found["recovery"].items():
                    notes.append(f"{name if name in FOLLOWED else 'steps minus one_shot'}  {_listed(cells)}")
                yield Table(f"steps of {method.title}", notes=notes)


def _number(count: float) -> str:
    return str(count) if isinstance(count, int) else f"{count:.4g}"


def _listed(cells: dict[str, Any]) -> str:
    totals = {name: f" of {cell.total}" if hasattr(cell, "total") else "" for name, cell in cells.items()}
    return "; ".join(f"{name} {' '.join(formatted(cell))}{totals[name]}" for name, cell in cells.items())


# -- comparisons -------------------------------------------------------------------------------------------


class Mass(Metric):
    """The event efficiency in bins of the invariant mass of all truth-matched objects."""

    name, title = "mass", "Event efficiency and mass"

    def count(self, chunk: Chunk, method: Method) -> npt.NDArray[np.float64] | None:
        if chunk.events.truth is None or method.name != next(iter(chunk.answers)):
            return None  # the same for every method
        return polar(slot_momenta(chunk.events, chunk.events.truth).sum(axis=1))["mass"]

    def edges(self, evaluation: Evaluation) -> list[float]:
        """Rounded edges of bins with about equal numbers of events."""
        mass = evaluation.counted(self.name, evaluation.methods[0])
        known, weight = mass[np.isfinite(mass)], evaluation.scores(evaluation.methods[0]).weight[np.isfinite(mass)]
        if not len(known):
            return []
        weight = weight if weight.sum() > 0 else np.ones(len(known))
        inner = np.round(quantile(known, np.linspace(0, 1, MASS_BINS + 1), weight) / MASS_STEP) * MASS_STEP
        inner[0] = np.floor(known.min() / MASS_STEP) * MASS_STEP
        inner[-1] = (np.floor(known.max() / MASS_STEP) + 1) * MASS_STEP
        return [float(edge) for edge in np.unique(inner)]

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any]:
        mass, edges = evaluation.counted(self.name, evaluation.methods[0]), self.edges(evaluation)
        found = metrics.efficiency_against(evaluation.scores(method), mass, edges)
        return {"edges": edges, "efficiency": found}

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        results = [evaluation.result(self.name, method) for method in evaluation.methods]
        bins = pairwise(results[0]["edges"])
        lines = zip(bins, *(found["efficiency"] for found in results), strict=True)
        rows = [[f"{low:.0f} to {high:.0f}", cells[0].total, *cells] for (low, high), *cells in lines]
        if rows:
            names = [method.name for method in evaluation.methods]
            yield Table("event efficiency", ["mass of all matched objects [GeV]", "events", *names], rows)


class Differences(Metric):
    """The differences of all pairs of methods on the same events."""

    name, title = "differences", "Differences on the same events"

    def comparison(self, evaluation: Evaluation) -> list[dict[str, Any]]:
        result = []
        for one, other in combinations(evaluation.methods, 2):
            found = metrics.differences(evaluation.scores(one), evaluation.scores(other))
            pair = {"first": one.name, "second": other.name, "efficiency": found}
            steps = [evaluation.counted("flow", method) for method in (one, other)]
            if all(steps):  # for events in which both took a wrong first step
                own = (each[method.decoding] for each, method in zip(steps, (one, other), strict=True))
                pair["recovery"] = recovery_difference(*own)
            result.append(pair)
        return result

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        titles = {method.name: method.title for method in evaluation.methods}
        for pair in evaluation.result(self.name):
            rows = [[what, *cells.values()] for what, cells in pair["efficiency"].items()]
            event, notes = pair["efficiency"][EVENT][INCLUSIVE], []
            if not np.isnan(event.value):
                alone = f"only in the first {event.only_first}, only in the second {event.only_second}"
                test = "p" if evaluation.weighted else "McNemar p"
                notes.append(f"events that are right {alone}: {test} {event.p_value:.2g}")
            if "recovery" in pair:
                note = "recovery, in events in which both took a wrong first step"
                notes.append(f"{note}: {_listed(pair['recovery'])}")
            title = f"{titles[pair['first']]} minus {titles[pair['second']]}"
            yield Table(title, ["difference", *_cells(evaluation)], rows, notes)


class Spread(Metric):
    """The spread of models that were trained with the same recipe and use the same decoding."""

    name, title = "spread", "Retrainings"

    def comparison(self, evaluation: Evaluation) -> list[dict[str, Any]]:
        return [
            {
                "methods": [m.name for m in same],
                "efficiency": metrics.spread(list(map(evaluation.efficiency, same))),
            }
            for same in _retrainings(evaluation.methods)
        ]

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for found in evaluation.result(self.name):
            rows = [[what, *cells.values()] for what, cells in found["efficiency"].items()]
            title = f"{len(found['methods'])} trainings: {', '.join(found['methods'])}"
            yield Table(title, ["spread", *_cells(evaluation)], rows)


def _retrainings(methods: Iterable[Method]) -> list[list[Method]]:
    groups: dict[str, list[Method]] = {}
    for method in methods:
        if method.model is not None:
            info = method.model.info
            recipe = {name: part for name, part in info.recipe.items() if name != "run"}
            same = [info.network, recipe, method.decoding, method.jet_scale]
            groups.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(method)
    return [same for same in groups.values() if len(same) > 1]


_each = Efficiencies(), Reweighted(), Mass(), Calibration(), Calibration("calibration_all", "", complete=False)
_all_events = Areas(), Purity(), Patterns(), Background()
for _metric in (*_each, *_all_events, Resolution(), Limit(), Flow(), Differences(), Spread()):
    register_metric(_metric)
