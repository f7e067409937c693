"""Results as files: the columns of `result_columns`, in Parquet, ROOT or HDF5, depending on the suffix.

The metadata (settings, model, inputs, number of events of each status) are a JSON text named
`pairton_reconstruction`: an entry of the Parquet schema, a string in ROOT, an attribute in HDF5.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import ConfigError
from pairton.events import Status
from pairton.formats.column_files import ColumnWriter, check_column, is_text
from pairton.formats.files import CONTAINERS
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.momenta import met_follows
from pairton.reconstruction.provenance import KEY, result_settings
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.result_columns import (
    LABELS,
    N_BTAGS,
    Columns,
    result_columns,
    same_columns,
    slot_column,
)
from pairton.topology import JET, Topology

__all__ = ["TREE", "ResultWriter", "Summary", "create_result", "save_result"]

TREE = "reco"
ROWS = 65_536  # rows written at a time; a multiple of the window, so that files do not depend on chunks
BAD = (Status.BAD_OBJECT, Status.BAD_OUTPUT)  # these point to an error in the file or in the model


def _counts(reco: Reconstruction | None = None) -> Counter[str]:
    """The number of events of each status, by label."""
    codes = np.zeros(0, dtype=np.uint8) if reco is None else reco.status
    return Counter(dict(zip(LABELS.tolist(), np.bincount(codes, minlength=len(LABELS)).tolist(), strict=True)))


@dataclass
class Summary:
    """The outcome of a reconstruction: numbers of events, and what may be wrong.

    Attributes:
        origin: File and row of the first event.
        status: Number of events of each status.
        varied: The same for each variation.
        jets: Number of jets that were used, if the model takes tags.
        tagged: Number of b-tagged ones among them.
        first_bad: File and row of the first event of each status that points to an error.
        first: The `Reconstruction` of the first events, to show them.
        paths: The parts, if the result is a folder.
        skipped: How many of the parts were there already, and were kept.
        replaced: How many were there, but were damaged, or made from other inputs or settings.
        warnings: What may be wrong with the events, the model or the settings.
    """

    origin: tuple[str, int] = ("", 0)
    status: Counter[str] = field(default_factory=_counts)
    varied: dict[str, Counter[str]] = field(default_factory=dict)
    jets: int = 0
    tagged: int = 0
    first_bad: dict[str, tuple[str, int]] = field(default_factory=dict)
    first: Reconstruction | None = field(default=None, repr=False)
    paths: tuple[Path, ...] = ()
    skipped: int = 0
    replaced: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def events(self) -> int:
        return self.status.total()

    def add(self, reco: Reconstruction) -> None:
        """Count the events of the next window."""
        bad = {state.label: np.flatnonzero(reco.status == state) for state in BAD}
        first_bad = {label: self._place(reco, int(rows[0])) for label, rows in bad.items() if len(rows)}
        varied = {name: _counts(other) for name, other in reco.variations.items()}
        jets, tagged = 0, reco.outputs.get(N_BTAGS, np.zeros(0))
        if N_BTAGS in reco.outputs:
            jets = int(reco.used[JET].sum())
        self.join(Summary(("", 0), _counts(reco), varied, jets, int(tagged.sum()), first_bad))

    def _place(self, reco: Reconstruction, row: int) -> tuple[str, int]:
        """File and row of an event of the next window; events of several files have columns that say so."""
        columns = reco.events.columns
        if {"file", "entry"} <= columns.keys():
            return str(columns["file"][row]), int(columns["entry"][row])
        file, first = self.origin
        return file, first + self.events + row

    def join(self, other: Summary) -> None:
        """Count the events of another summary, which come after these."""
        self.status.update(other.status)
        for name, counts in other.varied.items():
            self.varied.setdefault(name, Counter()).update(counts)
        self.jets, self.tagged = self.jets + other.jets, self.tagged + other.tagged
        self.first_bad = {**other.first_bad, **self.first_bad}

    def to_dict(self) -> dict[str, Any]:
        """The numbers of events, as the metadata of a result have them."""
        counts: dict[str, Any] = {"events": self.events, "status": self.status}
        counts |= {"jets": self.jets, "btagged_jets": self.tagged} if self.jets else {}
        counts |= {"variation_status": self.varied} if self.varied else {}
        return counts | {"first_bad": self.first_bad}

    @classmethod
    def from_dict(cls, metadata: Mapping[str, Any]) -> Summary:
        varied = {name: Counter(counts) for name, counts in metadata.get("variation_status", {}).items()}
        jets, tagged = (int(metadata.get(name, 0)) for name in ("jets", "btagged_jets"))
        first = {str(label): (str(file), int(row)) for label, (file, row) in metadata["first_bad"].items()}
        return cls(("", 0), Counter(metadata["status"]), varied, jets, tagged, first)


class ResultWriter(ColumnWriter):
    """Writes a result, window by window; the file appears when it is complete."""

    tree, key, batch = TREE, KEY, ROWS

    def __init__(self, path: Path, container: str, metadata: dict[str, Any], origin: tuple[str, int]) -> None:
        super().__init__(path, container)
        self.metadata = metadata
        self.summary = Summary(origin)
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
            varied = reco.events.variations
            if moved := [name for name in varied if met_follows(reco.topology, varied[name])]:
                self.metadata["moved_met"] = moved  # as `varied_events` does
        self.names = names
        self.summary.add(reco)
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
        return json.dumps(self.metadata | self.summary.to_dict())


def _join(parts: list[Any], name: str, path: Path) -> Any:
    if is_text(parts[0]):
        return np.concatenate(parts)
    if isinstance(check_column(parts[0], name, path), np.ndarray):
        return np.concatenate([np.asarray(part) for part in parts])
    return ak.to_packed(ak.concatenate(parts))


def create_result(
    path: str | os.PathLike[str],
    topology: Topology,
    metadata: Mapping[str, Any],
    origin: tuple[str, int] = ("", 0),
) -> ResultWriter:
    """A writer for a new file; its suffix selects the format. origin: file and row of the first event."""
    target = Path(path)
    container = CONTAINERS.get(target.suffix.lower())
    if container is None:
        raise ConfigError(f"{target}: unknown suffix {target.suffix!r}: choose one of {', '.join(CONTAINERS)}")
    slots = {slot.name: slot_column(slot) for slot in topology.slots}
    about = {"format_version": 2, "topology": topology.to_dict(), "slots": slots, **metadata}
    return ResultWriter(target, container, about, origin)


def save_result(reco: Reconstruction, path: str | os.PathLike[str]) -> None:
    """Write a reconstruction that is in memory; its metadata do not list input files."""
    metadata = {}
    if reco.model is not None and reco.settings is not None:
        metadata = result_settings(Assigner(reco.model, reco.settings))
    with create_result(path, reco.topology, metadata) as writer:
        writer.write(reco)
