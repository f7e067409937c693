"""What a file format is: something that recognises a file, reads it in chunks and, perhaps, writes it.

A format is one module of this folder with a `FORMAT`; `pairton.formats` lists it, and nothing else changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Protocol, Self

from pairton._common.atomic import CompleteOrNothing
from pairton.errors import ConfigError, InputError, OutputError, PairtonError, nearest
from pairton.events import Events
from pairton.events.events import MARKS
from pairton.events.inputs import DEFAULT_FIELDS, EVIDENCE
from pairton.events.tags import TagTable
from pairton.formats.columns import KNOWN_FIELDS, Wanted
from pairton.formats.common import BadLabels
from pairton.formats.files import file_state, one_line, unchanged
from pairton.formats.stored import KEY, Stored
from pairton.topology import JET, Topology, collection_name, load_topology

__all__ = ["DEFAULT_CHUNK", "File", "Format", "ReadOptions", "Source", "Writer", "check_chunk", "damage"]

DEFAULT_CHUNK = 50_000  # events held in memory at once: some 30 MB of jets
COMPLETION = ("energy", "mass")  # fields that `--map` may name beside pt, eta, phi: parts of the four-momentum
EVENT_NAMES = ("weight", "source", "number")  # what `--map` may name of an event


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file; each format uses what it understands and refuses what contradicts it."""

    topology: Topology = field(default_factory=load_topology)
    map: Mapping[str, str] = field(default_factory=dict)  # our name -> column: btag, lepton.pt, lepton (a group)
    fields: Mapping[str, Sequence[str]] | None = None  # kind -> what the model takes; None: also all that is known
    tree: str | None = None  # of a ROOT file, where there are several
    units: str | None = None  # "GeV" or "MeV"; None: what the format says, with a check
    btag: str | None = None  # "TAGGER:CUT" or what the format calls it
    tags: TagTable | None = None  # efficiencies of the tagger, of the field that the table names
    keep: Sequence[str] = ()  # further columns to carry along
    truth: bool = True  # read labels, where there are any
    strict: bool = False  # a bad label is an error, not a warning
    bad_labels: BadLabels = field(default_factory=BadLabels, compare=False)  # where sources count them
    settings: Mapping[str, str] = field(default_factory=dict)  # what only this format knows: --set KEY=VALUE
    variations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # name -> our name -> column

    def wanted(self, kind: str, stored: Mapping[str, Sequence[str]] | None = None) -> Wanted:
        """What to read of a kind; `stored`: the fields that our writers left in the file.

        >>> ReadOptions(map={"width": "jet_w", "weight": "w"}).wanted("jet").required
        ('btag', 'width')
        """
        given = {name: column for name, column in self.map.items() if self.meaning(name) == kind}
        given = {name.removeprefix(f"{kind}."): column for name, column in given.items()}
        fields = (self.fields or {}).get(kind, DEFAULT_FIELDS.get(kind, ()))
        fields = ["btag" if name in EVIDENCE and kind == JET else name for name in fields]  # which it is made from
        more = [name for name in given if name not in ("pt", "eta", "phi", *COMPLETION)]
        known = [*KNOWN_FIELDS.get(kind, ()), *((stored or {}).get(kind, ()) if self.fields is None else ())]
        known = [name for name in known if name not in MARKS]
        return Wanted(kind, tuple(dict.fromkeys([*fields, *more])), tuple(dict.fromkeys(known)), given)

    @property
    def evidence(self) -> bool:
        """Whether anybody may ask what the tags of jets are worth."""
        return self.fields is None or not set(EVIDENCE).isdisjoint(self.fields.get(JET, ()))

    def meaning(self, name: str) -> str:
        """What a name of `--map` is about: a kind (a field of it), "slot", "particle", "group" or itself."""
        kinds = self.topology.kinds
        if name in [slot.name for slot in self.topology.slots]:
            return "slot"
        if name in [root.name for root in self.topology.roots]:
            return "particle"
        if name in EVENT_NAMES:
            return name
        if name in kinds:
            return "group"
        kind, dot, part = name.partition(".")
        kind, part = (kind, part) if dot else (JET, name)
        if kind not in kinds:
            raise ConfigError(
                f"map {name}={self.map.get(name)}: {self.topology.name} has the kinds {', '.join(kinds)}"
                f"{nearest(kind, kinds)}; write KIND.FIELD=COLUMN, or FIELD=COLUMN for jets"
            )
        if part in MARKS or not part:
            raise ConfigError(
                f"map {name}={self.map.get(name)}: {part!r} is no field of objects: choose another name"
            )
        return kind


class File(Protocol):
    """An open file of some container. `text`: a string that our writers left; `summary`: what is in it."""

    path: str

    def text(self, name: str) -> str | None: ...

    def summary(self) -> str: ...

    def close(self) -> None: ...


