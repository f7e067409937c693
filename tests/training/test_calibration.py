"""Temperatures: known ones are found, and what a model gets makes its probabilities true."""

import numpy as np
import pytest

from enumeration import enumerate_assignments, scores
from pairton.decoding import decode
from pairton.events.nodes import Nodes
from pairton.topology import load_topology, parse_topology
from pairton.training import calibration
from pairton.training.calibration import fit_temperatures
from pairton.training.data import Group, Key, PackedEvents
from pairton.training.validation import blocks

LONE = parse_topology({"name": "lone", "event": ["W"], "particles": {"W": ["q", "q"]}})
PAIRS = parse_topology(
    {"name": "two", "event": ["A", "B"], "particles": {"A": ["q", "q"], "B": ["q", "q"]}, "stages": [["A"], ["B"]]}
)
EVENTS = 6000


def drawn(topology, n_jets, rng):
    """Random logits, which events carry as their jets, and labels drawn by the softmax of every step's gains."""
    n_types = len(topology.types)
    logits = rng.normal(0, 1.5, (EVENTS, n_types, n_jets, n_jets)).astype(np.float32)
    logits += logits.swapaxes(2, 3)
    i, j = np.triu_indices(n_jets, 1)
    truth = np.full((EVENTS, 2 * n_types), -1, dtype=np.int8)
    free = np.ones((EVENTS, n_jets), dtype=bool)
    for particle in topology.particles:
        own = logits[:, topology.type_index(particle.type)]
        gain = own[:, i, j] - own[:, i, i] - own[:, j, j]
        gain = np.where(free[:, i] & free[:, j], gain, -np.inf)
        choice = (gain + rng.gumbel(size=gain.shape)).argmax(axis=1)
        truth[:, list(particle.slots)] = np.stack([i[choice], j[choice]], axis=1)
        free[np.arange(EVENTS), i[choice]] = free[np.arange(EVENTS), j[choice]] = False
    jets = np.zeros((EVENTS, n_jets, 5), dtype=np.float32)
    jets[:, 0, 0] = np.arange(EVENTS)
    ids = np.stack([np.zeros(EVENTS), np.arange(EVENTS)], axis=1).astype(np.uint64)
    return logits, PackedEvents(
        {Key(0, (n_jets,)): Group({"jet": jets}, truth, ids, np.ones(len(truth), np.float32))}
    )


def numbers(nodes):
    """Which events these are, as their jets say."""
    return nodes.values["jet"][:, 0, 0].astype(int)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_temperature_that_undoes_a_factor_is_found(factor):
    logits, events = drawn(LONE, 4, np.random.default_rng(1))

    def predict(nodes, tokens):
        return {"edges": factor * logits[numbers(nodes)]}

    (found,) = fit_temperatures(predict, LONE, events, blocks(events, EVENTS), "steps")
    assert found == pytest.approx(factor, rel=0.06)


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.07, 1.8])
def test_the_exact_likelihood_has_one(factor):
    """Labels of two unlike pairs in six jets drawn by the likelihood of known logits; the network exaggerates."""
    rng = np.random.default_rng(4)
    logits, events = drawn(PAIRS, 6, rng)
    enumeration = enumerate_assignments(PAIRS, (6,))
    score = scores(enumeration, {"edges": logits})
    group = events.groups[Key(0, (6,))]
    group.truth[:] = enumeration.assignments[(score + rng.gumbel(size=score.shape)).argmax(axis=1)]

    def predict(nodes, tokens):
        return {"edges": np.float32(factor) * logits[numbers(nodes)]}

    (found,) = fit_temperatures(predict, PAIRS, events, blocks(events, EVENTS), "exact")
    assert found == pytest.approx(factor, rel=0.025)
    answer = decode(predict, PAIRS, group.nodes(), decoding="exact", temperatures=[found])
    right = (answer.assignment == group.truth).all(axis=1)
    assert answer.event_probability.mean() == pytest.approx(right.mean(), abs=0.015)


def test_few_events_fit_nothing():
    logits, events = drawn(LONE, 4, np.random.default_rng(5))
    few = [(Key(0, (4,)), slice(0, calibration.MIN_EVENTS - 1))]

    def predict(nodes, tokens):
        return {"edges": 3 * logits[: len(nodes)]}

    assert fit_temperatures(predict, LONE, events, few, "exact") == (1.0,)


