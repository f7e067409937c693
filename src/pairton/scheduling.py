"""Chunks of work on this machine: a pool of processes that hands results back as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

from pairton.errors import PairtonError

__all__ = ["WorkerError", "run_tasks"]

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerError(PairtonError):
    """A worker process that ended before its work did."""


def run_tasks(
    function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int = 1
) -> Iterator[tuple[Task, Result]]:
    """(task, function(task)) as they finish, in no fixed order; one job runs in this very process, in order.

    Processes are spawned, so `function` and tasks must be importable and picklable; tasks are drawn as
    places become free. When the caller stops, or an error is raised, nothing further is started.

    >>> list(run_tasks(abs, [-1, 2]))
    [(-1, 1), (2, 2)]
    """
    if jobs < 1:
        raise PairtonError(f"jobs is {jobs}, but must be at least 1")
    if jobs == 1:
        for task in tasks:
            yield task, function(task)
        return
    waiting = iter(tasks)
    first = list(islice(waiting, jobs))
    if not first:
        return
    pool = ProcessPoolExecutor(min(jobs, len(first)), mp_context=get_context("spawn"))
    try:
        running: dict[Future[Result], Task] = {pool.submit(function, task): task for task in first}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                result = future.result()
                for another in islice(waiting, 1):
                    running[pool.submit(function, another)] = another
                yield task, result
    except BrokenProcessPool as error:
        raise WorkerError(
            "a worker process ended early (killed, or out of memory): try fewer --jobs, and --resume"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
