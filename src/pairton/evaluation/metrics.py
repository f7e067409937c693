"""Measures of right and wrong answers: efficiencies with intervals, paired differences, flow and calibration.

`pairton.evaluation.scoring` says what is right; `pairton.evaluation.estimates` has numbers with their intervals.

Shapes: n events, S slots, K steps. Assignments are (n, S), -1 where a slot has no jet.
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

COMPLETE = "complete"  # that every particle is present, as a model that knows patterns says
IF_COMPLETE = "if_complete"  # of the answer, given that

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
    """`event` and each type -> multiplicity bin or `inclusive` -> efficiency, by the weights (n,) of the events.

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, -1]])
    >>> predicted = np.array([[3, 4, 5, 1, 0, 2], [0, 1, 5, 3, 6, 2]])
    >>> result = efficiencies(load_topology("ttbar_allhad"), truth, predicted, np.array([6, 7]))
    >>> {what: f"{cells['inclusive'].correct} of {cells['inclusive'].total}" for what, cells in result.items()}
    {'event': '1 of 1', 't': '2 of 3', 'W': '3 of 4'}
    """
    return table(score(topology, truth, predicted, n_jets, weight), confidence=confidence, seed=seed)


def table(scores: Scores, *, confidence: float = CONFIDENCE, seed: int = 0) -> dict[str, dict[str, Efficiency]]:
    """Efficiencies of scores: Clopper-Pearson for the event, bootstrap over events for particles of a type.

    Events of unequal weights: as `Efficiency.weighted` says.
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
    """Inclusive efficiencies as if a share `mix` of the complete events were in each multiplicity bin.

    Samples differ in their mix of jet counts, and so in what is inclusive. `correct` and `total` are those of the
    sample as it is; NaN where a bin that is asked for has no complete event.
    """
    rng = np.random.default_rng(seed)
    bins = scores.bins
    inside = [bins == k for k in range(len(scores.topology.bins))]
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
    """The event efficiency in bins [low, high) of a variable (n,) of each event."""
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

    The interval is a bootstrap over events, so what both find easy or hard cancels; with unequal weights it is
    that of the weighted differences.
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
    """How many events have each history of right (+) and wrong (-) steps, after the first, the second, ... step.

    `shares` (n, K): which share of what a step added is right. Steps that `split` marks have a third outcome, that
    some of it is right (~); elsewhere this counts as wrong. Weights (n,) that are not all equal are added up in
    place of events.

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

    `error` is the mean absolute difference, weighted with the entries of each bin; `difference` that of the means,
    with its standard deviation, since both are of the same entries, for all and for each bin. `complete`: entries
    of complete events, which are counted in each bin. With `weight` means, shares and differences are weighted,
    with intervals as `Efficiency.weighted` says; counts stay counts. A bin whose weights do not add up to more
    than 0 is left out.
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
        del sums["right"]  # is `value` of the share
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
    """Weighted means of a probability and of what is right, their difference and its standard deviation."""
    total = float(weight.sum())
    if not total > 0:
        return {}
    mean, share = (float(np.sum(weight * values) / total) for values in (probability, right))
    away = probability - right - (mean - share)
    deviation = float(np.sqrt(np.sum(weight**2 * away**2)) / total)
    return {"probability": mean, "right": share, "difference": mean - share, "deviation": deviation}
