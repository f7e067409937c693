"""HyPER's HDF5 layout: padded records of objects, each with the label of its decay product.

INPUTS/JET            (n, width): records of e, eta, phi, pt, btag and further fields; padding has NaN momenta
INPUTS/LEPTON         (n, width): the same for leptons, with charge; other kinds by their names
INPUTS/MET            (n, 1): the same for missing energy, as (met, 0, phi, met)
INPUTS/GLOBAL         (n, 1): records of njet, nbTagged
LABELS/JET, LEPTON    (n, width): 0 for none, or 1, 2, ... as in `labels("hyper")` of the topology
METADATA/FullyMatched (n,)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError, OutputError, PairtonWarning
from pairton.events import Events
from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.column_source import Kinds
from pairton.formats.columns import Chosen, Wanted, choose_columns
from pairton.formats.common import labels_to_truth
from pairton.formats.flat_objects import FlatObjects, Padded
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.hdf5_layout import KEPT, Hdf5Source, stored_rows
from pairton.formats.lepton_selection import stored_leptons, stored_settings
from pairton.formats.stored import KEY
from pairton.formats.writing import EventWriter, stored_fields
from pairton.topology import JET, Topology, collection_name
from pairton.topology.extras import labels_of
from pairton.topology.kinds import KINDS, LEPTONS

__all__ = ["FORMATS", "HyperHdf5"]

INPUTS, LABELS = "INPUTS", "LABELS"
JETS, GLOBAL, MATCHED = "INPUTS/JET", "INPUTS/GLOBAL", "METADATA/FullyMatched"
ORDER = ("energy", "eta", "phi", "pt", "btag")  # fields of HyPER's records
MOMENTUM = ("pt", "eta", "phi", "energy", "mass")
WIDTHS = {JET: 20}  # least width, as in HyPER
COUNTS = np.dtype([("njet", np.float32), ("nbTagged", np.float32)])


class HyperHdf5(Format):
    name = "hyper_hdf5"
    description = "INPUTS/JET, LEPTON, MET: records of e, eta, phi, pt, btag; LABELS/JET, LEPTON"
    suffixes = (".h5", ".hdf5")
    names = ("weight",)
    prepared = True
    settings: ClassVar[dict[str, str]] = stored_settings()

    def recognises(self, file: Hdf5File) -> bool:
        return file.is_dataset(JETS)

    def open(self, file: Hdf5File, options: ReadOptions) -> Source:
        return _Source(file, options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return EventWriter(path, topology, metadata, "HDF5", layout, KEPT, padding=np.nan)


@dataclass(frozen=True)
class _Nodes:
    """The datasets of a kind of objects."""

    records: Any
    columns: Chosen
    labels: Any = None  # None: no truth for this kind

    @property
    def datasets(self) -> dict[str, Any]:
        return {data.name: data for data in (self.records, self.labels) if data is not None}


class _Source(Hdf5Source):
    def _prepare(self, file: Hdf5File) -> None:
        topology, stored = self.options.topology, self._stored.fields
        self.leptons = stored_leptons(self.options.settings, topology, selected=file.text(KEY) is not None)
        available = [kind for kind in LEPTONS if file.is_dataset(_place(kind))]
        self._kinds = {kind: self._find(file, self.options.wanted(kind, stored)) for kind in topology.kinds}
        self.has_truth = any(nodes.labels is not None for nodes in self._kinds.values())
        self._warn_unlabelled()
        used = {_place(kind) for kind in self._kinds} | {GLOBAL}
        self.others = [name for name in file.names(INPUTS) if f"{INPUTS}/{name}" not in used]
        if JET in self._kinds and self.leptons.overlap.radius:
            self.overlap_only = [kind for kind in available if kind not in self._kinds]
        self._kinds |= {kind: self._find(file, Wanted(kind)) for kind in self.overlap_only}
        datasets: dict[str, Any] = {}
        for nodes in self._kinds.values():
            datasets |= nodes.datasets
        self.n_events = file.same_length(datasets | self.lengths())

    def _warn_unlabelled(self) -> None:
        """Warn if only some kinds of objects have labels."""
        for kind in self.options.topology.object_kinds if self.has_truth else ():
            if self._kinds[kind].labels is None:
                warnings.warn(
                    f"{self.path}: there is no dataset {_place(kind, LABELS)}, so all {collection_name(kind)} are "
                    "treated as unlabelled: add it, or read without truth",
                    PairtonWarning,
                    stacklevel=2,
                )

    def _find(self, file: Hdf5File, wanted: Wanted) -> _Nodes:
        kind, place = wanted.kind, _place(wanted.kind)
        if not file.is_dataset(place):
            has = ", ".join(file.names(INPUTS))
            name = self.options.topology.name
            raise FormatError(
                f"{file.path}: no dataset {place} for the {collection_name(kind)} of {name}; {INPUTS} has {has}: "
                "give a topology without them (--topology), or add that dataset"
            )
        records, labels = file.dataset(place), _place(kind, LABELS)
        wanted = replace(wanted, required=(*wanted.required, *self.leptons.fields(kind)))
        available = records.dtype.names or ()
        if kind == JET:
            wanted = self._tags.wanted(wanted, lambda field: wanted.given.get(field, field) in available)
        columns = choose_columns(wanted, available, f"{file.path}: {place}")
        labelled = kind in self.options.topology.object_kinds and self.options.truth and file.is_dataset(labels)
        found = _Nodes(records, columns, file.dataset(labels) if labelled else None)
        shapes = {name.removeprefix("/"): data.shape for name, data in found.datasets.items()}
        if len(records.shape) != 2 or len({shape[1:] for shape in shapes.values()}) > 1:
            listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise FormatError(
                f"{file.path}: {collection_name(kind)} and their labels must have the same shape (events, width), "
                f"but have {listed}"
            )
        return found

    def read_kind(self, rows: range, kind: str) -> FlatObjects:
        nodes = self._kinds[kind]
        records = self.file.read(nodes.records, rows.start, rows.stop)
        is_padding = np.full(
            records.shape, not KINDS[kind].transverse
        )  # missing energy has none, even if it is NaN
        for name in (name for field in MOMENTUM for name in nodes.columns.get(field, ())):
            is_padding &= np.isnan(records[name])  # other fields may be integers, which cannot be NaN
        return FlatObjects.of_padded(Padded(~is_padding), nodes.columns, records.__getitem__)

    def read_truth(
        self, rows: range, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        labels = {}
        for kind, found in kinds.items():
            if (data := self._kinds[kind].labels) is not None and found.padded is not None:
                labels[kind] = found.padded.take(self.file.read(data, rows.start, rows.stop))
        return labels_to_truth(self.topology, labels, {kind: found.counts for kind, found in kinds.items()})


def _place(kind: str, group: str = INPUTS) -> str:
    return f"{group}/{kind.upper()}"


def layout(events: Events) -> dict[str, Any]:
    """The datasets. All kinds have the same fields, as HyPER needs them; fields that a kind lacks are 0."""
    if JET not in events.objects or "btag" not in ak.fields(events.jets):
        raise OutputError(
            "HyPER's layout needs the field btag of jets, which these events lack: choose another format with --to"
        )
    fields = dict.fromkeys([*ORDER, *(name for kind in events.objects for name in stored_fields(events, kind))])
    record = np.dtype([("e" if name == "energy" else name, np.float32) for name in fields])
    widths = {kind: max(WIDTHS.get(kind, 1), int(n.max(initial=0))) for kind, n in events.counts.items()}
    masks = {kind: np.arange(widths[kind]) < n[:, None] for kind, n in events.counts.items()}
    columns: dict[str, Any] = {}
    for kind, mask in masks.items():
        records = columns[_place(kind)] = np.full(mask.shape, np.nan, dtype=record)
        records[mask] = np.zeros((), dtype=record)
        for name in stored_fields(events, kind):
            values = np.asarray(ak.flatten(events.objects[kind][name]))
            records["e" if name == "energy" else name][mask] = values
        if KINDS[kind].transverse:
            records["e"] = records["pt"]
    counts = columns[GLOBAL] = np.zeros((len(events), 1), dtype=COUNTS)
    counts["njet"][:, 0] = events.n_jets
    counts["nbTagged"][:, 0] = np.asarray(ak.sum(events.jets.btag > 0.5, axis=1))
    if events.truth is not None:
        names = labels_of(events.topology, "hyper")
        for kind in events.topology.object_kinds:
            labels = columns[_place(kind, LABELS)] = np.where(masks[kind], np.float32(0), np.float32(np.nan))
            for slot in (slot for slot in events.topology.slots if slot.kind == kind):
                (rows,) = np.nonzero(events.truth[:, slot.index] >= 0)
                labels[rows, events.truth[rows, slot.index]] = float(names[slot.index].rpartition("-")[2])
        columns[MATCHED] = events.complete.astype(np.int64)
    return columns | stored_rows(events)


FORMATS = (HyperHdf5(),)
