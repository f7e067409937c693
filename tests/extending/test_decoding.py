"""A decoding from outside the package: an assignment is drawn by its probability."""

from dataclasses import replace

import numpy as np
import pytest

import pairton
from enumeration import enumerate_assignments, log_normaliser, scores
from pairton.decoding import DECODINGS, Decoded, Decoding, register_decoding
from pairton.decoding.graph import MASKED
from pairton.errors import ConfigError


def run_drawn(task):
    nodes, topology = task.nodes, task.topology
    enumeration = enumerate_assignments(topology, nodes.layout)  # a batch of a reconstruction has no padding
    n = nodes.mask.shape[1]
    tokens = np.full((len(nodes), len(topology.types), n, n), MASKED, np.uint8)
    gains = scores(enumeration, task.predict(nodes, tokens)) / task.temperatures[0]
    chance = np.exp(gains - log_normaliser(gains)[:, None])  # (B, A)
    drawn = np.random.default_rng(0).random(len(nodes))
    row = np.minimum((chance.cumsum(axis=1) < drawn[:, None]).sum(axis=1), chance.shape[1] - 1)
    answer = Decoded.empty(topology, len(nodes))
    answer.assignment[:] = enumeration.assignments[row]
    answer.event_probability[:] = np.take_along_axis(chance, row[:, None], axis=1)[:, 0]
    answer.exact[:] = True
    return answer


@pytest.fixture
def registered():
    register_decoding(Decoding("drawn", "one assignment, drawn by its probability", run_drawn))
    yield
    del DECODINGS["drawn"]


def test_a_name_is_given_once(registered):
    with pytest.raises(ConfigError, match="already is a decoding 'exact': choose another name"):
        register_decoding(replace(DECODINGS["drawn"], name="exact"))


def test_a_decoding_answers_by_its_name(registered, decays, mass_model_type):
    events, model = decays(400), mass_model_type(strength=0.2)  # unsure, so that draws differ from the best
    best, drawn = (pairton.reconstruct(events, model, decoding=name) for name in ("exact", "drawn"))
    same = (best.assignment == drawn.assignment).all(axis=1)
    assert same.mean() == pytest.approx(best.event_probability.mean(), abs=0.08)
    np.testing.assert_allclose(drawn.event_probability[same], best.event_probability[same], rtol=1e-5)
    assert (drawn.event_probability[~same] <= best.event_probability[~same] + 1e-6).all()
