"""File formats: one module each. Files are recognised by their content and read in chunks of bounded memory.

To add a format, write a module with `FORMATS` and add it to `REGISTRY`, or call `register_format` from your own
code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from pairton._common.worker import Worker
from pairton.errors import ConfigError, FormatError, InputError, nearest
from pairton.events import Events
from pairton.formats.base import Format, ReadOptions, Source, check_chunk, damage
from pairton.formats.column_files import DEFAULT_CHUNK, MODULES, container_module
from pairton.formats.files import CONTAINERS, Paths, container_of, expand, file_state, unchanged
from pairton.formats.isolation import IsolatedSource, Reader
from pairton.formats.truth import BadLabels
from pairton.formats.writing import KEY, EventWriter
from pairton.topology import Topology, parse_topology, same_tree

__all__ = [
    "REGISTRY",
    "OpenFile",
    "create",
    "detect",
    "expand",
    "get_format",
    "iterate",
    "open_source",
    "options_for",
    "read",
    "register_format",
    "sources",
    "stored_topology",
]

# name of a format -> container. Formats are tried in this order, the most specific first.
REGISTRY = {
    "topograph": "HDF5",
    "authors": "HDF5",
    "hyper_hdf5": "HDF5",
    "spanet_hdf5": "HDF5",
    "physlite": "ROOT",
    "nanoaod": "ROOT",
    "hyper_root": "ROOT",
    "delphes": "ROOT",
    "edm4hep": "ROOT",
    "topcptoolkit": "ROOT",
    "flat_root": "ROOT",
    "nanoaod_parquet": "Parquet",
    "parquet": "Parquet",
}
# name of a format -> its module, if that is not the one of its name
ELSEWHERE = {
    "topograph": "formats.records",
    "hyper_hdf5": "formats.records",
    "authors": "formats.records",
    "hyper_root": "formats.flat",
    "topcptoolkit": "formats.flat",
    "flat_root": "formats.flat",
    "parquet": "formats.flat",
    "nanoaod_parquet": "formats.nanoaod",
    "spanet_hdf5": "spanet.spanet_hdf5",
}
ADDED: dict[str, Format] = {}  # by `register_format`
IN_MEMORY_CHUNK = 1_000_000  # events; large, since all of them are kept in memory anyway
WRITTEN = {"HDF5": "spanet_hdf5", "ROOT": "flat_root", "Parquet": "parquet"}  # default format for writing


def register_format(format: Format, container: str) -> None:
    """Add a format for a layout of HDF5, ROOT or Parquet files. It is tried before all others."""
    if container not in MODULES:
        raise ConfigError(f"no container {container!r}: choose one of {', '.join(MODULES)}")
    if format.name in REGISTRY:
        raise ConfigError(f"there is already a format {format.name!r}: give yours another name")
    ADDED[format.name] = format
    known = {format.name: container, **REGISTRY}
    REGISTRY.clear()
    REGISTRY.update(known)


def get_format(name: str) -> Format:
    """The format with a name."""
    if name not in REGISTRY:
        raise ConfigError(f"no format {name!r}: choose one of {', '.join(REGISTRY)}{nearest(name, REGISTRY)}")
    if name in ADDED:
        return ADDED[name]
    found: tuple[Format, ...] = import_module(f"pairton.{ELSEWHERE.get(name, f'formats.{name}')}").FORMATS
    return next(each for each in found if each.name == name)


def detect(path: str) -> Format:
    """The format of a file, recognised by its content; InputError if the suffix contradicts it."""
    file, found = _open(path)
    file.close()
    return found


def _open(path: str, format: str | None = None) -> tuple[Any, Format]:
    """The open file and its format: the given one, or else the first that recognises the content."""
    chosen = None if format is None else get_format(format)
    container = REGISTRY.get(format or "", "ROOT")
    if not path.startswith("root://"):  # reading the first bytes through XRootD is slow
        container = container_of(path, REGISTRY.get(format or ""))
    file = container_module(container).open_file(path)
    if chosen is not None:
        return file, chosen
    try:
        candidates = [get_format(name) for name, kind in REGISTRY.items() if kind == container]
        with damage(path):
            for candidate in candidates:
                if candidate.recognises(file):
                    return file, candidate
        known = "; ".join(f"{candidate.name}: {candidate.description}" for candidate in candidates)
        raise FormatError(
            f"{path}: this {container} file has an unknown layout: found {file.summary()}; known layouts are "
            f"{known}"
        )
    except BaseException:
        file.close()
        raise


def options_for(model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Add to the options what a model needs: its input fields and, unless the options name a topology, its
    topology.

    In the second case, a file with another stored topology is an error.
    """
    fields = {kind: model.inputs.fields(kind) for kind in model.inputs.kinds}
    if options.get("topology") is not None:
        return {**options, "fields": fields}
    return {**options, "fields": fields, "topology": model.topology, "refuse_others": True}


