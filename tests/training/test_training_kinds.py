"""Training on several kinds of objects, and on inputs beyond the b-tag."""

import awkward as ak
import numpy as np
import pytest

from pairton import formats
from pairton.errors import PairtonError, TrainingError
from pairton.events import Events
from pairton.events.inputs import Input
from pairton.events.objects import make_met, make_objects
from pairton.models.model import load_model
from pairton.models.storage import read_info
from pairton.reconstruction.running import reconstruct
from pairton.topology import parse_topology
from pairton.training import parse_recipe
from pairton.training.runs import train

pytest.importorskip("lightning.fabric")

TREE = {
    "name": "semilep",
    "event": ["t", "tl"],
    "particles": {"t": ["W", "b"], "W": ["q", "q"], "tl": ["b", "l"]},
    "objects": {"l": "lepton"},
    "context": ["met"],
    "selection": {"jets": {"pt": 25, "abs_eta": 2.5}, "leptons": {"pt": 20}},
}
SEMILEP = parse_topology(TREE)
RECIPE = {
    "topology": TREE,
    "inputs": {"jet": ["btag", {"field": "width", "transform": "log", "scale": 0.5}], "lepton": ["charge"]},
    "network": {
        "architecture": "symmetric", "blocks": 1, "single_width": 8, "single_heads": 2, "pair_width": 8,
        "pair_heads": 2, "tokens": False, "dropout": 0.0,
    },
    "loss": {"masked_edges": 0, "event_likelihood": 1},
    "data": {"train_fraction": 0.6, "validation_fraction": 0.3},
    "augmentation": {"rotate": True, "reflect": True, "energy_jitter": 0.1},
    "optimiser": {"steps": 3, "batch": 16},
    "run": {"accelerator": "cpu", "validate_every": 3, "save_every": 3, "log_every": 1},
}  # fmt: skip


def lepton_events(n=80, seed=0):
    """Four or five jets, one or two leptons, missing energy, and a column to learn from."""
    rng = np.random.default_rng(seed)
    objects, counts = {}, {}
    for kind, low, fields in (("jet", 4, ("btag", "width")), ("lepton", 1, ("charge",))):
        counts[kind] = rng.integers(low, low + 2, n)
        size = int(counts[kind].sum())
        values = {"pt": rng.uniform(30, 200, size), "eta": rng.uniform(-2, 2, size)}
        values |= {"phi": rng.uniform(-3, 3, size), "mass": rng.uniform(1, 10, size)}
        values |= {name: rng.integers(0, 2, size).astype(float) for name in fields}
        if kind == "jet":
            values["width"] = rng.uniform(0, 1, size)
        objects[kind] = make_objects(**{name: ak.unflatten(v, counts[kind]) for name, v in values.items()})
    objects["met"] = make_met(rng.uniform(5, 80, n), rng.uniform(-3, 3, n))
    orders = {kind: [iter(rng.permutation(count)) for count in counts[kind]] for kind in counts}
    truth = np.array([[next(orders[slot.kind][row]) for slot in SEMILEP.slots] for row in range(n)])
    return Events(objects, SEMILEP, truth, columns={"is_signal": (np.arange(n) % 2).astype(np.float32)})


@pytest.fixture
def data(tmp_path):
    with formats.create(tmp_path / "in.h5", SEMILEP) as writer:
        writer.write(lepton_events())
    return tmp_path / "in.h5"


def test_leptons_missing_energy_and_further_inputs(data, tmp_path):
    result = train(parse_recipe(RECIPE), [data], tmp_path / "out")
    assert result.finished
    assert np.isfinite(result.best["event_likelihood"])
    info = read_info(tmp_path / "out")
    assert info.inputs["jet"] == (Input("btag"), Input("width", "log", 0.0, 0.5))
    assert info.inputs.fields("lepton") == ("charge",)
    assert info.inputs.fields("met") == ()
    assert {kind: info.domain[kind].count for kind in SEMILEP.kinds} == {
        "jet": (4, 5),
        "lepton": (1, 2),
        "met": (1, 1),
    }
    assert info.domain["jet"].binary == ("btag",)
    assert info.domain["lepton"].pt == 20
    assert info.domain["met"].radius is None
    assert info.domain["jet"].radius == 0.4
    engines = [load_model(tmp_path / "out", engine=name, threads=1) for name in ("onnx", "torch")]
    one, other = (reconstruct(data, model) for model in engines)
    assert (one.status == 0).all()
    assert one.exact.all()
    np.testing.assert_array_equal(one.assignment, other.assignment)
    np.testing.assert_allclose(one.event_probability, other.event_probability, rtol=1e-3)
    plain = lepton_events()
    without = {
        "jet": plain.jets[["pt", "eta", "phi", "energy", "btag"]],
        **{k: plain.objects[k] for k in ("lepton", "met")},
    }
    with pytest.raises(PairtonError, match="the model needs the fields width of jets, which the events lack"):
        reconstruct(without, engines[0])


def test_fine_tuning_compares_trees_as_training_does(data, tmp_path):
    """The name, the stages, the cuts and the decay may be others; the inputs of an object may not."""
    train(parse_recipe(RECIPE), [data], tmp_path / "out")
    cuts = {"jets": {"pt": 30, "abs_eta": 2.4}}
    renamed = RECIPE | {"topology": TREE | {"name": "other", "selection": cuts, "stages": [["W"], ["t", "tl"]]}}
    assert train(parse_recipe(renamed), [data], tmp_path / "fine", init=tmp_path / "out").finished
    assert read_info(tmp_path / "fine").domain["jet"].pt == 30
    bare = RECIPE | {"topology": {key: value for key, value in TREE.items() if key != "context"}}
    assert train(parse_recipe(bare), [data], tmp_path / "bare", init=tmp_path / "out").finished
    narrow = RECIPE | {"inputs": {"jet": ["btag"]}}
    with pytest.raises(TrainingError, match="is another network than the recipe's: it has inputs"):
        train(parse_recipe(narrow), [data], tmp_path / "narrow", init=tmp_path / "out")
