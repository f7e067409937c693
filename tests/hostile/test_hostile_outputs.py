"""No verb overwrites an input, under whatever name; two runs do not write to one folder; a rename is on disk."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pairton
from pairton._common import atomic
from pairton._common.atomic import locked, replacing
from pairton.errors import OutputError
from pairton.reconstruction.parts import reconstruct_parts
from pairton.reconstruction.streaming import reconstruct_files


def same(path):
    return path


def symlink(path):
    (path.parent / "links").mkdir()
    link = path.parent / "links" / path.name
    link.symlink_to(path)
    return link


def hard_link(path):
    (path.parent / "links").mkdir()
    link = path.parent / "links" / path.name
    os.link(path, link)
    return link


# verb, with IN for the input and OUT for another name of it; the suffix that OUT must have
VERBS = {
    "reconstruct": (["reconstruct", "IN", "-o", "OUT"], ".h5"),
    "convert": (["convert", "IN", "OUT"], ".h5"),
    "evaluate --json": (["evaluate", "IN", "--json", "OUT"], ".h5"),
    "evaluate --report": (["evaluate", "IN", "--report", "OUT"], ".html"),
    "evaluate --assignments --json": (["evaluate", "GOOD", "--assignments", "IN", "--json", "OUT"], ".h5"),
    "display": (["display", "IN", "-o", "OUT"], ".html"),
    "generate": (["generate", "-n", "1", "-o", "OUT", "--card", "IN"], ".h5"),
}


@pytest.mark.parametrize("alias", [same, symlink, hard_link], ids=lambda alias: alias.__name__)
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_overwrites_an_input(source, tmp_path, refused, model_folder, verb, alias):
    arguments, suffix = VERBS[verb]
    path = tmp_path / f"given{suffix}"
    shutil.copy(source, path)
    before = hashlib.sha256(path.read_bytes()).digest()
    names = {"IN": path, "OUT": alias(path), "GOOD": source}
    extra = ["--model", model_folder] if arguments[0] in ("reconstruct", "display") else []
    extra += ["--format", "spanet_hdf5"] if suffix == ".html" else []
    said = refused(*[names.get(word, word) for word in arguments], *extra)
    assert any(word in said for word in ("input", "exists", "card")), said
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert hashlib.sha256(names["OUT"].read_bytes()).digest() == before


def test_no_verb_overwrites_its_model(source, refused, model_folder, tmp_path):
    shutil.copytree(model_folder, tmp_path / "model")
    for name in ("model.json", "model.onnx"):
        before = (tmp_path / "model" / name).read_bytes()
        command = ["evaluate", source, "--model", tmp_path / "model", "--json", tmp_path / "model" / name]
        assert "which was given as input" in refused(*command)
        assert (tmp_path / "model" / name).read_bytes() == before


def test_a_part_does_not_replace_an_input(source, tmp_path, mass_model):
    folder = tmp_path / "d"
    folder.mkdir()
    reconstruct_files(source, None, mass_model)
    part = folder / "part-00000.h5"
    shutil.copy(source, part)
    before = part.read_bytes()
    with pytest.raises(OutputError, match="this is the input"):
        reconstruct_parts(part, folder, mass_model, suffix=".h5", resume=True)
    assert part.read_bytes() == before


@pytest.mark.parametrize("how", [{"resume": True}, {"force": True}, {}], ids=["resume", "force", "new"])
def test_an_input_with_the_name_of_a_part_is_not_removed(source, tmp_path, mass_model, how):
    """As a part that an earlier run left, and this one does not make."""
    folder = tmp_path / "d"
    folder.mkdir()
    other = folder / "part-00007.h5"
    shutil.copy(source, other)
    with pytest.raises(OutputError, match="this is the input"):
        reconstruct_parts(other, folder, mass_model, suffix=".h5", **how)
    assert other.read_bytes() == source.read_bytes()


def test_files_whose_names_only_begin_like_those_of_parts_stay(source, tmp_path, mass_model):
    folder = tmp_path / "d"
    reconstruct_parts(source, folder, mass_model)
    for name in ("part-list.txt", "part-one.h5"):
        (folder / name).write_text("mine")
    reconstruct_parts(source, folder, mass_model, force=True)
    assert (folder / "part-list.txt").read_text() == (folder / "part-one.h5").read_text() == "mine"


def test_truth_against_itself_is_said(source, capsys):
    from pairton.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(source), "--assignments", str(source)])
    assert ended.value.code == 0
    assert "its truth is scored against itself" in capsys.readouterr().err


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
    environment = os.environ | {"PYTHONPATH": str(Path(pairton.__file__).parents[1])}
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        try:
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(OutputError, match="another run is writing there"):
                reconstruct_parts(source, folder, mass_model)
        finally:
            holder.kill()
    reconstruct_parts(source, folder, mass_model)  # a lock ends with its process
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
