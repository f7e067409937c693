"""Inputs and heads of a recipe from an event file of SPANet.

Inputs keep SPANet's preprocessing, except that our networks compute their own features of the four-momentum.
REGRESSIONS and CLASSIFICATIONS become heads, whose settings a recipe may change by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairton.errors import TopologyError
from pairton.events.head_specs import EVENT, places_of
from pairton.reconstruction.result import own_columns
from pairton.reconstruction.result_columns import place_titles
from pairton.spanet.spanet_event import MOMENTUM_FEATURES, PARTICLE, WHOLE, Feature, Quantity, SpanetEvent
from pairton.topology import Topology
from pairton.topology.extras import labels_of

__all__ = ["HEAD_WEIGHT", "event_defaults", "heads_of", "inputs_of"]

HEAD_WEIGHT = 0.2  # weight of the loss of each head, relative to that of the assignment


def event_defaults(raw: Mapping[str, Any], event: SpanetEvent, topology: Topology) -> dict[str, Any]:
    """Return a recipe with inputs and heads of the event file, unless the recipe has its own."""
    given = raw.get("heads") or {}
    heads = heads_of(event, topology)
    changed = {
        name: {**heads[name], **given[name]} if name in heads and isinstance(given[name], Mapping) else given[name]
        for name in given
    }
    return {**raw, "inputs": {**inputs_of(event), **(raw.get("inputs") or {})}, "heads": {**heads, **changed}}


def inputs_of(event: SpanetEvent) -> dict[str, list[Any]]:
    """The inputs of each kind, in the form of a recipe."""
    return {
        group.kind: [_input(feature) for feature in group.features if feature.name not in MOMENTUM_FEATURES]
        for group in event.inputs
        if group.has_momentum or group.form != "GLOBAL"
    }


def _input(feature: Feature) -> Any:
    name = "_".join(["log"] * feature.log + ["normalize"] * feature.normalize)
    return {"field": feature.name, "transform": name} if name else feature.name


def heads_of(event: SpanetEvent, topology: Topology) -> dict[str, dict[str, Any]]:
    """The heads, in the form of a recipe; interchangeable particles share one."""
    quantities = (*event.regressions, *event.classifications)
    owners = _owners(topology)
    wanted: dict[tuple[str, str], Quantity] = {}  # (what the head is of, its name) -> its first quantity
    for quantity in quantities:
        wanted.setdefault((owners[quantity.owner], quantity.name), quantity)
    paths = {quantity.path for quantity in quantities}
    heads: dict[str, dict[str, Any]] = {}
    for (of, name), quantity in wanted.items():
        columns = [f"{_owner_at(topology, of, k)}/{name}" for k in range(len(places_of(topology, of)))]
        if lacking := [column for column in columns if column not in paths]:
            raise TopologyError(
                f"{event.name}: {quantity.path} is asked for, but {lacking[0]} is not: interchangeable particles "
                "need the same regressions and classifications"
            )
        head: dict[str, Any] = {"kind": "class", "of": of, "column": columns, "weight": HEAD_WEIGHT}
        if quantity.loss is not None:
            head |= {"kind": "regression", "loss": quantity.loss}
        title = name
        while title in heads or own_columns(topology) & {*place_titles(title, topology, of)}:
            title = f"{of.replace('.', '_')}_{title}"
        heads[title] = head
    return heads


def _owners(topology: Topology) -> dict[str, str]:
    """SPANet's EVENT, t1/PARTICLE, t1/b -> the `of` of our heads: event, t, t.b."""
    paths = [slot.path for slot in topology.slots]
    found = {WHOLE: EVENT, **dict(zip(labels_of(topology, "spanet"), paths, strict=True))}
    for particle in topology.particles:
        if (name := _spanet_name(topology, particle.slots)) is not None:
            found.setdefault(f"{name}/{PARTICLE}", particle.type)
    return found


def _spanet_name(topology: Topology, slots: tuple[int, ...]) -> str | None:
    """SPANet's name of the particle with exactly these slots."""
    owners = [label.split("/")[0] for label in labels_of(topology, "spanet")]
    names = {owners[slot] for slot in slots}
    name = names.pop() if len(names) == 1 else None
    return name if name is not None and owners.count(name) == len(slots) else None


def _owner_at(topology: Topology, of: str, place: int) -> str:
    """SPANet's name of a place: EVENT, t1/PARTICLE, t1/b."""
    if of == EVENT:
        return WHOLE
    slots = places_of(topology, of)[place].slots
    if of in topology.types:
        return f"{_spanet_name(topology, slots)}/{PARTICLE}"
    return labels_of(topology, "spanet")[slots[0]]
