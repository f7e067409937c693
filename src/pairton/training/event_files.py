"""What an event file of SPANet asks of a recipe: inputs beyond the four-momentum, classes and numbers.

Inputs keep SPANet's preprocessing. The four-momentum has features of its own in our networks, whatever the event
file says of pt, eta, phi and mass. REGRESSIONS and CLASSIFICATIONS become heads; a recipe may change each by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairton.errors import TopologyError
from pairton.events.head_specs import EVENT, RESERVED, RESERVED_EVENT, places_of, slot_paths
from pairton.topology import Topology
from pairton.topology.spanet_event import MOMENTUM_FEATURES, PARTICLE, WHOLE, Feature, Quantity, SpanetEvent

__all__ = ["HEAD_WEIGHT", "event_defaults", "heads_of", "inputs_of"]

HEAD_WEIGHT = 0.2  # of the loss of each class or number, beside that of the assignment


def event_defaults(raw: Mapping[str, Any], event: SpanetEvent, topology: Topology) -> dict[str, Any]:
    """A recipe with what the event file says, where it says nothing itself."""
    given = raw.get("heads") or {}
    heads = heads_of(event, topology)
    both = {
        name: {**heads[name], **given[name]} if name in heads and isinstance(given[name], Mapping) else given[name]
        for name in given
    }
    return {**raw, "inputs": {**inputs_of(event), **(raw.get("inputs") or {})}, "heads": {**heads, **both}}


def inputs_of(event: SpanetEvent) -> dict[str, list[Any]]:
    """The inputs of each kind as a recipe has them."""
    return {
        group.kind: [_input(feature) for feature in group.features if feature.name not in MOMENTUM_FEATURES]
        for group in event.inputs
        if group.has_momentum or group.form != "GLOBAL"
    }


def _input(feature: Feature) -> Any:
    name = "_".join(["log"] * feature.log + ["normalize"] * feature.normalize)
    return {"field": feature.name, "transform": name} if name else feature.name


def heads_of(event: SpanetEvent, topology: Topology) -> dict[str, dict[str, Any]]:
    """The heads as a recipe has them, one for all interchangeable particles."""
    quantities = (*event.regressions, *event.classifications)
    owners = _owners(topology)
    wanted: dict[tuple[str, str], Quantity] = {}  # what a head is of, and its name -> the first of its quantities
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
        taken = {*heads, *(RESERVED_EVENT if of == EVENT else RESERVED)}
        title = name
        while title in taken:
            title = f"{of.replace('.', '_')}_{title}"
        heads[title] = head
    return heads


def _owners(topology: Topology) -> dict[str, str]:
    """SPANet's EVENT, t1/PARTICLE, t1/b -> what a head of ours is of: event, t, t.b."""
    found = {WHOLE: EVENT, **dict(zip(topology.labels("spanet"), slot_paths(topology), strict=True))}
    for particle in topology.particles:
        if (name := _spanet_name(topology, particle.slots)) is not None:
            found.setdefault(f"{name}/{PARTICLE}", particle.type)
    return found


def _spanet_name(topology: Topology, slots: tuple[int, ...]) -> str | None:
    """SPANet's name of the particle that has just these slots."""
    owners = [label.split("/")[0] for label in topology.labels("spanet")]
    mine = {owners[slot] for slot in slots}
    name = mine.pop() if len(mine) == 1 else None
    return name if name is not None and owners.count(name) == len(slots) else None


def _owner_at(topology: Topology, of: str, place: int) -> str:
    """SPANet's name of a place: EVENT, t1/PARTICLE, t1/b."""
    if of == EVENT:
        return WHOLE
    slots = places_of(topology, of)[place].slots
    if of in topology.types:
        return f"{_spanet_name(topology, slots)}/{PARTICLE}"
    return topology.labels("spanet")[slots[0]]
