"""A baseline from outside the package: fitted on events, asked about events, known to --baseline."""

import json

import numpy as np
import pytest

import pairton
from pairton.errors import ConfigError, ModelError
from pairton.evaluation.registry import BASELINES, register_baseline


class ByRank:
    """Every slot takes the jet whose rank in pT is most frequent for it and still free."""

    name = "by_rank"

    def fit(self, events):
        order = np.argsort(-np.asarray(events.jets.pt), axis=1)
        rank = np.argsort(order, axis=1)
        frequent = [np.bincount(column).argsort()[::-1] for column in np.take_along_axis(rank, events.truth, 1).T]
        self.ranks = []
        for ranks in frequent:
            self.ranks.append(next(rank for rank in (*ranks, *range(99)) if rank not in self.ranks))
        self.about = {"ranks": [int(rank) for rank in self.ranks]}
        return self

    def assign(self, events):
        assert events.truth is None  # nothing to peek at
        assert all(np.all(np.diff(pt) <= 0) for pt in events.jets.pt)
        return np.tile(self.ranks, (len(events), 1)), np.full(len(events), 0.01)


@pytest.fixture
def registered():
    register_baseline(ByRank())
    yield
    del BASELINES["by_rank"]


def test_a_baseline_is_compared(registered, decays, mass_model, source, command, tmp_path):
    events = decays(300, extra=2)
    result = pairton.evaluate(events, mass_model, baselines=["by_rank"], jet_scales=[0.9], cuts=False)
    found = result.to_dict()["methods"]["by_rank"]
    assert found["method"]["fitted_on"] == "the first 300 of these events"
    ranks = found["method"]["ranks"]
    order = np.argsort(-np.asarray(events.jets.pt), axis=1, kind="stable")
    reference = pairton.evaluation.metrics.efficiencies(
        events.topology, events.truth, order[:, ranks], events.n_jets
    )
    for what, cells in reference.items():
        assert found["efficiency"][what]["inclusive"]["correct"] == cells["inclusive"].correct
    assert found["calibration"]["event"]["probability"] == pytest.approx(0.01)
    assert command("evaluate", source, "--baseline", "by_rank", "--json", tmp_path / "numbers.json") == 0
    assert "by_rank" in json.loads((tmp_path / "numbers.json").read_text())["methods"]


def test_answers_of_another_shape_are_refused(registered, decays, monkeypatch):
    monkeypatch.setattr(ByRank, "assign", lambda self, events: (np.zeros((len(events), 2)), np.zeros(len(events))))
    with pytest.raises(ModelError, match=r"by_rank returns assignments of the shape \(20, 2\)"):
        pairton.evaluate(decays(20), [], baselines=["by_rank"], cuts=False)


def test_options_that_nothing_reads_are_refused(decays):
    with pytest.raises(ConfigError, match="no option 'jet_cuts'"):
        pairton.evaluate(decays(20), [], baselines=["chi2"], jet_cuts=False)
