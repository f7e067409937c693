"""The hypotheses of a beam: the most probable ones of each event, where equal states are one hypothesis.

Rows are hypotheses, sorted by event; `event` (B,) is the event of each row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pairton.decoding.state import State

__all__ = ["merged", "most_probable", "summed"]

Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


def most_probable(event: Index, log_probability: Floats, limit: int) -> tuple[Index, Index]:
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


def merged(event: Index, state: State, width: int) -> tuple[Index, State]:
    """The `width` best hypotheses of each event, after equal states are merged into the most probable of them."""
    keys = np.ascontiguousarray(np.column_stack([event, state.keys()]))
    _, group = np.unique(keys.view([("", keys.dtype)] * keys.shape[1]).ravel(), return_inverse=True)
    order = np.lexsort((np.arange(len(group)), -state.log_probability, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    leader = order[starts]  # the most probable of its group
    state.log_probability[leader] = np.logaddexp.reduceat(state.log_probability[order], starts)
    ranked = leader[np.lexsort((leader, -state.log_probability[leader], event[leader]))]
    _, first = _starts(event[ranked])
    kept = ranked[np.arange(len(ranked)) - first[event[ranked]] < width]
    return event[kept], state[kept]


def summed(event: Index, state: State) -> State:
    """The best hypothesis of each event; probabilities of particles are sums over all of its hypotheses."""
    _, first = _starts(event)
    answer = state[first]  # rows are sorted by event, then probability
    weight = np.exp(state.log_probability)
    for name, same in state.found.items():
        best = answer.found[name]
        holds = (best.nodes[event][:, :, None] == same.nodes[:, None]).all(axis=3).any(axis=2)  # (B, K)
        best.probability = np.zeros(best.probability.shape)
        np.add.at(best.probability, event, weight[:, None] * holds)
    return answer


def _starts(event: Index) -> tuple[int, Index]:
    """The number of events, and the first row of each."""
    count = np.bincount(event)
    return len(count), np.concatenate([[0], np.cumsum(count)[:-1]])
