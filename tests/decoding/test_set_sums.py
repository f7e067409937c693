"""Sums over sets against brute force: every hypothesis built with itertools and compared as nested sets."""

import itertools
from math import comb, factorial

import numpy as np
import pytest

import enumeration as reference
from pairton.decoding import set_sums
from pairton.decoding import set_tables as table_module
from pairton.decoding.exact import Sums
from pairton.decoding.patterns import MAX_SUMS, Question, allowed_nodes, count_sums
from pairton.decoding.set_sums import best, log_normaliser, log_scores, log_sums, marginals
from pairton.decoding.set_tables import _make_tables, hypotheses, set_tables
from pairton.decoding.terms import candidate_scores, triplet_types
from pairton.errors import ModelError
from pairton.topology import load_topology, parse_topology
from pairton.topology.assignments import canonical

TTBAR, HH4B, TTH, TTTT = (load_topology(n) for n in ("ttbar_allhad", "hh4b", "tth_allhad", "tttt_allhad"))


def made(name, event, **particles):
    return parse_topology({"name": name, "event": event, "particles": particles})


TTW = made("ttW", ["t", "t", "W"], t=["b", "W"], W=["q", "q"])
DEEP = made("deep", ["H", "j"], H=["W", "W"], W=["q", "q"])
HH = made("hh", ["H", "H"], H=["Z", "Z"], Z=["m"])
THREE = made("three", ["g", "j", "g", "j"], g=["q", "q", "q"])
LJETS = made("ljets", ["t", "tl"], t=["W", "b"], W=["q", "q"], tl=["L", "b"], L=["l"])
TREES = [
    (TTBAR, 4),
    (TTBAR, 6),
    (TTBAR, 7),
    (TTBAR, 8),
    (HH4B, 4),
    (HH4B, 8),
    (TTH, 5),
    (TTH, 8),
    (TTW, 7),
    (DEEP, 6),
]
TREES += [(HH, 5), (THREE, 7), (HH4B, 1), (TTBAR, 0), (TTBAR, 5), (TTH, 6), (TTH, 7), (HH4B, 6), (HH4B, 7)]


def jets(topology, n):
    return allowed_nodes(topology, n)


def lepton_allowed(n_jets, n_leptons):
    """Jets first, then leptons, for the slots of LJETS."""
    nodes = tuple(range(n_jets)), tuple(range(n_jets, n_jets + n_leptons))
    return tuple(nodes[slot.name.endswith(".l")] for slot in LJETS.slots)


# -- brute force -------------------------------------------------------------------------------------------


def structure(topology, particle, slots):
    """A particle as nested sorted tuples: the same for all orders of interchangeable products."""
    inner = [structure(topology, topology.particles[c], slots) for c in particle.children]
    own = sorted(slots[s] for s in particle.own_slots)
    return (particle.type, tuple(sorted(inner)), tuple(own))


def filled(topology, particle, slots):
    return all(slots[s] >= 0 for s in particle.slots)


def key_of(topology, slots):
    return tuple(sorted(structure(topology, root, slots) for root in topology.roots))


def every_hypothesis(topology, allowed):
    """Key -> slots (-1 where absent) of every hypothesis."""
    found, seen = {}, set()
    for chosen in itertools.product([False, True], repeat=len(topology.particles)):
        slots = [0 if chosen[slot.particle] else -1 for slot in topology.slots]
        if [filled(topology, p, slots) for p in topology.particles] != list(chosen):
            continue  # a particle without its products, or all products without the particle
        if key_of(topology, slots) in seen:
            continue  # the same particles in other places of interchangeable ones
        seen.add(key_of(topology, slots))
        places = [k for k, slot in enumerate(slots) if slot == 0]
        objects = sorted({node for nodes in allowed for node in nodes})
        same = [pair for p in topology.particles if chosen[p.index] for pair in itertools.pairwise(p.own_slots)]
        same = [(places.index(i), places.index(j)) for i, j in same]
        for picked in itertools.permutations(objects, len(places)):
            if any(picked[i] > picked[j] for i, j in same):
                continue  # own products of a particle are interchangeable
            if all(node in allowed[place] for node, place in zip(picked, places, strict=True)):
                full = list(slots)
                for place, node in zip(places, picked, strict=True):
                    full[place] = node
                found.setdefault(key_of(topology, full), full)
    return found


