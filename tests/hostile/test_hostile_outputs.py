"""No verb overwrites an input, under whatever name; two runs do not write to one folder; a rename is on disk."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from event_files import write_events
from pairton._common import atomic
from pairton._common.atomic import locked, replacing
from pairton.errors import InputError, OutputError
from pairton.events.tags import load_table
from pairton.generator.card import CARDS
from pairton.reconstruction.running import reconstruct_files
from pairton.topology import load_topology


def same(path, suffix):
    return path


def symlink(path, suffix):
    (path.parent / "links").mkdir()
    link = path.parent / "links" / f"link{suffix}"
    link.symlink_to(path)
    return link


def hard_link(path, suffix):
    (path.parent / "links").mkdir()
    link = path.parent / "links" / f"link{suffix}"
    os.link(path, link)
    return link


# Verb and output -> words, and the suffix of OUT; capitals are inputs. Each of them is tried as OUT.
MODEL = ("--model", "NET.onnx", "--topology", "TREE.yaml")
VERBS = {
    "reconstruct": (("reconstruct", "DATA.h5", "-o", "OUT", *MODEL, "--btag", "TAGS.yaml", "--force"), ".h5"),
    "reconstruct @list": (("reconstruct", "@LIST.txt", "-o", "OUT", "--force"), ".h5"),
    "evaluate @list": (("evaluate", "@LIST.txt", "--json", "OUT"), ".txt"),
    "convert": (("convert", "DATA.h5", "OUT", "--topology", "TREE.yaml", "--btag", "TAGS.yaml", "--force"), ".h5"),
    "evaluate --json": (("evaluate", "DATA.h5", "--assignments", "ANSWERS.h5", *MODEL, "--json", "OUT"), ".h5"),
    "evaluate --report": (("evaluate", "DATA.h5", *MODEL, "--report", "OUT"), ".html"),
    "display": (("display", "DATA.h5", *MODEL, "-o", "OUT"), ".html"),
    "generate": (("generate", "TREE.yaml", "-n", "1", "-o", "OUT", "--card", "CARD.yaml", "--force"), ".h5"),
    "generate --lhe": (("generate", "-o", "OUT", "--lhe", "QUARKS.lhe", "--force"), ".h5"),
    "measure tags": (("measure", "tags", "DATA.h5", "--score", "btag", "--cuts", "0.5", "-o", "OUT"), ".yaml"),
    "export": (("export", "FOLDER", "-o", "OUT"), ".onnx"),
}
CASES = [
    (verb, role)
    for verb, (words, _) in VERBS.items()
    for role in dict.fromkeys(word.removeprefix("@") for word in words if word.removeprefix("@")[0].isupper())
    if role not in ("OUT", "FOLDER")
]
CASES += [("export", "FOLDER/model.safetensors"), ("export", "FOLDER/model.json")]
# a file as a page: the same path, with a suffix that the output may have
CASES += [("evaluate --report", "DATA.html"), ("display", "DATA.html")]


@pytest.fixture(scope="module")
def roles(tmp_path_factory, decays, model_folder):
    """A file for each kind of input."""
    place = tmp_path_factory.mktemp("roles")
    write_events(decays(30), place / "DATA.h5")
    shutil.copy(place / "DATA.h5", place / "ANSWERS.h5")
    shutil.copy(place / "DATA.h5", place / "DATA.html")
    shutil.copy(model_folder / "model.onnx", place / "NET.onnx")
    shutil.copytree(model_folder, place / "FOLDER")
    (place / "TREE.yaml").write_text(yaml.safe_dump(load_topology().to_dict()))
    (place / "TAGS.yaml").write_text(yaml.safe_dump(load_table("binary_77").to_dict()))
    shutil.copy(CARDS / "atlas.yaml", place / "CARD.yaml")
    (place / "LIST.txt").write_text("DATA.h5\n")
    (place / "QUARKS.lhe").write_text(
        "<LesHouchesEvents version='3.0'>\n<event>\n 1 1 1.0 91.0 0.007 0.118\n</event>\n</LesHouchesEvents>\n"
    )
    return place


@pytest.mark.parametrize("alias", [same, symlink, hard_link], ids=lambda alias: alias.__name__)
@pytest.mark.parametrize(("verb", "role"), CASES)
def test_no_verb_overwrites_an_input(roles, tmp_path, run, monkeypatch, verb, role, alias):
    """Its output may be named by the same path, or by a link that has the suffix it needs."""
    place = shutil.copytree(roles, tmp_path / "place")
    monkeypatch.chdir(place)
    words, suffix = VERBS[verb]
    if role.endswith(".html"):
        words = (*(role if word == "DATA.h5" else word for word in words), "--set", "format=spanet_hdf5")
    out = alias(place / role, suffix)
    words = [out if word == "OUT" else word for word in words]
    said = run(*words, code=2).err.splitlines()[-1]  # warnings may come before
    if alias is not same or Path(role).suffix == suffix:
        assert any(word in said for word in ("input", "exists", "card")), said
    for path in roles.rglob("*.*"):
        assert (place / path.relative_to(roles)).read_bytes() == path.read_bytes(), path


def test_no_verb_overwrites_its_model(source, model_folder, tmp_path, run):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    for name in ("model.json", "model.onnx"):
        said = run("evaluate", source, "--model", folder, "--json", folder / name, code=2).err
        assert "which was given as input" in said
        assert (folder / name).read_bytes() == (model_folder / name).read_bytes()


def test_a_part_does_not_replace_an_input(source, tmp_path, mass_model):
    folder = tmp_path / "d"
    folder.mkdir()
    reconstruct_files(source, None, mass_model)
    part = folder / "part-00000.h5"
    shutil.copy(source, part)
    before = part.read_bytes()
    with pytest.raises(InputError, match="is an input file"):
        reconstruct_files(part, folder / "*.h5", mass_model, resume=True)
    assert part.read_bytes() == before


@pytest.mark.parametrize("how", [{"resume": True}, {"force": True}, {}], ids=["resume", "force", "new"])
def test_an_input_with_the_name_of_a_part_is_not_removed(source, tmp_path, mass_model, how):
    """As a part that an earlier run left, and this one does not make."""
    folder = tmp_path / "d"
    folder.mkdir()
    other = folder / "part-00007.h5"
    shutil.copy(source, other)
    with pytest.raises(InputError, match="is an input file"):
        reconstruct_files(other, folder / "*.h5", mass_model, **how, jobs=1)
    assert other.read_bytes() == source.read_bytes()


def test_files_whose_names_only_begin_like_those_of_parts_stay(source, tmp_path, mass_model):
    folder = tmp_path / "d"
    reconstruct_files(source, folder, mass_model, jobs=1)
    for name in ("part-list.txt", "part-one.h5"):
        (folder / name).write_text("mine")
    reconstruct_files(source, folder, mass_model, force=True, jobs=1)
    assert (folder / "part-list.txt").read_text() == (folder / "part-one.h5").read_text() == "mine"


def test_a_training_does_not_replace_the_model_that_it_starts_from(source, tmp_path, refused, model_folder):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    for out in (folder, tmp_path / "other" / ".." / "model"):
        said = refused("train", "cpu", "--data", source, "--init", folder, "--out", out, "--force")
        assert "holds the model to start from" in said
    for path in model_folder.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()


def test_a_training_does_not_replace_its_recipe(source, tmp_path, refused):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "recipe.yaml").write_text("base: cpu\n")
    said = refused(
        "train", tmp_path / "out" / "recipe.yaml", "--data", source, "--out", tmp_path / "out", "--force"
    )
    assert "which was given as input" in said
    assert (tmp_path / "out" / "recipe.yaml").read_text() == "base: cpu\n"


def test_truth_against_itself_is_said(source, run):
    assert "its truth is scored against itself" in run("evaluate", source, "--assignments", source).err


HOLDER = """
import sys, time
from pathlib import Path
from pairton._common.atomic import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_two_runs_do_not_write_to_one_folder(source, tmp_path, mass_model):
    folder = tmp_path / "out"
    folder.mkdir()
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(OutputError, match="another run is writing there"):
                reconstruct_files(source, folder, mass_model, jobs=1)
        finally:
            holder.kill()
    reconstruct_files(source, folder, mass_model, jobs=1)  # a lock ends with its process
    assert sorted(path.name for path in folder.iterdir()) == ["_reconstruction.json", "part-00000.parquet"]
    with locked(folder), pytest.raises(OutputError, match="another run"), locked(folder):
        time.sleep(0)


def test_the_folder_is_synced_after_a_rename(tmp_path, monkeypatch):
    done = []
    replace, fsync = os.replace, os.fsync

    def note_replace(*names):
        done.append("rename")
        replace(*names)

    def note_sync(descriptor):
        done.append("folder" if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir() else "file")
        fsync(descriptor)

    monkeypatch.setattr(atomic.os, "replace", note_replace)
    monkeypatch.setattr(atomic.os, "fsync", note_sync)
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("x")
    assert done == ["file", "rename", "folder"]
