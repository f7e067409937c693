"""Topograph's HDF5 layout: padded records of jets, each with the label of its decay product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError
from pairton.formats.base import Format, ReadOptions
from pairton.formats.column_source import ColumnSource, Kinds
from pairton.formats.columns import Wanted, choose_columns, column_names
from pairton.formats.common import labels_to_truth
from pairton.formats.flat_objects import FlatObjects, Padded
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.taggers import TagColumns
from pairton.topology import JET

__all__ = ["FORMATS", "Topograph"]

GROUP = "delphes"
JETS, LABELS, COUNTS = f"{GROUP}/jets", f"{GROUP}/jets_indices", f"{GROUP}/njets"


class TopographSource(ColumnSource):
    file: Hdf5File

    def __init__(self, file: Hdf5File, options: ReadOptions) -> None:
        if (options.btag.text and options.btag.table is None) or options.map:
            raise ConfigError(f"{file.path}: Topograph's columns are fixed: remove --btag and --map")
        super().__init__(file, options)
        self._jets = file.dataset(JETS)
        self._tags = TagColumns(options.btag, {}, options.evidence, {}, file.path)
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

    def read_kind(self, rows: range, kind: str) -> FlatObjects:
        jets = self.file.read(self._jets, rows.start, rows.stop)
        padded = Padded(self._mask(jets["pt"], rows.start, rows.stop))
        return FlatObjects.of_padded(padded, self._columns, jets.__getitem__)

    def tag_jets(self, rows: range, jets: FlatObjects, scale: float) -> None:
        self._tags.complete(jets.fields, scale)

    def read_truth(
        self, rows: range, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        padded = kinds[JET].padded
        assert padded is not None
        labels = padded.take(self.file.read(self._labels, rows.start, rows.stop)) + 1.0  # 0 for none, as in HyPER
        return labels_to_truth(self.topology, {JET: labels}, {JET: padded.counts})

    def read_columns(self, rows: range) -> dict[str, Any]:
        return {name: self.file.read(data, rows.start, rows.stop) for name, data in self._kept.items()}

    def _mask(self, pt: npt.NDArray[Any], start: int, stop: int) -> npt.NDArray[np.bool_]:
        """(n, width): True for jets, from their number per event if it is stored, or else from a positive pT."""
        if self._counts is None:
            return np.asarray(pt > 0)
        counts = self.file.read(self._counts, start, stop).reshape(stop - start)
        return np.asarray(np.arange(pt.shape[1]) < counts[:, None])


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


FORMATS = (Topograph(),)
