"""Base class of writers: batches of bounded size, the same columns in all chunks, and atomic files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from pairton._common.atomic import Replacement, output_errors
from pairton.errors import OutputError, PairtonError
from pairton.events import Events
from pairton.events.events import MARKS
from pairton.events.inputs import DEFAULT_FIELDS, MOMENTUM
from pairton.formats.base import DEFAULT_CHUNK, Writer
from pairton.formats.columns import objects_from_flat
from pairton.formats.files import one_line
from pairton.formats.stored import Stored
from pairton.topology import Topology, collection_name
from pairton.topology.selection import TRANSVERSE

__all__ = ["FileWriter", "column_kind", "stored_fields", "writing_errors"]

NUMBERS = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)


class FileWriter(Writer):
    """Collects events in batches of `batch`; each format defines how to begin, append to and finish a file."""

    batch = DEFAULT_CHUNK

    def __init__(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> None:
        self.path, self.topology, self.metadata = path, topology, dict(metadata)
        self.columns: tuple[str, ...] = ()
        self.fields: dict[str, list[str]] = {}
        self._new = Replacement(path)
        self._waiting: list[Events] = []
        self._like: Events | None = None  # without rows; has the columns of the first chunk, which all must have
        self._begun = False

    # -- defined by each format ----------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, temporary: Path, first: Events) -> None:
        """Create the file with the columns of `first`."""

    @abstractmethod
    def _append(self, events: Events) -> None:
        """Write one batch."""

    @abstractmethod
    def _finish(self) -> None:
        """Write the end of the file and close it."""

    @abstractmethod
    def _release(self) -> None:
        """Close the file after a failure; must not raise."""

    # -- shared by all formats -----------------------------------------------------------------------------

    def write(self, events: Events) -> None:
        self._check(events)
        start = 0
        while start < len(events):  # batches are full, so that they end at the end of a chunk of the file
            room = self.batch - sum(map(len, self._waiting))
            self._waiting.append(events[start : start + room])
            start += room
            if start <= len(events):
                self._flush()

    def close(self) -> None:
        try:
            self._flush()
            with writing_errors(self.path):
                self._finish()
        except BaseException:
            self.abort()
            raise
        self._new.commit()

    def abort(self) -> None:
        self._release()
        self._new.discard()

    def _flush(self) -> None:
        empty = self._like if self._like is not None else _no_events(self.topology)
        events = Events.concatenate(self._waiting) if self._waiting else empty
        self._waiting = []
        with writing_errors(self.path):
            if not self._begun:
                self.columns = tuple(events.columns)
                self.fields = {kind: _further(events, kind) for kind in events.objects}
                self._begin(self._new.temporary, events)
                self._begun = True
            if len(events):
                self._append(events)

    def _about(self) -> str:
        """The JSON text that describes the file."""
        return Stored(self.topology, self.metadata, self.columns, self.fields).to_json()

    def _check(self, events: Events) -> None:
        if events.topology != self.topology:
            raise OutputError(
                f"{self.path}: cannot write events of {events.topology.name} to a file of {self.topology.name}: "
                "read all inputs with one --topology"
            )
        for kind in TRANSVERSE.intersection(events.objects):
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


@contextmanager
def writing_errors(path: Path) -> Iterator[None]:
    """Turn errors of libraries, such as a full disk, into an OutputError."""
    try:
        with output_errors(path):
            yield
    except PairtonError:
        raise
    except (
        RuntimeError,
        ValueError,
        TypeError,
    ) as error:  # h5py, uproot and Arrow raise these if they cannot write something
        raise OutputError(f"{path}: cannot be written ({one_line(error)}); nothing was left behind") from error


def _no_events(topology: Topology) -> Events:
    none = np.zeros(0)
    objects = {}
    for kind in topology.kinds:
        fields = dict.fromkeys((*MOMENTUM, *DEFAULT_FIELDS.get(kind, ())), none)
        objects[kind] = objects_from_flat(none.astype(int), fields)
    return Events(objects, topology)


def _further(events: Events, kind: str) -> list[str]:
    """Fields beyond the four-momentum."""
    return [name for name in ak.fields(events.objects[kind]) if name not in (*MOMENTUM, *MARKS)]


def stored_fields(events: Events, kind: str) -> list[str]:
    """Fields of a kind to write; transverse objects have neither eta nor energy."""
    momentum = [name for name in MOMENTUM if kind not in TRANSVERSE or name in ("pt", "phi")]
    return momentum + _further(events, kind)


def column_kind(column: Any, name: str, path: Path) -> tuple[str, ak.Array]:
    """`dense` (numbers of one shape) or `jagged` (a list of numbers per event); OutputError for other types."""
    array = ak.Array(column)
    if not ak.fields(array):
        parts = str(array.type).split(" * ")[1:]
        if parts[-1] in NUMBERS:
            if all(part.isdigit() for part in parts[:-1]):
                return "dense", array
            if parts[:-1] == ["var"]:
                return "jagged", array
    raise OutputError(
        f"{path}: column {name} has the type {array.type}, but only numbers and lists of numbers can be written: "
        "do not keep it"
    )
