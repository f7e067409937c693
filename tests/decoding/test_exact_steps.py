"""Steps of the restricted likelihood: the chain rule, and a slow transcription for networks that heed tokens."""

import itertools

import numpy as np
import pytest

from pairton.decoding import decode, exact_steps
from pairton.decoding.graph import visible_tokens
from pairton.decoding.likelihood import Prediction, enumerate_assignments, scores, triplet_types
from pairton.topology import Stage, load_topology, parse_topology
from pairton.topology.assignments import canonical

TTBAR, HH4B, TTH = (load_topology(name) for name in ("ttbar_allhad", "hh4b", "tth_allhad"))
TTW = parse_topology({"name": "ttW", "event": ["t", "t", "W"], "particles": {"t": ["b", "W"], "W": ["q", "q"]}})
THREE = parse_topology({"name": "three", "event": ["g", "g"], "particles": {"g": ["q", "q", "q"]}})
ONE_TOP_FIRST = TTBAR.with_stages([Stage(("W",)), Stage(("t",)), Stage(("W",)), Stage(("t",))])
MIXED_PAIR = TTH.with_stages([Stage(("W",)), Stage(("H", "W")), Stage(("t", "t"))])
TWO_OF_THREE = parse_topology(
    {"name": "hhh", "event": ["H"] * 3, "particles": {"H": ["b", "b"]}, "stages": [["H", "H"], ["H"]]}
)
EVERYTHING = [TTBAR, HH4B, TTH, TTW, THREE, ONE_TOP_FIRST, MIXED_PAIR, TWO_OF_THREE]
IDS = ["ttbar", "hh4b", "tth", "ttW", "three", "one top first", "H and W together", "two of three"]


class Network:
    """Random logits of jets, known by their first column; `heed`: how much all of them change with the tokens."""

    def __init__(self, topology, heed, seed=0):
        rng = np.random.default_rng(seed)
        edges = rng.normal(size=(2, len(topology.types), 16, 16)).astype(np.float32)
        self.edges, self.heed, self.calls = edges + edges.swapaxes(2, 3), heed, 0
        self.triplets = rng.normal(size=(len(triplet_types(topology)), 16, 16, 16)).astype(np.float32)
        self.triplets = sum(np.transpose(self.triplets, axes) for axes in ((0, 1, 2, 3), (0, 2, 1, 3)))
        if topology is THREE:
            self.triplets = np.zeros_like(self.triplets)  # would have to be symmetric in all

    def __call__(self, jets, jet_mask, tokens):
        self.calls += 1
        who = np.where(jet_mask, jets[:, :, 0], 0).astype(int)
        row, column = who[:, :, None], who[:, None, :]
        told = (tokens != 2) * (3 * row + column + 2 * tokens.swapaxes(0, 1)).swapaxes(0, 1)
        told = np.sin(told.reshape(len(jets), -1).sum(axis=1).astype(np.float32))[:, None, None, None]
        first, second = (table[:, row, column].swapaxes(0, 1) for table in self.edges)
        triplets = self.triplets[:, who[:, :, None, None], who[:, None, :, None], who[:, None, None, :]]
        return Prediction(first + self.heed * told * second, triplets.swapaxes(0, 1) if len(triplets) else None)


def batch(n_jets, events=12, padding=1, seed=3):
    rng = np.random.default_rng(seed)
    jets = np.zeros((events, n_jets, 5), dtype=np.float32)
    jets[:, :, 0] = np.stack([rng.permutation(16)[:n_jets] for _ in range(events)])
    jet_mask = np.ones((events, n_jets), dtype=bool)
    for row in range(0, events, 3):
        jet_mask[row, rng.integers(n_jets, size=padding)] = False  # gaps, not only at the end
    return jets, jet_mask


@pytest.mark.parametrize("topology", EVERYTHING, ids=IDS)
def test_a_network_that_ignores_the_tokens_gives_its_joint_distribution(topology):
    network, event = Network(topology, heed=0), batch(len(topology.slots) + 1)
    whole = decode(network, topology, *event, method="exact")
    steps = decode(network, topology, *event, method="exact_steps", record=True)
    np.testing.assert_array_equal(steps.assignment, whole.assignment)
    np.testing.assert_allclose(steps.event_probability, whole.event_probability, rtol=1e-4)
    np.testing.assert_allclose(steps.particle_probability, whole.particle_probability, rtol=1e-4)
    rows = np.arange(len(event[0]))
    conditionals = [step.probability[rows, step.choice] for step in steps.steps]
    np.testing.assert_allclose(np.prod(conditionals, axis=0), whole.event_probability, rtol=1e-4)
    assert steps.exact.all()


