"""What an export target is: a kind of ONNX file that a model can be written as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import nn

from pairton.events.nodes import Nodes
from pairton.models.storage import ModelInfo
from pairton.network import Network
from pairton.topology import Layout
from pairton.topology.kinds import KINDS

__all__ = ["Arrays", "Target", "some_events"]

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
