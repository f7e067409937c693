"""Flat ROOT: a TTree or an RNTuple of jagged columns, read by name (`--map`); written as a TTree."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

from pairton.errors import OutputError
from pairton.events import Events

# from pairton.events.objects import JET_FIELDS
from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.flat import NUMBER, SOURCE, WEIGHT, FlatSource, truth_columns
from pairton.formats.root_files import open_root, open_tree, stored_text
from pairton.formats.stored import KEY, Stored
from pairton.formats.writing import FileWriter, column_kind
from pairton.topology import Topology

__all__ = ["FORMAT", "FlatRoot"]

TREE = "events"
PREFERRED = (TREE, "Events", "tree")


class FlatRoot(Format):
    name = "flat_root"
    description = "a TTree or RNTuple of lists jet_pt, jet_eta, jet_phi, jet_energy or jet_mass, jet_btag"
    suffixes = (".root",)
    reads_variations = True

    def recognises(self, path: str) -> bool:
        return True  # the last of its kind: a missing column is named on opening

    def open(self, path: str, options: ReadOptions) -> Source:
        table = open_tree(path, options.tree, PREFERRED)
        try:
            return FlatSource(table, options, table.text(KEY))
        except BaseException:
            table.close()
            raise

    def stored_topology(self, path: str) -> Topology | None:
        directory = open_root(path)
        try:
            return Stored.from_json(stored_text(path, directory, KEY), path, tree=True).topology
        finally:
            directory.close()

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return _Writer(path, topology, metadata)


class _Writer(FileWriter):
    _file: Any = None

    def _begin(self, temporary: Path, first: Events) -> None:
        content = self._content(first)
        clash = [name for name in first.columns if _branches(content[name], name) & _reserved(self.topology)]
        if clash:
            raise OutputError(f"{self.path}: the column {clash[0]} has the name of one of ours: leave it out")
        self._file = uproot.recreate(temporary)
        self._tree = self._file.mktree(TREE, {name: _branch_type(array) for name, array in content.items()})

    def _content(self, events: Events) -> dict[str, Any]:
        content: dict[str, Any] = {name: column_kind(c, name, self.path)[1] for name, c in events.columns.items()}
        content["jet"] = ak.zip({name: events.jets[name] for name in JET_FIELDS})
        if events.truth is not None:
            columns = zip(truth_columns(self.topology), events.truth.T, strict=True)
            content |= {name: np.ascontiguousarray(column) for name, column in columns}
        if events.weights is not None:
            content[WEIGHT] = events.weights
        content[SOURCE], content[NUMBER] = events.ids[:, 0].copy(), events.ids[:, 1].copy()
        return content

    def _append(self, events: Events) -> None:
        self._tree.extend(self._content(events))

    def _finish(self) -> None:
        self._file[KEY] = Stored(self.topology, self.metadata, self.columns).to_json()
        self._file.close()

    def _release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(Exception):  # a full disk fails again here; the file is removed next
                self._file.close()


def _branch_type(array: Any) -> Any:
    """What uproot makes a branch of: an awkward type, without the number of rows."""
    return ak.Array(array).type.content


def _branches(array: Any, name: str) -> set[str]:
    return {name, f"n{name}"} if "var" in str(ak.Array(array).type) else {name}


def _reserved(topology: Topology) -> set[str]:
    jets = {f"jet_{name}" for name in JET_FIELDS}
    return {"njet", "jet", WEIGHT, SOURCE, NUMBER, *jets, *truth_columns(topology)}


FORMAT = FlatRoot()
