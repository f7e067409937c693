"""Read and write Parquet files with pyarrow. Fields of records are columns too: `Jet.pt`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairton.formats.column_files import ColumnFile, Columns, Table
from pairton.formats.columns import shown
from pairton.formats.files import fingerprint, is_url, open_binary, reading_as, refuse_inflated

__all__ = ["NewFile", "ParquetTable", "open_file"]

MOST_ROWS, FEWEST_ROWS = 16_384, 256  # that are decoded at once
DECODED = 2**20  # about so many numbers are decoded at once: fewer rows if events are large
BUFFER = 2**20  # bytes of a column that are fetched at once; for remote files (0) a whole row group

Arrays = dict[str, ak.Array]


class ParquetTable(Table):
    """An open file. A pass over its rows decodes each of them once, whatever the size of the row groups."""

    def __init__(self, path: str) -> None:
        self.path, self.title = path, "the file"
        self._stream = open_binary(path)
        try:
            with reading_as("Parquet", path):
                self._file = pq.ParquetFile(self._stream, buffer_size=0 if is_url(path) else BUFFER)
                groups = [self._file.metadata.row_group(k).num_rows for k in range(self._file.num_row_groups)]
                for k in range(len(groups)):
                    self._check_size(k)
                self._inside = _fields_of_records(self._file.schema_arrow)
                self.columns = (*self._file.schema_arrow.names, *self._inside)
        except BaseException:
            self._stream.close()
            raise
        self._starts = np.cumsum([0, *groups], dtype=np.int64)  # first row of each row group, and the end
        self.n_events = int(self._starts[-1])
        self._passes: dict[tuple[str, ...], _Pass] = {}  # for each set of columns that is read together

    @cached_property
    def source_id(self) -> int:
        """The fingerprint of the file; computed only when needed, since files of Pairton store ids."""
        return fingerprint(self.path)

    def text(self, name: str) -> str | None:
        """A string in the metadata of the file."""
        found = (self._file.metadata.metadata or {}).get(name.encode())
        return None if found is None else found.decode("utf-8")

    def summary(self) -> str:
        """The columns, for an error."""
        return shown(self.columns)

    def read(self, names: Iterable[str], start: int, stop: int) -> Arrays:
        wanted = tuple(dict.fromkeys(names))
        group = max(0, int(np.searchsorted(self._starts, start, side="right")) - 1)
        current = self._passes.get(wanted)
        if current is None or start < current.start or self._starts[group] > current.stop:
            self._passes[wanted] = current = self._begin(wanted, group)
        with reading_as("Parquet", self.path):
            schema = pa.schema([self._file.schema_arrow.field(name) for name in self._outer(wanted)])
            found = current.rows(start, stop)
            table = pa.Table.from_batches(found) if found else schema.empty_table()
            return {name: self._column(table, name) for name in wanted}

    def _begin(self, names: tuple[str, ...], first: int) -> _Pass:
        """A pass that begins with a row group."""
        groups, stored = list(range(first, len(self._starts) - 1)), self._stored(names)
        rows = min((self._rows_at_once(group, stored) for group in groups), default=MOST_ROWS)
        pieces = self._file.iter_batches(rows, row_groups=groups, columns=stored) if groups else iter(())
        return _Pass(pieces, int(self._starts[first]))

    def _column(self, table: Any, name: str) -> ak.Array:
        outer, inner = self._inside.get(name, (name, None))
        column = table.column(outer).combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # there is no chunk
            column = pa.array([], column.type)
        array = ak.from_arrow(column)
        return ak.Array(_without_masks((array if inner is None else array[inner]).layout))

    def _outer(self, names: tuple[str, ...]) -> list[str]:
        """The top-level columns that hold some columns."""
        return list(dict.fromkeys(self._inside[name][0] if name in self._inside else name for name in names))

    def _stored(self, names: tuple[str, ...]) -> list[str]:
        """The names of columns in Parquet, so that only the needed fields of records are decoded."""
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

    def _check_size(self, group: int) -> None:
        """Refuse a row group that declares far more values than the file holds: one row may have any number."""
        found = self._file.metadata.row_group(group)
        needed = 8 * sum(found.column(k).num_values for k in range(found.num_columns))
        refuse_inflated(self.path, needed, self._stream.seek(0, os.SEEK_END))

    def _rows_at_once(self, group: int, stored: list[str]) -> int:
        """How many rows of a row group to decode at once, from the number of values in its columns."""
        found = self._file.metadata.row_group(group)
        columns = [found.column(k) for k in range(found.num_columns)]
        values = sum(
            c.num_values for c in columns if any(f"{c.path_in_schema}.".startswith(f"{s}.") for s in stored)
        )
        return int(np.clip(DECODED * found.num_rows // max(1, values), FEWEST_ROWS, MOST_ROWS))

    def close(self) -> None:
        self._file.close()
        self._stream.close()


open_file = ParquetTable


@dataclass
class _Pass:
    """A pass over some columns; the piece in memory begins at the row `start`."""

    pieces: Iterator[Any]
    start: int
    piece: Any = None

    @property
    def stop(self) -> int:
        return self.start + (0 if self.piece is None else len(self.piece))

    def rows(self, start: int, stop: int) -> list[Any]:
        """Parts of pieces with the rows [start, stop)."""
        found = []
        while start < stop:
            if start < self.stop:
                found.append(self.piece.slice(start - self.start, stop - start))
                start = self.stop
            if start < stop:
                self.start, self.piece = self.stop, next(self.pieces)
        return found


def _fields_of_records(schema: Any) -> dict[str, tuple[str, str]]:
    """`Jet.pt` -> (Jet, pt), for columns of records or of lists of records."""
    found: dict[str, tuple[str, str]] = {}
    for outer in schema:
        kind = outer.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            found |= {f"{outer.name}.{inner.name}": (outer.name, inner.name) for inner in kind}
    return {name: where for name, where in found.items() if name not in schema.names}


def _without_masks(layout: Any) -> Any:
    """Arrow columns may lack values; without the option type where none does."""
    if layout.is_option and not layout.mask_as_bool(valid_when=False).any():
        return _without_masks(layout.project())
    if layout.is_list and not layout.is_regular:
        return ak.contents.ListOffsetArray(layout.to_ListOffsetArray64().offsets, _without_masks(layout.content))
    return layout


class NewFile(ColumnFile):
    """A new Parquet file with one row group per batch."""

    _file: Any = None

    def begin(self, path: Path, first: Columns, tree: str, chunk: int, padding: float) -> None:
        self._schema = _table(first).schema
        self._file = pq.ParquetWriter(path, self._schema, compression="zstd")

    def append(self, columns: Columns) -> None:
        table = _table(columns).cast(self._schema)
        self._file.write_table(table, row_group_size=len(table))

    def finish(self, key: str, text: str) -> None:
        self._file.add_key_value_metadata({key: text})
        self._file.close()

    def release(self) -> None:
        if self._file is not None:
            self._file.close()


def _table(columns: Columns) -> Any:
    arrays: dict[str, Any] = {}
    for name, column in columns.items():
        fields = ak.fields(column)
        arrays |= {f"{name}_{field}": _to_arrow(column[field]) for field in fields} or {name: _to_arrow(column)}
    table = pa.table(arrays)
    return table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))


def _to_arrow(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return pa.array(column) if column.ndim == 1 else ak.to_arrow(ak.Array(column), extensionarray=False)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(ak.num(column)))]).astype(np.int32)
    values = pa.array(ak.to_numpy(ak.flatten(column)))
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(pa.field("item", values.type, nullable=False)))
