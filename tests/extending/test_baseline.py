"""A baseline from outside the package: fitted on events, asked about events, known to --baseline."""

import numpy as np
import pytest

import pairton
from pairton.evaluation.metrics import efficiencies
from pairton.evaluation.registry import BASELINES, register_baseline


class ByRank:
    """Slots take the hardest jets, one after the other; the very hardest only if it usually is of the decay."""

    name = "rank"

    def fit(self, events):
        leading = np.asarray(events.jets.pt).argmax(axis=1)
        used = (events.truth == leading[:, None]).any(axis=1)
        self.skip = 0 if used.mean() > 0.5 else 1
        self.about = {"skip": self.skip}  # for the JSON
        return self

    def assign(self, events):  # jets by falling pT, without truth
        slots = np.arange(len(events.topology.slots)) + self.skip
        return np.tile(slots, (len(events), 1)), np.full(len(events), np.nan)


@pytest.fixture
def registered():
    register_baseline(ByRank())
    yield
    del BASELINES["rank"]


def test_a_baseline_is_compared(registered, decays, mass_model):
    events = decays(300)
    result = pairton.evaluate(events, mass_model, baselines=["rank"], cuts=False)
    found = result.to_dict()["methods"]["rank"]
    assert found["method"]["skip"] == 0
    order = np.argsort(-np.asarray(events.jets.pt), axis=1, kind="stable")
    wanted = efficiencies(events.topology, events.truth, order[:, :6], events.n_jets)
    assert found["efficiency"]["t"]["inclusive"]["correct"] == wanted["t"]["inclusive"].correct
