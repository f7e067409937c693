"""A trunk from outside the package: deep sets, in which each object sees the mean of all objects, and no pairs."""

import numpy as np
import pytest

import pairton
from pairton import formats

torch = pytest.importorskip("torch")
pytest.importorskip("lightning.fabric")
trunks = pytest.importorskip("pairton.network.trunks")


class Block(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = torch.nn.Linear(2 * config.single_width, config.single_width)

    def forward(self, x, z, mask, pair_mask, index):
        inside = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x.dtype)
        mean = (x * inside).sum(dim=1, keepdim=True) / inside.sum(dim=1, keepdim=True).clamp(min=1)
        return x + torch.relu(self.layer(torch.cat([x, mean.expand_as(x)], dim=-1))), z


class DeepSets(trunks.Trunk):
    name, pairs, block = "deep_sets", None, Block


@pytest.fixture
def registered():
    trunks.register_trunk(DeepSets)
    yield
    del trunks.TRUNKS["deep_sets"]


def test_a_trunk_is_trained_exported_and_used(registered, decays, small_recipe, tmp_path):
    from pairton.training import parse_recipe, train

    events = decays(200)
    with formats.create(tmp_path / "in.h5", events.topology) as writer:
        writer.write(events)
    small_recipe["network"] |= {"architecture": "deep_sets", "tokens": False}
    train(parse_recipe(small_recipe), [tmp_path / "in.h5"], tmp_path / "model")
    onnx, torch_ = (
        pairton.reconstruct(events, str(tmp_path / "model"), engine=name) for name in ("onnx", "torch")
    )
    assert (onnx.assignment >= 0).any()
    np.testing.assert_allclose(onnx.event_probability, torch_.event_probability, rtol=1e-3)


def test_settings_that_it_has_no_use_for_are_refused(registered, small_recipe):
    from pairton.training import parse_recipe

    small_recipe["network"] |= {"architecture": "deep_sets"}
    with pytest.raises(pairton.errors.ConfigError, match="deep_sets has no pairs: set tokens: false"):
        parse_recipe(small_recipe)
