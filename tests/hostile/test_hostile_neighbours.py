"""Others on the same machine: they run nothing in our workers, and learn nothing from them."""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import pairton
from pairton._common.parallel import run_tasks, workers


def test_a_cluster_that_runs_already_is_used():
    """Also where its client is not the default one of the process."""
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
            workers(cluster.scheduler_address) as pool,
        ):
            assert sorted(run_tasks(abs, [-1, 2], **pool)) == [(-1, 1), (2, 2)]


PARENT = """
import os, time
from pairton._common.parallel import run_tasks
if __name__ == "__main__":
    print(os.getpid(), flush=True)
    list(run_tasks(time.sleep, [600, 600], jobs=2))
"""


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc")
def test_workers_end_with_their_parent(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(Path(pairton.__file__).parents[1])}
    parent = subprocess.Popen([sys.executable, tmp_path / "parent.py"], env=environment)
    try:
        workers = []
        while len(workers) < 3:  # two, and the one that tracks what they share
            assert parent.poll() is None
            time.sleep(0.1)
            workers = children(parent.pid)
        time.sleep(2)  # until they have begun
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 30
    while not all(map(gone, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
