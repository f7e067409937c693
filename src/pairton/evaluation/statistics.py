"""Statistics of weighted events: shares and differences with intervals, ROC areas and cuts, calibration.

Shapes: n events or entries. A weight is a number for all of them, or one for each; by default every event counts
once. Weights may be negative; an event of weight 2 counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, betaincinv, ndtr, ndtri

from pairton._common.configuration import as_plain

__all__ = [
    "CONFIDENCE",
    "Area",
    "Cuts",
    "Difference",
    "Efficiency",
    "MeanSpread",
    "all_equal",
    "area",
    "calibration",
    "clopper_pearson",
    "cuts_at_efficiency",
    "effective_entries",
    "normal_interval",
    "quantile",
    "weighted_quantile",
    "weighted_ratio",
]

CONFIDENCE = 0.6827  # central intervals of one standard deviation
N_BINS = 10  # of a probability

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def all_equal(weight: Array) -> bool:
    """Whether all events have the same positive weight, so that they can be counted.

    >>> all_equal(np.ones(3)), all_equal(np.array([1.0, 2.0])), all_equal(np.array([-1.0, -1.0]))
    (True, False, False)
    """
    return not len(weight) or bool(weight[0] > 0 and (weight == weight[0]).all())


def effective_entries(weight: Array) -> float:
    """The effective number of entries, (sum of w)^2 / sum of w^2.

    So many entries of equal weight have the same relative uncertainty.

    >>> effective_entries(np.array([1.0, 1.0, 2.0])), effective_entries(np.array([1.0, 1.0, -1.0]))
    (2.6666666666666665, 0.3333333333333333)
    """
    squares = float((weight**2).sum())
    return float(weight.sum()) ** 2 / squares if squares else 0.0


def weighted_ratio(part: Array, whole: Array, weight: Array | float = 1.0) -> tuple[float, float]:
    """The ratio of two weighted sums over events, of `part` (n,) and `whole` (n,), and its standard deviation.

    With the ratio r, the variance is the sum of w^2 (part - r whole)^2 over the square of the sum of w whole. It
    holds for independent events, even if weights and counts are correlated. NaN unless the sum of w whole is > 0.

    >>> weighted_ratio(np.array([1, 0, 1, 0]), np.ones(4))  # 0.5, and the root of 0.5 * 0.5 / 4
    (0.5, 0.25)
    """
    total = float(np.sum(weight * whole))
    if not total > 0:
        return np.nan, np.nan
    ratio = float(np.sum(weight * part)) / total
    return ratio, float(np.sqrt(np.sum((weight * (part - ratio * whole)) ** 2))) / total


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


def normal_interval(value: float, deviation: float) -> tuple[float, float]:
    """The central interval of a normal distribution."""
    width = float(ndtri((1 + CONFIDENCE) / 2)) * deviation
    return value - width, value + width


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided McNemar p-value, from the numbers of events that one method alone got right.

    >>> round(mcnemar(8, 2), 4), mcnemar(3, 3), mcnemar(0, 0)  # 2 (1 + 10 + 45) / 1024
    (0.1094, 1.0, 1.0)
    """
    return float(min(1.0, 2 * bdtr(min(only_first, only_second), only_first + only_second, 0.5)))


# -- numbers with intervals --------------------------------------------------------------------------------


