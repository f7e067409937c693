from itertools import permutations

import awkward as ak
import numpy as np
import pytest

from leptonic_tops import leptonic_events
from pairton.errors import ModelError
from pairton.evaluation.baselines import MassChiSquare, MinMass, RandomChoice
from pairton.evaluation.scores import efficiencies
from pairton.events import Events
from pairton.events.inputs import MOMENTUM
from pairton.events.neutrinos import one_neutrino
from pairton.events.vectors import cartesian, polar
from pairton.topology import load_topology


def slow_chi2(fit, jets, assignment):
    """The formula at the top of the module, one event and one assignment at a time."""
    topology = load_topology("ttbar_allhad")
    px, py = jets[:, 0] * np.cos(jets[:, 2]), jets[:, 0] * np.sin(jets[:, 2])
    p4 = np.stack([jets[:, 3], px, py, jets[:, 0] * np.sinh(jets[:, 1])], axis=1)

    def mass(slots):
        e, x, y, z = p4[[assignment[s] for s in slots]].sum(0)
        return np.sqrt(max(e * e - x * x - y * y - z * z, 0))

    total = 0.0
    for particle in topology.particles:
        mean, width = fit.masses[particle.type]
        excess = mass(particle.slots) - sum(mass(topology.particles[c].slots) for c in particle.children)
        total += ((excess - mean) / width) ** 2
    kinds = ["W.q", "W.q", "t.b"] * 2
    for kind, jet in zip(kinds, assignment, strict=True):
        rate, other = fit.tag_rates[kind], fit.other_tag_rate
        total -= 2 * np.log(rate / other if jets[jet, 4] > 0.5 else (1 - rate) / (1 - other))
    return total


def test_best_assignment_of_all_permutations(decays):
    events = decays(extra=1)
    fit = MassChiSquare().fit(events)
    jets, _ = events[:3].dense("jet", (*MOMENTUM, "btag"))
    assignment, probability = fit.assign(events[:3])
    for k in range(3):
        every = np.array([slow_chi2(fit, jets[k].astype(float), p) for p in permutations(range(7), 6)])
        assert slow_chi2(fit, jets[k].astype(float), assignment[k]) == pytest.approx(every.min(), rel=1e-3)
        weight = np.exp(-(every - every.min()) / 2)
        assert probability[k] == pytest.approx(8 * weight.max() / weight.sum(), rel=1e-3)


def test_fit_finds_masses_and_tag_rates(decays):
    fit = MassChiSquare().fit(decays(n=3000, labelled=0.95))
    assert fit.masses["W"] == pytest.approx((80, 80 * 0.03 / np.sqrt(2)), rel=0.05)
    assert fit.masses["t"][0] == pytest.approx(90, rel=0.02)  # above its W
    assert fit.tag_rates["t.b"] == pytest.approx(0.8, abs=0.02)
    assert fit.tag_rates["W.q"] < 0.001
    assert fit.other_tag_rate < 0.001


def test_most_clean_events_are_right_and_mixed_counts_do_not_matter(decays):
    few, many = decays(seed=1, extra=0), decays(seed=2, extra=3)
    fit = MassChiSquare().fit(decays(n=1000))
    both = Events.concatenate([few, many])
    assignment, _ = fit.assign(both)
    result = efficiencies(both.topology, both.truth, assignment, both.n_jets)
    assert result["event"]["6"].value > 0.9
    assert result["event"]["8+"].value > 0.7
    np.testing.assert_array_equal(assignment[200:], fit.assign(many)[0])


def test_events_that_are_too_short_have_no_answer(decays):
    events = decays()
    fit = MassChiSquare().fit(events)
    first = ak.local_index(events.jets.pt) < np.where(np.arange(len(events)) == 1, 5, 99)
    short = events.keep({"jet": first})
    assignment, probability = fit.assign(short)
    assert (assignment[1] == -1).all()
    assert np.isnan(probability[1])
    assert (assignment[[0, 2]] >= 0).all()


def test_any_topology_has_one(decays):
    events = decays()
    hh4b = load_topology("hh4b")
    four = Events(events.jets, hh4b, truth=events.truth[:, [0, 1, 3, 4]])
    fit = MassChiSquare().fit(four)
    assert list(fit.masses) == ["H"]
    assert fit.assign(four)[0].shape == (len(four), 4)


def test_too_little_truth_is_an_error_that_says_so(decays):
    with pytest.raises(ModelError, match="only 8 particles of type W"):
        MassChiSquare().fit(decays()[:4])
    without = decays()
    with pytest.raises(ModelError, match="no truth"):
        MassChiSquare().fit(Events(without.jets))


# -- leptons -----------------------------------------------------------------------------------------------


