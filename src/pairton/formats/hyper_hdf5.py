"""HyPER's HDF5 layout: padded records of jets, and on each jet the number of the product it is.

INPUTS/JET            (n, width) records e, eta, phi, pt, btag; padding is NaN
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

from pairton.errors import FormatError
from pairton.events import Events
from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.common import check_map, labels_to_truth, report_labels, unit_scale
from pairton.formats.hdf5_files import Hdf5File, open_hdf5
from pairton.formats.hdf5_layout import Growing, Hdf5Source, Hdf5Writer, Sidecar, stored_topology
from pairton.formats.jet_columns import Padded, btag_option, jets_from_flat, tagged
from pairton.topology import Topology

__all__ = ["FORMAT", "HyperHdf5"]

JETS, GLOBAL, LABELS, MATCHED = "INPUTS/JET", "INPUTS/GLOBAL", "LABELS/JET", "METADATA/FullyMatched"
FIELDS = {"energy": "e", "eta": "eta", "phi": "phi", "pt": "pt", "btag": "btag"}  # ours -> HyPER's
WIDTH = 20  # HyPER's own padding; more where events have more jets
RECORD = np.dtype([(name, np.float32) for name in FIELDS.values()])
COUNTS = np.dtype([("njet", np.float32), ("nbTagged", np.float32)])


class HyperHdf5(Format):
    name = "hyper_hdf5"
    description = "INPUTS/JET records of e, eta, phi, pt, btag, LABELS/JET"
    suffixes = (".h5", ".hdf5")

    def recognises(self, path: str) -> bool:
        with open_hdf5(path) as file:
            return file.is_dataset(JETS)

    def open(self, path: str, options: ReadOptions) -> Source:
        return _Source(path, options)

    def stored_topology(self, path: str) -> Topology | None:
        return stored_topology(path)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return _Writer(path, topology, metadata)


class _Source(Hdf5Source):
    def _prepare(self, file: Hdf5File) -> None:
        tag, self._cut = btag_option(self.options.btag)
        check_map(self.options.map, [*FIELDS, "weight"])
        mapped = {name: column for name, column in self.options.map.items() if name != "weight"}
        self._names = FIELDS | mapped | ({"btag": tag} if tag else {})
        self._jets = file.dataset(JETS, list(self._names.values()))
        self._labels = file.dataset(LABELS) if self.options.truth and file.is_dataset(LABELS) else None
        self._sidecar = Sidecar(file, self.options)
        shapes = {JETS: self._jets.shape} | ({LABELS: self._labels.shape} if self._labels is not None else {})
        if len(self._jets.shape) != 2 or len({shape[1:] for shape in shapes.values()}) > 1:
            said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise FormatError(f"{file.path}: jets and labels must have one shape (events, width), but have {said}")
        columns = {JETS: self._jets} | ({LABELS: self._labels} if self._labels is not None else {})
        self.n_events = file.same_length(columns | self._sidecar.lengths())
        self.has_truth = self._labels is not None
        self.metadata = self._sidecar.stored.metadata

    def read(self, start: int, stop: int) -> Events:
        options = self.options
        records = self._file.read(self._jets, start, stop)
        padding = np.ones(records.shape, dtype=bool)
        for name in self._names.values():
            padding &= np.isnan(records[name])
        rows = Padded(~padding)
        columns = {ours: rows.take(records[theirs]) for ours, theirs in self._names.items()}
        columns["btag"] = tagged(columns["btag"], self._cut)
        scale = unit_scale(columns["pt"], options.units, self.path)
        truth = None
        if self._labels is not None:
            labels = rows.take(self._file.read(self._labels, start, stop))
            truth, bad = labels_to_truth(options.topology, labels, rows.counts)
            report_labels(bad, options.bad_labels, options.strict, self.path, start)
        sidecar = self._sidecar
        return Events(
            jets_from_flat(rows.counts, index=rows.index, scale=scale, **columns),
            options.topology,
            truth,
            sidecar.weights(start, stop),
            sidecar.ids(start, stop),
            sidecar.columns(start, stop),
            self.metadata,
        )


class _Writer(Hdf5Writer):
    def _begin_layout(self, file: Any, first: Events) -> None:
        width = (max(WIDTH, int(first.n_jets.max(initial=0))),)
        nothing = np.full((), np.nan, dtype=np.float32)
        self._jets = Growing(file, JETS, RECORD, width, np.full((), np.nan, dtype=RECORD)[()])
        self._global = Growing(file, GLOBAL, COUNTS, (1,))
        self._labels = self._matched = None
        if first.truth is not None:
            self._labels = Growing(file, LABELS, np.float32, width, nothing)
            self._matched = Growing(file, MATCHED, np.int64)

    def _append_layout(self, events: Events) -> None:
        n_jets = events.n_jets
        mask = np.arange(max(WIDTH, int(n_jets.max(initial=0)))) < n_jets[:, None]
        records = np.full(mask.shape, np.nan, dtype=RECORD)
        for ours, theirs in FIELDS.items():
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
