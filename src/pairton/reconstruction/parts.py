"""Reconstruction in parts: fixed ranges of rows, one file each, made by any worker in any order.

A folder holds `part-00000.parquet`, `part-00001.parquet`, ..., and when all are done `_reconstruction.json`, with
the metadata of the whole result and a list of the parts. Read in order, the parts have exactly the rows of a run
in a single process, because each part begins at a multiple of the window in which events are batched.

A part has its final name only when it is complete, and its key is a hash of its inputs and settings. A later run
therefore keeps the parts that have the right key.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.atomic import locked, output_errors, replacing
from pairton._common.parallel import WorkerError, check_jobs, run_tasks
from pairton._version import __version__
from pairton.errors import ConfigError, InputError, OutputError, PairtonError
from pairton.events import Events, Status
from pairton.formats import open_source
from pairton.formats.base import check_chunk
from pairton.formats.files import CONTAINERS, Paths, fingerprint, is_url, unchanged
from pairton.reconstruction.assigner import WINDOW, Assigner, windows
from pairton.reconstruction.provenance import (
    COMPLETE,
    InputFile,
    absolute,
    content_hash,
    engine_version,
    file_sha256,
    hash_of,
    locate,
    plain_reading,
    result_metadata,
    result_settings,
)
from pairton.reconstruction.result_columns import same_columns, same_kept
from pairton.reconstruction.run import READ_ROWS, Run
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.reconstruction.streaming import FirstBad, Summary, warnings_on
from pairton.reconstruction.writers import ROWS, create_result
from pairton.topology import JET

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["PART_ROWS", "FinishedPart", "Parts", "reconstruct_parts", "write_parts"]

PART_ROWS = ROWS  # about a minute of work
NAME = re.compile(r"part-\d+\.(parquet|root|h5)", re.IGNORECASE)

Watch = Callable[[Iterator["FinishedPart"]], Iterator["FinishedPart"]]


@dataclass(frozen=True)
class Segment:
    """Rows [start, stop) of a file, and the state of the file when the run was planned."""

    file: InputFile
    start: int
    stop: int
    mark: tuple[int, int]  # fingerprint, time of the last change

    @property
    def path(self) -> str:
        return self.file.name


@dataclass(frozen=True)
class Part:
    """Everything that a worker needs to make one part."""

    path: Path
    segments: tuple[Segment, ...]
    model: Model
    metadata: Mapping[str, Any] = field(repr=False)  # of the result; its entry "part" has the key
    settings: RunSettings
    chunk: int
    options: Mapping[str, Any] = field(repr=False)

    @property
    def key(self) -> str:
        return str(self.metadata["part"]["key"])


@dataclass(frozen=True)
class FinishedPart:
    """A part that is on disk."""

    path: Path
    key: str  # a hash of everything that changes its content
    sha256: str
    status: Mapping[str, int]  # label -> events
    columns: tuple[str, ...]
    varied: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # variation -> the same as `status`
    first_bad: FirstBad = field(default_factory=dict)
    new: bool = True  # whether this run has made it
    jets: int = 0  # number of jets that were used, if the model takes tags
    tagged: int = 0  # number of b-tagged ones among them

    def __len__(self) -> int:
        return sum(self.status.values())

    @classmethod
    def read(cls, path: Path, new: bool = True) -> FinishedPart | None:
        """A part from its metadata; None if the file is not a part, or damaged."""
        metadata = result_metadata(path)
        try:
            if metadata is None:
                return None
            own, varied = metadata["part"], metadata.get("variation_status", {})
            first = {str(label): (str(file), int(row)) for label, (file, row) in metadata["first_bad"].items()}
            tags = int(metadata.get("jets", 0)), int(metadata.get("btagged_jets", 0))
            about = path, own["key"], file_sha256(path), metadata["status"], tuple(own["columns"])
            return cls(*about, varied, first, new, *tags)
        except (KeyError, TypeError, ValueError, AttributeError, PairtonError):
            return None


@dataclass(frozen=True)
class Parts(Summary):
    """The outcome of a reconstruction in parts."""

    paths: tuple[Path, ...] = ()  # in the order of rows
    skipped: int = 0  # number of existing parts that were kept
    replaced: int = 0  # number of existing parts that were damaged, or made from other inputs or settings


def reconstruct_parts(
    paths: Paths,
    folder: str | Path,
    model: Model | str | Path | None = None,
    settings: RunSettings = DEFAULT_SETTINGS,
    /,  # the keyword `settings` is an option of `pairton.iterate`
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
    """Reconstruct files into a folder of parts: in `jobs` processes, or on the cluster of a Dask `client`.

    resume    keep existing parts that were made from the same inputs with the same settings
    force     replace the parts of an earlier run
    rows      rows per part, a multiple of the window
    suffix    format of the parts: .parquet, .root or .h5

    All workers must see inputs, model and folder under the same paths. Other options are as for
    `reconstruct_files`.
    """
    threads = None if client is None and jobs == 1 else 1
    how = {"client": client, "jobs": jobs, "resume": resume, "force": force, "rows": rows, "suffix": suffix}
    with Run(paths, model, settings, threads=threads, engine=engine, **{"truth": False, **options}) as run:
        return write_parts(run, folder, chunk=chunk, progress=progress, **how)


def write_parts(
    run: Run,
    folder: str | Path,
    *,
    client: Any = None,
    jobs: int = 1,
    resume: bool = False,
    force: bool = False,
    rows: int = PART_ROWS,
    suffix: str = ".parquet",
    chunk: int = READ_ROWS,
    progress: Watch | None = None,
) -> Parts:
    """Reconstruct the events of a run into a folder; arguments as for `reconstruct_parts`."""
    if rows < 1 or rows % WINDOW:
        raise ConfigError(f"a part cannot have {rows} rows: choose a multiple of {WINDOW}, such as {PART_ROWS}")
    if suffix.lower() not in CONTAINERS:
        raise ConfigError(f"a part cannot have the suffix {suffix!r}: choose one of {', '.join(CONTAINERS)}")
    folder = Path(folder).absolute()
    check_jobs(jobs)  # check everything before existing parts are touched
    check_chunk(chunk)
    run.assigner.check(run.topology, dict.fromkeys(run.options.get("variations") or (), (JET,)))
    inputs = _describe(run, jobs, client)
    how = result_settings(run.assigner, plain_reading(run.options))
    options = {name: value for name, value in run.options.items() if name != "bad_labels"}
    plan = [
        Part(
            folder / f"part-{index:05d}{suffix}",
            segments,
            run.model,
            how | {"part": {"index": index, "key": hash_of([how, [_key(s) for s in segments]])}},
            run.settings,
            chunk,
            options,
        )
        for index, segments in enumerate(_cut(inputs, rows))
    ]
    _create(folder, run)
    with locked(folder):
        begun = time.time()
        finished = _keep(folder, plan, resume, force)
        todo = [part for part in plan if part.path not in finished]
        kept, existing = len(finished), sum(part.path.exists() for part in todo)
        if todo:
            with output_errors(folder):
                (folder / COMPLETE).unlink(missing_ok=True)

        def stream() -> Iterator[FinishedPart]:
            yield from finished.copy().values()
            for part, done in made:
                finished[part.path] = done
                yield done

        try:
            with closing(run_tasks(make_part, todo, jobs, client)) as made:
                for _ in stream() if progress is None else progress(stream()):
                    pass
        except BaseException:
            if client is None:  # the workers of a cluster go on
                _remove_unfinished(folder)
            raise
        parts = [finished[part.path] for part in plan]
        if todo or not (folder / COMPLETE).exists():
            _complete(folder, parts, how | {"inputs": [one.to_dict() for one in inputs]})
        _remove_unfinished(folder, begun)  # newer ones may still be written
    total = _summary(parts)
    warnings = tuple(warnings_on(run, total.status, total.first_bad))
    return replace(total, skipped=kept, replaced=existing, warnings=warnings)


def make_part(part: Part) -> FinishedPart:
    """Make one part, completely or not at all; this runs on a worker."""
    if part.metadata["pairton_version"] != __version__:
        raise WorkerError(
            f"this worker has pairton {__version__}, but the run was started with "
            f"{part.metadata['pairton_version']}: install the same version everywhere"
        )
    if (engine := part.metadata["model"].get("engine")) is not None:
        installed = engine_version(engine.partition(" ")[0])
        if installed != engine:
            raise WorkerError(
                f"this worker has {installed}, but the run was started with {engine}: install the same version "
                "everywhere"
            )
    assigner = Assigner(part.model, part.settings)
    with create_result(part.path, part.model.topology, part.metadata) as writer:
        for window in windows(same_kept(_events(part))):
            writer.write(assigner.run(window))
        assert writer.names is not None  # there is always a window
        writer.metadata |= {
            "part": {**part.metadata["part"], "columns": tuple(writer.names)},
            "inputs": [segment.file.to_dict() for segment in part.segments],
            "first_bad": locate(((s.path, s.start, s.stop) for s in part.segments), writer.tally.first),
        }
    done = FinishedPart.read(part.path)
    if done is None:
        raise OutputError(f"{part.path}: cannot be read after it was written: check the disk")
    return done


def _events(part: Part) -> Iterator[Events]:
    for segment in part.segments:
        with unchanged(segment.path):
            if _mark(segment.path) != segment.mark:
                raise InputError(f"{segment.path}: changed since this run began: start again with --resume")
            with open_source(segment.path, **part.options) as source:
                if segment.start == segment.stop:
                    yield source.no_events()
                yield from source.chunks(part.chunk, segment.start, segment.stop)


def _describe(run: Run, jobs: int, client: Any) -> list[InputFile]:
    """All inputs; their hashes are computed by the workers."""
    paths = list(map(absolute, run.files))  # a worker may have another working directory
    hashes = dict(run_tasks(content_hash, paths, jobs, client))
    return [InputFile.of(source, hashes[absolute(source.path)]) for source in run.sources()]


def _cut(inputs: list[InputFile], rows: int) -> Iterator[tuple[Segment, ...]]:
    """The rows of all files together, cut at multiples of `rows`; one empty part if there are no rows."""
    waiting: list[Segment] = []
    held = 0
    some = False
    empty: Segment | None = None
    for file in inputs:
        mark = _mark(file.name)
        empty = Segment(file, 0, 0, mark)
        start = 0
        while start < file.events:
            stop = min(file.events, start + rows - held)
            waiting.append(Segment(file, start, stop, mark))
            held += stop - start
            start = stop
            if held == rows:
                yield tuple(waiting)
                some, waiting, held = True, [], 0
    if waiting:
        yield tuple(waiting)
    elif not some and empty is not None:
        yield (empty,)


def _key(segment: Segment) -> list[Any]:
    return [segment.file.identity, segment.file.format, segment.file.read_as, segment.start, segment.stop]


def _mark(path: str) -> tuple[int, int]:
    """Fingerprint and modification time, to notice a file that was replaced; cheap enough for every part."""
    return fingerprint(path), 0 if is_url(path) else os.stat(path).st_mtime_ns


# -- the folder --------------------------------------------------------------------------------------------


def _existing(folder: Path) -> list[Path]:
    """The files in a folder that are named like parts, in order."""
    return sorted(path for path in folder.glob("part-*") if NAME.fullmatch(path.name))


def _create(folder: Path, run: Run) -> None:
    """Create the folder; InputError if a part would replace an input."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file, but results in parts need a folder: give another name")
    run.refuse_inputs(_existing(folder))
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder}: the folder is read-only: write elsewhere")