class Brute:
    """All hypotheses of one event with their scores, candidates and patterns."""

    def __init__(self, tables, allowed, scores, terms, event=0):
        topology = tables.topology
        worth, self.index = {}, {}
        for name, known in tables.candidates.items():
            particle = topology.of_type(name)[0]
            for c, row in enumerate(known.objects.tolist()):
                slots = [-1] * len(topology.slots)
                slots[particle.slots[0] : particle.slots[0] + len(row)] = row
                found = structure(topology, particle, slots)
                assert found not in worth
                worth[found], self.index[found] = float(scores[name][c, event]), (name, c)
        shapes = {}
        for p, pattern in enumerate(tables.patterns):
            slots = [-1] * len(topology.slots)
            for name, first in pattern.placed:
                for k in range(len(topology.of_type(name)[0].slots)):
                    slots[first + k] = 0
            shapes[key_of(topology, slots)] = p
        assert len(shapes) == len(tables.patterns)
        self.rows, self.scores, self.members, self.patterns = [], [], [], []
        for slots in every_hypothesis(topology, allowed).values():
            pattern = shapes[key_of(topology, [min(slot, 0) for slot in slots])]
            there = [structure(topology, p, slots) for p in topology.particles if filled(topology, p, slots)]
            if -np.inf in [worth[key] for key in there]:
                continue
            self.rows.append(slots)
            self.members.append([self.index[key] for key in there])
            self.patterns.append(pattern)
            self.scores.append(sum(worth[key] for key in there) + float(terms[pattern, event]))
        self.rows = [tuple(row) for row in canonical(topology, np.array(self.rows)).tolist()]
        self.scores, self.patterns = np.array(self.scores), np.array(self.patterns)
        self.log_z = np.logaddexp.reduce(self.scores)

    def agrees(self, assignment, score, patterns):
        """Whether these (k, S) are the best hypotheses of some patterns; equal scores may come in any order."""
        inside = np.isin(self.patterns, patterns)
        expected = np.sort(self.scores[inside])[::-1][: len(score)]
        np.testing.assert_allclose(score[: len(expected)], expected, rtol=1e-6, atol=1e-6)
        assert np.isneginf(score[len(expected) :]).all()
        rows = [tuple(row) for row in assignment[: len(expected)].tolist()]
        assert len(set(rows)) == len(rows)
        table = {row: value for row, value, mine in zip(self.rows, self.scores, inside, strict=True) if mine}
        np.testing.assert_allclose([table[row] for row in rows], expected, rtol=1e-6, atol=1e-6)


