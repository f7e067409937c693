"""Decoding in steps, with one hypothesis per event: each stage makes the choice of largest gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.candidates import StepTable, gains, n_turns, next_step, own_choices, reveals
from pairton.decoding.graph import visible_tokens
from pairton.decoding.state import State
from pairton.decoding.terms import Outputs
from pairton.events.nodes import Nodes
from pairton.topology import Stage, Topology

__all__ = ["Predict", "Step", "choice_nodes", "log_softmax", "run_chain"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating[Any]]
Index = npt.NDArray[np.intp]
Predict = Callable[[Nodes, npt.NDArray[np.uint8]], Outputs]  # takes tokens (B, T, N, N), which it may ignore


@dataclass(frozen=True)
class Step:
    """The record of one step: the input and output of the network, all choices, and the one that was taken.

    A choice is one particle, or several that are revealed together. Types with fewer slots than others have -1 at
    the end of their row of `nodes`; impossible choices have -1 everywhere.
    """

    stage: Stage | None  # None: the whole event at once
    tokens: npt.NDArray[np.uint8]  # (B, T, N, N)
    edges: npt.NDArray[np.float32]  # (B, T, N, N): logits
    types: tuple[tuple[str, ...], ...]  # (C choices, particles of the choice)
    nodes: npt.NDArray[np.int16]  # (B, C, particles of the choice, slots)
    probability: npt.NDArray[np.float64]  # (B, C)
    choice: Index  # (B,)
    assignment: npt.NDArray[np.int32]  # (B, S): after the step, -1 where nothing is revealed
    revealed: Bools  # (B, P)


def log_softmax(gain: Floats, temperature: float) -> npt.NDArray[np.float64]:
    """(B, J): log probabilities of the choices of a step; a gain of -inf stays -inf."""
    scaled = gain.astype(np.float64) / temperature
    shifted = scaled - scaled.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def run_chain(
    predict: Predict,
    topology: Topology,
    nodes: Nodes,
    *,
    temperatures: Sequence[float],
    refresh: bool = True,
    record: bool = False,
) -> tuple[State, list[Step]]:
    """Reveal all stages. With `refresh`, the network runs again before each stage and sees what was revealed."""
    state = State.empty(topology, nodes)
    steps: list[Step] = []
    outputs: Outputs | None = None
    for stage, temperature in zip(topology.stages, temperatures, strict=True):
        if outputs is None or refresh:
            assignment, revealed = state.place()
            tokens = visible_tokens(topology, assignment, revealed, nodes.mask)
            outputs = predict(nodes, tokens)
        before = {name: same.count.copy() for name, same in state.found.items()}
        turns = n_turns(topology, stage, state)
        for _ in range(turns):
            free, step = next_step(topology, stage, state, turns == 1)
            gain = gains(step, state, outputs, free, before=before)
            log_probability = log_softmax(gain, temperature)
            choice = gain.argmax(axis=1)
            found = reveals(step, state, free, choice)
            probability = np.exp(log_probability)
            shown = choice_nodes(step, state, free, gain) if record else np.empty(0, dtype=np.int16)
            state.reveal(found, np.take_along_axis(log_probability, choice[:, None], axis=1)[:, 0])
            if record:
                types = tuple(tuple(step.decays[step.decay[x]].name for x in row) for row in step.choices)
                after = choice, *state.place()
                steps.append(Step(stage, tokens, outputs["edges"], types, shown, probability, *after))
    return state, steps


def choice_nodes(step: StepTable, state: State, free: Index, gain: Floats) -> npt.NDArray[np.int16]:
    """(B, J, M, L): the nodes of every choice; -1 for impossible choices and after the slots of a type."""
    width = max(decay.width for decay in step.decays)
    each = np.full((len(free), len(step.decay), width), -1, dtype=np.int16)
    for k, decay in enumerate(step.decays):
        (columns,) = np.nonzero(step.decay == k)
        own = free[:, own_choices(decay.own_names, step.n_free)[step.own[columns]]]  # (B, X, own)
        for i, position in enumerate(decay.own):
            each[:, columns, position] = own[:, :, i]
        for c, (name, positions) in enumerate(decay.children):
            which = np.array([row[c] for row in decay.child_choices])[step.children[columns]]
            for i, position in enumerate(positions):
                each[:, columns, position] = state.found[name].nodes[:, which, i]
    chosen = each[:, step.choices]  # (B, J, M, L)
    return np.where(np.isfinite(gain)[:, :, None, None], chosen, np.int16(-1))
