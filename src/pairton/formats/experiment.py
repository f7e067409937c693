"""Base class for readers of Delphes, NanoAOD and PHYSLITE: objects, identification, truth, variations, ids."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, PairtonWarning
from pairton.events import Events
from pairton.formats.base import ReadOptions, Source
from pairton.formats.column_files import Table
from pairton.formats.columns import Chosen, choose_columns, column_names, flat_fields, objects_from_flat, row_ids
from pairton.formats.common import check_units
from pairton.formats.gen_truth import GenRecord, can_search
from pairton.formats.lepton_selection import LEPTONS, Flavour, IdentifiedLeptons
from pairton.formats.taggers import Tagger
from pairton.formats.variations import Variations
from pairton.topology import JET, collection_name

__all__ = ["ExperimentSource", "named_collections"]

Columns = Mapping[str, ak.Array]
Flat = npt.NDArray[Any]
# kind -> alternatives, the preferred one first; each lists the collections (prefixes of columns) that are merged
Collections = Mapping[str, tuple[tuple[str, ...], ...]]

FLAVOURS = {"Electron": 11, "Muon": 13}  # part of the name of a collection -> PDG code


class ExperimentSource(Source):
    """A tree of events with the column names of an experiment.

    In merged collections, such as leptons, positions count through all parts: electrons, then muons.
    """

    truth_rows: ClassVar[int]  # events whose generator record is held in memory at once
    scale: ClassVar[float] = 1.0  # momenta are divided by it to get GeV
    units: ClassVar[str] = "GeV"
    field_names: ClassVar[Mapping[str, str]] = {}  # field -> its name in the experiment, if that differs
    tagger: Tagger  # to be set before `__init__` is called
    flavours: tuple[Flavour, ...] = ()  # electrons and muons, and how they are identified
    describe_taggers: Callable[[], list[dict[str, Any]]] | None = None

    def __init__(self, tree: Table, options: ReadOptions, collections: Collections) -> None:
        """`collections`: the collections of each kind; `--map` may name other columns."""
        if options.units not in (None, self.units):
            raise ConfigError(f"--units {options.units}: these files are in {self.units}: remove the option")
        self.tree, self.path, self.n_events = tree, tree.path, tree.n_events
        self.options, self.topology = options, options.topology
        self._objects = {kind: self._find(kind, collections) for kind in self.topology.kinds}
        leptons = [part for kind in LEPTONS for part in self._objects.get(kind, ())]
        self.leptons = IdentifiedLeptons(tree, options.settings, self.flavours, self._named, leptons, self.scale)
        used = {part for parts in self._objects.values() for part in parts}
        self.others = [
            collection_name(kind)
            for kind, choices in collections.items()
            if kind not in self._objects
            and any(len(c) == 1 and self._exists(c[0]) and c[0] not in used for c in choices)
        ]
        self._variations = Variations(
            options.variations,
            lambda name, columns: tree.require(columns, hint=f" (for the variation {name})"),
        )
        self.kept = {name: self.kept_column(name) for name in column_names(options.keep, tree.columns)}
        tree.require(list(self.kept.values()))
        self.more = list(dict.fromkeys([*self.more_columns(), *self.leptons.columns]))
        tree.require(self.more)
        complete = options.truth and JET in self._objects and all(name in tree for name in self.record_columns())
        self.has_truth = bool(self.record_columns()) and complete and can_search(self.topology, self.path)
        self.metadata: dict[str, Any] = {**self.tagger.metadata, **self.leptons.metadata}
        for chosen in self._objects.get("met", {}).values():
            self.metadata["met"] = chosen["pt"][0]
        self.read_as = self.metadata  # readers add to it
        self.rejected: Counter[str] = Counter()
        self.tagging = str(self.tagger)
        self.chosen = {k: self.metadata[k] for k in ("electron_id", "muon_id", "met") if k in self.metadata}

    def _find(self, kind: str, collections: Collections) -> dict[str, Chosen]:
        """The collections of a kind -> the columns of their fields."""
        wanted = self.options.wanted(kind)
        if kind == JET:
            if "btag" in wanted.given:
                raise ConfigError("map btag=…: choose the tagger and its cut with --btag TAGGER:CUT")
            from_tagger = ("btag", *self._score_names)
            required = tuple(name for name in wanted.required if name not in from_tagger)
            wanted = replace(wanted, required=required, optional=())
        choices = collections.get(kind, (("",),))  # for unknown kinds, `--map` must name all columns
        best = next((c for c in choices if all(map(self._exists, c))), None)
        given = wanted.given.get("pt", "")
        if (
            len(choices[0]) > 1
            and given in self.tree
            and not any(self._named(part, given) in self.tree for part in choices[0])
        ):
            best = self._mapped(kind, given, choices[0])
        best = best or self._some(kind, choices[0])
        made = {"flavour"} if all(_flavour(part) for part in best) else set()  # follows from the collection
        wanted = replace(wanted, required=tuple(n for n in wanted.required if n not in made - set(wanted.given)))
        where = f"{self.path}: {self.tree.title}"
        found = {}
        for part in best:
            here = {  # `--map` gives a column, or a field of the collection
                name: self._named(part, given) if self._named(part, given) in self.tree else given
                for name, given in wanted.given.items()
            }
            found[part] = choose_columns(
                replace(wanted, given=here),
                self.tree.columns,
                where,
                partial(self._named, part),
                ("mass", "energy"),
            )
        shared = set.intersection(*(set(chosen) for chosen in found.values()))
        completion = {"mass", "energy"}  # a collection without a mass is massless
        return {
            part: {name: parts for name, parts in chosen.items() if name in shared | completion}
            for part, chosen in found.items()
        }

    def _mapped(self, kind: str, column: str, merged: tuple[str, ...]) -> tuple[str, ...]:
        """The collection of a column that `--map` names; an empty name, with a warning, if it is not known."""
        found = tuple(part for part in merged if column.startswith(part))
        if not found and kind in LEPTONS:
            known = " nor ".join(part.rstrip("_.:") for part in merged)
            warnings.warn(
                f"{self.path}: {kind}s with pt={column} are not identified, because they are neither {known}: "
                f"name columns of one of these with --map, or use only files whose {kind}s were identified before",
                PairtonWarning,
                stacklevel=5,
            )
        return found or ("",)

    @property
    def _score_names(self) -> tuple[str, ...]:
        """Fields of jets with the score: its name in Pairton, and its name in the user's table."""
        return self.tagger.field, *([self.options.tags.field] if self.options.tags else [])

    def _some(self, kind: str, merged: tuple[str, ...]) -> tuple[str, ...]:
        """The collections that the file has, with a warning of missing ones; all if it has none, for the error."""
        found = tuple(part for part in merged if self._exists(part))
        if found and len(merged) > 1:
            missing = ", ".join(self._named(part, "pt") for part in merged if part not in found)
            warnings.warn(
                f"{self.path}: there is no column {missing}, so {kind}s are only those of "
                f"{', '.join(found).rstrip('_.:')}",
                PairtonWarning,
                stacklevel=5,
            )
        return found or merged

    def _exists(self, collection: str) -> bool:
        """Whether the file has a collection."""
        return any(self._named(collection, name) in self.tree for name in ("pt", "met"))

    def _named(self, collection: str, name: str) -> str:
        """The column of a field."""
        return collection + self.field_names.get(name, name)

    # -- defined by each experiment ------------------------------------------------------------------------

    @abstractmethod
    def more_columns(self) -> Sequence[str]:
        """Further columns that the methods below need, apart from momenta and the generator record."""

    @abstractmethod
    def scores(self, found: Columns, counts: npt.NDArray[np.int64]) -> Flat:
        """(J,): the value of the tagger for the jets of all events."""

    @abstractmethod
    def jet_rules(self, found: Columns, jets: ak.Array) -> dict[str, ak.Array]:
        """For each rule of the identification, what jets that fail it do -> whether each jet passes."""

    def record_columns(self) -> Sequence[str]:
        """Columns of the generator record; empty if the format has none."""
        return ()

    def record(self, found: Columns) -> GenRecord:
        """The generator record; only called if `record_columns` are in the file."""
        raise FormatError(f"{self.path}: files of this kind have no generator record: read them without truth")

    def weights(self, found: Columns) -> npt.NDArray[np.float64] | None:
        """(n,): event weights; None if there are none."""
        return None

    def ids(self, found: Columns, start: int, stop: int) -> npt.NDArray[np.uint64]:
        """(n, 2): source and number of each event."""
        return row_ids(self.tree.source_id, start, stop)

    def carried(self, found: Columns) -> dict[str, ak.Array]:
        """Columns that are always copied to the result."""
        return {}

    def kept_column(self, name: str) -> str:
        """The column that a name of `--keep` means."""
        return name

    def taggers(self) -> list[dict[str, Any]]:
        return self.describe_taggers() if self.describe_taggers is not None else []

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, start: int, stop: int) -> Events:
        fields = [
            name for kind in self._objects.values() for part in kind.values() for c in part.values() for name in c
        ]
        found = self.tree.read([*fields, *self.more, *self._variations.columns, *self.kept.values()], start, stop)
        objects = {kind: self._read_kind(found, kind) for kind in self._objects}
        check_units(objects, self.path, fixed=self.units)
        kept = {name: found[column] for name, column in self.kept.items()}
        return Events(
            objects,
            self.topology,
            truth=self._truth(objects, start, stop) if self.has_truth else None,
            weights=self.weights(found),
            ids=self.ids(found, start, stop),
            columns={
                name: np.asarray(c) if c.ndim == 1 else c for name, c in (self.carried(found) | kept).items()
            },
            metadata=self.metadata,
            variations=self._variations.read(objects, found, self.path, self.scale),
        )

    def _read_kind(self, found: Columns, kind: str) -> ak.Array:
        parts, identified = [], []
        for collection, chosen in self._objects[kind].items():
            counts, flat = flat_fields(found, chosen, self.path, kind)
            if kind == JET:
                scores = self.scores(found, counts) if self.tagger.field else np.zeros(len(flat["pt"]))
                flat |= self.tagger.fields(scores, flat["pt"] / self.scale, flat["eta"])
                asked = self.options.wanted(JET).required
                flat |= {name: scores for name in self._score_names if name in asked}
            elif code := _flavour(collection):
                flat.setdefault("flavour", np.full(len(flat["pt"]), code))
            parts.append(objects_from_flat(counts, flat, scale=self.scale))
            good = self.leptons.identified(found, collection) if kind in LEPTONS else None
            identified.append(ak.ones_like(parts[-1].pt, dtype=bool) if good is None else good)
        objects = parts[0] if len(parts) == 1 else ak.with_name(ak.concatenate(parts, axis=1), "Momentum4D")
        if kind == JET:
            usable, left = None, int(ak.count(objects.pt))
            for rule, passes in self.jet_rules(found, objects).items():
                usable = passes if usable is None else usable & passes
                before, left = left, int(ak.sum(usable))
                self.rejected[rule] += before - left
            usable = self.leptons.keep_apart(found, objects, usable)
        else:
            usable = ak.concatenate(identified, axis=1) if kind in LEPTONS else None
        return objects if usable is None else ak.with_field(objects, usable, "usable")

    def _truth(self, objects: Mapping[str, ak.Array], start: int, stop: int) -> npt.NDArray[np.int32]:
        """(n, S): truth. Only objects that pass the selection are matched, so that soft jets take no quark."""
        passes = Events(objects, self.topology).passes
        parts = [np.empty((0, len(self.topology.slots)), dtype=np.int32)]
        for row in range(start, stop, self.truth_rows):
            end = min(row + self.truth_rows, stop)
            record = self.record(self.tree.read(self.record_columns(), row, end))
            here = slice(row - start, end - start)
            found, kept = ({kind: array[here] for kind, array in each.items()} for each in (objects, passes))
            parts.append(record.truth(self.topology, found, kept))
        return np.concatenate(parts)

    def close(self) -> None:
        self.tree.close()


def named_collections(known: Collections, settings: Mapping[str, str], mark: str) -> Collections:
    """The collections of each kind, after `--set jets=NAME` and `--set met=NAME`.

    >>> named_collections({"jet": (("Jet_",),), "met": (("MET_",),)}, {"met": "PFMET"}, "_")
    {'jet': (('Jet_',),), 'met': (('PFMET_',),)}
    """
    asked = {"jet": settings.get("jets"), "met": settings.get("met")}
    return {**known, **{kind: ((f"{name}{mark}",),) for kind, name in asked.items() if name}}


def _flavour(collection: str) -> int | None:
    """The PDG code of the leptons in a collection."""
    return next((code for name, code in FLAVOURS.items() if name in collection), None)
