"""Checks of the arrays that make `Events`, and how the arrays of several parts are joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError
from pairton.events.objects import check_fields
from pairton.topology import collection_name

if TYPE_CHECKING:
    from pairton.events.events import Events

__all__ = [
    "check_parts",
    "check_shapes",
    "check_truth",
    "check_variations",
    "joined_column",
    "joined_objects",
]

MARKS = ("index", "usable")  # fields that readers add: see `make_objects`
MAX_WEIGHT = 1e100  # sums of squares stay finite


def joined_column(name: str, parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], np.ndarray) and parts[0].dtype.kind == "U":  # such as names of files
        return np.concatenate(parts)
    joined = ak.concatenate(parts)
    if "float" in str(ak.type(joined)) and not any("float" in str(ak.type(ak.Array(part))) for part in parts):
        raise EventsError(  # int64 and uint64 would become doubles, which have 53 bits
            f"the column {name} has integers of different types, which no integer type holds: read the parts "
            "separately, or without this column"
        )
    return joined


def joined_objects(kind: str, parts: Sequence[Events]) -> ak.Array:
    """The objects of all parts, with the fields that all have, and `index` and `usable` if any part has them."""
    fields = [ak.fields(part.objects[kind]) for part in parts]
    in_all, in_any = set.intersection(*map(set, fields)), set.union(*map(set, fields))
    shared = [name for name in fields[0] if name in in_all and name not in MARKS]
    arrays = []
    for part in parts:
        objects = part.objects[kind][shared]
        for mark, values in zip(MARKS, ("stored_index", "usable"), strict=True):
            if mark in in_any:
                objects = ak.with_field(objects, getattr(part, values)[kind], mark)
        arrays.append(ak.to_packed(objects))  # a slice would bring all objects of its array
    return ak.with_name(ak.concatenate(arrays), "Momentum4D")


def check_shapes(events: Events) -> None:
    topology, slots = events.topology, len(events.topology.slots)
    expected: tuple[tuple[str, Any, tuple[int, ...], str], ...] = (
        ("ids", events.ids, (2,), ", but must be (events, 2): source and number"),
        ("weights", events.weights, (), ": give one number per event"),
        ("truth", events.truth, (slots,), f", but {topology.name} has {slots} slots: give one column per slot"),
    )
    lengths = {name: len(column) for name, column in events.columns.items()}
    lengths |= {collection_name(kind): len(array) for kind, array in events.objects.items()}
    for name, array, shape, remedy in expected:
        if array is not None:
            if not array.ndim or array.shape[1:] != shape:
                raise EventsError(f"{name} has the shape {array.shape}{remedy}")
            lengths[name] = len(array)
    for name, length in lengths.items():
        if length != len(events):
            raise EventsError(
                f"{name} has {length} rows, but there are {len(events)} events: give one row per event"
            )
    if events.weights is not None and (huge := np.abs(events.weights) > MAX_WEIGHT).any():
        row = int(huge.argmax())
        raise EventsError(f"the weight of event {row} is {events.weights[row]:g}: correct it, or use no weights")


def check_truth(events: Events, truth: npt.NDArray[np.int32]) -> None:
    for kind in events.topology.object_kinds:
        slots = [slot.index for slot in events.topology.slots if slot.kind == kind]
        positions, counts = np.sort(truth[:, slots], axis=1), events.counts[kind]
        outside = np.asarray(((positions < -1) | (positions >= counts[:, None])).any(axis=1))
        twice = ((positions[:, 1:] == positions[:, :-1]) & (positions[:, 1:] >= 0)).any(axis=1)
        for row in np.flatnonzero(outside | twice).tolist()[:1]:
            name = collection_name(kind)
            wrong = f"with the same {kind} in two slots: use -1 for both"
            if outside[row]:
                wrong = f"but it has {counts[row]} {name}: give positions of {name} from 0, -1 for an empty slot"
            raise EventsError(f"truth of event {row} is {truth[row].tolist()}, {wrong}")
    for particle in events.topology.particles:
        if particle.merged_slot >= 0:
            others = [slot for slot in particle.span if slot != particle.merged_slot]
            both = (truth[:, particle.merged_slot] >= 0) & (truth[:, others] >= 0).any(axis=1)
            for row in np.flatnonzero(both).tolist()[:1]:
                raise EventsError(
                    f"truth of event {row} is {truth[row].tolist()}, with {particle.name} both merged and "
                    "resolved: use -1 for its products, or for the whole"
                )


def check_variations(events: Events) -> None:
    for name, varied in events.variations.items():
        for kind, array in varied.items():
            what = f"variation {name!r}: {collection_name(kind)}"
            check_fields(what, array)
            same = kind in events.objects and len(array) == len(events)
            if not same or not np.array_equal(np.asarray(ak.num(array, axis=1)), events.counts[kind]):
                raise EventsError(
                    f"{what} differ in number from the nominal ones: give the same events and objects in the same "
                    "order, with other momenta"
                )


def check_parts(parts: Sequence[Events]) -> None:
    if not parts:
        raise EventsError("there are no events to concatenate: give at least one Events")
    first = parts[0]
    if any(part.topology != first.topology for part in parts):
        names = ", ".join(dict.fromkeys(part.topology.name for part in parts))
        raise EventsError(
            f"events of different topologies ({names}) cannot be concatenated: read them with one topology"
        )
    for name in ("truth", "weights"):
        with_it = sum(getattr(part, name) is not None for part in parts)
        if with_it not in (0, len(parts)):
            raise EventsError(
                f"{with_it} of {len(parts)} parts have {name}, but all or none must: add or remove it"
            )
    if any(set(part.variations) != set(first.variations) for part in parts):
        names = ", ".join(sorted({name for part in parts for name in part.variations}))
        raise EventsError(f"only some parts have the variations {names}: add them to all parts, or remove them")