def _keep(folder: Path, plan: list[Part], resume: bool, force: bool) -> dict[Path, FinishedPart]:
    """The parts of an earlier run that this one keeps; those that do not belong to it are removed with `force`."""
    existing = _existing(folder)
    if existing and not (resume or force):
        state = "the parts" if (folder / COMPLETE).exists() else f"{len(existing)} parts"
        raise OutputError(
            f"{folder} holds {state} of an earlier run: continue it with --resume, or replace it with --force"
        )
    keys = {part.path: part.key for part in plan}
    foreign = [path for path in existing if path not in keys]
    if foreign and not force:
        raise OutputError(
            f"{folder} holds {foreign[0].name}, which does not belong to these inputs: remove it, or give "
            "another folder"
        )
    with output_errors(folder):
        for path in foreign:
            path.unlink()
    if not resume:
        return {}
    found = {path: FinishedPart.read(path, new=False) for path in existing if path in keys}
    return {path: done for path, done in found.items() if done is not None and done.key == keys[path]}


def _complete(folder: Path, parts: list[FinishedPart], metadata: Mapping[str, Any]) -> None:
    """Mark the result as complete with the metadata of the whole result."""
    for other in parts[1:]:
        same_columns(folder, parts[0].columns, other.columns)
    total = _summary(parts)
    first = {key: value for key, value in (result_metadata(parts[0].path) or {}).items() if key != "part"}
    listed = [{"name": d.path.name, "events": len(d), "sha256": d.sha256, "key": d.key} for d in parts]
    whole = {**first, **metadata, "events": total.events, "status": total.status, "parts": listed}
    whole |= {"first_bad": total.first_bad, **({"variation_status": total.varied} if total.varied else {})}
    whole |= {"jets": total.jets, "btagged_jets": total.tagged} if total.jets else {}
    with replacing(folder / COMPLETE) as temporary:
        temporary.write_text(json.dumps(whole, indent=1), encoding="utf-8")


def _summary(parts: list[FinishedPart]) -> Parts:
    status = _summed([one.status for one in parts])
    varied = {name: _summed([one.varied[name] for one in parts]) for name in parts[0].varied}
    first_bad: dict[str, tuple[str, int]] = {}
    for one in parts:
        first_bad = {**one.first_bad, **first_bad}
    jets, tagged = sum(one.jets for one in parts), sum(one.tagged for one in parts)
    paths = tuple(one.path for one in parts)
    numbers: dict[str, Any] = {"varied": varied, "jets": jets, "tagged": tagged, "first_bad": first_bad}
    return Parts(sum(status.values()), status, paths=paths, **numbers)


def _summed(each: list[Mapping[str, int]]) -> dict[str, int]:
    return {state.label: sum(status[state.label] for status in each) for state in Status}


def _remove_unfinished(folder: Path, before: float = inf) -> None:
    """Remove the files of parts that were not finished, because their process was killed."""
    with output_errors(folder):
        for left in folder.glob(".part-*"):
            if left.stat().st_mtime < before:
                left.unlink(missing_ok=True)
