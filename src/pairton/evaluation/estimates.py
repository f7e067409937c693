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
    """A share with its interval; `value` is NaN where nothing was counted, or weights add up to nothing.

    With event weights the value is that of the weights; `correct` and `total` stay numbers.
    """

    value: float
    low: float
    high: float
    correct: int
    total: int
    effective: float = np.nan  # how many events of equal weight those counted are worth

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain data for JSON, which has no NaN."""
        plain: dict[str, float | int | None] = as_plain(self)
        return plain

    @staticmethod
    def binomial(correct: int, total: int, confidence: float = CONFIDENCE) -> Efficiency:
        """With a Clopper-Pearson interval."""
        interval = clopper_pearson(correct, total, confidence)
        return Efficiency(correct / total if total else np.nan, *interval, correct, total, float(total))

    @staticmethod
    def of_events(correct: Ints, total: Ints, weight: Floats, confidence: float = CONFIDENCE) -> Efficiency:
        """From what counts, 0 or 1 per event (n,), and the weights (n,): Clopper-Pearson."""
        if even(weight[total > 0]):
            return Efficiency.binomial(int(correct.sum()), int(total.sum()), confidence)
        return Efficiency.weighted(correct, total, weight, confidence)

    @staticmethod
    def of_particles(
        rng: np.random.Generator, correct: Ints, total: Ints, weight: Floats, confidence: float = CONFIDENCE
    ) -> Efficiency:
        """From counts per event (n,), with a bootstrap over events: particles of one event are not independent."""
        k, n, events = int(correct.sum()), int(total.sum()), int((total > 0).sum())
        if not n:
            return Efficiency.binomial(0, 0, confidence)
        if not even(weight[total > 0]):
            return Efficiency.weighted(correct, total, weight, confidence)
        sums = bootstrap(rng, correct, total)
        low, high = ratio_interval(sums[:, 0], sums[:, 1], confidence)
        if k in (0, n):  # all alike: drawing them again tells nothing, the number of events does
            low, high = clopper_pearson(events if k else 0, events, confidence)
        return Efficiency(k / n, low, high, k, n, float(events))

    @staticmethod
    def weighted(correct: Ints, total: Ints, weight: Floats, confidence: float = CONFIDENCE) -> Efficiency:
        """From counts per event (n,) of unequal weights (n,), with the interval of Korn and Graubard.

        That is Clopper-Pearson of as many entries as have, by the binomial formula, the standard deviation of the
        weighted share: at most those that were counted, and where all or none are right what the weights are
        worth. Where negative weights put the share outside 0 to 1 the interval is normal.

        >>> correct, ones = np.array([1, 0, 0]), np.ones(3, dtype=int)
        >>> share = Efficiency.weighted(correct, ones, np.array([2.0, 1.0, 1.0]))
        >>> share.value, round(share.low, 3), round(share.high, 3), share.correct, share.total
        (0.5, 0.124, 0.876, 1, 3)
        """
        k, n = int(correct.sum()), int(total.sum())
        worth = effective(weight[total > 0])
        value, deviation = weighted_ratio(correct, total, weight)
        if np.isnan(value):
            return Efficiency(np.nan, 0.0, 1.0, k, n, worth)
        if 0 < value < 1 and deviation > 0:
            entries = min(value * (1 - value) / deviation**2, float(n))
            low, high = clopper_pearson(value * entries, entries, confidence)
        elif k in (0, n):
            low, high = clopper_pearson(worth if k else 0, worth, confidence)
        else:
            low, high = normal_interval(value, deviation, confidence)
        return Efficiency(value, low, high, k, n, worth)


class Difference(NamedTuple):
    """First minus second on the same events; `only_first` and `only_second` count what one alone got right.

    `p_value` is McNemar's, for events; particles of one event are not independent, and have none (NaN). With
    weights it is that of a normal distribution.
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
        """From first minus second of each event (n,), and what counts (n,); with a p-value if `test`.

        The interval is a bootstrap over events; that of unequal weights is normal.
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
