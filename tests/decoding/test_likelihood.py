"""The exact likelihood against all permutations of jets, the gain written out; patterns; limits."""

import itertools

import numpy as np
import pytest

import pairton
from enumeration import enumerate_assignments, log_normaliser, scores
from pairton.decoding import patterns, set_sums, set_tables
from pairton.decoding.exact import packed, sums_of
from pairton.decoding.patterns import MAX_SUMS, allowed_nodes, count_sums, exact_limit, plan_of
from pairton.decoding.terms import triplet_types
from pairton.errors import ModelError
from pairton.events import Status
from pairton.topology import load_topology, parse_topology
from pairton.topology.assignments import canonical

TTBAR, HH4B, TTH = (load_topology(name) for name in ("ttbar_allhad", "hh4b", "tth_allhad"))
DEEP = parse_topology({"name": "deep", "event": ["H", "j"], "particles": {"H": ["W", "W"], "W": ["q", "q"]}})


def predicted(topology, n_jets, events=3, seed=0):
    rng = np.random.default_rng(seed)
    edges = rng.normal(size=(events, len(topology.types), n_jets, n_jets)).astype(np.float32)
    kinds = triplet_types(topology)
    triplets = rng.normal(size=(events, len(kinds), n_jets, n_jets, n_jets)).astype(np.float32)
    for k, symmetric in enumerate(kinds.values()):
        axes = itertools.permutations((1, 2, 3)) if symmetric else [(1, 2, 3), (2, 1, 3)]
        triplets[:, k] = sum(np.transpose(triplets[:, k], (0, *axis)) for axis in axes)
    outputs = {"edges": edges + edges.swapaxes(2, 3)}
    return outputs | ({"triplets": triplets} if kinds else {})


def slow_ttbar(prediction, event, jets):
    """Algorithms 1 and 2 of the paper, and the potential of a top, for (q, q, b, q, q, b)."""
    s_w, s_t = prediction["edges"][event]
    total = 0.0
    for q, p, b in (jets[:3], jets[3:]):
        total += s_w[q, p] - s_w[q, q] - s_w[p, p]
        total += s_t[b, q] + s_t[b, p] - s_t[b, b]
        total += prediction["triplets"][event, 0, q, p, b]
    return total


def slow_hh4b(prediction, event, jets):
    (s,) = prediction["edges"][event]
    return sum(s[i, j] - s[i, i] - s[j, j] for i, j in (jets[:2], jets[2:]))


SLOW = [(TTBAR, slow_ttbar), (HH4B, slow_hh4b)]