def drawn(tables, events=2, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    scores = {
        name: (scale * rng.normal(size=(len(known.objects), events))).astype(np.float32)
        for name, known in tables.candidates.items()
    }
    return scores, rng.normal(size=(len(tables.patterns), events)).astype(np.float32)


def check(tables, allowed, scores, terms, event=0):
    brute = Brute(tables, allowed, scores, terms, event)
    sums, present = marginals(tables, scores, terms)
    np.testing.assert_allclose(log_normaliser(sums)[event], brute.log_z, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(sums, log_sums(tables, scores, terms))
    for p in range(len(tables.patterns)):
        mine = brute.scores[brute.patterns == p]
        expected = np.logaddexp.reduce(mine) if len(mine) else -np.inf
        np.testing.assert_allclose(sums[p, event], expected, rtol=1e-6, atol=1e-6)
    probability = np.exp(brute.scores - brute.log_z)
    expected = {name: np.zeros(len(known.objects)) for name, known in tables.candidates.items()}
    for members, chance in zip(brute.members, probability, strict=True):
        for name, c in members:
            expected[name][c] += chance
    for name, values in expected.items():
        np.testing.assert_allclose(present[name][:, event], values, rtol=1e-5, atol=1e-9)

    listed = best(tables, scores, terms, k=20)
    brute.agrees(listed.assignment[event], listed.score[event], range(len(tables.patterns)))
    for p in range(len(tables.patterns)):
        ranked = best(tables, scores, terms, 20, [p])
        brute.agrees(ranked.assignment[event], ranked.score[event], [p])
    first = best(tables, scores, terms)
    np.testing.assert_array_equal(first.assignment[event, 0], listed.assignment[event, 0])

    for k in np.argsort(-brute.scores)[:3]:
        found = hypotheses(tables, np.array([brute.rows[k]] * len(sums.T)))
        np.testing.assert_array_equal(found.pattern, brute.patterns[k])
        np.testing.assert_allclose(log_scores(tables, scores, found, terms)[event], brute.scores[k], atol=1e-5)
    check_answers(tables, scores, terms, (sums, present), brute, event)


def check_answers(tables, scores, terms, summed, brute, event):
    """All four answers: their expected number of right particles, or their probability, is the largest."""
    size = np.array([len(members) for members in brute.members])
    worth = np.array([sum(summed[1][name][c, event] for name, c in members) for members in brute.members])
    complete = brute.patterns == 0
    index = {tuple(row): k for k, row in enumerate(canonical(tables.topology, np.array(brute.rows)).tolist())}
    for answer, allow_absent in itertools.product(("event", "particles"), (False, True)):
        sums = Sums(tables, scores, terms, *summed, Question(answer, allow_absent))
        assert sums.leaves_out == (allow_absent or not complete.any())
        allowed = np.full(len(size), True) if sums.leaves_out else complete
        value = brute.scores if answer == "event" else worth - 0.5 * size * sums.leaves_out
        found = sums.answer()
        chosen = index[tuple(found.assignment[event, 0].tolist())]
        assert allowed[chosen]
        assert value[chosen] == pytest.approx(value[allowed].max(), abs=1e-6)
        assert found.score[event, 0] == pytest.approx(brute.scores[chosen], abs=1e-5)
        chance = sums.particle_probability(found.assignment[:, 0])[event]
        assert np.nansum(chance) == pytest.approx(worth[chosen], abs=1e-9)
        if answer == "particles" and sums.leaves_out:
            assert (chance[np.isfinite(chance)] >= 0.5).all()


@pytest.mark.parametrize(("topology", "n_jets"), TREES, ids=lambda x: getattr(x, "name", x))
def test_equals_brute_force(topology, n_jets):
    allowed = jets(topology, n_jets)
    tables = set_tables(topology, allowed)
    scores, terms = drawn(tables)
    check(tables, allowed, scores, terms, event=1)


@pytest.mark.parametrize(("n_jets", "n_leptons"), [(5, 1), (6, 2), (4, 0)])
def test_a_slot_takes_only_objects_of_its_kind(n_jets, n_leptons):
    allowed = lepton_allowed(n_jets, n_leptons)
    tables = set_tables(LJETS, allowed)
    assert tables.candidates["L"].objects[:, 0].tolist() == list(range(n_jets, n_jets + n_leptons))
    scores, terms = drawn(tables)
    check(tables, allowed, scores, terms)


def test_kinds_may_overlap():
    """An electron or muon in one slot, an electron in the other: sets are reached in different numbers of ways."""
    two = made("two", ["x", "y"], x=["A", "l"], A=["e"], y=["l"])
    nodes = {"x.A.e": (3, 4), "x.l": (0, 3, 4, 5), "y.l": (0, 3, 4, 5)}
    allowed = tuple(nodes[slot.name] for slot in two.slots)
    tables = set_tables(two, allowed)
    scores, terms = drawn(tables)
    check(tables, allowed, scores, terms)


# -- complete hypotheses: the list of all assignments ------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "n_jets"), [(TTBAR, 7), (TTH, 8), (HH4B, 6), (DEEP, 6)], ids=lambda x: str(x)[:9]
)
def test_complete_only_is_the_sum_over_assignments(topology, n_jets):
    tables = set_tables(topology, jets(topology, n_jets), complete_only=True)
    scores, _ = drawn(tables, events=3)
    listed = reference.enumerate_assignments(topology, n_jets)
    members = hypotheses(tables, listed.assignments).candidates  # type -> (particles, A)
    values = sum(scores[name][rows].sum(axis=0) for name, rows in members.items()).T
    sums, present = marginals(tables, scores)
    assert [pattern.complete for pattern in tables.patterns] == [True]
    np.testing.assert_allclose(log_normaliser(sums), reference.log_normaliser(values), rtol=1e-6)
    for name, rows in members.items():
        expected = np.zeros(present[name].shape)
        np.add.at(expected, rows, np.exp(values - reference.log_normaliser(values)[:, None]).T)
        np.testing.assert_allclose(present[name], expected, rtol=1e-5, atol=1e-8)
    winner = listed.assignments[values.argmax(axis=1)]
    chance = values.max(axis=1) - reference.log_normaliser(values)
    found = best(tables, scores)
    np.testing.assert_array_equal(found.assignment[:, 0], winner)
    np.testing.assert_allclose(found.score[:, 0] - log_normaliser(sums), chance, atol=1e-5)
    every = set_tables(topology, jets(topology, n_jets))
    np.testing.assert_allclose(log_sums(every, scores)[0], sums[0], rtol=1e-12)
    some = best(every, scores, patterns=[0])
    np.testing.assert_array_equal(some.assignment[:, 0], winner)
    assert (best(every, scores, patterns=[len(every.patterns) - 1]).pattern > 0).all()


@pytest.mark.parametrize("topology", [TTBAR, TTH, THREE, DEEP], ids=lambda topology: topology.name)
def test_scores_of_candidates_add_up_to_those_of_assignments(topology):
    n_jets = len(topology.slots)
    rng = np.random.default_rng(3)
    edges = rng.normal(size=(2, len(topology.types), n_jets + 2, n_jets + 2)).astype(np.float32)
    edges += edges.swapaxes(2, 3)
    triplets = rng.normal(size=(2, len(triplet_types(topology)), *[n_jets + 2] * 3)).astype(np.float32)
    prediction = {"edges": edges, "triplets": triplets}
    tables = set_tables(topology, jets(topology, n_jets))  # the last two nodes are no jets
    scores = candidate_scores(tables, prediction)
    listed = reference.enumerate_assignments(topology, n_jets)
    kept = {"edges": edges[..., :n_jets, :n_jets], "triplets": triplets[..., :n_jets, :n_jets, :n_jets]}
    expected = reference.scores(listed, kept)
    for row, column in zip(listed.assignments[::7], expected.T[::7], strict=True):
        found = log_scores(tables, scores, hypotheses(tables, np.stack([row, row])))
        np.testing.assert_allclose(found, column, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("topology", [TTBAR, DEEP], ids=lambda topology: topology.name)
def test_tables_of_fewer_objects_are_the_first_columns(topology):
    """A graph with tables for the most jets can slice them for fewer."""
    few, many = (set_tables(topology, jets(topology, n)) for n in (7, 9))
    for name, known in few.candidates.items():
        np.testing.assert_array_equal(many.candidates[name].objects[: len(known.objects)], known.objects)
    for one, other in zip(few.entries, many.entries, strict=True):
        np.testing.assert_array_equal(other.masks[: len(one.masks)], one.masks)
        for table, longer in zip(one.ways, other.ways, strict=True):
            np.testing.assert_array_equal(longer[:, : table.shape[1]], table)
        for few_, many_ in zip(getattr(one, "partners", ()), getattr(other, "partners", ()), strict=True):
            for table, longer in ((few_.sets, many_.sets), (few_.unions, many_.unions)):
                np.testing.assert_array_equal(longer[: table.shape[0], : table.shape[1]], table)


def test_tables_are_the_same_whatever_the_blocks(monkeypatch):
    whole = set_tables(TTBAR, jets(TTBAR, 9))
    monkeypatch.setattr(table_module, "BLOCK", 100)
    pieces = _make_tables(TTBAR, jets(TTBAR, 9), False)
    for one, other in zip(whole.entries, pieces.entries, strict=True):
        np.testing.assert_array_equal(other.masks, one.masks)
        for table, same in zip(one.ways, other.ways, strict=True):
            np.testing.assert_array_equal(same, table)


def test_unions_that_no_sum_needs_are_not_made():
    """At 28 jets each table of unions of two tops is 30 MB."""
    tables = _make_tables(TTBAR, jets(TTBAR, 8), False)
    marginals(tables, zero(tables))
    partners = [part for entry in tables.entries for part in getattr(entry, "partners", ())]
    assert partners
    assert not any("unions" in vars(part) for part in partners)


# -- four tops, counted another way ------------------------------------------------------------------------


def zero(tables, events=1):
    return {name: np.zeros((len(known.objects), events), np.float32) for name, known in tables.candidates.items()}


@pytest.mark.parametrize("n_jets", [11, 12, 13])
def test_four_tops_with_equal_scores_count_hypotheses(n_jets):
    tables = set_tables(TTTT, jets(TTTT, n_jets))
    sums, present = marginals(tables, zero(tables))
    total = 0
    for p, pattern in enumerate(tables.patterns):
        tops, ws = pattern.name.split(" + ").count("t"), pattern.name.split(" + ").count("W")
        count, left = 1, n_jets  # choose the particles one after the other, then divide by their orders
        for size, ways in [(3, 3)] * tops + [(2, 1)] * ws:
            count, left = count * comb(left, size) * ways, left - size
        count //= factorial(tops) * factorial(ws)
        assert count == (np.exp(sums[p, 0]).round() if count else 0) or abs(np.exp(sums[p, 0]) / count - 1) < 1e-12
        total += count
    assert len(tables.patterns) == 15
    assert np.exp(sums[0, 0]) == pytest.approx(TTTT.count_assignments(n_jets), rel=1e-12)
    np.testing.assert_allclose(log_normaliser(sums)[0], np.log(total), rtol=1e-12)
    assert np.ptp(present["t"]) < 1e-12
    assert np.ptp(present["W"]) < 1e-12


def test_four_tops_are_their_pairs_of_pairs():
    """exp S of four tops by another order of summation: pairs of tops, then three ways to pair the pairs."""
    tables = set_tables(TTTT, jets(TTTT, 12), complete_only=True)
    scores, _ = drawn(tables, events=1, seed=5)
    known = tables.candidates["t"]
    w = {}
    for c, row in enumerate(known.objects.tolist()):
        total = float(scores["t"][c, 0]) + float(scores["W"][known.children[0][1][c], 0])
        w[frozenset(row)] = np.logaddexp(w.get(frozenset(row), -np.inf), total)
    pairs = {}
    for one, two in itertools.combinations(w, 2):
        if not one & two:
            pairs[one | two] = np.logaddexp(pairs.get(one | two, -np.inf), w[one] + w[two])
    every = frozenset(range(12))
    expected = np.logaddexp.reduce([value + pairs[every - six] for six, value in pairs.items()]) - np.log(6)
    np.testing.assert_allclose(log_sums(tables, scores)[0, 0], expected, rtol=1e-9)
    ranked = best(tables, scores, k=5)
    assert (np.diff(ranked.score[0]) <= 0).all()
    assert len({tuple(row) for row in ranked.assignment[0].tolist()}) == 5


# -- properties --------------------------------------------------------------------------------------------


def test_patterns_and_the_count_of_sums():
    assert [p.name for p in set_tables(TTBAR, jets(TTBAR, 6)).patterns] == [
        "t + t",
        "t + W",
        "t",
        "W + W",
        "W",
        "nothing",
    ]
    names = [p.name for p in set_tables(TTW, jets(TTW, 6)).patterns]
    assert len(set(names)) == len(names) == 12  # the W of a top is not the other W
    for topology, n in [(TTBAR, 8), (TTTT, 9), (DEEP, 7), (THREE, 8)]:
        tables = set_tables(topology, jets(topology, n))
        made_of = sum(entry.ways[0].size for entry in tables.entries)
        assert made_of == count_sums(topology, jets(topology, n))
    assert count_sums(TTTT, jets(TTTT, 16)) < MAX_SUMS


def test_probabilities_of_patterns_sum_to_one_over_blocks_of_events():
    tables = set_tables(TTBAR, jets(TTBAR, 7))
    scores, terms = drawn(tables, events=300, scale=20)
    sums, present = marginals(tables, scores, terms)
    np.testing.assert_allclose(np.exp(sums - log_normaliser(sums)).sum(axis=0), 1, rtol=1e-12)
    some = {name: values[:, 200:201] for name, values in scores.items()}
    again, alone = marginals(tables, some, terms[:, 200:201])
    np.testing.assert_allclose(again[:, 0], sums[:, 200], rtol=1e-12)
    np.testing.assert_allclose(alone["W"][:, 0], present["W"][:, 200], rtol=1e-9)


def test_large_scores_neither_overflow_nor_underflow():
    """The best candidates exclude each other, so that every complete hypothesis is e^-2000 of the naive scale."""
    allowed = jets(TTBAR, 6)
    tables = set_tables(TTBAR, allowed)
    scores, terms = drawn(tables, events=3, scale=400)
    scores["t"][tables.candidates["t"].objects.min(axis=1) == 0] += 2000
    plain = log_sums(tables, {name: values[:, :1] for name, values in scores.items()})
    assert np.isfinite(plain).all()
    for event in range(3):
        check(tables, allowed, scores, terms, event)
    scores = {name: values + np.float32(1e4) for name, values in scores.items()}
    check(tables, allowed, scores, terms)


@pytest.mark.parametrize(
    ("topology", "n_jets"), [(TTTT, 9), (TTH, 8), (DEEP, 6), (HH, 5)], ids=lambda x: str(x)[-9:]
)
def test_sums_with_logarithms_equal_those_without(topology, n_jets, monkeypatch):
    tables = set_tables(topology, jets(topology, n_jets))
    scores, terms = drawn(tables, events=3)
    sums, present = marginals(tables, scores, terms)
    monkeypatch.setattr(set_sums, "SMALLEST", np.inf)
    again, slow = marginals(tables, scores, terms)
    np.testing.assert_allclose(again, sums, rtol=1e-12)
    for name, values in present.items():
        np.testing.assert_allclose(slow[name], values, rtol=1e-9)


def test_excluded_candidates_have_no_probability():
    allowed = jets(TTBAR, 6)
    tables = set_tables(TTBAR, allowed)
    scores, terms = drawn(tables)
    scores["t"][::2] = -np.inf
    scores["W"][3] = -np.inf
    check(tables, allowed, scores, terms)
    _, present = marginals(tables, scores, terms)
    assert present["t"][::2].max() == 0
    assert present["W"][3].max() == 0
    nothing = {name: np.full_like(values, -np.inf) for name, values in scores.items()}
    sums, present = marginals(tables, nothing, terms)
    np.testing.assert_allclose(log_normaliser(sums), terms[-1])
    assert all((values == 0).all() for values in present.values())
    winner = best(tables, nothing, terms, k=3)
    assert (winner.assignment == -1).all()
    assert (winner.pattern[:, 0] == 5).all()
    complete = set_tables(TTBAR, allowed, complete_only=True)
    sums, present = marginals(complete, nothing)
    assert np.isneginf(log_normaliser(sums)).all()
    assert (present["t"] == 0).all()


def test_a_pattern_may_be_excluded_by_its_term():
    tables = set_tables(TTBAR, jets(TTBAR, 6))
    scores, terms = drawn(tables)
    terms[:5] = -np.inf
    sums, present = marginals(tables, scores, terms)
    np.testing.assert_allclose(log_normaliser(sums), terms[5])
    assert present["W"].max() == 0


def test_ties_give_the_same_answer_every_time():
    tables = set_tables(TTBAR, jets(TTBAR, 7))
    one, many = (best(tables, zero(tables, n), patterns=[0]).assignment[:, 0] for n in (1, 200))
    assert (many == one[0]).all()
    listed = best(tables, zero(tables), k=50, patterns=[0]).assignment[0]
    assert len({tuple(row) for row in listed.tolist()}) == 50


def test_the_hypothesis_of_an_assignment():
    tables = set_tables(TTBAR, jets(TTBAR, 7))
    rows = [
        [0, 1, 2, 3, 4, 5],
        [4, 3, 5, 1, 0, 2],  # the same
        [0, 1, 2, 3, -1, 5],  # a top; the second b alone is no particle
        [3, -1, 5, 1, 0, 2],  # the same
        [0, 1, 2, 3, 4, 2],  # an object twice
        [0, 1, 2, 3, 4, 9],  # no such object
        [-1, 1, 2, 3, -1, 5],
    ]
    found = hypotheses(tables, np.array(rows))
    assert found.pattern.tolist() == [0, 0, 2, 2, -1, -1, 5]
    scores, terms = drawn(tables, events=7)
    scores = {name: np.repeat(values[:, :1], 7, axis=1) for name, values in scores.items()}
    value = log_scores(tables, scores, found, np.repeat(terms[:, :1], 7, axis=1))
    assert value[0] == pytest.approx(value[1])
    assert value[2] == pytest.approx(value[3])
    assert np.isneginf(value[4:6]).all()
    assert value[6] == terms[5, 0]
    chances = set_sums.probabilities(tables, marginals(tables, scores)[1], found)
    np.testing.assert_array_equal(np.isnan(chances[2]), [False, False, True, True])


def test_no_events_give_empty_answers():
    tables = set_tables(TTBAR, jets(TTBAR, 7))
    sums, present = marginals(tables, zero(tables, 0))
    assert sums.shape == (6, 0)
    assert present["t"].shape == (105, 0)
    assert best(tables, zero(tables, 0), k=3).assignment.shape == (0, 3, 6)


def test_too_many_sums_say_what_to_do():
    with pytest.raises(ModelError, match=r"tttt_allhad with 18 objects needs \d+ sums .* keep fewer objects"):
        set_tables(TTTT, jets(TTTT, 18))
