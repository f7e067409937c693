"""Files that are not trusted: they crash libraries in a process of its own, and nothing in them is executed."""

import gc
import io
import os
import pickle
import resource
import shutil
import signal
import time
from functools import partial

import awkward as ak
import h5py
import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

import pairton
from event_files import write_events
from pairton import formats
from pairton._common.worker import ARRAY, SIZE, Limits, Worker, pack, unpack
from pairton.errors import (
    ConfigError,
    FormatError,
    InputError,
    MissingExtraError,
    ModelError,
    PairtonError,
    TrainingError,
)
from pairton.events import Events
from pairton.events.nodes import Nodes
from pairton.formats.isolation import events_from_plain, events_to_plain
from pairton.models.model import load_model
from pairton.topology import load_topology

SUFFIXES = (".parquet", ".root", ".h5")


# -- files that are not trusted ----------------------------------------------------------------------------


def same(one, other):
    assert one.topology == other.topology
    assert one.ids.tolist() == other.ids.tolist()
    assert (one.truth is None) == (other.truth is None)
    if one.truth is not None:
        assert one.truth.tolist() == other.truth.tolist()
    assert set(one.columns) == set(other.columns)
    for name in one.columns:
        assert ak.array_equal(ak.Array(one.columns[name]), ak.Array(other.columns[name]), equal_nan=True)
    assert ak.array_equal(one.jets, other.jets, equal_nan=True)


def through_a_pipe(value):
    stream = io.BytesIO()
    pack(stream, value)
    stream.seek(0)
    return unpack(stream)


def test_events_survive_the_way_between_processes(decays):
    events = decays(30, seed=4, floor=40)
    columns = {
        "run": np.arange(30),
        "scores": ak.Array([[0.5] * (k % 3) for k in range(30)]),
        "matrix": np.eye(30),
    }
    events = Events(
        events.jets, "ttbar_allhad", events.truth, np.ones(30), None, columns, {"a": [1]}, {"up": events.jets}
    )
    again = events_from_plain(through_a_pipe(events_to_plain(events)), events.topology)
    same(events, again)
    assert again.weights.tolist() == [1.0] * 30
    assert again.metadata == {"a": [1]}
    assert isinstance(again.columns["matrix"], np.ndarray)
    assert ak.array_equal(again.variations["up"]["jet"], events.jets)


@pytest.mark.parametrize(
    "value", [np.zeros((2, 0, 3)), np.float32(2.5), [1, None, "a"], {"a": {"b": True}}, np.array("text")], ids=repr
)
def test_plain_data_survive_the_way_between_processes(value):
    again = through_a_pipe(value)
    assert np.array_equal(again, value)
    assert np.shape(again) == np.shape(value)


def test_arrays_that_do_not_fit_their_form_are_refused():
    stream = io.BytesIO()
    pack(stream, ak.Array([[1, 2], [3]]))
    content = stream.getvalue().replace(np.array([0, 2, 3]).tobytes(), np.array([0, 2, 9]).tobytes())
    assert content != stream.getvalue()
    with pytest.raises((TypeError, ValueError), match=r"size of array|offsets|length"):
        unpack(io.BytesIO(content))


def test_isolated_reading_is_reading(source, tmp_path, model_folder, run, refused):
    plain = formats.read(source, keep=["run"])
    same(plain, formats.read(source, keep=["run"], isolate=True, chunk=150))
    said = refused("inspect", tmp_path / "none.h5")
    words = ("reconstruct", source, "--model", model_folder, "-o")
    assert "400 events" in run(*words, tmp_path / "a.parquet", "--isolate").out
    run(*words, tmp_path / "b.parquet")
    one, other = (pq.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert one.schema.equals(other.schema)
    for name in one.column_names:
        assert ak.array_equal(ak.from_arrow(one[name]), ak.from_arrow(other[name]), equal_nan=True)
    assert "no such file" in said


def test_isolated_errors_are_the_same_errors(source, tmp_path):
    with pytest.raises(FormatError, match=r"no dataset|lacks"):
        formats.read(source, keep=["nothing"], isolate=True)
    with pytest.raises(ConfigError, match="no option 'treee'"):
        formats.read(source, treee="x", isolate=True)
    (tmp_path / "cut.h5").write_bytes(source.read_bytes()[:5000])
    with pytest.raises(InputError, match=r"cut\.h5: cannot be read as HDF5"):
        formats.read(tmp_path / "cut.h5", isolate=True)


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ((os.abort,), r"its worker process crashed \(SIGABRT\)"),
        ((os._exit, 7), r"crashed \(exit code 7\)"),
        ((bytearray, 2**40), r"needs more than 0\.25 GiB"),
        ((int, "odd\nbytes"), r"fails \(ValueError: .*odd.*bytes"),
        ((os.write, 3, b"x" * 64), "sent an invalid answer"),
    ],
    ids=["crash", "exit", "memory", "error", "nonsense"],
)
def test_what_ends_a_worker_is_one_line(deed, message):
    worker = Worker(partial, *deed, name="some.h5", limits=Limits(memory=2**28))
    with pytest.raises(InputError, match=r"^some\.h5: .*" + message + ".*: the file may be damaged") as caught:
        worker.call("__call__")
    assert "\n" not in str(caught.value)


