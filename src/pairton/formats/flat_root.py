"""Flat ROOT files: a TTree or RNTuple of jagged columns; written as a TTree."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import uproot

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
from pairton.formats.root_files import RootFile
from pairton.formats.stored import KEY
from pairton.formats.writing import FileWriter, column_kind
from pairton.topology import Topology
from pairton.topology.selection import TRANSVERSE

__all__ = ["FORMAT", "FlatRoot"]

TREE = "events"
PREFERRED = (TREE, "Events", "tree")


class FlatRoot(Format):
    name = "flat_root"
    description = (
        "a TTree or RNTuple of lists jet_pt, jet_eta, jet_phi, jet_energy or jet_mass, jet_btag; lepton_pt, …"
    )
    suffixes = (".root",)
    reads_variations = True
    names = MAP_NAMES
    settings: ClassVar[dict[str, str]] = SETTINGS

    def recognises(self, file: RootFile) -> bool:
        return True  # tried last; `open` reports missing columns

    def open(self, file: RootFile, options: ReadOptions) -> Source:
        return FlatSource(file.choose(options.tree, PREFERRED), options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return _Writer(path, topology, metadata)


class _Writer(FileWriter):
    _file: Any = None

    def _begin(self, temporary: Path, first: Events) -> None:
        content = self._content(first)
        reserved = set().union(
            *(_branches(array, name) for name, array in content.items() if name not in first.columns)
        )
        clash = [name for name in first.columns if _branches(content[name], name) & reserved]
        if clash:
            raise OutputError(
                f"{self.path}: the column {clash[0]} has the same name as a column of this format: do not keep it"
            )
        self._file = uproot.recreate(temporary)
        self._tree = self._file.mktree(TREE, {name: _branch_type(array) for name, array in content.items()})

    def _content(self, events: Events) -> dict[str, Any]:
        content: dict[str, Any] = {name: column_kind(c, name, self.path)[1] for name, c in events.columns.items()}
        for kind, columns in object_columns(events).items():
            if kind in TRANSVERSE:
                content |= columns
            else:
                fields = {name.removeprefix(f"{kind}_"): values for name, values in columns.items()}
                content[kind] = ak.unflatten(ak.zip(fields), events.counts[kind])
        if events.truth is not None:
            labels = zip(truth_columns(self.topology), events.truth.T, strict=True)
            content |= {name: np.ascontiguousarray(column) for name, column in labels}
        if events.weights is not None:
            content[WEIGHT] = events.weights
        content[SOURCE], content[NUMBER] = events.ids[:, 0].copy(), events.ids[:, 1].copy()
        return content

    def _append(self, events: Events) -> None:
        self._tree.extend(self._content(events))

    def _finish(self) -> None:
        self._file[KEY] = self._about()
        self._file.close()

    def _release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(Exception):  # on a full disk, closing fails too; the file is removed next
                self._file.close()


def _branch_type(array: Any) -> Any:
    """The awkward type of a branch, without the number of rows."""
    return ak.Array(array).type.content


def _branches(array: Any, name: str) -> set[str]:
    """The branches that uproot writes for an array."""
    fields = {f"{name}_{field}" for field in ak.fields(array)} or {name}
    return {*fields, name, f"n{name}"} if "var" in str(ak.Array(array).type) else {*fields, name}


FORMAT = FlatRoot()
