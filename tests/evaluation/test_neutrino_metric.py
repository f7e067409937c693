"""The resolution of pz of the neutrino, where events say what it is."""

import numpy as np
import pytest

import pairton
from leptonic_tops import leptonic_events
from pairton.evaluation.metrics.numbers import TRUE_MOMENTUM
from pairton.events import Events


def labelled(n=300, scale=1.0, **more):
    events, neutrinos = leptonic_events(1, n, **more)
    columns = {name: scale * neutrinos[:, 0, k] for k, name in enumerate(TRUE_MOMENTUM)}
    return events.replace(columns=columns), neutrinos[:, 0, 2]


def test_true_objects_give_the_true_neutrino():
    events, _ = labelled()
    result = pairton.evaluate(events, [], baselines=["random"]).to_dict()["neutrino_pz"]
    true = result["true_objects"]
    assert true["neutrinos"] == 300
    assert true["real"]["value"] > 0.9
    assert true["better"]["value"] > 0.98
    assert true["resolution"]["value"] < 1
    assert result["better"]["value"] < 0.9  # a wrong b often takes the other solution
    assert result["resolution"]["value"] > 1000 * true["resolution"]["value"]


def test_numbers_by_hand():
    events, pz = labelled(200, seed=3)
    shifted = dict(events.columns) | {"neutrino_pz": pz - 7.0}
    true = pairton.evaluate(events.replace(columns=shifted), [], baselines=["random"]).to_dict()
    plain = pairton.evaluate(events, [], baselines=["random"]).to_dict()
    bias = [each["neutrino_pz"]["true_objects"]["bias"]["value"] for each in (true, plain)]
    assert bias[0] - bias[1] == pytest.approx(7.0, abs=1e-6)


def test_events_without_a_true_neutrino_are_left_out():
    events, _ = labelled(100)
    unknown = dict(events.columns)
    unknown["neutrino_pz"] = np.where(np.arange(100) < 40, np.nan, unknown["neutrino_pz"])
    truth = events.truth.copy()
    truth[50:60, 3] = -1  # no b
    some = events.replace(columns=unknown, truth=truth)
    result = pairton.evaluate(some, [], baselines=["random"], cuts=False).to_dict()["neutrino_pz"]
    assert (result["neutrinos"], result["true_objects"]["neutrinos"]) == (60, 50)


def test_other_units_are_said_and_not_compared():
    events, _ = labelled(scale=0.01)
    result = pairton.evaluate(events, [], baselines=["random"])
    assert "neutrino_pz" not in result.to_dict()
    assert "not in GeV" in result.table()


def test_without_the_columns_or_with_two_neutrinos_there_is_no_table():
    events, _ = labelled(50)
    assert "neutrino_pz" not in pairton.evaluate(events.replace(columns={}), [], baselines=["random"]).to_dict()
    both, neutrinos = leptonic_events(2, 50)
    columns = {name: neutrinos[:, 0, k] for k, name in enumerate(TRUE_MOMENTUM)}
    two = Events(both.objects, both.topology, both.truth, columns=columns)
    assert "neutrino_pz" not in pairton.evaluate(two, [], baselines=["random"]).to_dict()
