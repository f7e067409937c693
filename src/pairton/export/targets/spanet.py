"""The inputs and outputs of SPANet's own exports: `pairton export --like spanet`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pairton.errors import ConfigError, ModelError
from pairton.events.nodes import Nodes
from pairton.export.limits import checked_limit, layout_of, used_objects
from pairton.export.spanet_graph import SpanetGraph, default_groups, spanet_outputs
from pairton.export.targets.target import Arrays, Target, some_events
from pairton.models.storage import ModelInfo
from pairton.network import Network
from pairton.spanet.spanet_event import load_spanet_event
from pairton.spanet.spanet_onnx import features_of
from pairton.topology import same_tree
from pairton.topology.reading import load_topology

__all__ = ["SpanetTarget"]


class SpanetTarget(Target):
    """A network with the inputs and outputs of SPANet's own exports.

    topology       an event file of SPANet that defines the inputs: groups, features and their order; as in
                   SPANet's own exports, the caller takes logarithms. Without it, inputs have default names and no
                   preprocessing
    max_objects    largest number of objects of the main kind; others are ignored
    """

    name = "spanet"
    tolerance = 1e-3

    def __init__(
        self,
        network: Network,
        info: ModelInfo,
        *,
        topology: str | Path | None = None,
        max_objects: int | None = None,
    ) -> None:
        super().__init__(network, info)
        if network.config.tokens:
            raise ModelError(
                "a network with tokens answers step by step and has no such distributions: use a model without "
                "tokens, such as one of the recipe cpu"
            )
        event = None if topology is None else load_spanet_event(topology)
        if topology is not None and event is None:
            raise ConfigError(f"--topology {topology}: not an event file of SPANet, which --like spanet needs")
        tree = info.topology if topology is None else load_topology(topology)
        if not same_tree(tree, info.topology):
            raise ModelError(
                f"the model is for {info.topology.name}, but the event file for another decay tree: give the "
                "event file that the model was trained with"
            )
        if tree.alternatives:
            raise ModelError(
                f"{tree.name} has several topologies, which SPANet's outputs have no place for: export the whole "
                "reconstruction"
            )
        self.tree, self.groups = tree, default_groups(tree, info.inputs) if event is None else event.inputs
        groups = self.groups
        limit = checked_limit(tree, max_objects)
        temperature = info.temperatures[0] if info.decoding == "exact" and info.temperatures else 1.0
        self.graph = SpanetGraph(network, tree, layout_of(tree, limit), temperature, groups, event)
        self.outputs = spanet_outputs(tree, info.heads)
        varying = {
            f"{g.name}_{part}": {0: "batch_size", 1: f"num_{g.name}"} for g in groups for part in ("data", "mask")
        }
        several = [group.name for group in groups if group.form != "GLOBAL" and group.kind in tree.kinds]
        every = "_and_".join(f"num_{name}" for name in several)
        for name, axes in self.outputs.items():
            varying[name] = {0: "batch_size"} | {k: every for k, axis in enumerate(axes, 1) if axis == "object"}
        self.varying = varying
        self.about = {
            "graph": self.name,
            "max_objects": limit,
            "objects": used_objects(tree, limit),
            "features": {group.name: [feature.name for feature in group.features] for group in groups},
            "logarithms": {group.name: [f.name for f in group.features if f.log] for group in groups},
        }
        fewest = max(tree.slots_per_kind)
        numbers = [min(limit, fewest + 1), *sorted({fewest, min(fewest + 2, limit), limit, limit + 1})]
        self.cases = [some_events(network, layout_of(tree, number), events=4) for number in numbers]

    def inputs(self, nodes: Nodes) -> dict[str, npt.NDArray[Any]]:
        """Zeros for groups that the model does not use."""
        named: dict[str, npt.NDArray[Any]] = {}
        for group in self.groups:
            if group.kind in self.tree.kinds:
                mask = nodes.masks[group.kind]
                columns = self.info.inputs.columns(group.kind)
                data = features_of(group, columns, nodes.values[group.kind], mask)
            else:
                mask = np.ones((len(nodes.mask), 1), dtype=bool)
                data = np.zeros((len(mask), 1, len(group.features)), dtype=np.float32)
            named |= {f"{group.name}_data": data, f"{group.name}_mask": mask}
        return named

    def expected(self, nodes: Nodes) -> Arrays:
        with torch.inference_mode():
            outputs = self.graph(*(torch.from_numpy(array) for array in self.inputs(nodes).values()))
        return {name: output.numpy() for name, output in zip(self.outputs, outputs, strict=True)}
