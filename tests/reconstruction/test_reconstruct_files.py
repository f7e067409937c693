import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import awkward as ak
import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import uproot

import pairton.reconstruction.writers
from event_files import write_events
from pairton import evaluate, formats
from pairton.errors import ConfigError, InputError, ModelError, OutputError, PairtonWarning
from pairton.events import Events
from pairton.reconstruction.provenance import KEY, result_metadata
from pairton.reconstruction.result_columns import result_columns
from pairton.reconstruction.run import Run
from pairton.reconstruction.run_settings import RunSettings
from pairton.reconstruction.running import reconstruct, reconstruct_files
from pairton.reconstruction.writers import TREE

SUFFIXES = (".parquet", ".root", ".h5")


def read_back(path):
    """Columns of a result, as arrays, and its metadata."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        columns = {name: ak.from_arrow(table[name]) for name in table.column_names}
        return columns, json.loads(pq.read_metadata(path).metadata[KEY.encode()])
    if path.suffix == ".root":
        with uproot.open(path) as file:
            tree = file[TREE]
            names = [name for name in list(tree.keys()) if not (name.startswith("n") and name[1:] in tree)]
            return {name: tree[name].array() for name in names}, json.loads(str(file[KEY]))
    with h5py.File(path) as file:
        columns = {}
        for name, item in file.items():
            if isinstance(item, h5py.Group):
                columns[name] = ak.unflatten(item["values"][:], item["counts"][:])
            else:
                columns[name] = item.asstr()[:] if h5py.check_string_dtype(item.dtype) else item[:]
        return columns, json.loads(file.attrs[KEY])


@pytest.fixture
def crowd(decays):
    """Events of six to ten jets, some with too few, with weights and columns."""
    events = decays(300, seed=5, extra=3, floor=40)
    n = len(events)
    return Events(
        events.jets,
        events.topology,
        events.truth,
        np.linspace(-1, 2, n),
        columns={"run": np.arange(n) // 7, "scores": ak.Array([[0.5] * (k % 4) for k in range(n)])},
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_says_what_memory_does(crowd, mass_model, tmp_path, suffix):
    source, target = write_events(crowd, tmp_path / "in.h5"), tmp_path / f"out{suffix}"
    summary = reconstruct_files(source, target, mass_model, keep=["run", "scores"])
    reco = reconstruct(crowd, mass_model)
    columns, metadata = read_back(target)
    read = formats.read(source, keep=["run", "scores"])
    assert len(columns["status"]) == len(crowd) == metadata["events"] == summary.events
    np.testing.assert_array_equal(np.asarray(columns["event_number"]), read.ids[:, 1])
    np.testing.assert_array_equal(np.asarray(columns["event_source"]), read.ids[:, 0])
    np.testing.assert_array_equal(np.asarray(columns["weight"]), crowd.weights)
    np.testing.assert_array_equal(np.asarray(columns["run"]), crowd.columns["run"])
    assert ak.array_equal(ak.Array(columns["scores"]), crowd.columns["scores"], dtype_exact=False)
    for slot in crowd.topology.slots:
        name = slot.name.replace(".", "_") + "_jet"
        np.testing.assert_array_equal(np.asarray(columns[name]), reco.assignment[:, slot.index])
        assert metadata["slots"][slot.name] == name
    np.testing.assert_allclose(np.asarray(columns["t2_mass"]), reco.t.mass[:, 1], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(columns["t1_W_eta"]), reco.W.eta[:, 0], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(columns["t1_W_probability"]), reco.W.probability[:, 0], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(columns["event_probability"]), reco.event_probability, rtol=1e-5)
    labels, counts = np.unique(np.asarray(columns["status"]).astype(str), return_counts=True)
    assert set(labels) == {"ok", "too_few_objects", "outside_selection"}
    assert {label: n for label, n in summary.status.items() if n} == dict(
        zip(labels, counts.tolist(), strict=True)
    )
    assert metadata["status"] == summary.status
    assert metadata["model"]["name"] == "masses"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_the_answer_does_not_depend_on_chunks_or_files(crowd, mass_model, tmp_path, monkeypatch):
    monkeypatch.setattr("pairton.reconstruction.assigner.WINDOW", 64)
    monkeypatch.setattr("pairton.reconstruction.assigner.windows.__defaults__", (64,))
    whole = write_events(crowd, tmp_path / "whole.h5")
    batches, outputs = [], []
    for chunk in (1, 7, 100_000):
        mass_model.calls.clear()
        target = tmp_path / f"out{chunk}.parquet"
        reconstruct_files(whole, target, mass_model, chunk=chunk)
        batches.append(list(mass_model.calls))
        outputs.append(target)
    assert batches[0] == batches[1] == batches[2]
    assert len(batches[0]) > 15
    assert outputs[0].read_bytes() == outputs[1].read_bytes() == outputs[2].read_bytes()
    halves = [write_events(crowd[:111], tmp_path / "a.h5"), write_events(crowd[111:], tmp_path / "b.h5")]
    reconstruct_files(halves, tmp_path / "both.parquet", mass_model, chunk=50)
    one, two = read_back(outputs[0])[0], read_back(tmp_path / "both.parquet")[0]
    for name in one.keys() - {"event_source", "event_number"}:
        assert ak.array_equal(one[name], two[name], equal_nan=True)


def test_long_files_are_written_in_pieces(crowd, mass_model, tmp_path, monkeypatch):
    monkeypatch.setattr(pairton.reconstruction.writers, "ROWS", 128)
    monkeypatch.setattr("pairton.reconstruction.assigner.windows.__defaults__", (64,))
    source = write_events(crowd, tmp_path / "in.h5")
    results = []
    for suffix in SUFFIXES:
        reconstruct_files(source, tmp_path / f"out{suffix}", mass_model, keep=["scores"])
        results.append(read_back(tmp_path / f"out{suffix}"))
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 3
    first = results[0][0]
    for columns, metadata in results:
        assert set(columns) == set(first)
        assert metadata == results[0][1]
        for name in columns:
            if name == "status":
                assert np.asarray(columns[name]).astype(str).tolist() == first[name].tolist()
            else:
                assert ak.array_equal(ak.Array(columns[name]), first[name], equal_nan=True, dtype_exact=False)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_events_and_only_short_ones(decays, mass_model, tmp_path, suffix):
    short = decays(9).keep({"jet": ak.local_index(decays(9).jets.pt) < 4})
    for events in (short[:0], short):
        source = write_events(events, tmp_path / f"in{len(events)}.h5")
        target = tmp_path / f"out{len(events)}{suffix}"
        summary = reconstruct_files(source, target, mass_model)
        columns, metadata = read_back(target)
        assert summary.events == metadata["events"] == len(columns["t1_b_jet"]) == len(events)
        assert metadata["status"]["too_few_objects"] == len(events)
        assert (np.asarray(columns["t1_b_jet"]) == -1).all()
        assert np.isnan(np.asarray(columns["t1_mass"])).all()
    assert mass_model.calls == []


def test_progress_counts_every_event(crowd, mass_model, tmp_path):
    seen = []

    def watch(stream):
        for reco in stream:
            seen.append(len(reco))
            yield reco

    summary = reconstruct_files(write_events(crowd, tmp_path / "in.h5"), None, mass_model, progress=watch)
    assert sum(seen) == summary.events == len(crowd)
    assert len(summary.first) == 10
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.h5"]


def test_mistakes_are_named_and_leave_nothing(crowd, mass_model, tmp_path):
    source = write_events(crowd, tmp_path / "in.h5")
    with pytest.raises(ConfigError, match=r"suffix '\.csv': choose one of \.h5"):
        reconstruct_files(source, tmp_path / "out.csv", mass_model)
    with pytest.raises(InputError, match="is an input file"):
        reconstruct_files(source, source, mass_model)
    for name in ("hh4b", "tth_allhad"):
        with (
            pytest.warns(PairtonWarning, match=f"check that these events are of {name}"),
            pytest.raises(ModelError, match=f"is for ttbar_allhad, but the events are for {name}"),
        ):
            reconstruct_files(source, tmp_path / "out.parquet", mass_model, topology=name)
    with pytest.raises(OutputError, match="no folder"):
        reconstruct_files(source, tmp_path / "none" / "out.root", mass_model)
    clash = Events(crowd.jets, columns={"status": np.zeros(len(crowd), int)})
    with pytest.raises(ConfigError, match="the column status of the input has the name of a result"):
        reconstruct_files(
            write_events(clash, tmp_path / "clash.h5"), tmp_path / "out.root", mass_model, keep=["status"]
        )
    weighted = Events(crowd.jets, weights=np.ones(len(crowd)), columns={"weight": np.zeros(len(crowd))})
    with pytest.raises(ConfigError, match="the column weight of the input has the name of a result"):
        result_columns(reconstruct(weighted, mass_model))
    some = write_events(Events(crowd.jets, columns={"run": np.ones(len(crowd), int)}), tmp_path / "some.h5")
    for inputs in ([source, some], [some, source]):
        with pytest.raises(OutputError, match="only some inputs have the columns scores, weight"):
            reconstruct_files(inputs, tmp_path / "out.parquet", mass_model)
    some.unlink()
    others = write_events(Events(crowd.jets, "hh4b"), tmp_path / "others.h5")
    with pytest.raises(InputError, match=r"others\.h5: the events are for hh4b, but the model is for"):
        reconstruct_files(others, tmp_path / "out.parquet", mass_model)
    with pytest.raises(InputError, match=r"others\.h5: the events are for hh4b"):
        reconstruct(others, mass_model)
    with pytest.raises(InputError, match=r"others\.h5: the events are for hh4b"):
        reconstruct_files(others, tmp_path / "parts", mass_model, jobs=1)
    with pytest.raises(InputError, match=r"others\.h5: the events are for hh4b"):
        reconstruct_files(others, None, mass_model, isolate=True)
    assert reconstruct_files(others, None, mass_model, topology="ttbar_allhad").events == len(crowd)
    others.unlink()
    with pytest.raises(InputError, match=r"in\.h5: given twice, so its events would count twice"):
        reconstruct_files([source, source], tmp_path / "out.parquet", mass_model)
    with pytest.raises(InputError, match=r"given twice, also as .*in\.h5"):
        reconstruct_files([source, tmp_path / ".." / tmp_path.name / "in.h5"], None, mass_model)
    mass_model.predict = None  # a failure in the middle
    with pytest.raises(TypeError):
        reconstruct_files(source, tmp_path / "out.parquet", mass_model)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["clash.h5", "in.h5"]


SLOW = """
import importlib.util, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell, as tests may be, ignore it
import pairton.reconstruction.assigner, pairton.reconstruction.writers
pairton.reconstruction.assigner.windows.__defaults__ = (20,)
pairton.reconstruction.writers.ROWS = 20
sys.path.append({makers!r})
spec = importlib.util.spec_from_file_location("shared", {conftest!r})
shared = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shared)
import pairton.models.model
class Slow(shared.MassModel):
    def predict(self, *arguments):
        if len(self.calls) > 12:
            print("halfway", flush=True)
            time.sleep(600)
        return super().predict(*arguments)
