"""Read untrusted files in a worker process, so that a crash of a library does not end the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pairton._common.worker import Limits, Worker
from pairton.errors import InputError, PairtonError
from pairton.events import Events
from pairton.formats.base import Source
from pairton.formats.files import one_line
from pairton.formats.truth import BadLabels
from pairton.topology import Topology, parse_topology

__all__ = ["IsolatedSource", "Limits", "Reader", "events_from_plain", "events_to_plain"]

FACTS = ("format", "n_events", "has_truth", "metadata", "tagging", "others", "read_as", "traced")
PARTS = ("objects", "truth", "weights", "ids", "columns", "metadata", "variations")


def events_to_plain(events: Events) -> dict[str, Any]:
    """Everything about events but their topology, as a mapping that `Worker` can send."""
    return {name: getattr(events, name) for name in PARTS}


def events_from_plain(parts: Mapping[str, Any], topology: Topology) -> Events:
    """The inverse of `events_to_plain`; ValueError, TypeError or EventsError if the parts do not fit together."""
    return Events(topology=topology, **{name: parts[name] for name in PARTS})


class Reader:
    """An open file in the worker process; all answers are plain data."""

    def __init__(self, open_file: Callable[..., Any], path: str, format: str | None) -> None:
        self._file, self._bad_labels = open_file(path, format), BadLabels()
        self._sources: list[Source] = []

    def stored_topology(self) -> dict[str, Any] | None:
        found: Topology | None = self._file.stored_topology
        return None if found is None else found.to_dict()

    def open(self, options: dict[str, Any]) -> dict[str, Any]:
        """Facts about the events, and the number with which `call` reads them."""
        source = self._file.source(**options, bad_labels=self._bad_labels)
        self._sources.append(source)
        facts = {name: getattr(source, name) for name in FACTS}
        return {**facts, "topology": source.topology.to_dict(), "number": len(self._sources) - 1}

    def read(self, number: int, start: int, stop: int) -> dict[str, Any]:
        return events_to_plain(self._sources[number].read(start, stop))

    def taggers(self, number: int) -> list[dict[str, Any]]:
        return self._sources[number].taggers()

    def close(self) -> None:
        self._bad_labels.warn()


class IsolatedSource(Source):
    """Events of a file that is open in a worker process."""

    def __init__(self, worker: Worker, path: str, options: Mapping[str, Any]) -> None:
        self.path, self._worker = path, worker  # the worker process counts bad labels itself
        facts = worker.call("open", {name: value for name, value in options.items() if name != "bad_labels"})
        self._skips = options.get("where") is not None  # rows
        self._number, self.topology = facts["number"], parse_topology(facts["topology"], path)
        for name in FACTS:
            setattr(self, name, facts[name])

    def taggers(self) -> list[dict[str, Any]]:
        return list(self._worker.call("taggers", self._number))

    def read(self, start: int, stop: int) -> Events:
        parts = self._worker.call("read", self._number, start, stop)
        try:
            events = events_from_plain(parts, self.topology)
            if len(events) != stop - start and not self._skips:
                raise ValueError(f"{len(events)} of the rows {start} to {stop}")
        except (ValueError, KeyError, TypeError, PairtonError) as error:
            raise InputError(
                f"{self.path}: its worker process sent invalid events ({one_line(error)}): the file may be damaged"
            ) from error
        return events

    def close(self) -> None:
        if self._worker.close.alive:
            try:
                self._worker.call("close")
            finally:
                self._worker.close()
