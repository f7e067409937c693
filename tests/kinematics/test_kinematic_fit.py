"""Permutations compared by their likelihood: sums, neutrinos, free masses, and events without an answer."""

import awkward as ak
import numpy as np
import pytest

from pairton.errors import ModelError, TopologyError
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.kinematics.decays import decay_of, roots_are_independent
from pairton.kinematics.fit_settings import load_settings, parse_settings
from pairton.kinematics.fitting import KinematicFit
from pairton.kinematics.observed import observe
from pairton.kinematics.starts import fit as best_fit
from pairton.kinematics.starts import limits, standard_deviations
from pairton.topology import load_topology, parse_topology
from pairton.topology.assignments import canonical

NARROW = [{"a": 0.02, "b": 0.2}]
BROAD = [{"a": 0.05, "b": 0.8}]
GAUSSIAN = {"b": BROAD, "light": BROAD, "lepton": [{"a": 0.02}], "met": {"c": 15}}
SHARP = {"transfer": {"b": NARROW, "light": NARROW, "lepton": [{"a": 0.002}], "met": {"c": 2}}}
FREE = {"masses": {6: {"mass": 172.5, "width": 1.5, "free": True}}}


def batch(events, settings):
    """The fit of a topology, and the only batch of some events of one layout."""
    fit = KinematicFit(events.topology, settings)
    accepted = accept(events, Domain(), fit.inputs)
    ((layout, rows),) = accepted.by_layout(accepted.answerable)
    return fit, accepted, rows, layout


def right(events, accepted, rows, layout, assignment):
    """Which answers are the truth."""
    found = accepted.to_positions(assignment, rows, layout)
    return (canonical(events.topology, found) == canonical(events.topology, events.truth[rows])).all(axis=1)


@pytest.mark.parametrize(
    ("kinds", "extra", "least"), [("hh", 0, 0.9), ("hh", 1, 0.85), ("hl", 1, 0.9), ("ll", 1, 0.8)]
)
def test_well_measured_tops_are_found(tops, kinds, extra, least):
    events, neutrinos = tops(kinds, n=40, extra=extra)
    fit, accepted, rows, layout = batch(events, parse_settings(SHARP, "test"))
    answer, outputs = fit.answer(accepted.batch(rows, layout))
    correct = right(events, accepted, rows, layout, answer.assignment)
    assert correct.mean() >= least
    assert ((answer.event_probability > 0) & (answer.event_probability <= 1 + 1e-9)).all()
    assert np.median(answer.event_probability[correct]) > 0.9
    masses = outputs["fitted_mass"][correct][:, [p.index for p in events.topology.roots]]
    assert (np.abs(masses - 172.5) < 2).mean() > 0.9
    if kinds == "hl":  # the true neutrino is one of few solutions: mostly the one found
        found = np.stack([outputs[f"fitted_{name}"][:, 0] for name in ("px", "py", "pz")], axis=1)
        assert (np.abs(found - neutrinos[rows, 0, :3]).max(axis=1) < 15).mean() > 0.5


def test_roots_alone_are_as_good_as_the_whole_event(tops):
    """With fixed masses and one neutrino, the likelihood of a permutation is a product."""
    events, _ = tops("hl", n=5, smear=0.1)
    settings = parse_settings({"transfer": GAUSSIAN, "tags": "none", "other_jets": 0, "integrate": False}, "test")
    fit, accepted, rows, layout = batch(events, settings)
    nodes = accepted.batch(rows, layout)
    assert fit.independent
    found = fit.permutations(nodes, 12)
    whole = observe(nodes, fit.inputs, settings).problem(fit.whole, settings, found.assignment.transpose(1, 2, 0))
    _, value = best_fit(whole, True)
    better = found.log_likelihood - value.reshape(12, -1).T
    assert (better > -0.01).all()
    assert (better < 0.05).mean() > 0.95  # fits of the whole event miss a maximum now and then
    assert found.probability.sum(axis=1) == pytest.approx(1)
    assert (np.diff(found.log_likelihood, axis=1) <= 1e-4).all()  # the best first


def test_probabilities_of_particles_are_sums_over_permutations(tops):
    events, _ = tops("hh", n=4, extra=1, smear=0.12)
    for changes in ({}, {**FREE, "permutations": 630}):
        fit, accepted, rows, layout = batch(events, parse_settings(changes, "test"))
        nodes = accepted.batch(rows, layout)
        answer, _ = fit.answer(nodes)
        every = fit.permutations(nodes, 630)
        assert every.probability.sum(axis=1) == pytest.approx(1)
        assert answer.exact.all()
        for event in range(len(rows)):
            for particle in events.topology.particles:
                mine = sorted(answer.assignment[event, list(particle.slots)])
                total = 0.0
                for assignment, chance in zip(every.assignment[event], every.probability[event], strict=True):
                    for other in events.topology.of_type(particle.type):
                        there = assignment[list(other.slots)]
                        own = sorted(there) == mine
                        if particle.children:  # the same W too
                            own &= set(there[:2]) == set(answer.assignment[event, list(particle.slots)[:2]])
                        total += chance * own
                assert answer.particle_probability[event, particle.index] == pytest.approx(total, abs=1e-9)


