"""A network of ours as a file with SPANet's inputs and outputs: `pairton export --like spanet`.

The exact sums give the probability of every candidate for a particle. SPANet's assignment output is that
distribution, normalised to 1, over all choices of objects for the decay products. Interchangeable particles have
the same distribution; a greedy choice takes the best candidate first, and then the best one without shared
objects. The detection probability of the j-th of them is the probability that at least j are present.

Shapes: B events, N objects of an input, T objects of all sequential inputs, D features, C candidates, K patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pairton.decoding.patterns import Pattern
from pairton.errors import ConfigError, ModelError
from pairton.events.head_specs import HeadSpec
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.export.targets.target import Arrays, Target, checked_limit, for_tree, layout_of
from pairton.export.targets.whole import ExactGraph
from pairton.models.storage import ModelInfo
from pairton.network import Network
from pairton.network.task_heads import TaskHead
from pairton.spanet.spanet_event import Feature, InputGroup, SpanetEvent, load_spanet_event
from pairton.spanet.spanet_onnx import features_of
from pairton.topology import JET, Layout, Topology, collection_name
from pairton.topology.extras import labels_of
from pairton.topology.kinds import KINDS
from pairton.topology.reading import load_topology

__all__ = ["SpanetTarget"]


class _Branch(NamedTuple):
    """A particle of SPANet."""

    type: str
    rank: int  # 1 for the first of interchangeable particles
    axes: tuple[tuple[int, ...], ...]  # for each equivalent order of its products, the slot on each axis


class SpanetGraph(ExactGraph):
    """A graph from SPANet's features to its distributions."""

    def __init__(
        self,
        network: Network,
        topology: Topology,
        layout: Layout,
        temperature: float,
        groups: tuple[InputGroup, ...],
        event: SpanetEvent | None,
    ) -> None:
        super().__init__(network, topology, layout, temperature)
        self.groups, self.branches = groups, _branches(topology, event)
        self.several = [g.kind for g in groups if g.form != "GLOBAL" and g.kind in topology.kinds]
        for kind in topology.kinds:
            _check_features(next((group for group in groups if group.kind == kind), None), kind, network.inputs)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs that `_outputs` names, from data and mask of each input."""
        objects, masks = {}, {}
        start: dict[str, Any] = {}  # kind -> place of its first object on the axes of the outputs
        size: Any = 0
        unused = torch.zeros(1)
        for group, data, mask in zip(self.groups, inputs[::2], inputs[1::2], strict=True):
            if group.kind not in self.topology.kinds:  # a graph must use all its inputs
                unused = unused + 0 * data.sum() + 0 * mask.sum()
                continue
            objects[group.kind], masks[group.kind] = _columns(data, group, self.network.inputs), mask
            if group.kind in self.several:
                start[group.kind], size = size, size + data.shape[1]
        summed = self.summed(objects, masks)
        # places that a padded object shares with another one get no probability from it
        places = [start.get(kind, 0) + torch.arange(objects[kind].shape[1]) for kind in self.order]
        place = torch.cat(places).clamp(max=size - 1)  # (N,)
        answers = []
        for branch in self.branches:
            at = place[summed.at[f"objects {branch.type}"]]  # (C, slots)
            answers.append(_dense(branch, summed.present[branch.type], at, size))
        answers[0] = answers[0] + unused.sum()
        chances = (summed.sums - summed.sums.amax(dim=0)).exp()
        chances = chances / chances.sum(dim=0)  # (K, B)
        for branch in self.branches:  # the probability that at least `rank` particles of the type are present
            patterns = self.sums.tables.patterns
            enough = [_count(self.topology, each, branch.type) >= branch.rank for each in patterns]
            answers.append((chances * torch.tensor(enough, dtype=chances.dtype)[:, None]).sum(dim=0))
        heads = self.network.heads.items()
        for name, spec in _heads({name: head.spec for name, head in heads if isinstance(head, TaskHead)}):
            value = summed.outputs[name]
            answers.append(torch.softmax(value, dim=-1) if spec.is_class else value)
        return tuple(answers)


def _dense(branch: _Branch, present: Tensor, place: Tensor, size: Any) -> Tensor:
    """(B, T, ..., T): the distribution of a particle over its objects, from that of candidates (C, B)."""
    values = present / present.sum(dim=0).clamp(min=1e-30) / len(branch.axes)
    indices = []
    for axes in branch.axes:
        index = torch.zeros_like(place[:, 0])
        for slot in axes:
            index = index * size + place[:, slot]
        indices.append(index)
    width = len(branch.axes[0])
    where = torch.cat(indices)[:, None].expand(-1, values.shape[1])  # (orders C, B)
    dense = torch.zeros(prod([size] * width), values.shape[1])
    dense = dense.scatter_add(0, where, values.repeat(len(branch.axes), 1))
    return dense.T.reshape(values.shape[1], *[size] * width)


def _branches(topology: Topology, event: SpanetEvent | None) -> list[_Branch]:
    labels = [tuple(label.split("/")) for label in labels_of(topology, "spanet")]
    seen: dict[str, int] = {}
    result = []
    for name in dict.fromkeys(owner for owner, _ in labels):
        slots = tuple(k for k, (owner, _) in enumerate(labels) if owner == name)
        kind = next((particle.type for particle in topology.particles if particle.slots == slots), None)
        if kind is None:
            raise ModelError(
                f"{topology.name} has no particle with exactly the slots of {name}, which SPANet needs: export "
                "without --like"
            )
        seen[kind] = seen.get(kind, 0) + 1
        products = [labels[slot][1] for slot in slots]
        wanted = products if event is None else [product.name for product in event.particles[name]]
        rows = {tuple(row) for row in topology.symmetries[:, list(slots)].tolist() if set(row) == set(slots)}
        orders = sorted(tuple(slots.index(slot) for slot in row) for row in rows)
        axes = tuple(tuple(order[products.index(product)] for product in wanted) for order in orders)
        result.append(_Branch(kind, seen[kind], axes))
    return result


def _count(topology: Topology, pattern: Pattern, type_name: str) -> int:
    """The number of particles of a type in a pattern."""
    below = [{*topology.of_type(name)[0].slots} for name, _ in pattern.placed]
    particles = [{*particle.slots} for particle in topology.of_type(type_name)]
    return sum(particle <= slots for slots in below for particle in particles)


# -- inputs and outputs ------------------------------------------------------------------------------------


def _default_groups(topology: Topology, inputs: Inputs) -> tuple[InputGroup, ...]:
    """The inputs of a graph without an event file: values without preprocessing."""
    named = {JET: "Source"} | dict(topology.extras.groups)
    groups = []
    for kind in topology.kinds:
        momentum = ("met", "phi") if KINDS[kind].transverse else ("mass", "pt", "eta", "phi")
        features = tuple(Feature(name) for name in (*momentum, *inputs.fields(kind)))
        form = "GLOBAL" if KINDS[kind].transverse else "SEQUENTIAL"
        groups.append(InputGroup(named.get(kind, collection_name(kind).capitalize()), form, features, kind))
    return tuple(groups)


def _outputs(topology: Topology, heads: Mapping[str, HeadSpec]) -> dict[str, tuple[str, ...]]:
    """The names of the outputs, in SPANet's order, and their axes after the axis of events."""
    labels = [label.split("/")[0] for label in labels_of(topology, "spanet")]
    axes = {f"{name}_assignment_probability": ("object",) * labels.count(name) for name in dict.fromkeys(labels)}
    axes |= {f"{name}_detection_probability": () for name in dict.fromkeys(labels)}
    for name, spec in _heads(heads):
        column = spec.columns[0]
        axes[column if column.startswith("EVENT/") else f"EVENT/{name}"] = ("class",) * spec.is_class
    return axes


