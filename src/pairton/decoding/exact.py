"""The arg max of the event likelihood, with marginals, for every layout whose assignments can be enumerated."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.likelihood import MAX_ASSIGNMENTS, Enumeration, Outputs, scores
from pairton.topology import Layout, Topology

__all__ = ["BLOCK", "enumerable", "most_probable", "packed", "rows_of"]

BLOCK = 1_000_000  # scores held at a time

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


def enumerable(topology: Topology, layout: Layout) -> bool:
    """Whether all assignments of the objects of a layout are listed."""
    return 0 < topology.count_assignments(layout) <= MAX_ASSIGNMENTS


def rows_of(outputs: Outputs, rows: npt.NDArray[Any] | slice) -> Outputs:
    """The outputs for some events."""
    return {name: array[rows] for name, array in outputs.items()}


def packed(outputs: Outputs, order: Index) -> Outputs:
    """Edges and triplets of the nodes of `order` (B, n)."""
    rows = np.arange(len(order))[:, None, None]
    row, column = order[:, :, None], order[:, None, :]
    result = {"edges": outputs["edges"].transpose(0, 2, 3, 1)[rows, row, column].transpose(0, 3, 1, 2)}
    if "triplets" in outputs:
        triplets = outputs["triplets"].transpose(0, 2, 3, 4, 1)
        at = rows[..., None], order[:, :, None, None], order[:, None, :, None], order[:, None, None, :]
        result["triplets"] = triplets[at].transpose(0, 4, 1, 2, 3)
    return result


def most_probable(
    enumeration: Enumeration, outputs: Outputs, temperature: float, n_listed: int = 0
) -> tuple[npt.NDArray[np.int8], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int8], npt.NDArray[Any]]:
    """Best assignment (B, S), its probability (B,), its particles' (B, P), and the `n_listed` best with theirs."""
    size = max(8, BLOCK // len(enumeration.assignments))
    parts = []
    for start in range(0, len(outputs["edges"]), size):
        block = rows_of(outputs, slice(start, start + size))
        weight = scores(enumeration, block).T  # (A, B): contiguous along events
        if temperature != 1:
            weight = weight / np.float32(temperature)
        top = weight.max(axis=0)
        best = _first_row(weight == top)
        weight = np.exp(weight - top)  # relative to the best
        total = weight.sum(axis=0, dtype=np.float64)
        particles = _particle_weight(enumeration, weight, best) / total[:, None]
        listed = np.argsort(-weight, axis=0, kind="stable")[:n_listed].T if n_listed else best[:, None]
        chances = np.take_along_axis(weight.T, listed, axis=1) / total[:, None]
        parts.append(
            (enumeration.assignments[best], 1 / total, particles, enumeration.assignments[listed], chances)
        )
    merged = [np.concatenate(part) for part in zip(*parts, strict=True)]
    return merged[0], merged[1], merged[2], merged[3], merged[4]


def _first_row(where: Bools) -> Index:
    """(B,): the first row of (A, B) that is True; 0 for none. Faster than an arg max along the first axis."""
    row, column = np.nonzero(where)
    first = np.zeros(where.shape[1], dtype=np.intp)
    first[column[::-1]] = row[::-1]
    return first


def _particle_weight(enumeration: Enumeration, weight: npt.NDArray[Any], best: Index) -> npt.NDArray[Any]:
    """(B, P): summed weight of the assignments that contain each particle of the best one."""
    topology = enumeration.topology
    result = np.zeros((len(best), len(topology.particles)))
    for name, member in enumeration.members.items():
        places = [p.index for p in topology.of_type(name)]
        every = np.asarray(enumeration.membership[name] @ weight)  # (C, B)
        result[:, places] = np.take_along_axis(every.T, member[best], axis=1)
    return result
