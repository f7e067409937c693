"""Checks of the arrays that make up events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError
from pairton.events.objects import check_fields
from pairton.topology import collection_name

if TYPE_CHECKING:
    from pairton.events.events import Events

__all__ = ["check_events", "check_parts"]

MAX_WEIGHT = 1e100  # sums of squares stay finite


def check_events(events: Events) -> None:
    """Raise EventsError if lengths disagree, truth is out of range, or variations do not fit the objects."""
    _check_shapes(events)
    if events.truth is not None:
        _check_truth(events, events.truth)
    _check_variations(events)


def _check_shapes(events: Events) -> None:
    topology, n = events.topology, len(events)
    lengths = {name: len(column) for name, column in events.columns.items()}
    lengths |= {collection_name(kind): len(array) for kind, array in events.objects.items()}
    lengths["ids"] = len(events.ids)
    if events.ids.shape[1:] != (2,):
        raise EventsError(f"ids has the shape {events.ids.shape}, but must be (events, 2): source and number")
    if events.weights is not None:
        if events.weights.ndim != 1:
            raise EventsError(f"weights has the shape {events.weights.shape}: give one number per event")
        lengths["weights"] = len(events.weights)
        huge = np.abs(events.weights) > MAX_WEIGHT
        if huge.any():
            row = int(huge.argmax())
            raise EventsError(
                f"the weight of event {row} is {events.weights[row]:g}: correct it, or use no weights"
            )
    if events.truth is not None:
        lengths["truth"] = len(events.truth)
        if events.truth.shape[1:] != (len(topology.slots),):
            raise EventsError(
                f"truth has the shape {events.truth.shape}, but {topology.name} has {len(topology.slots)} slots: "
                "give one column per slot, or choose another topology"
            )
    for name, length in lengths.items():
        if length != n:
            raise EventsError(f"{name} has {length} rows, but there are {n} events: give one row per event")


def _check_truth(events: Events, truth: npt.NDArray[np.int32]) -> None:
    for kind in events.topology.object_kinds:
        slots = [slot.index for slot in events.topology.slots if slot.kind == kind]
        positions, name = truth[:, slots], collection_name(kind)
        wrong = ((positions < -1) | (positions >= events.counts[kind][:, None])).any(axis=1)
        if wrong.any():
            row = int(wrong.argmax())
            raise EventsError(
                f"truth of event {row} is {truth[row].tolist()}, but it has {events.counts[kind][row]} {name}: "
                f"give positions of {name}, counted from 0, and -1 for an empty slot"
            )
        ordered = np.sort(positions, axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
        if twice.any():
            row = int(twice.argmax())
            raise EventsError(
                f"truth of event {row} is {truth[row].tolist()}, with the same {kind} in two slots: use -1 for "
                "both"
            )


def _check_variations(events: Events) -> None:
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
    """Raise EventsError if events cannot be concatenated."""
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
