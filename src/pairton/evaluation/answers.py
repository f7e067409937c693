"""Files of answers, by Pairton or another program, so that all are evaluated in the same way.

Three layouts are recognised by their content: results of `pairton reconstruct` (Parquet, ROOT, HDF5, or a folder
of parts), predictions of SPANet (`TARGETS/<particle>/<product>`) and of HyPER (`OUTPUT/HyPER_best_<particle>`).
Objects are numbered within their kind, as in the input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import note_input
from pairton.decoding.patterns import plan_of
from pairton.errors import FormatError, InputError
from pairton.evaluation.evaluation import merged
from pairton.formats.base import damage
from pairton.formats.column_files import container_module
from pairton.formats.files import container_of
from pairton.formats.hdf5_files import Hdf5File
from pairton.reconstruction.provenance import KEY
from pairton.reconstruction.result_columns import slot_column
from pairton.reconstruction.writers import TREE
from pairton.topology import Particle, Topology
from pairton.topology.extras import labels_of

__all__ = ["Assignments", "read_assignments"]

HYPER_NAMES = {"t": "top"}  # HyPER's names of types, if they are not ours in lower case

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Assignments:
    """The answers of a file, in the order of the events."""

    path: str
    layout: str  # pairton, spanet or hyper
    assignment: Ints  # (n, S): index of the object in the input, -1 for none
    ids: npt.NDArray[np.uint64] | None = None  # (n, 2)
    event_probability: npt.NDArray[np.float64] | None = None  # (n,)
    particle_probability: npt.NDArray[np.float64] | None = None  # (n, P)
    pattern_probability: npt.NDArray[np.float64] | None = None  # (n, patterns)

    def __len__(self) -> int:
        return len(self.assignment)


def read_assignments(path: str | Path, topology: Topology) -> Assignments:
    """Read a file of answers for events of a topology, or a folder of parts."""
    note_input(path)
    with damage(str(path)):
        return _read(str(path), topology)


def _read(name: str, topology: Topology) -> Assignments:
    if Path(name).is_dir():
        return _parts(name, topology)
    if not Path(name).is_file():
        raise InputError(f"{name}: no such file; check the name and the folder")
    container = container_of(name)
    with closing(container_module(container).open_file(name)) as file:
        if container == "ROOT":
            if TREE not in file.trees:
                raise FormatError(
                    f"{name}: has no tree {TREE}, which `pairton reconstruct` writes: found {file.summary()}"
                )
            file = file.tree(TREE)
        if container != "HDF5":
            rows = file.n_events
            return _pairton(name, topology, file.columns, lambda column: file.read([column], 0, rows)[column])
        if file.text(KEY) is not None:
            return _pairton(name, topology, file.datasets(), file.array)
        if "TARGETS" in file:
            return _spanet(name, topology, file)
        if "OUTPUT" in file:
            return _hyper(name, topology, file)
        found = ", ".join(file.names()) or "nothing"
    raise FormatError(
        f"{name}: no assignments found: it has {found}, but results of Pairton have the attribute {KEY}, those of "
        "SPANet the group TARGETS, those of HyPER the group OUTPUT"
    )


def _parts(folder: str, topology: Topology) -> Assignments:
    """All parts of a result of `pairton reconstruct --jobs` or `--resume`, in order."""
    from pairton.reconstruction.provenance import read_result

    try:
        files = [Path(folder, part["name"]) for part in read_result(folder)["parts"]]
    except (KeyError, TypeError):
        raise InputError(f"{folder}: lists no parts: reconstruct again") from None
    if outside := [file for file in files if file.parent != Path(folder)]:
        raise InputError(f"{folder}: names {outside[0]}, a part in another folder: reconstruct again")
    joined: Assignments = merged([read_assignments(file, topology) for file in files])
    return replace(joined, path=folder)


def _pairton(path: str, topology: Topology, stored: Sequence[str], read: Callable[[str], Any]) -> Assignments:
    """The result of `pairton reconstruct`, with the names of its columns and a function that reads one."""

    def columns(names: list[str], kind: type) -> npt.NDArray[Any] | None:
        if any(name not in stored for name in names):
            return None
        return np.stack([np.asarray(read(name)).astype(kind) for name in names], axis=1)

    slots = [slot_column(slot) for slot in topology.slots]
    _need(path, "column", slots, stored)
    event = columns(["event_probability"], np.float64)
    return Assignments(
        path,
        "pairton",
        _stack(path, {name: np.asarray(read(name)) for name in slots}),
        columns(["event_source", "event_number"], np.uint64),
        None if event is None else event[:, 0],
        columns([f"{particle.name.replace('.', '_')}_probability" for particle in topology.particles], np.float64),
        columns([f"pattern_{pattern.key}" for pattern in plan_of(topology).patterns], np.float64),
    )


def _spanet(path: str, topology: Topology, file: Hdf5File) -> Assignments:
    wanted = [f"TARGETS/{label}" for label in labels_of(topology, "spanet")]
    _need(path, "dataset", wanted, file.datasets())
    return Assignments(path, "spanet", _stack(path, {name: file.array(name) for name in wanted}))


def _hyper(path: str, topology: Topology, file: Hdf5File) -> Assignments:
    """HyPER gives a set of jets per particle: those that are not in its children are its own."""
    wanted = {p.index: f"OUTPUT/HyPER_best_{_hyper_name(topology, p)}" for p in topology.particles}
    _need(path, "dataset", list(wanted.values()), file.datasets())
    jets = {}
    for particle in topology.particles:
        found = file.array(wanted[particle.index])
        if found.ndim != 2 or found.shape[1] != len(particle.slots):
            raise FormatError(
                f"{path}: {wanted[particle.index]} has the shape {found.shape}, but {particle.type} has "
                f"{len(particle.slots)} jets: give (events, {len(particle.slots)})"
            )
        jets[particle.index] = _clean(found)
    result = np.full((len(jets[0]), len(topology.slots)), -1, dtype=np.int32)
    for particle in topology.particles:
        if not particle.children:
            result[:, list(particle.slots)] = jets[particle.index]
            continue
        own = list(particle.own_slots)
        free = np.ones(jets[particle.index].shape, dtype=bool)
        for child in particle.children:
            free &= (jets[particle.index][:, :, None] != jets[child][:, None, :]).all(axis=2)
        left = np.argsort(~free, axis=1, kind="stable")[:, : len(own)]
        fits = free.sum(axis=1) == len(own)  # else its children are not inside it: no answer
        result[:, own] = np.where(fits[:, None], np.take_along_axis(jets[particle.index], left, axis=1), -1)
    return Assignments(path, "hyper", result)


def _hyper_name(topology: Topology, particle: Particle) -> str:
    same = topology.of_type(particle.type)
    name = HYPER_NAMES.get(particle.type, particle.type.lower())
    return f"{name}{same.index(particle) + 1}" if len(same) > 1 else name


def _stack(path: str, columns: Mapping[str, npt.NDArray[Any]]) -> Ints:
    """(n, S): the columns of all slots."""
    shapes = {name: np.shape(column) for name, column in columns.items()}
    first = next(iter(shapes.values()))
    for name, shape in shapes.items():
        if len(shape) != 1 or shape != first:
            raise FormatError(f"{path}: {name} has the shape {shape}: every slot needs one number per event")
    return _clean(np.stack(list(columns.values()), axis=1))


def _clean(jets: npt.NDArray[Any]) -> Ints:
    """Replace NaN and negative numbers by -1."""
    with np.errstate(invalid="ignore"):
        return np.where(jets >= 0, jets, -1).astype(np.int32)


def _need(path: str, what: str, wanted: list[str], stored: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in stored]:
        listed = json.dumps(sorted(stored)[:8])[1:-1] or "nothing"
        raise FormatError(
            f"{path}: no {what} {', '.join(missing)}; found {listed}: give answers that were made for this "
            "topology"
        )
