"""Efficiencies of complete events by multiplicity, by mass and for another mix, and comparisons of methods."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation import scores
from pairton.evaluation.evaluation import Chunk, Metric, Table
from pairton.evaluation.metrics.flow import listed, recovery_difference
from pairton.evaluation.plots import Plot, Series, plot_series
from pairton.evaluation.scores import EVENT, INCLUSIVE, Scores
from pairton.evaluation.statistics import Efficiency, MeanSpread, quantile
from pairton.events.vectors import polar
from pairton.reconstruction.momenta import slot_momenta
from pairton.topology import collection_name
from pairton.topology.extras import bin_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["Differences", "Efficiencies", "Mass", "Reweighted", "Spread", "cell_names", "spread"]

MASS_BINS = 8  # with equal numbers of events, or sums of weights
MASS_STEP = 10.0  # GeV; the edges are rounded to multiples
MOST_JETS = 12  # this and larger numbers share a bin of the figure
FROM_ZERO = 0, 1.12  # with room for a legend at the top
LEGEND: dict[str, Any] = {"ncols": 2, "loc": "upper right"}


def cell_names(evaluation: Evaluation) -> list[str]:
    """Headings of columns: one per multiplicity bin, and inclusive."""
    objects = collection_name(evaluation.topology.main_kind)
    return [*(f"{name} {objects}" for name in bin_names(evaluation.topology)), INCLUSIVE]


class Efficiencies(Metric):
    """Efficiencies by multiplicity; it counts the scores of all events."""

    name, title = "efficiency", "Efficiencies"
    brief = True

    def count(self, chunk: Chunk, method: Method) -> Scores:
        return chunk.scores[method.name]

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, dict[str, Efficiency]]:
        return evaluation.scores(method).efficiencies()

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        mix = evaluation.mix or ()
        shares = [f"mix {'/'.join(f'{100 * share / sum(mix):.0f}' for share in mix)}"] if mix else []
        for method in evaluation.methods:
            weighted = evaluation.result("reweighted", method)
            rows = [
                [what, *cells.values(), *([weighted["efficiency"][what]] if weighted else [])]
                for what, cells in evaluation.efficiency(method).items()
            ]
            yield Table(method.title, ["efficiency", *cell_names(evaluation), *shares], rows)

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        yield _against_multiplicity(evaluation)
        yield _against_mass(evaluation)


class Reweighted(Metric):
    """Inclusive efficiencies for another mix of multiplicities, as a column of the table of efficiencies."""

    name = "reweighted"

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        if evaluation.mix is None:
            return None
        mix = dict(zip(bin_names(evaluation.topology), evaluation.mix, strict=True))
        return {"mix": mix, "efficiency": scores.reweighted(evaluation.scores(method), evaluation.mix)}


class Mass(Metric):
    """The event efficiency in bins of the invariant mass of all truth-matched objects."""

    name, title = "mass", "Event efficiency and mass"

    def count(self, chunk: Chunk, method: Method) -> npt.NDArray[np.float64] | None:
        if chunk.events.truth is None or method is not chunk.methods[0]:
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
        return {"edges": edges, "efficiency": scores.efficiency_against(evaluation.scores(method), mass, edges)}

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        results = [result for _, result in evaluation.results(self.name)]
        bins = pairwise(results[0]["edges"])
        lines = zip(bins, *(result["efficiency"] for result in results), strict=True)
        rows = [[f"{low:.0f} to {high:.0f}", cells[0].total, *cells] for (low, high), *cells in lines]
        if rows:
            names = [method.name for method in evaluation.methods]
            yield Table("event efficiency", ["mass of all matched objects [GeV]", "events", *names], rows)


def _against_mass(evaluation: Evaluation) -> Plot | None:
    results = evaluation.results("mass")
    edges = results[0][1]["edges"]
    if len(edges) < 2:
        return None
    shown = min(edges[-1], edges[-2] + 2 * (edges[-2] - edges[-3])) if len(edges) > 2 else edges[-1]
    low, top = np.array(edges[:-1]), np.minimum(edges[1:], shown)  # the last bin is cut, as it is long
    series = [
        _points(method.name, k, (low + top) / 2, result["efficiency"], (top - low) / 2)
        for k, (method, result) in enumerate(results)
    ]
    caption = (
        "Event efficiency in bins with about equal numbers of events; the last bin extends further to the right."
    )
    labels = "mass of all truth-matched objects [GeV]", "event efficiency"
    title, view = "Event efficiency and mass", (edges[0], shown)
    return plot_series("efficiency_mass", title, caption, labels, series, x=view, y=FROM_ZERO, **LEGEND)


def _against_multiplicity(evaluation: Evaluation) -> Plot | None:
    """Event efficiency for each number of objects of the main kind."""
    topology = evaluation.topology
    first = topology.slots_per_kind[topology.kinds.index(topology.main_kind)]
    objects, most = collection_name(topology.main_kind), max(MOST_JETS, first + 2)
    counts = np.clip(evaluation.scores(evaluation.methods[0]).n_jets, first, most)
    values = np.arange(first, int(counts.max(initial=first)) + 1)
    edges = [*(values - 0.5).tolist(), values[-1] + 0.5]
    each = {m.name: scores.efficiency_against(evaluation.scores(m), counts, edges) for m in evaluation.methods}
    used = [k for k, cell in enumerate(next(iter(each.values()))) if cell.total]
    if not used:
        return None
    values = values[used]
    series = [
        _points(name, k, values, [cells[place] for place in used]) for k, (name, cells) in enumerate(each.items())
    ]
    names = [f"{value}+" if value == most else str(value) for value in values]

    def finish(axes: Axes) -> None:
        axes.set_xticks(values, names)
        axes.minorticks_off()

    caption = f"Share of complete events with every object in the right slot, by the number of {objects}."
    name, title = f"efficiency_{objects}", f"Event efficiency and number of {objects}"
    labels, view = (objects, "event efficiency"), (first - 0.6, max(int(values.max()), first + 1) + 0.6)
    how: dict[str, Any] = {"shift": 0.08, "finish": finish, **LEGEND}
    return plot_series(name, title, caption, labels, series, x=view, y=FROM_ZERO, **how)


def _points(name: str, k: int, at: Any, cells: Sequence[Efficiency], width: Any = None) -> Series:
    value, low, high = np.array([cell[:3] for cell in cells]).T
    return Series(name, at, value, k, "none", low, high, width)


# -- several methods --------------------------------------------------------------------------------------


class Differences(Metric):
    """The differences of all pairs of methods."""

    name, title = "differences", "Differences on the same events"
    brief = True

    def comparison(self, evaluation: Evaluation) -> list[dict[str, Any]]:
        result = []
        for one, other in combinations(evaluation.methods, 2):
            efficiency = scores.differences(evaluation.scores(one), evaluation.scores(other))
            pair = {"first": one.name, "second": other.name, "efficiency": efficiency}
            steps = [evaluation.counted("flow", method) for method in (one, other)]
            if all(steps):  # for events in which both took a wrong first step
                pair["recovery"] = recovery_difference(*steps)
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
                notes.append(f"{note}: {listed(pair['recovery'])}")
            title = f"{titles[pair['first']]} minus {titles[pair['second']]}"
            yield Table(title, ["difference", *cell_names(evaluation)], rows, notes)


class Spread(Metric):
    """The spread of models that were trained with the same recipe and use the same decoding."""

    name, title = "spread", "Retrainings"
    brief = True

    def comparison(self, evaluation: Evaluation) -> list[dict[str, Any]]:
        return [
            {"methods": [m.name for m in same], "efficiency": spread(list(map(evaluation.efficiency, same)))}
            for same in _retrainings(evaluation.methods)
        ]

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for result in evaluation.result(self.name):
            rows = [[what, *cells.values()] for what, cells in result["efficiency"].items()]
            title = f"{len(result['methods'])} trainings: {', '.join(result['methods'])}"
            yield Table(title, ["spread", *cell_names(evaluation)], rows)


def spread(tables: Sequence[Mapping[str, Mapping[str, Efficiency]]]) -> dict[str, dict[str, MeanSpread]]:
    """Mean and standard deviation of the efficiencies of several retrainings."""
    return {
        what: {cell: MeanSpread.of([each[what][cell].value for each in tables]) for cell in cells}
        for what, cells in tables[0].items()
    }


def _retrainings(methods: Iterable[Method]) -> list[list[Method]]:
    groups: dict[str, list[Method]] = {}
    for method in methods:
        if method.model is not None:
            info = method.model.info
            recipe = {name: part for name, part in info.recipe.items() if name != "run"}
            same = [info.network, recipe, method.decoding, method.jet_scale]
            groups.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(method)
    return [same for same in groups.values() if len(same) > 1]
