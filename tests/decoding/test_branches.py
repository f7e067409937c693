"""Exact decoding of networks that score each particle on its own, against all assignments one by one."""

import itertools

import numpy as np
import pytest
import yaml

from pairton.decoding import BRANCHES, decode
from pairton.decoding.branches import BRANCH, branch_plan, branch_sums
from pairton.events.nodes import Nodes
from pairton.topology import load_topology
from pairton.topology.assignments import canonical, canonical_within
from pairton.topology.extras import labels_of

JETS = {"SEQUENTIAL": {"Jets": {"pt": "log"}}}
BOTH = {"SEQUENTIAL": {"Jets": {"pt": "log"}, "Leptons": {"pt": "log"}}}
TOP = ["q1", "q2", "b"]
EVENTS = {
    "two tops": (
        {"t1": TOP, "t2": TOP},
        {"EVENT": [["t1", "t2"]], "t1": [["q1", "q2"]], "t2": [["q1", "q2"]]},
        JETS,
    ),
    "two different": (
        {"t": ["b", "q1", "q2"], "h": ["b1", "b2"]},
        {"t": [["q1", "q2"]], "h": [["b1", "b2"]]},
        JETS,
    ),
    "three alike": ({f"h{k}": ["b1", "b2"] for k in "123"}, {"EVENT": [["h1", "h2", "h3"]]}, JETS),
    "a lepton": ({"t": ["q1", "b"], "tl": [{"b": "Jets"}, {"l": "Leptons"}]}, {}, BOTH),
}
COUNTS = {"two tops": 7, "two different": 6, "three alike": 6, "a lepton": (4, 2)}


def topology_of(name, tmp_path):
    event, permutations, inputs = EVENTS[name]
    path = tmp_path / "event.yaml"
    path.write_text(
        yaml.safe_dump({"INPUTS": inputs, "EVENT": event, "PERMUTATIONS": permutations}, sort_keys=False)
    )
    return load_topology(path)


def symmetric(array, slots, topology):
    """Equal for interchangeable products of the particle with these slots, as SPANet's outputs are."""
    rows = {tuple(r) for r in topology.symmetries.tolist() if {r[s] for s in slots} == set(slots)}
    orders = {tuple(slots.index(row[s]) for s in slots) for row in rows}
    return sum(array.transpose(0, *(1 + k for k in order)) for order in orders) / len(orders)


def outputs_of(topology, events, n_nodes, seed, spread=3.0):
    rng = np.random.default_rng(seed)
    result = {}
    labels = [label.split("/")[0] for label in labels_of(topology, "spanet")]
    for name in dict.fromkeys(labels):
        slots = [slot for slot, other in enumerate(labels) if other == name]
        array = rng.normal(0, spread, (events, *(n_nodes,) * len(slots))).astype(np.float32)
        result[f"{BRANCH}{name}"] = symmetric(array, slots, topology).astype(np.float32)
    return result


def every_assignment(topology, layout):
    choices = [list(topology.nodes(slot.kind, layout)) for slot in topology.slots]
    return np.array([a for a in itertools.product(*choices) if len(set(a)) == len(a)])


def product_of(topology, outputs, assignments, event=0):
    """(A,): log of the product of the branches' probabilities."""
    labels = [label.split("/")[0] for label in labels_of(topology, "spanet")]
    total = np.zeros(len(assignments))
    for name in dict.fromkeys(labels):
        slots = [slot for slot, other in enumerate(labels) if other == name]
        total += outputs[f"{BRANCH}{name}"][event][tuple(assignments[:, slots].T)]
    return total


@pytest.mark.parametrize("name", EVENTS)
def test_against_all_assignments(name, tmp_path):
    topology = topology_of(name, tmp_path)
    layout = topology.layout(COUNTS[name])
    outputs = outputs_of(topology, 3, sum(layout), seed=len(name))
    sums = branch_sums(topology, layout, outputs)
    found, score, _ = sums.sums.listed(1)
    every = every_assignment(topology, layout)
    distinct = np.unique(canonical_in_branches(topology, every), axis=0)
    answers = sums.plan.assigned(found[:, 0])
    probability, particles = sums.probability(found[:, 0]), sums.particle_probability(found[:, 0])
    for event in range(3):
        logs = product_of(topology, outputs, distinct, event)
        assert score[event, 0] == pytest.approx(logs.max(), abs=1e-3)
        assert product_of(topology, outputs, answers[[event]], event)[0] == pytest.approx(logs.max(), abs=1e-3)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        same = (canonical(topology, distinct) == canonical(topology, answers[[event]])).all(axis=1)
        assert probability[event] == pytest.approx(weights[same].sum(), rel=1e-3)
        for particle in topology.particles:
            if not sums.plan.places[particle.index]:
                assert np.isnan(particles[event, particle.index])
                continue
            has_it = np.zeros(len(distinct), dtype=bool)
            objects = canonical_within(topology, particle, answers[[event]])
            for other in topology.of_type(particle.type):
                has_it |= (canonical_within(topology, other, distinct) == objects).all(axis=1)
            assert particles[event, particle.index] == pytest.approx(weights[has_it].sum(), rel=1e-3)


def canonical_in_branches(topology, assignments):
    """One representative of assignments that differ by products of one branch only."""
    plan = branch_plan(topology)
    inside = canonical(plan.apart, assignments[:, list(plan.slots)])
    return plan.assigned(inside)


def test_padding_changes_nothing(tmp_path):
    topology = topology_of("two tops", tmp_path)
    outputs = outputs_of(topology, 4, 8, seed=5)
    mask = np.ones((4, 8), dtype=bool)
    mask[:, [1, 6]] = False
    nodes = Nodes({"jet": np.zeros((4, 8, 4), dtype=np.float32)}, {"jet": mask})
    padded = decode(lambda nodes, tokens: outputs, topology, nodes, decoding=BRANCHES)
    kept = np.flatnonzero(mask[0])
    small = {name: array[(slice(None), *np.ix_(*[kept] * (array.ndim - 1)))] for name, array in outputs.items()}
    six = Nodes.full({"jet": np.zeros((4, 6, 4), dtype=np.float32)})
    plain = decode(lambda nodes, tokens: small, topology, six, decoding=BRANCHES)
    np.testing.assert_array_equal(padded.assignment, kept[plain.assignment])
    np.testing.assert_allclose(padded.event_probability, plain.event_probability)


def test_a_record_has_the_choices_and_the_probability_of_pairs(tmp_path):
    topology = topology_of("two tops", tmp_path)
    outputs = outputs_of(topology, 2, 7, seed=9)
    nodes = Nodes.full({"jet": np.zeros((2, 7, 4), dtype=np.float32)})
    answer = decode(lambda nodes, tokens: outputs, topology, nodes, decoding=BRANCHES, record=True)
    (step,) = answer.steps
    assert step.edges.shape == (2, 2, 7, 7)
    distinct = np.unique(canonical_in_branches(topology, every_assignment(topology, (7,))), axis=0)
    logs = product_of(topology, outputs, distinct)
    weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    together = [(np.isin(distinct[:, s], [0, 3]).sum(axis=1) == 2) for s in ([0, 1], [3, 4])]
    expected = weights[together[0] | together[1]].sum()
    found = 1 / (1 + np.exp(-step.edges[0, topology.type_index("W"), 0, 3]))
    assert found == pytest.approx(max(expected, 1e-6), rel=1e-3)
