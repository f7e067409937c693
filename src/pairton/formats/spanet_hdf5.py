"""SPANet's HDF5 layout: groups of padded columns with a MASK, and the column of each product as a target.

INPUTS/<Jets>/{MASK, pt, eta, phi | sin_phi + cos_phi, mass | energy, btag}   (n, width)
INPUTS/<Leptons>/{MASK, pt, eta, phi, charge, ...}                            (n, width), or (n,) without a MASK
INPUTS/<Met>/{met | pt, phi}                                                  (n,)
TARGETS/<particle>/<product>                                                  (n,), -1 missing
CLASSIFICATIONS/EVENT/<name>, CLASSIFICATIONS/<particle>/PARTICLE/<name>, ... (n,), -1 missing: columns for `keep`
REGRESSIONS/EVENT/<name>, REGRESSIONS/<particle>/PARTICLE/<name>, ...         (n,), NaN missing: columns for `keep`
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError, PairtonWarning
from pairton.events import Events
from pairton.events.vectors import mass_of
from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.columns import Padded, choose_columns, combined, objects_from_flat
from pairton.formats.common import clean_labels, report_labels, small, unit_scale
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.hdf5_layout import Growing, Hdf5Source, Hdf5Writer
from pairton.formats.stored import KEY
from pairton.formats.writing import stored_fields
from pairton.topology import JET, Topology, collection_name
from pairton.topology.selection import TRANSVERSE

__all__ = ["FORMAT", "SpanetHdf5"]

WRITTEN = {JET: "Source"}  # group of a kind, where it is not its capitalised name
GROUPS = {
    JET: ("source", "jets", "jet", "momenta"),
    "met": ("met", "missingenergy", "missinget"),
}  # preferred first
MASK = "MASK"


class SpanetHdf5(Format):
    name = "spanet_hdf5"
    description = "INPUTS/<Collection>/{MASK, pt, eta, phi, mass, btag}, TARGETS/<particle>/<product>"
    suffixes = (".h5", ".hdf5")
    names = ("weight", "group")

    def recognises(self, file: Hdf5File) -> bool:
        return bool(_groups(file))

    def open(self, file: Hdf5File, options: ReadOptions) -> Source:
        return _Source(file, options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return _Writer(path, topology, metadata)


@dataclass(frozen=True)
class _Group:
    """The datasets of a kind of objects."""

    path: str
    mask: Any  # None: one object per event
    fields: Mapping[str, tuple[Any, ...]]  # field -> the datasets it is made of

    @property
    def datasets(self) -> dict[str, Any]:
        return {data.name: data for parts in self.fields.values() for data in parts} | (
            {} if self.mask is None else {self.mask.name: self.mask}
        )


class _Source(Hdf5Source):
    def _prepare(self, file: Hdf5File) -> None:
        self._kinds = {kind: self._find_objects(file, kind) for kind in self.options.topology.kinds}
        self._targets = self._find_targets(file)
        self.has_truth = bool(self._targets)
        everything: dict[str, Any] = {}
        for group in self._kinds.values():
            everything |= group.datasets
        self.n_events = file.same_length(everything | self._targets | self._sidecar.lengths())

    def _find_objects(self, file: Hdf5File, kind: str) -> _Group:
        name = f"INPUTS/{_group(file, kind, self.options)}"
        there = sorted(file.names(name))
        wanted = self.options.wanted(kind, self._sidecar.stored.fields)
        if kind == JET:
            wanted = self._tags.wanted(wanted, lambda field: wanted.given.get(field, field) in there)
        chosen = choose_columns(wanted, there, f"{file.path}: {name}", last=("mass", "energy"))
        if kind == JET and MASK not in there:
            raise FormatError(
                f"{file.path}: {name} has no {MASK}, but {', '.join(there)}: padded columns need one"
            )
        mask = file.dataset(f"{name}/{MASK}") if MASK in there else None
        fields = {
            field: tuple(file.dataset(f"{name}/{part}") for part in parts) for field, parts in chosen.items()
        }
        group = _Group(name, mask, fields)
        shapes = {path.removeprefix("/"): data.shape for path, data in group.datasets.items()}
        allowed = (2,) if kind == JET else (1,) if mask is None else (1, 2)
        if len({shape[1:] for shape in shapes.values()}) > 1 or any(
            len(s) not in allowed for s in shapes.values()
        ):
            said = ", ".join(f"{path} {shape}" for path, shape in shapes.items())
            need = "(events,), as without a MASK," if allowed == (1,) else "(events, width)"
            raise FormatError(
                f"{file.path}: columns of {collection_name(kind)} must all have the shape {need} but have {said}"
            )
        return group

    def _find_targets(self, file: Hdf5File) -> dict[str, Any]:
        found = file.datasets("TARGETS")
        if not found:
            return {}
        topology = self.options.topology
        wanted = topology.labels("spanet")
        missing = [name for name in wanted if name not in found]
        if missing:
            said = f"{file.path}: TARGETS lacks {', '.join(missing)} of {topology.name}; it has {', '.join(found)}"
            if self.options.truth:
                raise FormatError(
                    f"{said}: give the topology of these events (--topology; in a recipe `topology:`)"
                )
            warnings.warn(f"{said}: are these events of {topology.name}?", PairtonWarning, stacklevel=2)
        if not self.options.truth:
            return {}
        return {f"TARGETS/{name}": file.dataset(f"TARGETS/{name}") for name in wanted}

    def read(self, start: int, stop: int) -> Events:
        options, topology = self.options, self.options.topology
        rows: dict[str, Padded] = {}
        objects: dict[str, ak.Array] = {}
        scale: float | None = None
        for kind, group in self._kinds.items():
            rows[kind], flat = self._read_kind(group, start, stop)
            scale = unit_scale(flat["pt"], options.units, self.path, kind) if scale is None else scale
            if kind == JET:
                self._tags.complete(flat, scale)
            objects[kind] = objects_from_flat(rows[kind].counts, flat, index=rows[kind].index, scale=scale)
        truth = None
        if self._targets:
            targets = np.stack([small(self._file.read(data, start, stop)) for data in self._targets.values()])
            self._split_targets(targets)
            for kind in topology.object_kinds:  # (S, n), a slot contiguous: quick to compare
                if rows[kind].holes:
                    mine = [slot.index for slot in topology.slots if slot.kind == kind]
                    targets[mine] = rows[kind].positions(targets[mine].T).T
            counts = {kind: padded.counts for kind, padded in rows.items()}
            truth, bad = clean_labels(topology, targets.T, counts)
            report_labels(bad, options.bad_labels, options.strict, self.path, start)
        return self._events(objects, truth, start, stop)

    def _split_targets(self, targets: npt.NDArray[Any]) -> None:
        """Targets (S, n) that count through all inputs: as rows of the input of their kind, in place."""
        first = 0
        for kind in self.options.topology.joined if self._file.text(KEY) is None else ():  # files of ours never do
            mask = self._kinds[kind].mask
            width = 1 if mask is None or len(mask.shape) == 1 else mask.shape[1]
            for slot in self.options.topology.slots:
                if slot.kind == kind:
                    inside = (targets[slot.index] >= first) & (targets[slot.index] < first + width)
                    elsewhere = np.where(targets[slot.index] == -1, -1, -2)  # a label of another input is wrong
                    targets[slot.index] = np.where(inside, targets[slot.index] - first, elsewhere)
            first += width

    def _read_kind(self, group: _Group, start: int, stop: int) -> tuple[Padded, dict[str, npt.NDArray[Any]]]:
        def padded(data: Any) -> npt.NDArray[Any]:
            values = self._file.read(data, start, stop)
            return values[:, None] if values.ndim == 1 else values

        there = np.ones((stop - start, 1), dtype=bool) if group.mask is None else padded(group.mask)
        rows = Padded(there.astype(bool, copy=False))
        flat = {}
        for field, parts in group.fields.items():
            flat[field] = combined([rows.take(padded(data)) for data in parts])
        return rows, flat


def _groups(file: Hdf5File) -> list[str]:
    return [name for name in file.names("INPUTS") if file.is_group(f"INPUTS/{name}")]


def _group(file: Hdf5File, kind: str, options: ReadOptions) -> str:
    """The group of a kind: the one asked for, else one of its name; for jets else the only padded one."""
    groups = _groups(file)
    if not groups:
        raise FormatError(
            f"{file.path}: there is no group INPUTS/<Collection>; found {file.summary()}: SPANet's layout needs "
            "one with MASK, pt, eta, phi, mass, btag"
        )
    asked = options.map.get(kind, options.tree if kind == JET else None)
    if asked is None and (stored := dict(options.topology.groups).get(kind)) in groups:
        return str(stored)
    if asked is not None:
        if asked not in groups:
            how = "--tree" if kind not in options.map else f"--map {kind}=GROUP"
            raise FormatError(f"{file.path}: INPUTS has no {asked}, but {', '.join(groups)}: choose with {how}")
        return asked
    plain = {name.lower().replace("_", ""): name for name in reversed(groups)}
    for name in GROUPS.get(kind, (f"{kind}s", kind)):
        if name in plain:
            return plain[name]
    padded = [name for name in groups if file.is_dataset(f"INPUTS/{name}/{MASK}")] or groups
    if kind == JET and len(padded) == 1:
        return padded[0]
    raise FormatError(
        f"{file.path}: INPUTS has {', '.join(groups)}: name the group of {collection_name(kind)} with "
        f"--map {kind}=GROUP"
    )


class _Writer(Hdf5Writer):
    def _begin_layout(self, file: Any, first: Events) -> None:
        self._kinds: dict[str, dict[str, Growing]] = {}
        given = WRITTEN | dict(self.topology.groups)
        for kind in first.objects:
            group = file.create_group(f"INPUTS/{given.get(kind, collection_name(kind).capitalize())}")
            single = kind in TRANSVERSE
            width = () if single else (_width(first, kind),)
            columns = {name: Growing(group, name, np.float32, width) for name in _columns(first, kind)}
            self._kinds[kind] = columns if single else {MASK: Growing(group, MASK, bool, width), **columns}
        labels = self.topology.labels("spanet") if first.truth is not None else ()
        self._targets = [Growing(file, f"TARGETS/{name}", np.int64) for name in labels]

    def _append_layout(self, events: Events) -> None:
        for kind, growing in self._kinds.items():
            columns = _columns(events, kind)
            if MASK in growing:
                mask = np.arange(_width(events, kind)) < events.counts[kind][:, None]
                growing[MASK].append(mask)
            for name, values in columns.items():
                if MASK in growing:
                    dense = np.zeros(mask.shape, dtype=np.float32)
                    dense[mask] = values
                    values = dense
                growing[name].append(values)
        if events.truth is not None:
            for slot, target in enumerate(self._targets):
                target.append(events.truth[:, slot].astype(np.int64))


def _width(events: Events, kind: str) -> int:
    return max(1, int(events.counts[kind].max(initial=0)))


def _columns(events: Events, kind: str) -> dict[str, npt.NDArray[Any]]:
    """What is written of a kind, by SPANet's names: masses in the place of energies."""
    flat = {name: np.asarray(ak.flatten(events.objects[kind][name])) for name in stored_fields(events, kind)}
    if kind in TRANSVERSE:
        return {"met" if name == "pt" else name: values for name, values in flat.items()}
    mass = mass_of(flat["pt"], flat["eta"], flat["energy"])
    return {"mass" if name == "energy" else name: mass if name == "energy" else v for name, v in flat.items()}


FORMAT = SpanetHdf5()
