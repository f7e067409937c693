"""Results as files: the columns of `result_columns`, in Parquet, ROOT or HDF5, depending on the suffix.

The metadata (settings, model, inputs, number of events of each status) are a JSON text named
`pairton_reconstruction`: an entry of the Parquet schema, a string in ROOT, an attribute in HDF5.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import ConfigError
from pairton.events import Status
from pairton.formats.column_files import ColumnWriter, check_column, is_text
from pairton.formats.files import CONTAINERS
from pairton.reconstruction.assigner import Assigner
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


class ResultWriter(ColumnWriter):
    """Writes a result, window by window; the file appears when it is complete."""

    tree, key, batch = TREE, KEY, ROWS

    def __init__(self, path: Path, container: str) -> None:
        super().__init__(path, container)
        self.metadata: dict[str, Any] = {}
        self.tally = Tally()
        self._waiting: list[Columns] = []
        self._rows = 0
        self.names: list[str] | None = None  # of the columns; None before the first window

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
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        parts = self._waiting
        columns = {name: _join([part[name] for part in parts], name, self.path) for name in parts[0]}
        self._waiting, self._rows = [], 0
        self.append(columns)

    def about(self) -> str:
        counts: dict[str, Any] = {"events": self.tally.events, "status": self.tally.status}
        if self.tally.jets:
            counts |= {"jets": self.tally.jets, "btagged_jets": self.tally.tagged}
        if self.tally.varied:
            counts["variation_status"] = self.tally.varied
        return json.dumps(self.metadata | counts)


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
    if is_text(parts[0]):
        return np.concatenate(parts)
    if isinstance(check_column(parts[0], name, path), np.ndarray):
        return np.concatenate([np.asarray(part) for part in parts])
    return ak.to_packed(ak.concatenate(parts))


def create_result(path: str | Path, topology: Topology, metadata: Mapping[str, Any]) -> ResultWriter:
    """A writer for a new file; its suffix selects the format."""
    target = Path(path)
    container = CONTAINERS.get(target.suffix.lower())
    if container is None:
        raise ConfigError(f"{target}: unknown suffix {target.suffix!r}: choose one of {', '.join(CONTAINERS)}")
    writer = ResultWriter(target, container)
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
        metadata = result_settings(Assigner(reco.model, reco.settings))
    with create_result(os.fspath(path), reco.topology, metadata) as writer:
        writer.write(reco)
