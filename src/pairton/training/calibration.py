"""Temperatures of the steps of a chain, so that their probabilities are those with which they are right.

Gains add correlated logits, and several answers of a step may be right: the softmax of a step is a probability in
name alone. What is chosen does not depend on temperatures, so one stage is fitted without regard to the others.

Shapes: B events, G temperatures.
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
GRID = np.geomspace(1 / 8, 8, 19)
MIN_STEPS = 50  # of a stage, some of them right and some wrong; else it stays at 1

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def fit_temperatures(
    predict: Predict, topology: Topology, events: PackedEvents, which: Sequence[tuple[int, slice]], method: str
) -> tuple[float, ...]:
    """One for each stage: that of the greatest likelihood of right and wrong steps, after steps that were right.

    Only fully reconstructible events are asked: in others an answer can be right and not known to be.
    """
    found: list[list[tuple[Floats, Bools]]] = [[] for _ in topology.stages]
    for n_jets, rows in which:
        group = events.groups[n_jets]
        truth = np.array(group.truth[rows])
        whole = complete(topology, truth).all(axis=1)
        if whole.any():
            steps = _steps(predict, topology, np.array(group.jets[rows])[whole], truth[whole], method)
            for stage, chance, right in steps:
                found[stage].append((chance, right))
    return tuple(_best(parts) for parts in found)


def _steps(
    predict: Predict, topology: Topology, jets: npt.NDArray[np.float32], truth: npt.NDArray[np.int8], method: str
) -> list[tuple[int, Floats, Bools]]:
    """Of every step its stage, the probability of its choice at each temperature (G, B), and which are right (B,).

    Of the events alone whose steps before it are all right.
    """
    mask, remembered = np.ones(jets.shape[:2], dtype=bool), _Remembered(predict)
    chances: list[list[Floats]] = []
    for temperature in GRID:
        remembered.rewind()
        heat = [float(temperature)] * len(topology.stages)
        steps = decode(remembered, topology, jets, mask, method=method, temperatures=heat, record=True).steps
        chances.append([step.probability[np.arange(len(jets)), step.choice] for step in steps])
    result = []
    ends = np.cumsum([1 if stage.any else len(stage.types) for stage in topology.stages])  # particles revealed
    good, before, done = np.ones(len(jets), dtype=bool), np.zeros(len(jets), int), np.zeros(len(jets), int)
    for k, step in enumerate(steps):
        now, revealed = matches(topology, step.assignment, truth).sum(axis=1), step.revealed.sum(axis=1)
        right = now - before == revealed - done
        stage = int(np.searchsorted(ends, revealed.max()))
        result.append((stage, np.stack([chance[k] for chance in chances])[:, good], right[good]))
        good, before, done = good & right, now, revealed
    return result


def _best(parts: Sequence[tuple[Floats, Bools]]) -> float:
    """The temperature between those of the grid that makes the outcomes most likely."""
    right = np.concatenate([part[1] for part in parts]) if parts else np.zeros(0, dtype=bool)
    if min(right.sum(), (~right).sum()) == 0 or len(right) < MIN_STEPS:
        return 1.0
    chance = np.concatenate([part[0] for part in parts], axis=1).clip(1e-12, 1 - 1e-12)
    likelihood = np.where(right, np.log(chance), np.log1p(-chance)).sum(axis=1)  # (G,)
    k = int(np.clip(likelihood.argmax(), 1, len(GRID) - 2))
    below, here, above = likelihood[k - 1 : k + 2]
    curvature = below - 2 * here + above
    shift = np.clip((below - above) / (2 * curvature), -1, 1) if curvature < 0 else 0.0  # top of the parabola
    return float(np.round(GRID[k] * (GRID[1] / GRID[0]) ** shift, 4))


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
