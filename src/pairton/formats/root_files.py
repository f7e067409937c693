"""Read trees (TTree or RNTuple) of ROOT files with uproot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

from pairton.errors import FormatError, InputError, nearest
from pairton.formats.column_files import ColumnFile, Columns, Table, is_text
from pairton.formats.files import (
    check_address,
    digest,
    fingerprint,
    fsspec_options,
    is_url,
    one_line,
    reading_as,
    refuse_inflated,
)

__all__ = ["NewFile", "RootFile", "RootTree", "open_file", "open_root"]

TREES = ("TTree", "TNtuple", "TNtupleD", "TChain")  # and RNTuple in any version


def open_root(path: str) -> Any:
    """Open a ROOT file or URL and return its top directory."""
    with reading_as("ROOT", path):
        directory = _open(path)
        end, size = int(directory.file.fEND), int(directory.file.source.num_bytes)
    if size < end:  # the missing bytes may be unused space or data
        directory.close()
        raise InputError(
            f"{path}: the ROOT file is truncated, it has {size} of {end} bytes: download or write it again"
        )
    return directory


def _open(path: str) -> Any:
    check_address(path)
    where = {path: None}  # with a mapping, uproot does not look for an object name after a colon
    if not is_url(path):
        return uproot.open(where, array_cache=None)  # rows are read only once
    try:
        return uproot.open(where, array_cache=None, **fsspec_options(path))
    except (OSError, ImportError, ValueError) as error:  # problems of the network or server, or a missing driver
        raise InputError(f"{path}: cannot be opened ({one_line(error)})") from error


class RootTree(Table):
    """One tree of an open file.

    `columns` are names of branches or fields, without the names of enclosing branches. `source_id` is computed
    from the UUID that ROOT gives every file.
    """

    is_rntuple: bool

    def __init__(self, file: RootFile, name: str) -> None:
        self.path, self.title, self._of = file.path, f"tree {name}", file
        with reading_as("ROOT", self.path):
            self._tree = file.directory[name]
            self.n_events = int(self._tree.num_entries)
            self.is_rntuple = not hasattr(self._tree, "branches")
            if self.is_rntuple:  # `keys()` returns the same names, but takes quadratic time
                names = [field.path for field in self._tree.all_fields if field.path]
            else:
                names = self._tree.keys(full_paths=False)
            self.columns = tuple(dict.fromkeys(names))

    @cached_property
    def source_id(self) -> int:
        uuid = self._of.directory.file.uuid
        return digest(uuid.bytes) if uuid.int else fingerprint(self.path)

    def read(self, names: Iterable[str], start: int, stop: int) -> dict[str, ak.Array]:
        """Rows [start, stop) of some columns."""
        wanted = list(dict.fromkeys(names))
        self.require(wanted)
        rows = {"entry_start": start, "entry_stop": stop}
        self._check_size(wanted)
        with reading_as("ROOT", self.path):
            if self.is_rntuple:
                found = {name: self._tree[name].array(**rows) for name in wanted}
            else:
                chosen = set(wanted)
                found = self._tree.arrays(filter_branch=lambda branch: branch.name in chosen, how=dict, **rows)
                found |= {name.rsplit("/", 1)[-1]: array for name, array in found.items()}
                found = {name: found[name] for name in wanted}
        for name, array in found.items():
            if len(array) != stop - start:
                raise FormatError(
                    f"{self.path}: column {name} has {len(array)} of the rows {start} to {stop}, but must have "
                    "one entry per event: write the file again"
                )
        return found

    @cached_property
    def _rntuple_bytes(self) -> int:
        """The uncompressed size of all pages of an RNTuple, as they declare it."""
        bits = [int(record.nbits) for record in self._tree.column_records]
        return sum(
            abs(int(page.num_elements)) * size // 8
            for cluster in self._tree.page_link_list
            for size, column in zip(bits, cluster, strict=False)
            for page in column.pages
        )

    def _check_size(self, names: list[str]) -> None:
        """Refuse branches that declare far more than the file holds: one event may have any number of objects."""
        with reading_as("ROOT", self.path):
            size = int(self._of.directory.file.source.num_bytes)
            if self.is_rntuple:
                declared = self._rntuple_bytes
            else:
                declared = sum(int(self._tree[name].uncompressed_bytes) for name in names)
        refuse_inflated(self.path, declared, size)

    def text(self, name: str) -> str | None:
        return self._of.text(name)

    def close(self) -> None:
        self._of.close()


class RootFile:
    """An open ROOT file, which opens each tree only once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.directory = open_root(path)
        self._open: dict[str, RootTree] = {}

    @cached_property
    def trees(self) -> list[str]:
        """The names of all trees (newest cycle)."""
        with reading_as("ROOT", self.path):
            kinds = self.directory.classnames(recursive=True, cycle=False)
        return [name for name, kind in kinds.items() if kind in TREES or "RNTuple" in kind]

    def columns(self, name: str) -> tuple[str, ...]:
        """The columns of a tree; empty if there is no such tree."""
        return self.tree(name).columns if name in self.trees else ()

    def tree(self, name: str) -> RootTree:
        if name not in self._open:
            self._open[name] = RootTree(self, name)
        return self._open[name]

    def choose(self, asked: str | None = None, prefer: Sequence[str] = ()) -> RootTree:
        """The tree `asked`, or the first of `prefer` that the file has, or the only one; else FormatError."""
        found = self.trees
        if not found:
            others = ", ".join(self.directory.keys(cycle=False)) or "nothing"
            raise FormatError(
                f"{self.path}: the file has {others}, but no tree: give a file with a TTree or RNTuple"
            )
        choice = asked if asked is not None else next((name for name in prefer if name in found), None)
        if choice is None:
            if len(found) > 1:
                raise FormatError(
                    f"{self.path}: the file has the trees {', '.join(found)}: choose one with --set tree=NAME"
                )
            choice = next(iter(found))
        if choice not in found:
            raise FormatError(
                f"{self.path}: the file has no tree {choice}, but {', '.join(found)}{nearest(choice, found)}: "
                "choose one with --set tree=NAME"
            )
        return self.tree(choice)

    def text(self, name: str) -> str | None:
        """A string in the top directory, if there is one."""
        with reading_as("ROOT", self.path):
            if self.directory.classnames(recursive=False, cycle=False).get(name) != "TObjString":
                return None
            return str(self.directory[name])

    def summary(self) -> str:
        """The trees, for an error."""
        return ", ".join(self.trees) or "no tree"

    def close(self) -> None:
        self.directory.close()


open_file = RootFile


class NewFile(ColumnFile):
    """A new ROOT file with one TTree."""

    _file: Any = None

    def begin(self, path: Path, first: Columns, tree: str, chunk: int, padding: float) -> None:
        self._file = uproot.recreate(path)
        self._tree = self._file.mktree(tree, {name: _branch_type(column) for name, column in first.items()})

    def append(self, columns: Columns) -> None:
        self._tree.extend({name: ak.Array(c) if is_text(c) else c for name, c in columns.items()})

    def finish(self, key: str, text: str) -> None:
        self._file[key] = text
        self._file.close()

    def release(self) -> None:
        if self._file is not None:
            self._file.close()

    @staticmethod
    def names(column: Any, name: str) -> set[str]:
        counter = {f"n{name}"} if isinstance(column, ak.Array) else set()
        return ColumnFile.names(column, name) | {name} | counter


def _branch_type(column: Any) -> Any:
    if is_text(column):
        return "string"
    if isinstance(column, np.ndarray):
        return np.dtype((column.dtype, column.shape[1:])) if column.ndim > 1 else column.dtype
    return column.type.content
