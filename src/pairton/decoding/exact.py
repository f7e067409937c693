"""The arg max of the event likelihood, with marginals, for every jet count whose assignments can be enumerated."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.likelihood import (
    Enumeration,
    Prediction,
    TooManyAssignmentsError,
    best,
    enumerate_assignments,
    marginals,
    scores,
)
from pairton.topology import Topology

__all__ = ["BLOCK", "enumerable", "most_probable", "packed", "rows_of"]

BLOCK = 8_000_000  # scores held at a time

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


def enumerable(topology: Topology, n_jets: int) -> bool:
    """Whether all assignments of that many jets are listed."""
    try:
        enumerate_assignments(topology, n_jets)
    except TooManyAssignmentsError:
        return False
    return True


def rows_of(prediction: Prediction, rows: npt.NDArray[Any] | slice) -> Prediction:
    """The prediction for some of its events."""
    return Prediction(prediction.edges[rows], None if prediction.triplets is None else prediction.triplets[rows])


def packed(prediction: Prediction, order: Index) -> Prediction:
    """The prediction for the jets of `order` (B, n)."""
    rows = np.arange(len(order))[:, None, None]
    row, column = order[:, :, None], order[:, None, :]
    edges = prediction.edges.transpose(0, 2, 3, 1)[rows, row, column].transpose(0, 3, 1, 2)
    if prediction.triplets is None:
        return Prediction(edges)
    triplets = prediction.triplets.transpose(0, 2, 3, 4, 1)
    picked = triplets[rows[..., None], order[:, :, None, None], order[:, None, :, None], order[:, None, None, :]]
    return Prediction(edges, picked.transpose(0, 4, 1, 2, 3))


def most_probable(
    enumeration: Enumeration, prediction: Prediction, temperature: float, n_listed: int = 0
) -> tuple[npt.NDArray[np.int8], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int8], npt.NDArray[Any]]:
    """Best assignment (B, S), its probability (B,), its particles' (B, P), and the `n_listed` best with theirs."""
    size = max(1, BLOCK // len(enumeration.assignments))
    parts = []
    for start in range(0, len(prediction.edges), size):
        block = slice(start, start + size)
        value = scores(enumeration, rows_of(prediction, block)) / np.float32(temperature)
        winner = best(enumeration, value)
        listed = np.argsort(-value, axis=1, kind="stable")[:, :n_listed] if n_listed else winner.row[:, None]
        ahead = np.take_along_axis(value, winner.row[:, None], axis=1) - np.take_along_axis(value, listed, axis=1)
        chance = np.exp(winner.log_probability[:, None] - ahead)
        particles = _particle_probability(enumeration, value, winner.row)
        parts.append(
            (winner.assignment, np.exp(winner.log_probability), particles, enumeration.assignments[listed], chance)
        )
    merged = [np.concatenate(part) for part in zip(*parts, strict=True)]
    return merged[0], merged[1], merged[2], merged[3], merged[4]


def _particle_probability(enumeration: Enumeration, value: npt.NDArray[Any], row: Index) -> npt.NDArray[Any]:
    topology = enumeration.topology
    result = np.zeros((len(row), len(topology.particles)))
    for name, probability in marginals(enumeration, value).items():
        places = [p.index for p in topology.of_type(name)]
        result[:, places] = np.take_along_axis(probability, enumeration.members[name][row], axis=1)
    return result
