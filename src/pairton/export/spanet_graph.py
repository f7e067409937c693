"""One of our networks as a graph with SPANet's inputs and outputs: `pairton export --like spanet`.

The exact sums give the probability of every candidate for a particle. SPANet's assignment output is that
distribution, normalised to 1, over all choices of objects for the decay products. Interchangeable particles have
the same distribution; a greedy choice takes the best candidate first, and then the best one without shared
objects. The detection probability of the j-th of them is the probability that at least j are present.

Shapes: B events, N objects of an input, T objects of all sequential inputs, D features, C candidates, K patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from pairton.decoding.patterns import plan_of
from pairton.errors import ModelError
from pairton.events.head_specs import HeadSpec
from pairton.events.inputs import Inputs
from pairton.export.exact_graph import ExactGraph
from pairton.export.set_graph import Tables
from pairton.network.network import Network
from pairton.network.task_heads import TaskHead
from pairton.spanet.spanet_event import Feature, InputGroup, SpanetEvent
from pairton.topology import JET, Layout, Topology, collection_name
from pairton.topology.extras import labels_of
from pairton.topology.kinds import KINDS

__all__ = ["SpanetGraph", "default_groups", "spanet_outputs"]


def default_groups(topology: Topology, inputs: Inputs) -> tuple[InputGroup, ...]:
    """The inputs of a graph without an event file: values without preprocessing."""
    named = {JET: "Source"} | dict(topology.extras.groups)
    groups = []
    for kind in topology.kinds:
        momentum = ("met", "phi") if KINDS[kind].transverse else ("mass", "pt", "eta", "phi")
        features = tuple(Feature(name) for name in (*momentum, *inputs.fields(kind)))
        form = "GLOBAL" if KINDS[kind].transverse else "SEQUENTIAL"
        groups.append(InputGroup(named.get(kind, collection_name(kind).capitalize()), form, features, kind))
    return tuple(groups)


def spanet_outputs(topology: Topology, heads: Mapping[str, HeadSpec]) -> dict[str, tuple[str, ...]]:
    """The names of the outputs, in SPANet's order, and their axes after the axis of events."""
    labels = [label.split("/")[0] for label in labels_of(topology, "spanet")]
    names = dict.fromkeys(labels)
    axes = {f"{name}_assignment_probability": ("object",) * labels.count(name) for name in names}
    axes |= {f"{name}_detection_probability": () for name in names}
    ordered = sorted((spec.is_class, name) for name, spec in heads.items() if spec.of_event)  # regressions first
    return axes | {_head_name(name, heads[name]): ("class",) * is_class for is_class, name in ordered}


def _head_name(name: str, spec: HeadSpec) -> str:
    return spec.columns[0] if spec.columns[0].startswith("EVENT/") else f"EVENT/{name}"


