"""Comparisons of methods on the same events: paired differences, and the spread of retrainings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from pairton.evaluation import scores
from pairton.evaluation.metrics.efficiency import cell_names
from pairton.evaluation.metrics.flow import listed, recovery_difference
from pairton.evaluation.registry import Metric
from pairton.evaluation.scores import EVENT, INCLUSIVE
from pairton.evaluation.statistics import Efficiency, MeanSpread
from pairton.evaluation.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["Differences", "Spread", "spread"]


class Differences(Metric):
    """The differences of all pairs of methods."""

    name, title = "differences", "Differences on the same events"

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
