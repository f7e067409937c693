"""Models on disk: what is written is read back, and what is damaged is refused."""

import json
import os
import shutil

import numpy as np
import pytest
import torch

from pairton.errors import ModelError, OutputError, PairtonError, PairtonWarning
from pairton.events.domain import Domain, KindDomain
from pairton.models.model import load_model
from pairton.models.storage import FORMAT_VERSION, ModelInfo, find_model, read_info, save_model
from pairton.network import Network, NetworkConfig
from pairton.network.engine import load_network
from pairton.topology import load_topology

TTBAR = load_topology("ttbar_allhad")
CONFIG = NetworkConfig(blocks=1, single_width=8, single_heads=2, pair_width=8, pair_heads=2)


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    network = Network(TTBAR, CONFIG).eval()
    info = ModelInfo(
        topology=TTBAR,
        network=CONFIG.to_dict(),
        domain=Domain({"jet": KindDomain(25.0, 2.5, (6, 16), 0.4, ("btag",))}),
        inputs=network.inputs,
        outputs=network.outputs,
        data={"fingerprint": "abc"},
        metrics={"e_event": 0.5, "e_H": float("nan")},
        temperatures=(1.5, 1.2, 1.0),
        decoding="steps",
    )
    save_model(tmp_path, {name: value.numpy() for name, value in network.state_dict().items()}, info)
    return tmp_path, network, info


def test_a_model_comes_back_as_it_was(saved):
    folder, network, info = saved
    for path in (folder, folder / "model.safetensors", folder / "model.json"):
        again, read = load_network(path)
        assert not again.training
        assert (again.config, again.topology, read.domain) == (CONFIG, TTBAR, info.domain)
        assert (read.temperatures, read.decoding, read.data) == ((1.5, 1.2, 1.0), "steps", {"fingerprint": "abc"})
        assert read.metrics["e_event"] == 0.5
        assert np.isnan(read.metrics["e_H"])
        for name, value in network.state_dict().items():
            assert torch.equal(value, again.state_dict()[name])
    assert json.loads((folder / "model.json").read_text())["format_version"] == FORMAT_VERSION
    assert sorted(os.listdir(folder)) == ["model.json", "model.safetensors"]


def edit(folder, **changes):
    path = folder / "model.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in raw.items() if value != "gone"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": FORMAT_VERSION + 1}, "update Pairton"),
        ({"format_version": "gone"}, "format_version is None"),
        ({"format_version": 1}, r"format_version is 1, but Pairton .* reads 2: update Pairton, or train"),
        ({"topology": "gone"}, "has no topology of the model: copy"),
        ({"domain": {"jet": {"pt": "x"}}}, "jet.pt is 'x', but must be a number"),
        ({"inputs": "gone"}, "has a value of the wrong kind"),
        ({"inputs": {"muon": []}}, "inputs has no setting 'muon': it has jet"),
        ({"outputs": "gone"}, "has a value of the wrong kind"),
        ({"decoding": "exact_steps"}, "no decoding 'exact_steps'"),
        ({"weights_sha256": "0"}, "not the weights that model.json describes"),
        ({"network": {"bloks": 1}}, "no setting 'bloks'"),
        ({"network": {"blocks": 2}}, "do not fit the network"),
        ({"temperatures": ["hot"]}, "wrong kind .*hot"),
        ({"temperatures": 1.04}, "wrong kind .*float"),
        ({"temperatures": [1.0, 2.0]}, "has 2 temperatures, but steps takes 3"),
        ({"network": []}, "has no network of the model"),
    ],
)
def test_damaged_models_are_refused(saved, changes, message):
    edit(saved[0], **changes)
    with pytest.raises(PairtonError, match=message) as caught:
        load_model(saved[0], engine="torch").engine.network  # noqa: B018
    assert "\n" not in str(caught.value)


def test_what_is_not_a_model(saved, tmp_path):
    with pytest.raises(ModelError, match=r"no model .* neither built in"):
        find_model(tmp_path / "nowhere")
    (saved[0] / "model.json").write_text("{")
    with pytest.raises(ModelError, match="not readable as JSON"):
        read_info(saved[0])
    (saved[0] / "model.safetensors").unlink()
    with pytest.raises(ModelError):
        load_network(saved[0])


def test_a_folder_with_the_name_of_a_built_in_model_is_not_taken_by_chance(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved[0], "ttbar_allhad")
    with pytest.warns(PairtonWarning, match=r"write \./ttbar_allhad for"):
        built_in = find_model("ttbar_allhad")
    assert built_in.parent.name == "models"
    assert find_model("./ttbar_allhad").resolve() == tmp_path / "ttbar_allhad"


def test_a_failed_write_leaves_the_old_model(saved, monkeypatch):
    folder, network, info = saved
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(
        "pairton.models.storage.json.dumps", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(OutputError, match="full"):
        save_model(folder, {name: value.numpy() + 1 for name, value in network.state_dict().items()}, info)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
