"""Reads the training files of a mixture, with the topology of the events in each file.

Files of `pairton generate` store their topology. For other files, write it in front: `tth_allhad=events.h5`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pairton.errors import PairtonError, TrainingError
from pairton.events import Events
from pairton.formats import expand, iterate, open_source, stored_topology
from pairton.topology import Topology, parse_topology
from pairton.topology.mixtures import Part, find_part, parts_of
from pairton.topology.selection import Selection

__all__ = ["iterate_mixed"]


def iterate_mixed(paths: Sequence[str], mixture: Topology, **options: Any) -> Iterator[Events]:
    """Yield labelled events of a mixture, file by file. `options` are those of `pairton.iterate`.

    Raises TrainingError if the topology of a file is not known, if a topology has no file, or if files were
    generated with different selections that remove events which the mixture selects.
    """
    files = [(part, file) for path in paths for part, file in _files(path, mixture)]
    names = {part.name for part, _ in files}
    if missing := [part.name for part in parts_of(mixture) if part.name not in names]:
        raise TrainingError(
            f"no file has events of {missing[0]}: a mixture is trained on events of each of its topologies"
        )
    _check_selections(files, mixture)
    for part, file in files:
        for events in iterate([file], topology=part.topology, **options):
            yield events.into_mixture(mixture)


def _check_selections(files: Sequence[tuple[Part, str]], mixture: Topology) -> None:
    """Refuse files of different selections: the network would take the difference for that of the topologies."""
    found = {file: _kept(part, file) for part, file in files}
    known = {file: kept for file, kept in found.items() if kept is not None}
    if len(set(known.values())) < 2:
        return
    for file, (selection, keep) in known.items():
        if keep == "reconstructible" or not selection.includes(mixture.selection):
            raise TrainingError(
                f"{file} was generated with --keep {keep} and the selection {selection}, other files were not: "
                "generate all with the selection of the recipe, or a looser one, or with --keep all"
            )


def _kept(part: Part, file: str) -> tuple[Selection, str] | None:
    """The selection and `--keep` that a file was generated with; None if another program wrote the file."""
    try:
        with open_source(file, topology=part.topology) as source:
            made = source.metadata.get("generator")
    except PairtonError:  # it may need options, which no file of `pairton generate` does
        return None
    if not isinstance(made, Mapping):
        return None
    if made["keep"] == "all":
        return Selection(), "all"
    return parse_topology(made["topology"], f"{file}: topology").selection, str(made["keep"])


def _files(path: str, mixture: Topology) -> list[tuple[Part, str]]:
    """The files of a path, each with the topology that is named in front of the path or stored in the file."""
    parts = {part.name: part for part in parts_of(mixture)}
    name, equals, rest = path.partition("=")
    if equals and name in parts:
        return [(parts[name], file) for file in expand(rest)]
    found = []
    for file in expand(path):
        stored = stored_topology(file)
        part = find_part(mixture, stored)
        if part is None:
            problem = "does not say which topology its events are of" if stored is None else f"is of {stored.name}"
            raise TrainingError(
                f"{file} {problem}, but the recipe is for {', '.join(parts)}: write one of them in front, as in "
                f"--data {next(iter(parts))}={file}"
            )
        found.append((part, file))
    return found
