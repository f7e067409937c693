"""Flat Parquet files with the columns of `pairton.formats.flat`; one row group per batch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairton.errors import OutputError
from pairton.events import Events
from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.flat import (
    MAP_NAMES,
    NUMBER,
    SETTINGS,
    SOURCE,
    WEIGHT,
    FlatSource,
    object_columns,
    truth_columns,
)
from pairton.formats.parquet_files import ParquetTable
from pairton.formats.stored import KEY
from pairton.formats.writing import FileWriter, column_kind
from pairton.topology import Topology
from pairton.topology.selection import TRANSVERSE

__all__ = ["FORMAT", "Parquet"]


class Parquet(Format):
    name = "parquet"
    description = "lists jet_pt, jet_eta, jet_phi, jet_energy or jet_mass, jet_btag; lepton_pt, …"
    suffixes = (".parquet", ".pq")
    reads_variations = True
    names = MAP_NAMES
    settings: ClassVar[dict[str, str]] = SETTINGS

    def recognises(self, file: ParquetTable) -> bool:
        return True  # tried last; `open` reports missing columns

    def open(self, file: ParquetTable, options: ReadOptions) -> Source:
        return FlatSource(file, options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return _Writer(path, topology, metadata)


class _Writer(FileWriter):
    _file: Any = None

    def _begin(self, temporary: Path, first: Events) -> None:
        reserved = self._table(first.replace(columns={})).column_names
        clash = [name for name in first.columns if name in reserved]
        if clash:
            raise OutputError(
                f"{self.path}: the column {clash[0]} has the same name as a column of this format: do not keep it"
            )
        schema = self._table(first).schema.with_metadata({KEY: self._about()})
        self._file = pq.ParquetWriter(temporary, schema, compression="zstd")

    def _table(self, events: Events) -> Any:
        columns: dict[str, Any] = {}
        for kind, content in object_columns(events).items():
            offsets = np.concatenate([[0], np.cumsum(events.counts[kind])]).astype(np.int32)
            for name, values in content.items():
                single = kind in TRANSVERSE
                columns[name] = pa.array(values) if single else pa.ListArray.from_arrays(offsets, values)
        if events.truth is not None:
            for name, column in zip(truth_columns(self.topology), events.truth.T, strict=True):
                columns[name] = pa.array(np.ascontiguousarray(column))
        if events.weights is not None:
            columns[WEIGHT] = pa.array(events.weights)
        columns[SOURCE], columns[NUMBER] = (pa.array(np.ascontiguousarray(word)) for word in events.ids.T)
        for name, column in events.columns.items():
            columns[name] = ak.to_arrow(column_kind(column, name, self.path)[1], extensionarray=False)
        return pa.table(columns)

    def _append(self, events: Events) -> None:
        table = self._table(events)
        self._file.write_table(table.cast(self._file.schema), row_group_size=max(1, len(events)))

    def _finish(self) -> None:
        self._file.close()

    def _release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(Exception):  # on a full disk, closing fails too; the file is removed next
                self._file.close()


FORMAT = Parquet()
