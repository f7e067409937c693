"""The compiled engine against torch, for every form of network that it takes, and what it refuses."""

import importlib.util

import numpy as np
import pytest
import torch

from pairton.checkpoints import save_model
from pairton.compiled.network import ROWS, CompiledNetwork, one_blas_thread
from pairton.engines import load_model
from pairton.errors import MissingExtraError, ModelError
from pairton.topology import load_topology, parse_topology

TTBAR, HH4B = load_topology("ttbar_allhad"), load_topology("hh4b")
THREE = parse_topology({"name": "three", "event": ["g", "g"], "particles": {"g": ["q", "q", "q"]}})


def some_jets(batch, n_jets, seed=0):
    rng = np.random.default_rng(seed)
    shape = (batch, n_jets)
    pt, eta, phi = 20 + rng.exponential(60, shape), rng.normal(0, 1.5, shape), rng.uniform(-4, 4, shape)
    energy = np.hypot(pt * np.cosh(eta), rng.uniform(0, 20, shape))
    return np.stack([pt, eta, phi, energy, rng.random(shape) < 0.3], axis=2).astype(np.float32)


def both(network, info, jets, jet_mask, tokens):
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    compiled = CompiledNetwork(weights, info.network, info.topology)
    with torch.inference_mode():
        wanted = network(
            *(None if array is None else torch.from_numpy(array) for array in (jets, jet_mask, tokens))
        )
    return compiled.predict(jets, jet_mask, tokens), wanted


@pytest.mark.parametrize("topology", [TTBAR, THREE, HH4B], ids=lambda topology: topology.name)
@pytest.mark.parametrize("gates", [True, False], ids=["gates", "no_gates"])
@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "no_tokens"])
def test_logits_are_those_of_torch(small_network, topology, gates, tokens):
    network, info = small_network(topology, gates=gates, tokens=tokens, blocks=2)
    n_jets, batch = 8, 3 * ROWS // 36 + 5  # blocks of events that are full, and a last one that is not
    jets = some_jets(batch, n_jets)
    seen = None
    if tokens:
        seen = np.random.default_rng(1).integers(0, 3, (batch, len(topology.types), n_jets, n_jets))
        seen = np.maximum(seen, seen.swapaxes(2, 3)).astype(np.uint8)
    found, wanted = both(network, info, jets, np.ones(jets.shape[:2], dtype=bool), seen)
    np.testing.assert_allclose(found.edges, wanted.edges.numpy(), atol=1e-4)
    assert np.abs(found.edges).max() > 0.5
    if wanted.triplets is None:
        assert found.triplets is None
        return
    i, j, k = np.indices((n_jets,) * 3)
    apart = (i != j) & (i != k) & (j != k)
    np.testing.assert_allclose(found.triplets[:, :, apart], wanted.triplets.numpy()[:, :, apart], atol=1e-4)


def test_padding_may_be_anywhere(small_network):
    network, info = small_network(TTBAR)
    jets = some_jets(40, 9)
    jet_mask = np.random.default_rng(3).random((40, 9)) < 0.8
    jet_mask[0], jet_mask[1] = False, True
    seen = np.full((40, 2, 9, 9), 2, dtype=np.uint8)
    found, wanted = both(network, info, jets, jet_mask, seen)
    np.testing.assert_allclose(found.edges, wanted.edges.numpy(), atol=1e-4)


def test_closed_gates_and_jets_together_are_numbers(small_network):
    network, info = small_network(TTBAR, tokens=False)
    with torch.no_grad():
        network.blocks[0].multiply.sides_and_gate.weight *= 300  # exp(-x) overflows
    jets = some_jets(4, 7)
    jets[0, 1] = jets[0, 0]
    found, wanted = both(network, info, jets, np.ones((4, 7), dtype=bool), None)
    assert np.isfinite(found.edges).all()
    np.testing.assert_allclose(found.edges, wanted.edges.numpy(), atol=1e-3)


def test_products_use_one_thread_within_and_what_was_set_afterwards():
    def threads():
        pools = one_blas_thread().controller.info()  # those of numpy, and of whatever was there before it
        return [pool["num_threads"] for pool in pools if pool["user_api"] == "blas"]

    before = threads()
    with one_blas_thread(), one_blas_thread():
        assert set(threads()) == {1}
    assert threads() == before


def save(folder, network, info):
    folder.mkdir()
    save_model(folder, {name: tensor.numpy() for name, tensor in network.state_dict().items()}, info)
    return folder


def test_what_it_cannot_run_is_said_before_anything_is_run(small_network, tmp_path, monkeypatch):
    other = save(tmp_path / "other", *small_network(TTBAR, triangle_attention=True))
    with pytest.raises(
        ModelError, match=r"triangle_attention: True, but the engine compiled needs False: use .* onnx"
    ):
        load_model(other, engine="compiled")
    mine = save(tmp_path / "mine", *small_network(TTBAR))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("pairton.compiled.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pairton\[fast\]"):
        load_model(mine, engine="compiled")
    monkeypatch.undo()
    (mine / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match=r"not the weights that model\.json belongs to"):
        load_model(mine, engine="compiled").predict(some_jets(1, 7), np.ones((1, 7), dtype=bool))
