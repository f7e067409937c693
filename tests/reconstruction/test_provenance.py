"""What a result says of how it was made; what a resumed run keeps; what `pairton inspect --verify` finds."""

import contextlib
import hashlib
import json
import os
import shutil

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from event_files import write_events
from pairton import formats
from pairton.errors import InputError
from pairton.events import Events
from pairton.events.domain import Domain, KindDomain
from pairton.events.tags import load_table
from pairton.models.model import load_model
from pairton.reconstruction.provenance import COMPLETE, file_sha256, read_result, result_metadata, verify
from pairton.reconstruction.running import reconstruct_files
from root_files import write_tree


def kept(source, folder, model, **options):
    """How many parts a resumed run keeps."""
    done = reconstruct_files(source, folder, model, resume=True, **options)
    return done.skipped


# -- what a resumed run keeps ------------------------------------------------------------------------------


def test_parts_of_another_domain_or_temperature_are_made_again(source, tmp_path, mass_model_type):
    first = mass_model_type()
    assert (kept(source, tmp_path / "out", first), kept(source, tmp_path / "out", mass_model_type())) == (0, 1)
    other = mass_model_type(domain=Domain({"jet": KindDomain(count=(6, 7), binary=("btag",))}))
    assert kept(source, tmp_path / "out", other) == 0
    assert read_result(tmp_path / "out")["status"]["outside_domain"] > 0
    warm = mass_model_type(domain=other.domain)
    warm.temperatures = (2.0,)
    assert kept(source, tmp_path / "out", warm) == 0


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_any_change_of_a_model_counts(source, tmp_path, model_folder, engine):
    shutil.copytree(model_folder, tmp_path / "model")
    folder = tmp_path / "out"
    small = formats.read(source)[:20]
    write_events(small, tmp_path / "small.h5")

    def again():
        return kept(tmp_path / "small.h5", folder, load_model(tmp_path / "model", engine=engine, threads=1))

    assert (again(), again()) == (0, 1)
    other = load_model(tmp_path / "model", engine={"onnx": "torch"}.get(engine, "onnx"), threads=1)
    assert (kept(tmp_path / "small.h5", folder, other), again()) == (0, 0)
    said = json.loads((tmp_path / "model" / "model.json").read_text())
    said["domain"]["jet"]["count"] = [6, 7]
    (tmp_path / "model" / "model.json").write_text(json.dumps(said))
    if engine == "torch":
        assert again() == 0
    else:
        assert again() == 1  # the ONNX file carries its own
        import onnx

        graph = onnx.load(tmp_path / "model" / "model.onnx")
        graph.producer_name = "someone else"
        onnx.save(graph, tmp_path / "model" / "model.onnx")
        assert again() == 0


def test_inputs_altered_with_the_same_size_and_time_are_noticed(decays, tmp_path, mass_model):
    source = tmp_path / "in.h5"
    events = decays(6000, extra=2)
    write_events(events, source)
    folder = tmp_path / "out"
    assert (kept(source, folder, mass_model), kept(source, folder, mass_model)) == (0, 1)
    before, content = source.stat(), bytearray(source.read_bytes())
    assert len(content) > 4 * 65_536
    content[len(content) // 2] ^= 1
    source.write_bytes(content)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size
    assert formats.files.fingerprint(str(source))  # its head and tail are the same
    (problem,) = verify(folder)[1]
    assert "its content has changed" in problem
    with contextlib.suppress(InputError):  # the flipped bit may be one that HDF5 checks
        assert kept(source, folder, mass_model) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"units": "MeV"},
        {"btag": "0.7"},
        {"map": {"btag": "btag"}},
        {"keep": ["run"]},
        {"topology": "OWN"},
        {"btag": "TABLE"},
    ],
    ids=str,
)
def test_every_option_of_reading_counts(decays, source, tmp_path, mass_model, change):
    folder = tmp_path / "out"
    change = dict(change)
    if "topology" in change:  # by its content, not by its name
        tree = mass_model.topology.to_dict()
        change["topology"] = tmp_path / "own.yaml"
        change["topology"].write_text(yaml.safe_dump(tree))
    own_table = tmp_path / "own_tags.yaml"
    if is_table := change.get("btag") == "TABLE":
        table = load_table("binary_77").to_dict()
        change["btag"] = own_table
        own_table.write_text(yaml.safe_dump(table))
    assert kept(source, folder, mass_model) == 0
    assert kept(source, folder, mass_model, **change) == 0
    assert kept(source, folder, mass_model, **change) == 1
    if "topology" in change:
        tree["selection"]["event"]["btags"] = 1
        change["topology"].write_text(yaml.safe_dump(tree))
        assert kept(source, folder, mass_model, **change) == 0
    if is_table:
        table["name"] = "another"
        own_table.write_text(yaml.safe_dump(table))
        assert kept(source, folder, mass_model, **change) == 0
    assert kept(source, folder, mass_model, isolate=False, strict=True, **change) == 1  # change no answer


