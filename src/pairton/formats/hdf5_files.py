"""Read local and remote HDF5 files with h5py.

An HDF5 file can include data from other files, through external links, external storage and virtual datasets. All
three are errors here, so that an untrusted file cannot copy private files of its reader into a result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError, InputError, nearest
from pairton.formats.files import fingerprint, is_url, open_binary, reading_as, refuse_inflated

__all__ = ["Hdf5File", "open_file"]

CHUNK_CACHE = 2**20  # bytes per dataset, so that a chunk is not decompressed twice for two reads
MOST_LINKS = 16  # soft links in one path, as in HDF5 itself
SHOWN = 20  # most names listed in an error


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
        self._bytes = int(self.handle.id.get_filesize())
        self._groups: dict[str, Any] = {}  # by path: most of the time of a small file is spent on finding them

    @cached_property
    def source_id(self) -> int:
        """The fingerprint of the file; computed only when needed, since files of Pairton store ids."""
        return fingerprint(self.path)

    def find(self, name: str) -> Any:
        """The group or dataset at a path, or None; InputError if the path leads to another file."""
        with reading_as("HDF5", self.path):
            if name in self._groups:
                return self._groups[name]
            found, parts, links = self.handle, name.split("/"), 0
            if (group := "/".join(parts[:-1])) in self._groups:
                found, parts = self._groups[group], parts[-1:]
            while parts:
                part = parts.pop(0)
                if part in ("", "."):
                    continue
                link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
                if isinstance(link, h5py.SoftLink) and links < MOST_LINKS:
                    found = self.handle if link.path.startswith("/") else found
                    parts, links = link.path.split("/") + parts, links + 1
                elif isinstance(link, h5py.HardLink):
                    found = found[part]
                elif isinstance(link, h5py.ExternalLink):
                    raise self._elsewhere(name, "an external link")
                else:
                    return None
            if isinstance(found, h5py.Dataset) and (found.is_virtual or found.external):
                raise self._elsewhere(name, "a virtual dataset" if found.is_virtual else "external storage")
            if isinstance(found, h5py.Group):
                self._groups[name] = found
            return found

    def _elsewhere(self, name: str, how: str) -> InputError:
        return InputError(
            f"{self.path}: {name} includes data from other files ({how}), which are not read: "
            "copy all data into one file, for example with h5repack or h5py"
        )

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

    def dataset(self, name: str, fields: Sequence[str] = ()) -> Any:
        """A dataset; FormatError if it is missing or its records lack one of the fields."""
        data = self.find(name)
        if not isinstance(data, h5py.Dataset):
            found = self.datasets()
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise FormatError(
                f"{self.path}: there is no dataset {name}; found {', '.join(found[:SHOWN]) or 'none'}{more}"
                f"{nearest(name, found)}"
            )
        missing = [field for field in fields if field not in (data.dtype.names or ())]
        if missing:
            has = ", ".join(data.dtype.names or ()) or "no fields"
            raise FormatError(f"{self.path}: {name} lacks {', '.join(missing)}; it has {has}")
        return data

    def read(self, data: Any, start: int, stop: int, field: str | None = None) -> npt.NDArray[Any]:
        """Rows [start, stop) of a dataset, or of one field of its records."""
        with reading_as("HDF5", self.path):
            self._check_size(data, stop - start)
            rows = data[start:stop] if field is None else data.fields(field)[start:stop]
        return np.asarray(rows)

    def array(self, name: str) -> npt.NDArray[Any]:
        """A whole dataset."""
        data = self.dataset(name)
        return self.read(data, 0, data.shape[0])

    def _check_size(self, data: Any, rows: int) -> None:
        """Raise InputError if a dataset declares far more data than the file can hold."""
        if h5py.check_vlen_dtype(data.dtype) is not None:
            raise FormatError(f"{self.path}: {data.name} has values of variable length: store them as an array")
        shape = max((rows, *data.shape[1:]), data.chunks or (0,), key=math.prod)
        stored = min(data.id.get_storage_size(), self._bytes)
        refuse_inflated(self.path, math.prod(shape) * data.dtype.itemsize, stored)

    def attribute(self, name: str) -> str | None:
        """A string attribute of the file."""
        with reading_as("HDF5", self.path):
            value = self.handle.attrs.get(name)
        if isinstance(value, bytes):
            return value.decode("utf-8")
        return value if isinstance(value, str) else None

    text = attribute  # the name that `File` requires

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


def open_file(path: str) -> Hdf5File:
    """Open for reading."""
    return Hdf5File(path)
