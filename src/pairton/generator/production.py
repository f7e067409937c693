"""Makes a sample in chunks, each with its own seed, and merges them into one file.

While a sample `OUT` is made, `OUT.parts/` holds `settings.json` and one `.npz` file per finished chunk. If the run
is killed, only the unfinished chunks are lost. The lock `.OUT.lock` is not in the folder, which a run may remove.
"""

from __future__ import annotations

import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.atomic import LOCK, locked, new_output, output_errors, replacing
from pairton._common.configuration import read_json
from pairton._common.parallel import run_tasks
from pairton._common.worker import Limits, Worker
from pairton.errors import ConfigError, InputError, OutputError, PairtonError, PairtonWarning
from pairton.events import Events
from pairton.events.objects import make_objects
from pairton.formats.isolation import events_from_plain, events_to_plain
from pairton.generator.card import parse_card
from pairton.generator.leshouches import scan
from pairton.generator.pythia import PythiaRun
from pairton.generator.pythia_record import flatten
from pairton.generator.settings import Settings, detector_rng, pythia_seed
from pairton.generator.simulation import keep_mask, simulate

__all__ = ["Counts", "Task", "is_complete", "make_chunk", "parts_folder", "produce", "run_chunk"]

NOTE = "settings.json"
UNFINISHED = r"\.(chunk-\d{5,}|settings)\.[0-9a-f]{8}\.(npz|json)"
OWN = rf"chunk-\d{{5,}}\.npz|{NOTE}|{LOCK}|{UNFINISHED}"


@dataclass(frozen=True)
class Counts:
    """How many events passed each stage of the simulation."""

    tried: int = 0  # hard processes, before any veto
    simulated: int = 0  # events with shower and detector
    failed: int = 0  # events, of those simulated, that Pythia could not finish
    selected: int = 0
    reconstructible: int = 0  # selected events with at least one particle present
    complete: int = 0  # selected events with all particles present
    kept: int = 0
    sum_of_weights: float = 0.0  # of kept events
    sum_of_squares: float = 0.0  # of the weights of kept events

    @property
    def effective(self) -> float:
        """The effective number of kept events: (sum of weights)^2 / sum of squares.

        >>> Counts(kept=3, sum_of_weights=4.0, sum_of_squares=6.0).effective  # weights 1, 1, 2
        2.6666666666666665
        """
        return self.sum_of_weights**2 / self.sum_of_squares if self.sum_of_squares else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + vars(other)[name] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Task:
    """One chunk to make."""

    settings: Settings
    chunk: int
    path: Path

    @property
    def n_events(self) -> int:
        return min(self.settings.chunk, self.settings.n_events - self.chunk * self.settings.chunk)

    @property
    def origin(self) -> dict[str, Any]:
        """Everything that the events of this chunk depend on."""
        return {**self.settings.as_dict(), "number of the chunk": self.chunk}


