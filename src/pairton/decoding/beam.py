"""Decoding in steps with several hypotheses per event; hypotheses that reach the same state are merged.

Rows are hypotheses, sorted by event; `event` (R,) is the event of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.candidates import gains, n_turns, next_step, reveals
from pairton.decoding.chain import Predict, log_softmax
from pairton.decoding.exact import rows_of
from pairton.decoding.graph import visible_tokens
from pairton.decoding.state import State
from pairton.events.nodes import Nodes
from pairton.topology import Topology

__all__ = ["run_beam"]

EXPANSION = 8  # hypotheses kept before merging, in beam widths: several may lead to the same state

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating[Any]]
Index = npt.NDArray[np.intp]


def run_beam(
    predict: Predict,
    topology: Topology,
    nodes: Nodes,
    *,
    width: int,
    temperatures: Sequence[float],
) -> State:
    """The most probable complete state per event; particle probabilities are sums over the hypotheses kept."""
    state = State.empty(topology, nodes)
    event = np.arange(len(nodes))
    for stage, temperature in zip(topology.stages, temperatures, strict=True):
        repeated = nodes[event]
        outputs = predict(repeated, visible_tokens(topology, *state.place(), repeated.mask))
        before = {name: same.count.copy() for name, same in state.found.items()}
        turns = n_turns(topology, stage, state)
        for _ in range(turns):
            free, step = next_step(topology, stage, state, turns == 1)
            gain = gains(step, state, outputs, free, before=before)
            step_probability = log_softmax(gain, temperature)
            row, choice = _most_probable(
                event, state.log_probability[:, None] + step_probability, EXPANSION * width
            )
            grown = state[row]
            found = reveals(step, grown, free[row], choice)
            grown.reveal(found, step_probability[row, choice])
            kept = _merge(event[row], grown, width)
            state, row = grown[kept], row[kept]
            event = event[row]
            outputs = rows_of(outputs, row)
            before = {name: count[row] for name, count in before.items()}
    return _answer(event, state)


def _most_probable(event: Index, log_probability: Floats, limit: int) -> tuple[Index, Index]:
    """Row and column of the `limit` most probable continuations of each event, sorted by event."""
    n_events, first = _starts(event)
    rank = np.arange(len(event)) - first[event]
    wide = np.full((n_events, int(rank.max()) + 1, log_probability.shape[1]), -np.inf)
    wide[event, rank] = log_probability
    flat = wide.reshape(n_events, -1)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :limit]
    owner, position = np.nonzero(np.isfinite(np.take_along_axis(flat, order, axis=1)))
    hypothesis, column = np.divmod(order[owner, position], log_probability.shape[1])
    return first[owner] + hypothesis, column


def _merge(event: Index, state: State, width: int) -> Index:
    """Merge rows of equal state into the most probable of them, and return the `width` best rows per event."""
    keys = np.ascontiguousarray(np.column_stack([event, state.keys()]))
    _, group = np.unique(keys.view([("", keys.dtype)] * keys.shape[1]).ravel(), return_inverse=True)
    order = np.lexsort((np.arange(len(group)), -state.log_probability, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    leader = order[starts]  # the most probable of its group
    top = state.log_probability[leader]
    size = np.diff(np.append(starts, len(order)))
    shares = np.exp(state.log_probability[order] - np.repeat(top, size))
    state.log_probability[leader] = top + np.log(np.add.reduceat(shares, starts))
    best = leader[np.lexsort((leader, -state.log_probability[leader], event[leader]))]
    _, first = _starts(event[best])
    return best[np.arange(len(best)) - first[event[best]] < width]


def _starts(event: Index) -> tuple[int, Index]:
    """The number of events, and the first row of each."""
    count = np.bincount(event)
    return len(count), np.concatenate([[0], np.cumsum(count)[:-1]])


def _answer(event: Index, state: State) -> State:
    _, first = _starts(event)
    best = state[first]  # rows are sorted by event, then probability
    weight = np.exp(state.log_probability)
    for name, same in state.found.items():
        answer = best.found[name].nodes[event]  # (R, K, L)
        holds = (answer[:, :, None] == same.nodes[:, None]).all(axis=3).any(axis=2)  # (R, K)
        total = np.zeros(best.found[name].probability.shape)
        np.add.at(total, event, weight[:, None] * holds)
        best.found[name].probability = total
    return best