class OpenFile:
    """A file that is open, before its events are read: what it stores may decide how they are read."""

    def __init__(self, path: str | Path, format: str | None = None, isolate: Any = False) -> None:
        """As for `open_source`."""
        self.path, self.state = str(path), file_state(str(path))
        self._worker: Worker | None = None
        self._last: tuple[dict[str, Any], Source] | None = None
        if isolate:
            self._worker = Worker(Reader, OpenFile, self.path, format, name=self.path, limits=isolate)
        else:
            self._file, self._format = _open(self.path, format)

    @cached_property
    def stored_topology(self) -> Topology | None:
        """The topology that the file stores; None if it stores no topology."""
        if self._worker is not None:
            plain = self._worker.call("stored_topology")
            return None if plain is None else parse_topology(plain, self.path)
        with damage(self.path):
            return self._format.stored_topology(self._file)

    def source(self, **options: Any) -> Source:
        """The events, read with options of `open_source`; if these are the same, the last source."""
        if self._last is not None:
            before, source = self._last
            if before.keys() == options.keys() and all(before[name] is options[name] for name in options):
                return source
        source = (
            self._source(**options) if self._worker is None else IsolatedSource(self._worker, self.path, options)
        )
        self._last = options, source
        return source

    def _source(
        self, *, topology: Topology | str | Path | None = None, refuse_others: bool = False, **options: Any
    ) -> Source:
        chosen = ReadOptions.parse(topology, **options)
        stored = self.stored_topology if topology is None or refuse_others else None
        if stored is not None and topology is None:
            chosen = replace(chosen, topology=stored)
        elif stored is not None and not any(
            same_tree(stored, tree) for tree in (chosen.topology, *chosen.topology.alternatives)
        ):
            raise InputError(
                f"{self.path}: the events are for {stored.name}, but the model is for {chosen.topology.name}: "
                f"choose a model for {stored.name}, or another topology for the events (--topology)"
            )
        with damage(self.path):
            self._format.check(chosen)
            source = self._format.open(self._file, chosen)
        source.format, source.topology, source.traced = self._format.name, chosen.topology, chosen.traced
        metadata = dict(source.metadata)
        if not self._format.prepared and self._file.text(KEY) is None:  # Pairton's own files keep what was stored
            metadata["pile_up"] = True
        if changing := chosen.changing:
            metadata["reading"] = changing
        source.metadata = metadata
        if source.n_events < 0:
            raise InputError(f"{self.path}: declares {source.n_events} events: the file is damaged")
        return source

    def close(self) -> None:
        """Close the file, and with it its events."""
        if self._last is not None:
            self._last[1].close()
        if self._worker is not None:
            self._worker.close()
        else:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stored_topology(path: str | Path, isolate: Any = False) -> Topology | None:
    """The topology that a file stores; None if it stores no topology. `isolate`: as for `open_source`."""
    with OpenFile(path, isolate=isolate) as file:
        return file.stored_topology


def open_source(path: str | Path, format: str | None = None, *, isolate: Any = False, **options: Any) -> Source:
    """Open one file for reading.

    isolate: True, or `pairton.formats.isolation.Limits`, to read an untrusted file in a worker process.
    topology: by default the one stored in the file, or else ttbar_allhad.
    refuse_others: raise InputError if the file stores another decay tree.
    options: of `ReadOptions`
    """
    file = OpenFile(path, format, isolate)
    try:
        return file.source(**options)
    except BaseException:
        file.close()
        raise


def sources(
    paths: Paths, *, format: str | None = None, isolate: Any = False, first: OpenFile | None = None, **options: Any
) -> Iterator[Source]:
    """Open the files one after the other; warn once, at the end, of bad labels in any of them.

    first: the first of them if it is open already; it stays open
    """
    options = {"bad_labels": BadLabels(), **options}
    same = ("electron_id", "muon_id", "met", *([] if options.get("btag") is not None else ["btag"]))
    before: tuple[str, Mapping[str, Any]] | None = None
    for path in expand(paths):
        own = first if first is not None and path == first.path else None
        with (
            unchanged(path, None if own is None else own.state),
            open_source(path, format, isolate=isolate, **options)
            if own is None
            else nullcontext(own.source(**options)) as source,
        ):
            chosen = {**source.read_as, "btag": source.tagging}
            other, theirs = before = before or (path, chosen)
            for key in same:
                if key in theirs and key in chosen and theirs[key] != chosen[key]:
                    flags = "--btag TAGGER:CUT or --btag TABLE" if key == "btag" else f"--set {key}=…"
                    raise InputError(
                        f"{path} is read with {key}={chosen[key]}, but {other} with {theirs[key]}: choose one "
                        f"for all files with {flags}, or run on them separately"
                    )
            yield source
    options["bad_labels"].warn()