def run_chunk(settings: Settings, chunk: int, n_events: int) -> tuple[Events, Counts]:
    """Make one chunk: return the events to keep, and the counts of all events.

    Whole batches are simulated, and events beyond `n_events` are dropped, so that an event depends only on the
    seed and its number.
    """
    topology = settings.build_topology()
    card = parse_card(settings.card)
    run = PythiaRun(
        settings.lines,
        pythia_seed(settings.seed, chunk),
        quarks=settings.filter,
        lhe=None if settings.lhe is None else Path(settings.lhe.path),
        skip=chunk * settings.chunk if settings.lhe is not None else 0,
    )
    whole = n_events
    if settings.lhe is None:
        whole = -(-n_events // settings.batch) * settings.batch
    batches: list[Events] = []
    numbers: list[npt.NDArray[np.int64]] = []
    for k, batch in enumerate(run.batches(whole, settings.batch)):
        rng = detector_rng(settings.seed, chunk, k)
        batches.append(simulate(flatten(batch), run.charge, topology, card, rng))
        numbers.append(k * settings.batch + np.flatnonzero(~np.asarray(ak.is_none(batch))))
    number = np.concatenate(numbers)
    made = Events.concatenate(batches)
    ids = _ids(settings, chunk, number)
    columns = dict(made.columns)
    complete = columns.pop("found")[number < n_events]  # whether the hard process has all slots
    events = made.replace(weights=run.weights, ids=ids, columns=columns)[number < n_events]
    found = not len(events) or np.any(complete)
    if settings.lhe is not None and not found and settings.keep != "all":
        raise InputError(
            f"no event of {settings.lhe.path} has the particles of {topology.name} with their products in its "
            "hard process: give the topology of that file, or use it as background with --keep all"
        )
    kept = keep_mask(events, settings.keep)
    kept_weights = events.each_weight[kept]
    counts = Counts(
        tried=run.tried(n_events),
        simulated=n_events - run.vetoed,
        failed=n_events - run.vetoed - len(events),
        selected=int(events.selected.sum()),
        reconstructible=int(keep_mask(events, "reconstructible").sum()),
        complete=int((events.selected & events.keep(events.passes).complete).sum()),
        kept=int(kept.sum()),
        sum_of_weights=float(kept_weights.sum()),
        sum_of_squares=float((kept_weights**2).sum()),
    )
    return events[kept], counts


def _ids(settings: Settings, chunk: int, numbers: Any) -> Any:
    ids = np.empty((len(numbers), 2), dtype=np.uint64)
    ids[:, 0] = np.uint64(settings.source_id())
    ids[:, 1] = np.uint64(chunk * 2**32) + numbers.astype(np.uint64)
    return ids


def _plain_chunk(settings: Settings, chunk: int, n_events: int) -> tuple[dict[str, Any], dict[str, Any]]:
    events, counts = run_chunk(settings, chunk, n_events)
    return events_to_plain(events), vars(counts)


def make_chunk(task: Task) -> Counts:
    """Make one chunk, in a worker process that Pythia may crash, and write it to its file."""
    settings = task.settings
    name, remedy = "Pythia", "give other settings"
    if settings.lhe is not None:
        name, remedy = settings.lhe.path, "the file may be damaged"
    arguments = (settings, task.chunk, task.n_events)
    worker = Worker(partial, _plain_chunk, *arguments, name=name, limits=Limits(seconds=None), doubt=remedy)
    parts, counted = worker.call("__call__")
    worker.close()
    events, counts = events_from_plain(parts, settings.build_topology()), Counts(**counted)
    arrays: dict[str, Any] = {"truth": events.truth, "ids": events.ids}
    arrays |= {f"columns.{name}": np.asarray(column) for name, column in events.columns.items()}
    for kind, objects in events.objects.items():
        arrays[f"counts.{kind}"] = events.counts[kind]
        arrays |= {f"{kind}.{name}": np.asarray(ak.flatten(objects[name])) for name in ak.fields(objects)}
    if events.weights is not None:
        arrays["weights"] = events.weights
    arrays |= {"counts": json.dumps(vars(counts)), "origin": json.dumps(task.origin)}
    with replacing(task.path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    return counts


@contextmanager
def _opened(task: Task) -> Iterator[Any]:
    """Open a finished chunk. Raise InputError if it is damaged, or not what the task makes."""
    path = task.path
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as part:
            before = json.loads(str(part["origin"]))
            if changed := [name for name, value in task.origin.items() if before.get(name) != value]:
                raise InputError(
                    f"{path}: this chunk was made by another run (other {', '.join(changed)}): delete it and "
                    "continue with --resume"
                )
            yield part
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path}: this chunk is damaged ({type(error).__name__}): delete it and continue with --resume"
        ) from error


def _read_counts(task: Task) -> Counts:
    with _opened(task) as part:
        return Counts(**json.loads(str(part["counts"])))


def _read_events(task: Task) -> Events:
    with _opened(task) as part:
        topology = task.settings.build_topology()

        def under(prefix: str) -> dict[str, Any]:
            return {name.split(".")[1]: part[name] for name in part.files if name.startswith(f"{prefix}.")}

        objects = {}
        for kind in topology.kinds:
            counts = part[f"counts.{kind}"]
            objects[kind] = make_objects(**{name: ak.unflatten(v, counts) for name, v in under(kind).items()})
        return Events(objects, topology, part["truth"], part.get("weights"), part["ids"], under("columns"))


def parts_folder(output: Path) -> Path:
    """The folder of finished chunks."""
    return output.with_name(output.name + ".parts")


