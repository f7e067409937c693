"""Pythia through the whole chain: determinism, resume, Les Houches files, distributions, the command line."""

import gzip
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from pairton import formats
from pairton.cli.generate import generate
from pairton.errors import ConfigError, InputError, MissingExtraError, OutputError, PairtonError
from pairton.events.events import SPLITS
from pairton.events.splits import fold_of
from pairton.events.tags import load_table
from pairton.formats import files
from pairton.generator.production import Task, make_chunk, parts_folder, produce, run_chunk
from pairton.generator.pythia import PythiaRun, flatten, load_processes, scan
from pairton.generator.settings import make_settings
from pairton.generator.simulation import slot_entries
from pairton.topology import builtin_topologies, load_topology, parse_topology

pythia8 = pytest.importorskip("pythia8mc")
pytest.importorskip("fastjet")

SUMMARY = Path(__file__).parent / "generator_summary.json"


# the hard process alone, in the event record
BARE = (
    "HadronLevel:all = off",
    "BeamRemnants:primordialKT = off",
    *(f"PartonLevel:{name} = off" for name in ("ISR", "FSR", "MPI")),
)


def small(n_events=30, seed=3, **options):
    return make_settings("ttbar_allhad", n_events, seed=seed, keep="all", **options).with_sizes(10, 5)


def content(path):
    events = formats.read(str(path))
    return ak.to_list(events.jets), events.truth.tolist(), events.ids.tolist()


# -- the same seed, the same events ------------------------------------------------------------------------


