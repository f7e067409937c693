"""HyPER's HDF5 layout: padded records of jets, and on each jet the number of the product it is.

INPUTS/JET            (n, width) records e, eta, phi, pt, btag and further fields; padding is NaN
INPUTS/GLOBAL         (n, 1) records njet, nbTagged
LABELS/JET            (n, width) 0 for none, 1, 2, ... as `labels("hyper")` of the topology
METADATA/FullyMatched (n,)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import FormatError, OutputError
from pairton.events import Events
from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.columns import Padded, choose_columns, combined, objects_from_flat
from pairton.formats.common import labels_to_truth, report_labels, unit_scale
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.hdf5_layout import Growing, Hdf5Source, Hdf5Writer
from pairton.formats.writing import stored_fields
from pairton.topology import JET, Topology

__all__ = ["FORMAT", "HyperHdf5"]

JETS, GLOBAL, LABELS, MATCHED = "INPUTS/JET", "INPUTS/GLOBAL", "LABELS/JET", "METADATA/FullyMatched"
ORDER = ("energy", "eta", "phi", "pt", "btag")  # of HyPER's own records
WIDTH = 20  # HyPER's own padding; more where events have more jets
COUNTS = np.dtype([("njet", np.float32), ("nbTagged", np.float32)])


class HyperHdf5(Format):
    name = "hyper_hdf5"
    description = "INPUTS/JET records of e, eta, phi, pt, btag, LABELS/JET"
    suffixes = (".h5", ".hdf5")
    names = ("weight",)
    jets_only = True

    def recognises(self, file: Hdf5File) -> bool:
        return file.is_dataset(JETS)

    def open(self, file: Hdf5File, options: ReadOptions) -> Source:
        return _Source(file, options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return _Writer(path, topology, metadata)


class _Source(Hdf5Source):
    def _prepare(self, file: Hdf5File) -> None:
        self._jets = file.dataset(JETS)
        wanted = self.options.wanted(JET, self._sidecar.stored.fields)
        there = self._jets.dtype.names or ()
        wanted = self._tags.wanted(wanted, lambda field: wanted.given.get(field, field) in there)
        self._columns = choose_columns(wanted, there, f"{file.path}: {JETS}")
        self._labels = file.dataset(LABELS) if self.options.truth and file.is_dataset(LABELS) else None
        shapes = {JETS: self._jets.shape} | ({LABELS: self._labels.shape} if self._labels is not None else {})
        if len(self._jets.shape) != 2 or len({shape[1:] for shape in shapes.values()}) > 1:
            said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise FormatError(f"{file.path}: jets and labels must have one shape (events, width), but have {said}")
        columns = {JETS: self._jets} | ({LABELS: self._labels} if self._labels is not None else {})
        self.n_events = file.same_length(columns | self._sidecar.lengths())
        self.has_truth = self._labels is not None

    def read(self, start: int, stop: int) -> Events:
        options = self.options
        records = self._file.read(self._jets, start, stop)
        padding = np.ones(records.shape, dtype=bool)
        for name in (name for parts in self._columns.values() for name in parts):
            padding &= np.isnan(records[name])
        rows = Padded(~padding)
        columns = {
            ours: combined([rows.take(records[name]) for name in parts]) for ours, parts in self._columns.items()
        }
        scale = unit_scale(columns["pt"], options.units, self.path)
        self._tags.complete(columns, scale)
        truth = None
        if self._labels is not None:
            labels = rows.take(self._file.read(self._labels, start, stop))
            truth, bad = labels_to_truth(options.topology, labels, rows.counts)
            report_labels(bad, options.bad_labels, options.strict, self.path, start)
        jets = objects_from_flat(rows.counts, columns, index=rows.index, scale=scale)
        return self._events({JET: jets}, truth, start, stop)


class _Writer(Hdf5Writer):
    def _begin_layout(self, file: Any, first: Events) -> None:
        width = (max(WIDTH, int(first.n_jets.max(initial=0))),)
        nothing = np.full((), np.nan, dtype=np.float32)
        if "btag" not in ak.fields(first.jets):
            raise OutputError(f"{self.path}: HyPER's layout has a btag of jets, and these events have none")
        self._fields = [*ORDER, *(name for name in stored_fields(first, JET) if name not in ORDER)]
        self._record = np.dtype([("e" if name == "energy" else name, np.float32) for name in self._fields])
        self._jets = Growing(file, JETS, self._record, width, np.full((), np.nan, dtype=self._record)[()])
        self._global = Growing(file, GLOBAL, COUNTS, (1,))
        self._labels = self._matched = None
        if first.truth is not None:
            self._labels = Growing(file, LABELS, np.float32, width, nothing)
            self._matched = Growing(file, MATCHED, np.int64)

    def _append_layout(self, events: Events) -> None:
        n_jets = events.n_jets
        mask = np.arange(max(WIDTH, int(n_jets.max(initial=0)))) < n_jets[:, None]
        records = np.full(mask.shape, np.nan, dtype=self._record)
        for ours, theirs in zip(self._fields, self._record.names or (), strict=True):
            records[theirs][mask] = np.asarray(ak.flatten(events.jets[ours]))
        self._jets.append(records)
        counts = np.zeros((len(events), 1), dtype=COUNTS)
        counts["njet"][:, 0] = n_jets
        counts["nbTagged"][:, 0] = np.asarray(ak.sum(events.jets.btag > 0.5, axis=1))
        self._global.append(counts)
        if self._labels is not None and self._matched is not None and events.truth is not None:
            labels = np.where(mask, np.float32(0), np.float32(np.nan))
            for slot, number in enumerate(self.topology.labels("hyper")):
                (rows,) = np.nonzero(events.truth[:, slot] >= 0)
                labels[rows, events.truth[rows, slot]] = float(number)
            self._labels.append(labels)
            self._matched.append(events.complete.astype(np.int64))


FORMAT = HyperHdf5()
