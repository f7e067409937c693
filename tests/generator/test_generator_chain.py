"""The detector, jets, tags and truth of the generator, on hand-made particles: Pythia is not needed."""

import awkward as ak
import numpy as np
import pytest
from msgspec.structs import replace

from pairton.errors import ConfigError, TopologyError
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.generator.card import Rings, load_card, parse_card
from pairton.generator.detector import LIGHT, Momenta, Particles, detect, lognormal, propagate, towers
from pairton.generator.jets import find_jets, flavours, tags
from pairton.generator.simulation import check_topology, keep_mask, match, slot_entries
from pairton.topology import load_topology, parse_topology
from pythia_records import make_record


@pytest.fixture(scope="module")
def card():
    return load_card("atlas")


def particles(p, code=211, charge=1.0, vertex=(0.0, 0.0, 0.0), event=None):
    p = np.atleast_2d(np.asarray(p, dtype=float))
    n = len(p)
    event = np.zeros(n, dtype=np.int64) if event is None else event
    code, charge = (np.broadcast_to(values, n).copy() for values in (code, charge))
    return Particles(event, *p.T, np.sqrt((p**2).sum(axis=1)), code, charge, *np.broadcast_to(vertex, (n, 3)).T)


# -- bending -----------------------------------------------------------------------------------------------


def step_by_step(p, charge, vertex, field, step=1e-4):
    """The equation of motion in small steps: direction turns by -0.3 B q / pT for each metre."""
    px, py, pz = p
    pt = np.hypot(px, py)
    angle = np.arctan2(py, px)
    x, y, z = vertex
    turn = -LIGHT * field.tesla * charge / pt * step
    while np.hypot(x, y) < field.radius and abs(z) < field.half_length:
        x += np.cos(angle + turn / 2) * step
        y += np.sin(angle + turn / 2) * step
        z += pz / pt * step
        angle += turn
    return np.arcsinh(z / np.hypot(x, y)), np.arctan2(y, x)


@pytest.mark.parametrize(
    ("p", "charge", "vertex"),
    [
        ((3.0, 1.0, 2.0), 1.0, (0.0, 0.0, 0.0)),
        ((3.0, 1.0, 2.0), -1.0, (0.01, -0.02, 0.1)),
        ((-0.5, 0.4, -0.3), 1.0, (0.3, 0.2, -0.4)),
        ((0.2, 0.1, 0.4), -1.0, (0.0, 0.0, 0.0)),  # curls up and leaves through the endcap
        ((0.4, 0.0, 30.0), 1.0, (0.0, 0.0, 0.0)),  # forward
        ((5.0, -2.0, 1.0), 0.0, (0.1, 0.1, 0.1)),
    ],
)
def test_particles_leave_where_the_equation_of_motion_says(card, p, charge, vertex):
    eta, phi, reaches = propagate(particles(p, charge=charge, vertex=vertex), card.field)
    assert reaches.all()
    expected = step_by_step(p, charge, vertex, card.field)
    assert (eta[0], phi[0]) == pytest.approx(expected, abs=3e-3)


def test_charges_bend_apart_and_particles_born_outside_are_lost(card):
    _, phi, reaches = propagate(particles([(2.0, 0.0, 0.0)] * 3, charge=[1.0, -1.0, 0.0]), card.field)
    assert reaches.all()
    assert phi[0] == pytest.approx(-phi[1])
    assert phi[0] < phi[2] == 0.0
    outside = particles([(2.0, 0.0, 0.0)], vertex=(1.2, 0.0, 0.0))
    assert not propagate(outside, card.field)[2].any()
    circling = particles([(0.1, 0.1, 0.0)])  # too soft for the barrel, and it never gets to the endcap
    assert not propagate(circling, card.field)[2].any()


# -- towers ------------------------------------------------------------------------------------------------


def perfect(calorimeter):
    sharp = tuple(replace(each, constant=0.0, stochastic=0.0, noise=0.0) for each in calorimeter.resolution)
    return replace(calorimeter, resolution=sharp, threshold=0.0, significance=0.0)


