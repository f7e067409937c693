"""The main job in parts: fixed windows of rows over all files, a file each, made anywhere and in any order.

A folder holds `part-00000.parquet`, `part-00001.parquet`, ..., and `_reconstruction.json` when all are there: what
one file would say of itself, and the parts. Read in order, the parts are the rows of a single process, array for
array, because a part begins at a multiple of the window in which events are batched. Every part carries the key
of what it was made from and how, so a later run knows which are still good.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.atomic import locked, output_errors, replacing
from pairton._common.parallel import WorkerError, check_jobs, run_tasks
from pairton._version import __version__
from pairton.errors import ConfigError, InputError, OutputError
from pairton.events import Events, Status
from pairton.formats import as_for, expand, open_source
from pairton.formats.base import check_chunk
from pairton.formats.files import CONTAINERS, Paths, digest, fingerprint, is_url, unchanged
from pairton.formats.lepton_selection import OneChoice
from pairton.formats.taggers import OneTagger
from pairton.models.storage import INFO, WEIGHTS
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.reconstruction.running import WINDOW, Assigner, windows
from pairton.reconstruction.streaming import READ_ROWS
from pairton.reconstruction.writers import (
    ROWS,
    create_result,
    result_metadata,
    result_settings,
    same_columns,
    same_kept,
)
from pairton.topology import load_topology

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["COMPLETE", "PART_ROWS", "Done", "Parts", "reconstruct_parts"]

COMPLETE = "_reconstruction.json"  # appears when every part is there; readers of folders skip _names
PART_ROWS = ROWS  # a minute or so of work

Watch = Callable[[Iterator["Done"]], Iterator["Done"]]


@dataclass(frozen=True)
class Segment:
    """Rows [start, stop) of a file, and its mark when the work was planned."""

    path: str
    start: int
    stop: int
    mark: tuple[int, int]  # fingerprint, time of the last change


@dataclass(frozen=True)
class Part:
    """All that a worker must know to make one part."""

    index: int
    path: Path
    segments: tuple[Segment, ...]
    model: Model
    metadata: Mapping[str, Any] = field(repr=False)  # of the result; "part" has the key
    settings: RunSettings
    chunk: int
    options: Mapping[str, Any] = field(repr=False)

    @property
    def n_events(self) -> int:
        return sum(segment.stop - segment.start for segment in self.segments)


@dataclass(frozen=True)
class Done:
    """A part that is on disk."""

    path: Path
    status: Mapping[str, int]  # label -> events
    columns: tuple[str, ...]
    varied: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # the status of each variation
    new: bool = True
    jets: int = 0  # that were used, where the model takes tags
    tagged: int = 0  # of those, with a b-tag

    def __len__(self) -> int:
        return sum(self.status.values())


@dataclass(frozen=True)
class Parts:
    """What became of the events, and where they are."""

    events: int
    status: dict[str, int]  # label -> events
    paths: tuple[Path, ...]  # in the order of rows
    varied: Mapping[str, dict[str, int]] = field(default_factory=dict)  # the status of each variation
    skipped: int = 0  # parts that were there already
    replaced: int = 0  # parts that were there, but made from other inputs or with other settings
    jets: int = 0  # that were used, where the model takes tags
    tagged: int = 0  # of those, with a b-tag


def reconstruct_parts(
    paths: Paths,
    folder: str | Path,
    model: Model | str = "default",
    settings: RunSettings = DEFAULT_SETTINGS,
    /,  # `settings` by name is that of a format, as of `pairton.iterate`
    *,
    client: Any = None,
    jobs: int = 1,
    resume: bool = False,
    force: bool = False,
    rows: int = PART_ROWS,
    suffix: str = ".parquet",
    chunk: int = READ_ROWS,
    engine: str = "onnx",
    progress: Watch | None = None,
    **options: Any,
) -> Parts:
    """Reconstruct files into a folder of parts: here, in `jobs` processes, or on the cluster of a Dask `client`.

    resume    keep the parts that were made from the same inputs with the same settings
    force     replace the parts of an earlier run
    rows      of a part: a multiple of the window
    suffix    of the parts: .parquet, .root or .h5
    Workers must see inputs, model and folder under the same paths. Other options are those of `reconstruct_files`.
    """
    if rows < 1 or rows % WINDOW:
        raise ConfigError(f"parts of {rows} rows: choose a multiple of {WINDOW}, for example {PART_ROWS}")
    if suffix.lower() not in CONTAINERS:
        raise ConfigError(f"parts with the suffix {suffix!r}: choose {', '.join(CONTAINERS)}")
    if isinstance(model, str):
        from pairton.models.engines import load_model

        alone = client is None and jobs == 1
        alone_threads = None if alone else 1
        model = load_model(model, engine=engine, threads=alone_threads, topology=options.get("topology"))
    folder = Path(folder).absolute()
    files = expand(paths)
    options = {"truth": False, **options}
    options = as_for(model, options)
    check_jobs(jobs)  # all this before what is there is touched
    check_chunk(chunk)
    Assigner(model, settings).check(load_topology(options["topology"]))
    metadata = result_settings(model, files, settings)
    same = ("isolate", "refuse_others")  # change no answer
    reading = {name: value for name, value in options.items() if name not in same}
    how = _digest([metadata | {"inputs": None}, _identity(model), reading])
    plan = [
        Part(
            index,
            folder / f"part-{index:05d}{suffix}",
            segments,
            model,
            metadata | {"part": {"index": index, "key": _digest([how, [_key(s) for s in segments]])}},
            settings,
            chunk,
            options,
        )
        for index, segments in enumerate(_cut(files, rows, options))
    ]
    _create(folder, plan)
    with locked(folder):
        begun = time.time()
        finished = _find_finished(plan, folder, resume, force)
        todo = [part for part in plan if part.index not in finished]
        replaced = sum(part.path.exists() for part in todo)
        if todo:
            with output_errors(folder):
                (folder / COMPLETE).unlink(missing_ok=True)  # what it says is no longer so

        def stream() -> Iterator[Done]:
            yield from finished.values()
            for part, done in run_tasks(make_part, todo, jobs, client):
                finished[part.index] = done
                yield done

        for _ in stream() if progress is None else progress(stream()):
            pass
        done = _complete(plan, finished, folder, metadata, begun)
    return replace(done, skipped=len(plan) - len(todo), replaced=replaced)


def make_part(part: Part) -> Done:
    """Make one part, whole or not at all. Runs on a worker."""
    if part.metadata["pairton_version"] != __version__:
        raise WorkerError(
            f"this worker has pairton {__version__}, but the work is for {part.metadata['pairton_version']}: "
            "install the same version everywhere"
        )
    assigner = Assigner(part.model, part.settings)
    with create_result(part.path, part.model.topology, part.metadata) as writer:
        for window in windows(same_kept(_events(part))):
            writer.write(assigner.run(window))
        assert writer.names is not None  # there is always a window
        columns = tuple(writer.names)
        writer.metadata["part"] = {**part.metadata["part"], "columns": columns}
    tally = writer.tally
    return Done(part.path, tally.status, columns, tally.varied, jets=tally.jets, tagged=tally.tagged)


def _events(part: Part) -> Iterator[Events]:
    for segment in part.segments:
        with unchanged(segment.path):
            if _mark(segment.path) != segment.mark:
                raise InputError(f"{segment.path}: it changed since this run began: start again with --resume")
            with open_source(segment.path, **part.options) as source:
                if segment.start == segment.stop:
                    yield source.read(0, 0)
                yield from source.chunks(part.chunk, segment.start, segment.stop)


def _cut(files: list[str], rows: int, options: Mapping[str, Any]) -> Iterator[tuple[Segment, ...]]:
    """Rows of all files together, cut at multiples of `rows`; one empty part if there are none."""
    waiting: list[Segment] = []
    held = 0
    some = False
    empty: Segment | None = None
    tagger, choice = OneTagger(options), OneChoice()
    for name in files:
        path = name if is_url(name) else os.path.abspath(name)  # a worker may have another current folder
        with open_source(path, **options) as source:
            tagger.check(source)
            choice.check(source.path, source.chosen)
            n_events = source.n_events
        mark = _mark(path)
        empty = Segment(path, 0, 0, mark)
        start = 0
        while start < n_events:
            stop = min(n_events, start + rows - held)
            waiting.append(Segment(path, start, stop, mark))
            held += stop - start
            start = stop
            if held == rows:
                yield tuple(waiting)
                some, waiting, held = True, [], 0
    if waiting:
        yield tuple(waiting)
    elif not some and empty is not None:
        yield (empty,)


def _create(folder: Path, plan: list[Part]) -> None:
    """Make the folder; an error where a part would replace an input."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: results in parts go to a folder, and this is a file: give another name")
    inputs = {segment.path for part in plan for segment in part.segments if not is_url(segment.path)}
    given = {(found.st_dev, found.st_ino): path for path, found in ((path, os.stat(path)) for path in inputs)}
    for part in plan:
        if part.path.exists() and (name := given.get((part.path.stat().st_dev, part.path.stat().st_ino))):
            raise OutputError(f"{part.path}: this is the input {name}: write to another folder")
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder}: the folder is read-only: write elsewhere")


