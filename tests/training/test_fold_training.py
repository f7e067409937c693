"""`pairton train --folds`: every fold is trained on the events of the others, and the folder is a model."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from pairton import formats, read
from pairton.cli import main
from pairton.errors import ConfigError, OutputError, PairtonWarning, TrainingError
from pairton.events.splits import fold_of
from pairton.models.storage import read_info
from pairton.topology import load_topology

pytest.importorskip("lightning.fabric")

from pairton.training import parse_recipe, runs, train
from pairton.training.data import pack
from pairton.training.loop import Trainer
from pairton.training.measuring import measured
from random_objects import TRIANGLES

RECIPE = {
    "topology": "ttbar_allhad",
    "network": TRIANGLES | {"pair_width": 8, "dropout": 0.25},
    "loss": {"event_likelihood": 1.0, "masked_edges": 0.0},
    "data": {"train_fraction": 0.6, "validation_fraction": 0.4},
    "optimiser": {"steps": 3, "batch": 16},
    "run": {"accelerator": "cpu", "validate_every": 3, "save_every": 1, "log_every": 1},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory, decays):
    events = decays(200, extra=1, seed=3)
    path = tmp_path_factory.mktemp("data") / "events.h5"
    with formats.create(path, events.topology) as writer:
        writer.write(events.replace(ids=np.stack([np.full(200, 5), np.arange(200)], axis=1).astype(np.uint64)))
    return str(path)


@pytest.fixture(scope="module")
def trained(file, tmp_path_factory):
    """A model in two folds, and the ids of the events that each network has met, in training and validation."""
    met = []
    init = Trainer.__init__

    def watched(self, recipe, train, validation, out, **more):
        groups = [*train.groups.values(), *validation.groups.values()]
        met.append((out.name, np.concatenate([group.ids for group in groups])))
        init(self, recipe, train, validation, out, **more)

    out = tmp_path_factory.mktemp("model") / "two"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "__init__", watched)
        result = train(parse_recipe(RECIPE), [file], out, folds=2)
    return out, met, result


def test_folds_have_the_classes_of_all_events(file, tmp_path):
    """A class that occurs only in fold 0 is an output of both networks."""
    events = read(file)
    labels = np.arange(len(events)) % 2
    labels[np.flatnonzero(fold_of(events.ids, 2) == 0)[:5]] = 2
    recipe = parse_recipe({**RECIPE, "heads": {"sort": {"kind": "class"}}})
    given = {"folder": tmp_path, "config": recipe.data, "columns": ("sort",)}
    whole, _ = pack([events.replace(columns={"sort": labels})], recipe.topology, recipe.inputs, **given)
    for fold in range(2):
        part = whole.without((fold, 2), tmp_path, 1e9)
        assert max(group.columns["sort"].max() for group in part.groups.values()) == (1, 2)[fold]
        assert measured(recipe, part).specs["sort"].classes == 3


def test_no_network_meets_events_of_its_fold(trained, file, tmp_path):
    """Of the events that a training without folds would meet, it has those of the other folds, and all of them."""
    out, met, result = trained
    recipe = parse_recipe(RECIPE)
    parts = pack([read(file)], recipe.topology, recipe.inputs, folder=tmp_path, config=recipe.data)
    without = [np.concatenate([group.ids for group in part.groups.values()]) for part in parts]
    assert result.finished
    assert [name for name, _ in met] == ["fold0", "fold1"]
    for k, (_, ids) in enumerate(met):
        train, validation = (part[fold_of(part, 2) != k] for part in without)
        assert sorted(ids.tolist()) == sorted([*train.tolist(), *validation.tolist()])
        assert len(ids) > 20
        data = read_info(out / f"fold{k}").data
        assert (data["fold"], data["folds"]) == (k, 2)
        assert data["training_events"] == len(train)


def test_the_folder_reconstructs_evaluates_and_is_shown(trained, file, tmp_path, capsys):
    """End to end by commands: the network of each event is the one that was not trained on it."""
    out, met, _ = trained

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return said.out + said.err

    run("reconstruct", file, "-o", tmp_path / "out.parquet", "--model", out)
    import pyarrow.parquet as pq

    used = pq.read_table(tmp_path / "out.parquet")["model_fold"].to_numpy()
    events = read(file)
    for k in range(2):
        seen = {tuple(row) for row in met[k][1].tolist()}
        assert not seen.intersection(map(tuple, events.ids[used == k].tolist()))
        assert seen.intersection(map(tuple, events.ids[used != k].tolist()))
    assert "trained on" not in run("evaluate", file, "--model", out)  # no warning
    assert "trained on up to" in run("evaluate", file, "--model", out / "fold0")
    assert "folds       2" in run("list", "models", out)


def test_the_best_is_the_mean_of_the_folds(trained):
    out, _, result = trained
    each = [read_info(out / f"fold{k}").metrics["event_likelihood"] for k in range(2)]
    assert each[0] != each[1]
    assert result.best["event_likelihood"] == pytest.approx(np.mean(each))


@pytest.mark.long
@pytest.mark.parametrize("at", [(0, 1), (1, 0)])
def test_an_interrupted_training_goes_on(trained, file, tmp_path, monkeypatch, at):
    """In the first fold or in the second, and with the same result."""
    backward = Trainer.backward

    def terminated(self, fabric, model, drawn):
        if (self.train_events.fold[0], drawn.step) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return backward(self, fabric, model, drawn)

    monkeypatch.setattr(Trainer, "backward", terminated)
    out, recipe = tmp_path / "two", parse_recipe(RECIPE)
    stopped = train(recipe, [file], out, folds=2)
    assert not stopped.finished
    assert (stopped.fold, stopped.step) == ((at[0], 2), at[1] + 1)
    monkeypatch.undo()
    with pytest.raises(OutputError, match="continue it with --resume, or start again with --force"):
        train(recipe, [file], out, folds=2)
    with pytest.raises(TrainingError, match="was started with 2 folds, not 3"):
        train(recipe, [file], out, folds=3, resume=True)
    assert train(recipe, [file], out, folds=2, resume=True).finished
    for k in range(2):
        weights = [folder / f"fold{k}" / "model.safetensors" for folder in (out, trained[0])]
        assert weights[0].read_bytes() == weights[1].read_bytes()


def test_an_interrupt_in_the_last_step_of_a_fold_ends_the_run(file, tmp_path, monkeypatch):
    backward = Trainer.backward

    def terminated(self, fabric, model, drawn):
        if (self.train_events.fold[0], drawn.step) == (0, 2):
            os.kill(os.getpid(), signal.SIGTERM)
        return backward(self, fabric, model, drawn)

    monkeypatch.setattr(Trainer, "backward", terminated)
    stopped = train(parse_recipe(RECIPE), [file], tmp_path / "two", folds=2)
    assert (stopped.fold, stopped.step, stopped.finished) == ((0, 2), 3, False)
    assert not (tmp_path / "two" / "fold1").exists()


def test_folders_are_not_mixed(trained, file, tmp_path, monkeypatch):
    out, _, _ = trained
    recipe = parse_recipe(RECIPE)
    with pytest.raises(OutputError, match="has a training in folds: give --folds, or another folder"):
        train(recipe, [file], out, force=True)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(OutputError, match="has a training without folds"):
        train(recipe, [file], tmp_path, folds=2, force=True)
    with pytest.raises(OutputError, match="no state of a fold to resume from"):
        train(recipe, [file], tmp_path / "new", folds=2, resume=True)
    with pytest.raises(OutputError, match="holds the model to start from"):
        train(recipe, [file], out, folds=2, force=True, init=out / "fold0")
    assert (out / "fold0" / "state.safetensors").exists()
    for folds in (1, 101):
        with pytest.raises(ConfigError, match=f"folds is {folds}, but must be from 2 to 100"):
            train(recipe, [file], tmp_path / "new", folds=folds)


def test_folds_of_an_earlier_training_do_not_survive_force(trained, file, tmp_path, monkeypatch):
    """Not even one without a state; otherwise a training that stops in fold 0 leaves a model of old and new."""
    shutil.copytree(trained[0], tmp_path / "two")
    (tmp_path / "two" / "fold1" / "state.safetensors").unlink()
    monkeypatch.setattr(Trainer, "backward", lambda *_: pytest.fail("stopped"))
    with pytest.raises(pytest.fail.Exception, match="stopped"):
        train(parse_recipe(RECIPE), [file], tmp_path / "two", folds=2, force=True)
    assert not list((tmp_path / "two").glob("fold*/model*"))


def test_a_start_that_has_seen_the_events_is_announced(trained, file, tmp_path):
    out, _, _ = trained
    assert runs._start(out, (1, 2)) == out / "fold1"
    with pytest.raises(TrainingError, match="has 2 folds: start 3 folds from a model with as many"):
        runs._start(out, (1, 3))
    topology = load_topology()
    recipe = parse_recipe(RECIPE)
    whole, _ = pack([read(file)], topology, recipe.inputs, folder=tmp_path, config=recipe.data)
    events = whole.without((1, 2), tmp_path, 1e9)
    runs._check_init(out / "fold1", events, 0.6)
    with pytest.warns(PairtonWarning, match="trained on events of the same files"):
        runs._check_init(out / "fold0", events, 0.6)
    with pytest.warns(PairtonWarning, match=r"has seen validation and test events; set .* to 0.6"):
        runs._check_init(out / "fold1", events, 0.5)
    other = replace(events, sources=(6,))
    runs._check_init(out / "fold0", other, 0.5)


@pytest.mark.long
def test_the_lines_of_the_docs_run(file, tmp_path, capsys, monkeypatch):
    """With a small recipe in the place of `cpu`."""
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
    lines = page.split("## Folds")[1].split("```sh")[1].split("```")[0].strip().splitlines()
    assert len(lines) == 4
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    (tmp_path / "events.h5").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    said = []
    for line in lines:
        with pytest.raises(SystemExit) as ended:
            main(line.replace("train cpu", "train recipe.yaml").split()[1:])
        said.append(capsys.readouterr())
        assert ended.value.code == 0, said[-1].err
    assert "3 steps in each of 2 folds; best on validation events, on average: e_event" in said[0].out
    assert "trained on" not in said[1].err
    assert (tmp_path / "step_fold0.onnx").is_file()
    assert (tmp_path / "step_fold1.onnx").is_file()
