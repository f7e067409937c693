"""Write events: batches of bounded size, the same columns in all chunks, and a text that describes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from pairton._common.configuration import parse_json
from pairton._version import __version__
from pairton.errors import FormatError, OutputError, TopologyError, shown
from pairton.events import Events
from pairton.events.event_checks import MARKS
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import mass_of
from pairton.formats.column_files import DEFAULT_CHUNK, ColumnWriter, check_column
from pairton.formats.flat_objects import FlatObjects
from pairton.topology import Topology, collection_name, parse_topology
from pairton.topology.kinds import KINDS

__all__ = ["KEY", "EventWriter", "Layout", "Stored", "stored_fields"]

KEY = "pairton"  # name of the attribute (HDF5), string (ROOT) or schema entry (Parquet)
VERSION = 1
Layout = Callable[[Events], Mapping[str, Any]]  # from some events to the columns of the file, but for kept ones


@dataclass(frozen=True)
class Stored:
    """The content of the text; empty if another program wrote the file."""

    topology: Topology | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = ()
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)  # kind -> fields beyond the four-momentum

    def to_json(self) -> str:
        content = {
            "format_version": VERSION,
            "pairton_version": __version__,
            "topology": None if self.topology is None else self.topology.to_dict(),
            "metadata": dict(self.metadata),
            "columns": list(self.columns),
            "fields": {kind: list(names) for kind, names in self.fields.items()},
        }
        try:
            return json.dumps(content)
        except (TypeError, ValueError) as error:
            raise OutputError(
                f"metadata cannot be written as JSON ({error}): use plain numbers and text"
            ) from None

    @staticmethod
    def from_json(text: str | None, path: str, *, tree: bool = False) -> Stored:
        """Read the text. The topology is read only with `tree`, so that an invalid one can be replaced."""
        if text is None:
            return Stored()
        try:
            content = parse_json(text, path, FormatError)
            version, topology = content["format_version"], content["topology"]
            metadata, columns = dict(content["metadata"]), tuple(content["columns"])
            fields = {str(kind): tuple(names) for kind, names in content.get("fields", {}).items()}
        except (ValueError, KeyError, TypeError, AttributeError, FormatError):
            raise FormatError(
                f"{path}: the description that Pairton stored in this file ({KEY}) is damaged: convert it again"
            ) from None
        if version not in range(VERSION + 1):
            newer = shown(content.get("pairton_version"))
            raise FormatError(f"{path}: written by a newer version of Pairton ({newer}): update Pairton")
        if topology is None or not tree:
            return Stored(None, metadata, columns, fields)
        try:
            return Stored(parse_topology(topology, f"{path}: topology"), metadata, columns, fields)
        except TopologyError as error:
            raise TopologyError(f"{error} (or read this file with --topology)") from None


class EventWriter(ColumnWriter):
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
        if odd := _content(events) ^ _content(self._like):
            raise OutputError(
                f"{self.path}: only some inputs have {', '.join(sorted(odd))}: write them to separate files"
            )


def _content(events: Events) -> set[str]:
    """What all events of a file must have, in words."""
    found = {name for name in ("truth", "weights") if getattr(events, name) is not None}
    found |= {f"{name} of {collection_name(kind)}" for kind in events.objects for name in _further(events, kind)}
    return found | {f"the column {name}" for name in events.columns}


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
            momentum = {"pt": flat["pt"]} | ({} if KINDS[kind].transverse else {"mass": mass})
            for name, values in {**momentum, **differing}.items():
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
