"""The reverse process against slow transcriptions: the paper, and sums over all orders and assignments."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chains import slow_chain
from enumeration import contains, enumerate_assignments, log_normaliser, scores
from lookup_network import LookupNetwork, drawn_nodes
from pairton.decoding import DECODINGS, HYPER, decode
from pairton.decoding.decodings import LISTED
from pairton.decoding.graph import visible_tokens
from pairton.errors import ConfigError
from pairton.events.nodes import Nodes
from pairton.topology import Stage, load_topology, parse_topology
from pairton.topology.assignments import canonical

OF_PAIRS = [name for name, one in DECODINGS.items() if one.reads == "edges" and name != HYPER]  # for any tree

TTBAR, HH4B, TTH, TTTT = (load_topology(name) for name in ("ttbar_allhad", "hh4b", "tth_allhad", "tttt_allhad"))
TTW = parse_topology({"name": "ttW", "event": ["t", "t", "W"], "particles": {"t": ["b", "W"], "W": ["q", "q"]}})
DEEP = parse_topology({"name": "deep", "event": ["H", "j"], "particles": {"H": ["W", "W"], "W": ["q", "q"]}})
THREE = parse_topology({"name": "three", "event": ["g", "g"], "particles": {"g": ["q", "q", "q"]}})
MIXED = parse_topology(
    {"name": "mixed", "event": ["X", "Z"], "particles": {"X": ["Z", "b", "b", "b"], "Z": ["q", "q"]}}
)
FOUR_STEP = replace(TTBAR, name="four", given_stages=(Stage(("W",)), Stage(("W",)), Stage(("t",)), Stage(("t",))))
PAIRS = replace(HH4B, name="pairs", given_stages=(Stage(("H", "H")),))
TOP = {"t": ["W", "b"], "W": ["q", "q"]}
LEPTON = {"objects": {"l": "lepton"}, "context": ["met"]}
SEMI = parse_topology({"name": "semi", "event": ["t", "tl"], "particles": {**TOP, "tl": ["b", "l"]}, **LEPTON})
FIRST = parse_topology({"name": "first", "event": ["tl", "t"], "particles": {**TOP, "tl": ["l", "b"]}, **LEPTON})
TWO = parse_topology({"name": "two", "event": ["tl", "tl"], "particles": {"tl": ["b", "l"]}, **LEPTON})
ZH = parse_topology({"name": "zh", "event": ["H", "Z"], "particles": {"H": ["b", "b"], "Z": ["l", "l"]}, **LEPTON})
SINGLE = parse_topology({"name": "single", "event": ["t", "l"], "particles": TOP, **LEPTON})
OF_JETS = [TTBAR, HH4B, TTH, TTTT, TTW, DEEP, THREE, MIXED, FOUR_STEP, PAIRS]
EVERYTHING = [*OF_JETS, SEMI, FIRST, TWO, ZH, SINGLE]


@pytest.fixture(params=EVERYTHING, ids=lambda topology: topology.name)
def topology(request):
    return request.param


def layout_of(topology, jets=1, leptons=1):
    more = {"jet": jets, "lepton": leptons, "met": 1}
    return tuple(n + more[kind] for kind, n in zip(topology.kinds, topology.slots_per_kind, strict=True))


def batch(n_jets, events=5, padding=0, seed=3):
    """Jets of random identities, some events with fewer of them."""
    rng = np.random.default_rng(seed)
    jets = np.zeros((events, n_jets, 5), dtype=np.float32)
    jets[:, :, 0] = np.stack([rng.permutation(24)[:n_jets] for _ in range(events)])
    mask = np.arange(n_jets) < n_jets - rng.integers(0, padding + 1, size=events)[:, None]
    return jet_nodes(jets, mask)


def jet_nodes(jets, mask):
    return Nodes({"jet": jets}, {"jet": mask})


# -- the paper ---------------------------------------------------------------------------------------------


def choose_w(s, jets, taken=()):
    """Algorithm 1, with the gains of all candidates."""
    gain = {}
    for i in jets:
        for j in jets:
            if i < j and i not in taken and j not in taken:
                gain[i, j] = s[i, j] - s[i, i] - s[j, j]
    return max(gain, key=gain.__getitem__), gain


def choose_b(s, jets, first, second):
    """Algorithm 2."""
    gain = {}
    for k in jets:
        for m in jets:
            if k != m and not {k, m} & {*first, *second}:
                g1 = s[k, first[0]] + s[k, first[1]] - s[k, k]
                g2 = s[m, second[0]] + s[m, second[1]] - s[m, m]
                gain[k, m] = g1 + g2
    return max(gain, key=gain.__getitem__), gain


def share(choice, gain):
    return np.exp(gain[choice] - np.logaddexp.reduce(list(gain.values())))


def algorithm_3(network, nodes, refresh=True):
    """One event: jets of t1 and t2 as q, q, b, and the probability of each step."""
    real = np.flatnonzero(nodes.mask[0])
    place = {p.name: p.index for p in TTBAR.particles}

    def logits(assignment, names):
        revealed = np.zeros((1, 4), dtype=bool)
        revealed[0, [place[name] for name in names]] = True
        tokens = visible_tokens(TTBAR, np.array([assignment]), revealed, nodes.mask)
        return network(nodes, tokens)["edges"][0].astype(float)

    first_pass = logits([-1] * 6, [])
    first, gain_1 = choose_w(first_pass[0], real)
    state = [*first, -1, -1, -1, -1]
    second, gain_2 = choose_w((logits(state, ["t1.W"]) if refresh else first_pass)[0], real, first)
    state = [*first, -1, *second, -1]
    answer, gain_3 = choose_b((logits(state, ["t1.W", "t2.W"]) if refresh else first_pass)[1], real, first, second)
    steps = share(first, gain_1), share(second, gain_2), share(answer, gain_3)
    return [*first, answer[0], *second, answer[1]], steps


@pytest.mark.parametrize("decoding", ["steps", "one_shot"])
def test_three_steps_are_the_papers_algorithms(decoding):
    network = LookupNetwork(TTBAR, potentials=False)
    for n_jets in (6, 7, 10):
        nodes = batch(n_jets, events=40, padding=min(2, n_jets - 6))
        answer = decode(network, TTBAR, nodes, decoding=decoding)
        for k in range(len(nodes)):
            wanted, steps = algorithm_3(network, nodes[k : k + 1], refresh=decoding == "steps")
            same = canonical(TTBAR, np.array([wanted]))[0]
            np.testing.assert_array_equal(answer.assignment[k], same)
            np.testing.assert_allclose(answer.event_probability[k], np.prod(steps), rtol=1e-5)
            # particles t1, t1.W, t2, t2.W in canonical order
            by_jets = {tuple(wanted[:2]): steps[0], tuple(wanted[3:5]): steps[1]}
            for w, t in ((1, 0), (3, 2)):
                mine = tuple(answer.assignment[k, list(TTBAR.particles[w].slots)])
                np.testing.assert_allclose(answer.particle_probability[k, w], by_jets[mine], rtol=1e-5)
                np.testing.assert_allclose(answer.particle_probability[k, t], by_jets[mine] * steps[2], rtol=1e-5)
        assert not answer.exact.any()


def test_the_network_is_asked_once_a_stage():
    for decoding, calls in (("steps", 3), ("one_shot", 1), ("exact", 1)):
        network = LookupNetwork(TTBAR, potentials=False)
        decode(network, TTBAR, batch(7), decoding=decoding)
        assert network.calls == calls


# -- any topology ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoding", OF_PAIRS)
def test_slots_are_filled_by_their_kind_and_padding_is_as_if_removed(topology, decoding):
    layout, predict = layout_of(topology, jets=2, leptons=2), LookupNetwork(topology)
    nodes = drawn_nodes(topology, layout, events=6)
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


def test_too_few_jets_have_no_answer_and_do_not_disturb_the_others():
    nodes = batch(8, events=4)
    whole = decode(LookupNetwork(TTBAR, potentials=False), TTBAR, nodes, decoding="steps")
    jets, mask = nodes.values["jet"], nodes.mask.copy()
    mask[1, 5:] = False
    nodes = jet_nodes(jets, mask)
    answer = decode(LookupNetwork(TTBAR, potentials=False), TTBAR, nodes, decoding="steps")
    assert (answer.assignment[1] == -1).all()
    assert np.isnan(answer.event_probability[1])
    assert np.isnan(answer.particle_probability[1]).all()
    assert (answer.assignment >= 0).all(axis=1).tolist() == [True, False, True, True]
    np.testing.assert_array_equal(answer.assignment[[0, 2, 3]], whole.assignment[[0, 2, 3]])
    network = LookupNetwork(TTBAR, potentials=False)
    for decoding in OF_PAIRS:
        nothing = decode(network, TTBAR, jet_nodes(jets[:, :5], mask[:, :5]), decoding=decoding)
        assert (nothing.assignment == -1).all()
        assert decode(network, TTBAR, nodes[:0], decoding=decoding).assignment.shape == (0, 6)
    assert network.calls == 1  # by exact alone: its outputs tell whether the network knows missing particles


@settings(max_examples=25, deadline=None)
@given(
    # own jets of different names but one particle, as in MIXED, tie: edges do not tell them apart
    st.sampled_from([topology for topology in OF_JETS if topology is not MIXED]),
    st.sampled_from(["steps", "one_shot", "exact", "beam", "one_by_one"]),
    st.integers(0, 2**16),
)
def test_permuting_the_jets_permutes_the_answer(topology, decoding, seed):
    network = LookupNetwork(topology, seed=seed)
    nodes = batch(len(topology.slots) + 2, events=4, padding=1, seed=seed)
    order = np.random.default_rng(seed).permutation(nodes.mask.shape[1])  # padding moves in between
    answer = decode(network, topology, nodes, decoding=decoding)
    moved = decode(
        network, topology, jet_nodes(nodes.values["jet"][:, order], nodes.mask[:, order]), decoding=decoding
    )
    np.testing.assert_array_equal(canonical(topology, order[moved.assignment]), answer.assignment)
    np.testing.assert_allclose(moved.event_probability, answer.event_probability, rtol=1e-4)
    np.testing.assert_allclose(
        np.sort(moved.particle_probability), np.sort(answer.particle_probability), rtol=1e-4
    )


def test_a_top_chooses_its_w_where_one_comes_from_elsewhere():
    """Jets 0 1 and 3 4 and 6 7 are W; 2 goes with 6 7, 5 with 0 1: the W of 3 4 is the one alone."""
    edges = np.full((1, 2, 8, 8), -9.0, dtype=np.float32)
    for i, j in ((0, 1), (3, 4), (6, 7)):
        edges[0, TTW.type_index("W"), [i, j], [j, i]] = 9
    for b, pair in ((2, (6, 7)), (5, (0, 1))):
        for i in pair:
            edges[0, TTW.type_index("t"), [b, i], [i, b]] = 9
    event = Nodes.full({"jet": np.zeros((1, 8, 5), dtype=np.float32)})
    for decoding in ("steps", "one_shot", "beam", "exact", "one_by_one"):
        answer = decode(
            lambda nodes, _: {"edges": edges.repeat(len(nodes), axis=0)}, TTW, event, decoding=decoding
        )
        assert dict(zip([s.name for s in TTW.slots], answer.assignment[0].tolist(), strict=True)) == {
            "t1.b": 2, "t1.W.q1": 6, "t1.W.q2": 7, "t2.b": 5, "t2.W.q1": 0, "t2.W.q2": 1, "W.q1": 3, "W.q2": 4,
        }  # fmt: skip


def test_the_most_confident_of_w_and_h_is_revealed_first():
    nodes = batch(9, events=40)
    answer = decode(LookupNetwork(TTH, potentials=False), TTH, nodes, decoding="steps", record=True)
    first = answer.steps[0]
    assert first.stage == Stage(("W", "H"), any=True)
    chosen = [TTH.types[k] for k in first.types[:, 0, 0]]
    assert set(chosen) == {"W", "H"}  # events diverge
    s = answer.steps[0].edges.astype(float)
    for k, name in enumerate(chosen):
        gain = {}
        for kind in ("W", "H"):
            layer = TTH.type_index(kind)
            for i, j in itertools.combinations(range(9), 2):
                gain[kind, i, j] = s[k, layer, i, j] - s[k, layer, i, i] - s[k, layer, j, j]
        best = max(gain, key=gain.__getitem__)
        assert best == (name, *first.nodes[k, 0, 0].tolist())
        assert first.possible[k] == len(gain)


def test_any_topology_is_decoded_as_by_loops_over_every_choice(topology):
    nodes, network = drawn_nodes(topology, layout_of(topology), events=4), LookupNetwork(topology)
    heat = [1 + 0.3 * k for k in range(len(topology.stages))]
    answer = decode(network, topology, nodes, decoding="one_shot", temperatures=heat)
    outputs = network(nodes, np.full((4, len(topology.types), *[nodes.mask.shape[1]] * 2), 2))
    for k in range(4):
        one = {name: array[k] for name, array in outputs.items()}
        found, chance = slow_chain(topology, one, nodes.mask[k], heat, nodes.layout)
        np.testing.assert_allclose(answer.event_probability[k], chance, rtol=1e-5)
        for particle in topology.particles:
            inside = tuple(answer.assignment[k, list(particle.slots)].tolist())
            np.testing.assert_allclose(
                answer.particle_probability[k, particle.index], found[particle.type][inside], rtol=1e-5
            )


# -- probabilities -----------------------------------------------------------------------------------------


def test_beam_of_one_is_greedy():
    nodes = batch(9, events=20, padding=1)
    greedy = decode(LookupNetwork(TTH, potentials=False), TTH, nodes, decoding="steps")
    beam = decode(LookupNetwork(TTH, potentials=False), TTH, nodes, decoding="beam:1")
    np.testing.assert_array_equal(greedy.assignment, beam.assignment)
    np.testing.assert_array_equal(greedy.event_probability, beam.event_probability)
    np.testing.assert_array_equal(greedy.particle_probability, beam.particle_probability)


def all_chains(network, topology, nodes, temperature=1.0):
    """{assignment: probability} of one hh4b-like event: both orders of the two pairs, by loops."""
    n = int(nodes.mask.sum())
    total = {}

    def softmax(s, free):
        gain = {(i, j): (s[i, j] - s[i, i] - s[j, j]) / temperature for i, j in itertools.combinations(free, 2)}
        norm = np.logaddexp.reduce(list(gain.values()))
        return {pair: np.exp(value - norm) for pair, value in gain.items()}

    def logits(assignment, revealed):
        tokens = visible_tokens(topology, np.array([assignment]), np.array([revealed]), nodes.mask)
        return network(nodes, tokens)["edges"][0, 0].astype(float)

    for one, p in softmax(logits([-1] * 4, [False, False]), range(n)).items():
        rest = [k for k in range(n) if k not in one]
        for two, q in softmax(logits([*one, -1, -1], [True, False]), rest).items():
            key = tuple(sorted([one, two]))
            total[key] = total.get(key, 0) + p * q
    return total


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_a_wide_beam_sums_over_all_orders(temperature):
    network = LookupNetwork(HH4B, False, sharpness=0.7)
    nodes = batch(6, events=10, padding=2)
    answer = decode(network, HH4B, nodes, decoding="beam:1000", temperatures=[temperature, temperature])
    for k in range(10):
        total = all_chains(network, HH4B, nodes[k : k + 1], temperature)
        np.testing.assert_allclose(sum(total.values()), 1)
        best = max(total, key=total.__getitem__)
        assert tuple(answer.assignment[k].tolist()) == (*best[0], *best[1])
        np.testing.assert_allclose(answer.event_probability[k], total[best], rtol=1e-5)
        for particle, pair in enumerate(best):
            wanted = sum(value for pairs, value in total.items() if pair in pairs)
            np.testing.assert_allclose(answer.particle_probability[k, particle], wanted, rtol=1e-5)


def test_a_wider_beam_finds_at_least_as_much():
    network = LookupNetwork(TTBAR, False, sharpness=0.5)
    nodes = batch(8, events=50)
    found = [decode(network, TTBAR, nodes, decoding=f"beam:{k}").event_probability for k in (1, 4, 64, 4000)]
    assert (found[3] >= found[0] - 1e-9).all()
    assert np.mean(found[2]) > np.mean(found[1]) > np.mean(found[0])


@pytest.mark.parametrize("topology", [t for t in EVERYTHING if len(t.slots) <= 6], ids=lambda t: t.name)
def test_exact_equals_the_list_of_all_assignments(topology):
    """With leptons and missing energy, and in layouts with more of each kind than slots."""
    for more in ((0, 0), (2, 1)):
        layout = layout_of(topology, *more)
        enumeration = enumerate_assignments(topology, layout)
        nodes, predict = drawn_nodes(topology, layout, events=6, padding=False), LookupNetwork(topology)
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


def test_record_shows_what_was_seen_and_chosen():
    nodes = batch(8, events=4, padding=1)
    answer = decode(LookupNetwork(TTBAR, potentials=False), TTBAR, nodes, decoding="steps", record=True)
    assert len(answer.steps) == 3
    product = np.ones(4)
    for step in answer.steps:
        listed = (step.nodes >= 0).any(axis=(2, 3)).sum(axis=1)
        np.testing.assert_array_equal(listed, np.minimum(step.possible, LISTED))
        assert (step.probability.sum(axis=1) <= 1 + 1e-9).all()
        product *= step.probability[:, 0]
        impossible = (step.nodes == -1).all(axis=(2, 3))
        assert (step.probability[impossible] == 0).all()
    np.testing.assert_allclose(product, answer.event_probability)
    np.testing.assert_array_equal(canonical(TTBAR, answer.steps[-1].assignment), answer.assignment)
    assert (answer.steps[0].tokens == 2).all()
    assert answer.steps[0].revealed.sum(axis=1).tolist() == [1] * 4


def test_too_few_of_one_kind_have_no_answer():
    nodes = drawn_nodes(SEMI, (6, 1, 1), events=3, padding=False)
    nodes.masks["lepton"][1] = False  # the jets would do
    for decoding in OF_PAIRS:
        answer = decode(LookupNetwork(SEMI), SEMI, nodes, decoding=decoding)
        assert (answer.assignment >= 0).all(axis=1).tolist() == [True, False, True]
        assert np.isnan(answer.event_probability).tolist() == [False, True, False]


def test_what_stands_in_the_padding_does_not_matter_and_a_later_call_does():
    topology = load_topology("ttbar_allhad")
    layout = (8,)
    nodes, tables = drawn_nodes(topology, layout, events=6), LookupNetwork(topology)
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


def test_mistakes_are_named():
    event = batch(7)
    network = LookupNetwork(TTBAR, potentials=False)
    for options, message in (
        ({"decoding": "step"}, "no decoding 'step'.*did you mean 'steps'"),
        ({"decoding": "beam:0"}, "1 or more"),
        ({"decoding": "steps:4"}, "no decoding 'steps:4'"),
        (
            {"decoding": "steps", "temperatures": [1.0]},
            r"temperatures are \[1.0\].*one per stage \(W, W, t \+ t\)",
        ),
        ({"decoding": "exact", "temperatures": [0.0]}, "from 0.001 to 1000"),
        ({"decoding": "exact", "temperatures": [1e-30]}, "from 0.001 to 1000"),
        ({"decoding": "steps", "temperatures": [1.0, float("nan")]}, "from 0.001 to 1000"),
        ({"decoding": "beam:3", "record": True}, "no single chain"),
    ):
        with pytest.raises(ConfigError, match=message):
            decode(network, TTBAR, event, **options)
