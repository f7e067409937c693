"""Models of format version 1, and models whose network gives something else than it says."""

import hashlib
import json
import shutil
from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save

import pairton
from pairton._common.configuration import configure
from pairton.errors import ModelError
from pairton.events import Status
from pairton.events.inputs import MOMENTUM
from pairton.events.nodes import Nodes
from pairton.export import export_model
from pairton.models.engines import load_model
from pairton.models.storage import read_info, save_model
from pairton.network import NetworkConfig
from pairton.topology import load_topology

TTBAR = load_topology()
# beginnings of names of weights in version 2 -> in version 1
OLD_NAMES = {
    "embed.jet.": "embed_jets.",
    "nodes_to_pairs.": "jets_to_pairs.",
    "heads.edges.": "edge_head.",
}


def old_name(name, triplets):
    for new, old in {**OLD_NAMES, "heads.triplets.": triplets}.items():
        if name.startswith(new):
            return old + name.removeprefix(new)
    return name


def old_about(raw):
    """What version 1 said of a model of jets: as written by hand, not by undoing the upgrade."""
    new = raw["domain"]["jet"]
    tags = "binary" if "btag" in new["binary"] else "continuous"
    domain = {"pt": new["pt"], "abs_eta": new["abs_eta"], "radius": new["radius"], "btag": tags}
    old = {key: value for key, value in raw.items() if key not in ("inputs", "outputs")}
    network = {key: value for key, value in raw["network"].items() if key not in ("architecture", "heads")}
    network["kind"] = raw["network"]["architecture"]
    network["triplets"] = {"object_sum": "hyperedge"}.get(network["triplets"], network["triplets"])
    return {**old, "domain": domain | {"jets": new["count"]}, "network": network, "format_version": 1}


def make_old(folder):
    """Rename all in a folder back to version 1."""
    about = old_about(json.loads((folder / "model.json").read_text()))
    head = {"potential": "potential.", "hyperedge": "hyperedge."}.get(about["network"]["triplets"], "")
    weights = load_file(folder / "model.safetensors")
    payload = save({old_name(name, head): value for name, value in weights.items()})
    (folder / "model.safetensors").write_bytes(payload)
    about["weights_sha256"] = hashlib.sha256(payload).hexdigest()
    (folder / "model.json").write_text(json.dumps(about))
    return about


def some_jets(n=20, seed=0):
    rng = np.random.default_rng(seed)
    pt, eta, phi = 25 + rng.exponential(50, (n, 7)), rng.normal(0, 1, (n, 7)), rng.uniform(-3, 3, (n, 7))
    columns = [pt, eta, phi, np.hypot(pt * np.cosh(eta), 8.0), rng.random((n, 7)) < 0.3]
    return Nodes.full({"jet": np.stack(columns, axis=2).astype(np.float32)})


@pytest.mark.parametrize(
    "more",
    [
        {"tokens": True},
        {
            "architecture": "transformer", "single_width": 16, "single_heads": 2, "edges_from": "single",
            "tokens": False, "triplets": "object_sum",
        },
        {"architecture": "pairformer", "single_width": 16, "single_heads": 2, "single_stream": True},
    ],
    ids=["symmetric", "transformer", "pairformer"],
)  # fmt: skip
def test_a_folder_of_version_1_is_upgraded(small_network, tmp_path, more):
    network, info = small_network(TTBAR, **more)
    save_model(tmp_path, {name: value.numpy() for name, value in network.state_dict().items()}, info)
    nodes = some_jets()
    wanted = load_model(tmp_path, engine="torch").predict(nodes)
    make_old(tmp_path)
    read = read_info(tmp_path)
    assert configure(NetworkConfig, read.network, "network") == network.config
    assert replace(read, network=info.network, weights_sha256=None) == info
    model = load_model(tmp_path, engine="torch")
    for name, output in model.predict(nodes).items():
        np.testing.assert_array_equal(output, wanted[name])
    export_model(tmp_path, tmp_path / "model.onnx")
    np.testing.assert_allclose(load_model(tmp_path).predict(nodes)["edges"], wanted["edges"], atol=1e-4)


def test_a_file_of_version_1_is_refused_with_what_to_do(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "old")
    make_old(folder)
    file = onnx.load(folder / "model.onnx")
    about = json.loads(file.metadata_props[0].value)
    file.metadata_props[0].value = json.dumps(old_about(about))
    (folder / "model.onnx").write_bytes(file.SerializeToString())
    for path in (folder, folder / "model.onnx"):
        with pytest.raises(ModelError, match=r"made by an older Pairton: run `pairton export \S+old -o \S+onnx`"):
            load_model(path)
    export_model(folder, folder / "model.onnx")  # as told
    assert load_model(folder).info.topology == TTBAR


def test_a_model_for_a_decoding_that_is_gone_is_refused(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "old")
    about = make_old(folder)
    (folder / "model.json").write_text(json.dumps(about | {"decoding": "exact_steps"}))
    with pytest.raises(ModelError, match="exact_steps, which no longer exists: train the model again"):
        load_model(folder, engine="torch")


# -- what a network gives ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changed:
    """An engine whose outputs are changed."""

    engine: object
    change: object
    at_once: int = 1

    def __call__(self, nodes, tokens):
        return self.change(nodes, dict(self.engine(nodes, tokens)))


def changed(model_folder, change):
    model = load_model(model_folder, threads=1)
    return replace(model, engine=Changed(model.engine, change))


def test_outputs_of_another_shape_are_refused(model_folder):
    for change, message in (
        (
            lambda _, out: {**out, "edges": out["edges"][:, :1]},
            r"edges of the shape \(20, 2, 7, 7\).*\(20, 1, 7, 7\)",
        ),
        (lambda _, out: {**out, "edges": out["edges"][:5]}, r"edges .* has \(5, 2, 7, 7\) in float32"),
        (
            lambda _, out: {"edges": out["edges"]},
            r"triplets of the shape \(20, 1, 7, 7, 7\) in float32, but has none: export",
        ),
    ):
        with pytest.raises(ModelError, match=message) as caught:
            changed(model_folder, change).predict(some_jets())
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("decoding", ["exact", "steps"])
def test_an_event_for_which_it_gives_no_numbers_is_said_to_be_so(model_folder, decays, decoding):
    events = decays(30, extra=1)
    leading = events.dense("jet", MOMENTUM)[0][:, :, 0].max(axis=1)  # jets are ordered by pT

    def spoil(nodes, outputs):
        wrong = nodes.values["jet"][:, 0, 0] == leading[4]
        return {name: np.where(wrong.reshape(-1, *[1] * (a.ndim - 1)), np.nan, a) for name, a in outputs.items()}

    plain = pairton.reconstruct(events, load_model(model_folder), decoding=decoding, cuts=False)
    found = pairton.reconstruct(events, changed(model_folder, spoil), decoding=decoding, cuts=False)
    assert (plain.assignment >= 0).all()
    assert (np.flatnonzero(found.status == Status.BAD_OUTPUT) == [4]).all()
    assert (found.assignment[4] == -1).all()
    others = np.arange(30) != 4
    np.testing.assert_array_equal(found.assignment[others], plain.assignment[others])
    np.testing.assert_array_equal(found.event_probability[others], plain.event_probability[others])
    np.testing.assert_array_equal(found.status[others], plain.status[others])
