"""Particles that may be merged into one object, against every hypothesis of an event, one by one."""

import itertools

import numpy as np
import pytest

import pairton
from pairton.decoding import Question, decode
from pairton.decoding.exact import sums_of
from pairton.decoding.patterns import allowed_nodes, count_sums, plan_of
from pairton.decoding.set_sums import best, log_normaliser, log_sums, marginals
from pairton.decoding.set_tables import hypotheses, set_tables, true_pattern
from pairton.decoding.terms import candidate_scores
from pairton.errors import ConfigError, EventsError, TopologyError
from pairton.events import Events
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.events.matching import match_slots
from pairton.events.nodes import Nodes
from pairton.events.objects import make_objects
from pairton.models.storage import ModelInfo
from pairton.report.record import edge_pairs
from pairton.topology import load_topology, parse_topology
from pairton.topology.assignments import STATES, canonical, states


def made(event, particles, objects=None):
    large = {names[1][0]: "fatjet" for names in particles.values() if isinstance(names[0], list)}
    large = large if objects is None else objects
    return parse_topology({"name": "x", "event": event, "particles": particles, "objects": large})


HH = made(["H", "H"], {"H": [["b", "b"], ["J"]]})
TT = made(["t", "t"], {"t": [["W", "b"], ["T"]], "W": [["q", "q"], ["V"]]})
DEEP = made(["X", "j"], {"X": [["W", "W"], ["J"]], "W": [["q", "q"], ["V"]]})
MIXED = made(["t", "W"], {"t": ["W", "b"], "W": [["q", "q"], ["V"]]})
SMALL = made(["H", "H"], {"H": [["b", "b"], ["m"]]}, objects={})  # two jets, or one
CASES = [(HH, (5, 2)), (HH, (4, 0)), (HH, (0, 2)), (TT, (5, 2)), (DEEP, (5, 2)), (MIXED, (5, 2)), (SMALL, (5,))]


# -- brute force -------------------------------------------------------------------------------------------


def fillings(topology, particle):
    """The sets of slots that make a particle present, and those that leave it absent."""
    below = [fillings(topology, topology.particles[child]) for child in particle.children]
    there = [
        frozenset().union(particle.own_slots, *choice) for choice in itertools.product(*(f for f, _ in below))
    ]
    absent = [
        frozenset().union(*choice)
        for choice in itertools.product(*(present + rest for present, rest in below))
        if particle.own_slots or not all(part in present for part, (present, _) in zip(choice, below, strict=True))
    ]
    if particle.merged_slot >= 0:
        there.append(frozenset({particle.merged_slot}))
    return there, absent


def structure(topology, particle, row):
    """A particle and all below it, whatever the order of interchangeable ones."""
    own = tuple(sorted(row[slot] for slot in particle.own_slots))
    whole = row[particle.merged_slot] if particle.merged_slot >= 0 else -1
    return (
        particle.type,
        whole,
        own,
        tuple(sorted(structure(topology, topology.particles[c], row) for c in particle.children)),
    )


def there(topology, row):
    """Every present particle with its objects, in slots of its own place."""
    state = states(topology, np.array([row]))[0]
    for particle in topology.particles:
        if state[particle.index]:
            merged = STATES[state[particle.index]] == "merged"
            slots = [particle.merged_slot] if merged else [s for s in particle.span if s != particle.merged_slot]
            yield particle, merged, {slot: row[slot] for slot in slots if row[slot] >= 0}


def gain(topology, particle, merged, objects, logits):
    """Pairs of different products are added, the diagonal of own objects is subtracted."""
    s = logits[topology.type_index(particle.type)]
    groups = [[objects[slot]] for slot in ([particle.merged_slot] if merged else particle.own_slots)]
    total = -sum(s[u, u] for (u,) in groups)
    if not merged:
        groups += [[objects[k] for k in topology.particles[c].span if k in objects] for c in particle.children]
    return total + sum(s[i, j] for a, b in itertools.combinations(groups, 2) for i in a for j in b)


