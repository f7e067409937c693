"""What heads that a recipe declares say of events, particles and products, and the columns of a result for it.

    <head>                      P(class 1) of two classes, or the number
    <head>_0, <head>_1, ...     P(class) of three or more
    <particle>_<head>           the same of a particle or product of the answer; NaN where it has none

Shapes: B events, N nodes, S slots, P places, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.events.head_specs import HeadSpec, places_of
from pairton.topology import Topology

__all__ = ["head_columns", "head_shape", "head_values", "reordered"]

Floats = npt.NDArray[np.floating[Any]]


def head_shape(spec: HeadSpec, topology: Topology) -> tuple[int, ...]:
    """Of what a head says of one event, by `head_values`."""
    places = () if spec.of_event else (len(places_of(topology, spec.of)),)
    return (*places, spec.width) if spec.is_class else places


def head_values(
    spec: HeadSpec, topology: Topology, output: Floats, assignment: npt.NDArray[np.integer[Any]]
) -> Floats:
    """(B, ...): probabilities of classes, or numbers, from the output of a network.

    assignment: (B, S), nodes of the answer; -1 for none
    """
    values = np.asarray(output, dtype=np.float64)
    if not spec.of_event:
        values = np.stack([_place(values, assignment[:, list(p.slots)]) for p in places_of(topology, spec.of)], 1)
    if spec.is_class:
        values = np.exp(values - values.max(axis=-1, keepdims=True, initial=-np.inf))
        values = values / values.sum(axis=-1, keepdims=True)
    elif not spec.of_event:
        values = values[..., 0]
        if spec.loss == "log_gaussian":
            values = 2 * np.sinh(values)
    return values.astype(np.float32)


def _place(output: Floats, nodes: npt.NDArray[np.integer[Any]]) -> Floats:
    """(B, C): the mean of (B, C, N, N) over all pairs of nodes (B, K); NaN where one is -1."""
    at = np.maximum(nodes, 0)
    rows = np.arange(len(at))[:, None, None]
    picked = output.transpose(0, 2, 3, 1)[rows, at[:, :, None], at[:, None, :]].mean(axis=(1, 2))
    return np.where((nodes >= 0).all(axis=1, keepdims=True), picked, np.nan)


def reordered(
    spec: HeadSpec,
    topology: Topology,
    values: Floats,
    before: npt.NDArray[np.integer[Any]],
    after: npt.NDArray[np.integer[Any]],
) -> Floats:
    """What a head says of the places of an assignment, for the same with interchangeable particles exchanged."""
    if spec.of_event:
        return values
    result = np.full_like(values, np.nan)
    places = [list(place.slots) for place in places_of(topology, spec.of)]
    for k, mine in enumerate(places):
        objects = np.sort(after[:, mine], axis=1)
        for j, other in enumerate(places):
            same = (objects == np.sort(before[:, other], axis=1)).all(axis=1) & (objects >= 0).all(axis=1)
            result[same, k] = values[same, j]
    return result


def head_columns(name: str, spec: HeadSpec, topology: Topology, values: Floats) -> dict[str, Floats]:
    """The columns of a result, (n,) each."""
    columns = {}
    for k, place in enumerate(places_of(topology, spec.of)):
        here = values if spec.of_event else values[:, k]
        title = f"{place.name.replace('.', '_')}_{name}" if place.name else name
        if not spec.is_class:
            columns[title] = here
        elif spec.width == 2:
            columns[title] = here[:, 1]
        else:
            columns |= {f"{title}_{c}": here[:, c] for c in range(spec.width)}
    return columns