def _find_finished(plan: list[Part], folder: Path, resume: bool, force: bool) -> dict[int, Done]:
    """The parts in the folder that are as this run would make them."""
    there = sorted(folder.glob("part-*"))
    if there and not (resume or force):
        state = "the parts" if (folder / COMPLETE).exists() else f"{len(there)} parts"
        raise OutputError(
            f"{folder} holds {state} of an earlier run: go on with --resume, replace them with --force"
        )
    strangers = sorted(set(there) - {part.path for part in plan})
    if strangers and not force:
        raise OutputError(
            f"{folder} holds {strangers[0].name}, which is not of these inputs: remove it, or give another folder"
        )
    with output_errors(folder):
        for stranger in strangers:
            stranger.unlink()
    if force and not resume:
        return {}
    found: dict[int, Done] = {}
    for part in plan:
        said = result_metadata(part.path) if part.path.exists() else None
        own = (said or {}).get("part", {})
        if said is not None and own.get("key") == part.metadata["part"]["key"]:
            varied = said.get("variation_status", {})
            jets, tagged = (int(said.get(name, 0)) for name in ("jets", "btagged_jets"))
            found[part.index] = Done(
                part.path, said["status"], tuple(own["columns"]), varied, new=False, jets=jets, tagged=tagged
            )
    return found


