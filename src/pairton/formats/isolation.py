"""Read untrusted files in a worker process, so that a crash of a library does not end the caller."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pairton._common.worker import Limits, Worker
from pairton.errors import InputError, PairtonError
from pairton.events import Events
from pairton.formats.base import Source
from pairton.formats.common import BadLabels
from pairton.formats.files import one_line
from pairton.topology import Topology, load_topology, parse_topology

__all__ = ["IsolatedSource", "Limits", "events_from_plain", "events_to_plain", "isolated_topology"]

FACTS = ("format", "n_events", "has_truth", "metadata", "tagging", "others", "read_as")
PARTS = ("objects", "truth", "weights", "ids", "columns", "metadata", "variations")


def events_to_plain(events: Events) -> dict[str, Any]:
    """Everything about events but their topology, as a mapping that `Worker` can send."""
    return {name: getattr(events, name) for name in PARTS}


def events_from_plain(parts: Mapping[str, Any], topology: Topology) -> Events:
    """The inverse of `events_to_plain`; ValueError, TypeError or EventsError if the parts do not fit together."""
    return Events(topology=topology, **{name: parts[name] for name in PARTS})


def isolated_topology(path: str, limits: Any) -> Topology | None:
    """The topology that a file stores, read in a worker process."""
    worker = Worker(partial, _plain_topology, path, name=path, limits=limits)
    found = worker.call("__call__")
    worker.close()
    return None if found is None else parse_topology(found, path)


def _plain_topology(path: str) -> dict[str, Any] | None:
    from pairton.formats import stored_topology

    found = stored_topology(path)
    return None if found is None else found.to_dict()


class Reader:
    """A source in the worker process."""

    def __init__(self, path: str, format: str | None, topology: Topology | None, options: dict[str, Any]) -> None:
        from pairton.formats import open_source

        self._bad_labels = BadLabels()
        options = {"topology": topology, "bad_labels": self._bad_labels, **options}
        self._source = open_source(path, format, **options)

    def facts(self) -> dict[str, Any]:
        found = {name: getattr(self._source, name) for name in FACTS}
        return {**found, "topology": self._source.topology.to_dict()}

    def read(self, start: int, stop: int) -> dict[str, Any]:
        return events_to_plain(self._source.read(start, stop))

    def taggers(self) -> list[dict[str, Any]]:
        return self._source.taggers()

    def close(self) -> None:
        self._bad_labels.warn()


class IsolatedSource(Source):
    """A file that is open in a worker process."""

    def __init__(
        self,
        path: str,
        format: str | None = None,
        limits: Any = True,
        *,
        topology: Topology | str | Path | None = None,
        **options: Any,
    ) -> None:
        self.path = path
        tree = None if topology is None else load_topology(topology)
        options.pop("bad_labels", None)  # the worker process counts them itself
        self._worker = Worker(Reader, path, format, tree, options, name=path, limits=limits)
        try:
            facts = self._worker.call("facts")
            self.topology = parse_topology(facts["topology"], path)
            for name in FACTS:
                setattr(self, name, facts[name])
        except BaseException:
            self._worker.close()
            raise

    def taggers(self) -> list[dict[str, Any]]:
        return list(self._worker.call("taggers"))

    def read(self, start: int, stop: int) -> Events:
        parts = self._worker.call("read", start, stop)
        try:
            events = events_from_plain(parts, self.topology)
        except (ValueError, KeyError, TypeError, PairtonError) as error:
            raise InputError(
                f"{self.path}: its worker process sent invalid events ({one_line(error)}): the file may be damaged"
            ) from error
        if len(events) != stop - start:
            raise InputError(
                f"{self.path}: its worker process sent {len(events)} of the rows {start} to {stop}: the file may "
                "be damaged"
            )
        return events

    def close(self) -> None:
        if self._worker.close.alive:
            try:
                self._worker.call("close")
            finally:
                self._worker.close()