def every_hypothesis(topology, layout):
    """Key -> row of slots."""
    found = {}
    options = [present + rest for present, rest in (fillings(topology, root) for root in topology.roots)]
    for choice in itertools.product(*options):
        slots = sorted(frozenset().union(*choice))
        pools = [topology.nodes(topology.slots[slot].kind, layout) for slot in slots]
        for picked in itertools.product(*pools):
            if len(set(picked)) == len(picked):
                row = [-1] * len(topology.slots)
                for slot, node in zip(slots, picked, strict=True):
                    row[slot] = node
                found.setdefault(tuple(sorted(structure(topology, root, row) for root in topology.roots)), row)
    return found


def network(topology, layout, events, seed=0):
    rng = np.random.default_rng(seed)
    n = sum(layout)
    edges = rng.normal(size=(events, len(topology.types), n, n)).astype(np.float32)
    terms = rng.normal(size=(events, len(plan_of(topology).patterns))).astype(np.float32)
    return {"edges": edges + edges.swapaxes(2, 3), "patterns": terms}


def drawn_overlaps(topology, layout, events, seed=1):
    """Random pairs of a large jet and a jet."""
    n = sum(layout)
    overlaps = np.zeros((events, n, n), dtype=bool)
    if "fatjet" in topology.kinds:
        large, small = topology.nodes("fatjet", layout), topology.nodes("jet", layout)
        rng = np.random.default_rng(seed)
        overlaps[np.ix_(range(events), large, small)] = rng.random((events, len(large), len(small))) < 0.4
    return overlaps


@pytest.mark.parametrize(("topology", "layout"), CASES, ids=lambda x: getattr(x, "name", x) and str(x)[:20])
def test_sums_marginals_and_answers_are_those_of_every_hypothesis(topology, layout):
    events = 3
    outputs, overlaps = network(topology, layout, events), drawn_overlaps(topology, layout, events)
    overlaps[0] = False
    tables = set_tables(topology, allowed_nodes(topology, layout))
    assert count_sums(topology, allowed_nodes(topology, layout)) == sum(e.ways[0].size for e in tables.entries)
    scores, terms = candidate_scores(tables, outputs), outputs["patterns"].T
    sums, present = marginals(tables, scores, terms, overlaps)
    np.testing.assert_array_equal(log_sums(tables, scores, terms, overlaps), sums)
    rows = np.array(list(every_hypothesis(topology, layout).values()))
    asked = hypotheses(tables, rows)
    assert (asked.pattern >= 0).all()
    assert len(np.unique(canonical(topology, rows), axis=0)) == len(rows)
    used = np.array([(rows == node).any(axis=1) for node in range(sum(layout))])  # (N, hypotheses)
    for event in range(events):
        inside = [used[i] & used[j] for i, j in np.argwhere(overlaps[event])]
        allowed = ~np.any(inside, axis=0) if inside else np.ones(len(rows), dtype=bool)
        logits = outputs["edges"][event].astype(float)
        value = np.array(
            [sum(gain(topology, *each, logits) for each in there(topology, row)) for row in rows.tolist()]
        )
        value = np.where(allowed, value + terms[asked.pattern, event], -np.inf)
        for number in range(len(tables.patterns)):
            mine = value[asked.pattern == number]
            expected = np.logaddexp.reduce(mine) if len(mine) else -np.inf
            assert sums[number, event] == pytest.approx(expected, abs=1e-4)
        chance = np.exp(value - np.logaddexp.reduce(value))
        for name, found in asked.candidates.items():
            expected = np.zeros(len(tables.candidates[name].objects))
            for place in found:
                np.add.at(expected, place[place >= 0], chance[place >= 0])
            np.testing.assert_allclose(present[name][:, event], expected, rtol=1e-4, atol=1e-6)
        table = {tuple(row): x for row, x in zip(canonical(topology, rows).tolist(), value, strict=True)}
        ranked = best(tables, scores, terms, 15, overlaps=overlaps)
        found = [tuple(row) for row in ranked.assignment[event].tolist()]
        expected = np.sort(value[allowed])[::-1][:15]
        np.testing.assert_allclose(ranked.score[event, : len(expected)], expected, atol=1e-4)
        np.testing.assert_allclose([table[row] for row in found[: len(expected)]], expected, atol=1e-4)
        assert len(set(found[: len(expected)])) == len(expected)


