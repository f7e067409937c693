"""Bad days: kills, full disks, read-only folders, inputs that change; and the same answer on all others."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import awkward as ak
import numpy as np
import pytest

from event_files import write_events
from pairton import formats
from pairton.errors import InputError
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.models.model import load_model
from pairton.reconstruction.running import reconstruct_files

SUFFIXES = (".parquet", ".root", ".h5")


# -- kills -------------------------------------------------------------------------------------------------


WRITERS = ("reconstruct", "reconstruct in parts", "convert", "generate")


def kill(model, kills, renames, seed, verbs=()):
    command = [sys.executable, str(Path(__file__).parent / "kills.py"), "--model", str(model)]
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
    """Each verb is killed, looked at, run to its end and compared with an undisturbed run.

    A killed training takes longer and is in the long form; its resume is tested by itself.
    """
    found = kill(model_folder, 1, 0, seed=5, verbs=WRITERS)
    assert set(found) == set(WRITERS)
    assert all(row["moments"]["kills"] == 1 for row in found.values())


def test_kill_nine_before_and_after_a_rename(model_folder):
    found = kill(model_folder, 0, 2, seed=5, verbs=["convert"])
    assert found["convert"]["renames"]["found"] == {"old": 1, "new": 1}


@pytest.mark.long
def test_thirty_signals_in_a_row(source, model_folder, tmp_path):
    """They reach the workers too: one in nine runs used to hang, and a third printed tracebacks."""
    inputs = [shutil.copy(source, tmp_path / f"{k}.h5") for k in range(6)]
    command = [sys.executable, "-m", "pairton", "reconstruct", *inputs, "--model", str(model_folder)]
    command += ["--jobs", "2", "-o"]
    begun = time.monotonic()
    subprocess.run([*command, str(tmp_path / "undisturbed")], check=True, capture_output=True)
    duration, rng, out = time.monotonic() - begun, random.Random(1), tmp_path / "out"
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

    def default():
        for number in numbers:  # jobs of a shell may ignore some
            signal.signal(number, signal.SIG_DFL)

    stopped = Counter()
    for number in 10 * numbers:
        shutil.rmtree(out, ignore_errors=True)
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen([*command, str(out)], start_new_session=True, preexec_fn=default, **pipes)
        while not out.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, duration / 2))
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            os.killpg(process.pid, number)
        try:
            _, said = process.communicate()
        finally:
            process.kill()
        lines = [line for line in said.splitlines() if not line.startswith("pairton: warning: ")]
        if process.returncode != 128 + number:  # it was done; Python itself may be ending
            assert (process.returncode in (0, -number), lines) == (True, []), said
            assert (out / "_reconstruction.json").exists()
            continue
        assert lines == [f"pairton: stopped by {number.name}"]
        assert [path for path in tmp_path.rglob(".*") if path.suffix] == []  # nothing half-written
        stopped[number.name] += 1
    print(f"{stopped.total()} of 30 runs were stopped: {dict(stopped)}")
    assert stopped.total() >= 10
    subprocess.run([*command, str(out), "--resume"], check=True, capture_output=True)
    for path in (tmp_path / "undisturbed").glob("*.parquet"):
        assert (out / path.name).read_bytes() == path.read_bytes()


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
    assert found["train"]["moments"]["found"]["state"] >= 5  # the others fall into the export at its end


# -- no space, no permission -------------------------------------------------------------------------------


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
    here = Path(formats.__file__).parent
    if os.getuid() == 0 and not all(folder.stat().st_mode & 0o005 == 0o005 for folder in (here, *here.parents)):
        pytest.skip(
            "run by root from a folder that is closed to others: without its rights nothing can be imported"
        )
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        place = Path(name)
        place.chmod(0o755)
        source, folder = write_events(decays(20), place / "in.h5"), place / "closed"
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
    monkeypatch.setattr("pairton.reconstruction.assigner.windows.__defaults__", (64,))
    source = write_events(decays(300, seed=1), tmp_path / f"in{suffix}")

    def rewrite(stream):
        for reco in stream:
            write_events(decays(310, seed=2), source)
            yield reco

    with pytest.raises(InputError, match=r"the file changed while it was read: wait until it is complete"):
        reconstruct_files(source, tmp_path / "out.parquet", mass_model, progress=rewrite, chunk=50)
    assert [path.name for path in tmp_path.iterdir()] == [source.name]
    chunks = formats.iterate(source, chunk=100)
    next(chunks)
    source.unlink()
    with pytest.raises(InputError, match="the file changed while it was read"):
        list(chunks)


# -- the same input, the same answer -----------------------------------------------------------------------


def test_threads_chunks_and_repetition_change_nothing(decays, model_folder, tmp_path):
    source = write_events(decays(700, seed=9, extra=3, floor=25), tmp_path / "in.h5")
    outputs = []
    for k, (threads, chunk) in enumerate([(1, 50_000), (2, 50_000), (1, 33), (None, 100), (1, 50_000)]):
        reconstruct_files(
            source, tmp_path / f"{k}.parquet", load_model(model_folder, threads=threads), chunk=chunk
        )
        outputs.append((tmp_path / f"{k}.parquet").read_bytes())
    assert len(set(outputs)) == 1


# -- memory of long runs and large events ---------------------------------------------------------------------


def peak_of(*arguments):
    """Peak memory in MiB of `pairton` in a new process (Linux)."""
    done = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) / 1024


# VmHWM is that of the new program; ru_maxrss would include the size of this one, from which it was forked
PEAK = """
from pathlib import Path
from pairton.cli import main
try:
    main()
