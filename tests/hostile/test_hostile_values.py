"""Values that no detector measures, in the objects and in what a network says: one bad event costs one row."""

import awkward as ak
import numpy as np
import pytest

import pairton
from event_files import write_events
from pairton.decoding import DECODINGS, HYPER, decode
from pairton.decoding.patterns import plan_of
from pairton.decoding.terms import triplet_types
from pairton.events import Events, Status
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.export import export_network
from pairton.models.model import load_model
from pairton.models.storage import ModelInfo, save_model
from pairton.topology import load_topology

TTBAR = load_topology()
FIELDS = ("pt", "eta", "phi", "energy", "btag", "width", "charge")
SIZES = (0.0, 5e-324, 1e-45, 1e-40, 1e-38, 1e5, 1e8, 1e15, 1e20, 1e30, 1e38, 3e38, 1e39, 1e300, np.inf)
VALUES = (*SIZES, *(-size for size in SIZES), np.nan)
GOOD = 3  # events without an odd value, at the end


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_network):
    """A model with two further inputs, one of them as its logarithm."""
    import torch

    from pairton.network import Network, NetworkConfig

    _, info = small_network(TTBAR)
    raw = {
        "jet": ["btag", {"field": "width", "transform": "log"}, {"field": "charge", "offset": 1, "scale": 1e-3}]
    }
    inputs = Inputs.parse(raw, TTBAR)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Network(TTBAR, NetworkConfig(**info.network), inputs).eval()
    info = ModelInfo(TTBAR, info.network, info.domain, inputs, network.outputs, "steps")
    path = tmp_path_factory.mktemp("values")
    save_model(path, {name: tensor.numpy() for name, tensor in network.state_dict().items()}, info)
    export_network(network, info, path / "model.onnx")
    return path


@pytest.fixture(scope="module")
def columns(decays):
    """An event for each odd value of each field, in one of its jets, then some good ones."""
    good = decays(1, seed=3).jets
    n = len(FIELDS) * len(VALUES) + GOOD
    rng = np.random.default_rng(0)
    found = {
        name: np.repeat(ak.to_numpy(good[name]).astype(np.float64), n, axis=0)
        for name in ("pt", "eta", "phi", "energy", "btag")
    }
    found["pt"] += 30  # no jet is cut away, unless its value is odd
    found["energy"] = found["pt"] * np.cosh(found["eta"]) + 5
    found |= {name: np.repeat(rng.random((1, found["pt"].shape[1])), n, axis=0) for name in ("width", "charge")}
    for k, field in enumerate(FIELDS):
        found[field][k * len(VALUES) : (k + 1) * len(VALUES), 2] = VALUES
    return found


def check(reco, n):
    """Every answer is of numbers; the good events have the same answer as each other, and are ok."""
    answered = (reco.assignment >= 0).all(axis=1)
    chances = np.column_stack([reco.event_probability, reco.particle_probability])
    assert np.isfinite(chances[answered]).all()
    assert all(np.isfinite(values[answered]).all() for values in reco.momenta.values())
    unanswered = np.isin(reco.status, [Status.BAD_OBJECT, Status.BAD_OUTPUT, Status.TOO_FEW_OBJECTS])
    np.testing.assert_array_equal(answered, ~unanswered)
    assert len(reco) == n
    assert (reco.status[-GOOD:] == Status.OK).all()
    by_field = reco.status[:-GOOD].reshape(len(FIELDS), len(VALUES))
    far = np.abs(VALUES) >= 1e5
    assert (by_field[FIELDS.index("phi"), far] == Status.BAD_OBJECT).all()
    huge = ~(np.abs(VALUES) <= 3.4e38)  # NaN too: no number to the network
    for name in ("energy", "btag", "width", "charge"):
        assert (by_field[FIELDS.index(name), huge] == Status.BAD_OBJECT).all()
    return reco


@pytest.mark.parametrize("decoding", ["exact", "steps"])
@pytest.mark.parametrize("engine", ["onnx", "torch"])
@pytest.mark.parametrize("cuts", [True, False], ids=["cuts", "no cuts"])
def test_odd_values_cost_one_row(folder, columns, engine, decoding, cuts):
    objects = {name: ak.from_regular(ak.Array(values)) for name, values in columns.items()}
    events = Events(pairton.make_objects(**objects))
    model = load_model(folder, engine=engine, threads=1)
    reco = check(pairton.reconstruct(events, model, decoding=decoding, cuts=cuts), len(events))
    same = (reco.assignment[-GOOD:] == reco.assignment[-1]).all()
    assert same
    alone = pairton.reconstruct(events[-GOOD:], model, decoding=decoding, cuts=cuts)
    np.testing.assert_array_equal(reco.assignment[-GOOD:], alone.assignment)
    np.testing.assert_allclose(reco.event_probability[-GOOD:], alone.event_probability, rtol=1e-4)


