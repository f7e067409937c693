"""Statistical uncertainties: exact binomial intervals, a bootstrap over events, and sums of weighted events.

Shapes: n events. Weights may be negative; weight 2 is the event twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, betaincinv, ndtri

__all__ = [
    "CONFIDENCE",
    "REPLICAS",
    "bootstrap",
    "clopper_pearson",
    "effective",
    "even",
    "mcnemar",
    "normal_interval",
    "quantile",
    "ratio_interval",
    "weighted_quantile",
    "weighted_ratio",
]

CONFIDENCE = 0.6827  # central intervals of one standard deviation
REPLICAS = 1000  # of a bootstrap: its quantiles are then known to a few per cent of the interval

Floats = npt.NDArray[np.float64]


def clopper_pearson(correct: float, total: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact central interval of a binomial share; numbers of weighted events need not be whole.

    >>> low, high = clopper_pearson(8, 10, confidence=0.95)
    >>> round(low, 4), round(high, 4)
    (0.4439, 0.9748)
    """
    tail = (1 - confidence) / 2
    correct = min(correct, total)  # to rounding
    low = float(betaincinv(correct, total - correct + 1, tail)) if correct > 0 else 0.0
    high = float(betaincinv(correct + 1, total - correct, 1 - tail)) if correct < total else 1.0
    return low, high


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided McNemar p-value, from the numbers of events that one method alone got right.

    >>> round(mcnemar(8, 2), 4), mcnemar(3, 3), mcnemar(0, 0)  # 2 (1 + 10 + 45) / 1024
    (0.1094, 1.0, 1.0)
    """
    return float(min(1.0, 2 * bdtr(min(only_first, only_second), only_first + only_second, 0.5)))


def bootstrap(rng: np.random.Generator, *counts: npt.NDArray[Any]) -> Floats:
    """(replicas, len(counts)): sums of per-event counts (n,) over events drawn with replacement.

    Events with equal counts are interchangeable, so drawing how many of each kind there are is the same thing.
    """
    lowest = [int(count.min()) for count in counts]
    shape = [int(count.max()) - low + 1 for count, low in zip(counts, lowest, strict=True)]
    above = [count.astype(np.int64) - low for count, low in zip(counts, lowest, strict=True)]
    number = np.bincount(np.ravel_multi_index(above, shape))
    (seen,) = np.nonzero(number)
    kinds = np.stack(np.unravel_index(seen, shape), axis=1) + lowest
    drawn = rng.multinomial(number.sum(), number[seen] / number.sum(), size=REPLICAS)
    return np.asarray(drawn @ kinds.astype(np.float64))


def ratio_interval(numerator: Floats, denominator: Floats, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Quantiles of a ratio of two sums, replica by replica."""
    kept = denominator > 0
    tail = (1 - confidence) / 2
    low, high = np.quantile(numerator[kept] / denominator[kept], [tail, 1 - tail])
    return float(low), float(high)


# -- weighted events ---------------------------------------------------------------------------------------


def even(weight: npt.NDArray[Any]) -> bool:
    """Whether all events have the same weight above 0, so that counting them is enough.

    >>> even(np.ones(3)), even(np.array([1.0, 2.0])), even(np.array([-1.0, -1.0]))
    (True, False, False)
    """
    return not len(weight) or bool(weight[0] > 0 and (weight == weight[0]).all())


def effective(weight: npt.NDArray[Any]) -> float:
    """How many events of equal weight have the same relative uncertainty as these: (sum of w)^2 / sum of w^2.

    >>> effective(np.array([1.0, 1.0, 2.0])), effective(np.array([1.0, 1.0, -1.0]))
    (2.6666666666666665, 0.3333333333333333)
    """
    squares = float((weight**2).sum())
    return float(weight.sum()) ** 2 / squares if squares else 0.0


def weighted_ratio(
    part: npt.NDArray[Any], whole: npt.NDArray[Any], weight: npt.NDArray[Any]
) -> tuple[float, float]:
    """The ratio of the weighted sums of two numbers (n,) of each event, and its standard deviation.

    With the ratio r the variance is the sum of w^2 (part - r whole)^2 over the square of the sum of w whole: that
    of independent events, whether the weights depend on what is counted or not. NaN where the sum of w whole is
    not above 0.

    >>> weighted_ratio(np.array([1, 0, 1, 0]), np.ones(4), np.ones(4))  # 0.5, and the root of 0.5 * 0.5 / 4
    (0.5, 0.25)
    """
    total = float(np.sum(weight * whole))
    if not total > 0:
        return np.nan, np.nan
    ratio = float(np.sum(weight * part)) / total
    return ratio, float(np.sqrt(np.sum((weight * (part - ratio * whole)) ** 2))) / total


def normal_interval(value: float, deviation: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The central interval of a normal distribution."""
    width = float(ndtri((1 + confidence) / 2)) * deviation
    return value - width, value + width


def quantile(values: Floats, shares: Sequence[float] | Floats, weight: Floats) -> Floats:
    """The values below which these shares of the weight lie; those of numpy if all weights are equal."""
    return np.asarray(np.quantile(values, shares)) if even(weight) else weighted_quantile(values, shares, weight)


def weighted_quantile(values: Floats, shares: Sequence[float] | Floats, weight: Floats) -> Floats:
    """The first values at which these shares of the weight are reached; NaN where the sum is not above 0.

    Negative weights take back what lies below them, but what was reached stays reached.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), [0.5, 0.9], np.array([1.0, 1.0, 2.0]))
    array([2., 3.])
    """
    total = float(weight.sum())
    if not total > 0:
        return np.full(len(shares), np.nan)
    order = np.argsort(values, kind="stable")
    reached = np.maximum.accumulate(np.cumsum(weight[order])) / total
    at = np.searchsorted(reached, np.asarray(shares) - 1e-12)
    return np.asarray(values[order][np.minimum(at, len(values) - 1)])
