"""Files with the tensors of SPANet, made of our networks: the distributions are those of the exact sums."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import yaml

import pairton
from pairton.cli import main
from pairton.decoding.exact import sums_of
from pairton.decoding.patterns import plan_of
from pairton.errors import ConfigError, ModelError
from pairton.events.head_specs import HeadSpec
from pairton.models.model import load_model
from pairton.models.storage import save_model
from pairton.topology import load_topology

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from pairton.export import export_model  # noqa: E402
from pairton.export.targets import some_events  # noqa: E402
from pairton.network import Network  # noqa: E402
from pairton.network.engine import predictor  # noqa: E402

EVENT = {
    "INPUTS": {
        "SEQUENTIAL": {
            "Leptons": {"eta": "normalize", "pt": "log_normalize", "sin_phi": "none", "cos_phi": "none"},
            "Jets": {"btag": "none", "mass": "log", "eta": "none", "phi": "none", "pt": "log_normalize"},
        },
        "GLOBAL": {"Met": {"met": "log", "phi": "none"}, "Event": {"ht": "log"}},
    },
    "EVENT": {"t": [{"b": "Jets"}, {"q1": "Jets"}, {"q2": "Jets"}], "tl": [{"b": "Jets"}, {"l": "Leptons"}]},
    "PERMUTATIONS": {"t": [["q1", "q2"]]},
}


def event_of(*features):
    """An event file of two hadronic tops."""
    return {
        "INPUTS": {"SEQUENTIAL": {"Source": dict.fromkeys(features, "none")}},
        "EVENT": {"t1": ["q1", "q2", "b"], "t2": ["q1", "q2", "b"]},
        "PERMUTATIONS": {"EVENT": [["t1", "t2"]], "t1": [["q1", "q2"]], "t2": [["q1", "q2"]]},
    }


@pytest.fixture
def saved(small_network, tmp_path):
    """A folder with a model of a topology, its network, and all about it."""

    def make(topology, heads=None, **more):
        network, info = small_network(topology, tokens=False, **more)
        if heads:
            torch.manual_seed(1)
            network = Network(topology, network.config, network.inputs, heads).eval()
        info = replace(info, decoding="exact", outputs=network.outputs, heads=heads or {})
        folder = tmp_path / "model"
        folder.mkdir()
        save_model(folder, {k: v.numpy() for k, v in network.state_dict().items()}, info)
        return folder, network, info

    return make


def ran(path, feeds):
    session = onnxruntime.InferenceSession(path)
    assert {item.name for item in session.get_inputs()} == set(feeds)
    return dict(zip([item.name for item in session.get_outputs()], session.run(None, feeds), strict=True))


def expected(topology, outputs, layout, name, slots):
    """(B, N, ..., N): the distribution of a type over all orders of the products at `slots` of its particle."""
    sums = sums_of(topology, layout, outputs)
    objects, present = sums.tables.candidates[name].objects, sums.present[name]
    n_nodes = sum(layout)
    dense = np.zeros((present.shape[1], *(n_nodes,) * objects.shape[1]))
    for nodes, chance in zip(objects, present, strict=True):
        for order in slots:
            dense[(slice(None), *(int(nodes[k]) for k in order))] += chance
    return dense / dense.reshape(len(dense), -1).sum(axis=1).reshape(-1, *(1,) * objects.shape[1])


def raw_features(jets):
    pt, eta, phi, energy, *rest = np.moveaxis(jets.astype(np.float64), -1, 0)
    mass = np.sqrt(np.maximum(energy**2 - (pt * np.cosh(eta)) ** 2, 0))
    return np.stack([mass, pt, eta, phi, *rest], axis=-1).astype(np.float32)


@pytest.mark.parametrize("patterns", [False, True])
def test_distributions_are_those_of_the_sums(saved, patterns, tmp_path):
    ttbar = load_topology("ttbar_allhad")
    heads = {"signal": HeadSpec("class", columns=("s",), classes=3)}
    heads["m"] = HeadSpec("regression", columns=("EVENT/mtt",), offset=500.0, scale=100.0)
    folder, network, info = saved(ttbar, heads, patterns=patterns)
    if patterns:
        with torch.no_grad():
            network.heads["patterns"].layers[-1].bias.copy_(torch.randn(6))
        save_model(folder, {k: v.numpy() for k, v in network.state_dict().items()}, info)
    about = export_model(folder, tmp_path / "net.onnx", "spanet", max_objects=9)
    assert about["features"] == {"Source": ["mass", "pt", "eta", "phi", "btag"]}
    assert about["objects"] == {"jet": about["max_objects"]}
    for n in (6, 8):
        nodes = some_events(network, (n,), events=4)
        nodes.masks["jet"][:] = True
        outputs = predictor(network)(nodes, None)
        found = ran(
            tmp_path / "net.onnx", {"Source_data": raw_features(nodes.values["jet"]), "Source_mask": nodes.mask}
        )
        assert list(found) == [
            *(f"t{k}_{what}_probability" for what in ("assignment", "detection") for k in (1, 2)),
            "EVENT/mtt",
            "EVENT/signal",
        ]
        wanted = expected(ttbar, outputs, (n,), "t", [(0, 1, 2), (1, 0, 2)])
        for top in ("t1", "t2"):
            np.testing.assert_allclose(found[f"{top}_assignment_probability"], wanted, atol=2e-4)
        sums = sums_of(ttbar, (n,), outputs)
        tops = np.array([p.name.split(" + ").count("t") for p in plan_of(ttbar, not patterns).patterns])
        for k in (1, 2):
            at_least = sums.pattern_probability[:, tops >= k].sum(axis=1)
            np.testing.assert_allclose(found[f"t{k}_detection_probability"], at_least, atol=1e-4)
        np.testing.assert_allclose(found["EVENT/signal"].sum(axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(found["EVENT/mtt"], outputs["m"], rtol=1e-3)


def test_padding_fewer_and_more_objects(saved, tmp_path):
    ttbar = load_topology("ttbar_allhad")
    folder, network, _ = saved(ttbar)
    export_model(folder, tmp_path / "net.onnx", "spanet", max_objects=7)
    nodes = some_events(network, (7,), events=3)
    nodes.masks["jet"][:] = True
    data = raw_features(nodes.values["jet"])
    plain = ran(tmp_path / "net.onnx", {"Source_data": data, "Source_mask": nodes.mask})[
        "t1_assignment_probability"
    ]
    wider = np.concatenate([data, data[:, :2] * 0], axis=1)
    mask = np.concatenate([nodes.mask, np.zeros((3, 2), dtype=bool)], axis=1)
    padded = ran(tmp_path / "net.onnx", {"Source_data": wider, "Source_mask": mask})["t1_assignment_probability"]
    assert padded.shape == (3, 9, 9, 9)
    np.testing.assert_allclose(padded[:, :7, :7, :7], plain, atol=1e-5)
    assert padded[:, 7:].max() == 0
    few = ran(tmp_path / "net.onnx", {"Source_data": data[:, :4], "Source_mask": nodes.mask[:, :4]})
    assert few["t1_assignment_probability"].shape == (3, 4, 4, 4)


def test_inputs_of_an_event_file(saved, tmp_path):
    """Groups, features and logarithms as it says, and axes through all sequential inputs in its order."""
    path = tmp_path / "event.yaml"
    path.write_text(yaml.safe_dump(EVENT, sort_keys=False))
    topology = load_topology(path)
    folder, network, _ = saved(topology)
    export_model(folder, tmp_path / "net.onnx", "spanet", topology=path)
    layout = tuple({"jet": 6, "lepton": 1, "met": 1}[kind] for kind in topology.kinds)
    nodes = some_events(network, layout, events=5)
    for kind in nodes.masks:
        nodes.masks[kind][:] = True
    lepton, jet, met = (nodes.values[kind].astype(np.float64) for kind in ("lepton", "jet", "met"))
    mass = raw_features(jet)[..., 0].astype(np.float64)
    feeds = {
        "Leptons_data": [lepton[..., 1], np.log1p(lepton[..., 0]), np.sin(lepton[..., 2]), np.cos(lepton[..., 2])],
        "Jets_data": [jet[..., 4], np.log1p(mass), jet[..., 1], jet[..., 2], np.log1p(jet[..., 0])],
        "Met_data": [np.log1p(met[..., 0]), met[..., 2]],
        "Event_data": [np.full((5, 1), 3.0)],
    }
    feeds = {name: np.stack(columns, axis=-1).astype(np.float32) for name, columns in feeds.items()}
    feeds |= {name.replace("data", "mask"): np.ones(array.shape[:2], dtype=bool) for name, array in feeds.items()}
    found = ran(tmp_path / "net.onnx", feeds)
    nodes.values["lepton"][..., 3] = nodes.values["lepton"][..., 0] * np.cosh(
        nodes.values["lepton"][..., 1]
    )  # massless
    outputs = predictor(network)(nodes, None)
    hadronic = expected(topology, outputs, layout, "t", [(2, 0, 1), (2, 1, 0)])  # axes b, q1, q2
    np.testing.assert_allclose(
        found["t_assignment_probability"][:, 1:, 1:, 1:], hadronic[:, :6, :6, :6], atol=3e-3
    )
    assert found["t_assignment_probability"][:, 0].max() == 0  # the lepton stands first
    leptonic = expected(topology, outputs, layout, "tl", [(0, 1)])
    np.testing.assert_allclose(
        found["tl_assignment_probability"][:, 1:, 0], leptonic[:, :6, 6], atol=3e-3
    )  # features are rounded


def test_a_file_is_read_back(saved, decays, tmp_path):
    """By our own reader of SPANet's files; the greedy choice from it is one of ours."""
    ttbar = load_topology("ttbar_allhad")
    (tmp_path / "event.yaml").write_text(yaml.safe_dump(event_of("mass", "pt", "eta", "phi", "btag")))
    folder, _, _ = saved(ttbar)
    with pytest.raises(SystemExit) as done:
        main(["export", str(folder), "--like", "spanet", "-o", str(tmp_path / "net.onnx")])
    assert done.value.code == 0
    model = load_model(tmp_path / "net.onnx", topology=tmp_path / "event.yaml")
    events = decays(40)
    answers = pairton.reconstruct(events.replace(topology=model.topology), model)
    used = np.sort(answers.index, axis=1)
    assert (used[:, 1:] != used[:, :-1]).all()
    assert np.isfinite(answers.event_probability).all()


def test_mistakes_are_one_line(saved, tmp_path):
    folder, _, _ = saved(load_topology("ttbar_allhad"))
    with pytest.raises(ConfigError, match="not an event file of SPANet"):
        export_model(folder, tmp_path / "net.onnx", "spanet", topology="ttbar_allhad")
    path = tmp_path / "event.yaml"
    path.write_text(yaml.safe_dump(EVENT))
    with pytest.raises(ModelError, match="is another decay tree: give that of the model"):
        export_model(folder, tmp_path / "net.onnx", "spanet", topology=path)
    with pytest.raises(ModelError, match="answers step by step"):
        export_model("iterative", tmp_path / "net.onnx", "spanet")
    path.write_text(yaml.safe_dump(event_of("mass", "pt", "eta", "phi")))
    with pytest.raises(ModelError, match="needs btag of jets, but Source of the event file has eta, mass, phi"):
        export_model(folder, tmp_path / "net.onnx", "spanet", topology=path)
    assert not (tmp_path / "net.onnx").exists()