def test_lognormal_has_the_mean_and_width_asked_for():
    normal = np.random.default_rng(3).standard_normal(400_000)
    drawn = lognormal(np.full(len(normal), 10.0), np.full(len(normal), 4.0), normal)
    assert drawn.min() > 0
    assert drawn.mean() == pytest.approx(10.0, rel=0.005)
    assert drawn.std() == pytest.approx(4.0, rel=0.01)


def test_towers_sum_what_a_loop_over_particles_sums(card):
    rng = np.random.default_rng(1)
    n = 3000
    event = np.sort(rng.integers(0, 4, n))
    eta, phi = rng.uniform(-5.2, 5.2, n), rng.uniform(-np.pi, np.pi, n)
    energy = rng.exponential(2.0, n)
    grid = card.hcal.grid
    slow = {}
    for k in range(n):
        ring = next((r for r in range(len(grid.n_phi)) if abs(eta[k]) < grid.edges[r + 1]), None)
        if ring is not None:
            sector = int((phi[k] + np.pi) / (2 * np.pi / grid.n_phi[ring]))
            key = (int(event[k]), int(eta[k] >= 0), ring, sector)
            slow[key] = slow.get(key, 0.0) + energy[k]
    fast = towers(event, eta, phi, energy, perfect(card.hcal), rng)
    assert np.all(np.diff(fast.event) >= 0)
    assert np.sort(fast.energy) == pytest.approx(np.sort(list(slow.values())))
    # each tower lies within its own cell: filling them again changes nothing
    pt = np.hypot(fast.px, fast.py)
    again = towers(
        fast.event, np.arcsinh(fast.pz / pt), np.arctan2(fast.py, fast.px), fast.energy, perfect(card.hcal), rng
    )
    assert np.sort(again.energy) == pytest.approx(np.sort(fast.energy))


def test_a_calorimeter_may_begin_above_zero(card):
    """Energy below the first ring was put into the ring before the first one, which is the last one."""
    rings = (Rings(90, (1.5, 2.0)), Rings(45, (2.0, 3.0)))
    forward = replace(perfect(card.hcal), towers=rings)
    eta = np.array([-1.6, 0.5, 2.5, 3.5, 0.0])
    found = towers(np.zeros(5, np.int64), eta, np.zeros(5), np.arange(1.0, 6.0), forward, np.random.default_rng(0))
    assert sorted(found.energy) == pytest.approx([1.0, 3.0])


def test_towers_below_threshold_or_significance_are_dropped(card):
    sure = replace(perfect(card.ecal), threshold=0.5)
    at = np.zeros(2)
    kept = towers(np.array([0, 1]), at, at, np.array([0.4, 0.6]), sure, np.random.default_rng(0))
    assert kept.event.tolist() == [1]
    # 2 GeV in the barrel of the hadron calorimeter: sigma is 1.8 GeV, and 3.2 GeV of noise must be passed
    n = 4000
    noisy = towers(np.arange(n), np.zeros(n), np.zeros(n), np.full(n, 2.0), card.hcal, np.random.default_rng(0))
    assert noisy.energy.min() > 2 * 1.59
    assert 0.05 < len(noisy.event) / n < 0.2


def test_resolution_and_efficiencies_by_hand(card):
    eta = np.array([1.0, 2.0, 4.0])
    ten = np.full(3, 10.0)
    assert card.ecal.sigma(eta, ten) == pytest.approx([0.31984, 0.31984, 0.96690], rel=1e-4)
    assert card.hcal.sigma(eta, ten) == pytest.approx([2.30836, 2.28798, 3.29960], rel=1e-4)
    tagged = [0.80 * np.tanh(0.3) * 30 / 9.6, 0.20 * np.tanh(2.0) / 1.34, 0.00273]
    assert card.btag.efficiency(np.array([0, 1, 2]), np.full(3, 100.0)) == pytest.approx(tagged)


