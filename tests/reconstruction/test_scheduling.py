"""The pool of processes: results, errors, signals, and workers that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pairton
from pairton._common.parallel import Stopped, WorkerError, run_tasks, stopping
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


STOPPED = """
import os, signal, sys, time
from pathlib import Path
import pairton._common.parallel as parallel
import pairton.cli

def task(path):
    Path(path).touch()
    time.sleep(600)

def verb(*_, **__):
    print("begins", flush=True)
    list(parallel.run_tasks(task, sys.argv[1:], jobs=2))

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of a shell, as tests may be, ignore it
    pairton.cli.cli.main = verb
    pairton.cli.main()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("busy", [False, True], ids=["while workers start", "while they work"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_to_all_processes_is_one_line(tmp_path, name, busy):
    """A terminal and batch systems send it to the workers too; those that were just starting had tracebacks."""
    (tmp_path / "stopped.py").write_text(STOPPED)
    begun = [tmp_path / "0", tmp_path / "1"]
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "stopped.py", *begun],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.Signals[name], signal.SIG_DFL),  # `nohup` ignores SIGHUP
        env=os.environ | {"PYTHONPATH": str(Path(pairton.__file__).parents[1])},
    )
    try:
        assert parent.stdout.readline() == "begins\n"
        workers = []
        while len(workers) < 3 or not all(path.exists() for path in begun if busy):  # one more: the tracker
            assert parent.poll() is None
            time.sleep(0.01)
            workers = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        number = signal.Signals[name]
        os.killpg(parent.pid, number)
        os.killpg(parent.pid, number)  # as `timeout` does
        _, said = parent.communicate()
    finally:
        parent.kill()
    assert (parent.returncode, said) == (128 + number, f"pairton: stopped by {name}\n")
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers[1:])


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_a_signal_that_is_ignored_stays_ignored():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping():
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(Stopped, match="143"):
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
