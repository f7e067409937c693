"""Training files of a mixture: which topology the events of each file are of.

Files of `pairton generate` say it themselves. For others it is written in front: `tth_allhad=events.h5`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pairton.errors import TrainingError
from pairton.events import Events
from pairton.events.mixed_events import into_mixture
from pairton.formats import expand, iterate, stored_topology
from pairton.topology import Topology
from pairton.topology.mixtures import Part, find_part, parts_of

__all__ = ["iterate_mixed"]


def iterate_mixed(paths: Sequence[str], mixture: Topology, **options: Any) -> Iterator[Events]:
    """Labelled events of a mixture, file by file; options as for `pairton.iterate`.

    Raises TrainingError where a file does not say which topology its events are of, or where one has no file.
    """
    files = [(part, file) for path in paths for part, file in _files(path, mixture)]
    there = {part.name for part, _ in files}
    if missing := [part.name for part in parts_of(mixture) if part.name not in there]:
        raise TrainingError(
            f"no file has events of {missing[0]}: a mixture is trained on events of each of its topologies"
        )
    for part, file in files:
        for events in iterate([file], topology=part.topology, **options):
            yield into_mixture(events, mixture)


def _files(path: str, mixture: Topology) -> list[tuple[Part, str]]:
    """The files of a path, with the topology that is named in front of it or stored in them."""
    parts = {part.name: part for part in parts_of(mixture)}
    name, equals, rest = path.partition("=")
    if equals and name in parts:
        return [(parts[name], file) for file in expand(rest)]
    found = []
    for file in expand(path):
        stored = stored_topology(file)
        part = None if stored is None else find_part(mixture, stored)
        if part is None:
            said = "does not say which topology its events are of" if stored is None else f"is of {stored.name}"
            raise TrainingError(
                f"{file} {said}, but the recipe is for {', '.join(parts)}: write one of them in front, as in "
                f"--data {next(iter(parts))}={file}"
            )
        found.append((part, file))
    return found
