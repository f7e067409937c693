"""How well a number separates two classes of events: areas under ROC curves, and the effect of a cut.

Shapes: n events. Without weights, every event counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.evaluation.intervals import effective

__all__ = ["Area", "Kept", "area", "kept_at"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Area(NamedTuple):
    """The area under a ROC curve: the probability that an event of the class has a larger number than another.

    Ties count half. NaN if a class has no events.
    """

    value: float
    error: float  # standard error, after DeLong
    inside: int  # events of the class
    outside: int


class Kept(NamedTuple):
    """The effect of cuts on a number, one entry per cut."""

    efficiency: list[float]  # share of the class that is kept
    cut: list[float]
    mistaken: list[float]  # share of the other events that is kept
    kept: list[float]  # share of all events that is kept
    purity: list[float]  # share of the class among the events that are kept


def area(number: npt.NDArray[Any], inside: Bools, weight: npt.NDArray[Any] | None = None) -> Area:
    """The area under the ROC curve of a number (n,) that should be large for events `inside` a class (n,).

    >>> result = area(np.array([0.9, 0.6, 0.6, 0.1]), np.array([True, True, False, False]))
    >>> result.value  # of four pairs three are in order, and one is a tie
    0.875
    """
    weight = np.ones(len(number)) if weight is None else np.asarray(weight, dtype=np.float64)
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
    events = effective(weight)
    if events <= 1:
        return 0.0
    away = values - np.average(values, weights=weight)
    return float(np.sqrt(np.sum(weight**2 * away**2) * events / (events - 1)) / abs(weight.sum()))


def kept_at(
    number: npt.NDArray[Any], inside: Bools, efficiencies: Sequence[float], weight: npt.NDArray[Any] | None = None
) -> Kept:
    """The highest cuts on a number (n,) that keep at least these shares of the events `inside` a class (n,).

    >>> number, inside = np.array([0.9, 0.8, 0.7, 0.2]), np.array([True, False, True, False])
    >>> kept_at(number, inside, [0.5, 1.0])._asdict()  # doctest: +NORMALIZE_WHITESPACE
    {'efficiency': [0.5, 1.0], 'cut': [0.9, 0.7], 'mistaken': [0.0, 0.5], 'kept': [0.25, 0.75],
     'purity': [1.0, 0.6666666666666666]}
    """
    weight = np.ones(len(number)) if weight is None else np.asarray(weight, dtype=np.float64)
    if not weight[inside].sum() > 0:
        return Kept([], [], [], [], [])
    cuts, group = np.unique(-np.asarray(number, dtype=np.float64), return_inverse=True)
    good = np.cumsum(np.bincount(group, weight * inside, len(cuts)))
    every = np.cumsum(np.bincount(group, weight, len(cuts)))
    share = good / good[-1]
    most = np.maximum.accumulate(share)  # the share itself may fall again if some weights are negative
    at = np.minimum(np.searchsorted(most, np.asarray(efficiencies) - 1e-12), len(cuts) - 1)
    bad = every - good
    return Kept(
        share[at].tolist(),
        (-cuts[at]).tolist(),
        (bad[at] / bad[-1] if bad[-1] > 0 else np.full(len(at), np.nan)).tolist(),
        (every[at] / every[-1]).tolist(),
        np.divide(good[at], every[at], out=np.full(len(at), np.nan), where=every[at] > 0).tolist(),
    )
