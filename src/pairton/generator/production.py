"""Makes a sample in chunks, each with its own seed, and merges them into one file.

While a sample `OUT` is made, `OUT.parts/` holds one file per finished chunk. If the run is killed, only the
unfinished chunks are lost. The lock `.OUT.lock` is not in the folder, which a run may remove.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from pairton._common.atomic import locked, output_errors, refuse_existing, replacing
from pairton._common.parallel import run_tasks
from pairton._common.worker import Limits, Worker, pack, unpack
from pairton.errors import InputError, OutputError, PairtonError
from pairton.events import Events
from pairton.formats.isolation import events_from_plain, events_to_plain
from pairton.generator.card import parse_card
from pairton.generator.pythia import PythiaRun, flatten
from pairton.generator.settings import Settings, detector_rng, pythia_seed
from pairton.generator.simulation import keep_mask, simulate

__all__ = ["Counts", "Task", "make_chunk", "parts_folder", "produce", "run_chunk"]

UNFINISHED = r"\.chunk-\d{5,}\.[0-9a-f]{8}\.part"
OWN = rf"chunk-\d{{5,}}\.part|{UNFINISHED}"
MERGED = 5000  # events that are written at once, at least


@dataclass(frozen=True)
class Counts:
    """How many events passed each stage of the simulation."""

    tried: int = 0  # hard processes, before any veto
    simulated: int = 0  # events with shower and detector, every copy of a collision
    failed: int = 0  # events, of those simulated, that Pythia could not finish
    selected: int = 0
    reconstructible: int = 0  # selected events with at least one particle present
    complete: int = 0  # selected events with all particles present
    kept: int = 0
    sum_of_weights: float = 0.0  # of kept events
    sum_of_squares: float = 0.0  # the weights of copies of one collision are added before they are squared

    @property
    def effective(self) -> float:
        """The effective number of kept events: (sum of weights)^2 / sum of squares. Copies of a collision are one.

        >>> Counts(kept=3, sum_of_weights=4.0, sum_of_squares=6.0).effective  # weights 1, 1, 2
        2.6666666666666665
        """
        return self.sum_of_weights**2 / self.sum_of_squares if self.sum_of_squares else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + vars(other)[name] for name, value in vars(self).items()})


# -- chunks ------------------------------------------------------------------------------------------------


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

    def read(self) -> tuple[Events, Counts]:
        """The finished chunk. Raise InputError if it is damaged, or not what the task makes."""
        try:
            with self.path.open("rb") as stream:
                part = unpack(stream)
            changed = [name for name, value in self.origin.items() if part["origin"].get(name) != value]
            if not changed:
                return events_from_plain(part["events"], self.settings.build_topology()), Counts(**part["counts"])
        except Exception as error:  # a damaged file may cause any error
            raise InputError(
                f"{self.path}: this chunk is damaged ({type(error).__name__}): delete it, then use --resume"
            ) from error
        raise InputError(
            f"{self.path}: this chunk was made by another run (other {', '.join(changed)}): give the same options "
            "and versions with --resume, or delete it"
        )


def run_chunk(settings: Settings, chunk: int, n_events: int) -> tuple[Events, Counts]:
    """Make one chunk: return the events to keep, and the counts of all events.

    Whole batches are simulated, and events beyond `n_events` are dropped, so that an event depends only on the
    seed and its number.
    """
    topology, card, lhe = settings.build_topology(), parse_card(settings.card), settings.lhe
    run = PythiaRun(
        settings.lines,
        pythia_seed(settings.seed, chunk),
        quarks=settings.filter,
        lhe=None if lhe is None else Path(lhe.path),
        skip=0 if lhe is None else chunk * settings.chunk,
    )
    whole = n_events if lhe is not None else -(-n_events // settings.batch) * settings.batch
    batches, numbers = [], []
    for k, batch in enumerate(run.batches(whole, settings.batch)):
        record, rng = flatten(batch), detector_rng(settings.seed, chunk, k)
        for _ in range(settings.copies):
            batches.append(simulate(record, run.charge, topology, card, rng))
            numbers.append(k * settings.batch + np.flatnonzero(~np.asarray(ak.is_none(batch))))
    number, made = np.concatenate(numbers), Events.concatenate(batches)
    order = np.argsort(number, kind="stable")  # copies of a collision become neighbours
    order = order[number[order] < n_events]
    number, made = number[order], made[order]
    ids = np.empty((len(number), 2), dtype=np.uint64)
    ids[:, 0] = settings.source_id()
    ids[:, 1] = np.uint64(chunk * 2**32) + number.astype(np.uint64)
    columns = dict(made.columns)
    has_all_slots = columns.pop("found")
    weights = None if run.weights is None else np.repeat(run.weights, settings.copies)[: len(number)]
    events = made.replace(weights=weights, ids=ids, columns=columns)
    if lhe is not None and len(events) and not np.any(has_all_slots) and settings.keep != "all":
        raise InputError(
            f"no event of {lhe.path} has the particles of {topology.name} with their products in its hard "
            "process: give the topology of that file, or use it as background with --keep all"
        )
    kept = keep_mask(events, settings.keep)
    simulated = (n_events - run.vetoed) * settings.copies
    collisions = np.bincount(number[kept], events.each_weight[kept])  # the summed weight of each
    counts = Counts(
        tried=run.tried(n_events),
        simulated=simulated,
        failed=simulated - len(events),
        selected=int(events.selected.sum()),
        reconstructible=int(keep_mask(events, "reconstructible").sum()),
        complete=int((events.selected & events.keep(events.passes).complete).sum()),
        kept=int(kept.sum()),
        sum_of_weights=float(collisions.sum()),
        sum_of_squares=float((collisions**2).sum()),
    )
    return events[kept], counts


def _plain_chunk(settings: Settings, chunk: int, n_events: int) -> dict[str, Any]:
    events, counts = run_chunk(settings, chunk, n_events)
    return {"events": events_to_plain(events), "counts": vars(counts)}


def make_chunk(task: Task) -> Counts:
    """Make one chunk, in a worker process that Pythia may crash, and write it to its file."""
    lhe = task.settings.lhe
    name, remedy = ("Pythia", "give other settings") if lhe is None else (lhe.path, "the file may be damaged")
    arguments = (task.settings, task.chunk, task.n_events)
    worker = Worker(partial, _plain_chunk, *arguments, name=name, limits=Limits(seconds=None), doubt=remedy)
    part = worker.call("__call__")
    worker.close()
    with replacing(task.path) as temporary, temporary.open("wb") as stream:
        pack(stream, {"origin": task.origin, **part})
    return Counts(**part["counts"])


# -- samples -----------------------------------------------------------------------------------------------


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
    create(output, topology, {}).abort()  # check the suffix and the folder before hours of simulation
    folder = parts_folder(output.absolute())  # workers may have another current folder
    tasks = [Task(settings, chunk, folder / f"chunk-{chunk:05d}.part") for chunk in range(settings.n_chunks)]
    # The lock is taken before anything is looked at, and released after everything is removed.
    with locked(folder, output.with_name(f".{output.name}.lock")):
        if resume and (complete := _complete(settings, output, force)) is not None:
            for task in tasks:  # left if the run was killed at the very end
                with suppress(PairtonError):
                    task.read()
                    task.path.unlink()
            with suppress(OSError):  # not there, or not empty
                folder.rmdir()
            return complete
        refuse_existing(output, force)
        _prepare(folder, len(tasks), resume, force)
        finished = [task for task in tasks if task.path.exists()]
        missing = [task for task in tasks if task not in finished]
        total = Counts()
        try:
            with closing(run_tasks(make_chunk, missing, jobs, client)) as made:
                for task, new in chain(((task, None) for task in finished), made):
                    counts = new or task.read()[1]
                    total += counts
                    if progress is not None:
                        progress(new is not None, counts)
        except BaseException:
            _remove(folder, UNFINISHED)
            raise
        if total.failed == total.simulated > 0:
            _remove(folder)
            where = "" if settings.lhe is None else f" of {settings.lhe.path}"
            raise InputError(f"Pythia could finish none of the {total.failed} events{where}: are they physical?")
        counted = {**vars(total), "effective": total.effective}
        table = parse_card(settings.card).tag_table().to_dict()
        metadata = {"generator": {**settings.as_dict(), "counts": counted}, "tag_table": table}
        with create(output, topology, metadata) as writer:
            for events in _merged(tasks):
                writer.write(events)
        _remove(folder)
        return total


def _complete(settings: Settings, output: Path, force: bool) -> Counts | None:
    """The counts if `output` is already the complete sample. Without `force`, it may not be anything else."""
    from pairton.formats import open_source

    if not output.exists():
        return None
    try:
        with open_source(str(output)) as source:
            made = dict(source.metadata.get("generator") or {})
    except PairtonError:
        made = {}
    ignored = ("versions", "chunk", "batch")  # depend on the version of Pairton, not on the user
    plain = settings.as_dict()
    changed = [name for name in plain if name not in ignored and made.get(name) != plain[name]]
    if not changed:
        return Counts(**{name: made["counts"][name] for name in vars(Counts())})
    if force:
        return None
    what = f"made with other settings ({', '.join(changed)})" if made else "not a sample of `pairton generate`"
    raise OutputError(f"{output} exists, {what}: give -o another name, or delete it")


def _prepare(folder: Path, n_chunks: int, resume: bool, force: bool) -> None:
    """Make the folder of chunks, or empty it with `force`; with `resume`, those of an interrupted run stay."""
    with output_errors(folder):
        folder.mkdir(exist_ok=True)
    if others := [path.name for path in folder.iterdir() if not re.fullmatch(OWN, path.name)]:
        raise OutputError(f"{folder} is needed, but holds {others[0]}, which is not of this run: move it away")
    done = len(list(folder.glob("chunk-*")))
    if done and not resume and not force:
        raise OutputError(
            f"{folder} holds {done} of {n_chunks} chunks of an interrupted run: continue with --resume, or start "
            "again with --force"
        )
    if not resume:
        _remove(folder)
        folder.mkdir(exist_ok=True)


def _remove(folder: Path, names: str = OWN) -> None:
    """Remove the files of a run, and the folder if nothing else is in it."""
    with output_errors(folder):
        for path in folder.iterdir():
            if re.fullmatch(names, path.name):
                path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        folder.rmdir()


def _merged(tasks: list[Task]) -> Iterator[Events]:
    """The events of all chunks in order, several chunks at a time, for fewer and larger writes."""
    waiting: list[Events] = []
    for k, task in enumerate(tasks):
        waiting.append(task.read()[0])
        if sum(map(len, waiting)) >= MERGED or k == len(tasks) - 1:
            yield Events.concatenate(waiting)
            waiting = []