# -- what a result says ------------------------------------------------------------------------------------


def test_all_that_changes_an_answer_is_in_the_metadata(decays, tmp_path, model_folder, run):
    source = tmp_path / "in.parquet"
    with formats.create(source, (events := decays(30)).topology) as writer:
        writer.write(events)
    out = tmp_path / "out.parquet"
    words = ["--set", "units=GeV", "--btag", "jet_btag:0.3", "--map", "weight=jet_count"]
    words += ["--max-objects", "9", "--jets", "none"]
    table = pq.read_table(source)
    table = table.append_column("jet_count", [np.full(30, 8.0)])
    pq.write_table(table.append_column("more", [np.arange(30)]), source)
    words += ["--decoding", "beam:3", "--keep", "more", "--engine", "torch"]
    words += ["--variation", "up:pt=jet_pt"]
    run("reconstruct", source, "-o", out, "--model", model_folder, *words)
    said = result_metadata(out)
    assert said["reading"] == {
        "btag": "jet_btag:0.3",
        "keep": ["more"],
        "map": {"weight": "jet_count"},
        "units": "GeV",
        "variations": {"up": {"pt": "jet_pt"}},
    }
    found = said["decoding"], said["max_objects"], said["cuts"]
    assert found == ("beam:3", 9, {"jet": {"pt": None, "abs_eta": None}})
    (one,) = said["inputs"]
    assert (one["name"], one["format"], one["events"]) == (str(source), "parquet", 30)
    assert one["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    weights = model_folder / "model.safetensors"
    assert said["model"]["files"]["model.safetensors"] == file_sha256(weights)
    assert said["model"]["engine"].startswith("torch ")
    shown = run("inspect", out).out
    for word in ("small", "beam", "jet_btag:0.3", "GeV", "torch", one["sha256"][:12], "max_objects", "30"):
        assert word in shown, word
    assert json.loads(run("inspect", out, "--json").out) == said


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], "pt: 25.0, abs_eta: 2.5"),
        (["--jets", "none"], "pt: null, abs_eta: null"),
        (["--jets", "pt>30,abs_eta<2.4"], "pt: 30.0, abs_eta: 2.4"),
        (["--jets", "pt>30"], "pt: 30.0, abs_eta: 2.5"),
    ],
)
def test_inspect_says_which_cuts_a_result_was_made_with(source, model_folder, tmp_path, run, words, shown):
    out = tmp_path / "out.parquet"
    run("reconstruct", source, "-o", out, "--model", model_folder, *words)
    assert f"\ncuts:\n  jet: {{{shown}}}\n" in run("inspect", out).out


def test_settings_of_a_format_are_in_the_metadata(tmp_path, mass_model, decays):
    jets = decays(20).jets
    columns = {f"Jet_{name}": getattr(jets, name) for name in ("pt", "eta", "phi", "mass")}
    columns |= {"Jet_btagDeepFlavB": jets.pt % 1, "luminosityBlock": np.arange(20)}
    nano_file = write_tree(tmp_path / "nano.root", "Events", columns)
    out = tmp_path / "out.parquet"
    reconstruct_files(
        nano_file, out, mass_model, settings={"overlap": "none", "jet_id": "none"}, btag="DeepFlavB:0.3"
    )
    said = result_metadata(out)
    assert said["reading"]["settings"] == {"overlap": "none", "jet_id": "none"}
    assert said["inputs"][0]["read_as"]["btag"] == "DeepFlavB:0.3"
    assert said["inputs"][0]["read_as"]["jet_id"] == "none"
    assert said["inputs"][0]["read_as"]["pu_id"] == "none"


