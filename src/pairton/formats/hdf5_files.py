"""Read local and remote HDF5 files with h5py, and write new ones.

An HDF5 file can include data from other files, through external links, external storage and virtual datasets. All
three are errors here, so that an untrusted file cannot copy private files of its reader into a result.
"""

from __future__ import annotations

import contextlib
import io
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError, InputError, nearest
from pairton.formats.column_files import ColumnFile, Columns, is_text
from pairton.formats.files import fingerprint, is_url, open_binary, reading_as, refuse_inflated

__all__ = ["Hdf5File", "NewFile", "open_file"]

CHUNK_CACHE = 2**20  # bytes per dataset, so that a chunk is not decompressed twice for two reads
MOST_DEFLATED = 1032  # times its size, gzip can make of a dataset
SHOWN = 20  # most names listed in an error
COMPRESSION = {"compression": "gzip", "compression_opts": 1, "shuffle": True}  # to a third of the size, and fast


class Hdf5File:
    """An open HDF5 file."""

    path: str
    handle: Any  # h5py.File

    def __init__(self, path: str) -> None:
        self.path = path
        self._stream = open_binary(path) if is_url(path) else None
        try:
            with reading_as("HDF5", path):
                self.handle = h5py.File(self._stream or path, "r", rdcc_nbytes=CHUNK_CACHE)
                self._refuse_others()
        except BaseException:
            if self._stream is not None:
                self._stream.close()
            raise
        self._bytes = int(self.handle.id.get_filesize())

    @cached_property
    def source_id(self) -> int:
        """The fingerprint of the file; computed only when needed, since files of Pairton store ids."""
        return fingerprint(self.path)

    def _refuse_others(self) -> None:
        """Raise InputError if any group or dataset has its content in another file."""

        def link(name: bytes, found: Any) -> str | None:
            return f"{name.decode()} is an external link" if found.type == h5py.h5l.TYPE_EXTERNAL else None

        def item(name: str, found: Any) -> str | None:  # each once; soft links lead to no others
            if not isinstance(found, h5py.Dataset):
                return None
            how = "is a virtual dataset" if found.is_virtual else "has external storage" if found.external else ""
            return f"{name} {how}" if how else None

        if problem := self.handle.id.links.visit(link, info=True) or self.handle.visititems(item):
            raise InputError(
                f"{self.path}: includes data from other files ({problem}), which are not read: copy all data into "
                "one file, for example with h5repack or h5py"
            )

    def find(self, name: str) -> Any:
        """The group or dataset at a path, or None."""
        with reading_as("HDF5", self.path):
            try:
                return self.handle.get(name or "/")
            except (OSError, RuntimeError):  # soft links that lead to one another
                return None

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def is_group(self, name: str) -> bool:
        return isinstance(self.find(name), h5py.Group)

    def is_dataset(self, name: str) -> bool:
        return isinstance(self.find(name), h5py.Dataset)

    def names(self, group: str = "/") -> list[str]:
        """The names directly in a group."""
        found = self.find(group)
        with reading_as("HDF5", self.path):
            return list(found) if isinstance(found, h5py.Group) else []

    def datasets(self, group: str = "/") -> list[str]:
        """The paths of all datasets below a group, relative to it."""
        names: list[str] = []

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                names.append(name)

        found = self.find(group)
        with reading_as("HDF5", self.path):
            if isinstance(found, h5py.Group):
                found.visititems(visit)  # follows hard links only
        return names

    def dataset(self, name: str) -> Any:
        """A dataset; FormatError if it is missing."""
        data = self.find(name)
        if not isinstance(data, h5py.Dataset):
            found = self.datasets()
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise FormatError(
                f"{self.path}: there is no dataset {name}; found {', '.join(found[:SHOWN]) or 'none'}{more}"
                f"{nearest(name, found)}"
            )
        return data

    def read(self, data: Any, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows [start, stop) of a dataset."""
        with reading_as("HDF5", self.path):
            self._check_size(data)
            return np.asarray(data[start:stop])

    def array(self, name: str) -> npt.NDArray[Any]:
        """A whole dataset."""
        data = self.dataset(name)
        return self.read(data, 0, data.shape[0])

    def _check_size(self, data: Any) -> None:
        """Raise InputError if a dataset, or a chunk of it, declares far more data than the file can hold."""
        if h5py.check_vlen_dtype(data.dtype) is not None:
            raise FormatError(f"{self.path}: {data.name} has values of variable length: store them as an array")
        stored = min(data.id.get_storage_size(), self._bytes)
        together = data.chunks or data.shape[1:]  # what is read at once, whatever was asked for
        refuse_inflated(self.path, math.prod(together) * data.dtype.itemsize, stored)
        refuse_inflated(self.path, data.size * data.dtype.itemsize, stored, most=MOST_DEFLATED)

    def text(self, name: str) -> str | None:
        """A string attribute of the file."""
        with reading_as("HDF5", self.path):
            value = self.handle.attrs.get(name)
        if isinstance(value, bytes):
            return value.decode("utf-8")
        return value if isinstance(value, str) else None

    def summary(self) -> str:
        """The names in the top group, for an error."""
        return ", ".join(self.names()) or "nothing"

    def same_length(self, datasets: dict[str, Any]) -> int:
        """The number of rows of all datasets; FormatError if they differ."""
        lengths = {name: int(data.shape[0]) if data.shape else 0 for name, data in datasets.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise FormatError(
                f"{self.path}: columns of unequal length ({listed} rows), but each needs one row per event: "
                "write the file again"
            )
        return next(iter(lengths.values()), 0)

    def __enter__(self) -> Hdf5File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.handle.close()
        if self._stream is not None:
            self._stream.close()


open_file = Hdf5File


class NewFile(ColumnFile):
    """A new HDF5 file: one dataset per column; a column of lists is a group with `values` and `counts`.

    Datasets can grow in all directions: rows (events, width) may become wider.
    """

    _file: Any = None
    _disk: ErrorLatchingFile

    def begin(self, path: Path, first: Columns, tree: str, chunk: int, padding: float) -> None:
        self._disk = ErrorLatchingFile(path, "w+")
        self._file = h5py.File(self._disk, "w", rdcc_nbytes=0)  # full chunks need no cache
        for name, column in _flat(first).items():
            self._file.create_dataset(
                name,
                (0, *column.shape[1:]),
                h5py.string_dtype() if is_text(column) else column.dtype,
                maxshape=(None,) * column.ndim,
                chunks=(chunk, *column.shape[1:]),
                fillvalue=np.full((), padding, column.dtype) if column.dtype.kind in "fV" else None,
                **COMPRESSION,
            )

    def append(self, columns: Columns) -> None:
        for name, rows in _flat(columns).items():
            data = self._file[name]
            start = len(data)
            width = tuple(max(old, new) for old, new in zip(data.shape[1:], rows.shape[1:], strict=True))
            data.resize((start + len(rows), *width))
            where = (slice(start, None), *(slice(0, n) for n in rows.shape[1:]))
            data[where] = rows.astype(object) if is_text(rows) else rows
        self._check_disk()

    def finish(self, key: str, text: str) -> None:
        self._file.attrs[key] = text
        self._file.close()
        self._check_disk()
        self._disk.close()

    def _check_disk(self) -> None:
        if self._disk.error is not None:
            raise self._disk.error

    def release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(Exception):
                self._file.close()
            self._disk.close()


def _flat(columns: Columns) -> dict[str, npt.NDArray[Any]]:
    flat = {}
    for name, column in columns.items():
        if isinstance(column, np.ndarray):
            flat[name] = column
        else:
            flat[f"{name}/values"] = np.asarray(ak.flatten(column))
            flat[f"{name}/counts"] = np.asarray(ak.num(column))
    return flat


class ErrorLatchingFile(io.FileIO):
    """A file that ignores all writes after the first one that failed.

    If a write fails, HDF5 cannot close the file and crashes the process when it ends. Errors are therefore hidden
    from HDF5; the writer checks `error`.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while self.error is None and len(rest):
                rest = rest[super().write(rest) or 0 :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size) if self.error is None else self.tell()
        except OSError as error:
            self.error = error
            return self.tell()

    def flush(self) -> None:
        """Do nothing, since writes are not buffered."""
