"""Others on the same machine: they run nothing in our workers, and learn nothing from them."""

import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

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
import time
from pathlib import Path
from pairton._common.parallel import run_tasks

def work(name):
    Path(name).touch()
    time.sleep(600)

if __name__ == "__main__":
    list(run_tasks(work, ["one", "two"], jobs=2))
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
    parent = subprocess.Popen([sys.executable, tmp_path / "parent.py"], cwd=tmp_path)
    try:
        while not (tmp_path / "one").exists() or not (tmp_path / "two").exists():
            assert parent.poll() is None
            time.sleep(0.1)
        workers = children(parent.pid)
        assert len(workers) >= 2
    finally:
        parent.kill()
        parent.wait()
    while not all(map(gone, workers)):  # else the test does not end
        time.sleep(0.1)
