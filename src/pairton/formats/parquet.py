"""Flat Parquet: the columns of `pairton.formats.flat`, one row group a batch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairton.errors import OutputError
from pairton.events import Events

# from pairton.events.objects import JET_FIELDS
from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.files import fingerprint, open_binary, reading_as, require_container
from pairton.formats.flat import NUMBER, SOURCE, WEIGHT, FlatSource, truth_columns
from pairton.formats.stored import KEY, Stored
from pairton.formats.writing import FileWriter, column_kind
from pairton.topology import Topology

__all__ = ["FORMAT", "Parquet"]

PIECE = 16_384  # rows that are decoded at once

Arrays = dict[str, ak.Array]


class Parquet(Format):
    name = "parquet"
    description = "lists jet_pt, jet_eta, jet_phi, jet_energy or jet_mass, jet_btag"
    suffixes = (".parquet", ".pq")
    reads_variations = True

    def recognises(self, path: str) -> bool:
        return True  # the only one of its kind: a missing column is named on opening

    def open(self, path: str, options: ReadOptions) -> Source:
        table = _Table(path)
        try:
            return FlatSource(table, options, table.text())
        except BaseException:
            table.close()
            raise

    def stored_topology(self, path: str) -> Topology | None:
        table = _Table(path)
        try:
            return Stored.from_json(table.text(), path, tree=True).topology
        finally:
            table.close()

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return _Writer(path, topology, metadata)


class _Table:
    """Rows of a file; where reading was is kept, since the next rows likely follow."""

    def __init__(self, path: str) -> None:
        self.path = path
        require_container(path, "Parquet")
        self._stream = open_binary(path)
        try:
            with reading_as("Parquet", path):
                self._file = pq.ParquetFile(self._stream)
                groups = [self._file.metadata.row_group(k).num_rows for k in range(self._file.num_row_groups)]
                self._inside = _fields_of_records(self._file.schema_arrow)
                self.columns = (*self._file.schema_arrow.names, *self._inside)
        except BaseException:
            self._stream.close()
            raise
        self._edges = np.concatenate([[0], np.cumsum(groups, dtype=np.int64)]).astype(np.int64)
        self.n_events = int(self._edges[-1])
        self.source_id = fingerprint(path)
        self._places: dict[tuple[str, ...], _Place] = {}  # of the columns that are read together

    def text(self) -> str | None:
        found = (self._file.schema_arrow.metadata or {}).get(KEY.encode())
        return None if found is None else found.decode("utf-8")

    def read(self, names: Iterable[str], start: int, stop: int) -> Arrays:
        wanted = tuple(dict.fromkeys(names))
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        parts = []
        for group in range(max(first, 0), len(self._edges) - 1):
            low, high = int(self._edges[group]), int(self._edges[group + 1])
            if low >= stop:
                break
            begin, end = max(start, low), min(stop, high)
            if begin < end:
                parts += self._rows(group, wanted, begin - low, end - low)
        with reading_as("Parquet", self.path):
            table = pa.concat_tables(parts) if parts else self._schema(wanted).empty_table()
            return {name: self._column(table, name) for name in wanted}

    def _column(self, table: Any, name: str) -> ak.Array:
        if name not in self._inside:
            return _from_arrow(table.column(name))
        outer, inner = self._inside[name]
        return _from_records(table.column(outer), inner)

    def _outer(self, names: tuple[str, ...]) -> list[str]:
        return list(dict.fromkeys(self._inside[name][0] if name in self._inside else name for name in names))

    def _schema(self, names: tuple[str, ...]) -> Any:
        return pa.schema([self._file.schema_arrow.field(name) for name in self._outer(names)])

    def _stored(self, names: tuple[str, ...]) -> list[str]:
        """As Parquet calls them: of records only what is asked for is decoded."""
        paths = [self._file.schema.column(k).path for k in range(len(self._file.schema))]
        found = []
        for name in names:
            if name in self._inside:
                outer, inner = self._inside[name]
                inside = re.compile(rf"{re.escape(outer)}\.(list\.\w+\.)?{re.escape(inner)}(\.|$)")
                found += [path for path in paths if inside.match(path)]
            else:
                found.append(name)
        return found

    def _rows(self, group: int, names: tuple[str, ...], start: int, stop: int) -> list[Any]:
        """Rows [start, stop) of a row group, which may be the whole file: it is decoded piece by piece.

        Reading goes on where it was, so that one pass decodes everything once; going back begins the group anew.
        """
        place = self._places.get(names)
        if place is None or place.group != group or start < place.start:
            pieces = self._file.iter_batches(PIECE, row_groups=[group], columns=self._stored(names))
            self._places[names] = place = _Place(group, pieces)
        found = []
        with reading_as("Parquet", self.path):
            while place.start < stop:
                if start < place.stop:
                    found.append(place.piece.slice(start - place.start, stop - start))
                    start = place.stop
                if place.stop >= stop:
                    break
                place.go_on()
        return [pa.Table.from_batches([piece]) for piece in found]

    def close(self) -> None:
        self._file.close()
        self._stream.close()


@dataclass
class _Place:
    """Where reading is in a row group: the piece of it that is in memory, rows [start, stop)."""

    group: int
    pieces: Iterator[Any]
    piece: Any = None
    start: int = 0
    stop: int = 0

    def go_on(self) -> None:
        self.piece = next(self.pieces)
        self.start, self.stop = self.stop, self.stop + len(self.piece)


def _fields_of_records(schema: Any) -> dict[str, tuple[str, str]]:
    """`Jet.pt` -> (Jet, pt), for columns that hold a record or a list of records, as awkward arrays do."""
    found: dict[str, tuple[str, str]] = {}
    for outer in schema:
        kind = outer.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            found |= {f"{outer.name}.{inner.name}": (outer.name, inner.name) for inner in kind}
    return {name: where for name, where in found.items() if name not in schema.names}


def _from_records(column: Any, name: str) -> ak.Array:
    """One field of a column of records, or of lists of them."""
    whole = _combined(column)
    if pa.types.is_struct(whole.type):
        return _from_arrow(pc.struct_field(whole, name))
    if whole.null_count:
        return ak.from_arrow(whole)[name]
    ends = np.cumsum(whole.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
    offsets = pa.array(np.concatenate([[0], ends]))
    return _from_arrow(pa.LargeListArray.from_arrays(offsets, pc.struct_field(whole.flatten(), name)))


def _combined(column: Any) -> Any:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):  # no chunk at all
        return pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    return whole


def _from_arrow(column: Any) -> ak.Array:
    """Lists of numbers and numbers directly; an optional type without a missing value is none."""
    column = _combined(column)
    kind = column.type
    if column.null_count == 0 and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        values = column.flatten()
        if _is_number(values.type) and values.null_count == 0:
            counts = column.value_lengths().to_numpy(zero_copy_only=False)
            return ak.unflatten(values.to_numpy(zero_copy_only=False), counts)
    if column.null_count == 0 and _is_number(kind):
        return ak.Array(column.to_numpy(zero_copy_only=False))
    return ak.from_arrow(column)


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


class _Writer(FileWriter):
    _file: Any = None

    def _begin(self, temporary: Path, first: Events) -> None:
        reserved = {f"jet_{name}" for name in JET_FIELDS} | {WEIGHT, SOURCE, NUMBER, *truth_columns(self.topology)}
        clash = [name for name in first.columns if name in reserved]
        if clash:
            raise OutputError(f"{self.path}: the column {clash[0]} has the name of one of ours: leave it out")
        stored = Stored(self.topology, self.metadata, self.columns).to_json()
        schema = self._table(first).schema.with_metadata({KEY: stored})
        self._file = pq.ParquetWriter(temporary, schema, compression="zstd")

    def _table(self, events: Events) -> Any:
        offsets = np.concatenate([[0], np.cumsum(events.n_jets)]).astype(np.int32)
        columns: dict[str, Any] = {}
        for name in JET_FIELDS:
            columns[f"jet_{name}"] = pa.ListArray.from_arrays(offsets, np.asarray(ak.flatten(events.jets[name])))
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
            with contextlib.suppress(Exception):  # a full disk fails again here; the file is removed next
                self._file.close()


FORMAT = Parquet()
