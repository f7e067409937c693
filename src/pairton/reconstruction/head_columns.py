"""The values of heads that a recipe declares, and their columns in a result.

    <head>                      the number, or P(class 1) for two classes
    <head>_0, <head>_1, ...     P(class) for three or more classes
    <particle>_<head>           the same for a particle or product of the answer; NaN if the answer has none

Outputs of a kinematic fit have columns too: `log_likelihood`, `<particle>_fitted_pt`, `<slot>_fitted_energy`, ...

A place is a particle or product that a head describes. Shapes: B events, N nodes, S slots, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded
from pairton.errors import ConfigError
from pairton.events import Events
from pairton.events.head_specs import HeadSpec, places_of
from pairton.events.inputs import MOMENTUM
from pairton.reconstruction.pattern_columns import pattern_columns, topology_columns
from pairton.reconstruction.result import Reconstruction
from pairton.topology import Topology
from pairton.topology.mixtures import parts_of

__all__ = [
    "DECODED",
    "MODEL_FOLD",
    "N_BTAGS",
    "check_columns",
    "head_columns",
    "head_shape",
    "head_values",
    "output_columns",
    "own_columns",
    "place_sizes",
    "place_titles",
    "reordered",
]

DECODED = ("edges", "triplets", "patterns")  # outputs for the decoding; others describe events
N_BTAGS, MODEL_FOLD = "n_btags", "model_fold"  # columns of some models

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


def place_titles(name: str, topology: Topology, of: str) -> list[str]:
    """The column of a head for the event, or for each of its particles or products."""
    return [f"{p.name.replace('.', '_')}_{name}" if p.name else name for p in places_of(topology, of)]


def head_columns(name: str, spec: HeadSpec, topology: Topology, values: Floats) -> dict[str, Floats]:
    """The columns of one head in a result, (n,) each."""
    columns = {}
    for k, title in enumerate(place_titles(name, topology, spec.of)):
        own = values if spec.of_event else values[:, k]
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
    topology: Topology,
    heads: Mapping[str, HeadSpec],
    outputs: Mapping[str, tuple[str, ...]],
    described: Mapping[str, Floats],
    exchanged: tuple[Ints, Ints],
) -> dict[str, Floats]:
    """The columns of all outputs of a model besides the answer.

    heads       the heads that a recipe declares
    outputs     the axes of all outputs
    described   declared heads, outputs with one entry per slot, particle or neutrino, and other outputs
    exchanged   the previous slot (n, S) and particle (n, P) of each, after sorting by pT
    """
    columns: dict[str, Floats] = {}
    for name, array in described.items():
        axes = outputs.get(name, ())
        if name in heads:
            columns |= head_columns(name, heads[name], topology, array)
        elif len(axes) == 1 and axes[0] in place_sizes(topology):
            columns |= _place_columns(name, axes[0], topology, array, exchanged)
        else:
            columns[name] = array
    return columns


@lru_cache
def own_columns(topology: Topology) -> frozenset[str]:
    """The names of all columns that results of a topology, or of a mixture, can have besides those of heads."""
    names = {N_BTAGS, MODEL_FOLD}
    for tree in (topology, *(part.topology for part in parts_of(topology))):
        none = ak.Array(np.zeros((0, 0)))
        objects = {kind: ak.zip(dict.fromkeys(MOMENTUM, none)) for kind in tree.kinds}
        events, found = Events(objects, tree, weights=()), Decoded.empty(tree, 0)
        more = {**topology_columns(tree, found), **pattern_columns(tree, found)}
        answer = found.assignment, np.zeros(0, np.uint8), found.event_probability, found.particle_probability
        reco = Reconstruction(events, *answer, found.exact, events.counts, more)
        names |= reco.to_columns().keys()
    return frozenset(names)


def check_columns(
    topology: Topology, heads: Mapping[str, HeadSpec], outputs: Mapping[str, tuple[str, ...]], source: str
) -> None:
    """Raise ConfigError if a head would replace a column of the results, or one of another head.

    outputs: the axes of the outputs that describe events, besides the declared heads
    """
    taken = dict.fromkeys(own_columns(topology), "results")
    order = np.zeros((0, len(topology.slots)), np.intp), np.zeros((0, len(topology.particles)), np.intp)
    sizes = place_sizes(topology)
    shapes = {name: tuple(sizes.get(axis, 1) for axis in axes) for name, axes in outputs.items()}
    shapes |= {name: head_shape(spec, topology) for name, spec in heads.items()}
    for name, shape in shapes.items():
        for column in output_columns(topology, heads, outputs, {name: np.zeros((0, *shape))}, order):
            if column in taken:
                raise ConfigError(
                    f"{source}heads.{name}: {taken[column]} already have a column {column}: rename the head"
                )
            taken[column] = f"the results of heads.{name}"


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
