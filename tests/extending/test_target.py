"""An export target from outside the package: probabilities of edges instead of their logits."""

import numpy as np
import onnxruntime
import pytest

import pairton
from pairton.errors import ModelError
from pairton.export import export_model

torch = pytest.importorskip("torch")
targets = pytest.importorskip("pairton.export.targets")


class Graph(torch.nn.Module):
    def __init__(self, step, temperature):
        super().__init__()
        self.step, self.temperature = step, temperature

    def forward(self, *inputs):
        return (torch.sigmoid(self.step(*inputs)[0] / self.temperature),)


class EdgeProbabilities(targets.TARGETS["step"]):
    name = "edge_probabilities"

    def __init__(self, network, info, *, temperature=1.0):
        super().__init__(network, info)
        self.temperature, self.about = temperature, {"graph": self.name, "temperature": temperature}
        self.graph, self.outputs = Graph(self.graph, temperature), {"probability": network.outputs["edges"]}

    def expected(self, nodes):  # every file is compared with this before it is written
        return {"probability": 1 / (1 + np.exp(-super().expected(nodes)["edges"] / self.temperature))}


@pytest.fixture
def registered():
    targets.register_target(EdgeProbabilities)
    yield
    del targets.TARGETS["edge_probabilities"]


def test_a_target_is_checked_and_written(registered, tmp_path, monkeypatch):
    from pairton.network.engine import load_network

    path = tmp_path / "edges.onnx"
    about = export_model("ttbar_allhad", path, "edge_probabilities", temperature=2.0)
    assert (about["temperature"], about["topology"]["name"]) == (2.0, "ttbar_allhad")
    model = pairton.load_model("ttbar_allhad")
    nodes = targets.some_events(load_network("ttbar_allhad")[0], (8,))
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {"jet": nodes.values["jet"], "jet_mask": nodes.masks["jet"]})
    edges = model.predict(nodes, None)["edges"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-edges / 2)), atol=1e-5)
    monkeypatch.setattr(EdgeProbabilities, "tolerance", -1.0)
    with pytest.raises(ModelError, match="differs from torch"):
        export_model("ttbar_allhad", tmp_path / "no.onnx", "edge_probabilities")
    assert not (tmp_path / "no.onnx").exists()
