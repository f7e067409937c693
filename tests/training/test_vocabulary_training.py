"""Recipes with several topologies: a vocabulary, and a mixture with P(topology) and the answer in either."""

import shutil

import awkward as ak
import h5py
import numpy as np
import onnxruntime
import pyarrow.parquet as pq
import pytest

import pairton
from pairton import formats
from pairton.cli import main
from pairton.errors import ConfigError, ModelError, TopologyError, TrainingError
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.reconstruction.provenance import result_metadata
from pairton.topology import load_topology, parse_topology

torch = pytest.importorskip("torch")
pytest.importorskip("lightning.fabric")

from pairton.export import export_model  # noqa: E402
from pairton.training import load_recipe, parse_recipe, train  # noqa: E402

ONE = {"name": "one", "event": ["H"], "particles": {"H": ["b", "b"]}}
TWO = {"name": "two", "event": ["H", "H"], "particles": {"H": ["b", "b"]}}
RECIPE = {
    "network": {
        "architecture": "symmetric", "blocks": 1, "pair_width": 16, "tokens": False, "patterns": "presence",
        "single_stream": False, "triangle_attention": False, "edges_from": "pair", "dropout": 0.0,
    },
    "loss": {"event_likelihood": 1, "masked_edges": 0, "mixture": True},
    "data": {"events": "all", "train_fraction": 0.6, "validation_fraction": 0.2},
    "optimiser": {"steps": 50, "batch": 64, "learning_rate": 1e-2, "ema": 0},
    "run": {"accelerator": "cpu", "validate_every": 50, "save_every": 50, "log_every": 30},
}  # fmt: skip


def some_events(topology, hard, count=240, n_jets=5):
    """Products of an H have b-tags; jets of events with two H are harder."""
    rng = np.random.default_rng(hard)
    slots = len(topology.slots)
    truth = np.argsort(rng.random((count, n_jets)), axis=1)[:, :slots]
    pt = np.sort(rng.uniform(30, 80, (count, n_jets)))[:, ::-1] * (3 if hard else 1)
    btag = np.zeros((count, n_jets))
    np.put_along_axis(btag, truth, 1.0, axis=1)
    ids = np.stack([np.full(count, 10 + hard), np.arange(count)], axis=1)
    angles = {"eta": rng.normal(size=pt.shape), "phi": rng.uniform(-3, 3, pt.shape)}
    jets = make_jets(pt=pt, **angles, mass=np.full(pt.shape, 5.0), btag=btag)
    return Events(jets, topology, truth=truth, ids=ids)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("mixture")
    names = []
    for hard, raw in enumerate((ONE, TWO)):
        name = folder / f"{raw['name']}.yaml"
        name.write_text("\n".join(f"{key}: {value}" for key, value in raw.items()).replace("'", ""))
        names.append(str(name))
        with formats.create(folder / f"{raw['name']}.h5", load_topology(name)) as writer:
            writer.write(some_events(load_topology(name), hard))
    recipe = parse_recipe({**RECIPE, "topologies": names})
    result = train(recipe, [folder / "one.h5", folder / "two.h5"], folder / "model")
    return folder, recipe, result


def test_topologies_and_their_answers(trained):
    folder, recipe, result = trained
    assert parse_recipe(recipe.to_dict()) == recipe
    assert {"e_event", "e_H", "event_likelihood"} <= set(result.best)
    model = str(folder / "model")
    for name, n_slots in (("one", 2), ("two", 4)):
        reco = pairton.reconstruct(folder / f"{name}.h5", model)
        columns = reco.to_columns()
        chance = np.stack([columns["topology_one"], columns["topology_two"]], axis=1)
        np.testing.assert_allclose(chance.sum(axis=1), 1, rtol=1e-5)
        likely = chance.argmax(axis=1)
        assert (likely == (name == "two")).mean() > 0.9
        assert ((reco.assignment >= 0).sum(axis=1) == 2 + 2 * likely).all()  # all particles of that topology
        in_own = pairton.reconstruct(pairton.read(folder / f"{name}.h5"), model)  # events that know their topology
        assert in_own.assignment.shape == (240, n_slots)
        assert (in_own.assignment >= 0).all()
        assert "topology_two" not in in_own.to_columns()
        by_torch = pairton.reconstruct(folder / f"{name}.h5", model, engine="torch").to_columns()
        np.testing.assert_allclose(by_torch["topology_two"], chance[:, 1], atol=1e-4)


def test_a_file_is_judged_in_its_own_topology(trained):
    folder, _, _ = trained
    for name in ("one", "two"):
        with pytest.warns(pairton.errors.PairtonWarning, match="was trained on"):
            found = pairton.evaluate(folder / f"{name}.h5", folder / "model").to_dict()
        complete = found["methods"]["model"]["efficiency"]["event"]["inclusive"]
        assert complete["total"] == 240
        assert complete["correct"] / 240 > (0.9 if name == "one" else 0.3)  # three ways to pair four tags
    asked = [folder / "one.h5", "--model", folder / "model", "--topology", folder / "two.yaml"]
    with pytest.raises(SystemExit, match="0"):
        main(["reconstruct", *map(str, asked), "-o", str(folder / "asked.parquet")])
    answers = pq.read_table(folder / "asked.parquet")
    assert min(answers["H2_b2_jet"].to_pylist()) >= 0
    certain = pairton.reconstruct(folder / "one.h5", str(folder / "model"), prior={"one": 0})
    assert (certain.to_columns()["topology_two"] == 1).all()
    assert (certain.assignment >= 0).all()


