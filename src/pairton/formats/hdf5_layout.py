"""Parts that the HDF5 layouts share: ids, weights and kept columns.

METADATA/event_id        (n, 2): source and number of each event
METADATA/weight          (n,)
METADATA/columns/<name>  (n, ...); for lists a group with `counts` (n,) and `values`
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError
from pairton.events import Events
from pairton.formats.base import ReadOptions
from pairton.formats.column_source import ColumnSource
from pairton.formats.columns import column_names
from pairton.formats.flat_objects import FlatObjects
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.lepton_selection import stored_leptons
from pairton.formats.taggers import TagColumns
from pairton.formats.writing import KEY, Stored
from pairton.topology import JET

__all__ = ["KEPT", "Hdf5Source", "stored_rows"]

IDS, WEIGHT, COLUMNS = "METADATA/event_id", "METADATA/weight", "METADATA/columns"
KEPT = f"{COLUMNS}/"
PLACES = (  # of a column that is named by the user: its own, and groups of SPANet and Topograph
    KEPT,
    "",
    "INPUTS/",
    *(f"{group}/" for group in ("CLASSIFICATIONS", "REGRESSIONS", "CLASSIFICATIONS/EVENT", "REGRESSIONS/EVENT")),
    "delphes/",
)


class Hdf5Source(ColumnSource):
    """An open HDF5 file, whether Pairton wrote it or not; layouts find their datasets in `_prepare`."""

    file: Hdf5File

    def __init__(self, file: Hdf5File, options: ReadOptions) -> None:
        self._stored = Stored.from_json(file.text(KEY), file.path)
        self._tags = TagColumns(options.btag, options.map, options.evidence, self._stored.metadata, file.path)
        topology = options.topology
        # with an event file of SPANet, all objects in the file are used
        selected = file.text(KEY) is not None or bool(topology.extras.groups)
        leptons = stored_leptons(options.settings, topology, selected)
        super().__init__(file, replace(options, map=self._tags.map), leptons)
        self.datasets: dict[str, Any] = {}  # those with one row per event, of equal length
        self._ids = file.dataset(IDS) if file.is_dataset(IDS) else None
        weight = self.options.map.get("weight", WEIGHT)
        self._weight = file.dataset(weight) if "weight" in options.map or file.is_dataset(WEIGHT) else None
        self._columns: dict[str, Any] = {}
        self._offsets: dict[str, npt.NDArray[np.int64]] = {}
        self._find_columns(options.keep)
        for name in options.where.names:
            self.datasets[f"where {name}"] = self._dataset(name.replace(".", "/"))
        self._prepare(file)
        self.datasets |= {data.name: data for data in (self._ids, self._weight) if data is not None}
        self.n_events = file.same_length(self.datasets)
        self.metadata = {**self._tags.metadata, **leptons.metadata}
        self.tagging = self._tags.tagging

    @abstractmethod
    def _prepare(self, file: Hdf5File) -> None:
        """Find the datasets of objects; add them to `datasets`, and set `has_truth`."""

    def removing_jets(self, available: Iterable[str]) -> None:
        """Read the available kinds of leptons that the topology lacks, if they remove jets."""
        kinds = self.options.topology.kinds
        if JET in kinds and self.leptons.radius:
            self.overlap_only = [kind for kind in available if kind not in kinds]

    def _find_columns(self, keep: Sequence[str]) -> None:
        file = self.file
        kept = column_names(keep, [*file.names(COLUMNS), *file.datasets()]) if keep else ()
        for name in dict.fromkeys([*self._stored.columns, *kept]):
            own = f"{KEPT}{name}"
            if file.is_group(own):
                counts = self.datasets[f"{own}/counts"] = file.dataset(f"{own}/counts")
                every = file.read(counts, 0, counts.shape[0])
                self._offsets[name] = np.concatenate([[0], np.cumsum(every, dtype=np.int64)])
                self._columns[name] = file.dataset(f"{own}/values")
            else:
                self._columns[name] = self.datasets[name] = self._dataset(name)

    def _dataset(self, name: str) -> Any:
        place = next((place for place in PLACES if self.file.is_dataset(f"{place}{name}")), "")
        return self.file.dataset(f"{place}{name}")

    def read_named(self, rows: range, names: Sequence[str]) -> dict[str, Any]:
        return {name: self.file.read(self.datasets[f"where {name}"], rows.start, rows.stop) for name in names}

    def tag_jets(self, rows: range, jets: FlatObjects, scale: float) -> None:
        self._tags.complete(jets.fields, scale)

    def read_ids(self, rows: range) -> npt.NDArray[np.uint64]:
        if self._ids is None:
            return super().read_ids(rows)
        found = self.file.read(self._ids, rows.start, rows.stop)
        if found.ndim != 2 or found.shape[1] != 2:
            raise FormatError(
                f"{self.path}: {IDS} has the shape {self._ids.shape}, but must be (events, 2): write it again"
            )
        return found.astype(np.uint64, copy=False)

    def read_weights(self, rows: range) -> npt.NDArray[np.float64] | None:
        if self._weight is None:
            return None
        found = self.file.read(self._weight, rows.start, rows.stop).astype(np.float64)
        if found.shape[1:] not in ((), (1,)):
            raise FormatError(
                f"{self.path}: the weight {self._weight.name} has the shape {self._weight.shape}, but must "
                "have one number per event: name another dataset with --map weight=DATASET"
            )
        return found.reshape(len(found))

    def read_columns(self, rows: range) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, data in self._columns.items():
            if name in self._offsets:
                offsets = self._offsets[name][rows.start : rows.stop + 1]
                content = self.file.read(data, int(offsets[0]), int(offsets[-1]))
                found[name] = ak.unflatten(content, np.diff(offsets))
            else:
                found[name] = self.file.read(data, rows.start, rows.stop)
        return found


def stored_rows(events: Events) -> dict[str, Any]:
    """Ids and weights, by their names in the file."""
    return {IDS: events.ids} | ({} if events.weights is None else {WEIGHT: events.weights})
