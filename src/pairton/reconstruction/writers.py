"""Results as files: the columns of `result_columns`, in Parquet, ROOT or HDF5, depending on the suffix.

The metadata (settings, model, inputs, number of events of each status) are a JSON text named
`pairton_reconstruction`: an entry of the Parquet schema, a string in ROOT, an attribute in HDF5.
"""

from __future__ import annotations

import contextlib
import json
import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.atomic import CompleteOrNothing, Replacement
from pairton.errors import ConfigError
from pairton.events import Status
from pairton.formats.files import CONTAINERS
from pairton.formats.writing import column_kind, writing_errors
from pairton.reconstruction.momenta import variation_caveat
from pairton.reconstruction.provenance import KEY, result_metadata, result_settings
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.result_columns import LABELS, Columns, result_columns, same_columns, slot_column
from pairton.topology import JET, Topology

__all__ = [
    "KEY",
    "TREE",
    "ResultWriter",
    "Tally",
    "create_result",
    "result_metadata",
    "save_result",
]

TREE = "reco"
ROWS = 65_536  # rows written at a time; a multiple of the window, so that files do not depend on chunks
BAD = (Status.BAD_OBJECT, Status.BAD_OUTPUT)  # these point to an error in the file or in the model


class ResultWriter(CompleteOrNothing):
    """Writes a result, window by window; the file appears when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.tally = Tally()
        self._new = Replacement(path)
        self._waiting: list[Columns] = []
        self._rows = 0
        self.names: list[str] | None = None  # of the columns; None before the first window

    @abstractmethod
    def _begin(self, temporary: Path, first: Columns) -> None:
        """Create the file, with the names and types of the first columns."""

    @abstractmethod
    def _append(self, columns: Columns) -> None:
        """Write some rows."""

    @abstractmethod
    def _finish(self, metadata: str) -> None:
        """Write the metadata and close."""

    @abstractmethod
    def _release(self) -> None:
        """Close the file after a failure."""

    def write(self, reco: Reconstruction) -> None:
        columns = result_columns(reco)
        names = list(columns)
        if self.names is not None:
            same_columns(self.path, self.names, names)
        else:  # such as the chosen b-tagger, or the settings of a generator
            self.metadata.setdefault("input_metadata", dict(reco.events.metadata))
            if caveat := variation_caveat(reco.topology, reco.events.variations):
                self.metadata["variation_caveat"] = caveat
        self.names = names
        self.tally.add(reco)
        self._waiting.append(columns)
        self._rows += len(reco)
        if self._rows >= ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        parts = self._waiting
        columns = {name: _join([part[name] for part in parts], name, self.path) for name in parts[0]}
        self._waiting, self._rows = [], 0
        with writing_errors(self.path):
            if not self._new.temporary.exists():
                self._begin(self._new.temporary, columns)
            self._append(columns)

    def close(self) -> None:
        try:
            self._flush()
            counts: dict[str, Any] = {"events": self.tally.events, "status": self.tally.status}
            if self.tally.jets:
                counts |= {"jets": self.tally.jets, "btagged_jets": self.tally.tagged}
            if self.tally.varied:
                counts["variation_status"] = self.tally.varied
            with writing_errors(self.path):
                self._finish(json.dumps(self.metadata | counts))
        except BaseException:
            self.abort()
            raise
        self._new.commit()

    def abort(self) -> None:
        with contextlib.suppress(Exception):  # closing fails again if the disk is full; the file is removed
            self._release()
        self._new.discard()


class Tally:
    """Numbers of events of each status, for nominal objects and variations, and the first bad events."""

    def __init__(self) -> None:
        self.status = dict.fromkeys(LABELS.tolist(), 0)
        self.first: dict[str, int] = {}  # label of a status in BAD -> row of its first event
        self.varied: dict[str, dict[str, int]] = {}
        self.jets = self.tagged = 0  # number of jets that were used, and of b-tagged ones among them

    @property
    def events(self) -> int:
        return sum(self.status.values())

    def add(self, reco: Reconstruction) -> None:
        for status in BAD:
            (rows,) = np.nonzero(reco.status == status)
            if len(rows):
                self.first.setdefault(status.label, self.events + int(rows[0]))
        _add_status(self.status, reco)
        if "n_btags" in reco.outputs:
            self.tagged += int(reco.outputs["n_btags"].sum())
            self.jets += int(reco.used[JET].sum())
        for name, other in reco.variations.items():
            _add_status(self.varied.setdefault(name, dict.fromkeys(LABELS.tolist(), 0)), other)


def _add_status(counts: dict[str, int], reco: Reconstruction) -> None:
    for label, count in zip(counts, np.bincount(reco.status, minlength=len(LABELS)).tolist(), strict=True):
        counts[label] += count


def _join(parts: list[Any], name: str, path: Path) -> Any:
    if _is_text(parts[0]):
        return np.concatenate(parts)
    kind, _ = column_kind(parts[0], name, path)
    if kind == "dense":
        return np.concatenate([np.asarray(part) for part in parts])
    return ak.to_packed(ak.concatenate(parts))


def _is_text(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind == "U"


class ParquetResult(ResultWriter):
    _writer: Any = None

    def _table(self, columns: Columns) -> Any:
        import pyarrow as pa

        arrays = {}
        for name, column in columns.items():
            flat = isinstance(column, np.ndarray) and column.ndim == 1
            arrays[name] = pa.array(column) if flat else ak.to_arrow(ak.Array(column), extensionarray=False)
        table = pa.table(arrays)
        return table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))

    def _begin(self, temporary: Path, first: Columns) -> None:
        import pyarrow.parquet as pq

        self._schema = self._table(first).schema
        self._writer = pq.ParquetWriter(temporary, self._schema, compression="zstd")

    def _append(self, columns: Columns) -> None:
        self._writer.write_table(self._table(columns).cast(self._schema))

    def _finish(self, metadata: str) -> None:
        self._writer.add_key_value_metadata({KEY: metadata})
        self._writer.close()

    def _release(self) -> None:
        if self._writer is not None:
            self._writer.close()


class RootResult(ResultWriter):
    _file: Any = None

    def _begin(self, temporary: Path, first: Columns) -> None:
        import uproot

        self._file = uproot.recreate(temporary)
        types = {name: "string" if _is_text(column) else _root_type(column) for name, column in first.items()}
        self._tree = self._file.mktree(TREE, types)

    def _append(self, columns: Columns) -> None:
        if len(columns["status"]):
            self._tree.extend({name: ak.Array(c) if _is_text(c) else c for name, c in columns.items()})

    def _finish(self, metadata: str) -> None:
        self._file[KEY] = metadata
        self._file.close()

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()


def _root_type(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return np.dtype((column.dtype, column.shape[1:])) if column.ndim > 1 else column.dtype
    return str(column.type).split(" * ", 1)[1]  # "var * float32"


class Hdf5Result(ResultWriter):
    """One dataset per column; a column of lists is a group with `values` and `counts`."""

    _file: Any = None
    _disk: Any = None

    def _begin(self, temporary: Path, first: Columns) -> None:
        import h5py

        from pairton.formats.hdf5_layout import Disk

        self._disk = Disk(temporary, "w+")
        self._file = h5py.File(self._disk, "w")
        for name, column in self._flat(first).items():
            kind = h5py.string_dtype() if _is_text(column) else column.dtype
            rows = max(1, min(ROWS, len(column)))
            self._file.create_dataset(
                name,
                (0, *column.shape[1:]),
                kind,
                maxshape=(None, *column.shape[1:]),
                chunks=(rows, *column.shape[1:]),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
            )

    def _append(self, columns: Columns) -> None:
        for name, column in self._flat(columns).items():
            data = self._file[name]
            start = len(data)
            data.resize(start + len(column), axis=0)
            data[start:] = column.astype(object) if _is_text(column) else column
        self._check_disk()

    def _check_disk(self) -> None:
        if self._disk.error is not None:
            raise self._disk.error

    @staticmethod
    def _flat(columns: Columns) -> dict[str, npt.NDArray[Any]]:
        flat = {}
        for name, column in columns.items():
            if isinstance(column, np.ndarray):
                flat[name] = column
            else:
                flat[f"{name}/values"] = np.asarray(ak.flatten(column))
                flat[f"{name}/counts"] = np.asarray(ak.num(column))
        return flat

    def _finish(self, metadata: str) -> None:
        self._file.attrs[KEY] = metadata
        self._file.close()
        self._check_disk()
        self._disk.close()

    def _release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(Exception):
                self._file.close()
            self._disk.close()


WRITERS: Mapping[str, type[ResultWriter]] = {
    "Parquet": ParquetResult,
    "ROOT": RootResult,
    "HDF5": Hdf5Result,
}


def create_result(path: str | Path, topology: Topology, metadata: Mapping[str, Any]) -> ResultWriter:
    """A writer for a new file; its suffix selects the format."""
    target = Path(path)
    container = CONTAINERS.get(target.suffix.lower())
    if container is None:
        raise ConfigError(f"{target}: unknown suffix {target.suffix!r}: choose one of {', '.join(CONTAINERS)}")
    writer = WRITERS[container](target)
    writer.metadata = {
        "format_version": 2,
        "topology": topology.to_dict(),
        "slots": {slot.name: slot_column(slot) for slot in topology.slots},
        **metadata,
    }
    return writer


def save_result(reco: Reconstruction, path: str | os.PathLike[str]) -> None:
    """Write a reconstruction that is in memory; its metadata do not list input files."""
    metadata = {}
    if reco.model is not None and reco.settings is not None:
        metadata = result_settings(reco.model, reco.settings)
    with create_result(os.fspath(path), reco.topology, metadata) as writer:
        writer.write(reco)
