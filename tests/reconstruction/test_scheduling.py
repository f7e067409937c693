"""The pool of processes: results, errors, and workers that die."""

from __future__ import annotations

import os
import signal

import pytest

from pairton._common.parallel import WorkerError, run_tasks
from pairton.errors import ConfigError, PairtonError


def double_or_fail(task: int) -> tuple[int, int]:
    if task < 0:
        raise ConfigError(f"task {task} is negative")
    return 2 * task, os.getpid()


def die(task: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_one_job_runs_here_and_in_order():
    drawn = []

    def tasks():
        for k in (3, 1, 2):
            drawn.append(k)
            yield k

    results = run_tasks(double_or_fail, tasks())
    assert next(results) == (3, (6, os.getpid()))
    assert drawn == [3]  # a task is drawn when it is its turn
    assert [task for task, _ in results] == [1, 2]


def test_two_jobs_do_every_task_elsewhere():
    results = dict(run_tasks(double_or_fail, range(7), jobs=2))
    assert {task: value for task, (value, _) in results.items()} == {k: 2 * k for k in range(7)}
    assert os.getpid() not in {process for _, process in results.values()}
    assert list(run_tasks(double_or_fail, [], jobs=2)) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_of_a_task_reach_the_caller(jobs):
    with pytest.raises(ConfigError, match="task -5 is negative"):
        list(run_tasks(double_or_fail, [1, -5, 2], jobs=jobs))


def test_a_worker_that_dies_is_one_line():
    with pytest.raises(WorkerError, match="--resume"):
        list(run_tasks(die, [1, 2], jobs=2))


def test_jobs_must_be_positive():
    with pytest.raises(PairtonError, match="jobs is 0"):
        list(run_tasks(double_or_fail, [1], jobs=0))
