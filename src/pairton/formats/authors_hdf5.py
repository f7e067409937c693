"""The HDF5 layout of the paper's authors: the jets of all events one after the other.

jets            (J, columns): momenta and b-tags, in the order of jets_variables
jets_variables  (columns,): names of the columns
jet_match       (J, 1): 0 for none; 1 b, 2 and 3 quarks of the first top; 4, 5, 6 of the second, as HyPER's labels
njet            (n, 1): jets per event
matchability    (n,): and further datasets with one row per event, which `--keep` copies
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError
from pairton.formats.base import Format, ReadOptions
from pairton.formats.column_source import ColumnSource, Kinds
from pairton.formats.columns import Wanted, choose_columns, column_names, combined
from pairton.formats.flat_objects import FlatObjects
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.taggers import TagColumns
from pairton.formats.truth import labels_to_truth
from pairton.topology import JET

__all__ = ["FORMATS", "AuthorsHdf5"]

JETS, NAMES, MATCHES, COUNTS = "jets", "jets_variables", "jet_match", "njet"
COLUMNS = {"pt": "jet_pt", "eta": "jet_eta", "phi": "jet_phi", "energy": "jet_e", "btag": "jet_bTag"}


class AuthorsSource(ColumnSource):
    file: Hdf5File

    def __init__(self, file: Hdf5File, options: ReadOptions) -> None:
        if (options.btag.text and options.btag.table is None) or options.map:
            raise ConfigError(f"{file.path}: the columns of this layout are fixed: remove --btag and --map")
        super().__init__(file, options)
        self._tags = TagColumns(options.btag, {}, options.evidence, {}, file.path)
        wanted = self._tags.wanted(Wanted(JET, options.wanted(JET).required, given=COLUMNS), lambda _: False)
        self._names = [name.decode() if isinstance(name, bytes) else str(name) for name in file.array(NAMES)]
        self._columns = choose_columns(wanted, self._names, f"{file.path}: {NAMES}")
        self._jets, counts = file.dataset(JETS), file.array(COUNTS)
        self.n_events = len(counts)
        self._offsets = np.concatenate([[0], np.cumsum(counts.reshape(-1), dtype=np.int64)])
        self._matches = file.dataset(MATCHES) if options.truth and MATCHES in file else None
        for name, data in {JETS: self._jets, MATCHES: self._matches}.items():
            if data is not None and (len(data) != self._offsets[-1] or (np.diff(self._offsets) < 0).any()):
                raise FormatError(
                    f"{file.path}: {name} has {len(data)} rows, but {COUNTS} counts {self._offsets[-1]} jets: "
                    "write the file again"
                )
        if self._jets.shape[1:] != (len(self._names),):
            raise FormatError(
                f"{file.path}: {JETS} has the shape {self._jets.shape}, but {NAMES} names {len(self._names)} "
                "columns: write the file again"
            )
        kept = column_names(options.keep, file.datasets()) if options.keep else ()
        self._kept = {name: file.dataset(name) for name in kept}
        file.same_length({COUNTS: file.dataset(COUNTS), **self._kept})
        self.has_truth = self._matches is not None
        self.metadata, self.tagging = self._tags.metadata, self._tags.tagging

    def read_kind(self, rows: range, kind: str) -> FlatObjects:
        jets, at = self._of_jets(self._jets, rows), self._names.index
        fields = {name: combined([jets[:, at(one)] for one in parts]) for name, parts in self._columns.items()}
        return FlatObjects(np.diff(self._offsets[rows.start : rows.stop + 1]), fields)

    def tag_jets(self, rows: range, jets: FlatObjects, scale: float) -> None:
        self._tags.complete(jets.fields, scale)

    def read_truth(
        self, rows: range, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        labels = self._of_jets(self._matches, rows).reshape(-1)
        return labels_to_truth(self.topology, {JET: labels}, {JET: kinds[JET].counts})

    def read_columns(self, rows: range) -> dict[str, Any]:
        return {name: self.file.read(data, rows.start, rows.stop) for name, data in self._kept.items()}

    def _of_jets(self, data: Any, rows: range) -> npt.NDArray[Any]:
        return self.file.read(data, int(self._offsets[rows.start]), int(self._offsets[rows.stop]))


class AuthorsHdf5(Format):
    name = "authors"
    description = "HDF5 of the paper's authors: jets, jets_variables, njet, jet_match"
    suffixes = (".h5", ".hdf5")
    jets_only = True
    prepared = True

    def recognises(self, file: Hdf5File) -> bool:
        return all(file.is_dataset(name) for name in (JETS, NAMES, COUNTS))

    def open(self, file: Hdf5File, options: ReadOptions) -> AuthorsSource:
        return AuthorsSource(file, options)


FORMATS = (AuthorsHdf5(),)
