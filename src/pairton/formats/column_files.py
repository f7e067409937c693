"""Files of columns: what ROOT, HDF5 and Parquet have in common, for events and for results.

Each container is one module with `open_file`, for reading, and `NewFile`, for writing: `root_files`, `hdf5_files`,
`parquet_files`. A column is an array of numpy (numbers or text, one row per event), or an awkward array of lists
of numbers, or of lists of records, which becomes one column per field.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import awkward as ak
import numpy as np

from pairton._common.atomic import Replacement, output_errors
from pairton.errors import FormatError, OutputError, PairtonError, nearest
from pairton.formats.columns import shown
from pairton.formats.files import one_line

__all__ = [
    "DEFAULT_CHUNK",
    "ColumnFile",
    "ColumnWriter",
    "Columns",
    "Table",
    "check_column",
    "container_module",
    "is_text",
]

MODULES = {"HDF5": "hdf5_files", "ROOT": "root_files", "Parquet": "parquet_files"}
DEFAULT_CHUNK = 50_000  # events held in memory at once: about 30 MB of jets
CHUNKS = 8  # a batch has so many chunks of HDF5, all full, so that no chunk is read back and completed
NUMBERS = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)

Columns = Mapping[str, Any]


def container_module(container: str) -> Any:
    """The module of a container; imported when it is needed."""
    return import_module(f"pairton.formats.{MODULES[container]}")


class Table(ABC):
    """An open table of events: a tree of a ROOT file, or a Parquet file."""

    path: str
    title: str  # name of the table in errors
    n_events: int
    columns: tuple[str, ...]

    @property
    @abstractmethod
    def source_id(self) -> int:
        """A number that identifies the file in the ids of its events."""

    @abstractmethod
    def read(self, names: Iterable[str], start: int, stop: int) -> Mapping[str, ak.Array]:
        """Rows [start, stop) of some columns."""

    @abstractmethod
    def text(self, name: str) -> str | None:
        """A string that Pairton stored in the file."""

    @abstractmethod
    def close(self) -> None:
        """Release the file."""

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    def require(self, names: Sequence[str], hint: str = "") -> None:
        """Raise FormatError if columns are missing."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            similar = nearest(missing[0], self.columns) or ";"
            columns = shown(self.columns, missing[0])
            raise FormatError(
                f"{self.path}: {self.title} lacks {', '.join(missing)}{similar} it has {columns}{hint}"
            )


class ColumnFile(ABC):
    """A new file of a container."""

    @abstractmethod
    def begin(self, path: Path, first: Columns, tree: str, chunk: int, padding: float) -> None:
        """Create the file with the names and types of some columns.

        tree      name of the tree, in ROOT
        chunk     rows that HDF5 compresses together
        padding   value of HDF5 columns (events, width) beyond the width of an earlier batch
        """

    @abstractmethod
    def append(self, columns: Columns) -> None:
        """Write some rows."""

    @abstractmethod
    def finish(self, key: str, text: str) -> None:
        """Store a text and close."""

    @abstractmethod
    def release(self) -> None:
        """Close the file after a failure."""

    @staticmethod
    def names(column: Any, name: str) -> set[str]:
        """The names that a column takes in the file."""
        return {f"{name}_{field}" for field in ak.fields(column)} or {name}


class ColumnWriter(ABC):
    """Writes columns batch by batch, as a context manager: it leaves a complete file or nothing."""

    tree: ClassVar[str]  # name of the tree, in ROOT files
    key: ClassVar[str]  # name of the text about the file
    batch: ClassVar[int]  # rows that are written at a time

    def __init__(self, path: Path, container: str, padding: float = 0.0) -> None:
        self.path = path
        self._new = Replacement(path)
        self._file: ColumnFile = container_module(container).NewFile()
        self._padding, self._begun = padding, False

    @abstractmethod
    def about(self) -> str:
        """The text about the file."""

    @abstractmethod
    def flush(self) -> None:
        """Write what waits for a full batch; at least the types of the columns."""

    def append(self, columns: Columns) -> None:
        with self._writing():
            rows = len(next(iter(columns.values())))
            if not self._begun:
                chunk = max(1, min(self.batch // CHUNKS, rows))
                self._file.begin(self._new.temporary, columns, self.tree, chunk, self._padding)
                self._begun = True
            if rows:
                self._file.append(columns)

    def close(self) -> None:
        """Finish the file and give it its final name."""
        try:
            self.flush()
            with self._writing():
                self._file.finish(self.key, self.about())
        except BaseException:
            self.abort()
            raise
        self._new.commit()

    def abort(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(Exception):  # closing fails again if the disk is full; the file is removed
            self._file.release()
        self._new.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn errors of libraries, such as a full disk, into an OutputError."""
        try:
            with output_errors(self.path):
                yield
        except PairtonError:
            raise
        except (RuntimeError, ValueError, TypeError) as error:  # what the libraries raise if they cannot write
            raise OutputError(
                f"{self.path}: cannot be written ({one_line(error)}); nothing was left behind"
            ) from error


def is_text(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind == "U"


def check_column(column: Any, name: str, path: Path) -> Any:
    """A column of numbers as a numpy array, or of lists of numbers as an awkward one; OutputError for others."""
    array = ak.Array(column)
    if not ak.fields(array):
        parts = str(array.type).split(" * ")[1:]
        if parts[-1] in NUMBERS:
            if all(part.isdigit() for part in parts[:-1]):
                return ak.to_numpy(array)
            if parts[:-1] == ["var"]:
                return array
    raise OutputError(
        f"{path}: column {name} has the type {array.type}, but only numbers and lists of numbers can be written: "
        "do not keep it"
    )
