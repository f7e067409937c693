"""Recipes with several topologies: a vocabulary, and a mixture with P(topology) and the answer in either."""

import shutil
from contextlib import nullcontext

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
from pairton.events.objects import make_jets, make_objects
from pairton.reconstruction.provenance import result_metadata
from pairton.topology import load_topology, parse_topology

torch = pytest.importorskip("torch")
pytest.importorskip("lightning.fabric")

from pairton.export import export_model  # noqa: E402
from pairton.training import load_recipe, loop, parse_recipe, train  # noqa: E402
from random_objects import TRIANGLES  # noqa: E402

ONE = {"name": "one", "event": ["H"], "particles": {"H": ["b", "b"]}}
TWO = {"name": "two", "event": ["H", "H"], "particles": {"H": ["b", "b"]}}
RECIPE = {
    "network": TRIANGLES | {"patterns": "presence"},
    "loss": {"event_likelihood": 1, "masked_edges": 0, "mixture": True},
    "data": {"events": "all", "train_fraction": 0.6, "validation_fraction": 0.2},
    "optimiser": {"steps": 50, "batch": 64, "learning_rate": 1e-2, "ema": 0},
    "run": {"accelerator": "cpu", "validate_every": 50, "save_every": 50, "log_every": 30},
}


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
        pairton.evaluate(names["one"], folder / "model")
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
    many = parse_topology({**TWO, "name": "many", "event": ["H"] * 12})
    with (
        pytest.warns(pairton.errors.PairtonWarning, match="not trained on many"),
        pytest.raises(ModelError, match="many has 24 slots of one kind, but sums over all its"),
    ):
        pairton.reconstruct(events.replace(topology=many, truth=None), str(folder / "model"))


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


LEPTONIC = {
    "name": "leptonic", "event": ["tl", "H"], "objects": {"l": "lepton"}, "context": ["met"],
    "particles": {"tl": ["b", "l"], "H": ["b", "b"]},
}  # fmt: skip


def leptonic_events(tree, count=200):
    """The lepton and the hardest jet are those of tl, the two softest jets those of H."""
    events = some_events(load_topology("hh4b"), hard=1, count=count, n_jets=4)
    rng = np.random.default_rng(3)
    objects = {"jet": events.jets}
    for kind in ("lepton", "met"):
        pt, phi = rng.uniform(30, 90, (count, 1)), rng.uniform(-3, 3, (count, 1))
        eta = rng.normal(size=(count, 1)) * (kind == "lepton")
        objects[kind] = make_objects(pt=pt, eta=eta, phi=phi, mass=0 * pt)
    objects["jet"] = ak.with_field(events.jets, ak.local_index(events.jets.pt) % 2, "btag")
    ids = events.ids + np.array([[5, 0]], np.uint64)
    return Events(objects, tree, truth=np.tile([0, 0, 2, 3], (count, 1)), ids=ids)


def test_a_network_of_topologies_with_different_kinds(trained, tmp_path):
    """Trained, resumed, exported, fine-tuned, and asked for either topology and for one that it never saw."""
    folder, _, _ = trained
    (tmp_path / "leptonic.yaml").write_text(str(LEPTONIC))
    tree = load_topology(tmp_path / "leptonic.yaml")
    with formats.create(tmp_path / "leptonic.h5", tree) as writer:
        writer.write(leptonic_events(tree))
    raw = {**RECIPE, "topologies": [str(tmp_path / "leptonic.yaml"), TWO], "loss": {"event_likelihood": 1}}
    raw["inputs"] = {"jet": ["btag", {"field": "cut_pt", "offset": 25, "scale": 5}]}
    raw |= {"optimiser": {**RECIPE["optimiser"], "steps": 12}, "run": {**RECIPE["run"], "save_every": 4}}
    files = [tmp_path / "leptonic.h5", folder / "two.h5"]
    whole = train(parse_recipe(raw), files, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "interruptible", lambda: nullcontext(lambda: True))  # ends after its first step
        stopped = train(parse_recipe(raw), files, tmp_path / "parts")
    assert stopped.step == 1
    assert train(parse_recipe(raw), files, tmp_path / "parts", resume=True).best == whole.best

    lone = parse_topology({**TWO, "name": "lone", "event": ["tl"], "particles": {"tl": ["b", "l"]}, **{
        key: LEPTONIC[key] for key in ("objects", "context")
    }})  # fmt: skip
    events = {tree.name: leptonic_events(tree), "two": pairton.read(folder / "two.h5")}
    events["lone"] = events["leptonic"].replace(topology=lone, truth=events["leptonic"].truth[:, :2])
    for name, given in events.items():
        with pytest.warns(pairton.errors.PairtonWarning) if name == "lone" else nullcontext():
            onnx = pairton.reconstruct(given, str(tmp_path / "whole"))
            by_torch = pairton.reconstruct(given, str(tmp_path / "whole"), engine="torch")
        np.testing.assert_array_equal(onnx.assignment, by_torch.assignment)
        np.testing.assert_allclose(onnx.event_probability, by_torch.event_probability, atol=1e-4)
        assert np.isfinite(onnx.event_probability).all()
    with pytest.raises(ModelError, match="answers for leptonic, two, and for other trees of their particles"):
        pairton.reconstruct(events["two"].jets, str(tmp_path / "whole"))

    own = {**raw, "topology": str(tmp_path / "leptonic.yaml"), "optimiser": {**raw["optimiser"], "steps": 1}}
    own["optimiser"]["learning_rate"] = 1e-9
    own.pop("topologies")
    for patterns in (True, "presence"):
        own["network"] = {**raw["network"], "patterns": patterns}
        train(parse_recipe(own), files[:1], tmp_path / str(patterns), init=tmp_path / "whole")
        start = pairton.reconstruct(events["leptonic"], str(tmp_path / str(patterns)))
        expected = pairton.reconstruct(events["leptonic"], str(tmp_path / "whole"))
        np.testing.assert_array_equal(start.assignment, expected.assignment)
