"""Decoding of several kinds of objects, against itertools; a network without numbers costs its event alone."""

import itertools

import numpy as np
import pytest

from enumeration import contains, enumerate_assignments, log_normaliser, scores
from pairton.decoding import DECODINGS, HYPER, decode
from pairton.decoding.graph import adjacency, visible_tokens
from pairton.decoding.terms import triplet_types
from pairton.events.nodes import Nodes
from pairton.topology import load_topology, parse_topology
from pairton.topology.assignments import canonical

OF_PAIRS = [name for name, one in DECODINGS.items() if one.reads == "edges" and name != HYPER]  # for any tree

TOP = {"t": ["W", "b"], "W": ["q", "q"]}
LEPTON = {"objects": {"l": "lepton"}, "context": ["met"]}
SEMI = parse_topology({"name": "semi", "event": ["t", "tl"], "particles": {**TOP, "tl": ["b", "l"]}, **LEPTON})
FIRST = parse_topology({"name": "first", "event": ["tl", "t"], "particles": {**TOP, "tl": ["l", "b"]}, **LEPTON})
TWO = parse_topology({"name": "two", "event": ["tl", "tl"], "particles": {"tl": ["b", "l"]}, **LEPTON})
ZH = parse_topology({"name": "zh", "event": ["H", "Z"], "particles": {"H": ["b", "b"], "Z": ["l", "l"]}, **LEPTON})
SINGLE = parse_topology({"name": "single", "event": ["t", "l"], "particles": TOP, **LEPTON})
EVERYTHING = [SEMI, FIRST, TWO, ZH, SINGLE]
JETS, LEPTONS = 0, 16  # first identity of each kind


@pytest.fixture(params=EVERYTHING, ids=lambda topology: topology.name)
def topology(request):
    return request.param


class Tables:
    """Logits looked up by the identities of objects, their first column, and by the tokens."""

    def __init__(self, topology, seed=0):
        rng = np.random.default_rng(seed)
        edges = rng.normal(scale=2, size=(len(topology.types), 3, 25, 25))
        edges[..., 16:, 16:] += 50 * (1 - np.eye(9))  # as if two leptons, and any object with missing energy,
        edges[..., 24, :24] += 50  # belonged together
        self.edges = (edges + edges.swapaxes(2, 3)).astype(np.float32)
        triplets = rng.normal(size=(len(triplet_types(topology)), 25, 25, 25))
        self.triplets = (triplets + triplets.swapaxes(1, 2)).astype(np.float32)

    def __call__(self, nodes, tokens):
        who = np.concatenate([values[..., 0] for values in nodes.values.values()], axis=1).astype(int)
        types = np.arange(len(self.edges))[None, :, None, None]
        outputs = {"edges": self.edges[types, tokens.astype(int), who[:, None, :, None], who[:, None, None, :]]}
        if len(self.triplets):
            kinds = np.arange(len(self.triplets))[None, :, None, None, None]
            axes = (who.reshape(len(who), 1, *shape) for shape in ((-1, 1, 1), (1, -1, 1), (1, 1, -1)))
            outputs["triplets"] = self.triplets[kinds, *axes]
        return outputs


def batch(topology, layout, events=12, seed=1, padding=True):
    """Objects of random identities; some are missing, anywhere, but never too many."""
    rng = np.random.default_rng(seed)
    first = {"jet": JETS, "lepton": LEPTONS, "met": 24}
    size = {"jet": 16, "lepton": 8, "met": 1}
    values, masks = {}, {}
    for kind, count, slots in zip(topology.kinds, layout, topology.slots_per_kind, strict=True):
        values[kind] = np.zeros((events, count, 4), dtype=np.float32)
        values[kind][..., 0] = [first[kind] + rng.permutation(size[kind])[:count] for _ in range(events)]
        missing = rng.integers(0, count - slots + 1, events) if padding else np.zeros(events)
        masks[kind] = rng.random((events, count)).argsort(axis=1) >= missing[:, None]
    return Nodes(values, masks)


def layout_of(topology, jets=1, leptons=1):
    needed = dict(zip(topology.kinds, topology.slots_per_kind, strict=True))
    return topology.layout({"jet": needed["jet"] + jets, "lepton": needed["lepton"] + leptons, "met": 1})


def slow_semi(edges, triplets, row):
    """The score of (q, q, b, b, l) written out."""
    q, p, b, c, lepton = row
    w, t, tl = (edges[SEMI.type_index(name)].astype(float) for name in ("W", "t", "tl"))
    total = w[q, p] - w[q, q] - w[p, p] + t[b, q] + t[b, p] - t[b, b] + triplets[0, q, p, b]
    return total + tl[c, lepton] - tl[c, c] - tl[lepton, lepton]