def _heads(heads: Mapping[str, HeadSpec]) -> list[tuple[str, HeadSpec]]:
    """The heads of the event, in SPANet's order: regressions first."""
    of_event = [(name, spec) for name, spec in heads.items() if spec.of_event]
    return sorted(of_event, key=lambda item: (item[1].is_class, item[0]))


def _check_features(group: InputGroup | None, kind: str, inputs: Inputs) -> None:
    if group is None:
        raise ModelError(f"the model needs {collection_name(kind)}, which are not in the INPUTS of the event file")
    names = {feature.name for feature in group.features}
    lacking = [name for name in inputs.fields(kind) if name not in names]
    if not group.has_momentum:
        lacking.insert(0, "pt and phi")
    if lacking:
        raise ModelError(
            f"the model needs {lacking[0]} of {collection_name(kind)}, but {group.name} of the event file has "
            f"{', '.join(sorted(names))}"
        )


def _columns(data: Tensor, group: InputGroup, inputs: Inputs) -> Tensor:
    """(B, N, columns): pt, eta, phi, energy and further inputs, from SPANet's features (B, N, D)."""
    columns = zip(group.features, data.unbind(dim=-1), strict=True)
    known = {feature.name: torch.exp(values) - 1 if feature.log else values for feature, values in columns}
    pt = known["pt"] if "pt" in known else known["met"]
    eta, phi = known.get("eta", torch.zeros_like(pt)), known.get("phi")
    if phi is None:
        gap = "_" if "sin_phi" in known and "cos_phi" in known else ""
        phi = torch.atan2(known[f"sin{gap}phi"], known[f"cos{gap}phi"])
    energy = next((known[name] for name in ("energy", "e") if name in known), None)
    if energy is None:
        momentum = pt * (torch.exp(eta) + torch.exp(-eta)) / 2  # cosh and expm1 cannot be exported
        mass = next((known[name] for name in ("mass", "m") if name in known), torch.zeros_like(pt))
        energy = torch.sqrt(momentum * momentum + mass * mass)
    return torch.stack([pt, eta, phi, energy, *(known[name] for name in inputs.fields(group.kind))], dim=-1)


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
        if network.config.tokens:
            raise ModelError(
                "a network with tokens answers step by step and has no such distributions: use a model without "
                "tokens, such as one of the recipe cpu"
            )
        event = None if topology is None else load_spanet_event(topology)
        if topology is not None and event is None:
            raise ConfigError(f"--topology {topology}: not an event file of SPANet, which --like spanet needs")
        network, info = for_tree(network, info, topology)
        super().__init__(network, info)
        tree = info.topology if topology is None else load_topology(topology)
        if tree.alternatives:
            raise ModelError(
                f"{tree.name} has several topologies, which SPANet's outputs have no place for: export the whole "
                "reconstruction"
            )
        groups = _default_groups(tree, info.inputs) if event is None else event.inputs
        limit = checked_limit(tree, max_objects)
        temperature = info.temperatures[0] if info.decoding == "exact" and info.temperatures else 1.0
        self.tree, self.groups = tree, groups
        self.graph = SpanetGraph(network, tree, layout_of(tree, limit), temperature, groups, event)
        self.outputs = _outputs(tree, info.heads)
        varying = {
            f"{g.name}_{part}": {0: "batch_size", 1: f"num_{g.name}"} for g in groups for part in ("data", "mask")
        }
        every = "_and_".join(f"num_{group.name}" for group in groups if group.kind in self.graph.several)
        for name, axes in self.outputs.items():
            varying[name] = {0: "batch_size"} | {k: every for k, axis in enumerate(axes, 1) if axis == "object"}
        self.varying = varying
        self.limited_to(tree, limit, further=1, events=4)
        self.about = {
            "graph": self.name,
            **self.about,
            "features": {group.name: [feature.name for feature in group.features] for group in groups},
            "logarithms": {group.name: [f.name for f in group.features if f.log] for group in groups},
        }

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
