from dataclasses import replace

import awkward as ak
import numpy as np
import pytest

from pairton.errors import EventsError
from pairton.events import SPLITS, Events, Status
from pairton.events.acceptance import accept
from pairton.events.domain import Domain, KindDomain
from pairton.events.inputs import Inputs
from pairton.events.objects import make_jets
from pairton.events.vectors import energy_of, mass_of
from pairton.topology import Selection, load_topology, parse_topology

FIELDS = ("pt", "eta", "phi", "energy", "btag")


def random_events(n=200, seed=0, topology="ttbar_allhad", low=0, high=12):
    rng = np.random.default_rng(seed)
    counts = rng.integers(low, high, n)
    total = int(counts.sum())
    jets = make_jets(
        pt=ak.unflatten(rng.uniform(15, 200, total), counts),
        eta=ak.unflatten(rng.uniform(-3, 3, total), counts),
        phi=ak.unflatten(rng.uniform(-np.pi, np.pi, total), counts),
        mass=ak.unflatten(rng.uniform(1, 20, total), counts),
        btag=ak.unflatten(rng.integers(0, 2, total), counts),
    )
    truth = np.full((n, 6), -1)
    for row, count in enumerate(counts):
        found = rng.permutation(count)[:6]
        truth[row, : len(found)] = found
    ids = rng.integers(0, 2**63, (n, 2)).astype(np.uint64)
    return Events(jets, topology, truth=truth, weights=rng.normal(size=n), ids=ids, columns={"run": np.arange(n)})


def same(a, b):
    assert ak.array_equal(a.jets, b.jets)
    np.testing.assert_array_equal(a.truth, b.truth)
    np.testing.assert_array_equal(a.weights, b.weights)
    np.testing.assert_array_equal(a.ids, b.ids)
    assert ak.array_equal(ak.Array(a.columns["run"]), ak.Array(b.columns["run"]))


def test_many_parts_are_joined_in_linear_time_and_memory(monkeypatch):
    """Every part looked at the fields of all others, and a slice brought all objects of its array."""
    events, calls, fields = random_events(), [], ak.fields
    parts = [events[k : k + 1] for k in range(len(events))]
    monkeypatch.setattr(ak, "fields", lambda array: calls.append(array) or fields(array))
    both = Events.concatenate(parts)
    assert len(calls) <= 3 * len(parts)
    assert both.jets.nbytes <= events.jets.nbytes
    same(both, events)


def test_rows_by_mask_or_number():
    events = Events(make_jets(**{name: [[10.0]] * 4 for name in FIELDS}), weights=[0, 1, 2, 3])
    for where in ([True, False, False, True], np.array([True, False, False, True]), [0, 3]):
        assert events[where].weights.tolist() == [0, 3]
    assert len(events[[]]) == 0


def test_jets_are_four_vectors():
    events = random_events()
    p4 = events.jets[events.n_jets >= 2]
    pair = p4[:, 0] + p4[:, 1]
    by_hand = (p4[:, 0].E + p4[:, 1].E) ** 2 - sum(
        (getattr(p4[:, 0], c) + getattr(p4[:, 1], c)) ** 2 for c in ("px", "py", "pz")
    )
    np.testing.assert_allclose(pair.mass**2, by_hand, rtol=1e-4)


def test_mass_survives_the_way_through_the_energy():
    pt, eta, mass = np.float32(400.0), np.float32(2.4), np.array([0.2, 5.0, -0.01])
    np.testing.assert_allclose(mass_of(pt, eta, energy_of(pt, eta, mass)), mass, atol=1e-6)


@pytest.mark.parametrize(
    ("field", "value"),
    [("pt", np.nan), ("pt", np.inf), ("pt", 0.0), ("eta", np.nan), ("phi", np.inf), ("energy", 20.0),
     ("energy", np.nan), ("eta", 800.0), ("energy", 1e20)],
)  # fmt: skip
def test_bad_values_flag_their_event_and_keep_the_row(field, value):
    values = {"pt": [[50.0, 40.0], [30.0]], "eta": [[0.0, 1.0], [0.5]], "phi": [[0.0, 1.0], [2.0]]}
    values |= {"energy": [[51.0, 70.0], [40.0]], "btag": [[0, 1], [0]]}
    uncut = replace(load_topology("ttbar_allhad"), selection=Selection())
    assert Events(make_jets(**values), uncut).status.tolist() == [Status.OK, Status.OK]
    values[field][0][0] = value
    bad = Events(make_jets(**values), uncut)
    assert len(bad) == 2
    assert bad.status.tolist() == [Status.BAD_OBJECT, Status.OK]
    cut = field in ("pt", "eta") and value in (0.0, 800.0)  # what a cut surely removes spoils nothing
    assert Events(make_jets(**values)).status.tolist() == [Status.OK if cut else Status.BAD_OBJECT, Status.OK]


