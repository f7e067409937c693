"""Reconstruction in parts: equal to one process however it is cut, scheduled, killed and resumed."""

import json
import os
import signal
import time
import warnings

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from event_files import write_events
from pairton import formats
from pairton._common.parallel import WorkerError, run_tasks, workers
from pairton.errors import ConfigError, InputError, OutputError
from pairton.events import Events
from pairton.models.model import load_model
from pairton.reconstruction import parts as partitions
from pairton.reconstruction.provenance import COMPLETE, result_metadata
from pairton.reconstruction.running import reconstruct_files

SIZE = 64  # rows of a window and of a part, in the quick tests


def whole(result):
    """The rows of a file, or of all parts of a folder, as one table."""
    if result.is_dir():
        return pa.concat_tables([pq.read_table(path) for path in sorted(result.glob("part-*.parquet"))])
    return pq.read_table(result)


def assert_equal(one, other):
    assert one.schema.equals(other.schema)
    assert one.num_rows == other.num_rows
    for name in one.column_names:
        assert ak.array_equal(ak.from_arrow(one[name]), ak.from_arrow(other[name]), equal_nan=True), name


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(partitions, "WINDOW", SIZE)
    monkeypatch.setattr("pairton.reconstruction.assigner.windows.__defaults__", (SIZE,))


@pytest.fixture
def inputs(decays, tmp_path):
    """300 events in three files, one of them empty, whose edges are no edges of windows."""
    events = decays(300, seed=5, extra=3, floor=40)
    events = Events(events.jets, weights=np.linspace(-1, 2, 300), columns={"run": np.arange(300)})
    folder = tmp_path / "inputs"
    folder.mkdir()
    cuts = {"a.h5": slice(0, 111), "b.parquet": slice(111, 111), "c.h5": slice(111, 300)}
    return [write_events(events[rows], folder / name) for name, rows in cuts.items()]


@pytest.fixture(scope="module")
def client():
    """Two workers; distributed leaves sockets to the garbage collector when workers die."""
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            workers(cluster.scheduler_address) as pool,
        ):
            yield pool["client"]


