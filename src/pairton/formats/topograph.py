"""Topograph's HDF5 layout: padded records of jets, each with the label of its decay product."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError
from pairton.events import Events
from pairton.formats.base import Format, ReadOptions, Source
from pairton.formats.columns import (
    Padded,
    Wanted,
    choose_columns,
    column_names,
    combined,
    objects_from_flat,
    row_ids,
)
from pairton.formats.common import labels_to_truth, report_labels, unit_scale
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.tag_columns import TagColumns
from pairton.topology import JET

__all__ = ["FORMAT", "Topograph"]

GROUP = "delphes"
JETS, LABELS, COUNTS = f"{GROUP}/jets", f"{GROUP}/jets_indices", f"{GROUP}/njets"


class TopographSource(Source):
    def __init__(self, file: Hdf5File, options: ReadOptions) -> None:
        if options.btag is not None or options.map:
            raise ConfigError(f"{file.path}: Topograph's columns are fixed: remove --btag and --map")
        self.file, self.path, self.options = file, file.path, options
        self._jets = file.dataset(JETS)
        self._tags = TagColumns(options, {}, file.path)
        wanted = Wanted(JET, options.wanted(JET).required, given={"btag": "is_tagged"})
        wanted = self._tags.wanted(wanted, lambda _: False)
        self._columns = choose_columns(wanted, self._jets.dtype.names or (), f"{file.path}: {JETS}")
        if len(self._jets.shape) != 2:
            raise FormatError(f"{file.path}: {JETS} has the shape {self._jets.shape}, but must be (events, jets)")
        self._labels = file.dataset(LABELS) if options.truth and LABELS in file else None
        self._counts = file.dataset(COUNTS) if COUNTS in file else None
        kept = column_names(options.keep, [*file.names(GROUP), *file.datasets()]) if options.keep else ()
        self._kept = {name: file.dataset(name if name in file else f"{GROUP}/{name}") for name in kept}
        datasets = {JETS: self._jets, LABELS: self._labels, COUNTS: self._counts, **self._kept}
        self.n_events = file.same_length({name: data for name, data in datasets.items() if data is not None})
        self.has_truth = self._labels is not None
        self.metadata, self.tagging = self._tags.metadata, self._tags.tagging

    def read(self, start: int, stop: int) -> Events:
        jets = self.file.read(self._jets, start, stop)
        rows = Padded(self._mask(jets["pt"], start, stop))
        pt = rows.take(jets["pt"])
        truth = None
        if self._labels is not None:
            labels = rows.take(self.file.read(self._labels, start, stop)) + 1.0  # 0 for none, as in HyPER
            truth, bad = labels_to_truth(self.options.topology, labels, rows.counts)
            report_labels(bad, self.options.bad_labels, self.options.strict, self.path, start)
        scale = unit_scale(pt, self.options.units, self.path)
        columns = {
            field: combined([rows.take(jets[name]) for name in parts]) for field, parts in self._columns.items()
        }
        self._tags.complete(columns, scale)
        return Events(
            {JET: objects_from_flat(rows.counts, columns, index=rows.index, scale=scale)},
            self.options.topology,
            truth=truth,
            ids=row_ids(self.file.source_id, start, stop),
            columns={name: self.file.read(data, start, stop) for name, data in self._kept.items()},
            metadata=self.metadata,
        )

    def _mask(self, pt: npt.NDArray[Any], start: int, stop: int) -> npt.NDArray[np.bool_]:
        """(n, width): True for jets, from their number per event if it is stored, or else from a positive pT."""
        if self._counts is None:
            return np.asarray(pt > 0)
        counts = self.file.read(self._counts, start, stop).reshape(stop - start)
        return np.asarray(np.arange(pt.shape[1]) < counts[:, None])

    def close(self) -> None:
        self.file.close()


class Topograph(Format):
    name = "topograph"
    description = "Topograph's HDF5: delphes/jets, delphes/jets_indices"
    suffixes = (".h5", ".hdf5")
    jets_only = True
    prepared = True

    def recognises(self, file: Hdf5File) -> bool:
        return JETS in file

    def open(self, file: Hdf5File, options: ReadOptions) -> TopographSource:
        return TopographSource(file, options)


FORMAT = Topograph()
