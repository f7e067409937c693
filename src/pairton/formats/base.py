"""Base classes of file formats: a format recognises a file, reads it in chunks and, optionally, writes it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from pairton.errors import ConfigError, InputError, OutputError, PairtonError, nearest, shown
from pairton.events import Events
from pairton.events.event_checks import MARKS
from pairton.events.inputs import CUTS, EVIDENCE, LARGE_EVIDENCE
from pairton.events.large_tags import score_fields
from pairton.formats.column_files import DEFAULT_CHUNK
from pairton.formats.columns import FLAVOURS, Wanted
from pairton.formats.expressions import NONE, Expression
from pairton.formats.files import file_state, is_url, one_line, unchanged
from pairton.formats.taggers import BTag
from pairton.formats.truth import BadLabels
from pairton.formats.variations import parse_variations
from pairton.formats.writing import KEY, EventWriter, Stored
from pairton.topology import JET, Topology, collection_name, load_topology
from pairton.topology.kinds import FATJET, KINDS

__all__ = ["Format", "ReadOptions", "Source", "check_chunk", "damage"]

TRACE = ("file", "entry")  # names of `--keep`: columns that say where an event comes from
BUGS = (AttributeError, NameError, ImportError, NotImplementedError, AssertionError)  # if raised by this package
COMPLETION = ("energy", "mass")  # fields that complete the four-momentum
EVENT_NAMES = ("weight", "source", "number")  # columns of the event that `--map` may name
FORMS: tuple[tuple[str, Any, str], ...] = (  # option of reading, its type, and that type in words
    ("map", Mapping, 'a mapping such as {"pt": "jet_pt"}'),
    ("fields", Mapping, 'a mapping such as {"jet": ["btag"]}'),
    ("tree", str, "text"),
    ("units", str, '"GeV" or "MeV"'),
    ("keep", list | tuple, "a list of names"),
    ("settings", Mapping, "a mapping of names to text"),
)


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file. Each format uses the options it has, and raises an error for the others."""

    topology: Topology = field(default_factory=load_topology)
    map: Mapping[str, str] = field(default_factory=dict)  # name in Pairton -> column: btag, lepton.pt, lepton
    fields: Mapping[str, Sequence[str]] | None = None  # kind -> fields to read; None: all that are known
    tree: str | None = None  # name of the tree in a ROOT file
    units: str | None = None  # "GeV" or "MeV"; None: the units of the format, with a check
    btag: BTag = field(default_factory=BTag)  # the tagger, its cut and its efficiencies
    keep: Sequence[str] = ()  # further columns to copy to the result
    traced: bool = False  # add the columns `file` and `entry`: where each event comes from
    truth: bool = True  # read labels, if there are any
    strict: bool = False  # bad labels are errors, not warnings
    bad_labels: BadLabels = field(default_factory=BadLabels, compare=False)  # counts bad labels of all files
    settings: Mapping[str, str] = field(default_factory=dict)  # settings of the format: --set KEY=VALUE
    variations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as from `parse_variations`
    where: Expression = field(default_factory=Expression)  # conditions on columns; events that fail are not read

    @classmethod
    def parse(
        cls,
        topology: Topology | str | Path | None = None,
        units: str | None = None,
        btag: Any = None,
        where: str | None = None,
        **options: Any,
    ) -> ReadOptions:
        """Make options from keyword arguments, and check them."""
        allowed = [name for name in cls.__dataclass_fields__ if name != "topology"]
        for name in options:
            if name not in allowed:
                raise ConfigError(
                    f"no option {name!r} for reading: choose from {', '.join(allowed)}{nearest(name, allowed)}"
                )
        for name, kind, form in FORMS:
            value = units if name == "units" else options.get(name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} is {shown(value)}, but must be {form}")
        if units is not None:
            known = {"gev": "GeV", "mev": "MeV"}
            if units.lower() not in known:
                raise ConfigError(f"units {units!r}: choose GeV or MeV")
            units = known[units.lower()]
        if where is not None and not isinstance(where, str):
            raise ConfigError(f"where is {shown(where)}, but must be text such as 'HLT_X & (nJet >= 4)'")
        options["where"] = Expression.parse(where or NONE, "where")
        if keep := options.get("keep"):
            options["traced"] = options.get("traced", False) or not set(TRACE).isdisjoint(keep)
            options["keep"] = [name for name in keep if name not in TRACE]
        options["variations"] = parse_variations(options.get("variations", ()))
        return cls(load_topology(topology or "ttbar_allhad"), units=units, btag=BTag.parse(btag), **options)

    @property
    def changing(self) -> dict[str, Any]:
        """Those that can change a result, and have no entry of their own in its metadata."""
        found: dict[str, Any] = {"map": dict(self.map), "units": self.units, "settings": dict(self.settings)}
        found["where"] = str(self.where) if self.where.conditions else ""
        return {name: value for name, value in found.items() if value}

    def wanted(self, kind: str, stored: Mapping[str, Sequence[str]] | None = None) -> Wanted:
        """The fields to read for a kind; `stored`: fields that are listed in a file written by Pairton.

        >>> ReadOptions(map={"width": "jet_w", "weight": "w"}).wanted("jet").required
        ('btag', 'width')
        """
        given = {name: column for name, column in self.map.items() if self.meaning(name) == kind}
        given = {name.removeprefix(f"{kind}."): column for name, column in given.items()}
        fields = (self.fields or {}).get(kind, KINDS[kind].inputs)
        fields = [name for name in fields if name not in CUTS]  # computed
        fields = ["btag" if name in EVIDENCE and kind == JET else name for name in fields]  # evidence needs btag
        more = [name for name in given if name not in ("pt", "eta", "phi", *COMPLETION)]
        scores = (
            score_fields() if kind == FATJET else ()
        )  # the evidence of large jets comes from those in the file
        fields = [name for name in fields if name not in LARGE_EVIDENCE]
        known = [*KINDS[kind].fields, *scores, *((stored or {}).get(kind, ()) if self.fields is None else ())]
        known = [name for name in known if name not in MARKS]
        return Wanted(kind, tuple(dict.fromkeys([*fields, *more])), tuple(dict.fromkeys(known)), given)

    @property
    def evidence(self) -> bool:
        """Whether the evidence of tags may be needed."""
        return self.fields is None or not set(EVIDENCE).isdisjoint(self.fields.get(JET, ()))

    def meaning(self, name: str) -> str:
        """What a name of `--map` refers to: the kind whose field it is, "slot", "particle", "group", "flavour"
        (electrons or muons, which are merged to leptons), or itself."""
        kinds = self.topology.kinds
        if name in [slot.name for slot in self.topology.slots]:
            return "slot"
        if name in [root.name for root in self.topology.roots]:
            return "particle"
        if name in EVENT_NAMES:
            return name
        if name in kinds:
            return "group"
        if name in FLAVOURS and "lepton" in kinds:
            return "flavour"
        kind, dot, part = name.partition(".")
        kind, part = (kind, part) if dot else (JET, name)
        if kind not in kinds:
            raise ConfigError(
                f"map {name}={self.map.get(name)}: {self.topology.name} has the kinds {', '.join(kinds)}"
                f"{nearest(kind, kinds)}; write KIND.FIELD=COLUMN, or FIELD=COLUMN for jets"
            )
        if part in MARKS or not part:
            raise ConfigError(
                f"map {name}={self.map.get(name)}: {part!r} is not a field of objects: choose another name"
            )
        return kind


