"""Priors, worked by hand, and answers for events with fewer objects than slots."""

import numpy as np
import pytest

from pairton.decoding import Question, decode, set_sums
from pairton.decoding.exact import sums_of
from pairton.decoding.patterns import plan_of
from pairton.errors import ConfigError, ModelError
from pairton.events.nodes import Nodes
from pairton.topology import load_topology

TTBAR, HH4B, SEMILEP = (load_topology(name) for name in ("ttbar_allhad", "hh4b", "ttbar_semilep"))


def hh4b_outputs(n_jets=4, best=0.0):
    """Every hypothesis has the same score, but for those with the pair 0, 1."""
    edges = np.zeros((1, 1, n_jets, n_jets), dtype=np.float32)
    edges[0, 0, 0, 1] = edges[0, 0, 1, 0] = best
    return {"edges": edges, "patterns": np.zeros((1, 3), dtype=np.float32)}


def asked(outputs, n_jets=4, **question):
    return sums_of(HH4B, (n_jets,), outputs, question=Question(**question))


def test_a_prior_multiplies_the_odds_of_a_pattern():
    """Of ten hypotheses three have both H, six one, and one none."""
    for prior, expected in (
        ({}, [0.3, 0.6, 0.1]),
        ({"nothing": 6}, [0.2, 0.4, 0.4]),  # 3 : 6 : 6
        ({"nothing": 5, "H": 0.5}, [3 / 11, 3 / 11, 5 / 11]),
        ({"complete": 7}, [0.75, 0.6 * 0.25 / 0.7, 0.1 * 0.25 / 0.7]),  # 21 : 6 : 1
        ({"incomplete": 0}, [1, 0, 0]),
        ({"H_H": 0}, [0, 6 / 7, 1 / 7]),
    ):
        sums = asked(hh4b_outputs(), prior=prior)
        np.testing.assert_allclose(sums.pattern_probability[0], expected, rtol=1e-12)
        found = sums.present["H"][:, 0]  # of six candidates; two of them in H H, one in H
        np.testing.assert_allclose(found, (2 * expected[0] + expected[1]) / 6, rtol=1e-12)
        best = set_sums.best(sums.tables, sums.scores, sums.terms, patterns=[0])
        np.testing.assert_allclose(sums.probability(best)[0, 0], expected[0] / 3, rtol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_odds_scale_exactly_whatever_the_temperature(temperature):
    rng = np.random.default_rng(3)
    edges = rng.normal(size=(5, 2, 7, 7)).astype(np.float32)
    outputs = {"edges": edges + edges.swapaxes(2, 3), "patterns": rng.normal(size=(5, 6)).astype(np.float32)}
    before = sums_of(TTBAR, (7,), outputs, temperature)
    after = sums_of(TTBAR, (7,), outputs, temperature, Question(prior={"nothing": 5, "t_W": 0.25}))
    odds = [sums.pattern_probability / sums.pattern_probability[:, :1] for sums in (before, after)]
    np.testing.assert_allclose(odds[1], odds[0] * [1, 0.25, 1, 1, 1, 5], rtol=1e-9)
    np.testing.assert_array_equal(after.listed(1).assignment, before.listed(1).assignment)
    given = [sums.probability(sums.listed(1))[:, 0] / sums.pattern_probability[:, 0] for sums in (before, after)]
    np.testing.assert_allclose(*given, rtol=1e-9)  # if complete, nothing changes


def test_a_pattern_without_prior_is_no_answer():
    outputs = hh4b_outputs(best=5.0)
    for answer in ("event", "particles"):
        for allow_absent in (False, True):
            sums = asked(outputs, answer=answer, allow_absent=allow_absent, prior={"H_H": 0})
            assert sums.leaves_out  # no complete hypothesis is possible
            assert sums.answer().assignment[0, 0].tolist() == [0, 1, -1, -1]
            only = asked(outputs, answer=answer, allow_absent=allow_absent, prior={"incomplete": 0})
            assert only.answer().assignment[0, 0].tolist() == [0, 1, 2, 3]
            assert only.probability(only.answer())[0, 0] == pytest.approx(np.exp(5) / (np.exp(5) + 2))


def test_answers_for_the_event_and_for_particles_differ():
    """01 + 23 is the most probable, but 02 is in more of the others."""
    tables_rows = {(0, 1): 2.0, (2, 3): 2.0, (0, 2): 3.4, (1, 4): 0.5, (1, 3): 0.5, (3, 4): 0.5}
    outputs = hh4b_outputs(5)
    outputs["edges"][:] = -3
    at = np.arange(5)
    outputs["edges"][0, 0, at, at] = 0
    for (i, j), value in tables_rows.items():
        outputs["edges"][0, 0, i, j] = outputs["edges"][0, 0, j, i] = value
    event, particles = (asked(outputs, 5, answer=name).answer() for name in ("event", "particles"))
    assert event.assignment[0, 0].tolist() == [0, 1, 2, 3]
    assert particles.assignment[0, 0, :2].tolist() == [0, 2]
    sums = asked(outputs, 5)
    right = [np.nansum(sums.particle_probability(found.assignment[:, 0])) for found in (event, particles)]
    assert right[1] > right[0]
    chances = [sums.probability(found)[0, 0] for found in (event, particles)]
    assert chances[0] > chances[1]


def nodes_of(n_jets, events=3, n_leptons=None, pad=0):
    rng = np.random.default_rng(n_jets)
    values = {"jet": rng.random((events, n_jets + pad, 5)).astype(np.float32)}
    masks = {"jet": np.tile(np.arange(n_jets + pad) < n_jets, (events, 1))}
    if n_leptons is not None:
        values |= {"lepton": rng.random((events, n_leptons, 4)).astype(np.float32)}
        values |= {"met": rng.random((events, 1, 4)).astype(np.float32)}
        masks |= {kind: np.ones(values[kind].shape[:2], dtype=bool) for kind in ("lepton", "met")}
    return Nodes(values, masks)


def network(topology, patterns=True):
    def predict(nodes, tokens):
        rng = np.random.default_rng(0)
        n = nodes.mask.shape[1]
        edges = rng.normal(size=(len(nodes), len(topology.types), n, n)).astype(np.float32)
        terms = rng.normal(size=(len(nodes), len(plan_of(topology).patterns))).astype(np.float32)
        return {"edges": edges + edges.swapaxes(2, 3)} | ({"patterns": terms} if patterns else {})

    return predict


def test_five_jets_hold_a_top_and_a_w():
    for n_jets, possible in ((5, 5), (4, 4), (3, 3), (2, 2), (1, 1)):
        found = decode(network(TTBAR), TTBAR, nodes_of(n_jets, pad=2))
        assert found.answered.all()
        assert found.exact.all()
        chance = found.pattern_probability  # t t, t W, t, W W, W, nothing
        needs = np.array([6, 5, 3, 4, 2, 0])
        np.testing.assert_array_equal(chance > 0, np.tile(needs <= n_jets, (3, 1)))
        np.testing.assert_allclose(chance.sum(axis=1), 1, rtol=1e-9)
        assert ((found.assignment >= 0).sum(axis=1) <= possible).all()
        assert found.assignment.max() < n_jets
        best = sums_of(TTBAR, (n_jets,), packed_outputs(n_jets), question=Question(allow_absent=True)).answer()
        np.testing.assert_array_equal(found.assignment, best.assignment[:, 0])
    alone = decode(network(TTBAR, patterns=False), TTBAR, nodes_of(5))
    assert not alone.answered.any()
    assert not alone.exact.any()


def packed_outputs(n_jets):
    outputs = network(TTBAR)(nodes_of(n_jets, pad=2), None)
    return {"edges": outputs["edges"][:, :, :n_jets, :n_jets], "patterns": outputs["patterns"]}


def test_an_event_without_objects_has_no_answer():
    assert not decode(network(TTBAR), TTBAR, nodes_of(0, pad=2)).answered.any()
    only_met = decode(network(SEMILEP), SEMILEP, nodes_of(0, n_leptons=0))
    assert not only_met.answered.any()


def test_a_kind_may_be_missing_altogether():
    """Without a lepton there is no leptonic top, but perhaps a hadronic one."""
    patterns = [pattern.key for pattern in plan_of(SEMILEP).patterns]
    found = decode(network(SEMILEP), SEMILEP, nodes_of(5, n_leptons=0))
    assert found.answered.all()
    lacking = [k for k, key in enumerate(patterns) if "tl" in key]
    assert (found.pattern_probability[:, lacking] == 0).all()
    assert set(patterns) - {patterns[k] for k in lacking} == {"t", "W", "nothing"}


def test_a_prior_may_leave_no_hypothesis():
    """If all events are complete, five jets are too few."""
    found = decode(network(TTBAR), TTBAR, nodes_of(5), question=Question(prior={"incomplete": 0}))
    assert not found.answered.any()
    few = decode(network(TTBAR), TTBAR, nodes_of(2), question=Question(prior={"W": 0, "nothing": 0}))
    assert not few.answered.any()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"answer": "tops"}, "no answer 'tops': choose one of event, particles"),
        ({"answer": "particle"}, "did you mean 'particles'"),
        ({"prior": {"nothing": -1}}, "the prior of 'nothing' is -1: give a factor of 0 or more"),
        ({"prior": {"nothing": float("nan")}}, "the prior of 'nothing' is nan"),
        ({"prior": {"nothing": "many"}}, "the prior of 'nothing' is 'many'"),
    ],
)
def test_what_cannot_be_asked(question, said):
    with pytest.raises(ConfigError, match=said):
        Question(**question)