def test_each_stage_has_its_own():
    """Logits of A three times too large, those of B too small: probabilities of events come out true."""
    logits, events = drawn(PAIRS, 5, np.random.default_rng(2))
    factors = np.ones((2, 1, 1), dtype=np.float32)
    factors[PAIRS.type_index("A")], factors[PAIRS.type_index("B")] = 3.0, 0.5

    def predict(nodes, tokens):
        return {"edges": factors * logits[numbers(nodes)]}

    found = fit_temperatures(predict, PAIRS, events, blocks(events, EVENTS), "steps")
    assert found == pytest.approx((3.0, 0.5), rel=0.25)  # what one takes the other can give back, in part
    group = events.groups[Key(0, (5,))]
    answer = decode(predict, PAIRS, group.nodes(), decoding="steps", temperatures=found)
    right = (answer.assignment == group.truth).all(axis=1)
    likely = answer.event_probability > np.median(answer.event_probability)
    for half in likely, ~likely:
        assert answer.event_probability[half].mean() == pytest.approx(right[half].mean(), abs=0.025)


def test_stages_of_ttbar_are_told_apart():
    """Two equal stages and a joint one, by hand."""
    topology = load_topology("ttbar_allhad")
    logits = np.zeros((1, 2, 6, 6), dtype=np.float32)
    for layer, pairs in enumerate([[(0, 1, 9), (3, 4, 8)], [(0, 2, 5), (1, 2, 5), (3, 5, 5), (4, 5, 5)]]):
        for i, j, value in pairs:
            logits[0, [topology.type_index(name) for name in ("W", "t")][layer], [i, j], [j, i]] = value
    event = Nodes.full({"jet": np.zeros((1, 6, 5), dtype=np.float32)})
    right_but_last = np.array([[0, 1, 5, 3, 4, 2]], dtype=np.int8)
    for truth, right in ((right_but_last, False), (right_but_last[:, [0, 1, 5, 3, 4, 2]], True)):
        chance, found = calibration._chains(lambda *given: {"edges": logits}, topology, event, truth, "steps")
        assert found.tolist() == [right]
    one = len(calibration.GRID) // 2
    assert calibration.GRID[one] == pytest.approx(1)
    # gains: of the first W 9, 8 and thirteen times 0; of the second 8 and five times 0; of the tops twice 5 + 5,
    # or nothing with jets 2 and 5 swapped
    expected = 9 - np.log(np.exp(9) + np.exp(8) + 13), 8 - np.log(np.exp(8) + 5), 20 - np.log(np.exp(20) + 1)
    assert chance[one, :, 0] == pytest.approx(expected, abs=1e-6)
    assert (np.diff(chance[:, :, 0], axis=0) < 1e-9).all()  # the hotter, the less certain


def test_without_mistakes_probabilities_stay_as_they_are():
    logits, events = drawn(LONE, 4, np.random.default_rng(3))
    group = events.groups[Key(0, (4,))]
    found = decode(lambda nodes, tokens: {"edges": logits}, LONE, group.nodes(), decoding="steps")
    group.truth[:] = found.assignment

    def predict(nodes, tokens):
        return {"edges": logits[numbers(nodes)]}

    assert fit_temperatures(predict, LONE, events, blocks(events, EVENTS), "steps") == (1.0,)


@pytest.mark.parametrize("decoding", ["steps", "exact"])
def test_weight_two_is_the_event_twice(decoding):
    """The second half is exaggerated more than the first: weights decide what the temperature is."""
    logits, events = drawn(LONE, 4, np.random.default_rng(6))
    few = 1500
    factor = np.where(np.arange(EVENTS) % 2, 3.0, 1.0).astype(np.float32)[:, None, None, None]
    group = events.groups[Key(0, (4,))]
    weights = np.where(np.arange(few) % 2, 3.0, 1.0).astype(np.float32)

    def predict(nodes, tokens):
        return {"edges": factor[numbers(nodes)] * logits[numbers(nodes)]}

    def fitted(rows, weights):
        arrays = {name: array[rows] for name, array in group.arrays().items()} | {"weights": weights}
        packed = PackedEvents({Key(0, (4,)): Group.of_arrays(arrays)})
        return fit_temperatures(predict, LONE, packed, blocks(packed, len(rows)), decoding)

    rows = np.arange(few)
    plain = fitted(rows, np.ones(few, np.float32))
    weighted = fitted(rows, weights)
    repeated = np.repeat(rows, weights.astype(int))
    assert weighted == pytest.approx(fitted(repeated, np.ones(len(repeated), np.float32)), abs=2e-4)
    assert weighted == fitted(rows, 10 * weights)
    assert abs(weighted[0] - plain[0]) > 0.1