def test_without_overlaps_nothing_is_masked_and_logarithms_give_the_same():
    outputs = network(HH, (5, 2), 4)
    tables = set_tables(HH, allowed_nodes(HH, (5, 2)))
    scores, terms = candidate_scores(tables, outputs), outputs["patterns"].T
    none = np.zeros((4, 7, 7), dtype=bool)
    for one, other in zip(marginals(tables, scores, terms), marginals(tables, scores, terms, none), strict=True):
        assert str(one) == str(other)
    overlaps = drawn_overlaps(HH, (5, 2), 4)
    apart = {name: values + 900 * (np.arange(len(values)) == 0)[:, None] for name, values in scores.items()}
    sums, present = marginals(tables, apart, terms, overlaps)  # underflows without logarithms
    np.testing.assert_allclose(np.exp(sums - log_normaliser(sums)).sum(axis=0), 1)
    assert present["H"][0].max() == pytest.approx(1)


# -- patterns and states -----------------------------------------------------------------------------------


def test_patterns_say_how_particles_appear():
    assert [pattern.name for pattern in plan_of(HH).patterns] == [
        "H + H", "H + HJ", "H", "HJ + HJ", "HJ", "nothing",
    ]  # fmt: skip
    assert [pattern.complete for pattern in plan_of(HH).patterns] == [True, True, False, True, False, False]
    assert [pattern.key for pattern in plan_of(HH).patterns][1] == "H_HJ"
    assert plan_of(HH).patterns[1].needs(HH) == (2, 1)
    assert {"t + tWV", "tT + W", "tWV + WV", "tT"} <= {pattern.name for pattern in plan_of(TT).patterns}
    assert HH.complete_layouts == ((4, 0), (2, 1), (0, 2))


def test_edges_that_are_drawn_join_the_objects_of_a_form():
    assert edge_pairs(HH, "H") == edge_pairs(HH, "H", 2) == [(0, 1)]
    assert edge_pairs(HH, "H", 1) == []
    assert edge_pairs(TT, "t", 2) == [(0, 1)]  # a merged W and the b


def test_a_merged_particle_holds_all_that_is_below_it():
    both = [0, 1, 5, 2, 6, -1, -1, -1, -1, -1]  # q q V b T
    assert [STATES[k] for k in states(TT, np.array([both]))[0]] == ["merged", "absent", "absent", "absent"]
    tables = set_tables(TT, allowed_nodes(TT, (5, 2)))
    found = hypotheses(tables, np.array([both, [0, 1, -1, 2, -1, -1, -1, 5, 3, -1]]))
    assert [tables.patterns[k].name for k in found.pattern] == ["tT", "t + tWV"]


# -- answers -----------------------------------------------------------------------------------------------


def event_of(jets, large, **more):
    """Nodes of one event, from eta and phi of its objects."""
    values = {
        kind: np.array([[[100.0, eta, phi, 400.0] for eta, phi in each]], np.float32).reshape(1, -1, 4)
        for kind, each in (("jet", jets), ("fatjet", large))
    }
    return Nodes.full(values)


