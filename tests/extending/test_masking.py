"""A masking process from outside the package: each particle that is present is revealed with probability 1/4."""

import json

import numpy as np
import pytest

from pairton import formats
from pairton.topology.assignments import present

pytest.importorskip("torch")
pytest.importorskip("lightning.fabric")
masking = pytest.importorskip("pairton.training.masking")


@pytest.fixture
def shares():
    """The share of revealed particles in each batch that was drawn."""
    found = []

    def independent(events):
        topology, truth = events.topology, events.truth
        revealed = present(topology, truth) & (events.rng.random((len(truth), len(topology.particles))) < 0.25)
        for parent in topology.roots:  # what decays from a revealed particle is known too
            revealed[:, list(parent.children)] |= revealed[:, [parent.index]]
        found.append(revealed.mean())
        return revealed

    masking.register_masking("independent", independent)
    yield found
    del masking.MASKINGS["independent"]


def test_a_network_is_trained_with_it(shares, decays, small_recipe, tmp_path):
    from pairton.training import parse_recipe, train

    events = decays(200)
    with formats.create(tmp_path / "in.h5", events.topology) as writer:
        writer.write(events)
    recipe = parse_recipe(small_recipe | {"loss": {"masking": "independent"}})
    assert train(recipe, [tmp_path / "in.h5"], tmp_path / "model").finished
    assert len(shares) == recipe.optimiser.steps
    assert 0.2 < np.mean(shares) < 0.5
    info = json.loads((tmp_path / "model" / "model.json").read_text())
    assert info["recipe"]["loss"]["masking"] == "independent"
