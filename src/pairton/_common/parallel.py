"""Runs tasks in this process, in a pool of processes, or on a Dask cluster; signals that ask a run to stop."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from pairton.errors import ConfigError, MissingExtraError, PairtonError, PairtonWarning

__all__ = [
    "Stopped",
    "WorkerError",
    "blocked",
    "check_jobs",
    "cores",
    "handled",
    "run_tasks",
    "stopping",
    "workers",
]

Task = TypeVar("Task")
Result = TypeVar("Result")

PATIENCE = 20  # seconds in which a scheduler must answer
AHEAD = 2  # tasks submitted per thread of the cluster, so that no thread waits for its next task
# Ctrl-C, SIGTERM and SIGHUP ask a run to stop
SIGNALS = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
AGAIN = 2.0  # seconds in which further signals are the same one: `timeout` and some batch systems send two


class WorkerError(PairtonError):
    """A worker process that ended before its work did."""


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(
    function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int = 1, client: Any = None
) -> Generator[tuple[Task, Result], None, None]:
    """Yield (task, function(task)) for every task, as they finish.

    Tasks run on the cluster of a Dask `client`, where another worker retries them if one dies; or in `jobs` new
    processes; or, for a single job, in this process and in order. They are taken from the iterable as workers
    become free, and no more are started after an error. Closing the iterator kills the processes.

    >>> list(run_tasks(abs, [-1, 2]))
    [(-1, 1), (2, 2)]
    """
    check_jobs(jobs)
    if client is not None:
        yield from _on_dask(function, tasks, client)
    elif jobs > 1:
        yield from _in_pool(function, tasks, jobs)
    else:
        for task in tasks:
            yield task, function(task)


def check_jobs(jobs: int) -> None:
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, but must be at least 1")


def _begin_worker() -> None:
    """Silence warnings, which the parent process has already issued, and end when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for Windows; elsewhere this and other signals are blocked
    warnings.simplefilter("ignore", PairtonWarning)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _in_pool(
    function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int
) -> Generator[tuple[Task, Result], None, None]:
    waiting = iter(tasks)
    if not (first := list(islice(waiting, jobs))):
        return
    with blocked():  # starts Python's resource tracker, which unblocks some signals
        pool = ProcessPoolExecutor(
            min(jobs, len(first)), mp_context=get_context("spawn"), initializer=_begin_worker
        )
    try:
        with blocked():  # starts the workers
            running: dict[Future[Result], Task] = {pool.submit(function, task): task for task in first}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task, result = running.pop(future), future.result()
                for another in islice(waiting, 1):
                    with blocked():
                        running[pool.submit(function, another)] = another
                yield task, result
        pool.shutdown()
    except BrokenProcessPool as error:
        raise WorkerError(
            "a worker process ended early (killed, out of memory, or inside a model that takes too long): try "
            "fewer --jobs, and --resume"
        ) from error
    except Exception:
        pool.shutdown(cancel_futures=True)  # tasks that have begun are finished
        raise
    finally:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def workers(jobs: int | str) -> Iterator[dict[str, Any]]:
    """Yield the arguments `jobs` and `client` of `run_tasks`.

    jobs   a number of processes; or a Dask cluster, by the address or the scheduler file of its scheduler
    """
    if isinstance(jobs, int):
        yield {"jobs": jobs, "client": None}
        return
    distributed = _distributed()
    target = {"scheduler_file": jobs} if os.path.isfile(jobs) else {"address": jobs}
    try:
        scheme, _, place = jobs.rpartition("://")
        if "address" in target and scheme in ("", "tcp", "tls"):  # a client would wait twice as long
            host, _, port = place.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        client = distributed.Client(**target, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--jobs {jobs}: no Dask scheduler answers there ({' '.join(str(error).split())[:160]}): give a "
            "number of processes, an address as in tcp://host:8786, or a scheduler file"
        ) from None
    with client:
        yield {"jobs": 1, "client": client}


def _distributed() -> Any:
    try:
        return import_module("distributed")
    except ImportError:
        raise MissingExtraError("dask", "distributed") from None


def _on_dask(
    function: Callable[[Task], Result], tasks: Iterable[Task], client: Any
) -> Generator[tuple[Task, Result], None, None]:
    distributed = _distributed()
    waiting = iter(tasks)
    running: dict[Any, Task] = {}  # future -> task
    queue = distributed.as_completed(loop=client.loop)  # without a loop, it would look for a default client
    guarded = partial(_guarded, function)

    def fill() -> None:
        places = AHEAD * max(1, sum(client.nthreads().values())) - len(running)
        for task in islice(waiting, max(0, places)):
            future = client.submit(guarded, task, pure=False)
            running[future] = task
            queue.add(future)

    try:
        fill()
        while running:
            future = next(queue)
            task = running.pop(future)
            result, error = future.result()
            if error is not None:
                raise error
            fill()
            yield task, result
    except distributed.KilledWorker as error:
        raise WorkerError(
            "several workers of the cluster died on the same task (out of memory, or a crash): give them more "
            "memory, or make parts smaller, then use --resume"
        ) from error
    except (CancelledError, OSError) as error:  # OSError: a connection that was closed
        raise WorkerError(
            "the connection to the Dask scheduler was lost: start it again, then use --resume"
        ) from error
    finally:
        client.cancel(list(running))


def _guarded(function: Callable[[Task], Result], task: Task) -> tuple[Result | None, PairtonError | None]:
    """Return a PairtonError instead of raising it, because Dask would also print a traceback on the worker."""
    try:
        return function(task), None
    except PairtonError as error:
        return None, error


# -- signals -----------------------------------------------------------------------------------------------


class Stopped(SystemExit):
    """A signal asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.name = signal.Signals(number).name


@contextmanager
def handled(handler: Callable[[int, Any], None]) -> Iterator[dict[int, Any]]:
    """Handle the signals within the block, except those that are ignored (`nohup`). Yield the earlier handlers."""
    mine = SIGNALS if threading.current_thread() is threading.main_thread() else []
    before: dict[int, Any] = {n: one for n in mine if (one := signal.getsignal(n)) not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, handler)
        yield before
    finally:
        for number, one in before.items():
            signal.signal(number, one)


@contextmanager
def stopping() -> Iterator[None]:
    """Raise Stopped within the block when a signal comes."""
    last = -AGAIN

    def stop(number: int, frame: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= AGAIN:
            last = time.monotonic()
            raise Stopped(number)

    with handled(stop):
        yield


@contextmanager
def blocked() -> Iterator[None]:
    """Let the signals wait for the end of the block; processes that it starts never get them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