# -- tokens ------------------------------------------------------------------------------------------------


def drawn(*rows):
    return np.array([[{"0": 0, "1": 1, ".": 2}[c] for c in row] for row in rows], dtype=np.uint8)


def test_matrices_by_hand():
    # jets 0 to 4, lepton 5, missing energy 6; t: 0 1 2(b), tl: 3 5
    truth, mask = np.array([[0, 1, 2, 3, 5]]), np.ones((1, 7), dtype=bool)
    edges, known = adjacency(SEMI, truth, mask)
    assert known.all()
    leptonic = drawn("1000000", "0100000", "0010000", "0000010", "0000100", "0001000", "0000001")
    np.testing.assert_array_equal(edges[0, SEMI.type_index("tl")], leptonic)
    revealed = np.array([[p.name == "tl" for p in SEMI.particles]])
    seen = visible_tokens(SEMI, truth, revealed, mask)[0]
    np.testing.assert_array_equal(seen[SEMI.type_index("tl")], leptonic)  # there is no other tl
    free = "...0.0."  # objects of the tl are in no W and in no t; all else is unknown
    for name in ("W", "t"):
        matrix = drawn(free, free, free, "0001000", free, "0000010", free)
        np.testing.assert_array_equal(seen[SEMI.type_index(name)], matrix)


# -- decoding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoding", OF_PAIRS)
def test_slots_are_filled_by_their_kind_and_padding_is_as_if_removed(topology, decoding):
    layout, predict = layout_of(topology, jets=2, leptons=2), Tables(topology)
    nodes = batch(topology, layout)
    answer = decode(predict, topology, nodes, decoding=decoding)
    rows = answer.assignment
    for slot in topology.slots:
        assert np.isin(rows[:, slot.index], topology.nodes(slot.kind, layout)).all()
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()
    assert np.take_along_axis(nodes.mask, rows, axis=1).all()
    np.testing.assert_array_equal(canonical(topology, rows), rows)
    assert ((answer.event_probability > 0) & (answer.event_probability <= 1 + 1e-6)).all()
    assert (answer.particle_probability >= answer.event_probability[:, None] * (1 - 1e-6)).all()
    assert answer.exact.all() == (decoding == "exact")
    for k in range(len(nodes)):
        alone = Nodes.full({kind: nodes.values[kind][k, mask[k]][None] for kind, mask in nodes.masks.items()})
        same = decode(predict, topology, alone, decoding=decoding)
        np.testing.assert_array_equal(np.flatnonzero(nodes.mask[k])[same.assignment[0]], rows[k])
        np.testing.assert_allclose(same.event_probability[0], answer.event_probability[k], rtol=1e-5)
        np.testing.assert_allclose(same.particle_probability[0], answer.particle_probability[k], rtol=1e-5)


def test_exact_is_the_best_of_all():
    nodes, predict = batch(SEMI, (6, 2, 1), events=4), Tables(SEMI)
    outputs = predict(nodes, np.full((4, 3, 9, 9), 2))
    answer = decode(predict, SEMI, nodes, decoding="exact", temperatures=[1.7])
    for k in range(4):
        there = set(np.flatnonzero(nodes.mask[k]).tolist())
        parts = outputs["edges"][k], outputs["triplets"][k]
        every = enumerate_assignments(SEMI, (6, 2, 1)).assignments.tolist()
        rows = [tuple(row) for row in every if set(row) <= there]
        table = {row: slow_semi(*parts, row) / 1.7 for row in rows}
        best = max(table, key=table.__getitem__)
        assert tuple(answer.assignment[k].tolist()) == best
        norm = np.logaddexp.reduce(list(table.values()))
        np.testing.assert_allclose(answer.event_probability[k], np.exp(table[best] - norm), rtol=1e-4)
        same = np.exp([value - norm for row, value in table.items() if row[3:] == best[3:]]).sum()
        leptonic = next(p.index for p in SEMI.particles if p.name == "tl")
        np.testing.assert_allclose(answer.particle_probability[k, leptonic], same, rtol=1e-4)