def smeared(events, seed=0):
    """Jets measured to 10 %, in another order, and half of their b-tags; truth follows."""
    rng = np.random.default_rng(seed)
    jets = events.jets
    scale = ak.unflatten(rng.normal(1, 0.1, int(events.n_jets.sum())), events.n_jets)
    for name in ("pt", "energy"):
        jets = ak.with_field(jets, jets[name] * scale, name)
    jets = ak.with_field(jets, ak.unflatten(rng.integers(0, 2, int(events.n_jets.sum())), events.n_jets), "btag")
    order = np.argsort(rng.random((len(events), int(events.n_jets[0]))), axis=1)
    place = np.argsort(order, axis=1)
    truth = events.truth.copy()
    for slot in events.topology.slots:
        if slot.kind == "jet":
            truth[:, slot.index] = np.take_along_axis(place, events.truth[:, [slot.index]], axis=1)[:, 0]
    return events.replace(objects={**events.objects, "jet": jets[ak.from_regular(order)]}, truth=truth)


def test_a_leptonic_top_is_weighed_with_its_neutrino():
    """Against the formula, one event and one assignment at a time, with the better one of two solutions."""
    events = smeared(leptonic_events(1, 400)[0])
    fit = MassChiSquare().fit(events)
    assert fit.masses["tl"][0] == pytest.approx(172, abs=3)
    assignment, probability = fit.assign(events[:3])
    for k in range(3):
        p4 = {
            kind: cartesian(*(events.objects[kind][k][name].to_numpy() for name in MOMENTUM))
            for kind in events.objects
        }
        both = one_neutrino(p4["lepton"][0], p4["met"][0, :2], 80.37).p4

        def chi2(q1, q2, b, other, p4=p4, both=both, k=k):
            mass = {"W": polar(p4["jet"][[q1, q2]].sum(0))["mass"]}
            mass["t"] = polar(p4["jet"][[q1, q2, b]].sum(0))["mass"] - mass["W"]
            away = [(mass[name] - fit.masses[name][0]) / fit.masses[name][1] for name in ("W", "t")]
            tops = polar(p4["jet"][other] + p4["lepton"][0] + both)["mass"]
            away.append(np.abs(tops - fit.masses["tl"][0]).min() / fit.masses["tl"][1])
            total = np.square(away).sum()
            for kind, jet in zip(["W.q", "W.q", "t.b", "tl.b"], [q1, q2, b, other], strict=True):
                rate, rest = fit.tag_rates[kind], fit.other_tag_rate
                tagged = events.jets.btag[k, jet] > 0.5
                total -= 2 * np.log(rate / rest if tagged else (1 - rate) / (1 - rest))
            return total

        every = np.array([chi2(*jets) for jets in permutations(range(4))])
        assert chi2(*assignment[k, :4]) == pytest.approx(every.min(), rel=1e-3)
        weight = np.exp(-(every - every.min()) / 2)
        assert probability[k] == pytest.approx(2 * weight.max() / weight.sum(), rel=1e-3)


def test_the_neutrino_helps_and_its_absence_does_no_harm():
    events = smeared(leptonic_events(1, 1500)[0])
    fit = MassChiSquare().fit(events)
    assignment, _ = fit.assign(events)
    result = efficiencies(events.topology, events.truth, assignment, events.n_jets)["tl"]["inclusive"].value
    blind = events.replace(objects={**events.objects, "met": events.objects["met"][:, :0]})
    without, _ = fit.assign(blind)
    other = efficiencies(events.topology, events.truth, without, events.n_jets)["tl"]["inclusive"].value
    assert result > other + 0.03
    assert (without >= 0).all()


def test_the_lightest_pairs_of_b_and_lepton():
    events = leptonic_events(2, 300)[0]
    baseline = MinMass()
    assert baseline.fit(events) is baseline
    assignment, probability = baseline.assign(events)
    assert np.isnan(probability).all()
    p4 = {kind: [cartesian(*(events.objects[kind][name][:, k].to_numpy() for name in MOMENTUM)) for k in (0, 1)]
          for kind in ("jet", "lepton")}  # fmt: skip
    sums = [
        sum(polar(p4["jet"][b] + p4["lepton"][lepton])["mass"] for b, lepton in pairs)
        for pairs in (((0, 0), (1, 1)), ((0, 1), (1, 0)))
    ]
    crossed = assignment[:, 0] != assignment[:, 1]
    np.testing.assert_array_equal(crossed, sums[1] < sums[0])
    right = efficiencies(events.topology, events.truth, assignment, events.n_jets)["event"]["inclusive"].value
    assert right > 0.6


def test_tags_come_before_masses():
    events = leptonic_events(1, 200)[0]
    tags = ak.from_regular(np.tile([1.0, 1.0, 0.0, 0.0], (200, 1)))  # of the quarks
    events = events.replace(jets=ak.with_field(events.jets, tags, "btag"))
    for baseline in (MinMass(), RandomChoice()):
        assignment, _ = baseline.assign(events)
        assert (np.sort(assignment[:, [2, 3]], axis=1) == [0, 1]).all()


def test_a_random_choice_is_even_and_the_same_again():
    events = leptonic_events(2, 2000)[0]
    assignment, _ = RandomChoice().assign(events)
    assert (assignment[:, 0] == assignment[:, 1]).mean() == pytest.approx(0.5, abs=0.04)
    np.testing.assert_array_equal(RandomChoice().assign(events[700:900])[0], assignment[700:900])
