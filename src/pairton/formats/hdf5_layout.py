"""Parts that the HDF5 layouts share: ids, weights and kept columns, and datasets that can grow.

METADATA/event_id        (n, 2): source and number of each event
METADATA/weight          (n,)
METADATA/columns/<name>  (n, ...); for lists a group with `counts` (n,) and `content`
"""

from __future__ import annotations

import contextlib
import io
from abc import abstractmethod
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError
from pairton.events import Events
from pairton.formats.base import DEFAULT_CHUNK, ReadOptions, Source
from pairton.formats.columns import column_names, row_ids
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.stored import KEY, Stored
from pairton.formats.tag_columns import TagColumns
from pairton.formats.writing import FileWriter, column_kind

__all__ = ["Disk", "Growing", "Hdf5Source", "Hdf5Writer", "Sidecar"]

IDS, WEIGHT, COLUMNS = "METADATA/event_id", "METADATA/weight", "METADATA/columns"
LABELS = ("CLASSIFICATIONS", "REGRESSIONS", "CLASSIFICATIONS/EVENT", "REGRESSIONS/EVENT")  # groups of SPANet
CHUNK_ROWS = DEFAULT_CHUNK // 8  # a batch is a whole number of chunks, so that no chunk is read back and completed
COMPRESSION = {"compression": "gzip", "compression_opts": 1, "shuffle": True}  # to a third of the size, and fast