# -- parts here --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [SIZE, 2 * SIZE, 10 * SIZE])
def test_parts_are_the_rows_of_one_process(inputs, mass_model, small_windows, tmp_path, rows):
    reconstruct_files(inputs, tmp_path / "one.parquet", mass_model, keep=["run"])
    batches = list(mass_model.calls)
    mass_model.calls.clear()
    done = reconstruct_files(inputs, tmp_path / "parts", mass_model, rows=rows, keep=["run"], chunk=50, jobs=1)
    assert mass_model.calls == batches  # the network saw the very same batches
    assert len(done.paths) == -(-300 // rows)
    assert_equal(whole(tmp_path / "one.parquet"), whole(tmp_path / "parts"))
    assert_equal(
        whole(tmp_path / "one.parquet"), pq.read_table(tmp_path / "parts")
    )  # as any reader of folders does
    said, one = (
        json.loads((tmp_path / "parts" / COMPLETE).read_text()),
        result_metadata(tmp_path / "one.parquet"),
    )
    parts = said.pop("parts")
    assert said == one
    assert [part["name"] for part in parts] == [path.name for path in done.paths]
    assert sum(part["events"] for part in parts) == done.events == 300


@pytest.mark.parametrize("suffix", [".root", ".h5"])
def test_parts_of_other_formats_say_the_same(inputs, mass_model, small_windows, tmp_path, suffix):
    done = reconstruct_files(inputs, tmp_path / f"parts/*{suffix}", mass_model, rows=SIZE, jobs=1)
    again = reconstruct_files(inputs, tmp_path / f"parts/*{suffix}", mass_model, rows=SIZE, resume=True)
    assert (done.skipped, again.skipped) == (0, 5)
    assert again.status == done.status


def test_no_events_are_one_empty_part(decays, mass_model, tmp_path):
    source = write_events(decays(3)[:0], tmp_path / "none.h5")
    done = reconstruct_files(source, tmp_path / "parts", mass_model, jobs=1)
    assert (done.events, len(done.paths)) == (0, 1)
    reconstruct_files(source, tmp_path / "one.parquet", mass_model)
    assert_equal(whole(tmp_path / "one.parquet"), whole(tmp_path / "parts"))


def test_resume_keeps_what_is_still_good_and_makes_the_rest(inputs, decays, mass_model, small_windows, tmp_path):
    folder = tmp_path / "parts"
    how = {"rows": SIZE, "keep": ["run"]}
    first = reconstruct_files(inputs, folder, mass_model, resume=True, **how)  # a new folder is no mistake
    assert first.skipped == 0
    expected = whole(folder)
    with pytest.raises(OutputError, match="holds the parts of an earlier run: continue it with --resume"):
        reconstruct_files(inputs, folder, mass_model, **how, jobs=1)

    first.paths[1].unlink()
    first.paths[3].write_bytes(first.paths[3].read_bytes()[:-100])  # damaged by someone else
    (folder / COMPLETE).unlink()
    left = folder / ".part-00001.0badcafe.parquet"  # of a run that was killed
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    seen = []

    def watch(stream):
        for done in stream:
            seen.append(done.path.name[5:10])
            yield done

    again = reconstruct_files(inputs, folder, mass_model, resume=True, progress=watch, **how)
    assert (again.skipped, again.replaced) == (3, 1)
    assert sorted(seen[3:]) == ["00001", "00003"]
    assert_equal(whole(folder), expected)
    assert not left.exists()

    fewer = how | {"max_objects": 8}
    assert reconstruct_files(inputs, folder, mass_model, resume=True, **fewer).skipped == 0
    assert reconstruct_files(inputs, folder, mass_model, resume=True, **fewer).skipped == 5
    write_events(
        Events(decays(189, seed=6).jets, weights=np.ones(189), columns={"run": np.arange(189)}), inputs[2]
    )
    changed = reconstruct_files(inputs, folder, mass_model, resume=True, **fewer)
    assert changed.skipped == 1  # rows 0 to 64 are of the first file alone
    write_events(decays(3, weights=np.ones(3), columns={"run": np.arange(3)}), inputs[2])
    with pytest.raises(OutputError, match=r"part-00002\.parquet, which does not belong to these inputs"):
        reconstruct_files(inputs, folder, mass_model, resume=True, **fewer)


def test_an_input_that_changes_stops_the_work(inputs, mass_model, small_windows, tmp_path):
    def touch(stream):
        for done in stream:
            with h5py.File(inputs[2], "r+") as file:
                file.attrs["touched"] = 1
            yield done

    with pytest.raises(InputError, match=r"c\.h5: changed since this run began"):
        reconstruct_files(inputs, tmp_path / "parts", mass_model, rows=2 * SIZE, progress=touch, jobs=1)
    names = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert names == ["part-00000.parquet"]


def test_mistakes_with_parts(inputs, mass_model, small_windows, tmp_path, refused, monkeypatch):
    with pytest.raises(ConfigError, match=f"a part cannot have 100 rows: choose a multiple of {SIZE}"):
        reconstruct_files(inputs, tmp_path / "parts", mass_model, rows=100, jobs=1)
    with pytest.raises(ConfigError, match=r"suffix '\.csv'"):
        reconstruct_files(inputs, tmp_path / "parts" / "*.csv", mass_model, jobs=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file, but results in parts need a folder"):
        reconstruct_files(inputs, tmp_path / "file", mass_model, jobs=1)
    monkeypatch.setattr("pairton.models.model.load_model", lambda *_, **__: mass_model)
    for arguments, message in (
        (["-o", "out.root", "--jobs", "tcp://a:1"], "--per-file write parts to a folder, but out.root is a file"),
        (["--resume"], "--per-file write parts to a folder, but there is no output"),
        (["-o", "out/*.root"], "out/*.root is a folder of parts: add --jobs, --resume or --per-file"),
        (["-o", "out/*.csv", "--resume"], "suffix '.csv'"),
        (["-o", "out", "--jobs", "tcp://127.0.0.1:1"], "no Dask scheduler answers there"),
        (["-o", "out", "--jobs", "-1"], "jobs is -1, but must be at least 1"),
    ):
        monkeypatch.setattr("pairton._common.parallel.PATIENCE", 1)
        assert message in refused("reconstruct", inputs[0], *arguments)


def test_files_with_other_columns_are_refused(inputs, decays, mass_model, small_windows, tmp_path):
    odd = write_events(decays(SIZE), tmp_path / "odd.h5")  # no weights
    first = write_events(Events(decays(SIZE).jets, weights=np.ones(SIZE)), tmp_path / "first.h5")
    with pytest.raises(OutputError, match="only some inputs have the columns weight"):
        reconstruct_files([first, odd], tmp_path / "parts", mass_model, rows=SIZE, jobs=1)
    assert not (tmp_path / "parts" / COMPLETE).exists()


# -- on a cluster ------------------------------------------------------------------------------------------


def slow_square(task):
    time.sleep(0.05)
    return task * task, os.getpid()


def refuse(task):
    raise ConfigError(f"task {task} is refused")


def kill_me(task):
    os.kill(os.getpid(), signal.SIGKILL)


def test_tasks_of_a_dead_worker_run_elsewhere(client):
    pids = []
    results = {}
    for task, (square, pid) in run_tasks(slow_square, range(40), client=client):
        results[task] = square
        pids.append(pid)
        if len(results) == 5:
            os.kill(pid, signal.SIGKILL)
    assert results == {k: k * k for k in range(40)}
    assert os.getpid() not in pids


def test_errors_on_the_cluster_reach_the_caller(client):
    with pytest.raises(ConfigError, match="is refused"):
        list(run_tasks(refuse, range(3), client=client))


def test_work_that_ends_every_worker_is_one_line(client):
    with pytest.raises(WorkerError, match=r"several workers of the cluster died on the same task .*--resume"):
        list(run_tasks(kill_me, [1], client=client))


def killed_in_the_middle(client, source, folder, model, rows, parts):
    """Reconstruct on the cluster, one worker killed when the first part is there."""
    killed = []

    def watch(stream):
        for done in stream:
            if not killed:
                busy = [address for address, tasks in client.processing().items() if tasks]
                pids = client.run(os.getpid, workers=busy[:1])
                killed.extend(pids.values())
                os.kill(killed[0], signal.SIGKILL)
            yield done

    done = reconstruct_files(source, folder, model, client=client, rows=rows, progress=watch)
    assert len(killed) == 1
    assert len(done.paths) == parts
    return done


def test_a_killed_worker_changes_nothing(client, decays, model_folder, tmp_path):
    """The short form: most events have too few jets, to be quick."""
    events = decays(4 * 4096 + 500, seed=3, extra=0, floor=40)
    source = write_events(events, tmp_path / "in.h5")
    model = load_model(model_folder, threads=1)
    reconstruct_files(source, tmp_path / "one.parquet", model)
    done = killed_in_the_middle(client, source, tmp_path / "parts", model, 4096, 5)
    assert done.status["ok"] > 500
    assert_equal(whole(tmp_path / "one.parquet"), whole(tmp_path / "parts"))


def test_the_command_on_a_cluster(client, decays, model_folder, tmp_path, run):
    source = write_events(decays(200, seed=3), tmp_path / "in.h5")
    out = tmp_path / "out"
    arguments = ["reconstruct", str(source), "-o", str(out), "--model", str(model_folder)]
    said = run(*arguments, "--jobs", client.scheduler.address).out
    assert "200 events (183 ok, 17 too_few_objects)" in said
    said = run(*arguments, "--resume").out
    assert "wrote 1 parts" in said
    assert "1 of them kept" in said


def test_generate_on_the_cluster_and_after_a_kill_at_the_very_end(client, tmp_path, run):
    pytest.importorskip("pythia8mc")
    from pairton.generator.production import Task, make_chunk, parts_folder, produce
    from pairton.generator.settings import make_settings

    sample = make_settings("ttbar_allhad", 12, seed=3, keep="all").with_sizes(4, 4)
    counts = produce(sample, tmp_path / "cluster.h5", client=client)
    assert produce(sample, tmp_path / "here.h5") == counts
    one, other = (formats.read(tmp_path / name) for name in ("cluster.h5", "here.h5"))
    assert one.ids.tolist() == other.ids.tolist()
    assert ak.array_equal(one.jets, other.jets)
    parts = parts_folder(tmp_path / "here.h5")
    parts.mkdir()  # complete, and killed before the chunks were removed
    make_chunk(Task(make_settings("ttbar_allhad", 12, seed=3, keep="all"), 0, parts / "chunk-00000.part"))
    again = ["generate", "-n", "12", "-o", str(tmp_path / "here.h5"), "--seed", "3", "--keep", "all", "--resume"]
    assert "is complete" in run(*again).out
    assert not parts.exists()
