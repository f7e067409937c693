"""Topograph's HDF5: jets in records, padded, and on each jet the number of the product it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError
from pairton.events import Events
from pairton.formats.base import Format, ReadOptions, Source
from pairton.formats.common import labels_to_truth, report_labels, unit_scale
from pairton.formats.hdf5_files import Hdf5File, open_hdf5
from pairton.formats.jet_columns import Padded, jets_from_flat, row_ids

__all__ = ["FORMAT", "Topograph"]

GROUP = "delphes"
JETS, LABELS, COUNTS = f"{GROUP}/jets", f"{GROUP}/jets_indices", f"{GROUP}/njets"
FIELDS = ("pt", "eta", "phi", "energy", "is_tagged")


class TopographSource(Source):
    def __init__(self, file: Hdf5File, options: ReadOptions) -> None:
        if options.btag is not None or options.map:
            raise ConfigError(f"{file.path}: Topograph's columns are fixed: leave out --btag and --map")
        self.file, self.path, self.options, self.topology = file, file.path, options, options.topology
        self._jets = file.dataset(JETS, FIELDS)
        if len(self._jets.shape) != 2:
            raise FormatError(f"{file.path}: {JETS} has the shape {self._jets.shape}, but must be (events, jets)")
        self._labels = file.dataset(LABELS) if options.truth and LABELS in file else None
        self._counts = file.dataset(COUNTS) if COUNTS in file else None
        self._kept = {name: file.dataset(name if name in file else f"{GROUP}/{name}") for name in options.keep}
        datasets = {JETS: self._jets, LABELS: self._labels, COUNTS: self._counts, **self._kept}
        self.n_events = file.same_length({name: data for name, data in datasets.items() if data is not None})
        self.has_truth = self._labels is not None
        self.metadata: dict[str, object] = {}

    def read(self, start: int, stop: int) -> Events:
        jets = self.file.read(self._jets, start, stop)
        rows = Padded(self._mask(jets["pt"], start, stop))
        pt = rows.take(jets["pt"])
        truth = None
        if self._labels is not None:
            labels = rows.take(self.file.read(self._labels, start, stop)) + 1.0  # 0: none, then as HyPER numbers
            truth, bad = labels_to_truth(self.topology, labels, rows.counts)
            report_labels(bad, self.options.bad_labels, self.options.strict, self.path, start)
        return Events(
            jets_from_flat(
                rows.counts,
                pt=pt,
                eta=rows.take(jets["eta"]),
                phi=rows.take(jets["phi"]),
                energy=rows.take(jets["energy"]),
                btag=rows.take(jets["is_tagged"]),
                index=rows.index,
                scale=unit_scale(pt, self.options.units, self.path),
            ),
            self.topology,
            truth=truth,
            ids=row_ids(self.file.source_id, start, stop),
            columns={name: self.file.read(data, start, stop) for name, data in self._kept.items()},
            metadata=self.metadata,
        )

    def _mask(self, pt: npt.NDArray[Any], start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Jets by their count, where it is stored; else what has a positive pT, so neither zeros nor NaN."""
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

    def recognises(self, path: str) -> bool:
        with open_hdf5(path) as file:
            return JETS in file

    def open(self, path: str, options: ReadOptions) -> TopographSource:
        file = open_hdf5(path)
        try:
            return TopographSource(file, options)
        except BaseException:
            file.close()
            raise


FORMAT = Topograph()
