"""How often the answer is right: efficiencies with intervals, paired differences, flow and calibration.

The order of interchangeable products is free. A particle is right when some particle of its type was predicted
with exactly its jets, each in its own part of the decay: the jets of every child, and its own. An efficiency of a
type counts the particles of the truth whose every jet is labelled; that of the event counts the complete events,
whose every slot is labelled, and asks for all of them at once.

Shapes: n events, S slots, P particles, K steps. Assignments are (n, S), -1 where a slot has no jet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton._common.plain import as_plain
from pairton.evaluation.intervals import CONFIDENCE, REPLICAS, bootstrap, clopper_pearson, mcnemar, ratio_interval
from pairton.topology import Topology
from pairton.topology.assignments import canonical, canonical_within, present

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

EVENT = "event"
COMPLETE = "complete"  # that every particle is present, as a model that knows patterns says
IF_COMPLETE = "if_complete"  # of the answer, given that
INCLUSIVE = "inclusive"

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


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


# -- right or wrong ----------------------------------------------------------------------------------------


def matches(topology: Topology, assignment: Ints, other: Ints) -> Bools:
    """(n, P): particles that are complete in `assignment` and found, with the same jets, in `other`.

    >>> from pairton.topology import load_topology
    >>> truth, swapped = np.array([[0, 1, 2, 3, 4, 5]]), np.array([[4, 3, 5, 0, 2, 1]])
    >>> matches(load_topology("ttbar_allhad"), truth, swapped)  # t1, its W, t2, its W
    array([[False, False,  True,  True]])
    """
    assignment, other = np.asarray(assignment), np.asarray(other)
    found = present(topology, assignment)
    for name in topology.types:
        same_type = topology.of_type(name)
        candidates = [canonical_within(topology, p, other) for p in same_type]
        for particle in same_type:
            jets = canonical_within(topology, particle, assignment)
            found[:, particle.index] &= np.any([(jets == c).all(axis=1) for c in candidates], axis=0)
    return found


def same_hypothesis(topology: Topology, truth: Ints, predicted: Ints) -> Bools:
    """(n,): events in which exactly the particles of the truth were predicted, each with its jets, and no other.

    A particle is present where all its jets are; the jets of one that is not do not matter.

    >>> from pairton.topology import load_topology
    >>> truth, answer = np.array([[0, 1, 2, 3, -1, 5]]), np.array([[-1, -1, -1, 1, 0, 2]])
    >>> same_hypothesis(load_topology("ttbar_allhad"), truth, answer)  # one top, and nothing of the other
    array([ True])
    """
    owners = [slot.particle for slot in topology.slots]
    kept = [
        canonical(topology, np.where(present(topology, each)[:, owners], each, -1)) for each in (truth, predicted)
    ]
    return np.asarray((kept[0] == kept[1]).all(axis=1))


@dataclass(frozen=True)
class Scores:
    """Right and possible answers of every event; all else is counting.

    `correct` and `total` map `event` and each type, parents first, to (n,) counts.
    """

    topology: Topology
    correct: Mapping[str, npt.NDArray[np.int16]]
    total: Mapping[str, npt.NDArray[np.int16]]
    n_jets: Ints  # (n,)

    def __len__(self) -> int:
        return len(self.n_jets)

    def __getitem__(self, where: slice | Bools | Ints) -> Scores:
        correct, total = ({k: n[where] for k, n in counts.items()} for counts in (self.correct, self.total))
        return Scores(self.topology, correct, total, self.n_jets[where])

    @property
    def bins(self) -> npt.NDArray[np.intp]:
        """(n,): multiplicity bin; -1 for an event with fewer jets than slots, which counts as inclusive only."""
        return self.topology.bin_index(self.n_jets)

    @property
    def cells(self) -> dict[str, Bools]:
        """Name of each bin, and of all together -> its events."""
        bins = self.bins
        named = {name: bins == k for k, name in enumerate(self.topology.bins)}
        return named | {INCLUSIVE: np.ones(len(self), dtype=bool)}


def score(topology: Topology, truth: Ints, predicted: Ints, n_jets: Ints) -> Scores:
    """Count right and possible answers of events with `truth` (n, S), `predicted` (n, S) and `n_jets` (n,)."""
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    possible = present(topology, truth)
    right = matches(topology, truth, predicted)
    complete: Bools = np.all(possible, axis=1)
    same: Bools = (canonical(topology, truth) == canonical(topology, predicted)).all(axis=1)
    correct = {EVENT: (complete & same).astype(np.int16)}
    total: dict[str, npt.NDArray[np.int16]] = {EVENT: complete.astype(np.int16)}
    for name in reversed(topology.types):
        of_type = [particle.index for particle in topology.of_type(name)]
        correct[name] = np.asarray(right[:, of_type].sum(axis=1), dtype=np.int16)
        total[name] = np.asarray(possible[:, of_type].sum(axis=1), dtype=np.int16)
    return Scores(topology, correct, total, np.asarray(n_jets))


# -- efficiencies ------------------------------------------------------------------------------------------


def efficiencies(
    topology: Topology,
    truth: Ints,
    predicted: Ints,
    n_jets: Ints,
    *,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> dict[str, dict[str, Efficiency]]:
    """`event` and each type -> multiplicity bin or `inclusive` -> efficiency.

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, -1]])
    >>> predicted = np.array([[3, 4, 5, 1, 0, 2], [0, 1, 5, 3, 6, 2]])
    >>> result = efficiencies(load_topology("ttbar_allhad"), truth, predicted, np.array([6, 7]))
    >>> {what: f"{cells['inclusive'].correct} of {cells['inclusive'].total}" for what, cells in result.items()}
    {'event': '1 of 1', 't': '2 of 3', 'W': '3 of 4'}
    """
    return table(score(topology, truth, predicted, n_jets), confidence=confidence, seed=seed)


def table(scores: Scores, *, confidence: float = CONFIDENCE, seed: int = 0) -> dict[str, dict[str, Efficiency]]:
    """Efficiencies of scores: Clopper-Pearson for the event, bootstrap over events for particles of a type."""
    rng = np.random.default_rng(seed)
    result: dict[str, dict[str, Efficiency]] = {}
    for what, correct in scores.correct.items():
        result[what] = {}
        for cell, inside in scores.cells.items():
            k, n = correct[inside], scores.total[what][inside]
            if what == EVENT:
                result[what][cell] = Efficiency.binomial(int(k.sum()), int(n.sum()), confidence)
            else:
                result[what][cell] = Efficiency.of_particles(rng, k, n, confidence)
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
    complete = np.array([scores.total[EVENT][events].sum() for events in inside], dtype=np.float64)
    shares = np.asarray(mix, dtype=np.float64) / np.sum(mix)
    possible = bool(np.all((complete > 0) | (shares == 0)))
    weights = np.divide(shares, complete, out=np.zeros_like(complete), where=complete > 0)
    result = {}
    for what, correct in scores.correct.items():
        k, n = (int(counts[bins >= 0].sum()) for counts in (correct, scores.total[what]))
        value = low = high = np.nan
        if possible:
            sums = np.zeros((REPLICAS, 2))
            exact = np.zeros(2)
            for weight, events in zip(weights, inside, strict=True):
                if weight > 0:
                    counts = correct[events], scores.total[what][events]
                    sums += weight * bootstrap(rng, *counts)
                    exact += weight * np.array([c.sum() for c in counts])
            value = float(exact[0] / exact[1])
            low, high = ratio_interval(sums[:, 0], sums[:, 1], confidence)
        result[what] = Efficiency(value, low, high, k, n)
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
        correct, total = int(scores.correct[EVENT][inside].sum()), int(inside.sum())
        result.append(Efficiency.binomial(correct, total, confidence))
    return result


# -- comparisons -------------------------------------------------------------------------------------------


def differences(
    first: Scores, second: Scores, *, confidence: float = CONFIDENCE, seed: int = 0
) -> dict[str, dict[str, Difference]]:
    """First minus second, on the same events: `event` and each type -> bin -> difference.

    The interval is a bootstrap over events, so what both find easy or hard cancels.
    """
    rng = np.random.default_rng(seed)
    result: dict[str, dict[str, Difference]] = {}
    for what in first.correct:
        result[what] = {}
        for cell, inside in first.cells.items():
            a, b = first.correct[what][inside], second.correct[what][inside]
            total = first.total[what][inside]
            n = int(total.sum())
            value = low = high = np.nan
            change = a.astype(np.int64) - b
            if n:
                value = float(change.sum() / n)
                sums = bootstrap(rng, change, total)
                low, high = ratio_interval(sums[:, 0], sums[:, 1], confidence)
            gained, lost = int(change[change > 0].sum()), int(-change[change < 0].sum())
            p_value = mcnemar(gained, lost) if what == EVENT and n else np.nan
            result[what][cell] = Difference(value, low, high, gained, lost, p_value)
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


def flow(steps: npt.NDArray[np.bool_]) -> list[dict[str, int]]:
    """How many events have each history of right (+) and wrong (-) steps, after the first, the second, ... step.

    `steps` (n, K): whether what each step revealed is right.

    >>> flow(np.array([[True, True], [True, False], [False, True], [True, True]]))
    [{'+': 3, '-': 1}, {'++': 2, '+-': 1, '-+': 1, '--': 0}]
    """
    result = []
    code = np.zeros(len(steps), dtype=np.int64)
    for k in range(steps.shape[1]):
        code = 2 * code + ~steps[:, k]
        counts = np.bincount(code, minlength=2 ** (k + 1))
        names = [format(c, f"0{k + 1}b").replace("0", "+").replace("1", "-") for c in range(len(counts))]
        result.append(dict(zip(names, counts.tolist(), strict=True)))
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
    and intervals are those of as many equal entries as the weights are worth; counts stay counts.
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
        worth = float(weight[inside].sum()) ** 2 / float((weight[inside] ** 2).sum())
        interval = clopper_pearson(min(max(sums["right"], 0.0), 1.0) * worth, worth, confidence)
        share = Efficiency(sums.pop("right"), *interval, int(right[inside].sum()), int(inside.sum()))
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