def test_a_worker_that_takes_too_long_is_stopped():
    with pytest.raises(
        InputError, match=r"some\.h5: stopped, since it took longer than 3 s"
    ):  # or while it starts
        Worker(partial, time.sleep, 1e6, name="some.h5", limits=Limits(seconds=3)).call("__call__")


def test_a_worker_leaves_interrupts_to_its_parent():
    worker = Worker(partial, signal.raise_signal, signal.SIGINT, name="some.h5")
    assert worker.call("__call__") is None
    assert worker.call("__call__") is None


def test_a_worker_that_nobody_needs_is_ended():
    worker = Worker(partial, os.getpid, name="some.h5")
    pid = worker.call("__call__")
    del worker
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_reader_that_lies_is_refused(source, monkeypatch):
    call = Worker.call

    def lie(self, method, *arguments):
        answer = call(self, method, *arguments)
        return {**answer, "ids": answer["ids"][:-1]} if method == "read" else answer

    monkeypatch.setattr(Worker, "call", lie)
    with pytest.raises(InputError, match="its worker process sent invalid events"):
        formats.read(source, isolate=True)


def test_public_reading_takes_isolate(source):
    assert len(pairton.read(source, isolate=True)) == 400
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY  # limits are those of the child
    assert load_topology("ttbar_allhad") == pairton.read(source, isolate=True).topology


# -- nothing executes code from data -----------------------------------------------------------------------


class Trap:
    def __reduce__(self):
        return os.system, ("touch trapped",)


def test_the_trap_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Trap()))
    assert (tmp_path / "trapped").exists()


def as_input(folder, name, payload, model_folder):
    (folder / name).write_bytes(payload)
    formats.read(folder / name)


def as_column(folder, name, payload, model_folder):
    with h5py.File(write_events(formats.read("sample:ttbar_allhad")[:5], folder / name), "r+") as file:
        del file["INPUTS/Source/pt"]
        file["INPUTS/Source/pt"] = np.void(payload)
    formats.read(folder / name)


def as_model(folder, name, payload, model_folder):
    shutil.copytree(model_folder, folder / "model")
    (folder / "model" / name).write_bytes(payload)
    model = load_model(folder / "model", engine="torch" if name.endswith("safetensors") else "onnx")
    model.predict(Nodes.full({"jet": np.zeros((1, 6, 5), np.float32)}))


def as_state(folder, name, payload, model_folder):
    pytest.importorskip("torch")
    from pairton.training.resume_state import read_progress

    (folder / name).write_bytes(payload)
    read_progress(folder / name)


def as_chunk(folder, name, payload, model_folder):
    pytest.importorskip("pythia8mc")
    from pairton.generator.production import parts_folder, produce
    from pairton.generator.settings import make_settings

    settings = make_settings("ttbar_allhad", 4, seed=3).with_sizes(2, 2)
    parts_folder(folder / "out.h5").mkdir()
    (parts_folder(folder / "out.h5") / name).write_bytes(payload)
    produce(settings, folder / "out.h5", resume=True)


def hidden():
    stream = io.BytesIO()
    np.savez(stream, counts=np.array([Trap()], dtype=object))
    return stream.getvalue()


PICKLE = pickle.dumps(Trap())


@pytest.mark.parametrize(
    ("use", "name", "payload", "error", "said"),
    [
        *[(as_input, f"in{suffix}", PICKLE, PairtonError, "the content is not") for suffix in SUFFIXES],
        (as_column, "in.h5", PICKLE, PairtonError, "in.h5"),
        *[(as_model, name, PICKLE, ModelError, name) for name in ("model.safetensors", "model.onnx")],
        (as_state, "state.safetensors", PICKLE, TrainingError, "no state to resume from"),
        *[
            (as_chunk, "chunk-00001.part", payload, InputError, r"part: this chunk is damaged .* --resume")
            for payload in (PICKLE, hidden(), hidden()[:100], b"")
        ],
    ],
    ids=lambda value: "" if isinstance(value, bytes) else getattr(value, "__name__", value),
)
def test_a_pickle_is_never_loaded(tmp_path, monkeypatch, model_folder, use, name, payload, error, said):
    monkeypatch.chdir(tmp_path)  # where the trap would leave its mark
    with pytest.raises(error, match=said):
        use(tmp_path, name, payload, model_folder)
    assert not (tmp_path / "trapped").exists()


def test_an_array_of_objects_is_no_answer_of_a_worker():
    for kind in ("|O", "O", "i4,O"):
        array = msgspec.msgpack.Ext(ARRAY, msgspec.msgpack.encode([kind, [1], b"x" * 16]))
        content = msgspec.msgpack.encode(array)
        with pytest.raises((TypeError, ValueError), match=r"OBJECT|object|data type"):
            unpack(io.BytesIO(SIZE.pack(len(content)) + content))


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system ['touch trapped']", "!!python/name:os.system"])
def test_a_tag_in_yaml_is_refused(tmp_path, tag, refused, source, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text(f"topology: {tag}\nname: {tag}\nevent: {tag}\n")
    assert "bad.yaml" in refused("inspect", source, "--topology", "bad.yaml")
    assert "bad.yaml" in refused("train", "bad.yaml", "--data", source)
    assert "bad.yaml" in refused("generate", "-n", "1", "-o", "out.h5", "--card", "bad.yaml")
    assert not (tmp_path / "trapped").exists()


def test_errors_survive_the_way_between_processes():
    for error in (ConfigError("a"), MissingExtraError("dask", "distributed")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