def test_exact_equals_the_list_of_all_assignments(topology):
    """With leptons and missing energy, and in layouts with more of each kind than slots."""
    for more in ((0, 0), (2, 1)):
        layout = layout_of(topology, *more)
        enumeration = enumerate_assignments(topology, layout)
        nodes, predict = batch(topology, layout, events=6, padding=False), Tables(topology)
        n = sum(layout)
        outputs = predict(nodes, np.full((6, len(topology.types), n, n), 2))
        values = scores(enumeration, outputs) / np.float32(1.3)
        answer = decode(predict, topology, nodes, decoding="exact", temperatures=[1.3])
        found = enumeration.assignments[values.argmax(axis=1)]
        np.testing.assert_array_equal(answer.assignment, found)
        chance = np.exp(values.max(axis=1) - log_normaliser(values))
        np.testing.assert_allclose(answer.event_probability, chance, rtol=1e-4)
        assert len(enumeration.assignments) == topology.count_assignments(layout)
        every = np.exp(values - log_normaliser(values)[:, None])
        for particle in topology.particles:
            share = (every * contains(enumeration, particle, found)).sum(axis=1)
            np.testing.assert_allclose(answer.particle_probability[:, particle.index], share, rtol=1e-4)
        assert np.isnan(answer.pattern_probability).all()  # the network knows complete events only


def test_the_first_step_takes_the_best_pair_of_the_right_kinds():
    nodes = batch(SEMI, (6, 2, 1), events=20)
    answer = decode(Tables(SEMI), SEMI, nodes, decoding="steps", record=True)
    first = answer.steps[0]
    chosen = set()
    for k in range(20):
        there = np.flatnonzero(nodes.mask[k])
        jets, leptons = there[there < 6], there[(there >= 6) & (there < 8)]
        gain = {}
        for name, pairs in (
            ("W", itertools.combinations(jets, 2)),
            ("tl", itertools.product(jets, leptons)),
        ):
            s = first.edges[k, SEMI.type_index(name)].astype(float)
            gain |= {(name, i, j): s[i, j] - s[i, i] - s[j, j] for i, j in pairs}
        name = SEMI.types[first.types[k, 0, 0]]
        chosen.add(name)
        assert max(gain, key=gain.__getitem__) == (name, *first.nodes[k, 0, 0].tolist())
        assert first.possible[k] == len(gain)
    assert chosen == {"W", "tl"}


def test_too_few_of_one_kind_have_no_answer():
    nodes = batch(SEMI, (6, 1, 1), events=3, padding=False)
    nodes.masks["lepton"][1] = False  # the jets would do
    for decoding in OF_PAIRS:
        answer = decode(Tables(SEMI), SEMI, nodes, decoding=decoding)
        assert (answer.assignment >= 0).all(axis=1).tolist() == [True, False, True]
        assert np.isnan(answer.event_probability).tolist() == [False, True, False]


# -- networks that give no numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("decoding", OF_PAIRS)
def test_an_event_without_numbers_has_no_answer_and_its_neighbours_keep_theirs(decoding, value):
    nodes, tables = batch(SEMI, (6, 2, 1), events=5), Tables(SEMI)
    nodes.masks["jet"][:, :4] = True
    bad = nodes.values["jet"][2, 0, 0]
    nodes.values["jet"][[0, 1, 3, 4], 0, 0] = (bad + 1) % 16  # who is bad is told by its first jet

    def predict(asked, tokens):
        outputs = tables(asked, tokens)
        outputs["edges"][asked.values["jet"][:, 0, 0] == bad, 0, 1, 2] = value
        return outputs

    whole = decode(tables, SEMI, nodes, decoding=decoding)
    answer = decode(predict, SEMI, nodes, decoding=decoding)
    assert (answer.assignment[2] == -1).all()
    assert np.isnan(answer.event_probability[2])
    assert np.isnan(answer.particle_probability[2]).all()
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(answer.assignment[others], whole.assignment[others])
    np.testing.assert_array_equal(answer.event_probability[others], whole.event_probability[others])


def test_what_stands_in_the_padding_does_not_matter_and_a_later_call_does():
    topology = load_topology("ttbar_allhad")
    layout = (8,)
    nodes, tables = batch(topology, layout, events=6), Tables(topology)
    nodes.masks["jet"][:, 0] = False
    nodes.masks["jet"][:, 2:] = True

    def in_padding(asked, tokens):
        outputs = tables(asked, tokens)
        outputs["edges"][:, :, 0] = outputs["triplets"][..., 0] = np.nan
        return outputs

    def later(asked, tokens):
        outputs = tables(asked, tokens)
        outputs["triplets"][(tokens != 2).any(axis=(1, 2, 3))] = np.nan
        return outputs

    for decoding in OF_PAIRS:
        wanted = decode(tables, topology, nodes, decoding=decoding)
        found = decode(in_padding, topology, nodes, decoding=decoding)
        np.testing.assert_array_equal(found.assignment, wanted.assignment)
        answered = (decode(later, topology, nodes, decoding=decoding).assignment >= 0).all(axis=1)
        assert answered.all() != (decoding in ("steps", "one_by_one", "beam"))
        assert answered.any() != (decoding in ("steps", "one_by_one", "beam"))
