"""What an export target is: a kind of ONNX file that a model can be written as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from pairton.decoding.patterns import exact_limit
from pairton.decoding.views import PRESENCE
from pairton.errors import ConfigError, ModelError
from pairton.events.nodes import MOST_OBJECTS, Nodes
from pairton.models.storage import ModelInfo
from pairton.network import Network
from pairton.topology import Layout, Topology, collection_name, load_topology, same_tree
from pairton.topology.kinds import KINDS

__all__ = ["Arrays", "Target", "by_kind", "checked_limit", "for_tree", "layout_of", "some_events"]

MOST = 12  # default of the largest number of objects of the main kind, for a whole reconstruction

Arrays = Mapping[str, npt.NDArray[Any]]


class Target(ABC):
    """A kind of ONNX file.

    A subclass takes its options as keyword arguments of `__init__`, where it raises an error if the model cannot
    be exported. Before a file is written, its outputs are compared with `expected` for all events of `cases`.
    """

    name: ClassVar[str]
    tolerance: ClassVar[float]  # of the outputs, relative to the largest value or 1

    about: Mapping[str, Any]  # metadata of the file, in addition to that of the model
    graph: nn.Module
    outputs: Mapping[str, tuple[str, ...]]  # name -> its axes after the axis of events; "node" varies
    varying: Mapping[str, Mapping[int, str]] | None = None  # names of axes of variable length, unlike a step's
    cases: list[Nodes]  # the first is used to trace the graph

    def __init__(self, network: Network, info: ModelInfo) -> None:
        self.network, self.info = network, info

    def inputs(self, nodes: Nodes) -> dict[str, npt.NDArray[Any]]:
        """The inputs of the file for some events: by default `<kind>` and `<kind>_mask`."""
        named: dict[str, npt.NDArray[Any]] = {}
        for kind, values in nodes.values.items():
            named |= {kind: values, f"{kind}_mask": nodes.masks[kind]}
        return named

    @abstractmethod
    def expected(self, nodes: Nodes) -> Arrays:
        """The outputs by name, computed without ONNX."""

    def difference(self, found: Arrays, nodes: Nodes) -> float:
        """How far the outputs of the file are from those expected."""
        away = 0.0
        for name, wanted in self.expected(nodes).items():
            if found[name].shape != wanted.shape:
                return np.inf
            largest = max(1.0, float(np.abs(wanted).max(initial=0)))
            away = max(away, float(np.abs(found[name] - wanted).max(initial=0)) / largest)
        return away

    def limited_to(self, topology: Topology, limit: int, further: int = 0, events: int = 16) -> None:
        """Set `cases`, and say in `about` how many objects the graph uses; `further` ones are left out."""
        fewest, kept = max(topology.slots_per_kind), layout_of(topology, limit)
        self.about = {"max_objects": limit, "objects": dict(zip(topology.kinds, kept, strict=True))}
        numbers = [min(limit, fewest + 1), *sorted({fewest, min(fewest + 2, limit), limit, limit + further})]
        self.cases = [some_events(self.network, layout_of(topology, number), events) for number in numbers]


def for_tree(network: Network, info: ModelInfo, topology: str | Path | Topology | None) -> tuple[Any, ModelInfo]:
    """A network and its info for one topology: its own, or one that a network of particles is asked for."""
    tree = info.mixture or info.topology if topology is None else load_topology(topology)
    if PRESENCE in network.outputs:
        return network.for_topology(tree), info.for_topology(tree, "to export")
    if not same_tree(tree, info.topology):
        raise ModelError(
            f"the model is for {info.topology.name}, but {tree.name} is another decay tree: give that of the model"
        )
    return network, info


def by_kind(kinds: tuple[str, ...], inputs: tuple[Tensor, ...]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Objects and masks by kind, from the inputs `kind, kind_mask, kind, kind_mask, ...`."""
    return dict(zip(kinds, inputs[::2], strict=False)), dict(zip(kinds, inputs[1::2], strict=False))


def layout_of(topology: Topology, main: int) -> Layout:
    """The layout with `main` objects of the main kind; other kinds have one object per slot, and at least one.

    >>> from pairton.topology import load_topology
    >>> layout_of(load_topology("ttbar_semilep"), 12)
    (12, 1, 1)
    """
    needed = zip(topology.kinds, topology.slots_per_kind, strict=True)
    return tuple(main if kind == topology.main_kind else max(1, slots) for kind, slots in needed)


def checked_limit(topology: Topology, requested: int | None, complete_only: bool = False) -> int:
    """How many objects of the main kind a graph with exact sums uses: by default 12, or as many as possible.

    >>> from pairton.topology import load_topology
    >>> [checked_limit(load_topology(name), None) for name in ("ttbar_allhad", "tttt_allhad")]
    [12, 12]
    """
    fewest = max(topology.slots_per_kind)
    limit = max(min(MOST, exact_limit(topology)), fewest) if requested is None else requested
    if not fewest <= limit <= MOST_OBJECTS:
        raise ConfigError(
            f"max_objects is {limit}, but must be from {fewest} (slots of {topology.name}) to {MOST_OBJECTS}"
        )
    most = exact_limit(topology, complete_only)
    if limit > most:
        raise ModelError(
            f"{limit} {collection_name(topology.main_kind)} of {topology.name} need too many sums: lower "
            f"--max-objects to {most}, or export the network alone"
        )
    return limit


def some_events(network: Network, layout: Layout, events: int = 16) -> Nodes:
    """Realistic random objects. The last object of each kind is padding in the last event, if possible."""
    rng = np.random.default_rng(sum(layout))
    values, masks = {}, {}
    needed = zip(network.topology.kinds, layout, network.topology.slots_per_kind, strict=True)
    for kind, count, slots in needed:
        shape = (events, count)
        pt, phi = 25 + rng.exponential(50, shape), rng.uniform(-np.pi, np.pi, shape)
        eta = rng.normal(0, 1, shape) * (not KINDS[kind].transverse)
        energy = np.hypot(pt * np.cosh(eta), rng.uniform(3, 15, shape))
        further = [rng.random(shape) < 0.3 for _ in network.inputs[kind]]
        values[kind] = np.stack([pt, eta, phi, energy, *further], axis=2).astype(np.float32)
        masks[kind] = np.ones(shape, dtype=bool)
        masks[kind][-1, -1] = count <= slots
    return Nodes(values, masks)
