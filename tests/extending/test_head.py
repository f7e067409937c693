"""A head from outside the package: is the event signal? Its loss compares with a column of the events."""

import numpy as np
import onnxruntime
import pytest

import pairton
from pairton import formats

torch = pytest.importorskip("torch")
pytest.importorskip("lightning.fabric")
heads = pytest.importorskip("pairton.network.heads")


class Signal(heads.Head):
    name = "signal"  # of the output, in torch, in ONNX files and among the columns of a result
    columns = ("is_signal",)

    def __init__(self, topology, width):
        super().__init__(topology, width)
        self.layer = torch.nn.Linear(2 * width, 1)

    def forward(self, embedding):
        return self.layer(embedding.pooled()).squeeze(-1)  # (B,)

    def loss(self, output, labels):
        return torch.nn.functional.binary_cross_entropy_with_logits(output, labels["is_signal"], reduction="none")


@pytest.fixture
def registered():
    heads.register_head(Signal)
    yield
    del heads.HEADS["signal"]


def test_names_and_weights_that_cannot_be(registered, small_recipe):
    from pairton.training import parse_recipe, train

    with pytest.raises(pairton.errors.ConfigError, match="already is a head 'signal': choose another name"):
        heads.register_head(Signal)
    with pytest.raises(pairton.errors.ConfigError, match=r"no head 'signl'.*did you mean 'signal'"):
        train(parse_recipe(small_recipe | {"heads": {"signl": 0.5}}), ["sample:ttbar_allhad"], "nowhere")
    with pytest.raises(pairton.errors.ConfigError, match="must map names to weights above 0"):
        parse_recipe(small_recipe | {"heads": {"signal": -1}})


def test_a_head_is_trained_exported_and_written(registered, decays, small_recipe, tmp_path):
    from pairton.training import parse_recipe, train

    events = decays(200)
    label = (np.asarray(events.jets.pt).max(axis=1) > 150).astype(np.float32)
    with formats.create(tmp_path / "in.h5", events.topology) as writer:
        writer.write(events.replace(columns={"is_signal": label}))
    recipe = parse_recipe(small_recipe | {"heads": {"signal": 0.5}})
    train(recipe, [tmp_path / "in.h5"], tmp_path / "model")
    session = onnxruntime.InferenceSession(tmp_path / "model" / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["edges", "signal"]
    reco = pairton.reconstruct(events, str(tmp_path / "model"))
    column = reco.to_columns()["signal"]
    assert np.isfinite(column).tolist() == (reco.assignment >= 0).all(axis=1).tolist()  # NaN without an answer
    assert ",signal," in (tmp_path / "model" / "metrics.csv").read_text()  # its loss was logged
