"""Wrong earlier steps: states that the network's own reverse process reaches by a mistake.

An event that would show some true particles shows instead what the network, as it is now, might have revealed by
then. One of the steps is the first wrong one: before it the steps are right, in it the choice is drawn among the
wrong ones by the network's own probability, and after it among all. So the mistakes are those that it makes. What
the loss asks for stays the truth of the edges that are hidden then; those that are shown, wrong or not, are given.

Shapes: B events, N nodes, S slots, P particles, J choices of a step, M particles it reveals, L their slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.candidates import StepTable, gains, n_turns, next_step, reveals
from pairton.decoding.chain import Predict, choice_nodes
from pairton.decoding.graph import visible_tokens
from pairton.decoding.state import State
from pairton.events.nodes import Nodes
from pairton.topology import Topology
from pairton.topology.assignments import canonical, present

__all__ = ["Mistakes", "draw_mistakes", "wrong_states"]

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Mistakes:
    """All that is random about the mistakes of a batch."""

    first: npt.NDArray[np.int64]  # (B,): the first wrong step, -1 where all are right
    level: npt.NDArray[np.int64]  # (B,): steps that are shown
    draws: npt.NDArray[np.float64]  # (B, P): uniform numbers that choose, turn by turn

    def __getitem__(self, rows: Ints) -> Mistakes:
        return Mistakes(self.first[rows], self.level[rows], self.draws[rows])


@lru_cache(maxsize=32)
def _level_sizes(topology: Topology) -> npt.NDArray[np.int64]:
    """Particles revealed after 0, 1, ... stages: the same in every state of a level."""
    return np.array([int(level[0].sum()) for level in topology.levels])


def draw_mistakes(
    topology: Topology, truth: Ints, revealed: Bools, share: float, rng: np.random.Generator
) -> Mistakes:
    """Of the events with something revealed (B, P), this share gets a mistake, first in any of its steps.

    Only fully labelled events do: in others a candidate is not known to be wrong.
    """
    draws = rng.random((len(truth), 2 + len(topology.particles)))
    level = np.searchsorted(_level_sizes(topology), revealed.sum(axis=1))
    some = (draws[:, 0] < share) & (level > 0) & present(topology, truth).all(axis=1)
    first = np.where(some, np.floor(draws[:, 1] * level), -1).astype(np.int64)
    return Mistakes(first, level.astype(np.int64), draws[:, 2:])


def wrong_states(
    predict: Predict,
    topology: Topology,
    nodes: Nodes,
    truth: Ints,
    revealed: Bools,
    mistakes: Mistakes,
) -> tuple[npt.NDArray[np.int32], Bools]:
    """What is shown of events without padding: nodes (B, S), particles (B, P); the truth where none is wrong."""
    shown, known = truth.astype(np.int32), revealed.copy()
    (rows,) = np.nonzero(mistakes.first >= 0)
    state = State.empty(topology, nodes[rows])
    turn = 0
    for k, stage in enumerate(topology.stages):
        if not len(rows):
            break
        here = nodes[rows]
        outputs = predict(here, visible_tokens(topology, *state.place(), here.mask))
        before = {name: same.count.copy() for name, same in state.found.items()}
        turns = n_turns(topology, stage, state)
        for first_turn in [True] + [False] * (turns - 1):
            free, step = next_step(topology, stage, state, turns == 1)
            gain = gains(step, state, outputs, free, before=before)
            right = _right(step, topology, choice_nodes(step, state, free, gain), truth[rows])
            first = mistakes.first[rows][:, None]
            wanted = (right | (first <= k)) & ~(right & (first == k) & first_turn)
            choice = _draw(np.where(wanted, gain, -np.inf), gain, mistakes.draws[rows, turn])
            state.reveal(reveals(step, state, free, choice), np.ones(len(rows)))
            turn += 1
        done = mistakes.level[rows] == k + 1
        assignment, there = state.place()
        shown[rows[done]], known[rows[done]] = assignment[done], there[done]
        state, rows = state[~done], rows[~done]
    return shown, known


def _right(step: StepTable, topology: Topology, nodes: npt.NDArray[np.int16], truth: Ints) -> Bools:
    """(B, J): choices (B, J, M, L) all of whose particles are true ones."""
    ordered = canonical(topology, truth)
    right = np.ones(nodes.shape[:2], dtype=bool)
    names = np.array([decay.name for decay in step.decays])[step.decay[step.choices]]  # (J, M)
    for decay in step.decays:
        true = np.stack([ordered[:, list(p.slots)] for p in topology.of_type(decay.name)], axis=1)  # (B, K, L)
        same = (nodes[:, :, :, None, : decay.width] == true[:, None, None]).all(axis=4).any(axis=3)  # (B, J, M)
        right &= (same | (names != decay.name)).all(axis=2)
    return right


def _draw(gain: Floats, every: Floats, drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """(B,): a choice by the softmax of gains (B, J); where none is possible, of all of them."""
    gain = np.where(np.isfinite(gain).any(axis=1, keepdims=True), gain, every).astype(np.float64)
    weight = np.cumsum(np.exp(gain - gain.max(axis=1, keepdims=True)), axis=1)
    return np.asarray((weight <= drawn[:, None] * weight[:, -1:]).sum(axis=1), dtype=np.intp)
