"""Write events: batches of bounded size, and the same columns in all chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import OutputError
from pairton.events import Events
from pairton.events.event_checks import MARKS
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import mass_of
from pairton.formats.base import DEFAULT_CHUNK, Writer
from pairton.formats.column_files import ColumnWriter, check_column
from pairton.formats.flat_objects import FlatObjects
from pairton.formats.stored import KEY, Stored
from pairton.topology import Topology, collection_name
from pairton.topology.kinds import KINDS

__all__ = ["EventWriter", "Layout", "stored_fields"]

Layout = Callable[[Events], Mapping[str, Any]]  # from some events to the columns of the file, but for kept ones


class EventWriter(ColumnWriter, Writer):
    """Collects events in batches of `batch`, and writes the columns that the layout of a format makes of them."""

    batch = DEFAULT_CHUNK
    tree, key = "events", KEY

    def __init__(
        self,
        path: Path,
        topology: Topology,
        metadata: Mapping[str, Any],
        container: str,
        layout: Layout,
        kept: str = "",
        padding: float = 0.0,
    ) -> None:
        """`kept`: beginning of the names of kept columns in the file. `padding`: see `ColumnFile.begin`."""
        super().__init__(path, container, padding)
        self.topology, self.metadata = topology, dict(metadata)
        self._layout, self._kept = layout, kept
        self._waiting: list[Events] = []
        self._like: Events | None = None  # without rows; has the columns of the first chunk, which all must have

    def write(self, events: Events) -> None:
        """Append some events."""
        events = _with_variations(events)
        self._check(events)
        start = 0
        while start < len(events):  # batches are full, so that they end at the end of a chunk of the file
            room = self.batch - sum(map(len, self._waiting))
            self._waiting.append(events[start : start + room])
            start += room
            if start <= len(events):
                self.flush()

    def flush(self) -> None:
        if not self._waiting and self._begun:
            return
        if self._like is None:
            self._like = _no_events(self.topology)
        events = Events.concatenate(self._waiting) if self._waiting else self._like
        self._waiting = []
        columns = dict(self._layout(events))
        kept = {self._kept + name: check_column(c, name, self.path) for name, c in events.columns.items()}
        reserved = {part for name, column in columns.items() for part in self._file.names(column, name)}
        for name, column in kept.items():
            if not reserved.isdisjoint(self._file.names(column, name)):
                raise OutputError(
                    f"{self.path}: the column {name} has the same name as a column of this format: do not keep it"
                )
        self.append(columns | kept)

    def about(self) -> str:
        """The JSON text that describes the file."""
        assert self._like is not None
        fields = {kind: _further(self._like, kind) for kind in self._like.objects}
        return Stored(self.topology, self.metadata, tuple(self._like.columns), fields).to_json()

    def _check(self, events: Events) -> None:
        if events.topology != self.topology:
            raise OutputError(
                f"{self.path}: cannot write events of {events.topology.name} to a file of {self.topology.name}: "
                "read all inputs with one --topology"
            )
        for kind in (kind for kind in events.objects if KINDS[kind].transverse):
            (wrong,) = np.nonzero(events.counts[kind] != 1)
            if len(wrong):
                raise OutputError(
                    f"{self.path}: an event has {events.counts[kind][wrong[0]]} {kind}, but must have one: remove "
                    f"such events, for example with `event: {{{kind}: 1}}` in the selection of the topology"
                )
        if self._like is None:
            self._like = events[:0]
            return
        like = self._like
        for name in ("truth", "weights"):
            if (getattr(events, name) is None) != (getattr(like, name) is None):
                raise OutputError(f"{self.path}: only some inputs have {name}: write them to separate files")
        if set(events.columns) != set(like.columns):
            odd = ", ".join(sorted(set(events.columns) ^ set(like.columns)))
            raise OutputError(
                f"{self.path}: only some inputs have the columns {odd}: write them to separate files"
            )
        for kind in events.objects:
            if different := set(_further(events, kind)) ^ set(_further(like, kind)):
                raise OutputError(
                    f"{self.path}: only some inputs have {', '.join(sorted(different))} of "
                    f"{collection_name(kind)}: write them to separate files"
                )


def _with_variations(events: Events) -> Events:
    """The events with variations as further fields of their objects: pt_NAME, mass_NAME, and what else differs."""
    objects = dict(events.objects)
    for variation, kinds in events.variations.items():
        for kind, varied in kinds.items():
            nominal, counts = events.objects[kind], events.counts[kind]
            flat = {name: np.asarray(ak.flatten(varied[name])) for name in ak.fields(varied)}
            differing = {
                name: values
                for name, values in flat.items()
                if name not in ("pt", "energy", *MARKS) and not np.array_equal(values, ak.flatten(nominal[name]))
            }
            mass = mass_of(flat["pt"], flat["eta"], flat["energy"])
            for name, values in {"pt": flat["pt"], "mass": mass, **differing}.items():
                objects[kind] = ak.with_field(objects[kind], ak.unflatten(values, counts), f"{name}_{variation}")
    return events.replace(objects=objects) if events.variations else events


def _no_events(topology: Topology) -> Events:
    none = np.zeros(0)
    objects = {}
    for kind in topology.kinds:
        fields = dict.fromkeys((*MOMENTUM, *KINDS[kind].inputs), none)
        objects[kind] = FlatObjects(none.astype(int), fields).ragged()
    return Events(objects, topology)


def _further(events: Events, kind: str) -> list[str]:
    """Fields beyond the four-momentum."""
    return [name for name in ak.fields(events.objects[kind]) if name not in (*MOMENTUM, *MARKS)]


def stored_fields(events: Events, kind: str) -> list[str]:
    """Fields of a kind to write; transverse objects have neither eta nor energy."""
    momentum = [name for name in MOMENTUM if not KINDS[kind].transverse or name in ("pt", "phi")]
    return momentum + _further(events, kind)
