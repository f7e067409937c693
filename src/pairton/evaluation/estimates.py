"""Numbers with their uncertainties: efficiencies, paired differences, spreads over retrainings.

Shapes: n events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from pairton._common.plain import as_plain
from pairton.evaluation.intervals import (
    CONFIDENCE,
    bootstrap,
    clopper_pearson,
    effective,
    even,
    mcnemar,
    normal_interval,
    ratio_interval,
    weighted_ratio,
)

__all__ = ["Difference", "Efficiency", "Spread"]

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]


class Efficiency(NamedTuple):
    """A share with its interval; `value` is NaN if nothing was counted, or if the weights do not add up above 0.

    With event weights, `value` is the weighted share; `correct` and `total` are still unweighted counts.
    """

    value: float
    low: float
    high: float
    correct: int
    total: int
    effective: float = np.nan  # effective number of the events that were counted

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain data for JSON; NaN becomes None."""
        plain: dict[str, float | int | None] = as_plain(self)
        return plain

    @staticmethod
    def binomial(correct: int, total: int, confidence: float = CONFIDENCE) -> Efficiency:
        """A share of counts, with a Clopper-Pearson interval."""
        interval = clopper_pearson(correct, total, confidence)
        return Efficiency(correct / total if total else np.nan, *interval, correct, total, float(total))

    @staticmethod
    def of_events(correct: Ints, total: Ints, weight: Floats, confidence: float = CONFIDENCE) -> Efficiency:
        """From counts of 0 or 1 per event (n,) and weights (n,), with a Clopper-Pearson interval."""
        if even(weight[total > 0]):
            return Efficiency.binomial(int(correct.sum()), int(total.sum()), confidence)
        return Efficiency.weighted(correct, total, weight, confidence)

    @staticmethod
    def of_particles(
        rng: np.random.Generator, correct: Ints, total: Ints, weight: Floats, confidence: float = CONFIDENCE
    ) -> Efficiency:
        """From counts per event (n,), with a bootstrap over events, whose particles are not independent."""
        k, n, events = int(correct.sum()), int(total.sum()), int((total > 0).sum())
        if not n:
            return Efficiency.binomial(0, 0, confidence)
        if not even(weight[total > 0]):
            return Efficiency.weighted(correct, total, weight, confidence)
        sums = bootstrap(rng, correct, total)
        low, high = ratio_interval(sums[:, 0], sums[:, 1], confidence)
        if k in (0, n):  # no spread to bootstrap: use the number of events
            low, high = clopper_pearson(events if k else 0, events, confidence)
        return Efficiency(k / n, low, high, k, n, float(events))

    @staticmethod
    def weighted(correct: Ints, total: Ints, weight: Floats, confidence: float = CONFIDENCE) -> Efficiency:
        """From counts per event (n,) of unequal weights (n,), with the interval of Korn and Graubard.

        This is the Clopper-Pearson interval for the number of entries whose binomial standard deviation equals
        that of the weighted share, but at most the number that was counted. If all or none are right, it is the
        effective number of events. If negative weights put the share outside 0 to 1, the interval is normal.

        >>> correct, ones = np.array([1, 0, 0]), np.ones(3, dtype=int)
        >>> share = Efficiency.weighted(correct, ones, np.array([2.0, 1.0, 1.0]))
        >>> share.value, round(share.low, 3), round(share.high, 3), share.correct, share.total
        (0.5, 0.124, 0.876, 1, 3)
        """
        k, n = int(correct.sum()), int(total.sum())
        number = effective(weight[total > 0])
        value, deviation = weighted_ratio(correct, total, weight)
        if np.isnan(value):
            return Efficiency(np.nan, 0.0, 1.0, k, n, number)
        if 0 < value < 1 and deviation > 0:
            entries = min(value * (1 - value) / deviation**2, float(n))
            low, high = clopper_pearson(value * entries, entries, confidence)
        elif k in (0, n):
            low, high = clopper_pearson(number if k else 0, number, confidence)
        else:
            low, high = normal_interval(value, deviation, confidence)
        return Efficiency(value, low, high, k, n, number)


class Difference(NamedTuple):
    """First minus second method on the same events; `only_first` and `only_second` count what only one got right.

    `p_value` is McNemar's, or with weights that of a normal distribution. It is NaN for particles, since those of
    one event are not independent.
    """

    value: float
    low: float
    high: float
    only_first: int
    only_second: int
    p_value: float = np.nan

    @staticmethod
    def of_counts(
        rng: np.random.Generator,
        change: Ints,
        total: Ints,
        weight: Floats,
        confidence: float = CONFIDENCE,
        *,
        test: bool = False,
    ) -> Difference:
        """From the difference of right answers per event (n,), and the possible ones (n,); p-value if `test`.

        The interval is from a bootstrap over events, or normal for unequal weights.
        """
        gained, lost = int(change[change > 0].sum()), int(-change[change < 0].sum())
        if not total.sum():
            return Difference(np.nan, np.nan, np.nan, gained, lost)
        if even(weight[total > 0]):
            sums = bootstrap(rng, change, total)
            interval = ratio_interval(sums[:, 0], sums[:, 1], confidence)
            p_value = mcnemar(gained, lost) if test else np.nan
            return Difference(float(change.sum() / total.sum()), *interval, gained, lost, p_value)
        value, deviation = weighted_ratio(change, total, weight)
        p_value = float(2 * ndtr(-abs(value) / deviation)) if test and deviation > 0 else np.nan
        return Difference(value, *normal_interval(value, deviation, confidence), gained, lost, p_value)


class Spread(NamedTuple):
    """Mean and standard deviation over retrainings."""

    mean: float
    deviation: float
    models: int