def test_files_of_a_mixture(trained, tmp_path):
    folder, recipe, _ = trained
    with pytest.raises(TrainingError, match="no file has events of two"):
        train(recipe, [folder / "one.h5"], tmp_path / "a")
    with pytest.raises(TrainingError, match=r"is of ttbar_allhad, but the recipe is for one, two: write one of"):
        train(recipe, ["sample:ttbar_allhad"], tmp_path / "b")
    with pytest.raises(ModelError, match="has several topologies, which SPANet's outputs have no place for"):
        export_model(folder / "model", tmp_path / "net.onnx", "spanet")


def test_a_mixture_is_exported_with_its_decoding(trained, tmp_path):
    folder, _, _ = trained
    about = export_model(folder / "model", tmp_path / "whole.onnx", "whole", max_objects=6)
    assert about["topologies"] == ["one", "two"]
    session = onnxruntime.InferenceSession(tmp_path / "whole.onnx", providers=["CPUExecutionProvider"])
    assert session.get_outputs()[-1].name == "topology_probability"


def test_files_that_do_not_say_what_they_are(trained, tmp_path):
    """The topology is written in front of the file, or asked for."""
    folder, recipe, result = trained
    names = {}
    for name in ("one", "two"):
        names[name] = str(shutil.copy(folder / f"{name}.h5", tmp_path))
        with h5py.File(names[name], "r+") as file:
            del file.attrs["pairton"]
    named = [f"{name}={path}" for name, path in names.items()]
    assert train(recipe, named, tmp_path / "named").best == result.best
    with pytest.raises(TrainingError, match=r"two.h5 does not say which topology .* as in --data one="):
        train(recipe, [named[0], names["two"]], tmp_path / "unnamed")
    with pytest.raises(ModelError, match="answers for one, two, and for other trees of their particles: give the"):
        pairton.evaluate(names["two"], folder / "model")
    found = pairton.evaluate(names["two"], folder / "model", topology=folder / "two.yaml", split="test").to_dict()
    assert 20 < found["methods"]["model"]["efficiency"]["event"]["inclusive"]["total"] < 80


def test_a_tree_that_was_not_in_the_training(trained, tmp_path):
    """Three H, from a network of one and two: it answers, and says that it never saw them."""
    folder, _, _ = trained
    three = {**TWO, "name": "three", "event": ["H"] * 3}
    (tmp_path / "three.yaml").write_text(str(three))
    asked = load_topology(tmp_path / "three.yaml")
    events = some_events(asked, hard=0, count=60, n_jets=7)
    with formats.create(tmp_path / "three.h5", asked) as writer:
        writer.write(events)
    with pytest.warns(pairton.errors.PairtonWarning, match="not trained on three, only on its particles"):
        summary = pairton.reconstruct_files(tmp_path / "three.h5", tmp_path / "out.h5", str(folder / "model"))
    assert summary.events == 60
    assert result_metadata(tmp_path / "out.h5")["model"]["zero_shot"] is True
    with pytest.warns(pairton.errors.PairtonWarning):
        reco = pairton.reconstruct(events, str(folder / "model"))
    assert reco.assignment.shape == (60, 6)
    filled = (reco.assignment >= 0).all(axis=1)
    tags = np.take_along_axis(np.asarray(ak.to_numpy(events.jets.btag)), reco.assignment[filled], axis=1)
    assert tags.mean() > 0.9
    about = export_model(folder / "model", tmp_path / "three.onnx", "whole", max_objects=7, topology=asked)
    assert about["patterns"] == ["H_H_H", "H_H", "H", "nothing"]
    strange = parse_topology({"name": "x", "event": ["Z"], "particles": {"Z": ["b", "b"]}})
    with pytest.raises(ModelError, match=r"does not know Z -> b b of x \(it knows H -> b b\): train one with"):
        pairton.load_model(folder / "model", topology=strange)


def test_recipes_of_mixtures():
    recipe = load_recipe("mixed_allhad")
    assert [tree.name for tree in recipe.topology.trees] == ["ttbar_allhad", "tth_allhad"]
    assert recipe.topology.types == ("W", "H", "t")
    assert load_recipe("mixed_allhad", topology="hh4b").topology.alternatives == ()
    both = {**RECIPE, "topologies": ["ttbar_allhad", "tth_allhad"]}
    for wrong, said in (
        ({**both, "topology": "hh4b"}, "both topology and topologies"),
        ({**both, "topologies": [5]}, "must list names, files or decay trees"),
        (
            {**both, "data": {"events": "complete"}},
            "set network.patterns: presence, network.tokens: false and data",
        ),
        ({**both, "heads": {"x": {"kind": "class", "of": "t"}}}, "only `of: event` is possible"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_recipe(wrong)
    with pytest.raises(TopologyError, match="same kinds of objects, but there are hh4b"):
        parse_recipe({**both, "topologies": ["hh4b", "ttbar_semilep"]})
