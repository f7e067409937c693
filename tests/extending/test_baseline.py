"""A baseline from outside the package: fitted on events, asked about events, known to --baseline."""

import json

import numpy as np
import pytest

import pairton
from pairton.errors import ModelError
from pairton.evaluation.baselines import BASELINES, register_baseline
from pairton.evaluation.scores import efficiencies


class ByRank:
    """Slots take the hardest jets, one after the other; the very hardest only if it usually is of the decay."""

    name = "rank"

    def fit(self, events):
        leading = np.asarray(events.jets.pt).argmax(axis=1)
        used = (events.truth == leading[:, None]).any(axis=1)
        self.skip = 0 if used.mean() > 0.5 else 1
        self.about = {"skip": self.skip}  # for the JSON
        return self

    def assign(self, events):
        assert events.truth is None  # nothing to peek at
        assert all(np.all(np.diff(pt) <= 0) for pt in events.jets.pt)
        slots = np.arange(len(events.topology.slots)) + self.skip
        return np.tile(slots, (len(events), 1)), np.full(len(events), np.nan)


@pytest.fixture
def registered():
    register_baseline(ByRank())
    yield
    del BASELINES["rank"]


def test_a_baseline_is_compared(registered, decays, mass_model, source, command, tmp_path):
    events = decays(300)
    result = pairton.evaluate(events, mass_model, baselines=["rank"], jet_scales=[0.9], cuts=False)
    found = result.to_dict()["methods"]["rank"]
    assert found["method"]["skip"] == 0
    order = np.argsort(-np.asarray(events.jets.pt), axis=1, kind="stable")
    wanted = efficiencies(events.topology, events.truth, order[:, :6], events.n_jets)
    assert found["efficiency"]["t"]["inclusive"]["correct"] == wanted["t"]["inclusive"].correct
    assert found["method"]["fitted_on"] == "the first 300 of these events"
    assert command("evaluate", source, "--baseline", "rank", "--json", tmp_path / "numbers.json") == 0
    assert "rank" in json.loads((tmp_path / "numbers.json").read_text())["methods"]


def test_answers_of_another_shape_are_refused(registered, decays, monkeypatch):
    monkeypatch.setattr(ByRank, "assign", lambda self, events: (np.zeros((len(events), 2)), np.zeros(len(events))))
    with pytest.raises(ModelError, match=r"rank returns assignments of the shape \(20, 2\)"):
        pairton.evaluate(decays(20), [], baselines=["rank"], cuts=False)