def test_only_the_best_permutations_are_fitted_where_roots_are_not_independent(tops):
    events, _ = tops("hl", n=6, smear=0.1)
    all_of_them, accepted, rows, layout = batch(events, parse_settings(FREE, "test"))
    some, *_ = batch(events, parse_settings({**FREE, "permutations": 5}, "test"))
    nodes = accepted.batch(rows, layout)
    answer, _ = all_of_them.answer(nodes)
    fewer, _ = some.answer(nodes)
    assert answer.exact.all()
    assert not fewer.exact.any()
    assert (answer.assignment == fewer.assignment).all(axis=1).mean() >= 5 / 6
    assert all_of_them.permutations(nodes).assignment.shape[1] == 12
    assert some.permutations(nodes).assignment.shape[1] == 5


def test_errors_are_those_of_differences_of_log_l(tops):
    """Against the inverse of a matrix of second differences, in the order of the slots."""
    events, _ = tops("hl", n=5, smear=0.1)
    settings = parse_settings({"transfer": GAUSSIAN, "tags": "none", "other_jets": 0, **FREE}, "test")
    fit, accepted, rows, layout = batch(events, settings)
    nodes = accepted.batch(rows, layout)
    answer, outputs = fit.answer(nodes)
    problem = observe(nodes, fit.inputs, settings).problem(fit.whole, settings, answer.assignment.T[None])
    at, _ = best_fit(problem, True)
    size = 1e-3 * limits(problem)[2]  # (D, F)
    d = len(at)

    def value(*moves):
        return problem.value(at + sum(sign * size * (np.arange(d) == k)[:, None] for k, sign in moves))

    hessian = np.empty((at.shape[1], d, d))
    for i in range(d):
        for j in range(d):
            parts = (a * b * value((i, a), (j, b)) for a in (1, -1) for b in (1, -1))
            hessian[:, i, j] = -sum(parts) / (4 * size[i] * size[j])
    good = np.linalg.eigvalsh(hessian * (size.T[:, :, None] * size.T[:, None])).min(axis=1) > 1e-12
    assert good.sum() >= 3
    wanted = np.sqrt(np.diagonal(np.linalg.inv(hessian[good]), axis1=1, axis2=2))
    seen = slice(0, len(fit.whole.slots))  # the width of a neutrino's direction has a limit
    close = np.isclose(standard_deviations(problem, at).T[good, seen], wanted[:, seen], rtol=0.05)
    assert close.mean() > 0.8
    close = np.isclose(outputs["fitted_energy_error"][good], wanted[:, seen], rtol=0.1)
    assert close.mean() > 0.8  # of the same fits, but for another maximum now and then
    assert np.isfinite(outputs["fitted_free_mass_t_error"]).all()


def test_a_free_mass_is_found(tops):
    events, _ = tops("hh", n=20, mass=185.0)
    fit, accepted, rows, layout = batch(events, parse_settings({**SHARP, **FREE}, "test"))
    _, outputs = fit.answer(accepted.batch(rows, layout))
    assert np.median(outputs["fitted_free_mass_t1"]) == pytest.approx(185, abs=1)


@pytest.mark.parametrize(("entry", "mass"), [(24, 80.4), (25, 125.0)])
def test_a_free_mass_may_be_far_below_that_of_a_top(tops, entry, mass):
    """It was bounded to 100 GeV and more."""
    events, _ = tops("hhH", n=5)
    free = {"masses": {entry: {"mass": 0.95 * mass, "width": 2.1, "free": True}}}
    fit, accepted, rows, layout = batch(events, parse_settings({**SHARP, **free}, "test"))
    _, outputs = fit.answer(accepted.batch(rows, layout))
    (name,) = (name for name in outputs if name.startswith("fitted_free_mass") and not name.endswith("error"))
    assert np.median(outputs[name]) == pytest.approx(mass, abs=1)
    assert (outputs[f"{name}_error"] > 0).all()


def test_two_free_masses_of_equal_numbers_are_two_parameters(tops):
    """Particles share a free mass if they share its entry in the settings, not if the numbers are the same."""
    topology = load_topology("tth_allhad")
    same = {"mass": 150, "width": 5, "free": True}
    settings = parse_settings({"masses": {6: same, 25: same}}, "test")
    decay = decay_of(topology, topology.roots, settings)
    free = {resonance.name: resonance.free for resonance in decay.resonances}
    assert (free["t1"], free["t2"], free["H"]) == (0, 0, 1)
    assert KinematicFit(topology, settings).axes.keys() >= {"fitted_free_mass_t1", "fitted_free_mass_H"}
    named = parse_settings({"masses": {"t": same, "tl": same}}, "test")
    assert roots_are_independent(load_topology("ttbar_semilep"), named)


