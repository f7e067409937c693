"""Differences between trainings, and whether the statistics resolve them.

Two trainings differ by what they learned, by chance in the test events, and by chance in the training:

    variance of a difference = that of the paired difference (bootstrap over the test events)
                             + s^2 (1 / n_first + 1 / n_second)

s is the spread over seeds, pooled over the rows of a study that were trained more than once; n counts seeds. One
without such rows takes that of all studies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from page.reading import Evaluation, Results

__all__ = [
    "RESOLVED",
    "Comparison",
    "Row",
    "compare",
    "mean_spread",
    "pooled_spread",
    "rows_of",
    "seed_spread",
    "verdict",
]

RESOLVED = 2.0  # standard deviations

Json = Mapping[str, Any]


class MeanSpread(NamedTuple):
    """Mean and standard deviation over seeds; the latter None for a single one."""

    mean: float
    spread: float | None
    seeds: int


def mean_spread(values: Sequence[float]) -> MeanSpread:
    """
    >>> mean_spread([0.6, 0.7, 0.8])
    MeanSpread(mean=0.7, spread=0.1, seeds=3)
    >>> mean_spread([0.6])
    MeanSpread(mean=0.6, spread=None, seeds=1)
    """
    n = len(values)
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else None
    return MeanSpread(round(mean, 12), None if spread is None else round(spread, 12), n)


@dataclass(frozen=True)
class Row:
    """A row of a table: one training and its seeds, as evaluated together."""

    name: str
    label: str
    methods: tuple[str, ...]
    evaluation: Evaluation

    def values(self, what: str, cell: str = "inclusive") -> list[float]:
        found = (self.evaluation.methods[m]["efficiency"][what][cell]["value"] for m in self.methods)
        return [value for value in found if value is not None]

    def mean(self, what: str, cell: str = "inclusive") -> MeanSpread | None:
        values = self.values(what, cell)
        return mean_spread(values) if values else None

    def half_width(self, what: str, cell: str = "inclusive") -> float:
        """Of the interval from the number of test events; that of the first seed."""
        found = self.evaluation.methods[self.methods[0]]["efficiency"][what][cell]
        return float(found["high"] - found["low"]) / 2


def rows_of(results: Results, evaluation: Evaluation, names: Sequence[str]) -> list[Row]:
    """The rows of which there is at least one seed; what is missing is logged."""
    found = []
    for name in names:
        planned = [each.name for each in results.plan.of_row(name)]
        there = tuple(each for each in planned if each in evaluation.methods)
        if missing := [each for each in planned if each not in there]:
            results.log(f"{evaluation.name}: without {', '.join(missing)}")
        if there:
            found.append(Row(name, results.plan.of_row(name)[0].label, there, evaluation))
    return found


def pooled_spread(rows: Sequence[Row], what: str) -> tuple[float, int] | None:
    """Spread over seeds, from all rows with several, and its degrees of freedom."""
    found = [mean for row in rows if (mean := row.mean(what)) is not None and mean.spread is not None]
    freedom = sum(each.seeds - 1 for each in found)
    square = math.fsum((each.seeds - 1) * (each.spread or 0) ** 2 for each in found)
    return (math.sqrt(square / freedom), freedom) if freedom else None


def seed_spread(results: Results, rows: Sequence[Row], what: str) -> tuple[float, int] | None:
    """That of a study; where nothing in it was trained twice, that of all studies."""
    everywhere: dict[str, Row] = {}
    for study in results.plan.studies.values():
        evaluation = results.evaluations.get(study.name)
        if evaluation is not None:
            everywhere |= {row.name: row for row in rows_of(results, evaluation, study.rows)}
    return pooled_spread(rows, what) or pooled_spread(list(everywhere.values()), what)


@dataclass(frozen=True)
class Comparison:
    """First minus second."""

    difference: float
    deviation: float
    with_seeds: bool  # the deviation knows of the spread over seeds

    @property
    def significance(self) -> float:
        if self.deviation > 0:
            return self.difference / self.deviation
        return math.copysign(math.inf, self.difference) if self.difference else 0.0

    @property
    def resolved(self) -> bool:
        return abs(self.significance) >= RESOLVED


def compare(first: Row, second: Row, what: str, seed_spread: float | None) -> Comparison | None:
    """Difference of the means over seeds; None where the two were not evaluated on the same events."""
    one, other = first.mean(what), second.mean(what)
    paired = first.evaluation.difference(first.methods[0], second.methods[0])
    if one is None or other is None or paired is None or paired[what]["inclusive"]["value"] is None:
        return None
    statistical = (paired[what]["inclusive"]["high"] - paired[what]["inclusive"]["low"]) / 2
    variance = statistical**2
    if seed_spread is not None:
        variance += seed_spread**2 * (1 / one.seeds + 1 / other.seeds)
    return Comparison(one.mean - other.mean, math.sqrt(variance), seed_spread is not None)


def verdict(found: Comparison, expected: bool) -> str:
    """In a word; with an expectation, that the first is the better one, whether it is met.

    >>> small, large = Comparison(0.01, 0.02, True), Comparison(-0.05, 0.02, True)
    >>> verdict(small, expected=True), verdict(large, expected=True), verdict(large, expected=False)
    ('unresolved', 'refuted', 'worse')
    """
    if not found.resolved:
        return "unresolved"
    if expected:
        return "reproduced" if found.difference > 0 else "refuted"
    return "better" if found.difference > 0 else "worse"
