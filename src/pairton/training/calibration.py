"""Temperatures of the steps of a chain, so that its probability is that with which the event is right.

Gains add correlated logits, and several answers of a step may be right (either W of a pair of tops first): the
softmax of a step is a probability in name alone, and what the product of the steps must be is a property of all of
them. What is chosen does not depend on temperatures, so an event is decoded once for each temperature of a grid.

Shapes: B events, G temperatures, K stages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pairton.decoding import Predict, decode
from pairton.graph import complete
from pairton.likelihood import Prediction
from pairton.metrics import matches
from pairton.topology import Topology
from pairton.training.data import PackedEvents

__all__ = ["CHAINS", "fit_temperatures"]

CHAINS = ("steps", "one_shot")  # decodings that multiply the probabilities of steps
GRID = np.geomspace(1 / 16, 16, 25)
RATIO = float(GRID[1] / GRID[0])
MIN_EVENTS = 50  # some of them right and some wrong; else nothing is fitted
SWEEPS = 10  # over the stages, at most

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def fit_temperatures(
    predict: Predict, topology: Topology, events: PackedEvents, which: Sequence[tuple[int, slice]], method: str
) -> tuple[float, ...]:
    """One for each stage: together those under which right and wrong answers are most likely.

    Only fully reconstructible events are asked: in others an answer can be right and not known to be.
    """
    chances, rights = [np.zeros((len(GRID), len(topology.stages), 0))], [np.zeros(0, dtype=bool)]
    for n_jets, rows in which:
        group = events.groups[n_jets]
        truth = np.array(group.truth[rows])
        whole = complete(topology, truth).all(axis=1)
        if whole.any():
            chance, right = _chains(predict, topology, np.array(group.jets[rows])[whole], truth[whole], method)
            chances.append(chance)
            rights.append(right)
    right = np.concatenate(rights)
    if len(right) < MIN_EVENTS or right.all() or not right.any():
        return (1.0,) * len(topology.stages)
    return _fit(np.concatenate(chances, axis=2), right)


def _chains(
    predict: Predict, topology: Topology, jets: npt.NDArray[np.float32], truth: npt.NDArray[np.int8], method: str
) -> tuple[Floats, Bools]:
    """Log probability of each stage at each temperature (G, K, B), and which answers are right (B,)."""
    mask, remembered = np.ones(jets.shape[:2], dtype=bool), _Remembered(predict)
    ends = np.cumsum([1 if stage.any else len(stage.types) for stage in topology.stages])  # particles revealed
    result = np.zeros((len(GRID), len(topology.stages), len(jets)))
    for g, temperature in enumerate(GRID):
        remembered.rewind()
        heat = [float(temperature)] * len(topology.stages)
        answer = decode(remembered, topology, jets, mask, method=method, temperatures=heat, record=True)
        for step in answer.steps:  # of a stage there may be several
            stage = int(np.searchsorted(ends, step.revealed.sum(axis=1).max()))
            chosen = step.probability[np.arange(len(jets)), step.choice]
            result[g, stage] += np.log(chosen.clip(min=1e-300))
    return result, np.asarray(matches(topology, answer.assignment, truth).all(axis=1))


def _fit(chance: Floats, right: Bools) -> tuple[float, ...]:
    """Of log probabilities (G, K, B) the best row of each stage, one stage after the other until none changes."""
    n_stages = chance.shape[1]
    at = np.full(n_stages, len(GRID) // 2)  # where the temperature is 1
    for _ in range(SWEEPS):
        before = at.copy()
        for k in range(n_stages):
            at[k] = _likelihoods(chance, right, at, k).argmax()
        if (at == before).all():
            break
    return tuple(_between(_likelihoods(chance, right, at, k), int(at[k])) for k in range(n_stages))


def _likelihoods(chance: Floats, right: Bools, at: npt.NDArray[np.intp], k: int) -> Floats:
    """(G,): log likelihood of the outcomes at each temperature of stage k, the others being where they are."""
    others = sum((chance[at[j], j] for j in range(len(at)) if j != k), start=np.zeros(len(right)))
    total = chance[:, k] + others
    wrong = np.log1p(-np.exp(total).clip(max=1 - 1e-12))
    return np.asarray(np.where(right, total, wrong).sum(axis=1))


def _between(likelihood: Floats, k: int) -> float:
    """The temperature at the top of the parabola through the best point of the grid and its neighbours."""
    k = int(np.clip(k, 1, len(GRID) - 2))
    below, here, above = likelihood[k - 1 : k + 2]
    curvature = below - 2 * here + above
    shift = float(np.clip((below - above) / (2 * curvature), -1, 1)) if curvature < 0 else 0.0
    return float(round(GRID[k] * RATIO**shift, 4))


class _Remembered:
    """A predictor whose answers, once given, are given again in the same order."""

    def __init__(self, predict: Predict) -> None:
        self.predict, self.answers, self.at = predict, list[Prediction](), 0

    def rewind(self) -> None:
        self.at = 0

    def __call__(
        self, jets: npt.NDArray[np.float32], jet_mask: Bools, tokens: npt.NDArray[np.uint8]
    ) -> Prediction:
        if self.at == len(self.answers):
            self.answers.append(self.predict(jets, jet_mask, tokens))
        self.at += 1
        return self.answers[self.at - 1]
