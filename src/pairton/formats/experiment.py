"""What readers of experiments' trees share: jets as stored, which of them to use, truth, variations, ids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError
from pairton.events import Events
from pairton.formats.base import ReadOptions, Source
from pairton.formats.common import check_map
from pairton.formats.gen_truth import GenRecord, can_search
from pairton.formats.jet_columns import jagged, jets_from_flat, row_ids
from pairton.formats.root_files import RootTree
from pairton.formats.variations import check_size, check_variation, varied_jets

__all__ = ["ExperimentSource"]

Columns = Mapping[str, ak.Array]
Flat = npt.NDArray[Any]


class ExperimentSource(Source):
    """One tree of events with a collection of jets, by the names of an experiment."""

    truth_rows: ClassVar[int]  # events whose generator record is held in memory at once
    scale: ClassVar[float] = 1.0  # what momenta are divided by to be GeV
    units: ClassVar[str] = "GeV"

    def __init__(self, tree: RootTree, options: ReadOptions, kinematics: Mapping[str, str]) -> None:
        """`kinematics`: the columns of pt, eta, phi and mass, where `--map` does not name others."""
        check_map(options.map, kinematics)
        if options.units not in (None, self.units):
            raise ConfigError(f"--units {options.units}: these files are in {self.units}, leave the option out")
        self.tree, self.path, self.n_events = tree, tree.path, tree.n_events
        self.options, self.topology = options, options.topology
        self.kinematics = {**kinematics, **options.map}
        tree.require(list(self.kinematics.values()))
        self._unseen = set(options.variations)
        for name, columns in options.variations.items():
            check_variation(name, columns)
            tree.require(list(columns.values()), hint=f" (asked for by the variation {name})")
        self.kept = {name: self.kept_column(name) for name in options.keep}
        tree.require(list(self.kept.values()))
        self.more = list(dict.fromkeys(self.more_columns()))
        tree.require(self.more)
        complete = options.truth and all(name in tree for name in self.record_columns())
        self.has_truth = bool(self.record_columns()) and complete and can_search(self.topology, self.path)
        self.metadata: dict[str, Any] = {}

    # -- what an experiment says ---------------------------------------------------------------------------

    @abstractmethod
    def more_columns(self) -> Sequence[str]:
        """Columns that the methods below need, beyond momenta and the generator record."""

    @abstractmethod
    def btags(self, found: Columns, counts: npt.NDArray[np.int64]) -> Flat:
        """0 or 1 for every jet, one event after the other."""

    @abstractmethod
    def use(self, found: Columns, jets: ak.Array) -> ak.Array | None:
        """Which jets may be used; None for all."""

    def record_columns(self) -> Sequence[str]:
        """Columns of the generator record; none where there is no truth to be had."""
        return ()

    def record(self, found: Columns) -> GenRecord:
        """The generator record, from its columns; where there are none, it is not asked for."""
        raise FormatError(f"{self.path}: files of this kind have no generator record: read them without truth")

    def weights(self, found: Columns) -> npt.NDArray[np.float64] | None:
        return None

    def ids(self, found: Columns, start: int, stop: int) -> npt.NDArray[np.uint64]:
        return row_ids(self.tree.source_id, start, stop)

    def carried(self, found: Columns) -> dict[str, ak.Array]:
        """Columns that go to the output without being asked for."""
        return {}

    def kept_column(self, name: str) -> str:
        """The column that a name of `--keep` means."""
        return name

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, start: int, stop: int) -> Events:
        varied = [column for columns in self.options.variations.values() for column in columns.values()]
        found = self.tree.read([*self.kinematics.values(), *self.more, *varied, *self.kept.values()], start, stop)
        counts, flat = self._flat(found, self.kinematics)
        jets = jets_from_flat(
            counts,
            pt=flat["pt"],
            eta=flat["eta"],
            phi=flat["phi"],
            mass=flat["mass"],
            btag=self.btags(found, counts),
            scale=self.scale,
        )
        usable = self.use(found, jets)
        if usable is not None:
            jets = ak.with_field(jets, usable, "usable")
        return Events(
            jets,
            self.topology,
            truth=self._truth(jets, start, stop) if self.has_truth else None,
            weights=self.weights(found),
            ids=self.ids(found, start, stop),
            columns={
                name: np.asarray(column) if column.ndim == 1 else column
                for name, column in {**self.carried(found), **self._keep(found)}.items()
            },
            metadata=self.metadata,
            variations={name: self._varied(jets, found, name) for name in self.options.variations},
        )

    def _keep(self, found: Columns) -> dict[str, ak.Array]:
        return {name: found[column] for name, column in self.kept.items()}

    def _flat(
        self, found: Columns, columns: Mapping[str, str], like: npt.NDArray[np.int64] | None = None
    ) -> tuple[npt.NDArray[np.int64], dict[str, Flat]]:
        """Lengths, and columns one event after the other; an error where lengths differ."""
        values = {}
        for name, column in columns.items():
            counts, values[name] = jagged(found[column], column, self.path)
            like = counts if like is None else like
            if not np.array_equal(counts, like):
                raise FormatError(f"{self.path}: {column} has other lengths than the jets: write the file again")
        assert like is not None
        return like, values

    def _varied(self, jets: ak.Array, found: Columns, name: str) -> ak.Array:
        counts, flat = self._flat(found, self.options.variations[name], np.asarray(ak.num(jets, axis=1)))
        ragged = {key: ak.unflatten(values / self.scale, counts) for key, values in flat.items()}
        varied = varied_jets(jets, ragged["pt"], ragged.get("mass"))
        if name in self._unseen and ak.count(varied.pt):  # once a file is enough
            self._unseen.remove(name)
            check_size(name, jets, varied)
        return varied

    def _truth(self, jets: ak.Array, start: int, stop: int) -> npt.NDArray[np.int32]:
        """Labels on jets that an analysis keeps: a soft jet beside a good one does not take its quark."""
        passes = Events(jets, self.topology).jet_passes
        parts = [np.empty((0, len(self.topology.slots)), dtype=np.int32)]
        for row in range(start, stop, self.truth_rows):
            end = min(row + self.truth_rows, stop)
            record = self.record(self.tree.read(self.record_columns(), row, end))
            here = slice(row - start, end - start)
            parts.append(record.truth(self.topology, jets[here], passes[here]))
        return np.concatenate(parts)

    def close(self) -> None:
        self.tree.close()
