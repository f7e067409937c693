"""What a file format is: something that recognises a file, reads it in chunks and, perhaps, writes it.

A format is one module of this folder with a `FORMAT`; `pairton.formats` lists it, and nothing else changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from pairton._common.atomic import CompleteOrNothing
from pairton.errors import ConfigError, InputError, PairtonError
from pairton.events import Events
from pairton.formats.common import BadLabels
from pairton.formats.files import file_state, one_line, unchanged
from pairton.topology import Topology, load_topology

__all__ = ["DEFAULT_CHUNK", "Format", "ReadOptions", "Source", "Writer", "check_chunk", "damage"]

DEFAULT_CHUNK = 50_000  # events held in memory at once: some 30 MB of jets


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file; each format uses what it understands and refuses what contradicts it."""

    topology: Topology = field(default_factory=load_topology)
    map: Mapping[str, str] = field(default_factory=dict)  # our name -> column of the file
    tree: str | None = None  # of a ROOT file, where there are several
    units: str | None = None  # "GeV" or "MeV"; None: what the format says, with a check
    btag: str | None = None  # "TAGGER:CUT" or what the format calls it
    keep: Sequence[str] = ()  # further columns to carry along
    truth: bool = True  # read labels, where there are any
    strict: bool = False  # a bad label is an error, not a warning
    bad_labels: BadLabels = field(default_factory=BadLabels, compare=False)  # where sources count them
    settings: Mapping[str, str] = field(default_factory=dict)  # what only this format knows: --set KEY=VALUE
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)  # kind -> fields beyond the four-momentum
    variations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # name -> our name -> column


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
    n_events: int
    has_truth: bool
    metadata: Mapping[str, Any]

    @abstractmethod
    def read(self, start: int, stop: int) -> Events:
        """The events of some rows, jets as stored, in GeV, with permanent ids."""

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

    @abstractmethod
    def recognises(self, path: str) -> bool:
        """Whether an existing file, of one of the suffixes' container kinds, has this layout."""

    @abstractmethod
    def open(self, path: str, options: ReadOptions) -> Source:
        """Open for reading; raises FormatError naming what is missing and what was found."""

    def stored_topology(self, path: str) -> Topology | None:
        """The topology written in the file, where there is one."""
        return None

    def check(self, options: ReadOptions) -> None:
        """Refuse settings that this format does not know, and variations where it cannot read them."""
        from pairton.errors import ConfigError, nearest

        for key in options.settings:
            if key not in self.settings:
                known = "; ".join(f"{name}: {about}" for name, about in self.settings.items()) or "none"
                hint = nearest(key, self.settings)
                raise ConfigError(f"{self.name} has no setting {key!r}{hint}; its settings: {known}")
        if options.variations and not self.reads_variations:
            names = ", ".join(options.variations)
            raise ConfigError(
                f"{self.name} has no columns for the variations {names}: give a ROOT or Parquet file"
            )

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        """Open for writing, where the format can."""
        from pairton.errors import OutputError

        raise OutputError(f"{path}: {self.name} can only be read; choose another format with --to")
