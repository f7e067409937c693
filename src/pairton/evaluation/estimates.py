"""Numbers with their uncertainties: efficiencies, paired differences, spreads over retrainings.

Shapes: n events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton._common.plain import as_plain
from pairton.evaluation.intervals import CONFIDENCE, bootstrap, clopper_pearson, ratio_interval

__all__ = ["Difference", "Efficiency", "Spread"]

Ints = npt.NDArray[np.integer[Any]]


class Efficiency(NamedTuple):
    """A share with its interval; `value` is NaN where nothing was counted."""

    value: float
    low: float
    high: float
    correct: int
    total: int

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain data for JSON, which has no NaN."""
        plain: dict[str, float | int | None] = as_plain(self)
        return plain

    @staticmethod
    def binomial(correct: int, total: int, confidence: float = CONFIDENCE) -> Efficiency:
        """With a Clopper-Pearson interval."""
        interval = clopper_pearson(correct, total, confidence)
        return Efficiency(correct / total if total else np.nan, *interval, correct, total)

    @staticmethod
    def of_particles(
        rng: np.random.Generator, correct: Ints, total: Ints, confidence: float = CONFIDENCE
    ) -> Efficiency:
        """From counts per event (n,), with a bootstrap over events: particles of one event are not independent."""
        k, n = int(correct.sum()), int(total.sum())
        if not n:
            return Efficiency.binomial(0, 0, confidence)
        sums = bootstrap(rng, correct, total)
        low, high = ratio_interval(sums[:, 0], sums[:, 1], confidence)
        if k in (0, n):  # all alike: drawing them again tells nothing, the number of events does
            events = int((total > 0).sum())
            low, high = clopper_pearson(events if k else 0, events, confidence)
        return Efficiency(k / n, low, high, k, n)


class Difference(NamedTuple):
    """First minus second on the same events; `only_first` and `only_second` count what one alone got right.

    `p_value` is McNemar's, for events; particles of one event are not independent, and have none (NaN).
    """

    value: float
    low: float
    high: float
    only_first: int
    only_second: int
    p_value: float = np.nan


class Spread(NamedTuple):
    """Mean and standard deviation over retrainings."""

    mean: float
    deviation: float
    models: int
