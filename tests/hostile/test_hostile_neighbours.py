"""Others on the same machine: they run nothing in our workers, and learn nothing from them."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from pathlib import Path

import pytest

import pairton
from pairton._common.parallel import dask_client, run_tasks

LISTENS = "0A"  # state of a socket in /proc/net/tcp


def listening(pids):
    """(address, port) of the sockets on which processes listen."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                name = os.readlink(entry)
            except OSError:
                continue
            inodes.add(name.removeprefix("socket:[").removesuffix("]"))
    found = []
    for version in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{version}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and words[9] in inodes:
                address, port = words[1].split(":")
                found.append((address, int(port, 16)))
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at sockets in /proc")
def test_a_local_cluster_takes_no_strangers_and_says_nothing():
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with dask_client("local:1") as client:
            assert client.submit(abs, -3).result() == 3
            sockets = listening([os.getpid(), *client.run(os.getpid).values()])
            assert len(sockets) >= 3
            assert {address for address, _ in sockets} == {"0100007F"}  # 127.0.0.1
            address = client.scheduler.address
            assert address.startswith("tls://")
            for stranger in (address, address.replace("tls", "tcp")):
                security = distributed.Security.temporary() if "tls" in stranger else None
                with pytest.raises(OSError, match=r"(?i)timed out|connect|certificate"):
                    distributed.Client(stranger, security=security, timeout=2, set_as_default=False)
            for _, port in sockets:
                for page in ("", "status", "info/main/workers.html", "json/identity.json", "metrics", "api/v1"):
                    with pytest.raises((urllib.error.URLError, OSError)) as refused:
                        urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=2)
                    assert getattr(refused.value, "code", 404) == 404


def test_a_cluster_that_runs_already_is_used():
    """Also where its client is not the default one of the process."""
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
            dask_client(cluster.scheduler_address) as client,
        ):
            assert sorted(run_tasks(abs, [-1, 2], client=client)) == [(-1, 1), (2, 2)]


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