@dataclass(frozen=True)
class _Branch:
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
        self.groups = groups
        self.branches = _branches(topology, event)
        self.patterns = plan_of(topology, not self.has_patterns).patterns
        for kind in topology.kinds:
            group = next((group for group in groups if group.kind == kind), None)
            _check_features(group, kind, network.inputs)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs that `spanet_outputs` names, from data and mask of each input."""
        kinds = self.topology.kinds
        objects, masks, fed = {}, {}, {}
        unused = torch.zeros(1)
        for k, group in enumerate(self.groups):
            data, mask = inputs[2 * k], inputs[2 * k + 1]
            if group.kind not in kinds:  # a graph must use all its inputs
                unused = unused + 0 * data.sum() + 0 * mask.sum()
                continue
            fed[group.kind] = data.shape[1]
            objects[group.kind] = _columns(data, group, self.network.inputs)
            masks[group.kind] = mask
        summed = self._summed(objects, masks)
        place = self._places(summed.at, objects, fed)
        chances = (summed.sums - summed.sums.amax(dim=0)).exp()
        chances = chances / chances.sum(dim=0)  # (K, B)
        several = [group.kind for group in self.groups if group.form != "GLOBAL" and group.kind in kinds]
        sizes = {kind: fed[kind] + objects[kind].shape[1] for kind in several}  # room for padding
        start: Any = 0
        kept = []
        for kind in several:
            kept.append(start + torch.arange(fed[kind]))
            start = start + sizes[kind]
        at = torch.cat(kept)
        assignments = [self._dense(branch, summed.present, place, start, at) for branch in self.branches]
        assignments[0] = assignments[0] + unused.sum()
        detections = [self._detected(branch, chances) for branch in self.branches]
        return *assignments, *detections, *self._heads(summed.outputs)

    def _places(self, at: Tables, objects: dict[str, Tensor], fed: dict[str, Any]) -> dict[str, Tensor]:
        """Type -> (C, slots): the objects of each candidate, as places on the axes of the outputs."""
        kinds = self.topology.kinds
        start: Any = 0
        axis: dict[str, Tensor] = {}  # kind -> place of each of its objects on the axes of the outputs
        for group in self.groups:
            if group.form != "GLOBAL" and group.kind in kinds:
                axis[group.kind] = start + torch.arange(objects[group.kind].shape[1])
                start = start + fed[group.kind] + objects[group.kind].shape[1]
        order = [kind for k, kind in enumerate(kinds) if k != self.main] + [kinds[self.main]]
        nowhere = {kind: torch.zeros_like(objects[kind][0, :, 0]).long() for kind in kinds}
        where = torch.cat([axis.get(kind, nowhere[kind]) for kind in order])
        return {name: where[at[f"objects {name}"]] for name in self.topology.types}

    def _dense(
        self, branch: _Branch, present: dict[str, Tensor], place: dict[str, Tensor], size: Any, at: Tensor
    ) -> Tensor:
        """(B, T, ..., T): the distribution of a particle over the choices of its objects."""
        values = present[branch.type]  # (C, B)
        values = values / values.sum(dim=0).clamp(min=1e-30) / len(branch.axes)
        objects = place[branch.type]  # (C, slots)
        indices = []
        for axes in branch.axes:
            index = torch.zeros_like(objects[:, 0])
            for slot in axes:
                index = index * size + objects[:, slot]
            indices.append(index)
        width = len(branch.axes[0])
        where = torch.cat(indices)[:, None].expand(-1, values.shape[1])  # (orders C, B)
        length: Any = prod([size] * width)
        dense = torch.zeros(length, values.shape[1]).scatter(0, where, values.repeat(len(branch.axes), 1))
        dense = dense.T.reshape(values.shape[1], *[size] * width)
        for k in range(width):
            dense = dense.index_select(1 + k, at)
        return dense

    def _detected(self, branch: _Branch, chances: Tensor) -> Tensor:
        """(B,): the probability that at least `branch.rank` particles of its type are present."""
        enough = [_count(self.topology, pattern.placed, branch.type) >= branch.rank for pattern in self.patterns]
        return (chances * torch.tensor(enough, dtype=chances.dtype)[:, None]).sum(dim=0)

    def _heads(self, outputs: dict[str, Tensor]) -> list[Tensor]:
        heads = self.network.heads.items()
        specs = {name: head.spec for name, head in heads if isinstance(head, TaskHead) and head.spec.of_event}
        found = {_head_name(name, spec): (spec, outputs[name]) for name, spec in specs.items()}
        names = [name for name in spanet_outputs(self.topology, specs) if name in found]
        return [torch.softmax(found[n][1], dim=-1) if found[n][0].is_class else found[n][1] for n in names]


def _branches(topology: Topology, event: SpanetEvent | None) -> list[_Branch]:
    labels = [tuple(label.split("/")) for label in labels_of(topology, "spanet")]
    seen: dict[str, int] = {}
    result = []
    for name in dict.fromkeys(owner for owner, _ in labels):
        slots = tuple(k for k, (owner, _) in enumerate(labels) if owner == name)
        found = [particle for particle in topology.particles if particle.slots == slots]
        if not found:
            raise ModelError(
                f"{topology.name} has no particle with exactly the slots of {name}, which SPANet needs: export "
                "without --like"
            )
        seen[found[0].type] = seen.get(found[0].type, 0) + 1
        products = [labels[slot][1] for slot in slots]
        wanted = products if event is None else [product.name for product in event.particles[name]]
        rows = {tuple(row) for row in topology.symmetries[:, list(slots)].tolist() if set(row) == set(slots)}
        orders = sorted({tuple(slots.index(slot) for slot in row) for row in rows})
        axes = tuple(tuple(order[products.index(product)] for product in wanted) for order in orders)
        result.append(_Branch(found[0].type, seen[found[0].type], axes))
    return result


def _count(topology: Topology, placed: tuple[tuple[str, int], ...], type_name: str) -> int:
    """The number of particles of a type in a pattern."""
    below = {name: topology.of_type(name)[0] for name, _ in placed}
    return sum(
        particle.type == type_name and {*particle.slots} <= {*below[name].slots}
        for name, _ in placed
        for particle in topology.particles
    )


# -- features ----------------------------------------------------------------------------------------------


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
    known = {}
    for k, feature in enumerate(group.features):
        known[feature.name] = torch.exp(data[:, :, k]) - 1 if feature.log else data[:, :, k]
    pt = known["pt"] if "pt" in known else known["met"]
    sides = [(known.get(f"sin{gap}phi"), known.get(f"cos{gap}phi")) for gap in ("_", "")]
    phi = known.get("phi")
    for sine, cosine in sides:
        if phi is None and sine is not None and cosine is not None:
            phi = torch.atan2(sine, cosine)
    assert phi is not None  # the group has a direction
    eta = known.get("eta", torch.zeros_like(pt))
    momentum = pt * (torch.exp(eta) + torch.exp(-eta)) / 2  # cosh and expm1 cannot be exported
    energy = next((known[name] for name in ("energy", "e") if name in known), None)
    if energy is None:
        mass = next((known[name] for name in ("mass", "m") if name in known), torch.zeros_like(pt))
        energy = torch.sqrt(momentum * momentum + mass * mass)
    return torch.stack([pt, eta, phi, energy, *(known[name] for name in inputs.fields(group.kind))], dim=-1)
