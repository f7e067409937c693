"""Bad days: kills, full disks, read-only folders, inputs that change, files that crash libraries or carry code."""

import errno
import importlib.util
import io
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import awkward as ak
import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

import pairton
from pairton import formats, isolation
from pairton.cli import main
from pairton.engines import load_model
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
from pairton.isolation import Limits, decode_events, encode_events
from pairton.reconstruction import reconstruct
from pairton.streaming import reconstruct_files
from pairton.topology import load_topology

ROOT = Path(__file__).parent.parent
SUFFIXES = (".parquet", ".root", ".h5")


def write(path, events):
    with formats.create(path, events.topology) as writer:
        writer.write(events)
    return path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def refused(capsys, *arguments):
    """The one line with which a command refuses."""
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert len(error.splitlines()) == 1, error
    return error


@pytest.fixture
def source(decays, tmp_path):
    events = decays(400, seed=2, extra=2)
    return write(tmp_path / "in.h5", Events(events.jets, truth=events.truth, columns={"run": np.arange(400)}))


# -- kills -------------------------------------------------------------------------------------------------


WRITERS = ("reconstruct", "reconstruct in parts", "convert", "generate")


def kill(model, kills, renames, seed, verbs=()):
    command = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "--json", "--model", str(model)]
    command += ["--kills", str(kills), "--renames", str(renames)]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--verbs", ",".join(verbs)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {row["verb"]: row for row in json.loads(done.stdout)}


def test_kill_nine_once_each(model_folder):
    """Each verb is killed, looked at, run to its end and compared with an undisturbed run, by the benchmark.

    A killed training takes longer and is in the long form; its resume is tested by itself.
    """
    found = kill(model_folder, 1, 0, seed=5, verbs=WRITERS)
    assert set(found) == set(WRITERS)
    assert all(row["moments"]["kills"] == 1 for row in found.values())


def test_kill_nine_before_and_after_a_rename(model_folder):
    found = kill(model_folder, 0, 2, seed=5, verbs=["convert"])
    assert found["convert"]["renames"]["found"] == {"old": 1, "new": 1}


@pytest.mark.long
def test_kill_nine_at_twenty_moments_each(capsys):
    found = kill("default", 20, 20, seed=1)
    with capsys.disabled():
        for row in found.values():
            print(f"\n{row}")
    assert set(found) == {*WRITERS, "train"}
    for row in found.values():
        assert row["moments"]["kills"] == 20
        assert row["renames"]["compared"] == min(20, 2 * row["renames"]["renames"])
    for name in ("reconstruct in parts", "generate", "train"):  # kills early and late
        done = found[name]["moments"]["done"]
        assert min(done) < 0.4
        assert max(done) > 0.6
    assert found["train"]["moments"]["found"]["state"] >= 10


# -- no space, no permission -------------------------------------------------------------------------------

LIMITED = """
import resource, signal, sys
from pairton.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does: writes then fail with EFBIG
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
main({arguments!r})
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("verb", ["reconstruct", "convert"])
def test_a_limit_on_file_sizes(source, tmp_path, model_folder, suffix, verb):
    """The file system refuses to go on in the middle of a file, in whichever library writes it."""
    out = tmp_path / f"out{suffix}"
    out.write_text("an earlier result")
    arguments = [
        verb,
        str(source),
        *(["-o", str(out), "--model", str(model_folder)] if verb == "reconstruct" else []),
    ]
    arguments += [] if verb == "reconstruct" else [str(out)]
    script = textwrap.dedent(LIMITED).format(limit=16_384, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"{out}: cannot be written" in done.stderr
    assert out.read_text() == "an earlier result"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.h5", out.name])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_space_at_the_last_moment(source, mass_model, tmp_path, suffix, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PairtonError, match=r"cannot be written \(No space left on device\)"):
        reconstruct_files(source, tmp_path / f"out{suffix}", mass_model)
    with pytest.raises(PairtonError, match=r"cannot be written \(No space left on device\)"):
        write(tmp_path / f"copy{suffix}", formats.read(source))
    assert [path.name for path in tmp_path.iterdir()] == ["in.h5"]


READ_ONLY = """
import os, sys
from pairton.cli import main
def run(*arguments):
    try:
        main(list(arguments))
    except SystemExit as end:
        return end.code