def test_events_do_not_depend_on_jobs_or_interruption(tmp_path):
    one, two, killed = (tmp_path / name for name in ("one.h5", "two.h5", "killed.h5"))
    settings = small()
    counts = produce(settings, one, jobs=1)
    assert (counts.tried, counts.simulated, counts.failed, counts.kept) == (30, 30, 0, 30)
    assert produce(settings, two, jobs=2) == counts
    assert content(one) == content(two)
    assert not parts_folder(two).exists()

    script = (
        "from pathlib import Path\n"
        "from pairton.generator.production import produce\n"
        "from pairton.generator.settings import make_settings\n"
        "settings = make_settings('ttbar_allhad', 30, seed=3, keep='all').with_sizes(10, 5)\n"
        f"produce(settings, Path({str(killed)!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    folder = parts_folder(killed)
    while not list(folder.glob("chunk-*.part")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(list(folder.glob("chunk-*.part")))
    assert 0 < done < 3
    assert not killed.exists()

    with pytest.raises(OutputError, match="--resume"):
        produce(settings, killed)
    with pytest.raises(InputError, match="seed"):
        produce(small(seed=4), killed, resume=True)
    heard = []
    resumed = produce(settings, killed, resume=True, progress=lambda new, counts: heard.append(new))
    assert resumed == counts
    assert sorted(heard) == [False] * done + [True] * (3 - done)
    assert content(killed) == content(one)


def test_a_second_run_is_refused_while_the_first_one_lasts(tmp_path):
    """Even with force, which would remove the finished chunks of the first run and mix its own with the others."""
    alone, out, refused = tmp_path / "alone.h5", tmp_path / "out.h5", []

    def second(new, counts):
        with pytest.raises(OutputError, match="another run is writing there") as error:
            produce(small(seed=4), out, force=True)
        refused.append(error)

    produce(small(), alone)
    produce(small(), out, force=True, progress=second)
    assert len(refused) == 3
    assert content(out) == content(alone)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.h5", "out.h5"]


@pytest.mark.parametrize(("run", "other"), [(small(seed=4), "seed"), (small(), "number")])
def test_a_chunk_of_another_run_is_refused_at_merging(tmp_path, run, other):
    """Such as one that a worker of a killed run on a cluster writes late."""
    out = tmp_path / "out.h5"
    folder = parts_folder(out)
    strange = Task(run, 0, tmp_path / "strange.part")
    make_chunk(strange)

    def smuggle(new, counts):
        shutil.copy(strange.path, folder / "chunk-00001.part")

    with pytest.raises(InputError, match=rf"chunk-00001.part: .* another run \(other {other}.*\): .* delete it"):
        produce(small(), out, progress=smuggle)
    assert not out.exists()


def test_the_folder_of_chunks_is_emptied_of_own_files_only(tmp_path):
    out = tmp_path / "out.h5"
    folder = parts_folder(out)
    folder.mkdir()
    for mine in (".mine", "chunk-notes.txt", "settings.json"):
        (folder / mine).write_text("mine")
        with pytest.raises(OutputError, match=mine):
            produce(small(), out, force=True)
        (folder / mine).unlink()

    def appear(new, counts):
        (folder / ".mine").write_text("mine")

    produce(small(10), out, force=True, progress=appear)
    assert [path.name for path in folder.iterdir()] == [".mine"]


@pytest.mark.parametrize("seed", [3, 4])
def test_resume_of_a_finished_sample_removes_only_its_own_chunks(tmp_path, seed):
    out = tmp_path / "out.h5"
    folder = parts_folder(out)
    counts = produce(small(10), out)
    folder.mkdir()
    make_chunk(Task(small(10, seed=seed), 0, folder / "chunk-00000.part"))
    assert produce(small(10), out, resume=True) == counts
    assert folder.exists() == (seed == 4)  # with seed 3, this run was killed between its last two steps
    with pytest.raises(OutputError, match="made with other settings"):
        produce(small(10, seed=4), out, resume=True)
    produce(small(10, seed=4), out, resume=True, force=True)  # the interrupted run that was to replace the sample
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5"]


@pytest.mark.parametrize("copies", [1, 2])
def test_fewer_events_are_the_first_of_more(copies):
    settings = small(copies=copies)
    few, _ = run_chunk(settings, 0, 7)
    more, _ = run_chunk(settings, 0, 10)
    assert len(few) == 7 * copies
    assert few.ids.tolist() == more.ids[: len(few)].tolist()
    assert ak.to_list(few.jets) == ak.to_list(more.jets[: len(few)])
    assert few.truth.tolist() == more.truth[: len(few)].tolist()


def test_copies_are_one_collision_in_another_detector(tmp_path):
    path = tmp_path / "copies.h5"
    counts = produce(small(10, copies=3), path)
    assert (counts.tried, counts.simulated, counts.failed, counts.kept) == (10, 30, 0, 30)
    assert counts.effective == 10  # they are not independent
    copies, one = formats.read(str(path)), run_chunk(small(10), 0, 10)[0]
    made = copies.metadata["generator"]
    assert (made["copies"], made["counts"]["effective"]) == (3, 10)
    assert copies.ids.tolist() == np.repeat(one.ids, 3, axis=0).tolist()
    assert ak.to_list(copies.jets.pt[::3]) == ak.to_list(one.jets.pt)  # the first is the event without copies
    assert ak.all(copies.jets.pt[::3, 0] != copies.jets.pt[1::3, 0])
    for part in (fold_of(copies.ids, 3), *(copies.in_split(name, (0.4, 0.3, 0.3)) for name in SPLITS)):
        assert len(set(part)) > 1
        assert part.tolist() == np.repeat(part[::3], 3).tolist()
    weighted = make_settings("multijet", 2, keep="all", copies=2).with_sizes(2, 2)
    events, counts = run_chunk(weighted, 0, 2)
    single = run_chunk(replace(weighted, copies=1), 0, 2)[0].weights
    assert events.weights.tolist() == np.repeat(single, 2).tolist()
    assert counts.effective == pytest.approx(single.sum() ** 2 / (single**2).sum())


def test_seeds_and_chunks_share_nothing():
    first, _ = run_chunk(small(), 0, 5)
    for other in (run_chunk(small(), 1, 5)[0], run_chunk(small(seed=4), 0, 5)[0]):
        assert not set(ak.flatten(first.jets.pt).tolist()) & set(ak.flatten(other.jets.pt).tolist())
        assert not set(map(tuple, first.ids.tolist())) & set(map(tuple, other.ids.tolist()))


def test_ids_name_the_collisions(tmp_path):
    """The same seed with another selection or detector gives the same collisions: a model has seen them."""
    loose = tmp_path / "loose.yaml"
    raw = load_topology("ttbar_allhad").to_dict()
    cuts = {"jets": {"pt": 20, "abs_eta": 4.5}, "event": {"jets": 5}}
    loose.write_text(yaml.safe_dump({**raw, "selection": cuts}))
    first = make_settings("ttbar_allhad", 10)
    same = (make_settings(loose, 30, copies=5), replace(first, card="jets: {pt: 30}"))
    others = ({"seed": 4}, {"filtered": True}, {"pythia": ("Tune:pp = 21",)}, {"process": "tth_allhad"})
    assert {settings.source_id() for settings in same} == {first.source_id()}
    ids = {first.source_id(), *(make_settings("ttbar_allhad", 10, **other).source_id() for other in others)}
    assert len(ids) == 5


# -- the filter --------------------------------------------------------------------------------------------


def test_filter_keeps_only_events_whose_quarks_pass():
    processes = load_processes()
    run = PythiaRun((*processes.lines(load_topology("ttbar_allhad"), False), *BARE), 11, quarks=processes.filter)
    record = flatten(next(run.batches(200, 200)))
    quarks = (np.abs(record.code) <= 5) & (np.abs(record.status) == 23) & (record.code != 0)
    pt = np.hypot(record.px, record.py)[quarks]
    assert quarks.sum() == 1200
    assert pt.min() > processes.filter.pt
    assert np.abs(np.arcsinh(record.pz[quarks] / pt)).max() < processes.filter.abs_eta
    assert 250 < run.tried(200) < 600  # 56 % pass
    assert run.tried(100) < run.tried(200)


# -- Les Houches files -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lhe(tmp_path_factory):
    """Written by Pythia itself; its writer leaves out the scale of each event, which goes in afterwards."""
    path = tmp_path_factory.mktemp("lhe") / "with blank" / "events.lhe"
    path.parent.mkdir()
    pythia = pythia8.Pythia("", False)
    own = ("Print:quiet = on", "Random:setSeed = on", "Random:seed = 5", "PartonLevel:all = off")
    for line in (*load_processes().lines(load_topology("ttbar_allhad"), False), *own):
        assert pythia.readString(line)
    assert pythia.init()
    writer = pythia8.LHAupFromPYTHIA8(pythia.process, pythia.infoPython())
    assert writer.openLHEF(str(path))
    assert writer.setInit()
    assert writer.initLHEF()
    scales = []
    for _ in range(30):
        assert pythia.next()
        assert writer.setEvent()
        assert writer.eventLHEF()
        scales.append(pythia.infoPython().QFac())
    assert writer.closeLHEF(True)
    lines = path.read_text().splitlines()
    heads = [k + 1 for k, line in enumerate(lines) if line.startswith("<event>")]
    for number, (head, scale) in enumerate(zip(heads, scales, strict=True)):
        fields = lines[head].split()
        fields[2], fields[3] = ("-1.5" if number % 3 == 0 else "1.5"), f"{scale:.6e}"
        lines[head] = " ".join(fields)
    start = lines.index("<init>") + 1
    lines[start] = " ".join([*lines[start].split()[:8], "-4", "1"])
    path.write_text("\n".join(lines) + "\n")
    return path


def test_les_houches_quarks_come_back_as_written(lhe):
    processes = load_processes()
    lines = (*processes.lines(load_topology("ttbar_allhad"), True), *BARE)
    record = flatten(next(PythiaRun(lines, 1, lhe=lhe, skip=10).batches(5, 5)))
    blocks = lhe.read_text().split("<event>\n")[11:16]
    written = [row.split() for block in blocks for row in block.splitlines()[1:13]]
    expected = [(int(row[0]), float(row[6]), float(row[7])) for row in written if row[1] == "1"]
    quarks = np.flatnonzero(np.abs(record.status) == 23)
    found = list(zip(record.code[quarks].tolist(), record.px[quarks], record.py[quarks], strict=True))
    assert len(found) == 30
    assert found == [pytest.approx(row, rel=1e-4, abs=1e-3) for row in expected]


def test_les_houches_events_pass_through_the_chain_with_their_weights(lhe, tmp_path):
    zipped = tmp_path / "events.lhe.gz"
    zipped.write_bytes(gzip.compress(lhe.read_bytes()))
    assert replace(scan(zipped), path="") == replace(scan(lhe), path="")
    for path in (lhe, zipped):
        settings = make_settings("ttbar_allhad", None, lhe=path, keep="all").with_sizes(20, 10)
        assert settings.n_events == 30
        second, counts = run_chunk(settings, 1, 10)
        assert (counts.simulated, counts.kept) == (10, 10 - counts.failed)
        numbers = second.ids[:, 1].astype(int) & 0xFFFF
        assert second.weights.tolist() == [[1.5, -1.5, 1.5][k % 3] for k in numbers]
    assert (second.truth >= 0).mean() > 0.3  # quarks of other events would match one jet in ten
    with pytest.raises(ConfigError, match="has 30 events"):
        make_settings("ttbar_allhad", 31, lhe=lhe)
    wrong = make_settings("hh4b", None, lhe=lhe).with_sizes(5, 5)
    with pytest.raises(InputError, match="hh4b"):
        run_chunk(wrong, 0, 5)


def test_pythia_simulates_no_process_beside_les_houches_events(lhe):
    shower = make_settings("ttbar_allhad", None, lhe=lhe, pythia=("TimeShower:globalRecoil = on",))
    PythiaRun(shower.lines, 1, lhe=lhe)  # settings that are not about processes are allowed
    own = make_settings("ttbar_allhad", None, lhe=lhe, pythia=("HardQCD:all = on",))
    with pytest.raises(ConfigError, match="--pythia switches on a process"):
        PythiaRun(own.lines, 1, lhe=lhe)
    with pytest.raises(ConfigError, match="Pythia would simulate tth_allhad, but with --lhe"):
        make_settings("ttbar_allhad", None, process="tth_allhad", lhe=lhe)
    with pytest.raises(ConfigError, match="Pythia would simulate multijet, but with --lhe"):
        make_settings("multijet", None, lhe=lhe)


def test_filter_on_les_houches_events_counts_what_was_read(lhe):
    settings = make_settings("ttbar_allhad", None, lhe=lhe, keep="all", filtered=True)
    events, counts = run_chunk(settings, 0, 30)
    assert counts.tried == 30
    assert 5 < counts.simulated == len(events) + counts.failed < 28


HEADERS = """<!-- a comment of two lines that mentions
<event> -->
<header>
<MGRunCard><![CDATA[
<event> 1 2 in a comment of the run card
]]></MGRunCard>
<initrwgt>
<weight id='1001'> muR=0.5 muF=0.5 </weight>
</initrwgt>
</header>
<initrwgt>
<weight id='2' > pdf </weight>
</initrwgt>
"""


def test_les_houches_headers_of_other_generators(lhe, tmp_path):
    """MadGraph declares its variations in the header, POWHEG between header and <init>; tags have attributes."""
    opening, rest = lhe.read_text().split("<init>", 1)
    rest = rest.replace("<event>", "<event npLO='-1' npNLO='1'>")
    rest = rest.replace("</event>", "<rwgt>\n<wgt id='1001'> 2.5 </wgt>\n</rwgt>\n</event>")
    path = tmp_path / "events.lhe"
    path.write_text(opening[: opening.index(">") + 1] + "\n" + HEADERS + "<init>" + rest)
    assert scan(path).n_events == 30
    settings = make_settings("ttbar_allhad", None, lhe=path, keep="all").with_sizes(5, 5)
    assert len(run_chunk(settings, 1, 5)[0]) > 0  # Pythia reads them as well


def test_every_les_houches_event_has_its_own_weight(lhe, tmp_path):
    """Pythia also reads an event inside a comment, and cannot use one without its last lines."""
    start, *events = lhe.read_text().split("<event>\n")
    events = [event.replace("1.5", f"{k + 2}", 1) for k, event in enumerate(events[:6])]
    events[1] = "\n".join(events[1].splitlines()[:4]) + "\n</event>\n"
    events[2] = events[2].replace("</event>\n", "</event>\n<!--\n")
    events[3] = events[3].replace("</event>\n", "</event>\n-->\n")
    path = tmp_path / "events.lhe"
    path.write_text("<event>\n".join([start, *events]) + "</LesHouchesEvents>\n")
    settings = make_settings("ttbar_allhad", None, lhe=path, keep="all")
    assert settings.n_events == 6
    made, counts = run_chunk(settings, 0, 6)
    assert counts.failed == 1
    assert made.ids[:, 1].tolist() == [0, 2, 3, 4, 5]
    assert np.abs(made.weights).tolist() == [2, 4, 5, 6, 7]


def test_a_les_houches_file_that_crashes_pythia_is_one_line(lhe, tmp_path):
    path = tmp_path / "bad.lhe"
    lines = lhe.read_text().splitlines()
    quark = lines.index("<event>") + 7
    code, status, _, _, *rest = lines[quark].split()
    lines[quark] = " ".join([code, status, "25", "25", *rest])  # its mother: there are only 12 particles
    path.write_text("\n".join(lines))
    settings = make_settings("ttbar_allhad", 5, lhe=path, keep="all")
    with pytest.raises(InputError, match=r"bad\.lhe: its worker process crashed \(SIG\w+\): the file may be"):
        produce(settings, tmp_path / "out.h5")
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_chunk_without_usable_events_is_empty_and_a_sample_without_them_is_one_line(lhe, tmp_path):
    start, *events = lhe.read_text().split("<event>\n")
    bad = ["\n".join(event.splitlines()[:4]) + "\n</event>\n" for event in events[:4]]
    path = tmp_path / "bad.lhe"
    path.write_text("<event>\n".join([start, *bad]) + "</LesHouchesEvents>\n")
    settings = make_settings("ttbar_allhad", None, lhe=path, keep="all")
    assert len(run_chunk(settings, 0, 4)[0]) == 0
    with pytest.raises(InputError, match=r"Pythia could finish none of the 4 events of .*bad\.lhe"):
        produce(settings, tmp_path / "out.h5")
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no events here\n", "has no <event>"),
        (gzip.compress(b"<init>" + b" " * 2**24), "declares .* MiB of values in .* bytes"),
        (gzip.compress(b"<event>\n" * 2**16)[:-50], "cannot read .*bad.lhe: "),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 100, "cannot read .*bad.lhe: "),
    ],
    ids=["text", "large", "cut", "damaged"],
)
def test_bad_les_houches_files(tmp_path, monkeypatch, content, said):
    monkeypatch.setattr(files, "MOST_BYTES", 2**20)
    path = tmp_path / "bad.lhe"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        scan(path)


