"""The values of heads that a recipe declares, and their columns in a result.

    <head>                      the number, or P(class 1) for two classes
    <head>_0, <head>_1, ...     P(class) for three or more classes
    <particle>_<head>           the same for a particle or product of the answer; NaN if the answer has none

Outputs of a kinematic fit have columns too: `log_likelihood`, `<particle>_fitted_pt`, `<slot>_fitted_energy`, ...

A place is a particle or product that a head describes. Shapes: B events, N nodes, S slots, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.events.head_specs import HeadSpec, places_of
from pairton.topology import Topology

if TYPE_CHECKING:
    from pairton.models.storage import ModelInfo

__all__ = ["head_columns", "head_shape", "head_values", "output_columns", "place_sizes", "reordered"]

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


def head_shape(spec: HeadSpec, topology: Topology) -> tuple[int, ...]:
    """The shape of the values of a head for one event, as `head_values` returns them."""
    places = () if spec.of_event else (len(places_of(topology, spec.of)),)
    return (*places, spec.width) if spec.is_class else places


def head_values(spec: HeadSpec, topology: Topology, output: Floats, assignment: Ints) -> Floats:
    """(B, ...): probabilities of classes, or numbers, from the output of a network.

    assignment: (B, S), the nodes of the answer; -1 for none
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


def _place(output: Floats, nodes: Ints) -> Floats:
    """(B, C): the mean of (B, C, N, N) over all pairs of nodes (B, K); NaN where one is -1."""
    at = np.maximum(nodes, 0)
    rows = np.arange(len(at))[:, None, None]
    picked = output.transpose(0, 2, 3, 1)[rows, at[:, :, None], at[:, None, :]].mean(axis=(1, 2))
    return np.where((nodes >= 0).all(axis=1, keepdims=True), picked, np.nan)


def reordered(
    spec: HeadSpec,
    topology: Topology,
    values: Floats,
    before: Ints,
    after: Ints,
) -> Floats:
    """The values of a head after interchangeable particles were exchanged: assignments `before` and `after`."""
    if spec.of_event:
        return values
    result = np.full_like(values, np.nan)
    places = [list(place.slots) for place in places_of(topology, spec.of)]
    for k, place in enumerate(places):
        objects = np.sort(after[:, place], axis=1)
        for j, other in enumerate(places):
            same = (objects == np.sort(before[:, other], axis=1)).all(axis=1) & (objects >= 0).all(axis=1)
            result[same, k] = values[same, j]
    return result


def head_columns(name: str, spec: HeadSpec, topology: Topology, values: Floats) -> dict[str, Floats]:
    """The columns of one head in a result, (n,) each."""
    columns = {}
    for k, place in enumerate(places_of(topology, spec.of)):
        own = values if spec.of_event else values[:, k]
        title = f"{place.name.replace('.', '_')}_{name}" if place.name else name
        if not spec.is_class:
            columns[title] = own
        elif spec.width == 2:
            columns[title] = own[:, 1]
        else:
            columns |= {f"{title}_{c}": own[:, c] for c in range(spec.width)}
    return columns


def place_sizes(topology: Topology) -> dict[str, int]:
    """The sizes of output axes with one entry per slot, particle or neutrino of the answer."""
    return {"slot": len(topology.slots), "particle": len(topology.particles), "neutrino": len(topology.neutrinos)}


def output_columns(
    info: ModelInfo, described: Mapping[str, Floats], exchanged: tuple[Ints, Ints]
) -> dict[str, Floats]:
    """The columns of all outputs of a model besides the answer.

    described   declared heads, outputs with one entry per slot, particle or neutrino, and other outputs
    exchanged   the previous slot (n, S) and particle (n, P) of each, after sorting by pT
    """
    columns: dict[str, Floats] = {}
    for name, array in described.items():
        axes = info.outputs.get(name, ())
        if name in info.heads:
            columns |= head_columns(name, info.heads[name], info.topology, array)
        elif len(axes) == 1 and axes[0] in place_sizes(info.topology):
            columns |= _place_columns(name, axes[0], info.topology, array, exchanged)
        else:
            columns[name] = array
    return columns


def _place_columns(
    name: str, axis: str, topology: Topology, values: Floats, exchanged: tuple[Ints, Ints]
) -> dict[str, Floats]:
    """The columns (n,) of an output (n, places)."""
    slots, particles = exchanged
    if axis == "slot":
        titles, order = [slot.name for slot in topology.slots], slots
    elif axis == "particle":
        titles, order = [particle.name for particle in topology.particles], particles
    else:
        titles = [neutrino.name for neutrino in topology.neutrinos]
        owners = [neutrino.particle for neutrino in topology.neutrinos]
        order = (particles[:, owners, None] == np.array(owners)).argmax(axis=2)
    moved = np.take_along_axis(values, order, axis=1)
    return {f"{title.replace('.', '_')}_{name}": moved[:, k] for k, title in enumerate(titles)}
