"""File formats: one module each, recognised from the content, read in chunks of bounded memory.

To add one, write a module with a `FORMAT` and give it a line in `REGISTRY`; from outside the package, call
`register_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from pairton.errors import ConfigError, FormatError, InputError, nearest
from pairton.events import Events
from pairton.events.tags import load_table
from pairton.formats.base import DEFAULT_CHUNK, Format, ReadOptions, Source, Writer, check_chunk, damage
from pairton.formats.common import BadLabels
from pairton.formats.files import CONTAINERS, Paths, check_suffix, expand, file_state, require_container, unchanged
from pairton.formats.lepton_selection import OneChoice
from pairton.formats.taggers import OneTagger
from pairton.topology import Topology, load_topology, same_tree
from pairton.topology.mixtures import find_part

__all__ = [
    "REGISTRY",
    "as_for",
    "create",
    "detect",
    "expand",
    "get_format",
    "iterate",
    "open_source",
    "read",
    "read_options",
    "register_format",
    "sources",
    "stored_topology",
]

# name, which is also the module -> container. Formats of one container are tried in this order: special first.
REGISTRY = {
    "topograph": "HDF5",
    "hyper_hdf5": "HDF5",
    "spanet_hdf5": "HDF5",
    "physlite": "ROOT",
    "nanoaod": "ROOT",
    "hyper_root": "ROOT",
    "delphes": "ROOT",
    "flat_root": "ROOT",
    "nanoaod_parquet": "Parquet",
    "parquet": "Parquet",
}
IN_MEMORY_CHUNK = 1_000_000  # what is kept anyway is read in few pieces: less to put together
OPENED_BY = {"HDF5": "hdf5_files", "ROOT": "root_files", "Parquet": "parquet_files"}  # container -> module
LEAST_BYTES = 8  # of an event in a file, however it is compressed
SMALL = 2**20  # bytes; a file may have events for as many
WRITTEN = {"HDF5": "spanet_hdf5", "ROOT": "flat_root", "Parquet": "parquet"}  # by suffix, without --to


ADDED: dict[str, Format] = {}  # from outside the package


def register_format(format: Format, container: str) -> None:
    """Read, and perhaps write, one more layout of HDF5, ROOT or Parquet files; it is tried before all others."""
    if container not in OPENED_BY:
        raise ConfigError(f"no container {container!r}: choose one of {', '.join(OPENED_BY)}")
    if format.name in REGISTRY:
        raise ConfigError(f"there is already a format {format.name!r}: give yours another name")
    ADDED[format.name] = format
    known = {format.name: container, **REGISTRY}
    REGISTRY.clear()
    REGISTRY.update(known)


def get_format(name: str) -> Format:
    """A format by its name."""
    if name not in REGISTRY:
        raise ConfigError(f"no format {name!r}: choose one of {', '.join(REGISTRY)}{nearest(name, REGISTRY)}")
    found = ADDED[name] if name in ADDED else import_module(f"pairton.formats.{name}").FORMAT
    assert isinstance(found, Format)
    return found


def detect(path: str) -> Format:
    """The format of a file, from its content; a suffix that contradicts it is an error."""
    file, found = _open(path)
    file.close()
    return found


def _open(path: str, format: str | None = None) -> tuple[Any, Format]:
    """A file, opened once, and its format: the one asked for, else the first that recognises the content."""
    if format is not None:
        found = get_format(format)
        return _open_container(path, REGISTRY[format]), found
    container = "ROOT" if path.startswith("root://") else check_suffix(path)
    file = _open_container(path, container, checked=True)
    try:
        candidates = [get_format(name) for name, kind in REGISTRY.items() if kind == container]
        with damage(path):
            for candidate in candidates:
                if candidate.recognises(file):
                    return file, candidate
        known = "; ".join(f"{candidate.name}: {candidate.description}" for candidate in candidates)
        raise FormatError(f"{path}: {container} of no known layout, found {file.summary()}; known are {known}")
    except BaseException:
        file.close()
        raise


def _open_container(path: str, container: str, checked: bool = False) -> Any:
    if not checked and not path.startswith("root://"):  # XRootD has no cheap look at the first bytes
        require_container(path, container)
    return import_module(f"pairton.formats.{OPENED_BY[container]}").open_file(path)


def read_options(
    topology: Topology | str | Path | None = None, units: str | None = None, tags: Any = None, **options: Any
) -> ReadOptions:
    """Options from keyword arguments, checked."""
    if units is not None:
        known = {"gev": "GeV", "mev": "MeV"}
        if units.lower() not in known:
            raise ConfigError(f"units {units!r}: choose GeV or MeV")
        units = known[units.lower()]
    allowed = [name for name in ReadOptions.__dataclass_fields__ if name not in ("topology", "units", "tags")]
    for name in options:
        if name not in allowed:
            raise ConfigError(
                f"no option {name!r} for reading: choose from {', '.join(allowed)}{nearest(name, allowed)}"
            )
    table = None if tags is None else load_table(tags)
    return ReadOptions(topology=load_topology(topology or "ttbar_allhad"), units=units, tags=table, **options)


def as_for(model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options to read what a model takes: its fields of each kind and, where no topology is named, its topology.

    Files that say that they are of another topology are then refused.
    """
    fields = {kind: model.inputs.fields(kind) for kind in model.inputs.kinds}
    if options.get("topology") is not None:
        return {**options, "fields": fields}
    return {**options, "fields": fields, "topology": model.topology, "refuse_others": True}