class Efficiency(NamedTuple):
    """A share with its interval; `value` is NaN if nothing was counted, or if the weights do not add up above 0.

    `value` is weighted; `correct` and `total` are counts.
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
    def of(correct: Array, total: Array, weight: Array | float = 1.0) -> Efficiency:
        """From right and possible answers per event (n,), with the interval of Korn and Graubard.

        This is the Clopper-Pearson interval for the number of entries whose binomial standard deviation equals
        that of the weighted share, but at most the number that was counted. So with 0 or 1 per event and equal
        weights it is the Clopper-Pearson interval itself; several particles of an event need not be independent.
        If all or none are right, the number is the effective number of events. If negative weights put the share
        outside 0 to 1, the interval is normal.

        >>> correct, ones = np.array([1, 0, 0]), np.ones(3, dtype=int)
        >>> share = Efficiency.of(correct, ones, np.array([2.0, 1.0, 1.0]))
        >>> share.value, round(share.low, 3), round(share.high, 3), share.correct, share.total
        (0.5, 0.124, 0.876, 1, 3)
        """
        weight = np.broadcast_to(np.asarray(weight, np.float64), np.shape(total))
        k, n = int(correct.sum()), int(total.sum())
        number = effective_entries(weight[total > 0])
        value, deviation = weighted_ratio(correct, total, weight)
        if np.isnan(value):
            return Efficiency(np.nan, 0.0, 1.0, k, n, number)
        if 0 < value < 1 and deviation > 0:
            entries = min(value * (1 - value) / deviation**2, float(n))
            low, high = clopper_pearson(value * entries, entries)
        elif k in (0, n):
            low, high = clopper_pearson(number if k else 0, number)
        else:
            low, high = normal_interval(value, deviation)
        return Efficiency(value, low, high, k, n, number)


class Difference(NamedTuple):
    """First minus second method on the same events; `only_first` and `only_second` count what only one got right.

    `p_value` is McNemar's, or with unequal weights that of a normal distribution. It is NaN for particles, since
    those of one event are not independent.
    """

    value: float
    low: float
    high: float
    only_first: int
    only_second: int
    p_value: float = np.nan

    @staticmethod
    def of(change: Array, total: Array, weight: Array | float = 1.0, *, test: bool = False) -> Difference:
        """From the differences of right answers per event (n,), and the possible ones (n,); p-value if `test`.

        What is easy or hard for both methods cancels in the difference, so the interval is that of paired events.
        """
        weight = np.broadcast_to(np.asarray(weight, np.float64), np.shape(total))
        gained, lost = int(change[change > 0].sum()), int(-change[change < 0].sum())
        value, deviation = weighted_ratio(change, total, weight)
        p_value = np.nan
        if test and not np.isnan(value):
            if all_equal(weight[total > 0]):
                p_value = mcnemar(gained, lost)
            elif deviation > 0:
                p_value = float(2 * ndtr(-abs(value) / deviation))
        return Difference(value, *normal_interval(value, deviation), gained, lost, p_value)


class MeanSpread(NamedTuple):
    """Mean and standard deviation over retrainings; the latter is NaN for a single one."""

    mean: float
    deviation: float
    models: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.deviation:.4f}"

    @staticmethod
    def of(values: Sequence[float]) -> MeanSpread:
        """From one value per training.

        >>> print(MeanSpread.of([0.6, 0.7, 0.8]))
        0.7000 ± 0.1000
        """
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
        return MeanSpread(float(np.mean(values)), deviation, len(values))


# -- quantiles ---------------------------------------------------------------------------------------------


def quantile(values: Array, shares: Sequence[float] | Floats, weight: Array) -> Floats:
    """The quantiles of `values` at these shares: numpy's if all weights are equal, else `weighted_quantile`."""
    if all_equal(weight):
        return np.asarray(np.quantile(values, shares))
    return weighted_quantile(values, shares, weight)


def weighted_quantile(values: Array, shares: Sequence[float] | Floats, weight: Array) -> Floats:
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


# -- a number that separates two classes -------------------------------------------------------------------


class Area(NamedTuple):
    """The area under a ROC curve: the probability that an event of the class has a larger number than another.

    Ties count half. NaN if a class has no events.
    """

    value: float
    error: float  # standard error, after DeLong
    inside: int  # events of the class
    outside: int

    def __str__(self) -> str:
        return "" if np.isnan(self.value) else f"{self.value:.3f} ± {self.error:.3f}"


class Cuts(NamedTuple):
    """The effect of cuts on a number, one entry per cut."""

    efficiency: list[float]  # share of the class that is kept
    cut: list[float]
    background_efficiency: list[float]  # share of the other events that is kept
    kept: list[float]  # share of all events that is kept
    purity: list[float]  # share of the class among the events that are kept


def area(number: Array, inside: Bools, weight: Array | float = 1.0) -> Area:
    """The area under the ROC curve of a number (n,) that should be large for events `inside` a class (n,).

    >>> result = area(np.array([0.9, 0.6, 0.6, 0.1]), np.array([True, True, False, False]))
    >>> result.value  # of four pairs three are in order, and one is a tie
    0.875
    """
    weight = np.broadcast_to(np.asarray(weight, np.float64), np.shape(number))
    n_in, n_out = int(inside.sum()), int((~inside).sum())
    yes, no = weight[inside], weight[~inside]
    if not n_in or not n_out or not yes.sum() > 0 or not no.sum() > 0:
        return Area(np.nan, np.nan, n_in, n_out)
    _, group = np.unique(number, return_inverse=True)
    good, bad = np.bincount(group[inside], yes, group.max() + 1), np.bincount(group[~inside], no, group.max() + 1)
    below = np.cumsum(bad) - bad / 2
    value = float(np.sum(good * below) / (good.sum() * bad.sum()))
    passed = np.cumsum(good) - good / 2
    above, below = below[group[inside]] / bad.sum(), 1 - passed[group[~inside]] / good.sum()
    return Area(value, float(np.hypot(_error(above, yes), _error(below, no))), n_in, n_out)