def test_a_pipe_is_no_les_houches_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="this is not a regular file"):
        scan(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ("2212 2212 6500 6500 0 0 0 0 1 1\n 1 1 1 1", "weight strategy 1, in which Pythia leaves out events"),
        ("2212 2212", "Pythia cannot start from"),
    ],
)
def test_bad_starts_of_les_houches_files(lhe, tmp_path, init, said):
    text = lhe.read_text()
    path = tmp_path / "bad.lhe"
    path.write_text(text[: text.index("<init>") + 7] + init + "\n" + text[text.index("</init>") :])
    with pytest.raises(InputError, match=said):
        run_chunk(make_settings("ttbar_allhad", 5, lhe=path), 0, 5)


# -- physics -----------------------------------------------------------------------------------------------


def test_distributions_agree_with_the_frozen_summary():
    """Means over 250 events against those of a large sample, within four standard errors.

    The summary: pairton generate ttbar_allhad -n 2000 -o all.h5 --seed 1001 --keep all
                 python benchmarks/generator_comparison.py --means all.h5
    """
    summary = json.loads(SUMMARY.read_text())
    events, _ = run_chunk(make_settings("ttbar_allhad", 250, seed=17, keep="all"), 0, 250)
    error = np.sqrt(1 / len(events) + 1 / summary["n_events"])
    script = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "generator_comparison.py"))
    for name, values in script["observables"](events).items():
        mean, spread = summary["observables"][name]
        assert values.mean() == pytest.approx(mean, abs=4 * spread * error), name