def check_chunk(size: int) -> None:
    if size < 1:
        raise ConfigError(f"chunk={size}: it must be at least 1 event")


@contextmanager
def damage(path: str) -> Iterator[None]:
    """What a reader did not foresee is, to the user, a file that is damaged or not what it says it is."""
    try:
        yield
    except PairtonError:
        raise
    except MemoryError as error:
        raise InputError(
            f"{path}: reading it takes more memory than there is: it may be damaged; else try smaller chunks"
        ) from error
    except Exception as error:
        said = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(f"{path}: cannot be read, damaged or not what its format promises ({said})") from error


class Source(ABC):
    """An open file. A context manager; `chunks` reads rows [start, stop) with bounded memory."""

    path: str
    format: str  # its name; this and the topology are set on opening
    topology: Topology
    n_events: int
    has_truth: bool
    metadata: Mapping[str, Any]
    tagging: str = ""  # where tags come from: files of one run must agree
    others: Sequence[str] = ()  # collections that the topology does not take
    chosen: Mapping[str, str] = MappingProxyType({})  # key of `--set` -> what was taken by what the file has
    read_as: Mapping[str, Any] = MappingProxyType({})  # what the reader decided for this file: tagger, jet ID, ...

    @abstractmethod
    def read(self, start: int, stop: int) -> Events:
        """The events of some rows, objects as stored, in GeV, with permanent ids."""

    def no_events(self) -> Events:
        """The columns of the file, without rows. Raises InputError if the file is damaged."""
        with damage(self.path):
            return self.read(0, 0)

    def taggers(self) -> list[dict[str, Any]]:
        """What the first values of each score of jets are, and which is used: plain data for `pairton inspect`."""
        return []

    def chunks(self, size: int = DEFAULT_CHUNK, start: int = 0, stop: int | None = None) -> Iterator[Events]:
        """Rows [start, stop) in windows of `size` that begin at multiples of it."""
        check_chunk(size)
        stop = self.n_events if stop is None else min(stop, self.n_events)
        state = file_state(self.path)
        while start < stop:
            end = min((start // size + 1) * size, stop)
            with unchanged(self.path, state), damage(self.path):
                events = self.read(start, end)
            yield events
            start = end

    def close(self) -> None:  # noqa: B027 - not every source holds a handle
        """Release the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Writer(CompleteOrNothing):
    """Takes events chunk by chunk."""

    @abstractmethod
    def write(self, events: Events) -> None:
        """Append some events."""


class Format(ABC):
    """One file format."""

    name: ClassVar[str]  # "spanet_hdf5"
    description: ClassVar[str]  # one line for `--help` and errors
    suffixes: ClassVar[tuple[str, ...]]  # of files it may be; the first is for writing
    settings: ClassVar[Mapping[str, str]] = {}  # key of `--set` -> what it does, with its values
    reads_variations: ClassVar[bool] = False
    names: ClassVar[tuple[str, ...]] = ()  # what `--map` may name beside fields of objects: slot, weight, group, …
    jets_only: ClassVar[bool] = False

    @abstractmethod
    def recognises(self, file: Any) -> bool:
        """Whether an open file, of the container that the registry says, has this layout."""

    @abstractmethod
    def open(self, file: Any, options: ReadOptions) -> Source:
        """Find what is to be read; raises FormatError naming what is missing and what was found."""

    def stored_topology(self, file: File) -> Topology | None:
        """The topology written in the file, where there is one."""
        return Stored.from_json(file.text(KEY), file.path, tree=True).topology

    def check(self, options: ReadOptions) -> None:
        """Refuse settings, names, kinds and variations that this format does not know."""
        for key in options.settings:
            if key not in self.settings:
                known = "; ".join(f"{name}: {about}" for name, about in self.settings.items()) or "none"
                hint = nearest(key, self.settings)
                raise ConfigError(f"{self.name} has no setting {key!r}{hint}; its settings: {known}")
        for name, column in options.map.items():
            meaning = options.meaning(name)
            if meaning not in (*self.names, *options.topology.kinds):
                raise ConfigError(
                    f"map {name}={column}: {self.name} takes names of fields only, as in pt={column} or "
                    f"lepton.pt={column}: leave it out"
                )
        self.check_kinds(options.topology)
        if options.variations and not self.reads_variations:
            names = ", ".join(options.variations)
            raise ConfigError(
                f"{self.name} has no columns for the variations {names}: give a ROOT or Parquet file"
            )

    def check_kinds(self, topology: Topology) -> None:
        """Refuse a topology with objects that this format has no place for."""
        others = [collection_name(kind) for kind in topology.kinds if kind != JET]
        if self.jets_only and others:
            raise ConfigError(
                f"{self.name} has only jets, but {topology.name} needs {', '.join(others)}: choose another "
                "format, or a topology of jets"
            )

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        """Open for writing, where the format can."""
        raise OutputError(f"{path}: {self.name} can only be read; choose another format with --to")