def produce(
    settings: Settings,
    output: Path,
    *,
    jobs: int = 1,
    client: Any = None,
    resume: bool = False,
    force: bool = False,
    progress: Callable[[bool, Counts], None] | None = None,
) -> Counts:
    """Make a sample, in `jobs` processes or on the cluster of a Dask `client`.

    `resume` continues an interrupted run, and `force` replaces an existing output. `progress` is called for each
    chunk with two arguments: whether the chunk is new, and its counts.
    """
    from pairton.formats import create

    topology = settings.build_topology()
    if settings.lhe is not None and scan(settings.lhe.path) != settings.lhe:
        raise InputError(f"{settings.lhe.path} has changed since this run started: start again")
    create(output, topology, {}).abort()  # check the suffix and the folder before hours of simulation
    with _locked(output), new_output(output, force):
        folder = _prepare(settings, output, resume, force)
        total = Counts()
        tasks = []
        missing = []
        for chunk in range(settings.n_chunks):
            task = Task(settings, chunk, folder / f"chunk-{chunk:05d}.npz")
            tasks.append(task)
            if task.path.exists():
                counts = _read_counts(task)
                total += counts
                if progress is not None:
                    progress(False, counts)
            else:
                missing.append(task)
        try:
            with closing(run_tasks(make_chunk, missing, jobs, client)) as made:
                for _, counts in made:
                    total += counts
                    if progress is not None:
                        progress(True, counts)
        except BaseException:
            some = any(task.path.exists() for task in tasks)
            _remove(folder, UNFINISHED if some else OWN)  # without chunks there is nothing to resume from
            raise
        if total.failed == total.simulated > 0:
            _remove(folder, OWN)
            where = "" if settings.lhe is None else f" of {settings.lhe.path}"
            raise InputError(f"Pythia could finish none of the {total.failed} events{where}: are they physical?")
        counted = {**vars(total), "effective": total.effective}
        metadata = {
            "generator": {**settings.as_dict(), "counts": counted},
            "tag_table": parse_card(settings.card).tag_table().to_dict(),
        }
        with create(output, topology, metadata) as writer:
            for events in _merged(tasks):
                writer.write(events)
        _remove(folder)
        return total


def _locked(output: Path) -> AbstractContextManager[None]:
    """The lock of a sample; taken before anything is looked at, and released after everything is removed."""
    return locked(parts_folder(output), output.with_name(f".{output.name}.lock"))


def _remove(folder: Path, names: str = OWN) -> None:
    """Remove the files of a run, and the folder if nothing else is in it."""
    with output_errors(folder):
        for path in _own(folder, names):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        folder.rmdir()


def _own(folder: Path, names: str = OWN) -> list[Path]:
    return [path for path in folder.iterdir() if re.fullmatch(names, path.name)]


def is_complete(settings: Settings, output: Path, force: bool = False) -> bool:
    """Whether `output` is already the complete sample. Without `force`, raise OutputError if it is something else.

    The chunks of a complete sample are removed, if they are left because the run was killed.
    """
    from pairton.formats import open_source

    if not output.exists():
        return False
    try:
        with open_source(str(output)) as source:
            made = dict(source.metadata.get("generator") or {})
    except PairtonError:
        made = {}
    wanted = settings.as_dict()
    ignored = ("versions", "chunk", "batch")  # depend on the version of Pairton, not on the user
    changed = [name for name in wanted if name not in ignored and made.get(name) != wanted[name]]
    if changed and force:
        return False
    if changed:
        what = f"made with other settings ({', '.join(changed)})" if made else "not a sample of `pairton generate`"
        raise OutputError(f"{output} exists, {what}: give -o another name, or delete it")
    folder = parts_folder(output)
    if folder.is_dir():
        with _locked(output):
            if (folder / NOTE).is_file() and read_json(folder / NOTE) == wanted:
                _remove(folder)
            else:
                warnings.warn(f"{folder} is not of this run, and stays", PairtonWarning, stacklevel=2)
    return True


def _merged(tasks: list[Task], at_least: int = 5000) -> Iterator[Events]:
    """Yield the events of all chunks in order, several chunks at a time, for fewer and larger writes."""
    waiting: list[Events] = []
    for k, task in enumerate(tasks):
        waiting.append(_read_events(task))
        if sum(map(len, waiting)) >= at_least or k == len(tasks) - 1:
            yield Events.concatenate(waiting)
            waiting = []


def _prepare(settings: Settings, output: Path, resume: bool, force: bool) -> Path:
    """Return the folder of chunks: a new one, or that of an interrupted run with the same settings."""
    folder = parts_folder(output.absolute())  # workers may have another current folder
    note = folder / NOTE
    if folder.exists():
        own = _own(folder)
        foreign = [path.name for path in folder.iterdir() if path not in own]
        if foreign:
            raise OutputError(
                f"{folder} is needed, but holds {foreign[0]}, which is not of this run: move it away"
            )
    if folder.exists() and force and not resume:
        _remove(folder)
    if folder.exists() and not resume:
        done = len(list(folder.glob("chunk-*.npz")))
        raise OutputError(
            f"{folder} holds {done} of {settings.n_chunks} chunks of an interrupted run: continue with "
            "--resume, or start again with --force"
        )
    if note.exists():
        _check_same(read_json(note), settings.as_dict(), folder)
        return folder
    with output_errors(folder):
        folder.mkdir(exist_ok=True)
    with replacing(note) as temporary:
        temporary.write_text(json.dumps(settings.as_dict(), indent=1), encoding="utf-8")
    return folder


def _check_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        raise ConfigError(
            f"--resume: {', '.join(changed)} differ from the run that started {folder}: give the same options and "
            "versions, or delete the folder to start again"
        )
