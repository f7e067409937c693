"""Statistical uncertainties: exact binomial intervals, and a bootstrap over events."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, betaincinv

__all__ = ["CONFIDENCE", "REPLICAS", "bootstrap", "clopper_pearson", "mcnemar", "ratio_interval"]

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
