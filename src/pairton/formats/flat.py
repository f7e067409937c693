"""Flat tables in ROOT or Parquet files: one column per field of a kind of object.

jet_pt, jet_eta, jet_phi, jet_energy | jet_mass, jet_btag   one list per event
lepton_pt, lepton_eta, lepton_phi, lepton_charge            one list per event, or one number if each event has one
el_pt, …, mu_pt, …                                          electrons and muons, merged if there is no lepton_pt
met_pt | met, met_phi                                       one number per event
truth_<slot>                                                position of the object, -1 for none: truth_t1_W_q1
weight, event_source, event_number                          one number per event
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, PairtonWarning
from pairton.events import Events
from pairton.formats.base import EVENT_NAMES, Format, ReadOptions, Source
from pairton.formats.column_files import Table
from pairton.formats.column_source import Kinds, TableSource
from pairton.formats.columns import FLAVOURS, Chosen, Wanted, choose_columns, column_names, shown
from pairton.formats.expressions import NONE
from pairton.formats.flat_objects import Chunk, FlatObjects, flat_fields, merged
from pairton.formats.lepton_selection import OVERLAP_SETTINGS, STORED_SETTINGS, stored_leptons
from pairton.formats.taggers import TagColumns
from pairton.formats.truth import clean_labels, labels_to_truth, small
from pairton.formats.variations import Variations
from pairton.formats.writing import KEY, EventWriter, Stored, stored_fields
from pairton.topology import JET, Topology
from pairton.topology.kinds import KINDS, LEPTONS

__all__ = ["FORMATS", "FlatSource", "layout", "truth_columns"]

if TYPE_CHECKING:
    from pairton.formats.root_files import RootFile

SOURCE, NUMBER, WEIGHT = "event_source", "event_number", "weight"
PREFIXES = {"electron": ("electron", "el"), "muon": ("muon", "mu")}  # of the columns, the preferred one first
SETTINGS = {
    **STORED_SETTINGS,
    "suffix": "end of the names of columns, for example _NOSYS; fields without such a column have their usual one",
}
TAG, TAG_POINT = re.compile(r"jet_(\w+)_FixedCutBEff_(\d+)_select(_NOSYS)?"), 77  # a tag of TopCPToolkit
MAP_NAMES = ("slot", "group", "flavour", *EVENT_NAMES)  # what `--map` may name, apart from fields of objects


def truth_columns(topology: Topology) -> list[str]:
    """The names of the truth columns, one per slot.

    >>> from pairton.topology import load_topology
    >>> truth_columns(load_topology("hh4b"))
    ['truth_H1_b1', 'truth_H1_b2', 'truth_H2_b1', 'truth_H2_b2']
    """
    return ["truth_" + slot.name.replace(".", "_") for slot in topology.slots]


def layout(events: Events) -> dict[str, Any]:
    """The columns of events; objects are lists of records, whose fields become columns."""
    columns: dict[str, Any] = {}
    for kind, array in events.objects.items():
        fields = {name: array[name] for name in stored_fields(events, kind)}
        if KINDS[kind].transverse:
            columns |= {f"{kind}_{name}": np.asarray(ak.flatten(values)) for name, values in fields.items()}
        else:
            columns[kind] = ak.to_packed(ak.zip(fields))
    if events.truth is not None:
        columns |= zip(truth_columns(events.topology), map(np.ascontiguousarray, events.truth.T), strict=True)
    if events.weights is not None:
        columns[WEIGHT] = events.weights
    columns[SOURCE], columns[NUMBER] = map(np.ascontiguousarray, events.ids.T)
    return columns


class FlatSource(TableSource):
    """Events of a flat table."""

    def __init__(self, table: Table, options: ReadOptions, labels: str | None = None) -> None:
        """`labels`: the column with HyPER's labels of jets, in place of truth columns."""
        stored = Stored.from_json(table.text(KEY), table.path)
        self._tags = TagColumns(options.btag, options.map, options.evidence, stored.metadata, table.path)
        leptons = stored_leptons(options.settings, options.topology, selected=table.text(KEY) is not None)
        super().__init__(table, replace(options, map=self._tags.map), leptons)
        self.n_events, kinds = table.n_events, options.topology.kinds
        self._suffix = options.settings.get("suffix", "")
        if self._suffix and not any(name.endswith(self._suffix) for name in table.columns):
            raise ConfigError(
                f"set suffix={self._suffix}: {self.path} has no column that ends so, but {shown(table.columns)}"
            )
        self.objects = {kind: self._find_objects(kind, stored) for kind in kinds}
        found = [chosen for parts in self.objects.values() for chosen in parts.values()]
        used = {name for chosen in found for parts in chosen.values() for name in parts}
        self.others = [c.removesuffix("_pt") for c in table.columns if c.endswith("_pt") and c not in used]
        if JET in kinds and leptons.radius:
            flavours = [kind for parts in self.objects.values() for kind in parts]
            self.overlap_only = [
                kind
                for kind in LEPTONS
                if kind not in flavours and all(self._column(kind, name) in table for name in ("pt", "eta", "phi"))
            ]
        for kind in self.overlap_only:
            chosen = choose_columns(Wanted(kind), table.columns, self.path, partial(self._column, kind))
            self.objects[kind] = {kind: chosen}
        self.metadata = {**self._tags.metadata, **leptons.metadata}
        self._labels = labels if options.truth and labels in table else None
        self._truth = [] if self._labels else self._find_truth()
        self.has_truth = bool(self._truth or self._labels)
        self._weight = self._find_one("weight", WEIGHT)
        source, number = self._find_one("source", SOURCE), self._find_one("number", NUMBER)
        self._ids = [name for name in (source, number) if name] if number else []
        self._kept = list(dict.fromkeys([*stored.columns, *column_names(options.keep, table.columns)]))
        self.variations = Variations(
            options.variations,
            options.topology.kinds,
            table.columns,
            lambda _, names: table.require(names),
            self.retag,
        )
        one = [name for name in (self._labels, self._weight) if name is not None]
        self.more = [*one, *self._truth, *self._ids, *self._kept]
        table.require(self.more)
        self.tagging = self._tags.tagging

    def _column(self, prefix: str, name: str) -> str:
        """The column of a field, with the suffix if the table has it."""
        column = f"{prefix}_{name}" if name else prefix
        return column + self._suffix if column + self._suffix in self.file.columns else column

    def _find_objects(self, kind: str, stored: Stored) -> dict[str, Chosen]:
        """The collections that make up a kind -> the columns of their fields."""
        columns = self.file.columns
        wanted = self.options.wanted(kind, stored.fields)
        wanted = replace(wanted, required=(*wanted.required, *self.leptons.fields(kind)))
        given = wanted.given
        if kind == JET:
            own = partial(self._column, self.options.map.get(JET, JET))
            wanted = self._tags.wanted(wanted, lambda name: given.get(name, own(name)) in columns)
        found = {}
        for part, prefix in self._prefixes(kind, wanted).items():
            named, here = partial(self._column, prefix), wanted
            if part != kind:  # `--map` gives a column, or a field of both collections
                mapped = {name: n if (n := named(column)) in columns else column for name, column in given.items()}
                here = replace(wanted, required=tuple(n for n in wanted.required if n != "flavour"), given=mapped)
            found[part] = choose_columns(here, columns, self.path, named)
        return found

    def _prefixes(self, kind: str, wanted: Wanted) -> dict[str, str]:
        """Collection -> beginning of its columns: the kind itself, or electrons and muons, which make leptons."""
        names = self.options.map
        own = {kind: names.get(kind, kind)}
        if kind != "lepton":
            return own
        flavours = {
            flavour: prefix
            for flavour in FLAVOURS
            for prefix in reversed([names[flavour]] if flavour in names else PREFIXES[flavour])
            if flavour in names or self._column(prefix, "pt") in self.file
        }
        asked = [flavour for flavour in FLAVOURS if flavour in names]
        if asked and kind in names:
            raise ConfigError(
                f"map lepton={names[kind]},{asked[0]}={names[asked[0]]}: give lepton, or electron and muon"
            )
        pt = wanted.given.get("pt", self._column(own[kind], "pt"))
        if asked or (flavours and not (kind in names or pt in self.file)):
            return flavours
        columns = {self._column(prefix, "pt"): prefix for prefix in flavours.values()}
        if pt in columns and len(columns) > 1:
            other = next(prefix for column, prefix in columns.items() if column != pt)
            both = ",".join(f"{flavour}={prefix}" for flavour, prefix in flavours.items())
            warnings.warn(
                f"{self.path}: leptons are {columns[pt]}_… alone, without {other}_…: use both with --map {both}",
                PairtonWarning,
                stacklevel=2,
            )
        return own

    def _find_one(self, mapped: str, default: str) -> str | None:
        """The column that `--map` names, or the default one if the file has it."""
        return self.options.map.get(mapped, default if default in self.file else None)

    def _find_truth(self) -> list[str]:
        if not self.options.truth:
            return []
        topology, names = self.options.topology, self.options.map
        defaults = truth_columns(topology)
        wanted = [names.get(slot.name, name) for slot, name in zip(topology.slots, defaults, strict=True)]
        stored = [name for name in self.file.columns if name.startswith("truth_")]
        if not stored and wanted == defaults:
            return []
        missing = [name for name in wanted if name not in self.file.columns]
        if missing:
            raise FormatError(
                f"{self.path}: no column {', '.join(missing)} for the truth of {topology.name}; found "
                f"{', '.join(stored) or shown(self.file.columns)}: choose the topology of these events with "
                "--topology"
            )
        return wanted

    def read_kind(self, rows: Chunk, kind: str) -> FlatObjects:
        """Electrons come before muons."""
        found = []
        for part, chosen in self.objects[kind].items():
            objects = flat_fields(rows, chosen, part)
            if part != kind:
                objects.fields.setdefault("flavour", np.full(len(objects), FLAVOURS[part]))
            found.append(objects)
        return merged(found)

    def tag_jets(self, rows: Chunk, jets: FlatObjects, scale: float) -> None:
        self._tags.complete(jets.fields, scale)

    def retag(self, fields: dict[str, Any]) -> None:
        self._tags.complete(fields, 1.0)

    def read_truth(
        self, rows: Chunk, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        counts = {kind: found.counts for kind, found in kinds.items()}
        if self._labels:
            return labels_to_truth(self.topology, {JET: rows.flat(self._labels, counts[JET])}, counts)
        labels = [small(self._number(rows[name], name)) for name in self._truth]
        return clean_labels(self.topology, np.stack(labels).T, counts)

    def read_weights(self, rows: Chunk) -> npt.NDArray[Any] | None:
        return self._number(rows[self._weight], self._weight) if self._weight else None

    def read_ids(self, rows: Chunk) -> npt.NDArray[np.uint64]:
        ids = super().read_ids(rows)
        for column, name in enumerate(reversed(self._ids)):  # without a source, it is the fingerprint of the file
            ids[:, 1 - column] = self._number(rows[name], name).astype(np.uint64)
        return ids

    def read_columns(self, rows: Chunk) -> dict[str, Any]:
        return {name: rows[name] for name in self._kept}

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


class FlatRoot(Format):
    name = "flat_root"
    description = (
        "a TTree or RNTuple of lists jet_pt, jet_eta, jet_phi, jet_energy or jet_mass, jet_btag; lepton_pt, …"
    )
    suffixes: ClassVar[tuple[str, ...]] = (".root",)
    reads_variations = True
    names = MAP_NAMES
    settings: ClassVar[dict[str, str]] = SETTINGS

    def recognises(self, file: RootFile) -> bool:
        return True  # tried last; `open` reports missing columns

    def open(self, file: RootFile, options: ReadOptions) -> Source:
        return FlatSource(file.choose(options.tree, ("events", "Events", "tree")), options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> EventWriter:
        return EventWriter(path, topology, metadata, "ROOT", layout)


class Parquet(FlatRoot):
    name = "parquet"
    description = "lists jet_pt, jet_eta, jet_phi, jet_energy or jet_mass, jet_btag; lepton_pt, …"
    suffixes = (".parquet", ".pq")

    def open(self, file: Any, options: ReadOptions) -> Source:
        return FlatSource(file, options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> EventWriter:
        return EventWriter(path, topology, metadata, "Parquet", layout)


class HyperRoot(Format):
    """HyPER's ROOT layout, with the label of the decay product of each jet as in `labels("hyper")`, 0 for none."""

    name = "hyper_root"
    description = "tree Delphes of lists jet_pt, jet_eta, jet_phi, jet_e, jet_bTag, jet_truthmatch"
    suffixes = (".root",)
    reads_variations = True
    names = MAP_NAMES
    jets_only = True
    prepared = True
    settings: ClassVar[dict[str, str]] = dict(OVERLAP_SETTINGS)

    def recognises(self, file: RootFile) -> bool:
        own = {"jet_pt", "jet_e", "jet_bTag"}  # distinguish this layout from files of Delphes
        return own.issubset(file.columns("Delphes"))

    def open(self, file: RootFile, options: ReadOptions) -> Source:
        return FlatSource(file.choose(options.tree, ("Delphes",)), options, labels="jet_truthmatch")


class TopCPToolkit(FlatRoot):
    """Ntuples of TopCPToolkit: flat tables in MeV, whose calibrated columns end in the name of a variation."""

    name = "topcptoolkit"
    description = "ntuples of TopCPToolkit: tree reco of lists jet_pt_NOSYS, el_pt_NOSYS, mu_pt_NOSYS, …"

    def recognises(self, file: RootFile) -> bool:
        return any("jet_pt_NOSYS" in file.columns(name) for name in file.trees)

    def open(self, file: RootFile, options: ReadOptions) -> Source:
        tree = file.choose(options.tree, ("reco",))
        return FlatSource(tree, _as_written(tree, options))

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> EventWriter:
        return Format.create(self, path, topology, metadata)


def _as_written(tree: Table, options: ReadOptions) -> ReadOptions:
    """Options for an ntuple of TopCPToolkit, where the user gave none.

    Jets and leptons there do not overlap any more. Leptons must be tight, and jets pass the tagger at 77 % or at
    the point nearest to it, if the ntuple says so.
    """
    settings = {"suffix": "_NOSYS", "overlap": NONE}
    tight = [f"{prefix}_select_tight_NOSYS" for prefix in ("el", "mu") if f"{prefix}_pt_NOSYS" in tree]
    if "lepton" in options.topology.kinds and tight and all(column in tree for column in tight):
        settings["lepton_id"] = "select_tight"
    names = {"weight": "weight_mc_NOSYS", "number": "eventNumber", "source": "runNumber"}
    names |= {"source": "mcChannelNumber"} if "mcChannelNumber" in tree else {}
    points = [(abs(int(at[2]) - TAG_POINT), at[0]) for at in map(TAG.fullmatch, tree.columns) if at]
    names |= {"btag": min(points)[1]} if points and not options.btag.text else {}
    return replace(
        options,
        units=options.units or "MeV",
        settings={**settings, **options.settings},
        map={**{name: column for name, column in names.items() if column in tree}, **options.map},
    )


FORMATS = (FlatRoot(), Parquet(), HyperRoot(), TopCPToolkit())
