"""Flat tables, ROOT or Parquet: a column of lists for each property of the jets, one number for the rest.

jet_pt, jet_eta, jet_phi, jet_energy | jet_mass, jet_btag   lists of one length per event
truth_<slot>                                                position of the jet, -1 missing; truth_t1_W_q1
weight, event_source, event_number
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError, nearest
from pairton.events import Events
from pairton.formats.base import ReadOptions, Source
from pairton.formats.common import check_map, clean_labels, labels_to_truth, report_labels, small, unit_scale
from pairton.formats.jet_columns import btag_option, jagged, jets_from_flat, row_ids, tagged
from pairton.formats.stored import Stored
from pairton.formats.variations import check_size, check_variation, varied_jets
from pairton.topology import Topology

__all__ = ["JET_COLUMNS", "NUMBER", "SOURCE", "WEIGHT", "FlatSource", "Table", "truth_columns"]

# our name -> columns it may have, ours first
JET_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pt": ("jet_pt",),
    "eta": ("jet_eta",),
    "phi": ("jet_phi",),
    "energy": ("jet_energy", "jet_e"),
    "mass": ("jet_mass", "jet_m"),
    "btag": ("jet_btag", "jet_bTag"),
}
SOURCE, NUMBER, WEIGHT = "event_source", "event_number", "weight"
SHOWN = 30  # columns named in an error


class Table(Protocol):
    """What a container offers: an open table of columns."""

    path: str
    n_events: int
    columns: tuple[str, ...]
    source_id: int

    def read(self, names: Iterable[str], start: int, stop: int) -> Mapping[str, ak.Array]: ...

    def close(self) -> None: ...


def truth_columns(topology: Topology) -> list[str]:
    """The column of each slot.

    >>> from pairton.topology import load_topology
    >>> truth_columns(load_topology("hh4b"))
    ['truth_H1_b1', 'truth_H1_b2', 'truth_H2_b1', 'truth_H2_b2']
    """
    return ["truth_" + slot.name.replace(".", "_") for slot in topology.slots]


class FlatSource(Source):
    """Events of a table; `--map` names its columns by ours."""

    def __init__(
        self, table: Table, options: ReadOptions, text: str | None = None, labels: str | None = None
    ) -> None:
        """`text`: what our writers left; `labels`: HyPER's numbers on jets, in the place of truth columns."""
        self.path, self.n_events = table.path, table.n_events
        self.options, self._table = options, table
        stored = Stored.from_json(text, table.path)
        self.metadata = stored.metadata
        slots = [slot.name for slot in options.topology.slots]
        check_map(options.map, [*JET_COLUMNS, "weight", "source", "number", *slots])
        tag, self._cut = btag_option(options.btag)
        names = dict(options.map) | ({"btag": tag} if tag else {})
        self._jets = self._find_jets(names)
        self._labels = labels if options.truth and labels in table.columns else None
        self._truth = [] if self._labels else self._find_truth(names)
        self.has_truth = bool(self._truth or self._labels)
        self._weight = self._find_one(names, "weight", WEIGHT)
        source, number = self._find_one(names, "source", SOURCE), self._find_one(names, "number", NUMBER)
        self._ids = [name for name in (source, number) if name] if number else []
        self._kept = list(dict.fromkeys([*stored.columns, *options.keep]))
        self._require(self._kept)
        self._unseen = set(options.variations)
        for name, columns in options.variations.items():
            check_variation(name, columns)
            self._require(list(columns.values()))

    def _find_one(self, names: Mapping[str, str], ours: str, default: str) -> str | None:
        if ours in names:
            self._require([names[ours]])
        name = names.get(ours, default)
        return name if name in self._table.columns else None

    def _find_jets(self, names: Mapping[str, str]) -> dict[str, str]:
        there = self._table.columns
        found: dict[str, str] = {}
        for ours, defaults in JET_COLUMNS.items():
            choice = next(
                (name for name in ((names[ours],) if ours in names else defaults) if name in there), None
            )
            if choice is not None:
                found[ours] = choice
        wanted = {ours: names.get(ours, JET_COLUMNS[ours][0]) for ours in JET_COLUMNS}
        for one, other in (("energy", "mass"), ("mass", "energy")):
            if one in names and other not in names:
                found.pop(other, None)  # asked for: the other's default must not win
                wanted.pop(other)
        missing = [f"{ours} ({name})" for ours, name in wanted.items() if ours not in (*found, "energy", "mass")]
        if "energy" not in found and "mass" not in found:
            missing.append(
                " or ".join(f"{ours} ({wanted[ours]})" for ours in ("energy", "mass") if ours in wanted)
            )
        if missing:
            first = next(name for ours, name in wanted.items() if ours not in found)
            raise FormatError(
                f"{self.path}: no column for {', '.join(missing)}; found {self._shown()}"
                f"{nearest(first, set(there) - set(found.values()))}; name them with --map pt=COLUMN,eta=COLUMN,…"
            )
        if "energy" in found:
            found.pop("mass", None)
        return found

    def _find_truth(self, names: Mapping[str, str]) -> list[str]:
        if not self.options.truth:
            return []
        topology = self.options.topology
        defaults = truth_columns(topology)
        wanted = [names.get(slot.name, name) for slot, name in zip(topology.slots, defaults, strict=True)]
        there = [name for name in self._table.columns if name.startswith("truth_")]
        if not there and wanted == defaults:
            return []
        missing = [name for name in wanted if name not in self._table.columns]
        if missing:
            raise FormatError(
                f"{self.path}: no column {', '.join(missing)} for the truth of {topology.name}; found "
                f"{', '.join(there) or self._shown()}: give the topology of these events with --topology"
            )
        return wanted

    def _require(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self._table.columns]
        if missing:
            hint = nearest(missing[0], self._table.columns)
            raise FormatError(f"{self.path}: no column {', '.join(missing)}; found {self._shown()}{hint}")

    def _shown(self) -> str:
        columns = self._table.columns
        more = len(columns) - SHOWN
        return (", ".join(columns[:SHOWN]) or "none") + (f" and {more} more" if more > 0 else "")

    def read(self, start: int, stop: int) -> Events:
        options = self.options
        scalars = [*self._truth, *self._ids, *([self._weight] if self._weight else [])]
        lists = [*self._jets.values(), *([self._labels] if self._labels else [])]
        varied = [column for columns in options.variations.values() for column in columns.values()]
        data = self._table.read([*lists, *scalars, *varied, *self._kept], start, stop)
        counts, jets = self._read_jets(data)
        numbers = {name: self._number(data[name], name) for name in scalars}
        truth = None
        if self.has_truth:
            truth, bad = self._read_truth(data, numbers, counts)
            report_labels(bad, options.bad_labels, options.strict, self.path, start)
        ids = row_ids(self._table.source_id, start, stop)
        for column, name in enumerate(reversed(self._ids)):  # a number alone keeps the fingerprint as its source
            ids[:, 1 - column] = numbers[name].astype(np.uint64)
        weights = numbers[self._weight] if self._weight else None
        kept = {name: data[name] for name in self._kept}
        variations = {name: self._varied(jets, counts, data, name) for name in options.variations}
        return Events(jets, options.topology, truth, weights, ids, kept, self.metadata, variations)

    def _read_jets(self, data: Mapping[str, ak.Array]) -> tuple[npt.NDArray[np.int64], ak.Array]:
        counts: npt.NDArray[np.int64] | None = None
        flat: dict[str, npt.NDArray[Any]] = {}
        for ours, name in self._jets.items():
            lengths, flat[ours] = jagged(data[name], name, self.path)
            counts = lengths if counts is None else counts
            self._check_lengths(counts, lengths, name)
        assert counts is not None
        flat["btag"] = tagged(flat["btag"], self._cut)
        scale = unit_scale(flat["pt"], self.options.units, self.path)
        return counts, jets_from_flat(counts, scale=scale, **flat)

    def _varied(
        self, jets: ak.Array, counts: npt.NDArray[np.int64], data: Mapping[str, ak.Array], name: str
    ) -> ak.Array:
        scale = 1000.0 if self.options.units == "MeV" else 1.0
        ragged = {}
        for ours, column in self.options.variations[name].items():
            lengths, flat = jagged(data[column], column, self.path)
            self._check_lengths(counts, lengths, column)
            ragged[ours] = ak.unflatten(flat / scale, counts)
        varied = varied_jets(jets, ragged["pt"], ragged.get("mass"))
        if name in self._unseen and ak.count(varied.pt):  # once a file is enough
            self._unseen.remove(name)
            check_size(name, jets, varied)
        return varied

    def _check_lengths(self, counts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], name: str) -> None:
        if not np.array_equal(counts, lengths):
            row = int(np.nonzero(counts != lengths)[0][0])
            first = next(iter(self._jets.values()))
            raise FormatError(
                f"{self.path}: columns of unequal length: {first} has {counts[row]} jets and {name} has "
                f"{lengths[row]} in the same event: write the file again, or name other columns with --map"
            )

    def _read_truth(
        self, data: Mapping[str, ak.Array], numbers: Mapping[str, npt.NDArray[Any]], counts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        topology = self.options.topology
        if self._labels:
            lengths, labels = jagged(data[self._labels], self._labels, self.path)
            self._check_lengths(counts, lengths, self._labels)
            return labels_to_truth(topology, labels, counts)
        return clean_labels(topology, np.stack([small(numbers[name]) for name in self._truth]).T, counts)

    def _number(self, array: ak.Array, name: str) -> npt.NDArray[Any]:
        try:
            values = ak.to_numpy(array, allow_missing=False)
        except ValueError:
            values = np.zeros((0, 0))
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise FormatError(
                f"{self.path}: column {name} has the type {array.type}, but one number per event is needed"
            )
        return np.asarray(values)

    def close(self) -> None:
        self._table.close()