def _error(values: Floats, weight: Floats) -> float:
    """The standard error of a weighted mean; 0 for a single event."""
    events = effective_entries(weight)
    if events <= 1:
        return 0.0
    away = values - np.average(values, weights=weight)
    return float(np.sqrt(np.sum(weight**2 * away**2) * events / (events - 1)) / abs(weight.sum()))


def cuts_at_efficiency(
    number: Array, inside: Bools, efficiencies: Sequence[float] | Floats, weight: Array | float = 1.0
) -> Cuts:
    """The highest cuts on a number (n,) that keep at least these shares of the events `inside` a class (n,).

    >>> number, inside = np.array([0.9, 0.8, 0.7, 0.2]), np.array([True, False, True, False])
    >>> cuts_at_efficiency(number, inside, [0.5, 1.0])  # doctest: +NORMALIZE_WHITESPACE
    Cuts(efficiency=[0.5, 1.0], cut=[0.9, 0.7], background_efficiency=[0.0, 0.5], kept=[0.25, 0.75],
         purity=[1.0, 0.6666666666666666])
    """
    weight = np.broadcast_to(np.asarray(weight, np.float64), np.shape(number))
    if not weight[inside].sum() > 0:
        return Cuts([], [], [], [], [])
    cuts, group = np.unique(-np.asarray(number, dtype=np.float64), return_inverse=True)
    good = np.cumsum(np.bincount(group, weight * inside, len(cuts)))
    every = np.cumsum(np.bincount(group, weight, len(cuts)))
    share = good / good[-1]
    most = np.maximum.accumulate(share)  # the share itself may fall again if some weights are negative
    at = np.minimum(np.searchsorted(most, np.asarray(efficiencies) - 1e-12), len(cuts) - 1)
    bad = every - good
    return Cuts(
        share[at].tolist(),
        (-cuts[at]).tolist(),
        (bad[at] / bad[-1] if bad[-1] > 0 else np.full(len(at), np.nan)).tolist(),
        (every[at] / every[-1]).tolist(),
        np.divide(good[at], every[at], out=np.full(len(at), np.nan), where=every[at] > 0).tolist(),
    )


# -- calibration -------------------------------------------------------------------------------------------


def calibration(
    probability: Array,
    right: Bools,
    *,
    complete: Bools | None = None,
    weight: Array | float = 1.0,
) -> dict[str, Any]:
    """Probabilities against the share that is right, in equal bins of the probability.

    The result has, for all entries and for each bin, the mean `probability`, the share that is `right`, their
    `difference` and its standard `deviation`. `error` is the mean absolute difference over bins, weighted with
    their entries. If `complete` is given, each bin also has the number of entries from complete events. All but
    counts are weighted; bins whose weights do not add up to more than 0 are left out.
    """
    known = np.isfinite(probability)
    weight = np.broadcast_to(np.asarray(weight, np.float64), known.shape)[known]
    probability, right = np.asarray(probability, dtype=np.float64)[known], np.asarray(right)[known]
    edges = np.linspace(0, 1, N_BINS + 1)
    where = np.clip(np.digitize(probability, edges) - 1, 0, N_BINS - 1)
    rows: list[dict[str, float | int]] = []
    error, total = 0.0, float(weight.sum())
    for k in range(N_BINS):
        inside = where == k
        means = _difference(probability[inside], right[inside], weight[inside])
        if not means:
            continue
        error += abs(means["difference"]) * float(weight[inside].sum())
        del means["right"]  # the same as `value` of the share
        share = Efficiency.of(right[inside], np.ones(int(inside.sum())), weight[inside])
        rows.append(
            {"from": float(edges[k]), "to": float(edges[k + 1]), **means}
            | share._asdict()
            | ({} if complete is None else {"complete": int(complete[known][inside].sum())})
        )
    means = _difference(probability, right, weight)
    means = means or dict.fromkeys(("probability", "right", "difference", "deviation"))
    return {**means, "error": error / total if total > 0 else None, "total": len(probability), "bins": rows}


def _difference(probability: Floats, right: Bools, weight: Floats) -> dict[str, Any]:
    """Weighted means of the probability and of the right answers, their difference and its standard deviation."""
    ones = np.ones(len(probability))
    if not weight.sum() > 0:
        return {}
    mean, share = (weighted_ratio(values, ones, weight)[0] for values in (probability, right))
    difference, deviation = weighted_ratio(probability - right, ones, weight)
    return {"probability": mean, "right": share, "difference": difference, "deviation": deviation}