def test_a_jet_inside_a_used_large_jet_is_not_used_again():
    """Jets 0 and 1 are inside the large jet; the second H could be 0 and 2, or 2 and 3."""
    nodes = event_of([(0.3, 0.0), (-0.3, 3.1), (2.0, 1.0), (2.2, 1.5)], [(0.0, 0.1), (-0.1, -3.1)])
    assert np.argwhere(nodes.overlaps[0]).tolist() == [[4, 0], [5, 1]]
    edges = np.full((1, 1, 6, 6), -3, dtype=np.float32)
    edges[0, 0, range(6), range(6)] = 0, 0, 0, 0, -4, 5
    edges[0, 0, [0, 2], [2, 0]], edges[0, 0, [2, 3], [3, 2]] = 5, 4
    outputs = {"edges": edges, "patterns": np.zeros((1, 6), dtype=np.float32)}
    answer = decode(lambda nodes, tokens: outputs, HH, nodes)
    assert answer.assignment.tolist() == [[2, 3, -1, -1, -1, 4]]
    apart = sums_of(HH, (4, 2), outputs, question=Question()).answer()  # if the sharing rule did not hold
    assert apart.assignment[0, 0].tolist() == [0, 2, -1, -1, -1, 4]
    particles = decode(lambda nodes, tokens: outputs, HH, nodes, question=Question("particles")).assignment
    assert particles.tolist() == answer.assignment.tolist()


def test_events_need_objects_for_some_form_of_each_particle():
    edges = {"edges": np.zeros((1, 1, 3, 3), dtype=np.float32)}
    complete = decode(lambda nodes, tokens: edges, HH, event_of([(0.0, 0.0)], [(1.5, 0.0), (-2.0, 0.0)]))
    assert complete.assignment.tolist() == [[-1, -1, 1, -1, -1, 2]]  # of a network of complete events
    few = decode(lambda nodes, tokens: edges, HH, event_of([(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)], []))
    assert not few.answered.any()


def test_what_knows_products_only_says_so():
    nodes = event_of([(0.0, 0.0)] * 4, [(1.5, 0.0)])
    with pytest.raises(ConfigError, match="steps decoding knows particles by their products only, but H of x"):
        decode(lambda nodes, tokens: {}, HH, nodes, decoding="steps")


@pytest.mark.parametrize(
    ("particles", "said"),
    [
        ({"H": [["b", "b"], ["J", "K"]]}, "H reads .*, but must list its products, or its products and then one"),
        ({"H": ["b", ["J"]]}, "as in H: "),
        ({"H": [["b", "b"], ["Z"]], "Z": ["q"]}, "one object that may be the whole H"),
        ({"H": [["b", "b"], ["J"]], "HJ": ["q"]}, "HJ would be two things, one of them a merged H"),
        ({"H": [["b", "b"], ["J!"]]}, "must be a name of letters"),
    ],
)
def test_forms_that_are_refused(particles, said):
    with pytest.raises(TopologyError, match=said):
        parse_topology({"name": "x", "event": [*particles], "particles": particles})


def test_a_topology_is_read_back_and_drawn():
    assert parse_topology(TT.to_dict()) == TT != load_topology()
    assert "t1 or T" in TT.tree()


# -- truth and columns -------------------------------------------------------------------------------------


def objects(**kinds):
    """One event per row, from eta and phi of the objects of each kind."""
    columns = {kind: [np.array(each, dtype=float).reshape(-1, 2) for each in rows] for kind, rows in kinds.items()}
    return {
        kind: make_objects(
            pt=[[300.0] * len(row) for row in rows],
            eta=[row[:, 0] for row in rows],
            phi=[row[:, 1] for row in rows],
            mass=[[100.0] * len(row) for row in rows],
        )
        for kind, rows in columns.items()
    }


def test_truth_is_merged_if_one_large_jet_is_nearest_to_all_quarks_and_no_others():
    quarks = [(0.0, 0.0), (0.6, 0.0), (3.0, 0.0), (-3.0, 2.0)]  # of H1, then H2
    jets = quarks[:2], quarks, quarks, quarks, [*quarks[:3], (1.2, 0.0)]
    large = [(0.3, 0.0)], [(0.3, 0.0)], [(-0.2, 0.0), (0.8, 0.0)], [(0.3, 1.2)], [(0.3, 0.0)]
    directions = np.full((5, 6, 2), np.nan)
    directions[:, [0, 1, 3, 4]] = quarks
    directions[4, 4] = 1.2, 0.0  # a quark of H2 is in the large jet of H1
    found = match_slots(HH, objects(jet=jets, fatjet=large), directions[..., 0], directions[..., 1])
    assert found.tolist() == [
        [-1, -1, 0, -1, -1, -1],
        [-1, -1, 0, 2, 3, -1],
        [0, 1, -1, 2, 3, -1],  # each quark is nearest to another large jet
        [0, 1, -1, 2, 3, -1],  # too far
        [0, 1, -1, 2, 3, -1],
    ]