def iterate(
    paths: Paths,
    *,
    format: str | None = None,
    topology: Topology | str | Path | None = None,
    chunk: int = DEFAULT_CHUNK,
    opened: Callable[[Source], object] | None = None,
    **options: Any,
) -> Iterator[Events]:
    """Read events in chunks of bounded memory.

    Args:
        paths: One or several of: a file, a glob, a URL, a list of files `@list.txt`, or the events in the package,
            `sample:ttbar_allhad`.
        format: Name of the format; by default it is recognised by the content.
        topology: The decay tree of the events; by default the one stored in the file, or else ttbar_allhad.
        chunk: Number of events per chunk.
        opened: Function that is called with each file, as a `Source`, before its events are read.
        **options: `map`: names of columns in the file, {"pt": "jet_pt"}. `btag`: tagger and cut, "TAGGER:CUT",
            or a table of the tagger's efficiencies: its name, a YAML file or plain data. `keep`: names of further
            columns to copy to the result; `file` and `entry` say where an event is from. `tree`: name of the tree
            in a ROOT file. `units`: "GeV" or "MeV". `truth=False`: do not read labels. `strict=True`: bad labels
            are errors. `settings`: settings of the format, as `--set` on the command line. `variations`: columns
            of systematic variations, such as {"jes_up": {"jet.pt": "jet_pt_up"}}, a YAML file or a preset, as for
            `--variation`. `where`: conditions on columns, "HLT_X & (nJet >= 4)"; events that fail are left out,
            and `events.columns["entry"]` numbers the others in their file. `fields`: fields to read for each kind,
            {"jet": ["btag"]}. `isolate=True`: read an untrusted file in a worker process.

    Yields:
        `Events`, at least once, even if the files have no events.

    Raises:
        InputError: A file is missing, damaged, or of an unknown layout.
        ConfigError: An option is unknown or out of range.

    Examples:
        >>> import pairton
        >>> [len(events) for events in pairton.iterate("sample:ttbar_allhad", chunk=1000)]
        [1000, 1000, 137]
    """
    check_chunk(chunk)
    found_events, empty = False, None
    for source in sources(paths, format=format, topology=topology, **options):
        if opened is not None:
            opened(source)
        if not source.n_events:
            empty = source.no_events()
        for events in source.chunks(chunk):
            found_events = True
            yield events
    if not found_events and empty is not None:
        yield empty


def read(
    paths: Paths,
    *,
    format: str | None = None,
    topology: Topology | str | Path | None = None,
    chunk: int = IN_MEMORY_CHUNK,
    **options: Any,
) -> Events:
    """Read all events of some files into memory.

    Args:
        paths: One or several files, as for `pairton.iterate`.
        format: Name of the format; by default it is recognised by the content.
        topology: The decay tree of the events; by default the one stored in the file, or else ttbar_allhad.
        chunk: Number of events to read at a time.
        **options: As for `pairton.iterate`.

    Returns:
        `Events`, in the order of the files.

    Raises:
        InputError: A file is missing, damaged, or of an unknown layout.
        ConfigError: An option is unknown or out of range.

    Examples:
        >>> import pairton
        >>> pairton.read("sample:ttbar_allhad")
        <Events: 2137 of ttbar_allhad, 14516 jets, 588 complete>
    """
    return Events.concatenate(list(iterate(paths, format=format, topology=topology, chunk=chunk, **options)))


def create(
    path: str | Path, topology: Topology, metadata: Mapping[str, Any] | None = None, format: str | None = None
) -> EventWriter:
    """A writer for a new file, in the given format or in the default one for its suffix."""
    target = Path(path)
    container = CONTAINERS.get(target.suffix.lower())
    if container is None and format is None:
        raise ConfigError(f"{target}: unknown suffix: choose one of {', '.join(CONTAINERS)}")
    found = get_format(format or WRITTEN[str(container)])
    if container is not None and container != REGISTRY[found.name]:
        raise ConfigError(
            f"{target}: the suffix says {container}, but {format} is {REGISTRY[found.name]}: "
            f"end the name in {found.suffixes[0]}"
        )
    found.check_kinds(topology)
    return found.create(target, topology, metadata or {})