def _complete(
    plan: list[Part],
    done: Mapping[int, Done],
    folder: Path,
    settings: Mapping[str, Any],
    begun: float,
) -> Parts:
    """Say of all parts what one file would say of itself."""
    for part in plan[1:]:
        same_columns(folder, done[0].columns, done[part.index].columns)
    status = _summed([d.status for d in done.values()])
    varied = {name: _summed([d.varied[name] for d in done.values()]) for name in done[0].varied}
    events = sum(status.values())
    said = {key: value for key, value in (result_metadata(plan[0].path) or {}).items() if key != "part"}
    parts = [{"name": part.path.name, "events": part.n_events} for part in plan]
    whole: dict[str, Any] = {**said, **settings, "events": events, "status": status, "parts": parts}
    whole |= {"variation_status": varied} if varied else {}
    jets, tagged = sum(d.jets for d in done.values()), sum(d.tagged for d in done.values())
    whole |= {"jets": jets, "btagged_jets": tagged} if jets else {}
    with replacing(folder / COMPLETE) as temporary:
        temporary.write_text(json.dumps(whole, indent=1), encoding="utf-8")
    for left in folder.glob(".part-*"):  # of runs that were killed; a slow worker of this one may still write
        if left.stat().st_mtime < begun:
            left.unlink(missing_ok=True)
    return Parts(events, status, tuple(part.path for part in plan), varied, jets=jets, tagged=tagged)


def _summed(each: list[Mapping[str, int]]) -> dict[str, int]:
    return {state.label: sum(status[state.label] for status in each) for state in Status}


def _key(segment: Segment) -> list[int]:
    return [*segment.mark, segment.start, segment.stop]


def _mark(path: str) -> tuple[int, int]:
    return fingerprint(path), 0 if is_url(path) else os.stat(path).st_mtime_ns


def _identity(model: Model) -> Any:
    """What tells a model from another: its files, and what it says of itself."""
    path = Path(getattr(model.engine, "path", "")) if hasattr(model, "engine") else Path()
    files = (path, path / WEIGHTS, path / INFO)
    return [digest(file.read_bytes()) for file in files if file.is_file()] + [model.info.to_dict()]


def _digest(what: Any) -> str:
    def plain(value: Any) -> Any:
        if hasattr(value, "to_dict"):
            return value.to_dict()
        return dict(value) if isinstance(value, Mapping) else str(value)

    return f"{digest(json.dumps(what, sort_keys=True, default=plain).encode()):016x}"