def slow(network, topology, jets):
    """One event without padding, by loops: jets, their probability, that of particles, the conditionals."""
    n_jets = len(jets)
    enumeration = enumerate_assignments(topology, n_jets)
    rows = [tuple(row) for row in enumeration.assignments.tolist()]
    mask = np.ones((1, n_jets), dtype=bool)

    def particles(row):
        return {p.index: (p.type, *(row[slot] for slot in p.slots)) for p in topology.particles}

    def children(row, index):
        return [particles(row)[child] for child in topology.particles[index].children]

    left, known, reached = rows, set(), 1.0
    distribution, conditionals = {}, []
    for stage in topology.stages:
        there = [key in known for key in particles(left[0]).values()]
        tokens = visible_tokens(topology, np.array([left[0]]), np.array([there]), mask)
        value = scores(enumeration, network(jets[None], mask, tokens))[0].astype(float)
        inside = {row: np.exp(value[rows.index(row)]) for row in left}
        total = sum(inside.values())
        share = {row: weight / total for row, weight in inside.items()}
        best = max(share, key=share.get)
        fresh = {
            key: index
            for index, key in particles(best).items()
            if key not in known and all(child in known for child in children(best, index))
        }
        if stage.any or len(stage.types) == 1:
            options = [{key} for key in fresh if key[0] in stage.types]
        else:
            every = (set(keys) for keys in itertools.combinations(fresh, len(stage.types)))
            options = [keys for keys in every if sorted(key[0] for key in keys) == sorted(stage.types)]
        chance = [sum(p for row, p in share.items() if keys <= set(particles(row).values())) for keys in options]
        conditionals.append(max(chance))
        known |= options[chance.index(max(chance))]
        for row, p in share.items():
            if not known <= set(particles(row).values()):
                distribution[row] = reached * p
        reached *= conditionals[-1]
        left = [row for row in left if known <= set(particles(row).values())]
    (answer,) = left
    distribution[answer] = reached
    assert set(distribution) == set(rows)
    np.testing.assert_allclose(sum(distribution.values()), 1, rtol=1e-5)
    marginal = [
        sum(p for row, p in distribution.items() if key in particles(row).values())
        for key in particles(answer).values()
    ]
    return answer, reached, marginal, conditionals


@pytest.mark.parametrize(
    ("topology", "n_jets"),
    [
        (TTBAR, 6),
        (TTBAR, 7),
        (HH4B, 6),
        (TTH, 8),
        (TTW, 8),
        (ONE_TOP_FIRST, 7),
        (MIXED_PAIR, 8),
        (TWO_OF_THREE, 7),
    ],
)
def test_equals_a_slow_transcription(topology, n_jets):
    network = Network(topology, heed=2.0)
    events = 4 if topology.count_assignments(n_jets) < 1000 else 2
    jets, jet_mask = batch(n_jets, events, padding=0)
    found = decode(network, topology, jets, jet_mask, method="exact_steps", record=True)
    for k in range(events):
        answer, reached, marginal, conditionals = slow(network, topology, jets[k])
        assert tuple(found.assignment[k].tolist()) == answer
        np.testing.assert_allclose(found.event_probability[k], reached, rtol=1e-3)
        np.testing.assert_allclose(found.particle_probability[k], marginal, rtol=1e-3)
        chosen = [step.probability[k, step.choice[k]] for step in found.steps]
        np.testing.assert_allclose(chosen, conditionals, rtol=1e-3)


def test_what_is_revealed_changes_what_follows():
    event = batch(7, events=200, padding=0)
    network = Network(TTBAR, heed=2.0)
    one, several = (decode(network, TTBAR, *event, method=name) for name in ("exact", "exact_steps"))
    differ = (one.assignment != several.assignment).any(axis=1)
    assert 0.05 < differ.mean() < 0.95
    assert network.calls == 1 + 3


def test_the_number_of_events_held_at_a_time_does_not_matter(monkeypatch):
    network, event = Network(TTBAR, heed=1.0), batch(8, events=30)
    whole = decode(network, TTBAR, *event, method="exact_steps", record=True)
    monkeypatch.setattr(exact_steps, "BLOCK", 1)
    parts = decode(network, TTBAR, *event, method="exact_steps", record=True)
    np.testing.assert_array_equal(parts.assignment, whole.assignment)
    np.testing.assert_array_equal(parts.particle_probability, whole.particle_probability)
    for one, other in zip(parts.steps, whole.steps, strict=True):
        np.testing.assert_array_equal(one.jets, other.jets)
        np.testing.assert_array_equal(one.assignment, other.assignment)


def test_record_lists_what_was_possible_with_its_marginal():
    topology, (jets, jet_mask) = TTH, batch(9, events=9)
    found = decode(Network(topology, heed=1.0), topology, jets, jet_mask, method="exact_steps", record=True)
    rows = np.arange(9)
    assert [str(step.stage) for step in found.steps] == ["W or H"] * 3 + ["t + t"]
    for k, step in enumerate(found.steps):
        assert (step.revealed.sum(axis=1) == (k + 1 if k < 3 else 5)).all()
        chosen = step.jets[rows, step.choice]  # (events, particles, jets)
        for row in rows:
            used = {jet for jet in chosen[row].ravel().tolist() if jet >= 0}
            assert used <= set(step.assignment[row].tolist())
            if 0 < k < 3:  # pairs, of new jets
                assert not used & set(found.steps[k - 1].assignment[row].tolist())
        impossible = (step.jets == -1).all(axis=(2, 3))
        assert (step.probability[impossible] == 0).all()
        assert (step.probability <= 1 + 1e-5).all()
    np.testing.assert_array_equal(canonical(topology, found.steps[-1].assignment), found.assignment)


def test_a_record_of_types_with_other_numbers_of_candidates():
    topology = parse_topology(
        {"name": "x", "event": ["H", "A"], "particles": {"H": ["b", "b"], "A": ["j", "j", "j"]}}
    )
    jets, mask = batch(6, padding=0)
    recorded = decode(Network(topology, 1.0), topology, jets, mask, method="exact_steps", record=True)
    plain = decode(Network(topology, 1.0), topology, jets, mask, method="exact_steps")
    np.testing.assert_array_equal(recorded.assignment, plain.assignment)
    first = recorded.steps[0]
    for row, choice in enumerate(first.choice):
        chosen = first.jets[row, choice][first.jets[row, choice] >= 0]
        assert len(chosen) == (2 if first.types[choice] == ("H",) else 3)