def test_the_highest_particle_in_a_large_jet_is_the_merged_one():
    quarks = [(0.0, 0.0), (0.5, 0.0), (-0.5, 0.0)]  # q q b
    top = made(["t"], {"t": [["W", "b"], ["T"]], "W": [["q", "q"], ["V"]]})
    directions = np.full((2, 5, 2), np.nan)
    directions[:, [0, 1, 3]] = quarks
    directions[1, 3] = 2.5, 0.0
    found = match_slots(top, objects(jet=[quarks] * 2, fatjet=[[(0.0, 0.1)]] * 2), *np.moveaxis(directions, 2, 0))
    assert found.tolist() == [[-1, -1, -1, -1, 0], [-1, -1, 0, -1, -1]]


def test_events_are_counted_by_their_true_pattern():
    truth = [[0, 1, -1, 2, 3, -1], [0, 1, -1, -1, -1, 0], [-1, -1, 1, -1, -1, 0], [-1, -1, 0, 2, -1, -1]]
    names = [pattern.name for pattern in plan_of(HH).patterns]
    assert [names[k] for k in true_pattern(HH, np.array(truth))] == ["H + H", "H + HJ", "HJ + HJ", "HJ"]


def test_truth_is_either_resolved_or_merged():
    one = objects(jet=[[(0, 0), (1, 1)]], fatjet=[[(2, 2)]])
    events = Events(one, HH, truth=[[0, 1, -1, -1, -1, 0]])
    assert events.complete.tolist() == [True]
    with pytest.raises(EventsError, match="with H1 both merged and resolved: use -1"):
        Events(one, HH, truth=[[0, 1, 0, -1, -1, -1]])


class Likes:
    """An engine: any pair of jets is good, and a large jet is better."""

    at_once = 1

    def __call__(self, nodes, tokens):
        n, first = nodes.mask.shape[1], nodes.layout[0]
        edges = np.zeros((len(nodes), 1, n, n), dtype=np.float32)
        edges[:, 0, range(first, n), range(first, n)] = -5
        return {"edges": edges, "patterns": np.zeros((len(nodes), 6), dtype=np.float32)}


def test_columns_of_a_result_name_the_state_and_the_large_jet():
    outputs = {"edges": ("type", "node", "node"), "patterns": ("pattern",)}
    info = ModelInfo(HH, {"tokens": False}, Domain(), Inputs.parse({"jet": []}, HH), outputs)
    jets = [(0.3, 0.0), (2.0, 1.0), (2.2, 1.5)]
    events = Events(objects(jet=[jets, jets[:1]], fatjet=[[(0.0, 0.1)], [(0.0, 0.1)]]), HH)
    reco = pairton.reconstruct(events, pairton.Model("likes", info, Likes()), allow_absent=True)
    columns = reco.to_columns()
    assert columns["H1_state"].tolist() == ["resolved", "merged"]  # by pT
    assert columns["H2_state"].tolist() == ["merged", "absent"]
    assert columns["H2_J_fatjet"].tolist() == [0, -1]
    assert columns["H1_b1_jet"].tolist() == [1, -1]
    assert columns["H2_mass"][0] == pytest.approx(100, rel=1e-4)
    assert columns["pattern_HJ"][1] > 0.9
    whole = sum(columns[f"pattern_{name}"] for name in ("H_H", "H_HJ", "HJ_HJ"))
    np.testing.assert_allclose(columns["complete_probability"], whole, rtol=1e-6)
    np.testing.assert_allclose(
        columns["event_probability_if_complete"][0] * whole[0], columns["event_probability"][0]
    )
    assert reco["H"].objects.kind.tolist() == [[["jet", "jet"], ["fatjet"]], [["fatjet"], []]]
