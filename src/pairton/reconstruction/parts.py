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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.atomic import locked, output_errors, replacing
from pairton._common.parallel import WorkerError, check_jobs, run_tasks, workers
from pairton._version import __version__
from pairton.errors import ConfigError, InputError, OutputError, PairtonError
from pairton.events import Events
from pairton.formats import open_source
from pairton.formats.base import check_chunk
from pairton.formats.files import CONTAINERS, fingerprint, is_url, unchanged
from pairton.reconstruction.assigner import WINDOW, Assigner, windows
from pairton.reconstruction.provenance import (
    COMPLETE,
    InputFile,
    absolute,
    content_hash,
    engine_version,
    file_sha256,
    hash_of,
    plain_reading,
    result_metadata,
    result_settings,
)
from pairton.reconstruction.result_columns import same_columns, same_kept
from pairton.reconstruction.run import READ_ROWS, Run
from pairton.reconstruction.run_settings import RunSettings
from pairton.reconstruction.writers import ROWS, Summary, create_result

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["PART_ROWS", "write_parts"]

PART_ROWS = ROWS  # about a minute of work
NAME = re.compile(r"part-\d+\.(parquet|root|h5)", re.IGNORECASE)
UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}\.(parquet|root|h5)", re.IGNORECASE)  # as `Replacement` names them


@dataclass(frozen=True)
class Segment:
    """Rows [start, stop) of a file, and the state of the file when the run was planned."""

    file: InputFile
    start: int
    stop: int
    mark: tuple[int, int]  # as `_mark`

    @property
    def key(self) -> list[Any]:
        return [self.file.identity, self.file.format, self.file.read_as, self.start, self.stop]


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


@dataclass(frozen=True)
class FinishedPart:
    """A part that is on disk."""

    path: Path
    key: str  # a hash of everything that changes its content
    sha256: str
    columns: tuple[str, ...]
    summary: Summary

    def __len__(self) -> int:
        return self.summary.events

    @classmethod
    def read(cls, path: Path) -> FinishedPart | None:
        """A part from its metadata; None if the file is not a part, or damaged."""
        metadata = result_metadata(path) or {}
        try:
            own, summary = metadata["part"], Summary.from_dict(metadata)
            return cls(path, own["key"], file_sha256(path), tuple(own["columns"]), summary)
        except (KeyError, TypeError, ValueError, AttributeError, PairtonError):
            return None


def write_parts(
    run: Run,
    output: str | os.PathLike[str] | None,
    *,
    jobs: int | str | None = None,
    client: Any = None,
    resume: bool = False,
    force: bool = False,
    per_file: bool = False,
    rows: int = PART_ROWS,
    chunk: int = READ_ROWS,
    progress: Callable[[Iterator[FinishedPart]], Iterator[FinishedPart]] | None = None,
) -> Summary:
    """Reconstruct the events of a run into a folder; arguments as for `reconstruct_files`."""
    folder, suffix = _folder(output)
    if rows < 1 or rows % WINDOW:
        raise ConfigError(f"a part cannot have {rows} rows: choose a multiple of {WINDOW}, such as {PART_ROWS}")
    jobs = 1 if jobs is None else jobs
    if isinstance(jobs, int):
        check_jobs(jobs)  # check everything before existing parts are touched
    check_chunk(chunk)
    run.assigner.check(run.topology)
    with workers(jobs) as pool:
        pool |= {} if client is None else {"client": client}
        inputs = _inputs(run, pool)
        how = result_settings(run.assigner, plain_reading(run.options))
        options = {name: value for name, value in run.options.items() if name != "bad_labels"}
        cuts = (
            [(Segment(each, 0, each.events, _mark(each.name)),) for each in inputs]
            if per_file
            else _cut(inputs, rows)
        )
        plan = [
            Part(
                folder / f"{_stem(segments) if per_file else f'part-{index:05d}'}{suffix}",
                segments,
                run.model,
                how | {"part": {"index": index, "key": hash_of([how, [each.key for each in segments]])}},
                run.settings,
                chunk,
                options,
            )
            for index, segments in enumerate(cuts)
        ]
        paths = [part.path for part in plan]
        if twice := [path for path, count in Counter(paths).items() if count > 1]:
            raise ConfigError(f"--per-file: several inputs would be written to {twice[0]}: run on them separately")
        _create(folder, run, paths)
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
                with closing(run_tasks(make_part, todo, **pool)) as made:
                    for _ in stream() if progress is None else progress(stream()):
                        pass
            finally:  # the workers of a cluster go on
                _remove_unfinished(folder, inf if pool["client"] is None else begun)
            parts = [finished[part.path] for part in plan]
            total = Summary(paths=tuple(part.path for part in parts), skipped=kept, replaced=existing)
            for part in parts:
                total.join(part.summary)
            if todo or not (folder / COMPLETE).exists():
                _complete(folder, parts, total, how | {"inputs": [one.to_dict() for one in inputs]})
    return total


def make_part(part: Part) -> FinishedPart:
    """Make one part, completely or not at all; this runs on a worker."""
    libraries = f"pairton {part.metadata['pairton_version']}", part.metadata["model"].get("engine")
    for there in filter(None, libraries):
        library = there.partition(" ")[0]
        here = f"pairton {__version__}" if library == "pairton" else engine_version(library)
        if here != there:
            raise WorkerError(
                f"this worker has {here}, but the run was started with {there}: install the same everywhere"
            )
    assigner = Assigner(part.model, part.settings)
    first = part.segments[0]
    origin = first.file.name, first.start
    with create_result(part.path, part.model.topology, part.metadata, origin) as writer:
        for window in windows(same_kept(_events(part))):
            writer.write(assigner.run(window))
        assert writer.names is not None  # there is always a window
        own = {**part.metadata["part"], "columns": writer.names}
        writer.metadata["part"] = own
        writer.metadata["inputs"] = [each.file.to_dict() for each in part.segments]
    return FinishedPart(part.path, own["key"], file_sha256(part.path), tuple(writer.names), writer.summary)