def hard_processes(tree, n):
    lines = (*make_settings(tree, n).lines, *BARE)
    return flatten(next(PythiaRun(lines, 3).batches(n, n)))


OWN = {"ww": ["W", "W"], "wz": ["W", "Z"], "zz": ["Z", "Z"], "single_top": ["t"]}
DECAYS = {"t": ["W", "b"], "W": ["q", "q"], "Z": ["q", "q"]}


@pytest.mark.parametrize("name", [*builtin_topologies(), *OWN])
def test_every_process_has_the_particles_of_its_topology(name):
    if name in OWN:  # without a built-in topology
        used = {*OWN[name], *(["W"] if "t" in OWN[name] else [])}
        raw = {"name": name, "event": OWN[name], "particles": {root: DECAYS[root] for root in used}}
    tree = parse_topology(raw) if name in OWN else load_topology(name)
    resolved = [slot.index for slot in tree.slots if not slot.merged]
    assert (slot_entries(hard_processes(tree, 20), tree)[:, resolved] >= 0).all()


@pytest.mark.parametrize(
    ("name", "code", "masses"),
    [("hh4b", 35, (255, 1200)), ("tttt_allhad", 35, (350, 1500)), ("tttt_allhad", 36, (350, 1500))],
)
def test_masses_of_made_up_resonances_are_about_flat(name, code, masses):
    record = hard_processes(name, 1000)
    at = np.flatnonzero((record.code == code) & (np.abs(record.status) == 22))
    mass = np.sqrt(record.energy**2 - record.px**2 - record.py**2 - record.pz**2)[at]
    counts, _ = np.histogram(mass, np.linspace(*masses, 6))
    assert counts.sum() == len(at) == 1000
    assert counts.min() > 100
    assert counts.max() < 350


