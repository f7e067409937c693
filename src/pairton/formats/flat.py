"""Flat tables in ROOT or Parquet files: one column per field of a kind of object.

jet_pt, jet_eta, jet_phi, jet_energy | jet_mass, jet_btag   one list per event
lepton_pt, lepton_eta, lepton_phi, lepton_charge            one list per event, or one number if each event has one
met_pt | met, met_phi                                       one number per event
truth_<slot>                                                position of the object, -1 for none: truth_t1_W_q1
weight, event_source, event_number                          one number per event
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError, nearest
from pairton.events import Events
from pairton.formats.base import EVENT_NAMES, ReadOptions, Source
from pairton.formats.columns import (
    Chosen,
    Wanted,
    choose_columns,
    flat_fields,
    objects_from_flat,
    row_ids,
    shown,
)
from pairton.formats.common import check_units, clean_labels, labels_to_truth, report_labels, small, unit_scale
from pairton.formats.lepton_selection import LEPTONS, StoredLeptons
from pairton.formats.stored import KEY, Stored
from pairton.formats.tag_columns import TagColumns
from pairton.formats.variations import Variations
from pairton.formats.writing import stored_fields
from pairton.topology import JET, Topology

__all__ = ["MAP_NAMES", "NUMBER", "SOURCE", "WEIGHT", "FlatSource", "Table", "object_columns", "truth_columns"]

SOURCE, NUMBER, WEIGHT = "event_source", "event_number", "weight"
MAP_NAMES = ("slot", "group", *EVENT_NAMES)  # what `--map` may name, apart from fields of objects


class Table(Protocol):
    """An open table of columns."""

    path: str
    n_events: int
    columns: tuple[str, ...]

    @property
    def source_id(self) -> int: ...

    def read(self, names: Iterable[str], start: int, stop: int) -> Mapping[str, ak.Array]: ...

    def text(self, name: str) -> str | None: ...

    def close(self) -> None: ...


def truth_columns(topology: Topology) -> list[str]:
    """The names of the truth columns, one per slot.

    >>> from pairton.topology import load_topology
    >>> truth_columns(load_topology("hh4b"))
    ['truth_H1_b1', 'truth_H1_b2', 'truth_H2_b1', 'truth_H2_b2']
    """
    return ["truth_" + slot.name.replace(".", "_") for slot in topology.slots]


def object_columns(events: Events) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """Kind -> column -> flat array over the objects of all events."""
    return {
        kind: {f"{kind}_{name}": np.asarray(ak.flatten(array[name])) for name in stored_fields(events, kind)}
        for kind, array in events.objects.items()
    }


class FlatSource(Source):
    """Events of a flat table."""

    def __init__(self, table: Table, options: ReadOptions, labels: str | None = None) -> None:
        """`labels`: the column with HyPER's labels of jets, in place of truth columns."""
        self.path, self.n_events, self._table = table.path, table.n_events, table
        stored = Stored.from_json(table.text(KEY), table.path)
        self._tags = TagColumns(options, stored.metadata, table.path)
        self.metadata, self.options = self._tags.metadata, self._tags.options
        options = self.options
        self._leptons = StoredLeptons(options.settings, options.topology, selected=table.text(KEY) is not None)
        self._objects = {kind: self._find_objects(kind, stored) for kind in options.topology.kinds}
        available = [k for k in LEPTONS if all(f"{k}_{name}" in table.columns for name in ("pt", "eta", "phi"))]
        self._overlap = {  # leptons that the topology does not use, for the removal of overlapping jets
            kind: choose_columns(Wanted(kind), table.columns, self.path, f"{kind}_{{}}".format)
            for kind in self._leptons.beside(available)
        }
        used = {name for chosen in self._objects.values() for parts in chosen.values() for name in parts}
        self.others = [c.removesuffix("_pt") for c in table.columns if c.endswith("_pt") and c not in used]
        self.metadata = {**self.metadata, **self._leptons.metadata}
        self._labels = labels if options.truth and labels in table.columns else None
        self._truth = [] if self._labels else self._find_truth()
        self.has_truth = bool(self._truth or self._labels)
        self._weight = self._find_one("weight", WEIGHT)
        source, number = self._find_one("source", SOURCE), self._find_one("number", NUMBER)
        self._ids = [name for name in (source, number) if name] if number else []
        self._kept = list(dict.fromkeys([*stored.columns, *options.keep]))
        self._require(self._kept)
        self._variations = Variations(options.variations, lambda _, names: self._require(names))
        self.tagging = self._tags.tagging

    def _find_objects(self, kind: str, stored: Stored) -> Chosen:
        prefix = self.options.map.get(kind, kind)
        wanted = self.options.wanted(kind, stored.fields)
        wanted = replace(wanted, required=(*wanted.required, *self._leptons.fields(kind)))

        def named(name: str) -> str:
            return f"{prefix}_{name}" if name else prefix

        if kind == JET:
            wanted = self._tags.wanted(wanted, lambda n: wanted.given.get(n, named(n)) in self._table.columns)
        return choose_columns(wanted, self._table.columns, self.path, named)

    def _find_one(self, mapped: str, default: str) -> str | None:
        """The column that `--map` names, or the default one if the file has it."""
        if mapped in self.options.map:
            self._require([self.options.map[mapped]])
        name = self.options.map.get(mapped, default)
        return name if name in self._table.columns else None

    def _find_truth(self) -> list[str]:
        if not self.options.truth:
            return []
        topology, names = self.options.topology, self.options.map
        defaults = truth_columns(topology)
        wanted = [names.get(slot.name, name) for slot, name in zip(topology.slots, defaults, strict=True)]
        stored = [name for name in self._table.columns if name.startswith("truth_")]
        if not stored and wanted == defaults:
            return []
        missing = [name for name in wanted if name not in self._table.columns]
        if missing:
            raise FormatError(
                f"{self.path}: no column {', '.join(missing)} for the truth of {topology.name}; found "
                f"{', '.join(stored) or shown(self._table.columns)}: choose the topology of these events with "
                "--topology"
            )
        return wanted

    def _require(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self._table.columns]
        if missing:
            columns = self._table.columns
            hint = nearest(missing[0], columns)
            raise FormatError(
                f"{self.path}: no column {', '.join(missing)}; found {shown(columns, missing[0])}{hint}"
            )

    def read(self, start: int, stop: int) -> Events:
        options = self.options
        scalars = [*self._truth, *self._ids, *([self._weight] if self._weight else [])]
        found = (*self._objects.values(), *self._overlap.values())
        columns = [name for chosen in found for parts in chosen.values() for name in parts]
        lists = [*columns, *self._variations.columns, *([self._labels] if self._labels else [])]
        data = self._table.read([*lists, *scalars, *self._kept], start, stop)
        objects: dict[str, ak.Array] = {}
        counts: dict[str, npt.NDArray[np.int64]] = {}
        identified: dict[str, npt.NDArray[np.bool_]] = {}
        scale: float | None = None
        for kind in self._objects:
            counts[kind], flat = flat_fields(data, self._objects[kind], self.path, kind)
            identified |= self._leptons.identified(kind, flat)
            scale = unit_scale(flat["pt"], options.units, self.path, kind) if scale is None else scale
            if kind == JET:
                self._tags.complete(flat, scale)
            objects[kind] = objects_from_flat(counts[kind], flat, scale=scale)
        check_units(objects, self.path, options.units)
        others = {
            kind: objects_from_flat(*flat_fields(data, chosen, self.path, kind), scale=scale or 1.0)
            for kind, chosen in self._overlap.items()
        }
        objects = self._leptons.mark(objects, others, identified)
        numbers = {name: self._number(data[name], name) for name in scalars}
        truth = None
        if self.has_truth:
            truth, bad = self._read_truth(data, numbers, counts)
            report_labels(bad, options.bad_labels, options.strict, self.path, start)
        ids = row_ids(self._table.source_id, start, stop)
        for column, name in enumerate(reversed(self._ids)):  # without a source, it is the fingerprint of the file
            ids[:, 1 - column] = numbers[name].astype(np.uint64)
        weights = numbers[self._weight] if self._weight else None
        kept = {name: data[name] for name in self._kept}
        varied = self._variations.read(objects, data, self.path, scale or 1.0)
        return Events(objects, options.topology, truth, weights, ids, kept, self.metadata, varied)

    def _read_truth(
        self,
        data: Mapping[str, ak.Array],
        numbers: Mapping[str, npt.NDArray[Any]],
        counts: Mapping[str, npt.NDArray[np.int64]],
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        topology = self.options.topology
        if self._labels:
            _, labels = flat_fields(data, {"label": (self._labels,)}, self.path, like=counts[JET])
            return labels_to_truth(topology, labels["label"], counts[JET])
        return clean_labels(topology, np.stack([small(numbers[name]) for name in self._truth]).T, counts)

    def _number(self, array: ak.Array, name: str) -> npt.NDArray[Any]:
        try:
            values = ak.to_numpy(array, allow_missing=False)
        except ValueError:
            values = np.zeros((0, 0))
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise FormatError(
                f"{self.path}: column {name} has the type {array.type}, but must have one number per event"
            )
        return np.asarray(values)

    def close(self) -> None:
        self._table.close()
