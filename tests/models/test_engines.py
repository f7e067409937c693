"""All engines through one fixture, `model`, and what is refused before anything is run."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from importlib import resources

import numpy as np
import onnx
import pytest

import pairton
from pairton.decoding.graph import visible_tokens
from pairton.errors import ConfigError, ModelError
from pairton.events.inputs import MOMENTUM
from pairton.events.nodes import Nodes
from pairton.export import export_model
from pairton.models.model import load_model
from pairton.models.onnx_file import read_onnx
from pairton.network.engine import predictor
from pairton.topology import load_topology

TTBAR = load_topology()


def jets_of(events):
    """As a model of jets with a b-tag takes them, unpadded."""
    return Nodes.full({"jet": events.dense("jet", (*MOMENTUM, "btag"))[0]})


@pytest.mark.parametrize(("n_jets", "padding"), [(6, 0), (8, 2), (11, 3)])
def test_logits_are_those_of_the_network(model, small_network, decays, n_jets, padding):
    network, _ = small_network(TTBAR)
    events = decays(9, extra=n_jets - 6)
    nodes = jets_of(events)
    nodes.masks["jet"][::2, n_jets - padding :] = False
    truth = np.where(events.truth < n_jets - padding, events.truth, -1)
    revealed = np.zeros((9, 4), dtype=bool)
    revealed[:, [1, 3]] = (truth[:, [0, 3]] >= 0) & (truth[:, [1, 4]] >= 0)
    tokens = visible_tokens(TTBAR, truth, revealed, nodes.mask)
    found, wanted = model.predict(nodes, tokens), predictor(network)(nodes, tokens)
    np.testing.assert_allclose(found["edges"], wanted["edges"], atol=1e-5)
    i, j, k = np.indices((n_jets,) * 3)
    apart = (i != j) & (i != k) & (j != k)  # elsewhere a triplet is none, and may have any logit
    np.testing.assert_allclose(found["triplets"][:, :, apart], wanted["triplets"][:, :, apart], atol=1e-5)
    assert found["edges"].dtype == found["triplets"].dtype == np.float32


DECODED = ("exact", "steps")


@pytest.fixture(scope="module")
def by_torch(model_folder):
    """The sample events, and their reconstruction by torch in one thread."""
    events = pairton.read(resources.files("pairton") / "samples" / "ttbar_allhad.h5")
    reference = load_model(model_folder, engine="torch", threads=1)
    return events, {name: pairton.reconstruct(events, reference, decoding=name) for name in DECODED}


@pytest.mark.parametrize("decoding", DECODED)
def test_assignments_of_the_sample_events_do_not_depend_on_the_engine(model, by_torch, decoding):
    events, wanted = by_torch
    found = pairton.reconstruct(events, model, decoding=decoding)
    assert (found.assignment >= 0).all(axis=1).mean() > 0.9
    np.testing.assert_array_equal(found.assignment, wanted[decoding].assignment)
    np.testing.assert_allclose(found.event_probability, wanted[decoding].event_probability, atol=1e-4)
    np.testing.assert_allclose(found.particle_probability, wanted[decoding].particle_probability, atol=1e-4)


def test_a_model_knows_itself(model):
    assert model.name == "small"
    assert model.topology == TTBAR
    assert model.domain["jet"].count == (6, 16)
    assert model.decoding == "steps"
    assert model.temperatures is None
    assert model.info.takes_tokens
    assert model.info.network["pair_width"] == 16


def test_no_tokens_are_masked_tokens_and_no_events_are_no_logits(model, decays):
    nodes = jets_of(decays(3))
    masked = np.full((3, 2, 8, 8), 2, dtype=np.uint8)
    np.testing.assert_array_equal(model.predict(nodes)["edges"], model.predict(nodes, masked)["edges"])
    assert model.predict(nodes[:0])["edges"].shape == (0, 2, 8, 8)


def test_a_model_opens_late_and_pickles_small(model, decays):
    assert not {"session", "network"} & set(vars(model.engine))
    nodes = jets_of(decays(3))
    before = model.predict(nodes)["edges"]
    assert {"session", "network"} & set(vars(model.engine))
    payload = pickle.dumps(model)
    assert len(payload) < 10_000
    again = pickle.loads(payload)
    assert not {"session", "network"} & set(vars(again.engine))
    np.testing.assert_array_equal(again.predict(nodes)["edges"], before)


def test_threads_share_batches_not_operators(model_folder):
    model = load_model(model_folder / "model.onnx", threads=3)
    assert model.engine.at_once == 3
    assert model.engine.session._session.get_session_options().intra_op_num_threads == 1
    assert load_model(model_folder).engine.at_once == len(os.sched_getaffinity(0))
    assert load_model(model_folder, engine="torch", threads=3).engine.at_once == 1
    with pytest.raises(ConfigError, match="threads is 0"):
        load_model(model_folder, threads=0)


def test_the_onnx_engine_needs_no_torch(model_folder):
    code = f"""
