from itertools import permutations

import awkward as ak
import numpy as np
import pytest

from pairton.errors import ModelError
from pairton.evaluation.chi_square import MassChiSquare
from pairton.evaluation.metrics import efficiencies
from pairton.events import Events
from pairton.events.inputs import MOMENTUM
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