def test_each_kind_of_particle_leaves_its_share(card):
    """photon -> ECal, pion -> HCal, K0 short -> both, muon -> tracker, neutrino -> nothing."""
    sure = tuple(replace(each, efficiency=1.0, constant=0.0, slope=0.0) for each in card.muons.regions)
    muons = replace(card.muons, regions=sure)
    ideal = replace(card, ecal=perfect(card.ecal), hcal=perfect(card.hcal), muons=muons)
    codes = np.array([22, 211, 310, 13, 14])
    shot = particles([(20.0, 0, 0)] * 5, code=codes, charge=[0, 1, 0, -1, 0], event=np.arange(5))
    found = detect(shot, ideal, np.random.default_rng(2))
    energies = {k: np.sort(found.energy[found.event == k]).tolist() for k in range(5)}
    assert [energies[k] for k in range(5)] == [pytest.approx(shares) for shares in ([20], [20], [6, 14], [20], [])]
    # a photon is placed within a degree, a pion within ten
    spread = [np.abs(np.arctan2(found.py, found.px))[found.event == k].max() for k in (0, 1)]
    assert spread[0] < np.deg2rad(1) < np.deg2rad(10)
    assert spread[1] < np.deg2rad(11)


# -- jets and tags -----------------------------------------------------------------------------------------


def test_jets_are_clustered_scaled_cut_and_ordered(card):
    pytest.importorskip("fastjet")
    # event 0: 60 + 20 GeV at 0.1, 200 GeV opposite, 20 GeV (23.4 after the scale); event 1: nothing;
    # event 2: 22 GeV, above the cut only after the scale, and 100 GeV beyond the coverage
    pt = np.array([60.0, 20.0, 200.0, 20.0, 22.0, 100.0])
    eta = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 2.6])
    phi = np.array([0.0, 0.1, 3.0, 1.5, 0.0, 2.0])
    inputs = Momenta(
        np.array([0, 0, 0, 0, 2, 2]), pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), pt * np.cosh(eta)
    )
    jets = find_jets(inputs, 3, replace(card.jets, pt=25.0, abs_eta=2.5))
    assert ak.num(jets).tolist() == [2, 0, 1]
    pair = np.hypot(60 + 20 * np.cos(0.1), 20 * np.sin(0.1))
    expected = [np.sqrt(9 / 200 + 1) * 200, np.sqrt(9 / pair + 1) * pair]
    assert jets.pt[0].tolist() == pytest.approx(expected)
    assert jets.pt[2].tolist() == pytest.approx([np.sqrt(9 / 22 + 1) * 22])


def test_the_score_passes_its_points_as_often_as_the_card_says(card):
    rng = np.random.default_rng(8)
    n = 400_000
    for row, flavour in enumerate(card.btag.working_points):
        score = card.btag.points.score(np.full(n, row), rng.random(n))
        assert 0 <= score.min() < score.max() <= 1
        for point, efficiency in zip(card.btag.working_points[0], flavour, strict=True):
            passed = (score > 1 - point).mean()
            assert passed == pytest.approx(efficiency, abs=4 * np.sqrt(efficiency / n)), (row, point)
    # rising with the rank of a jet among its flavour, and b always the highest
    rank = np.linspace(0.001, 0.999, 500)
    scores = np.array([card.btag.points.score(np.full(500, row), rank) for row in range(3)])
    assert np.all(np.diff(scores, axis=1) < 0)
    assert np.all(np.diff(scores, axis=0) < 0)


def test_all_tags_of_a_jet_come_from_one_number(card):
    n = 20_000  # in each event a B, a D, no hadron, and a B beyond the tracker
    rows = [
        row
        for e in range(n)
        for row in [(e, 511, 91, -1, 50, 0), (e, 421, 91, -1, 0, 50), (e, 521, 91, -1, -10, 0, 90)]
    ]
    eta = [0.0, 0.0, 0.0, np.arcsinh(9.0)]
    jets = {"pt": [[60.0] * 4] * n, "eta": [eta] * n, "phi": [[0.0, np.pi / 2, -np.pi / 2, np.pi]] * n}
    found = tags(ak.zip(jets), make_record(rows), card.btag, np.random.default_rng(4))
    btag, score, tagbin, flavour = (np.asarray(found[name]) for name in ("btag", "score", "tagbin", "flavour"))
    assert np.all(flavour == [5, 4, 0, 5])
    assert np.all(btag[:, 3] == 0)
    assert np.all(score[:, 3] == 0)
    assert np.all(tagbin[:, 3] == 1)
    assert np.array_equal(tagbin, 1 + (score[:, :, None] > 1 - card.btag.working_points[0]).sum(axis=2))
    for row in range(3):
        shares = [(tagbin[:, row] > k).mean() for k in range(1, 5)]
        points = card.btag.working_points[row]
        assert shares == pytest.approx(points, abs=4 * np.sqrt(points.max() / n))
        binary = card.btag.efficiency(np.array([row]), np.array([60.0]))[0]
        assert btag[:, row].mean() == pytest.approx(binary, abs=4 * np.sqrt(binary / n))
        if btag[:, row].any():  # a cut on the score
            assert score[btag[:, row] == 1, row].min() > score[btag[:, row] == 0, row].max()


