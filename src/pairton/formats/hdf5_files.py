"""HDF5 files through h5py, local or remote, with errors of one line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError, nearest
from pairton.formats.files import fingerprint, is_url, open_binary, reading_as

__all__ = ["Hdf5File", "open_file"]

CHUNK_CACHE = 2**20  # bytes a dataset: a chunk that spans two windows is not inflated twice
SHOWN = 20  # names in an error


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
        except BaseException:
            if self._stream is not None:
                self._stream.close()
            raise

    @cached_property
    def source_id(self) -> int:
        """The fingerprint, which our own files do not need."""
        return fingerprint(self.path)

    def __contains__(self, name: str) -> bool:
        with reading_as("HDF5", self.path):
            return name in self.handle

    def is_group(self, name: str) -> bool:
        with reading_as("HDF5", self.path):
            return name in self.handle and isinstance(self.handle[name], h5py.Group)

    def is_dataset(self, name: str) -> bool:
        with reading_as("HDF5", self.path):
            return name in self.handle and isinstance(self.handle[name], h5py.Dataset)

    def names(self, group: str = "/") -> list[str]:
        """What is directly in a group."""
        with reading_as("HDF5", self.path):
            return list(self.handle[group]) if self.is_group(group) else []

    def datasets(self, group: str = "/") -> list[str]:
        """Every dataset below a group, by its path from there."""
        found: list[str] = []

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found.append(name)

        with reading_as("HDF5", self.path):
            if self.is_group(group):
                self.handle[group].visititems(visit)
        return found

    def dataset(self, name: str, fields: Sequence[str] = ()) -> Any:
        """A dataset, with the fields of its records if given; an error names what is there instead."""
        if not self.is_dataset(name):
            found = self.datasets()
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise FormatError(
                f"{self.path}: there is no dataset {name}; found {', '.join(found[:SHOWN]) or 'none'}{more}"
                f"{nearest(name, found)}"
            )
        with reading_as("HDF5", self.path):
            data = self.handle[name]
        missing = [field for field in fields if field not in (data.dtype.names or ())]
        if missing:
            has = ", ".join(data.dtype.names or ()) or "no fields"
            raise FormatError(f"{self.path}: {name} lacks {', '.join(missing)}; it has {has}")
        return data

    def read(self, data: Any, start: int, stop: int, field: str | None = None) -> npt.NDArray[Any]:
        """Rows [start, stop) of a dataset, or of one field of its records."""
        with reading_as("HDF5", self.path):
            rows = data[start:stop] if field is None else data.fields(field)[start:stop]
        return np.asarray(rows)

    def attribute(self, name: str) -> str | None:
        """A string attribute of the file."""
        with reading_as("HDF5", self.path):
            value = self.handle.attrs.get(name)
        if isinstance(value, bytes):
            return value.decode("utf-8")
        return value if isinstance(value, str) else None

    text = attribute  # as other containers call it

    def summary(self) -> str:
        """What is in the top group, for an error."""
        return ", ".join(self.names()) or "nothing"

    def same_length(self, datasets: dict[str, Any]) -> int:
        """The number of rows all datasets share; an error where they differ."""
        lengths = {name: int(data.shape[0]) if data.shape else 0 for name, data in datasets.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise FormatError(
                f"{self.path}: columns of unequal length ({said} rows): each needs one row per event; "
                "write the file again"
            )
        return next(iter(lengths.values()), 0)

    def close(self) -> None:
        self.handle.close()
        if self._stream is not None:
            self._stream.close()


def open_file(path: str) -> Hdf5File:
    """Open for reading."""
    return Hdf5File(path)