def test_missing_energy_below_zero_is_bad():
    """-999 stands for none. No cut removes it, so its event is not selected without missing energy."""
    jets, lepton, met = (
        make_jets(pt=pt, eta=pt * 0, phi=pt * 0, mass=pt * 0, btag=pt * 0 + 1)
        for pt in map(ak.Array, ([[50.0, 40, 30, 30]] * 3, [[40.0]] * 3, [[30.0], [-999.0], [0.0]]))
    )
    events = Events({"jet": jets, "lepton": lepton, "met": met}, "ttbar_semilep")
    assert events.status.tolist() == [Status.OK, Status.BAD_OBJECT, Status.OK]
    assert events.selected.tolist() == [True, False, True]
    assert events.select().counts["met"].tolist() == [1, 1]


def test_energy_below_momentum_within_rounding_is_fine():
    energy = np.float32(50.0 * np.cosh(2.0)) * np.float32(1 - 2e-6)
    events = Events(make_jets(pt=[[50.0]], eta=[[2.0]], phi=[[0.0]], energy=[[energy]], btag=[[0]]))
    assert events.status.tolist() == [Status.OK]


@pytest.mark.parametrize("ragged", [False, True])
def test_integers_of_two_types_are_not_joined(ragged):
    """int64 and uint64 would become doubles, of which only 53 bits are right."""
    events = random_events(2)
    values = np.array([2**60 + 1, 0], np.int64), np.array([1, 2**60 + 3], np.uint64)
    columns = [ak.unflatten(each, [2, 0]) if ragged else each for each in values]
    with pytest.raises(EventsError, match="column n has integers of different types"):
        Events.concatenate([events.replace(columns={"n": column}) for column in columns])
    same = [events.replace(columns={"n": columns[0]}) for _ in range(2)]
    assert ak.flatten(Events.concatenate(same).columns["n"], axis=None).tolist() == [2**60 + 1, 0] * 2


def test_selection_follows_the_topology():
    pt = [[60.0, 50, 45, 40, 35, 30, 20]] * 4
    eta = [[0.0] * 7, [0.0] * 7, [2.6] + [0.0] * 6, [0.0] * 7]
    btag = [[1, 1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]]
    mass = [[5.0] * 7] * 3 + [[np.nan] + [5.0] * 6]
    events = Events(make_jets(pt=pt, eta=eta, phi=[[0.0] * 7] * 4, mass=mass, btag=btag))
    # passes; a tag below the pT cut; a jet beyond the eta cut leaves five; a bad jet
    assert events.selected.tolist() == [True, False, False, False]


def test_edges_belong_to_the_selection():
    pt = [[25.0] * 6, [25.0] * 5 + [24.999]]
    eta = [[2.5, -2.5, 0.0, 0.0, 0.0, 0.0]] * 2
    events = Events(make_jets(pt=pt, eta=eta, phi=[[0.0] * 6] * 2, mass=[[5.0] * 6] * 2, btag=[[1] * 6] * 2))
    assert ak.sum(events.passes["jet"], axis=1).tolist() == [6, 5]
    assert events.selected.tolist() == [True, False]


def test_select_drops_jets_and_keeps_truth_on_the_same_jet():
    events = random_events(400, low=5, high=16)
    chosen = events.select()
    assert 0 < len(chosen) < len(events)
    assert bool(ak.all(chosen.passes["jet"]))
    by_id = {tuple(i): k for k, i in enumerate(events.ids)}
    lost = 0
    for row in range(len(chosen)):
        before = by_id[tuple(chosen.ids[row])]
        for now, then in zip(chosen.truth[row], events.truth[before], strict=True):
            if now >= 0:
                assert chosen.jets[row].pt[now] == events.jets[before].pt[then]
                assert chosen.stored_index["jet"][row][now] == then
            elif then >= 0:
                assert not events.passes["jet"][before][then]
                lost += 1
    assert lost > 0


def test_split_fractions_and_seeds():
    ids = np.stack([np.full(100_000, 7), np.arange(100_000)], axis=1)
    jets = make_jets(**{name: ak.unflatten(np.ones(0), np.zeros(100_000, int)) for name in FIELDS})
    events = Events(jets, ids=ids)
    shares = [events.in_split(name, (0.5, 0.3, 0.2)).mean() for name in SPLITS]
    np.testing.assert_allclose(shares, (0.5, 0.3, 0.2), atol=0.006)
    both = events.in_split("test", (0.5, 0.0, 0.5)) & events.in_split("test", (0.5, 0.0, 0.5), seed=1)
    assert both.mean() == pytest.approx(0.25, abs=0.006)
    with pytest.raises(EventsError, match="add up to 1"):
        events.in_split("test", (0.5, 0.3, 0.3))
    with pytest.raises(EventsError, match="train, validation, test"):
        events.in_split("training")


def test_reconstructible_counts():
    truth = np.array([[0, 1, 2, 3, 4, 5], [0, 1, -1, 3, 4, 5], [0, -1, 2, -1, 4, 5]])
    jets = make_jets(**{name: [[10.0] * 6] * 3 for name in FIELDS})
    events = Events(jets, truth=truth)
    names = [p.name for p in events.topology.particles]
    assert events.present[1].tolist() == [name != "t1" for name in names]
    assert events.complete.tolist() == [True, False, False]
    assert not Events(jets).complete.any()


