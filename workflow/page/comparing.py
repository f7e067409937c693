"""Differences between trainings, and their significance.

The uncertainty of a difference includes the test sample and the random seed of the training:

    variance of a difference = that of the paired difference (over the test events)
                             + s_first^2 / n_first + s_second^2 / n_second

n is the number of seeds and s the standard deviation over seeds. Each row of a table has its own s, because
trainings that have hardly begun to learn vary much more. If one of the two rows has a single seed, both use s
pooled over the rows of their study that have several seeds, or, if there are none, over the rows of all studies.
With few seeds, s itself is uncertain: the ratio of difference and standard deviation then follows Student's t,
with the degrees of freedom of Welch and Satterthwaite. It is given as the normal deviate with the same tail
probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scipy.special import ndtri, stdtr

from page.reading import EVENT, INCLUSIVE, Evaluation, Results
from pairton.evaluation.statistics import MeanSpread

__all__ = [
    "RESOLVED",
    "Comparison",
    "Row",
    "Spread",
    "compare",
    "pooled_spread",
    "rows_of",
    "seed_spread",
    "verdict",
    "welch_satterthwaite",
]

RESOLVED = 2.0  # standard deviations
TINY = 1e-300  # least tail probability: 37 standard deviations

Json = Mapping[str, Any]


class Spread(NamedTuple):
    """Standard deviation over seeds, and its degrees of freedom."""

    spread: float
    freedom: int


@dataclass(frozen=True)
class Row:
    """A row of a table: the trainings of one recipe with several seeds."""

    name: str
    label: str
    methods: tuple[str, ...]
    evaluation: Evaluation

    def values(self, what: str, where: str = INCLUSIVE) -> list[float]:
        found = (self.evaluation.methods[m]["efficiency"][what][where]["value"] for m in self.methods)
        return [value for value in found if value is not None]

    def mean(self, what: str, where: str = INCLUSIVE) -> MeanSpread | None:
        values = self.values(what, where)
        return MeanSpread.of(values) if values else None

    def half_width(self, what: str, where: str = INCLUSIVE) -> float:
        """Half the interval from the number of test events, for the first seed."""
        found = self.evaluation.methods[self.methods[0]]["efficiency"][what][where]
        return float(found["high"] - found["low"]) / 2


def rows_of(results: Results, evaluation: Evaluation, names: Sequence[str]) -> list[Row]:
    """The rows with at least one seed. Missing seeds are logged."""
    found = []
    for name in names:
        planned = [each.name for each in results.plan.of_row(name)]
        evaluated = tuple(each for each in planned if each in evaluation.methods)
        if missing := [each for each in planned if each not in evaluated]:
            results.log(f"{evaluation.name}: without {', '.join(missing)}")
        if evaluated:
            found.append(Row(name, results.plan.of_row(name)[0].label, evaluated, evaluation))
    return found


def pooled_spread(means: Iterable[MeanSpread | None]) -> Spread | None:
    """The standard deviation pooled over all rows with several seeds; None if there are none.

    >>> pooled = pooled_spread([MeanSpread.of([0.6, 0.7, 0.8]), MeanSpread.of([0.6]), None])
    >>> round(pooled.spread, 9), pooled.freedom
    (0.1, 2)
    """
    found = [(each.deviation, each.models - 1) for each in means if each is not None and each.models > 1]
    freedom = sum(free for _, free in found)
    square = math.fsum(free * spread**2 for spread, free in found)
    return Spread(math.sqrt(square / freedom), freedom) if freedom else None


def seed_spread(results: Results, rows: Sequence[Row]) -> Spread | None:
    """The pooled standard deviation of a study, or of all studies if no row of it has several seeds."""
    everywhere: dict[str, Row] = {}
    for study in results.plan.studies.values():
        evaluation = results.evaluations.get(study.name)
        if evaluation is not None:
            everywhere |= {row.name: row for row in rows_of(results, evaluation, study.rows)}
    return pooled_spread(row.mean(EVENT) for row in rows) or pooled_spread(
        row.mean(EVENT) for row in everywhere.values()
    )


@dataclass(frozen=True)
class Comparison:
    """A difference, first minus second, and its standard deviation.

    Three standard deviations are less significant if the standard deviation comes from three seeds:

    >>> well_known, from_three_seeds = Comparison(0.03, 0.01), Comparison(0.03, 0.01, freedom=2)
    >>> well_known.significance, round(from_three_seeds.significance, 2)
    (3.0, 1.67)
    """

    difference: float
    deviation: float
    freedom: float = math.inf  # degrees of freedom of the deviation

    @property
    def significance(self) -> float:
        """The significance in standard deviations of a normal distribution."""
        if self.deviation == 0:
            return math.copysign(math.inf, self.difference) if self.difference else 0.0
        ratio = self.difference / self.deviation
        if math.isinf(self.freedom):
            return ratio
        tail = max(float(stdtr(self.freedom, -abs(ratio))), TINY)
        return math.copysign(-float(ndtri(tail)), ratio)


def compare(first: Row, second: Row, pooled: Spread | None) -> Comparison | None:
    """The difference in mean event efficiency over seeds; None if not evaluated on the same events."""
    one, other = first.mean(EVENT), second.mean(EVENT)
    paired = first.evaluation.difference(first.methods[0], second.methods[0])
    if one is None or other is None or paired is None or paired["value"] is None:
        return None
    statistical = (paired["high"] - paired["low"]) / 2
    terms = [(statistical**2, math.inf)]
    if min(one.models, other.models) > 1:
        terms += [(each.deviation**2 / each.models, each.models - 1) for each in (one, other)]
    elif pooled is not None:
        terms.append((pooled.spread**2 * (1 / one.models + 1 / other.models), pooled.freedom))
    variance, freedom = welch_satterthwaite(terms)
    return Comparison(one.mean - other.mean, math.sqrt(variance), freedom)


def welch_satterthwaite(terms: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The sum of independent variances, and its degrees of freedom, from (variance, degrees of freedom).

    >>> welch_satterthwaite([(1.0, 2), (1.0, 2)]), welch_satterthwaite([(3.0, 2), (0.0, 1)])
    ((2.0, 4.0), (3.0, 2.0))
    """
    total = math.fsum(variance for variance, _ in terms)
    uncertain = math.fsum(variance**2 / freedom for variance, freedom in terms)
    return total, total**2 / uncertain if uncertain else math.inf


def verdict(found: Comparison, expected: bool) -> str:
    """The comparison in one word. `expected`: the first was expected to be better.

    >>> small, large = Comparison(0.01, 0.02), Comparison(-0.05, 0.02)
    >>> verdict(small, expected=True), verdict(large, expected=True), verdict(large, expected=False)
    ('unresolved', 'refuted', 'worse')
    """
    if abs(found.significance) < RESOLVED:
        return "unresolved"
    if expected:
        return "reproduced" if found.difference > 0 else "refuted"
    return "better" if found.difference > 0 else "worse"