def test_flavour_is_that_of_the_heaviest_hadron_in_the_cone(card):
    rows = [  # event, code, pt, phi
        (0, 511, 30.0, 0.1),  # B and D near the first jet
        (0, 421, 30.0, 0.0),
        (0, 421, 30.0, 2.9),  # D near the second
        (0, 511, 4.0, 2.9),  # a B too soft to count
        (1, 521, 30.0, 0.5),  # a B outside the cone
        (1, 5, 30.0, 0.0),  # a quark is no hadron
    ]
    record = make_record([(e, code, 91, -1, pt * np.cos(phi), pt * np.sin(phi)) for e, code, pt, phi in rows])
    jets = ak.zip({"eta": [[0.0, 0.0], [0.0]], "phi": [[0.0, 3.0], [0.0]], "pt": [[50.0, 40.0], [30.0]]})
    assert flavours(jets, record, card.btag).tolist() == [0, 1, 2]


# -- truth -------------------------------------------------------------------------------------------------


def ttbar_rows(event=0):
    """The antitop first, a recoiling copy between top and its decay, a quark that no resonance made."""
    at = [np.cos, np.sin]

    def p(phi):
        return tuple(30 * f(phi) for f in at)

    return [
        (event, 90, -11, -1, 0, 0),
        (event, 21, -21, -1, 0, 0),
        (event, -6, -22, 1, 1, 0),  # 2
        (event, 6, -22, 1, 1, 0),  # 3
        (event, 6, -44, 3, 1, 0),  # 4: copy
        (event, 6, -62, 4, 1, 0),  # 5: copy
        (event, 24, -22, 5, 1, 0),  # 6
        (event, 5, -23, 5, *p(0.0)),  # 7
        (event, -24, -22, 2, 1, 0),  # 8
        (event, -5, -23, 2, *p(1.0)),  # 9
        (event, 24, -52, 6, 1, 0),  # 10: copy
        (event, -1, -23, 10, *p(2.0)),  # 11
        (event, 2, -23, 10, *p(3.0)),  # 12
        (event, 3, -23, 8, *p(-1.0)),  # 13
        (event, -4, -23, 8, *p(-2.0)),  # 14
        (event, 5, -23, 1, *p(-3.0)),  # 15: from the hard process itself
        (event, 5, -51, 7, *p(0.1)),  # 16: shower
    ]


def test_quarks_fill_the_slots_of_the_tree():
    topology = load_topology("ttbar_allhad")
    record = make_record(ttbar_rows(0) + ttbar_rows(1))
    slots = slot_entries(record, topology)
    # t1.W.q1, t1.W.q2, t1.b, t2.W.q1, t2.W.q2, t2.b; the top is first, and so are particles before antiparticles
    assert slots[0].tolist() == [12, 11, 7, 13, 14, 9]
    assert (slots[1] - 17).tolist() == slots[0].tolist()


def test_unknown_names_in_a_topology_are_refused():
    strange = parse_topology({"name": "x", "event": ["X"], "particles": {"X": ["b", "b"]}})
    with pytest.raises(TopologyError, match="PDG codes of X in x"):
        check_topology(strange)
    check_topology(parse_topology({**strange.to_dict(), "codes": {"X": [35]}}))
    photons = {"name": "yy", "event": ["H"], "particles": {"H": ["y", "y"]}, "objects": {"y": "photon"}}
    with pytest.raises(TopologyError, match="makes no photons for yy: its kinds of objects are jet, lepton"):
        check_topology(parse_topology(photons))


