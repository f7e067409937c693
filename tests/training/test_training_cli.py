"""`pairton train` from a file to a model, and what it says when it cannot."""

import os
import shutil
import signal

import h5py
import pytest
import yaml

import event_files
from pairton._common.atomic import locked
from pairton.cli import main
from pairton.cli.train import train
from pairton.models.storage import read_info
from random_objects import RECIPE

pytest.importorskip("lightning.fabric")


def write_events(path, events):
    """As others write them: without a word about topology, ids and metadata."""
    event_files.write_events(events, path)
    with h5py.File(path, "r+") as file:
        del file.attrs["pairton"], file["METADATA"]


@pytest.fixture
def place(tmp_path, decays):
    """A folder with a recipe and files of events: enough of them, too few, and without truth."""
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    events = decays(80, extra=1)
    write_events(tmp_path / "events.h5", events)
    write_events(tmp_path / "few.h5", events[:5])
    write_events(tmp_path / "data.h5", events.replace(truth=None))
    return tmp_path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["train", *map(str, arguments)])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_an_interrupted_training_is_not_done(place, capsys, monkeypatch):
    """Or a workflow would go on with a model that is not trained to its end."""
    from pairton.training.loop import Trainer

    common = (place / "recipe.yaml", "--data", place / "events.h5", "--out", place / "out")
    backward = Trainer.backward

    def terminated(self, fabric, model, drawn):
        if drawn.step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return backward(self, fabric, model, drawn)

    monkeypatch.setattr(Trainer, "backward", terminated)
    code, out, err = run(capsys, *common)
    assert code == 75, err
    assert "stopped after 2 of 4 steps" in out
    monkeypatch.undo()
    code, out, err = run(capsys, *common, "--resume")
    assert code == 0, err
    assert "4 steps; best" in out


def test_what_was_packed_is_gone_whatever_happens(place, capsys):
    few = RECIPE | {"data": {"memory_gib": 1e-9, "validation_fraction": 1e-6}}
    (place / "few.yaml").write_text(yaml.safe_dump(few))
    code, _, err = run(capsys, place / "few.yaml", "--data", place / "events.h5", "--out", place / "out")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "0 to validate" in err
    assert not (place / "out" / "packed").exists()


def test_from_a_file_to_a_model_and_on(place, capsys):
    common = (place / "recipe.yaml", "--data", place / "events.h5", "--out", place / "out")
    code, out, err = run(capsys, *common, "--threads", 1)
    assert code == 0, err
    assert "4 steps; best on validation events: e_event 0." in out
    assert "step 4/4" in err  # no terminal: a line for each validation
    info = read_info(place / "out")
    assert info.data["training_events"] + info.data["validation_events"] <= 80
    names = {path.name for path in (place / "out").iterdir()}
    assert names >= {
        "model.json",
        "model.onnx",
        "model.safetensors",
        "state.safetensors",
        "metrics.csv",
        "recipe.yaml",
    }
    code, _, err = run(capsys, *common)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "already holds a training: continue it with --resume" in err
    code, out, _ = run(capsys, *common, "--resume")
    assert code == 0
    before = (place / "out" / "recipe.yaml").read_bytes()
    code, _, err = run(capsys, *common, "--resume", "--seed", 7)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "run.seed is 7, but" in err
    assert (place / "out" / "recipe.yaml").read_bytes() == before
    fine = (place / "recipe.yaml", "-d", place / "events.h5", "-o", place / "fine", "--init", place / "out")
    code, out, err = run(capsys, *fine, "--seed", 5)
    assert code == 0, err
    assert read_info(place / "fine").recipe["run"]["seed"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.yaml", "--data", "events.h5"), "no recipe 'nowhere.yaml': neither a file nor built in"),
        (("recipe.yaml", "--data", "nowhere.h5"), "nowhere.h5"),
        (("recipe.yaml", "--data", "data.h5"), "no truth"),
        (("recipe.yaml", "--data", "few.h5"), "5 events were read"),
        (("recipe.yaml", "--data", "events.h5", "--resume"), "no state to resume from"),
        (("recipe.yaml", "--data", "events.h5", "--seed", "-1"), "run.seed is -1, but must be a whole number at"),
        (("recipe.yaml", "--data", "events.h5", "--init", "nowhere"), "no model 'nowhere'"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(place, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(place)
    code, _, err = run(capsys, *arguments, "--out", "out")
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert not list(place.glob("out/model*"))


def content(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_force_removes_nothing_before_all_checks(place, capsys):
    """A training that is to be replaced survives every mistake in the command that replaces it."""
    out, events = place / "out", place / "events.h5"
    common = ("--out", out, "--force")
    assert run(capsys, place / "recipe.yaml", "--data", events, "--out", out)[0] == 0
    before = content(out)
    (place / "wide.yaml").write_text(yaml.safe_dump(RECIPE | {"network": RECIPE["network"] | {"pair_width": 16}}))
    shutil.copytree(out, place / "other")
    for arguments, message in (
        ((place / "recipe.yaml", "--data", events, "--topology", "hh4b"), "hh4b"),
        ((place / "recipe.yaml", "--data", place / "few.h5"), "5 events were read"),
        ((place / "wide.yaml", "--data", events, "--init", place / "other"), "another network than the recipe's"),
        ((place / "recipe.yaml", "--data", events, "--resume"), "give one of them"),
    ):
        code, _, err = run(capsys, *arguments, *common)
        assert (code, message in err) == (2, True), err
        assert content(out) == before
    with locked(out):
        code, _, err = run(capsys, place / "recipe.yaml", "--data", events, *common)
    assert (code, "another run is writing there" in err) == (2, True)
    assert content(out) == before
    assert run(capsys, place / "recipe.yaml", "--data", events, "--seed", 5, *common)[0] == 0
    assert read_info(out).recipe["run"]["seed"] == 5


def test_a_training_that_cannot_start_leaves_no_folder(place, capsys):
    for more in ((), ("--folds", 2)):
        code, _, err = run(
            capsys, place / "recipe.yaml", "--data", place / "few.h5", "--out", place / "a" / "b", *more
        )
        assert (code, "5 events were read" in err) == (2, True)
        assert not (place / "a").exists()


def test_a_model_without_a_state_is_not_overwritten(place, capsys):
    (place / "out").mkdir()
    for name in ("model.json", "model.onnx"):
        (place / "out" / name).write_text("{}")
        common = (place / "recipe.yaml", "--data", place / "events.h5", "--out", place / "out")
        code, _, err = run(capsys, *common)
        assert (code, "already holds a model: give another folder, or replace it with --force" in err) == (2, True)
        (place / "out" / name).unlink()


def test_the_flags_are_these():
    assert sorted(parameter.name for parameter in train.params) == [
        "data", "devices", "folds", "force", "init", "out", "recipe", "resume", "seed", "threads", "topology",
    ]  # fmt: skip
