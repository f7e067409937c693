"""Jets that must not be used, and the same jets calibrated otherwise."""

import awkward as ak
import numpy as np
import pytest

from pairton.errors import EventsError
from pairton.events import Events, Status
from pairton.events.objects import make_jets

PT = [[60.0, 50.0, 40.0, 30.0, 28.0], [70.0, 20.0]]


def jets(scale=1.0, **more):
    pt = ak.Array(PT) * scale
    return make_jets(pt=pt, eta=pt * 0, phi=pt * 0, mass=pt * 0 + 5, btag=pt * 0 + 1, **more)


def test_a_jet_that_is_not_usable_keeps_its_place_and_does_not_count():
    usable = ak.Array([[True, True, False, True, True], [True, True]])
    events = Events(jets(usable=usable), "hh4b", truth=[[0, 1, 2, 3], [0, -1, -1, -1]])
    assert events.n_jets.tolist() == [5, 2]
    assert events.passes["jet"].tolist() == [[True, True, False, True, True], [True, False]]
    assert events.selected.tolist() == [True, False]
    chosen = events.select()
    assert chosen.stored_index["jet"].tolist() == [[0, 1, 3, 4]]
    assert chosen.truth.tolist() == [[0, 1, -1, 2]]
    assert Events(jets(), "hh4b").usable["jet"].tolist() == [[True] * 5, [True] * 2]


def test_only_a_usable_jet_can_spoil_an_event():
    pt = ak.Array([[50.0, np.nan], [50.0, np.nan]])
    usable = ak.Array([[True, False], [True, True]])
    spoilt = make_jets(
        pt=pt, eta=[[0, 0]] * 2, phi=[[0, 0]] * 2, mass=[[5, 5]] * 2, btag=[[0, 0]] * 2, usable=usable
    )
    assert Events(spoilt, "hh4b").status.tolist() == [Status.OK, Status.BAD_OBJECT]


def test_concatenation_fills_in_what_only_some_parts_say():
    marked = Events(jets(usable=ak.Array([[False] * 5, [True] * 2])), "hh4b")
    both = Events.concatenate([marked, Events(jets(), "hh4b")])
    assert both.usable["jet"].tolist() == [[False] * 5, [True] * 2, [True] * 5, [True] * 2]


def test_variations_follow_rows_and_jets():
    events = Events(jets(), "hh4b", variations={"up": jets(1.1), "down": jets(0.9)})
    np.testing.assert_allclose(ak.flatten(events[1:].variations["up"]["jet"].pt), [77.0, 22.0], rtol=1e-6)
    twice = Events.concatenate([events, events[[1]]])
    np.testing.assert_allclose(ak.flatten(twice.varied("down").jets.pt)[-2:], [63.0, 18.0], rtol=1e-6)
    kept = events.keep({"jet": events.jets.pt > 35})
    np.testing.assert_allclose(ak.flatten(kept.variations["up"]["jet"].pt), [66.0, 55.0, 44.0, 77.0], rtol=1e-6)
    assert kept.varied("up").stored_index["jet"].tolist() == [[0, 1, 2], [0]]
    assert twice.varied("down").variations == {}


def test_a_varied_jet_is_as_usable_as_the_nominal_one():
    usable = ak.Array([[True, False, True, True, True], [True, True]])
    events = Events(jets(usable=usable), "hh4b", variations={"up": jets(1.1)})
    assert events.varied("up").usable["jet"].tolist() == usable.tolist()


def test_marks_that_only_some_parts_have_do_not_split_the_variations():
    usable = ak.Array([[False] + [True] * 4, [True] * 2])
    marked = Events(jets(usable=usable), "hh4b", variations={"up": jets(1.1, usable=usable)})
    plain = Events(jets(), "hh4b", variations={"up": jets(1.1)})
    both = Events.concatenate([plain, marked, plain.keep({"jet": plain.jets.pt > 35})])
    kept = both.keep({"jet": both.jets.pt > 45})
    np.testing.assert_allclose(ak.flatten(kept.variations["up"]["jet"].pt), [66, 55, 77] * 3, rtol=1e-6)
    good = [[True, True], [True]]
    assert kept.varied("up").usable["jet"].tolist() == [*good, [False, True], [True], *good]
    assert kept.varied("up").stored_index["jet"].tolist() == [[0, 1], [0]] * 3
    assert both.select().n_jets.tolist() == [5, 4]  # the other events have fewer than four usable jets


def test_variations_that_do_not_fit_are_refused():
    with pytest.raises(EventsError, match="variation 'up': jets differ in number from the nominal ones"):
        Events(jets(), "hh4b", variations={"up": jets()[:, :1]})
    with pytest.raises(EventsError, match="'up': jets differ in number"):
        Events(jets(), "hh4b", variations={"up": jets()[:1]})
    with pytest.raises(EventsError, match="'up': jets lack energy"):
        Events(jets(), "hh4b", variations={"up": jets()[["pt", "eta", "phi"]]})
    events = Events(jets(), "hh4b", variations={"jes_up": jets(1.1)})
    with pytest.raises(EventsError, match="no variation 'jes_upp': the events have jes_up; did you mean 'jes_up'"):
        events.varied("jes_upp")
    with pytest.raises(EventsError, match="only some parts have the variations jes_up"):
        Events.concatenate([events, Events(jets(), "hh4b")])
