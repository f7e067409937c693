"""HDF5 files of objects, each with the label of its decay product: HyPER, Topograph, and the paper's authors.

HyPER
INPUTS/JET            (n, width): records of e, eta, phi, pt, btag and further fields; padding has NaN momenta
INPUTS/LEPTON         (n, width): the same for leptons, with charge; other kinds by their names
INPUTS/MET            (n, 1): the same for missing energy, as (met, 0, phi, met)
INPUTS/GLOBAL         (n, 1): records of njet, nbTagged
LABELS/JET, LEPTON    (n, width): 0 for none, or 1, 2, ... as in `labels("hyper")` of the topology
METADATA/FullyMatched (n,)

Topograph
delphes/jets          (n, width): records of pt, eta, phi, energy, is_tagged
delphes/jets_indices  (n, width): -1 for none, or 0, 1, ..., one less than in HyPER
delphes/njets         (n,): without it, padding has no pT

The paper's authors: the jets of all events one after the other
jets                  (J, columns): momenta and b-tags, in the order of jets_variables
jets_variables        (columns,): names of the columns
jet_match             (J, 1): 0 for none, or 1, 2, ... as in HyPER
njet                  (n, 1): jets per event
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, OutputError, PairtonWarning
from pairton.events import Events
from pairton.formats.base import Format, ReadOptions, Source
from pairton.formats.column_source import Kinds
from pairton.formats.columns import Chosen, Wanted, choose_columns, combined
from pairton.formats.flat_objects import FlatObjects, Padded
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.hdf5_layout import KEPT, Hdf5Source, stored_rows
from pairton.formats.lepton_selection import STORED_SETTINGS
from pairton.formats.truth import labels_to_truth
from pairton.formats.writing import EventWriter, stored_fields
from pairton.topology import JET, Topology, collection_name
from pairton.topology.extras import labels_of
from pairton.topology.kinds import KINDS, LEPTONS

__all__ = ["FORMATS", "AuthorsHdf5", "HyperHdf5", "Topograph"]

INPUTS, LABELS = "INPUTS", "LABELS"
GLOBAL, MATCHED = "INPUTS/GLOBAL", "METADATA/FullyMatched"
ORDER = ("energy", "eta", "phi", "pt", "btag")  # fields of HyPER's records
MOMENTUM = ("pt", "eta", "phi", "energy", "mass")
WIDTHS = {JET: 20}  # least width, as in HyPER
COUNTS = np.dtype([("njet", np.float32), ("nbTagged", np.float32)])
TOPOGRAPH = "delphes"
AUTHORS, AUTHORS_NAMES, AUTHORS_LABELS, AUTHORS_COUNTS = "jets", "jets_variables", "jet_match", "njet"
AUTHORS_COLUMNS = {"pt": "jet_pt", "eta": "jet_eta", "phi": "jet_phi", "energy": "jet_e", "btag": "jet_bTag"}


@dataclass(frozen=True)
class _Records:
    """The datasets of a kind of objects."""

    records: Any
    columns: Chosen
    labels: Any = None  # None: no truth for this kind


class _Source(Hdf5Source):
    """HyPER's layout."""

    first_label = 1

    def _prepare(self, file: Hdf5File) -> None:
        topology = self.options.topology
        self._kinds = {kind: self._find(self.options.wanted(kind, self._stored.fields)) for kind in topology.kinds}
        self.has_truth = any(records.labels is not None for records in self._kinds.values())
        for kind in topology.object_kinds if self.has_truth else ():
            if self._kinds[kind].labels is None:
                warnings.warn(
                    f"{self.path}: there is no dataset {self.place(kind, LABELS)}, so all {collection_name(kind)} "
                    "are treated as unlabelled: add it, or read without truth",
                    PairtonWarning,
                    stacklevel=2,
                )
        used = {self.place(kind) for kind in self._kinds} | {GLOBAL}
        self.others = [name for name in file.names(INPUTS) if f"{INPUTS}/{name}" not in used]
        self.removing_jets(kind for kind in LEPTONS if file.is_dataset(self.place(kind)))
        self._kinds |= {kind: self._find(Wanted(kind)) for kind in self.overlap_only}
        for found in self._kinds.values():
            self.datasets |= {data.name: data for data in (found.records, found.labels) if data is not None}

    def place(self, kind: str, group: str = INPUTS) -> str:
        """The dataset of a kind, or of its labels."""
        return f"{group}/{kind.upper()}"

    def fields(self, wanted: Wanted, available: tuple[str, ...]) -> Wanted:
        """The fields to read, which follow from the options and from those that a record has."""
        wanted = replace(wanted, required=(*wanted.required, *self.leptons.fields(wanted.kind)))
        if wanted.kind != JET:
            return wanted
        return self._tags.wanted(wanted, lambda field: wanted.given.get(field, field) in available)

    def _find(self, wanted: Wanted) -> _Records:
        file, kind, place = self.file, wanted.kind, self.place(wanted.kind)
        if not file.is_dataset(place):
            has = ", ".join(file.names(INPUTS))
            name = self.options.topology.name
            raise FormatError(
                f"{file.path}: no dataset {place} for the {collection_name(kind)} of {name}; {INPUTS} has {has}: "
                "give a topology without them (--topology), or add that dataset"
            )
        records, labels = file.dataset(place), self.place(kind, LABELS)
        available = records.dtype.names or ()
        columns = choose_columns(self.fields(wanted, available), available, f"{file.path}: {place}")
        labelled = kind in self.options.topology.object_kinds and self.options.truth and file.is_dataset(labels)
        found = _Records(records, columns, file.dataset(labels) if labelled else None)
        shapes = {place: records.shape} | ({labels: found.labels.shape} if labelled else {})
        if len(records.shape) != 2 or len({shape[1:] for shape in shapes.values()}) > 1:
            listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise FormatError(
                f"{file.path}: {collection_name(kind)} and their labels must have the same shape (events, width), "
                f"but have {listed}"
            )
        return found

    def is_object(self, kind: str, records: npt.NDArray[Any], rows: range) -> npt.NDArray[np.bool_]:
        """(n, width): True for objects, False for padding; missing energy has none, even if it is NaN."""
        is_padding = np.full(records.shape, not KINDS[kind].transverse)
        for name in (name for field in MOMENTUM for name in self._kinds[kind].columns.get(field, ())):
            is_padding &= np.isnan(records[name])  # other fields may be integers, which cannot be NaN
        return ~is_padding

    def read_kind(self, rows: range, kind: str) -> FlatObjects:
        found = self._kinds[kind]
        records = self.file.read(found.records, rows.start, rows.stop)
        padded = Padded(self.is_object(kind, records, rows))
        return FlatObjects.of_padded(padded, found.columns, records.__getitem__)

    def read_truth(
        self, rows: range, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        labels = {}
        for kind, found in kinds.items():
            if (data := self._kinds[kind].labels) is not None and found.padded is not None:
                values = found.padded.take(self.file.read(data, rows.start, rows.stop))
                labels[kind] = values + (1.0 - self.first_label)
        return labels_to_truth(self.topology, labels, {kind: found.counts for kind, found in kinds.items()})


class _TopographSource(_Source):
    first_label = 0
    _counts: Any = None

    def _prepare(self, file: Hdf5File) -> None:
        _check_fixed(self.options, file.path)
        super()._prepare(file)
        self.others = []
        if file.is_dataset(f"{TOPOGRAPH}/njets"):
            self._counts = self.datasets["njets"] = file.dataset(f"{TOPOGRAPH}/njets")

    def place(self, kind: str, group: str = INPUTS) -> str:
        return f"{TOPOGRAPH}/jets{'_indices' if group == LABELS else ''}" if kind == JET else ""

    def fields(self, wanted: Wanted, available: tuple[str, ...]) -> Wanted:
        wanted = replace(wanted, optional=(), given={"btag": "is_tagged"})
        return self._tags.wanted(wanted, lambda _: False)

    def is_object(self, kind: str, records: npt.NDArray[Any], rows: range) -> npt.NDArray[np.bool_]:
        if self._counts is None:
            return np.asarray(records["pt"] > 0)
        counts = self.file.read(self._counts, rows.start, rows.stop).reshape(len(rows))
        return np.asarray(np.arange(records.shape[1]) < counts[:, None])


class _AuthorsSource(Hdf5Source):
    def _prepare(self, file: Hdf5File) -> None:
        _check_fixed(self.options, file.path)
        required = self.options.wanted(JET).required
        wanted = self._tags.wanted(Wanted(JET, required, given=AUTHORS_COLUMNS), lambda _: False)
        self._names = [n.decode() if isinstance(n, bytes) else str(n) for n in file.array(AUTHORS_NAMES)]
        self._fields = choose_columns(wanted, self._names, f"{file.path}: {AUTHORS_NAMES}")
        self._jets, counts = file.dataset(AUTHORS), file.array(AUTHORS_COUNTS).reshape(-1)
        self._first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        labelled = self.options.truth and AUTHORS_LABELS in file
        self._labels = file.dataset(AUTHORS_LABELS) if labelled else None
        for name, data in {AUTHORS: self._jets, AUTHORS_LABELS: self._labels}.items():
            if data is not None and (len(data) != self._first[-1] or (np.diff(self._first) < 0).any()):
                raise FormatError(
                    f"{file.path}: {name} has {len(data)} rows, but {AUTHORS_COUNTS} counts {self._first[-1]} "
                    "jets: write the file again"
                )
        if self._jets.shape[1:] != (len(self._names),):
            raise FormatError(
                f"{file.path}: {AUTHORS} has the shape {self._jets.shape}, but {AUTHORS_NAMES} names "
                f"{len(self._names)} columns: write the file again"
            )
        self.datasets[AUTHORS_COUNTS] = file.dataset(AUTHORS_COUNTS)
        self.has_truth = labelled

    def read_kind(self, rows: range, kind: str) -> FlatObjects:
        jets, at = self._of_jets(self._jets, rows), self._names.index
        fields = {
            name: combined(name, [jets[:, at(one)] for one in parts]) for name, parts in self._fields.items()
        }
        return FlatObjects(np.diff(self._first[rows.start : rows.stop + 1]), fields)

    def read_truth(
        self, rows: range, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        labels = self._of_jets(self._labels, rows).reshape(-1)
        return labels_to_truth(self.topology, {JET: labels}, {JET: kinds[JET].counts})

    def _of_jets(self, data: Any, rows: range) -> npt.NDArray[Any]:
        return self.file.read(data, int(self._first[rows.start]), int(self._first[rows.stop]))


def _check_fixed(options: ReadOptions, path: str) -> None:
    if (options.btag.text and options.btag.table is None) or options.map:
        raise ConfigError(f"{path}: the columns of this layout are fixed: remove --btag and --map")


class HyperHdf5(Format):
    name = "hyper_hdf5"
    description = "INPUTS/JET, LEPTON, MET: records of e, eta, phi, pt, btag; LABELS/JET, LEPTON"
    suffixes = (".h5", ".hdf5")
    names = ("weight",)
    prepared = True
    settings: ClassVar[dict[str, str]] = STORED_SETTINGS

    def recognises(self, file: Hdf5File) -> bool:
        return file.is_dataset("INPUTS/JET")

    def open(self, file: Hdf5File, options: ReadOptions) -> Source:
        return _Source(file, options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> EventWriter:
        return EventWriter(path, topology, metadata, "HDF5", layout, KEPT, padding=np.nan)


class Topograph(Format):
    name = "topograph"
    description = "Topograph's HDF5: delphes/jets, delphes/jets_indices"
    suffixes = (".h5", ".hdf5")
    jets_only = True
    prepared = True

    def recognises(self, file: Hdf5File) -> bool:
        return file.is_dataset(f"{TOPOGRAPH}/jets")

    def open(self, file: Hdf5File, options: ReadOptions) -> Source:
        return _TopographSource(file, options)


class AuthorsHdf5(Format):
    name = "authors"
    description = "HDF5 of the paper's authors: jets, jets_variables, njet, jet_match"
    suffixes = (".h5", ".hdf5")
    jets_only = True
    prepared = True

    def recognises(self, file: Hdf5File) -> bool:
        return all(file.is_dataset(name) for name in (AUTHORS, AUTHORS_NAMES, AUTHORS_COUNTS))

    def open(self, file: Hdf5File, options: ReadOptions) -> Source:
        return _AuthorsSource(file, options)


def layout(events: Events) -> dict[str, Any]:
    """HyPER's datasets. All kinds have the same fields, as HyPER needs them; fields that a kind lacks are 0."""
    if JET not in events.objects or "btag" not in ak.fields(events.jets):
        raise OutputError(
            "HyPER's layout needs the field btag of jets, which these events lack: choose another format with --to"
        )
    fields = dict.fromkeys([*ORDER, *(name for kind in events.objects for name in stored_fields(events, kind))])
    record = np.dtype([("e" if name == "energy" else name, np.float32) for name in fields])
    widths = {kind: max(WIDTHS.get(kind, 1), int(n.max(initial=0))) for kind, n in events.counts.items()}
    masks = {kind: np.arange(widths[kind]) < n[:, None] for kind, n in events.counts.items()}
    columns: dict[str, Any] = {}
    for kind, mask in masks.items():
        records = columns[f"{INPUTS}/{kind.upper()}"] = np.full(mask.shape, np.nan, dtype=record)
        records[mask] = np.zeros((), dtype=record)
        for name in stored_fields(events, kind):
            values = np.asarray(ak.flatten(events.objects[kind][name]))
            records["e" if name == "energy" else name][mask] = values
        if KINDS[kind].transverse:
            records["e"] = records["pt"]
    counts = columns[GLOBAL] = np.zeros((len(events), 1), dtype=COUNTS)
    counts["njet"][:, 0] = events.n_jets
    counts["nbTagged"][:, 0] = np.asarray(ak.sum(events.jets.btag > 0.5, axis=1))
    if events.truth is not None:
        names = labels_of(events.topology, "hyper")
        for kind in events.topology.object_kinds:
            labels = np.where(masks[kind], np.float32(0), np.float32(np.nan))
            for slot in (slot for slot in events.topology.slots if slot.kind == kind):
                (rows,) = np.nonzero(events.truth[:, slot.index] >= 0)
                labels[rows, events.truth[rows, slot.index]] = float(names[slot.index].rpartition("-")[2])
            columns[f"{LABELS}/{kind.upper()}"] = labels
        columns[MATCHED] = events.complete.astype(np.int64)
    return columns | stored_rows(events)


FORMATS = (HyperHdf5(), Topograph(), AuthorsHdf5())
