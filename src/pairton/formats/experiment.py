"""Base class for readers of Delphes, NanoAOD and PHYSLITE: collections, identification, truth, kept columns."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, PairtonWarning
from pairton.events import Events
from pairton.formats.base import ReadOptions
from pairton.formats.column_files import Table
from pairton.formats.column_source import Kinds, TableSource
from pairton.formats.columns import Chosen, choose_columns, column_names
from pairton.formats.expressions import NONE, Expression
from pairton.formats.flat_objects import Chunk, FlatObjects, flat_fields, merged
from pairton.formats.lepton_selection import LeptonSelection, identification
from pairton.formats.taggers import Scores, Tagger
from pairton.formats.truth import GenRecord, can_search
from pairton.formats.variations import Variations, choice
from pairton.topology import JET, collection_name
from pairton.topology.kinds import KINDS, LEPTONS

__all__ = ["ExperimentSource", "Flavour", "named_collections"]

Flat = npt.NDArray[Any]
# kind -> alternatives, the preferred one first; each lists the collections (prefixes of columns) that are merged
Collections = Mapping[str, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class Flavour:
    """Electrons or muons of an experiment."""

    kind: str
    collection: str  # prefix of their columns
    defaults: tuple[str, ...] = (NONE,)  # identifications; the first one whose fields are in the file is used

    @property
    def key(self) -> str:
        """Of `--set`."""
        return f"{self.kind}_id"

    @property
    def plural(self) -> str:
        return collection_name(self.kind)


class ExperimentSource(TableSource):
    """A tree of events with the column names of an experiment.

    In merged collections, such as leptons, positions count through all parts: electrons, then muons.
    """

    truth_rows: ClassVar[int]  # events whose generator record is held in memory at once
    scale = 1.0
    units = "GeV"
    field_names: ClassVar[Mapping[str, str]] = {}  # field -> its name in the experiment, if that differs
    tagger: Tagger  # to be set before `__init__` is called
    flavours: tuple[Flavour, ...] = ()  # electrons and muons, and how they are identified
    tag_scores: Scores | None = None  # None: the format has no scores

    def __init__(self, tree: Table, options: ReadOptions, collections: Collections) -> None:
        """`collections`: the collections of each kind; `--map` may name other columns."""
        if options.units not in (None, self.units):
            raise ConfigError(f"--set units={options.units}: these files are in {self.units}: remove the option")
        super().__init__(tree, options)
        self.tree, self.n_events = tree, tree.n_events
        self.objects = {kind: self._find(kind, collections) for kind in self.topology.kinds}
        used = {part for parts in self.objects.values() for part in parts}
        self.others = [
            collection_name(kind)
            for kind, choices in collections.items()
            if kind not in self.objects
            and any(len(c) == 1 and self._exists(c[0]) and c[0] not in used for c in choices)
        ]
        self._flavours = {flavour.collection: flavour for flavour in self.flavours}
        self.leptons = self._identify()
        self.variations = Variations(
            options.variations,
            options.topology.kinds,
            tree.columns,
            lambda name, columns: tree.require(columns, hint=f" (for the variation {name})"),
            self.retag,
        )
        self.kept = {name: self.kept_column(name) for name in column_names(options.keep, tree.columns)}
        identified = [
            column
            for name, each in self.leptons.conditions.items()
            for column in self._columns(name, each).values()
        ]
        self.more = list(dict.fromkeys([*self.more_columns(), *identified, *self.kept.values()]))
        tree.require(self.more)
        complete = options.truth and JET in self.objects and all(name in tree for name in self.record_columns())
        self.last = choice(options.settings, "truth", ("hard", "last")) == "last"
        self.has_truth = bool(self.record_columns()) and complete and can_search(self.topology, self.path)
        self.metadata: dict[str, Any] = {**self.tagger.metadata, **self.leptons.metadata}
        for chosen in self.objects.get("met", {}).values():
            self.metadata["met"] = chosen["pt"][0]
        self.read_as = self.metadata  # readers add to it
        self.rejected: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.tagging = str(self.tagger)

    # -- which columns -------------------------------------------------------------------------------------

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
        parts = self._parts(kind, choices, wanted.given.get("pt", ""))
        if {flavour.collection for flavour in self.flavours}.issuperset(parts) and "flavour" not in wanted.given:
            required = tuple(name for name in wanted.required if name != "flavour")  # follows from the collection
            wanted = replace(wanted, required=required)
        found = {}
        for part in parts:
            named = partial(self._name, part)
            here = {  # `--map` gives a column, or a field of the collection
                name: named(given) if named(given) in self.tree else given for name, given in wanted.given.items()
            }
            where = f"{self.path}: {self.tree.title}"
            columns = self.tree.columns
            found[part] = choose_columns(replace(wanted, given=here), columns, where, named, ("mass", "energy"))
        return found

    def _parts(self, kind: str, choices: tuple[tuple[str, ...], ...], pt: str) -> tuple[str, ...]:
        """The collections that are merged to a kind, with warnings; `pt`: the column that `--map` names."""
        first = choices[0]
        if len(first) > 1 and pt in self.tree and not any(self._name(part, pt) in self.tree for part in first):
            own = tuple(part for part in first if pt.startswith(part))
            if not own and kind in LEPTONS:
                known = " nor ".join(part.rstrip("_.:") for part in first)
                self._warn(
                    f"{kind}s with pt={pt} are not identified, because they are neither {known}: name columns of "
                    f"one of these with --map, or use only files whose {kind}s were identified before"
                )
            return own or ("",)
        for parts in choices:
            if all(map(self._exists, parts)):
                return parts
        existing = tuple(part for part in first if self._exists(part))
        if existing:
            missing = ", ".join(self._name(part, "pt") for part in first if part not in existing)
            self._warn(
                f"there is no column {missing}, so {kind}s are only those of {', '.join(existing).rstrip('_.:')}"
            )
        return existing or first

    def _warn(self, text: str) -> None:
        warnings.warn(f"{self.path}: {text}", PairtonWarning, stacklevel=6)

    def _exists(self, collection: str) -> bool:
        """Whether the file has a collection."""
        return any(self._name(collection, name) in self.tree for name in ("pt", "met"))

    def _name(self, collection: str, name: str) -> str:
        """The column of a field."""
        return collection + self.field_names.get(name, name)

    @property
    def _score_names(self) -> tuple[str, ...]:
        """Fields of jets with the score: its name in Pairton, and its name in the user's table."""
        table = self.options.btag.table
        return self.tagger.field, *([] if table is None else [table.field])

    # -- defined by each experiment ------------------------------------------------------------------------

    @abstractmethod
    def more_columns(self) -> Sequence[str]:
        """Further columns that the methods below need, apart from momenta and the generator record."""

    @abstractmethod
    def scores(self, rows: Chunk, counts: npt.NDArray[np.int64]) -> Flat:
        """(J,): the value of the tagger for the jets of all events."""

    def jet_rules(self, rows: Chunk, jets: FlatObjects) -> dict[str, npt.NDArray[np.bool_]]:
        """For each rule of the identification, what jets that fail it do -> (J,): whether each jet passes."""
        return {}

    def record_columns(self) -> Sequence[str]:
        """Columns of the generator record; empty if the format has none."""
        return ()

    def record(self, rows: Chunk) -> GenRecord:
        """The generator record; only called if `record_columns` are in the file."""
        raise NotImplementedError

    def carried(self, rows: Chunk) -> dict[str, ak.Array]:
        """Columns that are always copied to the result."""
        return {}

    def taggers(self) -> list[dict[str, Any]]:
        return [] if self.tag_scores is None else self.tag_scores.described(self.tagger)

    # -- leptons -------------------------------------------------------------------------------------------

    def _identify(self) -> LeptonSelection:
        """Choose the identifications of electrons and muons, whether or not the topology uses them."""
        settings = self.options.settings
        found = LeptonSelection.from_settings(settings)
        used = [part for kind in LEPTONS for part in self.objects.get(kind, ())]
        chosen: dict[Flavour, Expression] = {}
        for name, flavour in self._flavours.items():
            if self._name(name, "pt") in self.tree or flavour.key in settings:
                conditions = self._conditions(flavour, bool(used), found.radius > 0)
                chosen |= {} if conditions is None else {flavour: conditions}
        identified = [flavour for flavour in chosen if flavour.collection in used]  # none if `--map` names others
        defaults = [key for key in (*(flavour.key for flavour in chosen), "overlap") if key not in settings]
        if identified and defaults:
            which = [
                f"{each.plural} ({'all in the file' if str(chosen[each]) == NONE else chosen[each]})"
                for each in identified
            ]
            near = f"within delta R = {found.radius:g} of a lepton above {found.pt:g} GeV"
            warnings.warn(
                f"{'by default, ' if len(defaults) > len(chosen) else ''}leptons are {' and '.join(which)}"
                f"{f', and jets {near} are not used' if found.radius else ''}: change this with "
                f"{', '.join(f'--set {key}=…' for key in defaults)}",
                PairtonWarning,
                stacklevel=5,
            )
        stated = chosen if identified or not used else {}
        found.conditions = {flavour.collection: conditions for flavour, conditions in chosen.items()}
        found.metadata = {flavour.key: str(conditions) for flavour, conditions in stated.items()} | (
            dict(found.metadata) if chosen else {}
        )
        found.announced |= bool(identified)
        return found

    def _conditions(self, flavour: Flavour, needed: bool, removes: bool) -> Expression | None:
        """The identification that the user chose, or the first default that the file has the fields for.

        needed    whether the topology has leptons
        removes   whether leptons remove jets
        """
        key, settings = flavour.key, self.options.settings
        if key in settings:
            chosen = identification(settings[key], key)
            needed_by = f" (needed by --set {key}={settings[key]})"
            self.tree.require([*self._columns(flavour.collection, chosen).values()], hint=needed_by)
            return chosen
        for chosen in (identification(text, key) for text in flavour.defaults):
            if all(name in self.tree for name in self._columns(flavour.collection, chosen).values()):
                return chosen
        known = " or ".join(f"`{text}`" for text in flavour.defaults)
        missing = f"{flavour.plural} cannot be identified, because the file lacks the fields of {known}"
        give = f"give --set {key}=CONDITIONS, or --set"
        if needed:
            raise FormatError(f"{self.path}: {missing}: {give} {key}=none to use all {flavour.plural}")
        if removes:
            self._warn(f"{missing}, so jets near them are used: {give} overlap=none")
        return None

    def _columns(self, collection: str, conditions: Expression) -> dict[str, str]:
        """The fields that identify the leptons of a collection, and where they are -> their columns."""
        names = dict.fromkeys(["pt", "eta", "phi", *conditions.names])
        return {name: self._name(collection, name) for name in names}

    def identified(self, rows: Chunk, kind: str = "") -> list[FlatObjects]:
        """The leptons (of a kind) of identified collections; those that pass are usable."""
        return [
            self._lepton(rows, name) for name in self.leptons.conditions if kind in ("", self._flavours[name].kind)
        ]

    def _lepton(self, rows: Chunk, collection: str) -> FlatObjects:
        columns = self._columns(collection, self.leptons.conditions[collection])
        found = flat_fields(rows, {name: (column,) for name, column in columns.items()}, "lepton")
        self.leptons.identify(collection, found)
        return found

    def overlapping(self, rows: Chunk, kinds: Kinds) -> list[FlatObjects]:
        return self.identified(rows)

    # -- reading -------------------------------------------------------------------------------------------

    def read_kind(self, rows: Chunk, kind: str) -> FlatObjects:
        parts = []
        for collection, chosen in self.objects[kind].items():
            part = flat_fields(rows, chosen, kind)
            if collection in self._flavours:
                part.fields.setdefault("flavour", np.full(len(part), KINDS[self._flavours[collection].kind].code))
            if len(self.objects[kind]) > 1 and "energy" not in part.fields:
                part.fields.setdefault("mass", np.zeros(len(part), dtype=np.float32))
            if collection in self.leptons.conditions:
                part.usable = self._lepton(rows, collection).usable
                flavour = self._flavours[collection]
                failed = f"{flavour.plural} fail {self.leptons.conditions[collection]}"
                self.rejected[kind][failed] += int(np.count_nonzero(~part.passing))
            parts.append(part)
        found = merged(parts)
        if kind in LEPTONS:
            found.usable = found.passing
        return found

    def tag_jets(self, rows: Chunk, jets: FlatObjects, scale: float) -> None:
        """Tag the jets, and mark those that fail the identification."""
        fields = jets.fields
        scores = self.scores(rows, jets.counts) if self.tagger.field else np.zeros(len(jets))
        fields |= self.tagger.fields(scores, fields["pt"] / scale, fields["eta"])
        asked = self.options.wanted(JET).required
        fields |= {name: scores for name in self._score_names if name in asked}
        for rule, passes in self.jet_rules(rows, jets).items():
            self.rejected[JET][rule] += int(np.count_nonzero(jets.passing & ~passes))
            jets.keep(passes)

    def retag(self, fields: dict[str, Flat]) -> None:
        if (scores := fields.pop("btag", None)) is not None:
            fields |= self.tagger.fields(scores, fields["pt"], fields["eta"])
            fields |= {name: scores for name in self._score_names if name in self.options.wanted(JET).required}

    def read_truth(
        self, rows: Chunk, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Only objects that pass the selection are matched, so that soft jets take no quark."""
        passes = Events(objects, self.topology).passes
        parts = [np.empty((0, len(self.topology.slots)), dtype=np.int32)]
        for row in range(rows.start, rows.stop, self.truth_rows):
            end = min(row + self.truth_rows, rows.stop)
            entries = Chunk(self.tree.read(self.record_columns(), row, end), self.path, row, end)
            here = slice(row - rows.start, end - rows.start)
            found, kept = ({kind: array[here] for kind, array in each.items()} for each in (objects, passes))
            parts.append(self.record(entries).truth(self.topology, found, kept, self.last))
        truth = np.concatenate(parts)
        return truth, np.zeros(len(truth), dtype=np.int64)

    def read_columns(self, rows: Chunk) -> dict[str, Any]:
        columns = self.carried(rows) | {name: rows[column] for name, column in self.kept.items()}
        return {name: np.asarray(column) if column.ndim == 1 else column for name, column in columns.items()}


def named_collections(known: Collections, settings: Mapping[str, str], mark: str) -> Collections:
    """The collections of each kind, after `--set jets=NAME` and `--set met=NAME`.

    >>> named_collections({"jet": (("Jet_",),), "met": (("MET_",),)}, {"met": "PFMET"}, "_")
    {'jet': (('Jet_',),), 'met': (('PFMET_',),)}
    """
    asked = {"jet": settings.get("jets"), "met": settings.get("met")}
    return {**known, **{kind: ((f"{name}{mark}",),) for kind, name in asked.items() if name}}