def test_what_cannot_be_asked_of_a_topology_or_network():
    with pytest.raises(ConfigError, match=r"no pattern 't\+W' of ttbar_allhad: choose from t_t, t_W, t, W_W, W"):
        Question(prior={"t+W": 2}).log_prior(TTBAR)
    with pytest.raises(ConfigError, match="excludes every pattern"):
        Question(prior={"complete": 0, "incomplete": 0}).log_prior(TTBAR)
    for question in (Question(allow_absent=True), Question(prior={"nothing": 2})):
        with pytest.raises(ModelError, match="knows complete events only"):
            decode(network(TTBAR, patterns=False), TTBAR, nodes_of(6), question=question)
    with pytest.raises(ConfigError, match="steps decoding takes no other answer"):
        decode(network(TTBAR), TTBAR, nodes_of(6), decoding="steps", question=Question("particles"))


def test_a_network_of_complete_events_has_an_answer_for_particles():
    found = decode(network(TTBAR, patterns=False), TTBAR, nodes_of(7), question=Question("particles"))
    best = decode(network(TTBAR, patterns=False), TTBAR, nodes_of(7))
    assert (found.assignment >= 0).all()
    assert (np.nansum(found.particle_probability, axis=1) >= np.nansum(best.particle_probability, axis=1)).all()
    assert (found.event_probability <= best.event_probability).all()