class Sidecar:
    """Reads the ids, weights and kept columns of a file, whether Pairton wrote it or not."""

    def __init__(self, file: Hdf5File, options: ReadOptions) -> None:
        self.file = file
        self.stored = Stored.from_json(file.text(KEY), file.path)
        self._ids = file.dataset(IDS) if file.is_dataset(IDS) else None
        weight = options.map.get("weight", WEIGHT)
        self._weight = file.dataset(weight) if "weight" in options.map or file.is_dataset(WEIGHT) else None
        self._columns: dict[str, Any] = {}
        self._offsets: dict[str, npt.NDArray[np.int64]] = {}
        self._counts: dict[str, Any] = {}
        kept = column_names(options.keep, [*file.names(COLUMNS), *file.datasets()]) if options.keep else ()
        for name in dict.fromkeys([*self.stored.columns, *kept]):
            own = f"{COLUMNS}/{name}"
            if file.is_group(own):
                counts = file.dataset(f"{own}/counts")
                every = file.read(counts, 0, counts.shape[0])
                self._counts[f"{own}/counts"] = counts
                self._offsets[name] = np.concatenate([[0], np.cumsum(every, dtype=np.int64)])
                self._columns[name] = file.dataset(f"{own}/content")
            else:
                places = [own, name, *(f"{group}/{name}" for group in LABELS)]
                self._columns[name] = file.dataset(next((p for p in places if file.is_dataset(p)), name))

    def lengths(self) -> dict[str, Any]:
        """Datasets with one row per event, for the check of their lengths."""
        found = {IDS: self._ids, WEIGHT: self._weight}
        found |= {name: data for name, data in self._columns.items() if name not in self._offsets} | self._counts
        return {name: data for name, data in found.items() if data is not None}

    def ids(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        if self._ids is None:
            return row_ids(self.file.source_id, start, stop)
        found = self.file.read(self._ids, start, stop)
        if found.ndim != 2 or found.shape[1] != 2:
            raise FormatError(
                f"{self.file.path}: {IDS} has the shape {self._ids.shape}, but must be (events, 2): write it again"
            )
        return found.astype(np.uint64, copy=False)

    def weights(self, start: int, stop: int) -> npt.NDArray[np.float64] | None:
        if self._weight is None:
            return None
        found = self.file.read(self._weight, start, stop).astype(np.float64)
        if found.shape[1:] not in ((), (1,)):
            raise FormatError(
                f"{self.file.path}: the weight {self._weight.name} has the shape {self._weight.shape}, but must "
                "have one number per event: name another dataset with --map weight=DATASET"
            )
        return found.reshape(len(found))

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, data in self._columns.items():
            if name in self._offsets:
                offsets = self._offsets[name][start : stop + 1]
                content = self.file.read(data, int(offsets[0]), int(offsets[-1]))
                found[name] = ak.unflatten(content, np.diff(offsets))
            else:
                found[name] = self.file.read(data, start, stop)
        return found


class Hdf5Source(Source):
    """An open HDF5 file; layouts find their datasets in `_prepare`."""

    def __init__(self, file: Hdf5File, options: ReadOptions) -> None:
        self.path, self._file = file.path, file
        self._sidecar = Sidecar(file, options)
        self._tags = TagColumns(options, self._sidecar.stored.metadata, file.path)
        self.metadata, self.options = self._tags.metadata, self._tags.options
        self._prepare(file)
        self.tagging = self._tags.tagging

    @abstractmethod
    def _prepare(self, file: Hdf5File) -> None:
        """Find the datasets; set `n_events` and `has_truth`."""

    def _events(
        self, objects: dict[str, ak.Array], truth: npt.NDArray[np.int32] | None, start: int, stop: int
    ) -> Events:
        """Events with the ids, weights and columns of the sidecar."""
        sidecar = self._sidecar
        rest = sidecar.weights(start, stop), sidecar.ids(start, stop), sidecar.columns(start, stop)
        return Events(objects, self.options.topology, truth, *rest, self.metadata)

    def close(self) -> None:
        self._file.close()


class Growing:
    """A dataset that can be extended with more and wider rows."""

    def __init__(
        self, group: Any, name: str, dtype: npt.DTypeLike, width: tuple[int, ...] = (), fill: Any = None
    ) -> None:
        self.data = group.create_dataset(
            name,
            shape=(0, *width),
            maxshape=(None,) * (1 + len(width)),
            chunks=(CHUNK_ROWS, *width),
            dtype=dtype,
            fillvalue=fill,
            **COMPRESSION,
        )

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows; narrower ones are padded."""
        start = self.data.shape[0]
        width = tuple(max(old, new) for old, new in zip(self.data.shape[1:], rows.shape[1:], strict=True))
        self.data.resize((start + len(rows), *width))
        self.data[(slice(start, None), *(slice(0, n) for n in rows.shape[1:]))] = rows


class Disk(io.FileIO):
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


class Hdf5Writer(FileWriter):
    """Base class of HDF5 writers, which write their own datasets in `_begin_layout` and `_append_layout`."""

    _file: Any = None
    _disk: Disk

    @abstractmethod
    def _begin_layout(self, file: Any, first: Events) -> None:
        """Create the datasets of objects and labels."""

    @abstractmethod
    def _append_layout(self, events: Events) -> None:
        """Add the rows of some events to them."""

    def _begin(self, temporary: Path, first: Events) -> None:
        self._disk = Disk(temporary, "w+")
        self._file = h5py.File(self._disk, "w", rdcc_nbytes=0)  # full chunks need no cache
        self._begin_layout(self._file, first)
        self._ids = Growing(self._file, IDS, np.uint64, (2,))
        self._weight = None if first.weights is None else Growing(self._file, WEIGHT, np.float64)
        self._kept: dict[str, tuple[Growing, Growing | None]] = {}
        for name, column in first.columns.items():
            kind, array = column_kind(column, name, self.path)
            if kind == "jagged":
                group = self._file.create_group(f"{COLUMNS}/{name}")
                dtype = ak.to_numpy(ak.flatten(array[:0])).dtype
                self._kept[name] = Growing(group, "content", dtype), Growing(group, "counts", np.int32)
            else:
                dense = ak.to_numpy(array)
                self._kept[name] = Growing(self._file, f"{COLUMNS}/{name}", dense.dtype, dense.shape[1:]), None

    def _append(self, events: Events) -> None:
        self._append_layout(events)
        self._ids.append(events.ids)
        if self._weight is not None and events.weights is not None:
            self._weight.append(events.weights)
        for name, (content, counts) in self._kept.items():
            array = ak.Array(events.columns[name])
            if counts is not None:
                counts.append(np.asarray(ak.num(array, axis=1)))
                array = ak.flatten(array)
            content.append(ak.to_numpy(array))
        self._check_disk()

    def _finish(self) -> None:
        self._file.attrs[KEY] = self._about()
        self._file.close()
        self._check_disk()
        self._disk.close()

    def _check_disk(self) -> None:
        if self._disk.error is not None:
            raise self._disk.error

    def _release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(Exception):
                self._file.close()
            self._disk.close()