def stored_topology(path: str | Path) -> Topology | None:
    """The topology that a file says its events are of; None if it says nothing."""
    file, found = _open(str(path))
    try:
        with damage(str(path)):
            return found.stored_topology(file)
    finally:
        file.close()


def open_source(
    path: str | Path,
    format: str | None = None,
    *,
    topology: Topology | str | Path | None = None,
    refuse_others: bool = False,
    isolate: Any = False,
    **options: Any,
) -> Source:
    """Open one file. Without a topology: the one stored in the file, else ttbar_allhad.

    refuse_others: refuse a file in which another decay tree is stored.
    isolate: True, or `pairton.formats.isolation.Limits`, to read an untrusted file in a process of its own.
    """
    name = str(path)
    if isolate:
        from pairton.formats.isolation import IsolatedSource

        limits = None if isolate is True else isolate
        if refuse_others:
            options["refuse_others"] = True
        if options.get("tags") is not None:
            options["tags"] = load_table(options["tags"]).to_dict()  # a message has plain data only
        return IsolatedSource(name, format, topology=topology, limits=limits, **options)
    chosen = read_options(topology, **options)
    file, found = _open(name, format)
    try:
        with damage(name):
            stored = found.stored_topology(file) if topology is None or refuse_others else None
            if topology is None:
                chosen = chosen if stored is None else replace(chosen, topology=stored)
            elif stored is not None and not (
                same_tree(stored, chosen.topology) or find_part(chosen.topology, stored)
            ):
                raise InputError(
                    f"{name}: its events are for {stored.name}, the model is for {chosen.topology.name}: choose a "
                    "model for theirs, or read them as something else (--topology; pairton.read(…, topology=…))"
                )
            found.check(chosen)
            source = found.open(file, chosen)
    except BaseException:
        file.close()
        raise
    source.format, source.topology = found.name, chosen.topology
    asked = {name: getattr(chosen, name) for name in ("map", "units", "settings")}
    if asked := {name: dict(value) if name != "units" else value for name, value in asked.items() if value}:
        source.metadata = {**source.metadata, "reading": asked}  # what changes an answer is part of it
    state = file_state(name)
    if source.n_events < 0 or (state and source.n_events * LEAST_BYTES > max(state[1], SMALL)):
        source.close()
        raise InputError(
            f"{name}: declares {source.n_events} events" + (f" in {state[1]} bytes" if state else "") + ", which "
            "is impossible: the file is damaged, or made to exhaust the memory"
        )
    return source


def sources(
    paths: Paths, *, format: str | None = None, topology: Topology | str | Path | None = None, **options: Any
) -> Iterator[Source]:
    """Every file, opened one after the other; bad labels end in one warning."""
    bad_labels, tagger, choice = BadLabels(), OneTagger(options), OneChoice()
    for path in expand(paths):
        how = {"topology": topology, "bad_labels": bad_labels, **options}
        with unchanged(path), open_source(path, format, **how) as source:
            tagger.check(source)
            choice.check(source.path, source.chosen)
            yield source
    bad_labels.warn()


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
        paths: A path, or several: files, globs, URLs, `@list.txt`, or `sample:ttbar_allhad`.
        format: The name of a format; by default recognised from the content.
        topology: The decay tree to read for; by default the one stored in the file, else ttbar_allhad.
        chunk: How many events to read at a time.
        opened: Called with every file, as a `Source`, before its events are read.
        **options: `map`: columns by our names, {"pt": "jet_pt"}. `btag`: "TAGGER:CUT". `tags`: efficiencies of the
            tagger. `keep`: further columns to carry along. `tree`: the tree of a ROOT file. `units`: "GeV" or
            "MeV". `truth=False`: leave out labels. `strict=True`: a bad label is an error. `settings`: what
            `--set` sets. `fields`, `variations`: see `ReadOptions`. `isolate=True`: read an untrusted file in a
            process of its own.

    Yields:
        `Events`, at least once; without rows if the files have none.

    Raises:
        InputError: A file is missing, damaged, or of an unknown layout.
        ConfigError: An option is unknown or out of range.

    Examples:
        >>> import pairton
        >>> [len(events) for events in pairton.iterate("sample:ttbar_allhad", chunk=1000)]
        [1000, 1000, 137]
    """
    check_chunk(chunk)
    some, empty = False, None
    for source in sources(paths, format=format, topology=topology, **options):
        if opened is not None:
            opened(source)
        if not source.n_events:
            empty = source.no_events()
        for events in source.chunks(chunk):
            some = True
            yield events
    if not some and empty is not None:
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
        paths: A path, or several, as for `pairton.iterate`.
        format: The name of a format; by default recognised from the content.
        topology: The decay tree to read for; by default the one stored in the file, else ttbar_allhad.
        chunk: How many events to read at a time.
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
) -> Writer:
    """A writer for a new file, by `format` or by the suffix."""
    target = Path(path)
    container = CONTAINERS.get(target.suffix.lower())
    if format is None:
        if container is None:
            raise ConfigError(f"{target}: no format has this suffix: choose {', '.join(CONTAINERS)}")
        format = WRITTEN[container]
    found = get_format(format)
    if container is not None and container != REGISTRY[format]:
        raise ConfigError(
            f"{target}: the suffix says {container}, but {format} is {REGISTRY[format]}: "
            f"end the name in {found.suffixes[0]}"
        )
    found.check_kinds(topology)
    return found.create(target, topology, metadata or {})