def at(phi, eta=0.0, pt=50.0):
    """An event with jets there."""
    rows = {"pt": pt, "eta": eta, "phi": phi, "mass": 4.0, "btag": 0.0}
    jets = {name: [np.broadcast_to(values, len(phi)).tolist()] for name, values in rows.items()}
    return Events(make_jets(**jets), "ttbar_allhad")


def test_jets_within_the_selection_are_matched_as_if_there_were_no_others():
    record = make_record(ttbar_rows())
    slots = slot_entries(record, load_topology("ttbar_allhad"))
    # the soft jet is nearer to the quark at 3.0, but the hard one has it; at 2.0 and 0.0 there are only soft ones
    events = at([3.1, 3.0, 2.1, 0.1], pt=[50.0, 22.0, 22.0, 22.0])
    assert match(events, record, slots, {"jet": 0.4})[0].tolist() == [0, 2, 3, -1, -1, -1]
    forward = at([0.1, 0.05], eta=[0.0, 2.6])
    assert match(forward, record, slots, {"jet": 0.4})[0].tolist() == [-1, -1, 0, -1, -1, -1]
    none = np.full((1, 6), -1)  # quarks that are missing, not the last entry of the record
    assert match(at([0.1]), record, none, {"jet": 0.4})[0].tolist() == [-1] * 6


def test_what_is_kept():
    n, truth = [6, 6, 5, 6], np.full((4, 6), -1)
    truth[1, :2] = 0, 1  # a W
    truth[2] = 0, 1, 2, 3, 4, -1
    truth[3, 1:3] = 0, 1  # no particle complete
    tags = [[1.0] * min(k, 2) + [0.0] * max(k - 2, 0) for k in n]
    tags[0] = [1.0] + [0.0] * 5
    jet = {"pt": 30.0, "eta": 0.5, "phi": 0.0, "mass": 4.0}
    same = {name: [[value] * k for k in n] for name, value in jet.items()}
    events = Events(make_jets(**same, btag=tags), "ttbar_allhad", truth)
    assert keep_mask(events, "all").tolist() == [True] * 4
    assert keep_mask(events, "selected").tolist() == [False, True, False, True]
    assert keep_mask(events, "reconstructible").tolist() == [False, True, False, False]


# -- cards -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  tesla: 2.0", "  telsa: 2.0", "did you mean 'tesla'"),
        ("  threshold: 0.5", "  threshold: -1", "at least 0"),
        ("phi: 20}", "phi: 7}", "divide 360"),
        ("phi: 20}", "phi: 0}", "phi is 0, but must be a number above 0"),
        ("name: atlas", "nam: atlas", "no setting 'nam'"),
        ("{below: 3.2, constant: 0.05,", "{below: 1.2, constant: 0.05,", "rising"),
        ("  radius: 1.15 ", "  radius: wide # ", "radius is 'wide', but must be a number"),
        ("{edges: [2.6, 2.8,", "{edges: [2.7, 2.8,", "contiguous"),
        ("field:", "field: [", "not readable as YAML"),
        ("0.77, 0.70, 0.60]", "0.70, 0.77, 0.60]", "points: b is .* must fall between 1 and 0"),
        ("0.20, 0.10, 0.04]", "0.20, 0.10]", "points: c is .* as many points"),
        ("  isolation: 0.4", "  isolated: 0.4", "isolat"),
        ("step: 0.1,", "step: 1.0e-9,", "step is 1e-09: more than"),
        ("from: 0.0, to: 2.6", "from: -1.0, to: 2.6", "from is -1.0, but must be a number at least 0"),
        ("from: 0.0, to: 2.6", "from: 0.0, to: 0.0", "fewer than two edges"),
        ("efficiency: 0.99", "efficiency: 1.1", "efficiency is 1.1, but must be a number at least 0 and"),
        ("310: {ecal: 0.3", "310: {ecal: 0.4", "310: has shares that add up to 1.1"),
    ],
)
def test_a_wrong_card_says_what_is_wrong(card, old, new, said):
    assert old in card.text
    with pytest.raises(ConfigError, match=said) as caught:
        parse_card(card.text.replace(old, new, 1))
    assert "\n" not in str(caught.value)