def test_tags_decide_between_equal_masses(tops):
    events, _ = tops("hh", n=30, smear=0.2)
    shares = {}
    for tags in ("none", {"efficiency": 0.7, "rejection": 100}, "evidence"):
        fit, accepted, rows, layout = batch(events, parse_settings({"tags": tags}, "test"))
        answer, _ = fit.answer(accepted.batch(rows, layout))
        is_b = np.asarray(ak.to_numpy(events.jets.btag))[
            rows[:, None], accepted.to_positions(answer.assignment, rows, layout)
        ]
        shares[str(tags)] = is_b[:, [2, 5]].mean()
    assert shares["none"] < 0.9  # the masses alone
    assert min(value for name, value in shares.items() if name != "none") > 0.94


def test_an_event_without_an_allowed_permutation_has_no_answer(tops):
    """Every b quark has a tag, says the efficiency, and some events have fewer tags."""
    events, _ = tops("hh", n=30, tagged=0.6)
    fit, accepted, rows, layout = batch(events, parse_settings({"tags": {"efficiency": 1.0}}, "test"))
    answer, outputs = fit.answer(accepted.batch(rows, layout))
    none = (answer.assignment < 0).all(axis=1)
    assert none.tolist() == (np.asarray(ak.sum(events.jets.btag, axis=1))[rows] < 2).tolist()
    assert 0 < none.sum() < 30
    assert np.isnan(answer.event_probability[none]).all()
    assert np.isnan(outputs["log_likelihood"][none]).all()
    assert np.isfinite(answer.event_probability[~none]).all()


def test_the_answer_does_not_depend_on_the_batch(tops):
    events, _ = tops("hl", n=12, smear=0.1, extra=1)
    fit, accepted, rows, layout = batch(events, load_settings())
    together, _ = fit.answer(accepted.batch(rows, layout))
    for row in range(0, 12, 5):
        alone, _ = fit.answer(accepted.batch(rows[row : row + 1], layout))
        assert alone.assignment[0].tolist() == together.assignment[row].tolist()
        assert alone.event_probability[0] == pytest.approx(together.event_probability[row], rel=1e-9)


# -- decays ------------------------------------------------------------------------------------------------


def test_resonances_follow_from_the_topology():
    tth = load_topology("tth_semilep")
    decay = decay_of(tth, tth.roots, load_settings())
    assert [resonance.name for resonance in decay.resonances] == ["t", "t.W", "tl", "tl.W", "H"]
    assert decay.transfer == ("light", "light", "b", "b", "lepton", "b", "b")
    assert decay.masses == (0, 0, 4.7, 4.7, 0, 4.7, 4.7)
    assert roots_are_independent(tth, load_settings())
    assert not roots_are_independent(load_topology("ttbar_dilep"), load_settings())
    free = parse_settings(FREE, "test")
    assert not roots_are_independent(tth, free)
    only_higgs = parse_settings({"masses": {25: {"mass": 125, "width": 1, "free": True}}}, "test")
    assert roots_are_independent(tth, only_higgs)


def test_a_w_that_the_tree_names_has_its_neutrino():
    raw = {
        "name": "named",
        "event": ["tl"],
        "particles": {"tl": ["Wl", "b"], "Wl": ["l"]},
        "objects": {"l": "lepton"},
        "context": ["met"],
        "codes": {"tl": [6], "Wl": [24]},
        "invisible": {"Wl": ["l", "nu"]},
    }
    topology = parse_topology(raw)
    decay = decay_of(topology, topology.roots, load_settings())
    assert [(r.name, r.leaves, r.mass.mass) for r in decay.resonances] == [
        ("tl", (0, 1, 2), 172.5),
        ("tl.Wl", (0, 2), 80.4),
    ]


def test_what_cannot_be_fitted_is_said():
    lepton = {"name": "x", "event": ["tl"], "particles": {"tl": ["b", "l"]}, "objects": {"l": "lepton"}}
    with pytest.raises(TopologyError, match="no neutrino"):
        KinematicFit(parse_topology({**lepton, "codes": {"tl": [6]}}), load_settings())
    unknown = parse_topology({"name": "x", "event": ["X"], "particles": {"X": ["j", "j"]}})
    with pytest.raises(ModelError, match="needs the mass of X"):
        KinematicFit(unknown, load_settings())
    given = parse_settings({"masses": {"X": {"mass": 400, "width": 10}}}, "test")
    assert KinematicFit(unknown, given).whole.resonances[0].mass.mass == 400
    assert not KinematicFit(unknown, parse_settings({"masses": {"X": None}}, "test")).whole.resonances


def test_all_orders_of_two_equal_jets_are_one_permutation(tops):
    events, _ = tops("hh", n=2)
    fit, accepted, rows, layout = batch(events, load_settings())
    found = fit.permutations(accepted.batch(rows, layout))
    assert found.assignment.shape == (2, 90, 6)
    for event in found.assignment:
        assert len({tuple(row) for row in canonical(events.topology, event).tolist()}) == 90