def test_dense_arrays_have_the_jets_in_order():
    events = random_events(50)
    dense, mask = events.dense(columns=FIELDS)
    np.testing.assert_array_equal(mask.sum(1), events.n_jets)
    for k, name in enumerate(FIELDS):
        np.testing.assert_array_equal(
            dense[..., k][mask], ak.to_numpy(ak.flatten(events.jets[name])).astype(np.float32)
        )
    assert (dense[~mask] == 0).all()


def test_empty_events_work():
    events = random_events()[:0]
    assert len(events) == 0
    assert len(events.select()) == 0
    assert events.dense()[0].shape == (0, 0, 4)
    assert events.in_split("train").shape == (0,)
    assert Events(make_jets(**{name: [[], []] for name in FIELDS})).n_jets.tolist() == [0, 0]


def test_arrays_that_do_not_fit_are_refused():
    jets = make_jets(**{name: [[10.0]] * 3 for name in FIELDS})
    with pytest.raises(EventsError, match=r"weights has the shape \(3, 1\): give one number per event"):
        Events(jets, weights=[[1], [2], [3]])
    with pytest.raises(EventsError, match="weights has 2 rows, but there are 3 events"):
        Events(jets, weights=[1, 2])
    with pytest.raises(EventsError, match=r"ids has the shape \(3,\), but must be \(events, 2\)"):
        Events(jets, ids=[1, 2, 3])
    with pytest.raises(EventsError, match="6 slots"):
        Events(jets, truth=np.zeros((3, 4)))
    for wrong in (1, -2):
        truth = np.full((3, 6), -1)
        truth[1, 4] = wrong
        with pytest.raises(EventsError, match=rf"truth of event 1 is \[-1, -1, -1, -1, {wrong}, -1\], but it"):
            Events(jets, truth=truth)
    with pytest.raises(EventsError, match=r"truth of event 2 is \[-1, 0, -1, 0, -1, -1\], with the same jet in"):
        Events(jets, truth=[[-1] * 6, [0] + [-1] * 5, [-1, 0, -1, 0, -1, -1]])
    with pytest.raises(EventsError, match="some objects are None"):
        make_jets(**{name: ak.pad_none([[10.0]], 2) for name in FIELDS})
    with pytest.raises(EventsError, match="jets lack energy"):
        Events(jets[["pt", "eta", "phi"]])
    with pytest.raises(EventsError, match="different lengths"):
        make_jets(pt=[[1.0]], eta=[[1.0, 2.0]], phi=[[1.0]], mass=[[1.0]], btag=[[1.0]])
    with pytest.raises(EventsError, match="one of energy or mass"):
        make_jets(pt=[[1.0]], eta=[[1.0]], phi=[[1.0]], btag=[[1.0]])
    with pytest.raises(EventsError, match="different topologies"):
        Events.concatenate([Events(jets), Events(jets, "hh4b")])
    with pytest.raises(EventsError, match="1 of 2 parts have weights"):
        Events.concatenate([Events(jets), Events(jets, weights=[1, 2, 3])])


def test_inputs_that_say_which_cuts_the_jets_passed():
    """Those in force; those of the topology, as far as no used jet is beyond them; or those that were drawn."""
    columns = {"pt": [[60.0, 21.0], [50.0, 40.0], []], "eta": [[0.5, -2.8], [0.1, 1.0], []]}
    jets = make_jets(**columns, phi=columns["eta"], mass=[[5.0] * 2, [5.0] * 2, []], btag=columns["pt"])
    selection = {"jets": {"pt": 25, "abs_eta": 2.5}}
    events = Events(jets, parse_topology({**load_topology("hh4b").to_dict(), "selection": selection}))
    inputs = Inputs.parse({"jet": ["cut_pt", "cut_abs_eta"]}, events.topology)

    def found(events, **cuts):
        values = accept(events, Domain({"jet": KindDomain(20, 4.5)}), inputs, **cuts).nodes.values["jet"]
        return values[:2, 0, 4:].round(4).tolist()

    expected = [np.float32([21, 2.8]).tolist(), [25.0, 2.5]]
    np.testing.assert_allclose(found(events), expected, rtol=1e-6)
    np.testing.assert_allclose(found(events, cuts=False), expected, rtol=1e-6)
    harder = found(events, cuts={"jet": {"pt": 30, "abs_eta": 2.4}})
    np.testing.assert_allclose(harder, [[30, 2.4], [30, 2.4]], rtol=1e-6)
    drawn = ak.with_field(ak.with_field(jets, 28 + 0 * jets.pt, "cut_pt"), 2.2 + 0 * jets.pt, "cut_abs_eta")
    np.testing.assert_allclose(found(events.replace(objects={"jet": drawn})), [[28, 2.2], [28, 2.2]], rtol=1e-6)