except SystemExit as end:
    if end.code:
        raise
print(next(line.split()[1] for line in Path("/proc/self/status").open() if line.startswith("VmHWM")))
"""


def crowded(n_jets, n=50_000, hard=260):
    """Events with that many jets, too soft to be used in most of them, so that a run takes seconds.

    The hard ones fill the largest batches; a few events with fewer hard jets make every table of sums necessary.
    """
    rng = np.random.default_rng(n_jets)
    pt = rng.uniform(1, 20, (n, n_jets))
    pt[:hard] = rng.uniform(30, 200, (hard, n_jets))
    for fewer in range(6, n_jets):
        pt[hard + fewer, :fewer] = rng.uniform(30, 200, fewer)
    columns = {"pt": pt, "eta": rng.uniform(-2.4, 2.4, pt.shape), "phi": rng.uniform(-np.pi, np.pi, pt.shape)}
    columns |= {"mass": np.full(pt.shape, 5.0), "btag": rng.random(pt.shape) < 0.2}
    return Events(make_jets(**{name: ak.from_regular(ak.Array(values)) for name, values in columns.items()}))


@pytest.mark.long
@pytest.mark.parametrize("n_jets", [6, 8, 12, 16, 20, 24, 28, 32])
def test_memory_is_bounded_for_many_jets_and_threads(n_jets, tmp_path, capsys):
    source = write_events(crowded(n_jets), tmp_path / "events.parquet")
    for threads in (1, 2):
        how = ["--max-objects", str(n_jets), "--decoding", "exact", "--threads", str(threads), "--force"]
        peak, bound = (
            peak_of("reconstruct", str(source), "-o", str(tmp_path / "o.parquet"), *how),
            400 + 100 * threads,
        )
        with capsys.disabled():
            print(f"\n{n_jets} jets, {threads} threads: {peak:.0f} MiB (bound {bound})")
        assert peak < bound


WARM = 131_072  # events that fill memory which is kept: libraries, arenas, chunks of the reader, row groups


@pytest.mark.long
def test_memory_stays_flat_for_a_million_events(tmp_path, capsys):
    """After the first events, neither the peaks nor a straight line through all windows rise by more than 5%."""
    sample = formats.read("sample:ttbar_allhad")
    block = Events.concatenate([sample] * (50_000 // len(sample)))
    with formats.create(tmp_path / "in.h5", sample.topology) as writer:
        for start in range(0, 1_000_000, len(block)):
            ids = np.stack([np.ones(len(block)), np.arange(start, start + len(block))], axis=1)
            writer.write(Events(block.jets, block.topology, ids=ids.astype(np.uint64)))
    done, memory, rates = [0], [], []

    def watch(windows):
        begun = time.process_time()
        for reco in windows:
            yield reco
            done.append(done[-1] + len(reco))
            rates.append(len(reco) / (time.process_time() - begun))
            begun = time.process_time()
            memory.append(
                int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            )

    reconstruct_files(tmp_path / "in.h5", tmp_path / "out.parquet", load_model(threads=1), progress=watch)
    events, warm = np.array(done[1:]), np.array(done[1:]) > WARM
    kept, third = np.array(memory)[warm], warm.sum() // 3
    slope, start = np.polyfit(events[warm] / 1e6, kept, 1)
    peaks, line = kept[-third:].max() / kept[:third].max(), 1 + slope / start
    drift = np.median(rates[-third:]) / np.median(np.array(rates)[warm][:third]) - 1
    with capsys.disabled():
        print(f"\n{done[-1]} events, at most {max(memory):.0f} MiB, {np.median(rates):.0f} events per CPU second")
        print(
            f"last third against first third: peaks {peaks:.3f}, rate {drift:+.1%}; by a straight line {line:.3f}"
        )
    assert max(peaks, line) < 1.05