run("convert", {source!r}, {fine!r})  # imports what is needed, before the rights are given up
run("reconstruct", {source!r}, "-o", {fine!r} + ".parts", "--resume", "--model", {model!r})
run("reconstruct", {source!r}, "-o", {fine!r} + ".h5", "--model", {model!r})
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
codes = [run("convert", {source!r}, {folder!r} + "/out.root")]
codes.append(run("reconstruct", {source!r}, "-o", {folder!r} + "/out.h5", "--model", {model!r}))
codes.append(run("reconstruct", {source!r}, "-o", {folder!r}, "--resume", "--model", {model!r}))
sys.exit(0 if codes == [2, 2, 2] else 1)
"""


def test_a_read_only_folder(decays, model_folder):
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        place = Path(name)
        place.chmod(0o755)
        source, folder = write(place / "in.h5", decays(20)), place / "closed"
        model = place / "model.onnx"
        model.write_bytes((model_folder / "model.onnx").read_bytes())
        folder.mkdir()
        folder.chmod(0o555)
        names = {"source": source, "fine": place / "fine.root", "folder": folder, "model": model}
        script = READ_ONLY.format(**{key: str(value) for key, value in names.items()})
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lines = done.stderr.splitlines()
        assert len(lines) == 3
        assert all("closed" in line and "read-only" in line for line in lines)
        assert list(folder.iterdir()) == []
        folder.chmod(0o755)


# -- inputs that change ------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_input_that_changes_while_it_is_read(decays, mass_model, tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("pairton.reconstruction.windows.__defaults__", (64,))
    source = write(tmp_path / f"in{suffix}", decays(300, seed=1))

    def rewrite(stream):
        for reco in stream:
            write(source, decays(310, seed=2))
            yield reco

    with pytest.raises(InputError, match=r"it changed while it was read: wait until it is complete"):
        reconstruct_files(source, tmp_path / "out.parquet", mass_model, progress=rewrite, chunk=50)
    assert [path.name for path in tmp_path.iterdir()] == [source.name]
    chunks = formats.iterate(source, chunk=100)
    next(chunks)
    source.unlink()
    with pytest.raises(InputError, match="it changed while it was read"):
        list(chunks)


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
    header, arrays = encode_events(events)
    again = decode_events(json.loads(json.dumps(header)), arrays, events.topology)
    same(events, again)
    assert again.weights.tolist() == [1.0] * 30
    assert again.metadata == {"a": [1]}
    assert isinstance(again.columns["matrix"], np.ndarray)
    assert ak.array_equal(again.variations["up"], events.jets)
    arrays["jets/node0-offsets"] = arrays["jets/node0-offsets"] + 5
    with pytest.raises((ValueError, TypeError), match=r"size of array|offsets|length"):
        decode_events(header, arrays, events.topology)


def test_isolated_reading_is_reading(source, tmp_path, model_folder, capsys):
    plain = formats.read(source, keep=["run"])
    same(plain, formats.read(source, keep=["run"], isolate=True, chunk=150))
    said = refused(capsys, "inspect", tmp_path / "none.h5")
    code, out, _ = run(
        capsys, "reconstruct", source, "-o", tmp_path / "a.parquet", "--model", model_folder, "--isolate"
    )
    assert code == 0
    assert "400 events" in out
    run(capsys, "reconstruct", source, "-o", tmp_path / "b.parquet", "--model", model_folder)
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


@pytest.fixture
def hostile(monkeypatch):
    """A reader that does what a hostile file may make a library do."""

    def install(deed):
        script = f"import pairton.formats, pairton.isolation as i, os, signal\n{deed}\ni.main()"
        popen = subprocess.Popen

        def start(command, **options):
            return popen([command[0], "-P", "-c", script], **options)

        monkeypatch.setattr(isolation.subprocess, "Popen", start)

    return install


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("def f(*a, **k): os.kill(os.getpid(), signal.SIGSEGV)", r"the library that reads it crashed \(SIGSEGV\)"),
        ("def f(*a, **k): os._exit(7)", r"crashed \(exit code 7\)"),
        ("def f(*a, **k):\n    while True: pass", r"took longer than 3 s: stopped"),
        ("def f(*a, **k): bytearray(2**40)", r"takes more than 0\.25 GiB"),
        ("def f(*a, **k): raise RuntimeError('odd\\nbytes')", r"cannot be read \(RuntimeError: odd bytes\)"),
        (
            "def f(*a, **k): os.write(3, b'x' * 64); os.write(4, b'x' * 64); os._exit(0)",
            "crashed|no proper answer",
        ),
    ],
    ids=["crash", "exit", "time", "memory", "error", "nonsense"],
)
def test_what_ends_the_reader_is_one_line(source, hostile, deed, message):
    hostile(deed + "\npairton.formats.open_source = f")
    with pytest.raises(InputError, match=message) as caught:
        formats.read(source, isolate=Limits(memory=2**28, seconds=3))
    assert "\n" not in str(caught.value)


def test_a_reader_that_lies_is_refused(source, hostile):
    deed = "r = i.encode_events\ndef f(e):\n    h, a = r(e)\n    a['ids'] = a['ids'][:-1]\n    return h, a\n"
    hostile(deed + "i.encode_events = f")
    with pytest.raises(InputError, match="its reader sent what are no events"):
        formats.read(source, isolate=True)


# -- nothing executes code from data -----------------------------------------------------------------------


class Trap:
    def __reduce__(self):
        return os.system, ("touch trapped",)


def test_the_trap_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Trap()))
    assert (tmp_path / "trapped").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pickle_is_no_input(tmp_path, suffix, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"in{suffix}").write_bytes(pickle.dumps(Trap()))
    assert "the content is not" in refused(capsys, "inspect", f"in{suffix}")
    assert not (tmp_path / "trapped").exists()


def test_a_pickle_in_an_archive_of_arrays_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = io.BytesIO()
    np.savez(content, header=np.array([Trap()], dtype=object))
    payload = content.getvalue()
    with pytest.raises(ValueError, match="allow_pickle"):
        isolation._receive(io.BytesIO(isolation.SIZE.pack(len(payload)) + payload), 2**20)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system ['touch trapped']", "!!python/name:os.system"])
def test_a_tag_in_yaml_is_refused(tmp_path, tag, capsys, source, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text(f"topology: {tag}\nname: {tag}\nevent: {tag}\n")
    assert "bad.yaml" in refused(capsys, "inspect", source, "--topology", "bad.yaml")
    assert "bad.yaml" in refused(capsys, "train", "bad.yaml", "--data", source)
    assert "bad.yaml" in refused(capsys, "generate", "-n", "1", "-o", "out.h5", "--card", "bad.yaml")
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "model.onnx"])
def test_a_pickle_is_no_model(tmp_path, name, model_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in model_folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_bytes(pickle.dumps(Trap()))

    def use():
        model = load_model(tmp_path, engine="torch" if name.endswith("safetensors") else "onnx")
        model.predict(np.zeros((1, 6, 5), np.float32), np.ones((1, 6), bool))

    with pytest.raises(ModelError, match=name):
        use()
    assert not (tmp_path / "trapped").exists()


def test_a_pickle_is_no_finished_chunk(tmp_path, monkeypatch):
    pytest.importorskip("pythia8mc")
    from pairton.generator.production import parts_folder, produce
    from pairton.generator.settings import make_settings

    monkeypatch.chdir(tmp_path)
    settings = make_settings("ttbar_allhad", 4, seed=3).with_sizes(2, 2)
    folder = parts_folder(tmp_path / "out.h5")
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings.as_dict()))
    hidden = io.BytesIO()
    np.savez(hidden, counts=np.array([Trap()], dtype=object))
    for content in (pickle.dumps(Trap()), hidden.getvalue(), hidden.getvalue()[:100], b""):
        (folder / "chunk-00001.npz").write_bytes(content)
        with pytest.raises(InputError, match=r"chunk-00001\.npz: this chunk is damaged .* --resume"):
            produce(settings, tmp_path / "out.h5", resume=True)
    assert not (tmp_path / "trapped").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.h5.parts"]


def test_a_pickle_is_no_state_of_a_training(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from pairton.training.state import read_progress

    monkeypatch.chdir(tmp_path)
    (tmp_path / "state.safetensors").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(TrainingError, match=r"state\.safetensors: no state to resume from"):
        read_progress(tmp_path / "state.safetensors")
    assert not (tmp_path / "trapped").exists()


def test_hdf5_does_not_unpickle(tmp_path, decays, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the trap would leave its mark
    source = write(tmp_path / "in.h5", decays(5))
    with h5py.File(source, "r+") as file:
        del file["INPUTS/Source/pt"]
        file["INPUTS/Source/pt"] = np.void(pickle.dumps(Trap()))
    with pytest.raises(PairtonError):
        formats.read(source)
    assert not (tmp_path / "trapped").exists()


def test_errors_survive_the_way_between_processes():
    for error in (ConfigError("a"), MissingExtraError("dask", "distributed")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))


# -- the same input, the same answer -----------------------------------------------------------------------


def test_threads_chunks_and_repetition_change_nothing(decays, model_folder, tmp_path):
    source = write(tmp_path / "in.h5", decays(700, seed=9, extra=3, floor=25))
    outputs = []
    for k, (threads, chunk) in enumerate([(1, 50_000), (2, 50_000), (1, 33), (None, 100), (1, 50_000)]):
        reconstruct_files(
            source, tmp_path / f"{k}.parquet", load_model(model_folder, threads=threads), chunk=chunk
        )
        outputs.append((tmp_path / f"{k}.parquet").read_bytes())
    assert len(set(outputs)) == 1


def test_engines_agree(decays, model_folder):
    events = decays(300, seed=9, extra=2, floor=25)
    one, other = (
        reconstruct(events, load_model(model_folder, engine=name, threads=1)) for name in ("onnx", "torch")
    )
    agree = (one.assignment == other.assignment).all(axis=1)
    assert agree.mean() > 0.99  # float32 sums in another order may turn a tie
    np.testing.assert_allclose(one.event_probability[agree], other.event_probability[agree], rtol=1e-3)


def test_public_reading_takes_isolate(source):
    assert len(pairton.read(source, isolate=True)) == 400
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY  # limits are those of the child
    assert load_topology("ttbar_allhad") == pairton.read(source, isolate=True).topology


# -- a soak ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judge():
    """How the benchmark judges a run, which is too long for a test."""
    spec = importlib.util.spec_from_file_location("soak", ROOT / "benchmarks" / "soak.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module.judge


@pytest.mark.parametrize(
    ("leak", "slowdown", "load", "flat", "steady"),
    [
        (0, 0, 0, True, True),
        (30, 0, 0, False, True),  # MiB in a million events, of 500
        (0, 0.25, 0, True, False),
        (0, 0, 0.25, True, True),  # other programs, which slow down the fixed piece of work as well
    ],
    ids=["calm", "leak", "slowdown", "load"],
)
def test_a_soak_tells_a_leak_from_a_warm_up(judge, leak, slowdown, load, flat, steady):
    events = np.arange(1, 245) * 4096.0
    grown = events / events[-1]
    memory = np.where(events < 65_536, 450, 530) + 20 * (np.arange(244) % 12 == 0) + leak * events / 1e6
    found = judge(
        {
            "events": events,
            "processor_seconds": np.cumsum(4 * (1 + slowdown * grown) * (1 + load * grown)),
            "reference_seconds": 0.01 * (1 + load * grown),
            "resident_mib": memory,
        }
    )
    assert (found.flat, found.steady) == (flat, steady)