def check_chunk(size: int) -> None:
    """Raise ConfigError unless a chunk is a whole number of events, at least one."""
    if isinstance(size, float):
        raise ConfigError(f"chunk is {size}, but must be a whole number")
    if size < 1:
        raise ConfigError(f"chunk is {size}, but must be at least 1")


@contextmanager
def damage(path: str) -> Iterator[None]:
    """Turn unexpected errors of a reader into an InputError: the file is damaged or not of its format."""
    try:
        yield
    except PairtonError:
        raise
    except MemoryError as error:
        raise InputError(
            f"{path}: there is not enough memory to read it: read smaller chunks, or check whether it is damaged"
        ) from error
    except Exception as error:
        if isinstance(error, BUGS) and _is_ours(error):
            raise
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(
            f"{path}: cannot be read, because it is damaged or not of the expected format ({reason})"
        ) from error


def _is_ours(error: BaseException) -> bool:
    """Whether code of this package, not of a library that reads damaged bytes, has raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("pairton.")


class Source(ABC):
    """An open file of events, to be used as a context manager."""

    path: str
    format: str  # name of the format; `open_source` sets it and the topology
    topology: Topology
    n_events: int
    has_truth: bool
    metadata: Mapping[str, Any]
    tagging: str = ""  # the tagger and its cut, which must be the same in all files
    others: Sequence[str] = ()  # collections in the file that the topology does not use
    read_as: Mapping[str, Any] = MappingProxyType({})  # all choices of the reader: tagger, jet ID, ...
    # kind -> reason -> objects read so far that are not usable
    rejected: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    traced: bool = False  # whether `chunks` add the columns `file` and `entry`

    @abstractmethod
    def read(self, start: int, stop: int) -> Events:
        """The events of rows [start, stop): all objects in stored order, in GeV, with permanent ids."""

    def no_events(self) -> Events:
        """The columns of the file, without rows. Raises InputError if the file is damaged."""
        with damage(self.path):
            return self._with_places(self.read(0, 0), 0)

    def taggers(self) -> list[dict[str, Any]]:
        """The b-tag scores in the file, their values and which one is used: plain data for `pairton inspect`."""
        return []

    def chunks(self, size: int = DEFAULT_CHUNK, start: int = 0, stop: int | None = None) -> Iterator[Events]:
        """Events of rows [start, stop), in chunks of `size` rows that begin at multiples of `size`."""
        check_chunk(size)
        stop = self.n_events if stop is None else min(stop, self.n_events)
        state = file_state(self.path)
        while start < stop:
            end = min((start // size + 1) * size, stop)
            with unchanged(self.path, state), damage(self.path):
                events = self.read(start, end)
            yield self._with_places(events, start)
            start = end

    def _with_places(self, events: Events, start: int) -> Events:
        """The events, the first of which is in row `start`, with the columns of `TRACE` if they are requested."""
        if not self.traced:
            return events
        path = self.path if is_url(self.path) else os.path.abspath(self.path)
        places = {"file": np.full(len(events), path), "entry": np.arange(start, start + len(events))}
        events.columns = places | dict(events.columns)
        return events

    def close(self) -> None:  # noqa: B027 - not every source holds a handle
        """Release the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Format(ABC):
    """One file format."""

    name: ClassVar[str]  # "spanet_hdf5"
    description: ClassVar[str]  # one line for `--help` and errors
    suffixes: ClassVar[tuple[str, ...]]  # usual suffixes; the first is for writing
    settings: ClassVar[Mapping[str, str]] = {}  # key of `--set` -> help text
    reads_variations: ClassVar[bool] = False
    names: ClassVar[tuple[str, ...]] = ()  # what `--map` may name, apart from fields: slot, weight, group, …
    jets_only: ClassVar[bool] = False
    prepared: ClassVar[bool] = False  # whether its events were prepared for a network: their author chose the jets

    @abstractmethod
    def recognises(self, file: Any) -> bool:
        """Whether an open file of the format's container has its layout."""

    @abstractmethod
    def open(self, file: Any, options: ReadOptions) -> Source:
        """Find the columns to read; FormatError if one is missing."""

    def stored_topology(self, file: Any) -> Topology | None:
        """The topology that is stored in the file, if there is one."""
        return Stored.from_json(file.text(KEY), file.path, tree=True).topology

    def check(self, options: ReadOptions) -> None:
        """Raise ConfigError for settings, names, kinds or variations that this format does not have."""
        for key in options.settings:
            if key not in self.settings:
                known = "; ".join(f"{name}: {about}" for name, about in self.settings.items()) or "none"
                hint = nearest(key, self.settings)
                raise ConfigError(f"{self.name} has no setting {key!r}{hint}; its settings: {known}")
        for name, column in options.map.items():
            meaning = options.meaning(name)
            if meaning not in (*self.names, *options.topology.kinds):
                raise ConfigError(
                    f"map {name}={column}: {self.name} allows only fields of objects, as in pt={column} or "
                    f"lepton.pt={column}: remove it"
                )
        self.check_kinds(options.topology)
        if options.variations and not self.reads_variations:
            names = ", ".join(options.variations)
            raise ConfigError(
                f"{self.name} files cannot have variations, but {names} was given: use a ROOT or Parquet file"
            )

    def check_kinds(self, topology: Topology) -> None:
        """Raise ConfigError if the topology has kinds of objects that this format cannot store."""
        others = [collection_name(kind) for kind in topology.kinds if kind != JET]
        if self.jets_only and others:
            raise ConfigError(
                f"{self.name} stores only jets, but {topology.name} needs {', '.join(others)}: choose another "
                "format, or a topology with jets only"
            )

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> EventWriter:
        """A writer for a new file; OutputError if the format can only be read."""
        raise OutputError(f"{path}: {self.name} can only be read; choose another format with --to")
