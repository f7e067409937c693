"""inspect and convert, as typed; every bad input ends in one line, exit code 2 and nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

from event_files import write_events
from pairton._common.atomic import Replacement, replacing
from pairton.cli.progress import progress
from pairton.errors import OutputError
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.formats import read

JETS = ("pt", "eta", "phi", "mass", "btag")


def six_jets(n: int = 4, pt: float = 60.0) -> Events:
    """Events of six, seven, six, seven, ... equal jets; the second event lacks one label, the third all."""
    counts = [6 + k % 2 for k in range(n)]
    values = {"pt": pt, "eta": 0.5, "phi": 1.0, "mass": pt / 10, "btag": 1.0}
    jets = make_jets(**{name: ak.Array([[value] * c for c in counts]) for name, value in values.items()})
    truth = np.tile(np.arange(6), (n, 1))
    truth[1:2, 2] = -1
    truth[2:3] = -1
    return Events(jets, "ttbar_allhad", truth)


def write(path: Path, events: Events | None = None, to: str | None = None) -> Path:
    return write_events(six_jets() if events is None else events, path, to)


# -- what they say -----------------------------------------------------------------------------------------


def test_inspect_json(tmp_path, run):
    path = write(tmp_path / "a.h5")
    assert json.loads(run("inspect", path, "--json").out) == {
        "format": "spanet_hdf5",
        "events": 4,
        "objects": {
            "jet": {
                "fields": ["pt", "eta", "phi", "energy", "btag"],
                "counts": {"6": 2, "7": 2},
                "usable": 26,
                "passing": {"6": 2, "7": 2},
            }
        },
        "others": [],
        "median_pt": {"jet": 60.0},
        "selected": 4,
        "present": {"W": 3, "t": 3},
        "complete": 2,
        "topology": "ttbar_allhad",
        "taggers": [],
        "tagged": {"b": 26, "jets": 26},
        "metadata": {},
    }
    other = write(tmp_path / "b.parquet", six_jets(3, pt=20.0))
    both = json.loads(run("inspect", path, other, "--json").out)
    assert (both["format"], both["events"], both["selected"]) == ("spanet_hdf5, parquet", 7, 4)
    assert both["objects"]["jet"]["counts"] == {"6": 4, "7": 3}


def test_inspect_counts_events_with_at_least_one_particle(tmp_path, run):
    events = six_jets(3)
    assert events.truth is not None
    events.truth[:] = [[0, 1, -1, 3, 4, -1], [0, -1, 2, 3, 4, 5], [-1, 1, 2, -1, 4, 5]]
    counts = json.loads(run("inspect", write(tmp_path / "a.root", events), "--json").out)
    assert counts["present"] == {"W": 2, "t": 1}
    assert counts["complete"] == 0


def test_inspect_for_people(tmp_path, run):
    out = run("inspect", write(tmp_path / "a.h5")).out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "format spanet_hdf5" in lines
    assert "events 4" in lines
    assert any(line.startswith("selected 4 100.0%") for line in lines)
    assert any(line.startswith("complete 2 50.0%") for line in lines)
    assert "units GeV median jet pT 60 GeV" in lines
    assert "2 60.0 0.50 1.00 67.9 6.0 1 t1.b" in lines  # the third jet of the first event
    assert max(map(len, out.splitlines())) <= 80


def test_inspect_and_convert_know_kinds(tmp_path, run, refused):
    (tmp_path / "tl.yaml").write_text(
        "name: tl\nevent: [tl]\nparticles: {tl: [b, l]}\nobjects: {l: lepton}\ncontext: [met]\n"
    )
    columns: dict[str, Any] = {f"jet_{name}": [[50.0, 40.0]] for name in ("pt", "eta", "phi", "mass", "btag")}
    columns |= {f"track_{name}": [[30.0]] for name in ("pt", "eta", "phi", "charge")} | {
        "met": [7.0],
        "met_phi": [1.0],
    }
    columns |= {"jet_width": [[0.5, 0.25]], "truth_tl_b": [1], "truth_tl_l": [0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    how = ["--topology", tmp_path / "tl.yaml", "--map", "lepton=track,width=jet_width"]
    said = json.loads(run("inspect", tmp_path / "a.parquet", "--json", *how).out)
    assert said["objects"]["lepton"] == {
        "fields": ["pt", "eta", "phi", "energy", "charge"],
        "counts": {"1": 1},
        "usable": 1,
        "passing": {"1": 1},
    }
    assert said["median_pt"] == {"jet": 45.0, "met": 7.0}
    assert said["metadata"]["reading"] == {"map": {"lepton": "track", "width": "jet_width"}}
    assert said["objects"]["jet"]["fields"][-1] == "width"
    assert (said["present"], said["complete"]) == ({"tl": 1}, 1)
    alone = [*how[:2], "--map", "lepton.pt=jet_pt,lepton.eta=jet_eta,lepton.phi=jet_phi"]
    alone += ["--set", "lepton_id=pt > 45", "--set", "overlap=none"]
    said = json.loads(run("inspect", tmp_path / "a.parquet", "--json", *alone).out)
    assert (said["objects"]["lepton"]["usable"], said["objects"]["lepton"]["passing"]) == (1, {"1": 1})
    assert said["others"] == ["track"]
    lines = [" ".join(x.split()) for x in run("inspect", tmp_path / "a.parquet", *alone).out.splitlines()]
    assert {"usable 1 50.0% leptons: pt > 45", "1 lepton pass 1 ████████████████████████ 100.0%"} <= set(lines)
    assert {"median 7 GeV", "also there track"} <= set(lines)
    run("convert", tmp_path / "a.parquet", tmp_path / "b.h5", *how)
    lines = [" ".join(line.split()) for line in run("inspect", tmp_path / "b.h5").out.splitlines()]
    assert "leptons 1 pt, eta, phi, energy, charge" in lines
    assert "lepton pT eta phi energy mass charge truth" in lines
    assert "met pT eta phi energy mass" in lines
    line = refused("inspect", tmp_path / "a.parquet", *how[:2])
    assert "no column for pt (lepton_pt), eta (lepton_eta), phi (lepton_phi) of leptons; found" in line
    assert line.endswith("name it with --map lepton.pt=COLUMN,lepton.eta=COLUMN,lepton.phi=COLUMN\n")


def test_convert(tmp_path, run):
    events = six_jets(5)
    source = write(tmp_path / "a.h5", events)
    for name, to in {"b.root": None, "c.parquet": None, "d.h5": "hyper_hdf5", "e.h5": None}.items():
        extra = [] if to is None else ["--to", to]
        assert run("convert", source, tmp_path / name, *extra).out == f"{tmp_path / name}: 5 events\n"
        back = read(tmp_path / name)
        assert back.ids.tolist() == events.ids.tolist()
        np.testing.assert_array_equal(back.truth, events.truth)
        source = tmp_path / name  # onwards from there
    run("convert", source, write(tmp_path / "soft.h5", six_jets(2, 20.0)), tmp_path / "f.h5", "--select")
    assert len(read(tmp_path / "f.h5")) == 5


def test_convert_with_other_names_and_kept_columns(tmp_path, run):
    names = ("pt", "eta", "phi", "energy", "btag")
    columns = {f"J_{name}": ak.to_arrow(six_jets().jets[name], extensionarray=False) for name in names}
    pq.write_table(pa.table({**columns, "run": [1, 2, 3, 4]}), tmp_path / "a.parquet")
    given = ",".join(f"{name}=J_{name}" for name in names)
    run("convert", tmp_path / "a.parquet", tmp_path / "b.h5", "--map", given, "--keep", "run")
    assert read(tmp_path / "b.h5").columns["run"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["b.h5", "b.root", "b.parquet"])
def test_a_dataset_that_is_kept(tmp_path, name, run):
    path = write(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file["REGRESSIONS/EVENT/mass"] = np.arange(4.0)
    run("convert", path, tmp_path / name, "--keep", "REGRESSIONS/EVENT/mass")
    assert ak.to_list(read(tmp_path / name).columns["REGRESSIONS/EVENT/mass"]) == [0, 1, 2, 3]


def test_a_bar_only_on_a_terminal_and_only_if_it_takes_long(monkeypatch, capsys):
    def shown(terminal: bool, patience: float) -> bool:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
        monkeypatch.setattr("pairton.cli.progress.PATIENCE", patience)
        assert list(progress([3, 4], 7, "counting", int)) == [3, 4]
        out, err = capsys.readouterr()
        assert out == ""
        return "counting" in err

    assert not shown(terminal=False, patience=-1.0)
    assert not shown(terminal=True, patience=60.0)
    assert shown(terminal=True, patience=-1.0)


def test_bad_labels_are_one_warning_or_an_error(tmp_path, run, refused):
    path = write(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file["TARGETS/t1/q1"][0] = 17
        file["TARGETS/t2/b"][3] = 1
    shutil.copy(path, tmp_path / "copy.h5")
    said = run("inspect", path, tmp_path / "copy.h5", "--json")
    assert json.loads(said.out)["complete"] == 0
    assert said.err.count("\n") == 1
    assert said.err.startswith("pairton: warning: 6 labels in 4 events out of range, repeated, or on the same")
    assert "3 labels in 2 events" in refused("inspect", path, "--strict")
    assert "--strict" in refused("convert", path, tmp_path / "b.h5", "--strict")
    assert not (tmp_path / "b.h5").exists()


# -- bad input ---------------------------------------------------------------------------------------------


def _text(path: Path) -> None:
    path.write_text("these are not the events you are looking for")


def _renamed(path: Path) -> None:
    write(path.with_suffix(".root")).rename(path)


def _hdf5(change: Callable[[Any], None], to: str | None = None) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        write(path, to=to)
        with h5py.File(path, "r+") as file:
            change(file)

    return build


def _shorter(name: str) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        rows = file[name][:-1]
        del file[name]
        file[name] = rows

    return change


def _remove(*names: str) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        for name in names:
            del file[name]

    return change


def _root(content: dict[str, Any]) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        with uproot.recreate(path) as file:
            file["note"] = "no tree here"
            if content:
                types = {name: ak.Array(values).type.content for name, values in content.items()}
                file.mktree("events", types).extend({name: ak.Array(values) for name, values in content.items()})

    return build


def _parquet(content: dict[str, Any]) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(content), path)


LISTS = {f"jet_{name}": [[50.0, 40.0]] for name in ("pt", "eta", "phi", "energy", "btag")}
UNEQUAL = {**LISTS, "jet_phi": [[1.0]]}
FEWER = {name: values for name, values in LISTS.items() if name not in ("jet_eta", "jet_energy")}

BAD: dict[str, tuple[str, Callable[[Path], None], list[str]]] = {
    "missing": ("a.h5", lambda path: None, ["no such file"]),
    "a folder": ("a.h5", lambda path: path.mkdir(), ["this is a folder"]),
    "empty": ("a.h5", lambda path: path.touch(), ["the file is empty"]),
    "empty root": ("a.root", lambda path: path.touch(), ["the file is empty"]),
    "empty parquet": ("a.parquet", lambda path: path.touch(), ["the file is empty"]),
    "text as hdf5": ("a.h5", _text, ["not HDF5, as its suffix says", "begins with b'these ar'"]),
    "text as root": ("a.root", _text, ["not ROOT, as its suffix says"]),
    "text": ("a.txt", _text, ["not HDF5 or ROOT or Parquet"]),
    "root as hdf5": ("a.h5", _renamed, ["content is ROOT, but the suffix says HDF5", "--set format"]),
    "no inputs": (
        "a.h5",
        _hdf5(_remove("INPUTS")),
        ["HDF5 file has an unknown layout", "INPUTS/<Collection>", "found"],
    ),
    "no eta, no btag": (
        "a.h5",
        _hdf5(_remove("INPUTS/Source/eta", "INPUTS/Source/btag")),
        [
            "INPUTS/Source: no column for eta, btag of jets; found MASK, mass, phi, pt",
            "--map eta=COLUMN,btag=COLUMN",
        ],
    ),
    "no mask": ("a.h5", _hdf5(_remove("INPUTS/Source/MASK")), ["INPUTS/Source has btag, eta", "but no MASK"]),
    "no target": ("a.h5", _hdf5(_remove("TARGETS/t1/b")), ["TARGETS lacks t1/b", "it has t1/q1", "--topology"]),
    "short column": ("a.h5", _hdf5(_shorter("INPUTS/Source/pt")), ["unequal length", "INPUTS/Source/pt 3"]),
    "short target": ("a.h5", _hdf5(_shorter("TARGETS/t2/b")), ["unequal length", "TARGETS/t2/b 3"]),
    "short ids": ("a.h5", _hdf5(_shorter("METADATA/event_id")), ["unequal length", "METADATA/event_id 3"]),
    "short labels": ("a.h5", _hdf5(_shorter("LABELS/JET"), "hyper_hdf5"), ["unequal length", "LABELS/JET 3"]),
    "mev": ("a.h5", lambda path: write(path, six_jets(pt=60_000.0)) and None, ["like MeV", "--set units=MeV"]),
    "no tree": ("a.root", _root({}), ["the file has note, but no tree"]),
    "no columns": ("a.root", _root(FEWER), ["eta (jet_eta)", "energy (jet_energy) or mass", "found", "jet_btag"]),
    "parquet columns": ("a.parquet", _parquet(FEWER), ["eta (jet_eta)", "found jet_pt, jet_phi, jet_btag"]),
    "unequal root": ("a.root", _root(UNEQUAL), ["unequal length", "jet_phi has 1 jets, but others have 2"]),
    "unequal parquet": ("a.parquet", _parquet(UNEQUAL), ["jet_phi has 1 jets, but others have 2"]),
    "numbers": ("a.parquet", _parquet({**LISTS, "jet_pt": [1.0]}), ["jet_pt", "one list of numbers per event"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(tmp_path, case, refused):
    name, build, said = BAD[case]
    build(tmp_path / name)
    (tmp_path / "out").mkdir()
    for arguments in (
        ["inspect", tmp_path / name],
        ["inspect", tmp_path / name, "--json"],
        ["convert", tmp_path / name, tmp_path / "out" / "b.h5"],
    ):
        line = refused(*arguments)
        assert str(tmp_path / name) in line
        for words in said:
            assert words in line
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", ["a.h5", "a.root", "a.parquet"])
def test_truncated_anywhere(tmp_path, name, refused):
    whole = write(tmp_path / name, six_jets(50)).read_bytes()
    for share in (0.01, 0.3, 0.6, 0.9, 0.99, 1.0):
        (tmp_path / name).write_bytes(whole[: min(int(len(whole) * share), len(whole) - 1)])
        assert "truncated" in refused("inspect", tmp_path / name)


def test_damaged_in_the_middle(tmp_path, refused):
    """A second input that fails takes the output of the first with it; what was there before stays."""
    good = write(tmp_path / "good.h5")
    (tmp_path / "b.h5").write_text("precious")
    bad = write(tmp_path / "bad.h5", six_jets(50))
    with h5py.File(bad) as file:
        at = file["INPUTS/Source/pt"].id.get_chunk_info(0).byte_offset
    content = bytearray(bad.read_bytes())
    content[at : at + 40] = bytes(40)
    bad.write_bytes(content)
    line = refused("convert", good, bad, tmp_path / "b.h5", "--force")
    assert "bad.h5: cannot be read as HDF5" in line
    assert (tmp_path / "b.h5").read_text() == "precious"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b.h5", "bad.h5", "good.h5"]


def test_format_overrides_the_suffix(tmp_path, run, refused):
    path = write(tmp_path / "a.h5").rename(tmp_path / "a.root")
    assert json.loads(run("inspect", path, "--set", "format=spanet_hdf5", "--json").out)["events"] == 4
    assert "not ROOT: choose another --set format" in refused("inspect", path, "--set", "format=flat_root")
    odd = path.rename(tmp_path / "events.dat")
    assert json.loads(run("inspect", odd, "--json").out)["format"] == "spanet_hdf5"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspect", "IN", "--set", "format=spanett_hdf5"], "did you mean 'spanet_hdf5'"),
        (["inspect", "IN", "--topology", "hh4bb"], "did you mean 'hh4b'"),
        (["inspect", "IN", "--topology", "hh4b"], "TARGETS lacks H1/b1"),
        (["inspect", "IN", "--map", "pt"], "write it as in pt=Jet_pt"),
        (["inspect", "IN", "--map", "pt=a", "--map", "pt=b"], "twice"),
        (["inspect", "IN", "--map", "pt=nope"], "no column for pt (nope) of jets"),
        (["convert", "IN", "FOLDER/b.h5", "--keep", " nope ,"], "no dataset nope"),
        (["export", "ttbar_allhad", "-o", "FOLDER/b.txt"], "the output must end in .onnx"),
        (["inspect", "IN", "--set", "tree=Jets"], "INPUTS has no group Jets, but Source"),
        (["inspect", "IN", "--set", "units=TeV"], "choose GeV or MeV"),
        (["inspect", "IN", "--btag", "score:high"], "must be a number"),
        (["inspect", "FOLDER/*.root"], "no file matches"),
        (["inspect", "@FOLDER/list.txt"], "list.txt: cannot be read"),
        (["convert", "IN", "IN", "--force"], "which was given as input"),
        (["convert", "IN"], "OUT is missing: pairton convert"),
        (["inspect", "https://nowhere.invalid/a.h5"], "check the address and the network"),
        (["convert", "IN", "FOLDER/b.xyz"], "unknown suffix"),
        (["convert", "IN", "FOLDER/no/b.h5"], "create it first"),
        (["convert", "IN", "FOLDER/b.h5", "--to", "hyper_root"], "suffix says HDF5"),
        (["convert", "IN", "FOLDER/b.root", "--to", "hyper_root"], "can only be read"),
    ],
)
def test_bad_options(tmp_path, arguments, said, refused):
    path = write(tmp_path / "a.h5")
    filled = [a.replace("FOLDER", str(tmp_path)) if a != "IN" else str(path) for a in arguments]
    assert said in refused(*filled)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]


def test_a_terminal_without_utf8_gets_what_it_can_show(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5")
    command = [sys.executable, "-m", "pairton", "inspect", str(path)]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "selected" in done.stdout.decode("latin-1")


# -- outputs -----------------------------------------------------------------------------------------------


def test_replacing(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(OutputError, match=r"a\.txt: cannot be written \(No space left on device\)"):
        _write_until_full(target)
    with pytest.raises(ZeroDivisionError), replacing(target) as temporary:
        temporary.write_text(str(1 / 0))
    assert target.read_text() == "old"
    with replacing(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".txt"
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(OutputError, match="cannot be written"):
        Replacement(target).commit()  # nothing was written
    with pytest.raises(OutputError, match="not a file that can be replaced"):
        Replacement(tmp_path)


def _write_until_full(target: Path) -> None:
    with replacing(target) as temporary:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")


# -- outputs that exist ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b.h5", "b.root", "b.parquet"])
def test_an_output_that_exists_is_replaced_only_with_force(tmp_path, model_folder, name, run, refused):
    source, out = write(tmp_path / "a.h5", six_jets(2, 50.0)), tmp_path / name
    verbs = {
        "convert": ["convert", source, out],
        "reconstruct": ["reconstruct", source, "-o", out, "--model", model_folder],
    }
    for arguments in verbs.values():
        out.write_text("mine")
        assert f"{out} exists: give another name, or replace it with --force" in refused(*arguments)
        assert out.read_text() == "mine"
        run(*arguments, "--force")
        assert out.read_bytes() != b"mine"


def test_parts_are_replaced_only_with_force(tmp_path, model_folder, run, refused):
    source, out = write(tmp_path / "a.h5", six_jets(2, 50.0)), tmp_path / "out"
    arguments = ["reconstruct", source, "-o", out, "--model", model_folder, "--jobs", "1"]
    run(*arguments)
    (out / "part-00007.parquet").write_text("of another run")
    assert "replace it with --force" in refused(*arguments)
    before = (out / "part-00000.parquet").stat().st_mtime_ns
    assert "1 replaced" in run(*arguments, "--force").out
    assert (out / "part-00000.parquet").stat().st_mtime_ns > before
    assert sorted(path.name for path in out.iterdir()) == ["_reconstruction.json", "part-00000.parquet"]