def _events(part: Part) -> Iterator[Events]:
    for segment in part.segments:
        path = segment.file.name
        with unchanged(path):
            if _mark(path) != segment.mark:
                raise InputError(f"{path}: changed since this run began: start again with --resume")
            with open_source(path, **part.options) as source:
                if segment.start == segment.stop:
                    yield source.no_events()
                yield from source.chunks(part.chunk, segment.start, segment.stop)


def _inputs(run: Run, pool: Mapping[str, Any]) -> list[InputFile]:
    """All inputs; their hashes are computed by the workers."""
    paths = list(map(absolute, run.files))  # a worker may have another working directory
    hashes = dict(run_tasks(content_hash, paths, **pool))
    return [InputFile.of(source, hashes[absolute(source.path)]) for source in run.sources()]


def _cut(inputs: list[InputFile], rows: int) -> Iterator[tuple[Segment, ...]]:
    """The rows of all files together, cut at multiples of `rows`; one empty part if there are no rows."""
    waiting: list[Segment] = []
    held = 0
    for file in inputs:
        mark, start = _mark(file.name), 0
        while start < file.events:
            stop = min(file.events, start + rows - held)
            waiting.append(Segment(file, start, stop, mark))
            held += stop - start
            start = stop
            if held == rows:
                yield tuple(waiting)
                waiting, held = [], 0
    if waiting:
        yield tuple(waiting)
    elif not any(file.events for file in inputs):
        yield (Segment(inputs[-1], 0, 0, _mark(inputs[-1].name)),)


def _mark(path: str) -> tuple[int, int]:
    """Fingerprint and modification time, to notice a file that was replaced; cheap enough for every part."""
    return fingerprint(path), 0 if is_url(path) else os.stat(path).st_mtime_ns


# -- the folder --------------------------------------------------------------------------------------------


def _folder(output: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """The folder of parts, and the suffix of their files."""
    path = Path("" if output is None else output)
    if output is None or (path.suffix.lower() in CONTAINERS and not path.name.startswith("*.")):
        problem = f"but {output} is a file" if output else "but there is no output"
        raise ConfigError(
            f"--jobs, --resume and --per-file write parts to a folder, {problem}: give a folder, as in -o out or "
            "-o out/*.root"
        )
    folder, suffix = (path.parent, path.name[1:]) if path.name.startswith("*.") else (path, ".parquet")
    if suffix.lower() not in CONTAINERS:
        raise ConfigError(f"a part cannot have the suffix {suffix!r}: choose one of {', '.join(CONTAINERS)}")
    return folder.absolute(), suffix


def _stem(segments: tuple[Segment, ...]) -> str:
    """The name of an input without its folder and suffix."""
    return Path(segments[0].file.name.rpartition("/")[2]).stem


def _existing(folder: Path, paths: Sequence[Path]) -> list[Path]:
    """The parts in a folder: files that are named like parts, or in the plan, in order."""
    parts = {path for path in folder.glob("part-*") if NAME.fullmatch(path.name)}
    return sorted(parts | {path for path in paths if path.exists()})


def _create(folder: Path, run: Run, paths: Sequence[Path]) -> None:
    """Create the folder; InputError if a part would replace an input."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file, but results in parts need a folder: give another name")
    run.refuse_inputs(_existing(folder, paths))
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder}: the folder is read-only: write elsewhere")


def _keep(folder: Path, plan: list[Part], resume: bool, force: bool) -> dict[Path, FinishedPart]:
    """The parts of an earlier run that this one keeps; those that do not belong to it are removed with `force`."""
    existing = _existing(folder, [part.path for part in plan])
    if existing and not (resume or force):
        state = "the parts" if (folder / COMPLETE).exists() else f"{len(existing)} parts"
        raise OutputError(
            f"{folder} holds {state} of an earlier run: continue it with --resume, or replace it with --force"
        )
    keys = {part.path: part.metadata["part"]["key"] for part in plan}
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
    found = {path: FinishedPart.read(path) for path in existing if path in keys}
    return {path: done for path, done in found.items() if done is not None and done.key == keys[path]}


def _complete(folder: Path, parts: list[FinishedPart], total: Summary, metadata: Mapping[str, Any]) -> None:
    """Mark the result as complete with the metadata of the whole result."""
    for other in parts[1:]:
        same_columns(folder, parts[0].columns, other.columns)
    first = {key: value for key, value in (result_metadata(parts[0].path) or {}).items() if key != "part"}
    listed = [{"name": d.path.name, "events": len(d), "sha256": d.sha256, "key": d.key} for d in parts]
    whole = {**first, **metadata, **total.to_dict(), "parts": listed}
    with replacing(folder / COMPLETE) as temporary:
        temporary.write_text(json.dumps(whole, indent=1), encoding="utf-8")


def _remove_unfinished(folder: Path, before: float) -> None:
    """Remove the files of parts that were not finished before a time, because their process was killed."""
    with output_errors(folder):
        for left in folder.glob(".*"):
            if UNFINISHED.fullmatch(left.name) and left.stat().st_mtime < before:
                left.unlink(missing_ok=True)