@pytest.mark.parametrize("n_jets", [6, 7])
@pytest.mark.parametrize(("topology", "slow"), SLOW, ids=["ttbar", "hh4b"])
def test_equals_brute_force_over_permutations(topology, slow, n_jets):
    prediction = predicted(topology, n_jets, events=2)
    enumeration = enumerate_assignments(topology, n_jets)
    values = scores(enumeration, prediction)
    sums = sums_of(topology, (n_jets,), prediction)
    found = sums.listed(5)
    for event in range(2):
        table = {}
        for jets in itertools.permutations(range(n_jets), len(topology.slots)):
            key = tuple(canonical(topology, np.array([jets]))[0].tolist())
            if key == jets:  # one of each set of equivalent permutations
                table[key] = slow(prediction, event, jets)
        assert set(map(tuple, enumeration.assignments.tolist())) == set(table)
        total = np.logaddexp.reduce(list(table.values()))
        expected = [table[tuple(row)] for row in enumeration.assignments.tolist()]
        np.testing.assert_allclose(values[event], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(log_normaliser(values)[event], total, rtol=1e-5)
        winner = enumeration.assignments[values[event].argmax()]
        assert tuple(winner.tolist()) == max(table, key=table.__getitem__)
        np.testing.assert_allclose(sums.log_normaliser[event], total, rtol=1e-5)
        ranked = sorted(table, key=table.__getitem__, reverse=True)[:5]
        assert [tuple(row) for row in found.assignment[event].tolist()] == ranked
        np.testing.assert_allclose(
            sums.probability(found)[event], np.exp([table[row] - total for row in ranked]), rtol=1e-4
        )


def test_padding_between_the_jets_is_left_out():
    wide, kept = predicted(TTBAR, 9), np.array([0, 2, 3, 5, 7, 8])
    narrow = {"edges": wide["edges"][:, :, kept][..., kept]}
    narrow["triplets"] = wide["triplets"][:, :, kept][:, :, :, kept][..., kept]
    for name, array in packed(wide, np.tile(kept, (3, 1))).items():
        np.testing.assert_array_equal(array, narrow[name])


@pytest.mark.parametrize("topology", [TTBAR, HH4B, TTH, DEEP], ids=lambda t: t.name)
def test_patterns_share_the_probability_and_leave_that_of_complete_events_as_it_is(topology):
    n_jets = len(topology.slots) + 1
    prediction, count = predicted(topology, n_jets), len(plan_of(topology).patterns)
    terms = np.random.default_rng(2).normal(size=(3, count)).astype(np.float32)
    alone, some = (sums_of(topology, (n_jets,), given) for given in (prediction, prediction | {"patterns": terms}))
    chance = some.pattern_probability
    assert chance.shape == (3, count)
    np.testing.assert_allclose(chance.sum(axis=1), 1, rtol=1e-9)
    assert (chance > 0).all()
    best, known = some.listed(3), alone.listed(3)
    np.testing.assert_array_equal(best.assignment, known.assignment)
    np.testing.assert_allclose(
        some.probability(best), chance[:, :1] * alone.probability(known), rtol=1e-5
    )  # P(assignment) = P(complete) P(assignment | complete)
    assert (set_sums.best(some.tables, some.scores, some.terms).score[:, 0] >= best.score[:, 0]).all()
    sure = prediction | {"patterns": terms + 200 * (np.arange(count) == 0).astype(np.float32)}
    certain = sums_of(topology, (n_jets,), sure)
    np.testing.assert_allclose(certain.pattern_probability[:, 0], 1, rtol=1e-9)
    for name, values in alone.present.items():
        np.testing.assert_allclose(certain.present[name], values, rtol=1e-5, atol=1e-9)


def test_how_many_objects_are_exact():
    small = parse_topology({"name": "x", "event": ["a"], "particles": {"a": ["q"]}})
    assert exact_limit(small) == 32
    for topology in (TTBAR, TTH, load_topology("tttt_allhad")):
        limit = exact_limit(topology)
        costs = [count_sums(topology, allowed_nodes(topology, n)) <= MAX_SUMS for n in (limit, limit + 1)]
        assert costs == [True, False]


def test_a_particle_of_sixteen_slots_is_refused_in_one_line():
    """20 to the power of 16 is more than an int64 holds."""
    many = parse_topology({"name": "many", "event": ["p"], "particles": {"p": ["q"] * 16}})
    with pytest.raises(ModelError, match="a particle of 16 slots"):
        set_tables.set_tables(many, allowed_nodes(many, 20))


def test_events_with_more_objects_than_the_limit_are_truncated(decays, mass_model, monkeypatch):
    monkeypatch.setattr(patterns, "MAX_SUMS", 2000)
    assert (exact_limit(TTBAR), exact_limit(TTBAR, complete_only=True)) == (8, 9)  # this network has no patterns
    events = decays(20, extra=4)
    found = pairton.reconstruct(events, mass_model)
    assert (found.status == Status.TRUNCATED).all()
    assert found.exact.all()
    few = pairton.reconstruct(events, mass_model, max_objects=9)
    np.testing.assert_array_equal(found.index, few.index)
    assert (pairton.reconstruct(events, mass_model, decoding="steps").status != Status.TRUNCATED).all()
    one, two = (pairton.evaluate(events, mass_model, max_objects=most, select=False) for most in (20, 9))
    assert one.table() == two.table()