import sys
sys.modules["torch"] = sys.modules["onnx"] = None
import numpy as np
from pairton.events.nodes import Nodes
from pairton.models.model import load_model
model = load_model({str(model_folder)!r})
nodes = Nodes.full({{"jet": np.ones((2, 7, 5), np.float32)}})
assert model.predict(nodes)["edges"].shape == (2, 2, 7, 7)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_way_to_name_a_model(model_folder, tmp_path, monkeypatch):
    for path in (model_folder, model_folder / "model.onnx", model_folder / "model.json"):
        assert type(load_model(path).engine).__name__ == "OnnxEngine"
    assert type(load_model(model_folder / "model.onnx", engine="torch").engine).__name__ == "TorchEngine"
    for name in ("model.json", "model.safetensors"):
        shutil.copy(model_folder / name, tmp_path / name)
    with pytest.raises(ModelError, match=r"has no model.onnx for the default engine: run `pairton export .*torch"):
        load_model(tmp_path)
    assert type(load_model(tmp_path, engine="torch").engine).__name__ == "TorchEngine"
    export_model(tmp_path, tmp_path / "model.onnx")  # the remedy
    assert type(load_model(tmp_path).engine).__name__ == "OnnxEngine"
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has no model.safetensors"):
        load_model(tmp_path, engine="torch")
    with pytest.raises(ModelError, match="no model 'ttbar_allhat'"):
        load_model("ttbar_allhat")
    with pytest.raises(ModelError, match="not a model"):
        load_model(tmp_path.parent)
    with pytest.raises(ConfigError, match=r"no engine 'onx'.*did you mean 'onnx'"):
        load_model(model_folder, engine="onx")


def test_an_old_export_beside_new_weights_is_noticed(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "copy")
    export_model(folder, folder / "model.onnx")
    load_model(folder)
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(about | {"weights_sha256": "0" * 64}))
    with pytest.raises(ModelError, match=r"exported from other weights .* run `pairton export"):
        load_model(folder)


# -- files -------------------------------------------------------------------------------------------------


def test_a_file_is_read_without_the_onnx_package(model_folder):
    file = read_onnx(model_folder / "model.onnx")
    same = onnx.load(model_folder / "model.onnx")
    assert file.inputs == tuple(item.name for item in same.graph.input) == ("jet", "jet_mask", "tokens")
    assert file.outputs == tuple(item.name for item in same.graph.output) == ("edges", "triplets")
    assert file.metadata == {item.key: item.value for item in same.metadata_props}


@pytest.mark.parametrize("library", ["onnx", "torch"])
def test_an_engine_runs_on_the_device_that_is_named(model_folder, decays, library):
    nodes = jets_of(decays(3))
    plain, named = (load_model(model_folder, engine=name) for name in (library, f"{library}:cpu"))
    assert pickle.loads(pickle.dumps(named.engine)).device == "cpu"
    np.testing.assert_array_equal(plain.predict(nodes)["edges"], named.predict(nodes)["edges"])
    with pytest.raises(ConfigError, match="device 'abacus'"):
        load_model(model_folder, engine=f"{library}:abacus").predict(nodes)


def test_what_is_not_a_model_is_named(model_folder, tmp_path):
    payload = (model_folder / "model.onnx").read_bytes()
    path = tmp_path / "some.onnx"
    for rubbish in (b"", b"not a model at all", payload[: len(payload) // 2]):
        path.write_bytes(rubbish)
        with pytest.raises(ModelError, match="not an ONNX file, or truncated"):
            load_model(path)
    model = onnx.load_model_from_string(payload)
    raw = json.loads(model.metadata_props[0].value)
    for change, message in (
        ({"graph": "whole"}, "a whole reconstruction"),
        ({"domain": {"jet": {"pt": -3}}}, "a number of 0 or more"),
        ({"topology": {"name": "x"}}, "lacks event"),
    ):
        model.metadata_props[0].value = json.dumps(raw | change)
        path.write_bytes(model.SerializeToString())
        with pytest.raises(Exception, match=message):
            load_model(path)
    model.metadata_props[0].value = "["
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="not readable as JSON"):
        load_model(path)
    del model.metadata_props[:]
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="not of Pairton or SPANet"):
        load_model(path)


def test_a_file_that_the_runtime_cannot_run_is_one_line(model_folder, tmp_path, decays):
    model = onnx.load(model_folder / "model.onnx")
    model.graph.node[0].op_type = "MatMul"
    path = tmp_path / "some.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"ONNX Runtime .* cannot run it"):
        load_model(path).predict(jets_of(decays(2)))