@pytest.mark.parametrize(("name", "code"), [("hh4b_boosted", 25), ("ttbar_allhad_boosted", 6)])
def test_transverse_momenta_of_boosted_particles_are_about_flat(name, code):
    record = hard_processes(name, 1000)
    at = np.flatnonzero((np.abs(record.code) == code) & (np.abs(record.status) == 22))
    counts, _ = np.histogram(record.pt[at], np.linspace(0, 1200, 7))
    assert counts.sum() > 0.9 * len(at)
    assert counts.min() > 0.25 * counts.max()


def test_a_topology_of_ones_own_brings_its_process(lhe, tmp_path):
    bare, whole, renamed = (tmp_path / f"{name}.yaml" for name in ("bare", "whole", "renamed"))
    lines = ("WeakSingleBoson:ffbar2gmZ = on", "23:onMode = off", "23:onIfAny = 5")
    bare.write_text("name: mine\nevent: [Z]\nparticles: {Z: [b, b]}\n")
    whole.write_text(bare.read_text() + "process:\n" + "".join(f"  - {line!r}\n" for line in lines))
    with pytest.raises(ConfigError, match=r"'mine': use ttbar_allhad, .*`process:`.*--pythia LINE.*--lhe FILE"):
        make_settings(bare, 10)
    settings = make_settings(whole, 20)
    assert settings.lines == make_settings(bare, 20, pythia=lines).lines
    assert (slot_entries(hard_processes(whole, 20), load_topology(whole)) >= 0).all()
    assert load_topology(whole) == load_topology(bare)  # how it was made is no part of the tree
    assert settings.build_topology().extras.process == lines
    renamed.write_text(whole.read_text().replace("name: mine", "name: ttbar_allhad"))
    assert not [line for line in make_settings(renamed, 20).lines if line.startswith("Top:")]
    with pytest.raises(ConfigError, match="switches on a process"):
        run_chunk(make_settings(bare, 10, pythia=("Tune:pp = 21",)), 0, 10)
    # Les Houches events of something else: background, if one says so
    background, _ = run_chunk(make_settings(whole, 10, lhe=lhe, keep="all").with_sizes(10, 10), 0, 10)
    assert len(background) > 0
    assert np.all(background.truth == -1)