@pytest.mark.parametrize("suffix", [".h5", ".root", ".parquet"])
def test_odd_values_in_files_cost_one_row_and_are_located(folder, columns, tmp_path, run, suffix):
    objects = {name: ak.from_regular(ak.Array(values)) for name, values in columns.items()}
    events = Events(pairton.make_objects(**objects))
    write_events(events[-GOOD:], tmp_path / f"good{suffix}")
    write_events(events, tmp_path / f"odd{suffix}")
    out = tmp_path / "out.parquet"
    inputs = [tmp_path / f"good{suffix}", tmp_path / f"odd{suffix}"]
    for more in ([], ["--jobs", "1"]):
        target = tmp_path / "parts" if more else out
        words = ["reconstruct", *inputs, "-o", target, "--model", folder, "--threads", "1", *more]
        said = run(*words).err
        first = FIELDS.index("pt") * len(VALUES) + VALUES.index(1e5)
        assert f"(bad_object), the first in {inputs[1]}, row {first}" in said
        assert "Traceback" not in said
        assert "RuntimeWarning" not in said


SAID = (1e3, 1e10, 1e20, 1e29, 1e31, 1e37, 1e38, 3e38, np.inf, np.nan)


@pytest.mark.parametrize("scale", SAID)
@pytest.mark.parametrize(
    "decoding", [name for name, one in DECODINGS.items() if one.reads == "edges" and name != HYPER]
)
@pytest.mark.parametrize(("name", "n_nodes"), [("ttbar_allhad", 7), ("hh4b", 5)])
def test_large_outputs_give_a_probability_or_no_answer(name, n_nodes, decoding, scale):
    """The second of three events gets numbers of that size, for every output in turn."""
    topology = load_topology(name)
    types, triplets = len(topology.types), len(triplet_types(topology))
    rng = np.random.default_rng(1)
    shapes = {"edges": (types, n_nodes, n_nodes), "triplets": (triplets, *[n_nodes] * 3)}
    shapes["patterns"] = (len(plan_of(topology).patterns),)
    calm = {key: rng.normal(size=shape).astype(np.float32) for key, shape in shapes.items() if shape[0]}
    signs = {key: rng.choice([-1, 1], shape) for key, shape in shapes.items()}
    nodes = Nodes.full({"jet": np.ones((3, n_nodes, 5), np.float32)})
    for odd in [None, *calm]:

        def predict(some, tokens, odd=odd):
            outputs = {key: np.stack([value] * len(some)) for key, value in calm.items()}
            if odd is not None:
                outputs[odd][some.rows == 1] = signs[odd] * np.float32(scale)
            return outputs

        for temperature in (None, 1e-3, 1e3):
            count = DECODINGS[decoding].n_temperatures(topology)
            given = None if temperature is None else [temperature] * count
            found = decode(predict, topology, nodes, decoding=decoding, temperatures=given)
            answered = (found.assignment >= 0).all(axis=1)
            assert answered[[0, 2]].all()
            np.testing.assert_array_equal(found.event_probability[0], found.event_probability[2])
            assert answered[1] == (odd is None or abs(scale) <= 1e30)
            assert np.isfinite(found.event_probability[answered]).all()
            assert np.isfinite(found.particle_probability[answered]).all()
            assert np.isnan(found.event_probability[~answered]).all()


def test_heads_that_give_no_numbers_leave_no_answer(mass_model, decays):
    """Of a head that describes events, such as a regression."""
    ordinary = mass_model.predict
    info = mass_model.info

    class Describing(type(mass_model)):
        @property
        def info(self):
            return ModelInfo(
                *(info.topology, info.network, info.domain, info.inputs), info.outputs | {"m": ("x",)}
            )

        def predict(self, nodes, tokens=None):
            size = len(nodes)
            wrong = nodes.values["jet"][:, 0, 0] > 150
            return ordinary(nodes, tokens) | {"m": np.where(wrong, np.nan, 1.0)[:, None].repeat(2, 1)[:size]}

    events = decays(50)
    reco = pairton.reconstruct(events, Describing())
    hard = np.asarray(ak.max(events.jets.pt, axis=1)) > 150
    assert 0 < hard.sum() < 50
    np.testing.assert_array_equal(reco.status == Status.BAD_OUTPUT, hard)
    assert np.isnan(reco.event_probability[hard]).all()
    assert np.isfinite(reco.outputs["m"][~hard]).all()


@pytest.mark.parametrize("cut", ["nan", "inf", "-inf", "1e400", "jet_btag:nan", "jet_btag:inf"])
@pytest.mark.parametrize("suffix", [".h5", ".parquet"])
def test_a_cut_that_is_no_number_is_refused(decays, tmp_path, refused, cut, suffix):
    write_events(decays(3), tmp_path / f"in{suffix}")
    assert "number" in refused("inspect", tmp_path / f"in{suffix}", "--btag", cut)
