"""The permutations of every event as a table."""

import awkward as ak
import numpy as np
import pytest

import pairton
from pairton.errors import ConfigError
from pairton.kinematics.permutation_list import list_permutations
from pairton.topology import parse_topology


def test_the_first_permutation_is_the_answer(tops):
    events, _ = tops("hl", n=6, smear=0.1)
    fewer = ak.Array([[True] * 3 + [k != 2] for k in range(6)])  # the third event has too few jets
    events = events.replace(jets=events.jets[fewer], truth=None)
    found = list_permutations(events, k=12, cuts=False)
    reco = pairton.reconstruct(events, model="kinematic", jets="none", leptons="none")
    first = found["rank"] == 0
    assert found["row"][first].tolist() == [0, 1, 3, 4, 5]
    assert np.bincount(found["row"], minlength=6).tolist() == [12, 12, 0, 12, 12, 12]
    columns = reco.to_columns()
    for name in ("t_b_jet", "tl_b_jet", "tl_l_lepton"):
        assert found[name][first].tolist() == columns[name][found["row"][first]].tolist()
    assert found["probability"][first] == pytest.approx(
        columns["event_probability"][found["row"][first]], rel=1e-5
    )
    for row in (0, 1, 3, 4, 5):
        assert found["probability"][found["row"] == row].sum() == pytest.approx(1)
        assert (np.diff(found["probability"][found["row"] == row]) <= 1e-12).all()


def test_events_without_an_answer_have_no_rows(tops):
    events, _ = tops("hl", n=2)
    none = events.replace(jets=events.jets[:, :2], truth=None)
    assert {name: len(column) for name, column in list_permutations(none).items()}["row"] == 0
    met = events.objects["met"][ak.Array([[False], [False]])]
    assert len(list_permutations(events.replace(objects={**events.objects, "met": met}), cuts=False)["row"]) == 0


def test_events_need_missing_energy_and_not_every_kind_of_the_context(tops):
    """An event without photons had no answer."""
    events, _ = tops("hl", n=3)
    raw = {**events.topology.to_dict(), "context": ["met", "photon"]}
    none = events.jets[["pt", "eta", "phi", "energy"]][:, :0]
    seen = pairton.Events({**events.objects, "photon": none}, parse_topology(raw))
    expected = pairton.reconstruct(events, model="kinematic", jets="none", leptons="none")
    reco = pairton.reconstruct(seen, model="kinematic", jets="none", leptons="none")
    assert (reco.assignment >= 0).all()
    assert reco.assignment.tolist() == expected.assignment.tolist()
    assert set(list_permutations(seen, k=2, cuts=False)["row"].tolist()) == {0, 1, 2}


def test_a_network_has_no_permutations_to_list(tops):
    with pytest.raises(ConfigError, match="ttbar_allhad: cannot be read"):
        list_permutations(tops("hh", n=2)[0], "ttbar_allhad")