# -- the command line --------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(generate, list(arguments))


def test_command_writes_a_file_that_says_how_it_was_made(tmp_path):
    output = tmp_path / "events.h5"
    result = run("ttbar_allhad", "-n", "30", "-o", str(output), "--seed", "9", "--keep", "all")
    assert result.exit_code == 0, result.output
    assert re.search(r"simulated +30 +100.00%", result.output)
    with formats.open_source(str(output)) as source:
        made, table = source.metadata["generator"], source.metadata["tag_table"]
    assert table == load_table("generator_score").to_dict()
    assert (made["seed"], made["n_events"], made["counts"]["kept"]) == (9, 30, 30)
    assert made["filter"] is None
    assert "Tune:pp" in " ".join(made["lines"])
    assert made["card"].startswith("#")
    assert set(made["versions"]) == {"pairton", "pythia8mc", "fastjet"}
    again = run("ttbar_allhad", "-n", "30", "-o", str(output), "--seed", "9", "--keep", "all", "--resume")
    assert again.exit_code == 0
    assert "complete" in again.output
    assert isinstance(run("ttbar_allhad", "-n", "30", "-o", str(output)).exception, OutputError)
    output.write_text("mine")
    text = run("ttbar_allhad", "-n", "30", "-o", str(output), "--resume")
    assert "not a sample of" in str(text.exception)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ttbar_allhad",), "-n is missing"),
        (("ttbar_allhad", "-n", "0"), "between 1 and"),
        (("ttbar_allhad", "-n", "10", "--copies", "0"), "copies is 0, but must be 1 or more"),
        (("ttbar_allhad", "-n", "10", "--seed", "30000"), "between 0 and 29999"),
        (("ttbar_allhad", "-n", "10", "--keep", "some"), "one of all, selected, reconstructible"),
        (("ttbar_allhad", "-n", "10", "--card", "cms"), "use atlas"),
        (("ttbar_allhad", "-n", "10", "--lhe", "nowhere.lhe"), "cannot read nowhere.lhe"),
        (("ttbar_allhad", "-n", "10", "--pythia", "Nonsense:x = 1"), "does not understand 'Nonsense:x = 1'"),
        (("ttbar_allhad", "-n", "10", "--jobs", "0"), "jobs is 0"),
        (("ttbar_allhad", "-n", "10", "--process", "multijets"), "no process 'multijets': choose one of ttbar"),
        (("ttbar_allhad", "-n", "10", "-o", "out.xyz"), "out.xyz"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(tmp_path, arguments, said):
    output = () if "-o" in arguments else ("-o", str(tmp_path / "out.h5"))
    result = run(*output, *arguments)
    assert isinstance(result.exception, PairtonError)
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)
    assert os.listdir(tmp_path) == []


def test_without_the_extra_the_remedy_is_named(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("pairton.generator.pythia.version", missing)
    with pytest.raises(MissingExtraError, match=r'pip install "pairton\[generate\]"'):
        make_settings("ttbar_allhad", 10)
