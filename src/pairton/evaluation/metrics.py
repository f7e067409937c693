"""Measures of right and wrong answers: efficiencies with intervals, paired differences, flow and calibration.

`pairton.evaluation.scoring` defines what is right; `pairton.evaluation.estimates` has numbers with intervals.

Shapes: n events, S slots, K steps. Assignments are (n, S), -1 for an empty slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation.estimates import Difference, Efficiency, Spread
from pairton.evaluation.intervals import CONFIDENCE, REPLICAS, bootstrap, clopper_pearson, even, ratio_interval
from pairton.evaluation.scoring import EVENT, INCLUSIVE, Scores, matches, same_hypothesis, score
from pairton.topology import Topology
from pairton.topology.extras import bin_names

__all__ = [
    "COMPLETE",
    "CONFIDENCE",
    "EVENT",
    "IF_COMPLETE",
    "INCLUSIVE",
    "Difference",
    "Efficiency",
    "Scores",
    "Spread",
    "calibration",
    "clopper_pearson",
    "differences",
    "efficiencies",
    "efficiency_against",
    "flow",
    "matches",
    "reweighted",
    "same_hypothesis",
    "score",
    "spread",
    "table",
]

COMPLETE = "complete"  # probability that every particle is present, from a model that knows patterns
IF_COMPLETE = "if_complete"  # probability of the answer, given that the event is complete

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


# -- efficiencies ------------------------------------------------------------------------------------------


def efficiencies(
    topology: Topology,
    truth: Ints,
    predicted: Ints,
    n_jets: Ints,
    *,
    weight: npt.ArrayLike | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> dict[str, dict[str, Efficiency]]:
    """`event` and each type -> multiplicity bin or `inclusive` -> efficiency, with event weights (n,).

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, -1]])
    >>> predicted = np.array([[3, 4, 5, 1, 0, 2], [0, 1, 5, 3, 6, 2]])
    >>> result = efficiencies(load_topology("ttbar_allhad"), truth, predicted, np.array([6, 7]))
    >>> {what: f"{cells['inclusive'].correct} of {cells['inclusive'].total}" for what, cells in result.items()}
    {'event': '1 of 1', 't': '2 of 3', 'W': '3 of 4'}
    """
    return table(score(topology, truth, predicted, n_jets, weight), confidence=confidence, seed=seed)


def table(scores: Scores, *, confidence: float = CONFIDENCE, seed: int = 0) -> dict[str, dict[str, Efficiency]]:
    """Efficiencies, with Clopper-Pearson intervals for events and bootstrap intervals for particles.

    For events of unequal weights, the intervals are those of `Efficiency.weighted`.
    """
    rng = np.random.default_rng(seed)
    result: dict[str, dict[str, Efficiency]] = {}
    for what, correct in scores.correct.items():
        result[what] = {}
        for cell, inside in scores.cells.items():
            counts = correct[inside], scores.total[what][inside], scores.weight[inside]
            if what == EVENT:
                result[what][cell] = Efficiency.of_events(*counts, confidence)
            else:
                result[what][cell] = Efficiency.of_particles(rng, *counts, confidence)
    return result


def reweighted(
    scores: Scores, mix: Sequence[float], *, confidence: float = CONFIDENCE, seed: int = 0
) -> dict[str, Efficiency]:
    """Inclusive efficiencies if the shares of complete events in the multiplicity bins were `mix`.

    Samples differ in their numbers of jets, and so in their inclusive efficiencies. `correct` and `total` are
    those of the sample itself. NaN if a bin with a share above 0 has no complete event.
    """
    rng = np.random.default_rng(seed)
    bins = scores.bins
    inside = [bins == k for k in range(len(bin_names(scores.topology)))]
    of_events = scores.weight * scores.total[EVENT]
    complete = np.array([of_events[events].sum() for events in inside], dtype=np.float64)
    shares = np.asarray(mix, dtype=np.float64) / np.sum(mix)
    possible = bool(np.all((complete > 0) | (shares == 0)))
    factors = np.divide(shares, complete, out=np.zeros_like(complete), where=complete > 0)
    weight = np.where(bins >= 0, scores.weight * factors[bins], 0)
    result = {}
    for what, correct in scores.correct.items():
        total = scores.total[what]
        share = Efficiency.weighted(correct[bins >= 0], total[bins >= 0], weight[bins >= 0], confidence)
        low, high = share.low, share.high
        if not possible:
            share, low, high = share._replace(value=np.nan), np.nan, np.nan
        elif even(scores.weight):
            sums = np.zeros((REPLICAS, 2))
            for factor, events in zip(factors, inside, strict=True):
                if factor > 0:
                    sums += factor * scores.weight[0] * bootstrap(rng, correct[events], total[events])
            low, high = ratio_interval(sums[:, 0], sums[:, 1], confidence)
        result[what] = share._replace(low=low, high=high)
    return result


def efficiency_against(
    scores: Scores, variable: npt.NDArray[Any], edges: Sequence[float], *, confidence: float = CONFIDENCE
) -> list[Efficiency]:
    """The event efficiency in bins [low, high) of a variable (n,)."""
    complete = scores.total[EVENT] > 0
    where = np.digitize(variable, edges) - 1
    result = []
    for k in range(len(edges) - 1):
        inside = complete & (where == k)
        counts = scores.correct[EVENT][inside], scores.total[EVENT][inside], scores.weight[inside]
        result.append(Efficiency.of_events(*counts, confidence))
    return result


# -- comparisons -------------------------------------------------------------------------------------------


def differences(
    first: Scores, second: Scores, *, confidence: float = CONFIDENCE, seed: int = 0
) -> dict[str, dict[str, Difference]]:
    """First minus second, on the same events: `event` and each type -> bin -> difference.

    The interval is from a bootstrap over events, so that events which are easy or hard for both cancel. For
    unequal weights it is that of the weighted differences.
    """
    rng = np.random.default_rng(seed)
    result: dict[str, dict[str, Difference]] = {}
    for what in first.correct:
        result[what] = {}
        for cell, inside in first.cells.items():
            change = first.correct[what][inside].astype(np.int64) - second.correct[what][inside]
            counts = change, first.total[what][inside], first.weight[inside]
            result[what][cell] = Difference.of_counts(rng, *counts, confidence, test=what == EVENT)
    return result


def spread(
    tables: Sequence[Mapping[str, Mapping[str, Efficiency]]],
) -> dict[str, dict[str, Spread]]:
    """Mean and standard deviation of the efficiencies of several retrainings."""
    result: dict[str, dict[str, Spread]] = {}
    for what, cells in tables[0].items():
        result[what] = {}
        for cell in cells:
            values = np.array([each[what][cell].value for each in tables])
            deviation = float(values.std(ddof=1)) if len(values) > 1 else np.nan
            result[what][cell] = Spread(float(values.mean()), deviation, len(values))
    return result


def flow(
    shares: npt.NDArray[Any], split: Sequence[bool] = (), weight: npt.NDArray[Any] | None = None
) -> list[dict[str, float]]:
    """The number of events with each history of right (+) and wrong (-) steps, after the first, second, ... step.

    `shares` (n, K) is the share of each step that is right. Steps marked in `split` may also be partly right (~);
    in other steps this counts as wrong. With unequal weights (n,), the sum of weights replaces the number of
    events.

    >>> flow(np.array([[True, True], [True, False], [False, True], [True, True]]))
    [{'+': 3, '-': 1}, {'++': 2, '+-': 1, '-+': 1, '--': 0}]
    >>> flow(np.array([[1.0, 1.0], [1.0, 0.5], [0.0, 0.5]]), [False, True])[1]
    {'++': 1, '+~': 1, '+-': 0, '-+': 0, '-~': 1, '--': 0}
    >>> flow(np.array([[True], [False], [True]]), weight=np.array([2.0, 1.0, 0.5]))
    [{'+': 2.5, '-': 1.0}]
    """
    shares = np.asarray(shares, dtype=np.float64)
    result = []
    names = [""]
    code = np.zeros(len(shares), dtype=np.int64)
    weight = None if weight is None or even(weight) else weight
    for k in range(shares.shape[1]):
        outcomes = "+~-" if k < len(split) and split[k] else "+-"
        outcome = np.where(shares[:, k] >= 1, 0, len(outcomes) - 1)
        if len(outcomes) > 2:
            outcome[(shares[:, k] > 0) & (shares[:, k] < 1)] = 1
        code = len(outcomes) * code + outcome
        names = [name + sign for name in names for sign in outcomes]
        result.append(dict(zip(names, np.bincount(code, weight, len(names)).tolist(), strict=True)))
    return result


def calibration(
    probability: npt.NDArray[Any],
    right: Bools,
    n_bins: int = 10,
    *,
    complete: Bools | None = None,
    weight: npt.NDArray[Any] | None = None,
    confidence: float = CONFIDENCE,
) -> dict[str, Any]:
    """Probabilities against the share that is right, in equal bins of the probability.

    The result has, for all entries and for each bin, the mean `probability`, the share that is `right`, their
    `difference` and its standard `deviation`. `error` is the mean absolute difference over bins, weighted with
    their entries. If `complete` is given, each bin also has the number of entries from complete events. With
    `weight`, all but counts are weighted, and intervals are those of `Efficiency.weighted`; bins whose weights do
    not add up to more than 0 are left out.
    """
    known = np.isfinite(probability)
    probability, right = np.asarray(probability, dtype=np.float64)[known], np.asarray(right)[known]
    weight = np.ones(len(right)) if weight is None else np.asarray(weight, dtype=np.float64)[known]
    edges = np.linspace(0, 1, n_bins + 1)
    where = np.clip(np.digitize(probability, edges) - 1, 0, n_bins - 1)
    rows: list[dict[str, float | int]] = []
    error, total = 0.0, float(weight.sum())
    for k in range(n_bins):
        inside = where == k
        sums = _difference(probability[inside], right[inside], weight[inside])
        if not sums:
            continue
        error += abs(sums["difference"]) * float(weight[inside].sum())
        del sums["right"]  # the same as `value` of the share
        ones = np.ones(int(inside.sum()), dtype=np.int64)
        share = Efficiency.of_events(right[inside].astype(np.int64), ones, weight[inside], confidence)
        rows.append(
            {"from": float(edges[k]), "to": float(edges[k + 1]), **sums}
            | share._asdict()
            | ({} if complete is None else {"complete": int(complete[known][inside].sum())})
        )
    means = _difference(probability, right, weight) or dict.fromkeys(
        ("probability", "right", "difference", "deviation")
    )
    return {**means, "error": error / total if total > 0 else None, "total": len(probability), "bins": rows}


def _difference(probability: Floats, right: Bools, weight: Floats) -> dict[str, float]:
    """Weighted means of the probability and of the right answers, their difference and its standard deviation."""
    total = float(weight.sum())
    if not total > 0:
        return {}
    mean, share = (float(np.sum(weight * values) / total) for values in (probability, right))
    away = probability - right - (mean - share)
    deviation = float(np.sqrt(np.sum(weight**2 * away**2)) / total)
    return {"probability": mean, "right": share, "difference": mean - share, "deviation": deviation}