def test_the_first_bad_event_is_located_in_parts_too(decays, tmp_path, mass_model, monkeypatch):
    from pairton.reconstruction import parts

    monkeypatch.setattr(parts, "WINDOW", 64)
    events = decays(200)
    phi = ak.to_numpy(events.jets.phi).copy()
    phi[[150, 170], 0] = 3e38
    bad = Events(ak.with_field(events.jets, ak.from_regular(ak.Array(phi)), "phi"))
    for name, part in (("a.h5", bad[:100]), ("b.h5", bad[100:])):
        write_events(part, tmp_path / name)
    inputs = [tmp_path / "a.h5", tmp_path / "b.h5"]
    expected = {"bad_object": (str(tmp_path / "b.h5"), 50)}
    done = reconstruct_files(inputs, tmp_path / "out", mass_model, rows=64, jobs=1)
    assert done.first_bad == expected
    assert reconstruct_files(inputs, tmp_path / "out", mass_model, rows=64, resume=True).first_bad == expected
    assert reconstruct_files(inputs, tmp_path / "one.parquet", mass_model).first_bad == expected
    assert reconstruct_files(inputs, None, mass_model).first_bad == expected


# -- verify ------------------------------------------------------------------------------------------------


@pytest.fixture
def result(source, tmp_path, mass_model):
    kept(source, tmp_path / "out" / "*.h5", mass_model)
    return tmp_path / "out"


def test_a_good_result_is_said_to_be_good(result, source, tmp_path, mass_model, run):
    said = run("inspect", "--verify", result)
    assert said.out == f"{result}: 400 events, 1 parts; 1 inputs unchanged\n"
    assert said.err == ""
    source.rename(tmp_path / "elsewhere.h5")
    assert "0 inputs unchanged, 1 missing" in run("inspect", "--verify", result).out
    reconstruct_files(tmp_path / "elsewhere.h5", tmp_path / "one.root", mass_model)
    said = run("inspect", "--verify", tmp_path / "one.root").out
    assert "one file, whose own hash is not recorded; 1 inputs" in said


def remove(result, source):
    (result / "part-00000.h5").unlink()


def alter(result, source):
    with open(result / "part-00000.h5", "r+b") as file:
        file.seek(5000)
        file.write(b"xyz")


def add(result, source):
    shutil.copy(result / "part-00000.h5", result / "part-00001.h5")


def exchange_input(result, source):
    source.write_bytes(source.read_bytes() + b"x")


@pytest.mark.parametrize(
    ("deed", "line"),
    [
        (remove, "part-00000.h5: missing"),
        (alter, "part-00000.h5: changed since it was written"),
        (add, "part-00001.h5: not part of this result"),
        (exchange_input, "in.h5: its content has changed since it was read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_problem_is_a_line(result, source, run, deed, line):
    deed(result, source)
    (said,) = run("inspect", "--verify", result, code=1).err.splitlines()
    assert line in said


def test_what_is_no_result_is_one_line(source, tmp_path, result, run, refused):
    (tmp_path / "empty").mkdir()
    (result / COMPLETE).rename(tmp_path / "kept.json")
    for path, line in (
        (source, "not a result of `pairton reconstruct`"),
        (tmp_path / "none", "no such file or folder"),
        (tmp_path / "empty", "not a result in parts: it has no _reconstruction.json"),
        (result, "1 parts, but no _reconstruction.json: the run has not finished"),
    ):
        assert line in refused("inspect", "--verify", path)
    for text in ("[]", "{}", '{"parts": 3, "inputs": [], "events": 1}', "[" * 10**5, "nonsense"):
        (result / COMPLETE).write_text(text)
        refused("inspect", "--verify", result)
    (result / COMPLETE).write_text(
        '{"model": 3, "inputs": [5, {"name": "\\u001b[31m"}], "status": "x", "a": {"b": []}}'
    )
    assert "\x1b[31m" not in run("inspect", result).out


def test_workers_must_have_the_same_engine(source, tmp_path, model_folder, monkeypatch):
    from pairton._common.parallel import WorkerError
    from pairton.reconstruction import parts

    monkeypatch.setattr(parts, "engine_version", lambda library: f"{library} 0.0.1")
    with pytest.raises(WorkerError, match=r"this worker has onnxruntime 0\.0\.1, but the run was started with"):
        reconstruct_files(source, tmp_path / "out", load_model(model_folder, threads=1), jobs=1)
