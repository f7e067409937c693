"""Differences between trainings, and whether the statistics resolve them.

Two trainings differ by what they learned, by chance in the test events, and by chance in the training:

    variance of a difference = that of the paired difference (bootstrap over the test events)
                             + s_first^2 / n_first + s_second^2 / n_second

n counts seeds. s is a row's own spread over them, since rows that have hardly begun to learn spread far more than
those that have. Where one of the two has a single seed, s of both is the spread pooled over the rows of their
study with several, or in a study without such rows that of all studies. A spread over few seeds is itself
uncertain: difference over deviation is Student's t, with the degrees of freedom of Welch and Satterthwaite, and is
given as the normal deviate with the same tail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scipy.special import ndtri, stdtr

from page.reading import Evaluation, Results

__all__ = [
    "RESOLVED",
    "SEEDS",
    "Comparison",
    "Row",
    "Spread",
    "compare",
    "compare_means",
    "mean_spread",
    "pooled_spread",
    "rows_of",
    "seed_spread",
    "verdict",
    "welch_satterthwaite",
]

RESOLVED = 2.0  # standard deviations
TINY = 1e-300  # smaller tails are not told apart: 37 standard deviations
SEEDS = (  # the words for it
    "from the spread over seeds: their own where both rows have several, else {:.4f} for one training, pooled "
    "over rows with several ({} degrees of freedom). σ are those of a normal distribution with the tail of "
    "Student's t, which knows how few seeds there are."
)

Json = Mapping[str, Any]


class MeanSpread(NamedTuple):
    """Mean and standard deviation over seeds; the latter None for a single one."""

    mean: float
    spread: float | None
    seeds: int


class Spread(NamedTuple):
    """Standard deviation over seeds of one training, and the degrees of freedom it is known with."""

    spread: float
    freedom: int


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


def pooled_spread(means: Iterable[MeanSpread | None]) -> Spread | None:
    """From all rows with several seeds.

    >>> pooled_spread([mean_spread([0.6, 0.7, 0.8]), mean_spread([0.6]), None])
    Spread(spread=0.1, freedom=2)
    """
    found = [(each.spread, each.seeds - 1) for each in means if each is not None and each.spread is not None]
    freedom = sum(free for _, free in found)
    square = math.fsum(free * spread**2 for spread, free in found)
    return Spread(math.sqrt(square / freedom), freedom) if freedom else None


def seed_spread(results: Results, rows: Sequence[Row], what: str) -> Spread | None:
    """That of a study; where nothing in it was trained twice, that of all studies."""
    everywhere: dict[str, Row] = {}
    for study in results.plan.studies.values():
        evaluation = results.evaluations.get(study.name)
        if evaluation is not None:
            everywhere |= {row.name: row for row in rows_of(results, evaluation, study.rows)}
    return pooled_spread(row.mean(what) for row in rows) or pooled_spread(
        row.mean(what) for row in everywhere.values()
    )


@dataclass(frozen=True)
class Comparison:
    """First minus second.

    Three standard deviations, if they are known well, and if they come from three seeds:

    >>> surely, perhaps = Comparison(0.03, 0.01), Comparison(0.03, 0.01, freedom=2)
    >>> surely.significance, round(perhaps.significance, 2)
    (3.0, 1.67)
    """

    difference: float
    deviation: float
    freedom: float = math.inf  # degrees of freedom of the deviation

    @property
    def significance(self) -> float:
        """In standard deviations of a normal distribution."""
        if self.deviation == 0:
            return math.copysign(math.inf, self.difference) if self.difference else 0.0
        ratio = self.difference / self.deviation
        if math.isinf(self.freedom):
            return ratio
        tail = max(float(stdtr(self.freedom, -abs(ratio))), TINY)
        return math.copysign(-float(ndtri(tail)), ratio)

    @property
    def resolved(self) -> bool:
        return abs(self.significance) >= RESOLVED


def compare(first: Row, second: Row, what: str, pooled: Spread | None) -> Comparison | None:
    """Difference of the means over seeds; None where the two were not evaluated on the same events."""
    one, other = first.mean(what), second.mean(what)
    paired = first.evaluation.difference(first.methods[0], second.methods[0])
    if one is None or other is None or paired is None or paired[what]["inclusive"]["value"] is None:
        return None
    statistical = (paired[what]["inclusive"]["high"] - paired[what]["inclusive"]["low"]) / 2
    return compare_means(one, other, pooled, statistical)


def compare_means(one: MeanSpread, other: MeanSpread, pooled: Spread | None, statistical: float) -> Comparison:
    """With the deviation from the events; `pooled` is for where one of the two has a single seed."""
    terms = [(statistical**2, math.inf)]
    if one.spread is not None and other.spread is not None:
        terms += [(one.spread**2 / one.seeds, one.seeds - 1), (other.spread**2 / other.seeds, other.seeds - 1)]
    elif pooled is not None:
        terms.append((pooled.spread**2 * (1 / one.seeds + 1 / other.seeds), pooled.freedom))
    variance, freedom = welch_satterthwaite(terms)
    return Comparison(one.mean - other.mean, math.sqrt(variance), freedom)


def welch_satterthwaite(terms: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of independent variances and their degrees of freedom: the sum, and its degrees of freedom.

    >>> welch_satterthwaite([(1.0, 2), (1.0, 2)]), welch_satterthwaite([(3.0, 2), (0.0, 1)])
    ((2.0, 4.0), (3.0, 2.0))
    """
    total = math.fsum(variance for variance, _ in terms)
    uncertain = math.fsum(variance**2 / freedom for variance, freedom in terms)
    return total, total**2 / uncertain if uncertain else math.inf


def verdict(found: Comparison, expected: bool) -> str:
    """In a word; with an expectation, that the first is the better one, whether it is met.

    >>> small, large = Comparison(0.01, 0.02), Comparison(-0.05, 0.02)
    >>> verdict(small, expected=True), verdict(large, expected=True), verdict(large, expected=False)
    ('unresolved', 'refuted', 'worse')
    """
    if not found.resolved:
        return "unresolved"
    if expected:
        return "reproduced" if found.difference > 0 else "refuted"
    return "better" if found.difference > 0 else "worse"