pairton.models.model.load_model = lambda *a, **k: Slow()
from pairton.cli import main
main(["reconstruct", {source!r}, "-o", {target!r}, "--force"])
"""


@pytest.mark.parametrize(
    ("suffix", "signal_name", "left"),
    [
        (".parquet", "SIGINT", 0),
        (".parquet", "SIGTERM", 0),
        (".root", "SIGTERM", 0),
        (".h5", "SIGTERM", 0),
        (".parquet", "SIGKILL", 1),
    ],
)
def test_killed_halfway(crowd, tmp_path, signal_name, left, suffix):
    source, target = write_events(crowd, tmp_path / "in.h5"), tmp_path / f"out{suffix}"
    target.write_text("an earlier result")
    tests = Path(__file__).parents[1]
    places = {"conftest": tests / "conftest.py", "makers": tests / "makers", "source": source, "target": target}
    script = textwrap.dedent(SLOW).format(**{name: str(path) for name, path in places.items()})
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().strip() == b"halfway"
    os.kill(process.pid, getattr(signal, signal_name))
    _, error = process.communicate()
    number = signal.Signals[signal_name]
    stopped = (128 + number, f"pairton: stopped by {signal_name}\n".encode())
    assert (process.returncode, error) == ((-number, b"") if left else stopped)
    assert target.read_text() == "an earlier result"
    others = {entry.name for entry in tmp_path.iterdir()} - {"in.h5", target.name}
    assert len(others) == left  # nobody can clean up after SIGKILL, but a dot file is no result
    assert all(name.startswith(".") for name in others)


def test_every_input_is_opened_once(crowd, mass_model, model_folder, tmp_path, monkeypatch, run):
    paths = [
        write_events(crowd[rows], tmp_path / name)
        for name, rows in (("a.h5", slice(99)), ("b.root", slice(99, 300)))
    ]
    opened = []
    open_file = formats._open
    monkeypatch.setattr(formats, "_open", lambda path, *how: opened.append(path) or open_file(path, *how))
    once = list(map(str, paths))

    def check(expected):
        assert opened == expected
        opened.clear()

    reconstruct_files(paths, tmp_path / "out.parquet", mass_model)
    check(once)
    reconstruct_files(paths, None)  # the model is chosen by the topology of the files
    check(once)
    assert len(reconstruct(paths)) == 300
    check(once)
    evaluate(paths, mass_model, use_weights=False)
    check(once)
    reconstruct_files(paths, tmp_path / "out", mass_model, jobs=1)
    check([*once, *once])  # to plan the parts, and to make the only one
    for verb in (
        ["reconstruct", "-o", tmp_path / "cli.h5"],
        ["display", "--event", "120", "-o", tmp_path / "a.html"],
    ):
        run(*verb, *paths, "--model", model_folder)
        check(once)
    run("inspect", *once, "--json")
    check(once)


def test_a_window_of_a_stream_can_be_saved_and_says_how_it_was_made(crowd, mass_model, tmp_path):
    source = write_events(crowd, tmp_path / "in.h5")
    with Run(source, mass_model, RunSettings("beam:4", max_objects=9)) as run:
        (one,) = run.reconstruct()
    one.save(tmp_path / "saved.parquet")
    reconstruct_files(source, tmp_path / "written.parquet", mass_model, decoding="beam:4", max_objects=9)
    saved, written = (result_metadata(tmp_path / f"{name}.parquet") for name in ("saved", "written"))
    assert saved | {name: written[name] for name in ("inputs", "first_bad")} == written
    assert (saved["decoding"], saved["max_objects"]) == ("beam:4", 9)


# -- rows that can be traced -------------------------------------------------------------------------------


@pytest.fixture
def two(crowd, tmp_path):
    (tmp_path / "in").mkdir()
    write_events(crowd[:100], tmp_path / "in" / "a.h5")
    return [tmp_path / "in" / "a.h5", write_events(crowd[100:], tmp_path / "in" / "b.root")]


def test_rows_of_several_files_say_where_they_come_from(two, mass_model, tmp_path):
    names, entries = [str(two[0])] * 100 + [str(two[1])] * 200, [*range(100), *range(200)]
    for suffix in SUFFIXES:
        reconstruct_files(two, tmp_path / f"out{suffix}", mass_model, chunk=33)
        columns, _ = read_back(tmp_path / f"out{suffix}")
        assert np.asarray(columns["file"]).astype(str).tolist() == names
        assert np.asarray(columns["entry"]).tolist() == entries
    reco = reconstruct(two, mass_model)
    assert (reco.to_columns()["file"].tolist(), reco.to_columns()["entry"].tolist()) == (names, entries)
    reconstruct_files(two, tmp_path / "parts", mass_model, jobs=1)
    assert pq.read_table(tmp_path / "parts")["entry"].to_pylist() == entries
    reconstruct_files(two[1], tmp_path / "one.parquet", mass_model)
    assert not {"file", "entry"} & set(pq.read_schema(tmp_path / "one.parquet").names)
    reconstruct_files(two[1], tmp_path / "one.parquet", mass_model, keep=["entry", "run"], isolate=True)
    table = pq.read_table(tmp_path / "one.parquet")
    assert (table["entry"].to_pylist(), set(table["file"].to_pylist())) == ([*range(200)], {str(two[1])})
    assert table["run"].to_pylist() == (np.arange(100, 300) // 7).tolist()


def test_one_output_per_input(two, mass_model, tmp_path):
    whole = reconstruct_files(two, tmp_path / "one.parquet", mass_model)
    done = reconstruct_files(two, tmp_path / "out", mass_model, per_file=True)
    assert [path.name for path in done.paths] == ["a.parquet", "b.parquet"]
    assert done.status == whole.status
    assert [pq.read_table(path).num_rows for path in done.paths] == [100, 200]
    again = reconstruct_files(two, tmp_path / "out", mass_model, per_file=True, resume=True)
    assert again.skipped == 2
    with pytest.raises(OutputError, match="replace it with --force"):
        reconstruct_files(two, tmp_path / "out", mass_model, per_file=True)
    with pytest.raises(InputError, match=r"b\.root is an input file"):
        reconstruct_files(two[1], tmp_path / "in" / "*.root", mass_model, per_file=True, force=True)
    (tmp_path / "other").mkdir()
    twins = [two[0], write_events(formats.read(two[0]), tmp_path / "other" / "a.root")]
    with pytest.raises(ConfigError, match=r"several inputs would be written to .*a\.parquet"):
        reconstruct_files(twins, tmp_path / "twins", mass_model, per_file=True)


def test_a_result_is_a_friend_of_its_input(two, mass_model, tmp_path):
    """Rows are those of the input, in its order, so that trees can be read side by side."""
    reconstruct_files(two[1], tmp_path / "out" / "*.root", mass_model, per_file=True)
    with uproot.open(two[1]) as events, uproot.open(tmp_path / "out" / "b.root") as friend:
        tree, reco = events[events.keys(filter_classname="TTree")[0]], friend[TREE]
        assert tree.num_entries == reco.num_entries
        jets, index = tree["jet_pt"].array(), reco["t1_b_jet"].array(library="np")
        answered = index >= 0
        pt = jets[answered][np.arange(answered.sum()), index[answered]]
    expected = reconstruct(two[1], mass_model).object("t1.b").pt
    np.testing.assert_allclose(pt, ak.drop_none(expected), rtol=1e-6)


def test_files_are_read_with_the_options_of_read(two, mass_model):
    reco = reconstruct(str(two[0].parent / "*"), mass_model, keep=["run"], settings={"overlap": "none"})
    assert len(reco) == 300
    assert reco.events.columns["run"].tolist() == (np.arange(300) // 7).tolist()
    with pytest.raises(ConfigError, match="keep: an option of reading, but the events are in memory"):
        reconstruct(reco.events, mass_model, keep=["run"])
