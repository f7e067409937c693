"""Exported graphs of topologies with several kinds of objects, against torch and the decoder."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from pairton.decoding import decode
from pairton.decoding.set_tables import exact_limit
from pairton.errors import ModelError
from pairton.events.nodes import Nodes
from pairton.export import export_network
from pairton.export.exact_graph import ExactGraph
from pairton.export.limits import default_max_objects
from pairton.models.model import load_model
from pairton.network.engine import predictor
from pairton.topology import parse_topology

TOP = {"t": ["W", "b"], "W": ["q", "q"]}
LEPTON = {"objects": {"l": "lepton"}, "context": ["met"]}
SEMI = parse_topology({"name": "semi", "event": ["t", "tl"], "particles": {**TOP, "tl": ["b", "l"]}, **LEPTON})
FIRST = parse_topology({"name": "first", "event": ["tl", "t"], "particles": {**TOP, "tl": ["l", "b"]}, **LEPTON})
ZH = parse_topology(
    {"name": "zh", "event": ["Z", "H"], "particles": {"H": ["b", "b", "b"], "Z": ["l", "l"]}, **LEPTON}
)
SINGLE = parse_topology({"name": "single", "event": ["l", "t"], "particles": TOP, **LEPTON})


def objects_of(topology, layout, events=30, missing=0, seed=0):
    """Random objects; up to `missing` of each kind are not there, in any place."""
    rng = np.random.default_rng(seed)
    values, masks = {}, {}
    for kind, count in zip(topology.kinds, layout, strict=True):
        shape = (events, count)
        pt, phi = 25 + rng.exponential(50, shape), rng.uniform(-np.pi, np.pi, shape)
        eta = rng.normal(0, 1, shape) * (kind != "met")
        columns = [pt, eta, phi, np.hypot(pt * np.cosh(eta), rng.uniform(3, 15, shape))]
        columns += [rng.random(shape) < 0.3] if kind == "jet" else []
        values[kind] = np.stack(columns, axis=2).astype(np.float32)
        masks[kind] = rng.random(shape).argsort(axis=1) >= rng.integers(0, missing + 1, (events, 1))
    return Nodes(values, masks)


def feeds(nodes):
    return {
        name: array
        for kind in nodes.values
        for name, array in ((kind, nodes.values[kind]), (f"{kind}_mask", nodes.masks[kind]))
    }


def agree(found, network, nodes, **options):
    """The graph gives positions among the objects of each kind, the decoder nodes."""
    topology = network.topology
    wanted = decode(predictor(network), topology, nodes, decoding="exact", **options)
    indices, event, particles = (np.asarray(part) for part in found)
    offsets = topology.offsets(nodes.layout)
    np.testing.assert_array_equal(indices, np.where(wanted.assignment >= 0, wanted.assignment - offsets, -1))
    np.testing.assert_allclose(event, wanted.event_probability, atol=1e-4)
    np.testing.assert_allclose(particles, wanted.particle_probability, atol=1e-4)
    return (indices >= 0).all(axis=1)


@pytest.mark.parametrize("topology", [SEMI, FIRST, ZH, SINGLE], ids=lambda topology: topology.name)
def test_the_exact_graph_is_the_decoder(topology, small_network):
    network, _ = small_network(topology)
    needed = dict(zip(topology.kinds, topology.slots_per_kind, strict=True))
    most = topology.layout({"jet": needed["jet"] + 2, "lepton": needed["lepton"], "met": 1})
    graph = ExactGraph(network, topology, most, temperature=1.5)
    for jets in (0, 1, 2):
        layout = topology.layout({"jet": needed["jet"] + jets, "lepton": needed["lepton"], "met": 1})
        nodes = objects_of(topology, layout, missing=1)
        with torch.inference_mode():
            found = graph(*(torch.from_numpy(array) for array in feeds(nodes).values()))
        answered = agree(found, network, nodes, temperatures=[1.5])
        assert answered.any()
        assert not answered.all()


def test_a_step_file_of_several_kinds(small_network, tmp_path):
    network, info = small_network(SEMI)
    path = tmp_path / "model.onnx"
    export_network(network, info, path)
    file = onnx.load(path)
    shapes = {
        item.name: [axis.dim_param or axis.dim_value for axis in item.type.tensor_type.shape.dim]
        for item in (*file.graph.input, *file.graph.output)
    }
    assert shapes == {
        "jet": ["events", "jets", 5],
        "jet_mask": ["events", "jets"],
        "lepton": ["events", "leptons", 4],
        "lepton_mask": ["events", "leptons"],
        "met": ["events", "met", 4],
        "met_mask": ["events", "met"],
        "tokens": ["events", 3, "nodes", "nodes"],
        "edges": ["events", 3, "nodes", "nodes"],
        "triplets": ["events", 1, "nodes", "nodes", "nodes"],
    }
    model = load_model(path, threads=1)
    assert (model.topology, model.inputs) == (SEMI, network.inputs)
    for layout in ((4, 1, 1), (7, 3, 1), (5, 1, 0)):  # without missing energy too
        nodes = objects_of(SEMI, layout, missing=1 if min(layout) else 0)
        tokens = np.random.default_rng(1).integers(0, 3, (30, 3, sum(layout), sum(layout)))
        tokens = np.maximum(tokens, tokens.swapaxes(2, 3)).astype(np.uint8)
        wanted = predictor(network)(nodes, tokens)
        for name, found in model.predict(nodes, tokens).items():
            np.testing.assert_allclose(found, wanted[name], atol=1e-4)


def test_a_whole_file_of_several_kinds(small_network, tmp_path):
    network, info = small_network(SEMI)
    path = tmp_path / "whole.onnx"
    with pytest.raises(ModelError, match="steps cannot be exported as one graph: choose exact"):
        export_network(network, info, path, "whole")  # the model was trained for steps
    assert not path.exists()
    export_network(network, info, path, "whole", decoding="exact", max_objects=7)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [item.name for item in session.get_inputs()] == list(feeds(objects_of(SEMI, (4, 1, 1))))
    about = json.loads(onnx.load(path).metadata_props[0].value)
    assert (about["decoding"], about["max_objects"]) == ("exact", 7)
    assert about["slots"] == [slot.name for slot in SEMI.slots]
    for layout in ((4, 1, 1), (6, 1, 1), (7, 1, 1)):
        nodes = objects_of(SEMI, layout, missing=1, seed=3)
        assert agree(session.run(None, feeds(nodes)), network, nodes).any()
    # more objects than it takes: the first ones
    wide = objects_of(SEMI, (9, 3, 1), seed=4)
    cut = about["objects"]
    assert cut == {"jet": 7, "lepton": 1, "met": 1}
    first = Nodes.full({kind: values[:, : cut[kind]] for kind, values in wide.values.items()})
    assert agree(session.run(None, feeds(wide)), network, first).all()
    # no leptons: no answer
    none = objects_of(SEMI, (6, 0, 1), seed=5)
    indices, event, particles = session.run(None, feeds(none))
    assert (indices == -1).all()
    assert np.isnan(event).all()
    assert np.isnan(particles).all()


def test_how_many_objects_are_the_default():
    assert default_max_objects(SEMI) == 12 <= exact_limit(SEMI)
    crowded = parse_topology({"name": "six", "event": ["t"] * 6, "particles": TOP})
    assert default_max_objects(crowded) == 18
