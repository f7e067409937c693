"""Statistical uncertainties: exact binomial intervals, a bootstrap over events, and sums of weighted events.

Shapes: n events. Weights may be negative; an event of weight 2 counts twice.
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
REPLICAS = 1000  # of a bootstrap, which gives intervals to a few per cent

Floats = npt.NDArray[np.float64]


def clopper_pearson(correct: float, total: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact central interval of a binomial share; the numbers need not be integers.

    >>> low, high = clopper_pearson(8, 10, confidence=0.95)
    >>> round(low, 4), round(high, 4)
    (0.4439, 0.9748)
    """
    tail = (1 - confidence) / 2
    correct = min(correct, total)  # it may be larger by rounding
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

    Events with equal counts are interchangeable, so it is enough to draw how many of each there are.
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
    """The central interval of the ratio of two sums over replicas."""
    kept = denominator > 0
    tail = (1 - confidence) / 2
    low, high = np.quantile(numerator[kept] / denominator[kept], [tail, 1 - tail])
    return float(low), float(high)


# -- weighted events ---------------------------------------------------------------------------------------


def even(weight: npt.NDArray[Any]) -> bool:
    """Whether all events have the same positive weight, so that they can be counted.

    >>> even(np.ones(3)), even(np.array([1.0, 2.0])), even(np.array([-1.0, -1.0]))
    (True, False, False)
    """
    return not len(weight) or bool(weight[0] > 0 and (weight == weight[0]).all())


def effective(weight: npt.NDArray[Any]) -> float:
    """The effective number of events, (sum of w)^2 / sum of w^2.

    So many events of equal weight have the same relative uncertainty.

    >>> effective(np.array([1.0, 1.0, 2.0])), effective(np.array([1.0, 1.0, -1.0]))
    (2.6666666666666665, 0.3333333333333333)
    """
    squares = float((weight**2).sum())
    return float(weight.sum()) ** 2 / squares if squares else 0.0


def weighted_ratio(
    part: npt.NDArray[Any], whole: npt.NDArray[Any], weight: npt.NDArray[Any]
) -> tuple[float, float]:
    """The ratio of two weighted sums over events, of `part` (n,) and `whole` (n,), and its standard deviation.

    With the ratio r, the variance is the sum of w^2 (part - r whole)^2 over the square of the sum of w whole. It
    holds for independent events, even if weights and counts are correlated. NaN unless the sum of w whole is > 0.

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


def quantile(values: npt.NDArray[Any], shares: Sequence[float] | Floats, weight: npt.NDArray[Any]) -> Floats:
    """The quantiles of `values` at these shares: numpy's if all weights are equal, else `weighted_quantile`."""
    return np.asarray(np.quantile(values, shares)) if even(weight) else weighted_quantile(values, shares, weight)


def weighted_quantile(
    values: npt.NDArray[Any], shares: Sequence[float] | Floats, weight: npt.NDArray[Any]
) -> Floats:
    """The first values at which these shares of the total weight are reached; NaN if the total is not above 0.

    With negative weights, the running sum of weights is replaced by its running maximum.

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
