"""Several topologies in one network: one normaliser over the hypotheses of all of them."""

import numpy as np
import pytest

from pairton.decoding import Question, decode
from pairton.decoding.exact import sums_of
from pairton.decoding.patterns import allowed_nodes, plan_of
from pairton.decoding.set_sums import log_normaliser, log_scores
from pairton.decoding.set_tables import hypotheses, set_tables
from pairton.errors import ConfigError, TopologyError
from pairton.events import Events, Status
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.events.objects import make_jets
from pairton.reconstruction.result_columns import pattern_columns, topology_columns
from pairton.topology import Topology, load_topology, parse_topology
from pairton.topology.assignments import canonical
from pairton.topology.vocabulary import mixture, parts_of, same_alternative

TTBAR, TTH = load_topology("ttbar_allhad"), load_topology("tth_allhad")
BOTH = mixture([TTBAR, TTH])
ONE_OR_TWO = mixture([
    Topology("one", ("H",), (("H", ("b", "b")),)),
    Topology("two", ("H", "H"), (("H", ("b", "b")),)),
])  # fmt: skip


def outputs_of(topology, n_jets, events=3, seed=0):
    """Random logits; pairs are symmetric, as those of a network."""
    rng = np.random.default_rng(seed)
    edges = rng.normal(size=(events, len(topology.types), n_jets, n_jets))
    triplets = rng.normal(size=(events, 1, n_jets, n_jets, n_jets))
    terms = rng.normal(size=(events, len(plan_of(topology).patterns)))
    made = {"edges": edges + edges.transpose(0, 1, 3, 2), "patterns": terms}
    if topology is BOTH:
        made["triplets"] = triplets + triplets.transpose(0, 1, 3, 2, 4)
    return {name: array.astype(np.float32) for name, array in made.items()}


def alone(part, number, outputs):
    """The outputs of a network of one topology that says the same of its particles and patterns."""
    types = [BOTH.type_index(name) for name in part.topology.types]
    patterns = [k for k, pattern in enumerate(plan_of(BOTH).patterns) if pattern.part == number]
    return {**outputs, "edges": outputs["edges"][:, types], "patterns": outputs["patterns"][:, patterns]}


@pytest.mark.parametrize("n_jets", [6, 8])  # six jets cannot hold ttH
@pytest.mark.parametrize("answer", ["event", "particles"])
def test_a_mixture_joins_the_sums_of_its_topologies(n_jets, answer):
    """P(topology) is its share of the normaliser; the rest is as in a network of that topology alone."""
    outputs = outputs_of(BOTH, n_jets)
    mixed = sums_of(BOTH, (n_jets,), outputs)
    separate = [
        sums_of(part.topology, (n_jets,), alone(part, k, outputs), question=Question(answer))
        for k, part in enumerate(parts_of(BOTH))
    ]
    total = np.logaddexp(*(sums.log_normaliser for sums in separate))
    np.testing.assert_allclose(mixed.log_normaliser, total, rtol=1e-6)
    shares = np.stack([np.exp(sums.log_normaliser - total) for sums in separate], axis=1)
    np.testing.assert_allclose(mixed.topology_probability, shares, rtol=1e-5)
    for name, present in mixed.present.items():  # a candidate may be there in either topology
        parts = [share * sums.present.get(name, 0) for share, sums in zip(shares.T, separate, strict=True)]
        np.testing.assert_allclose(present, sum(parts), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("answer", ["event", "particles"])
def test_without_a_choice_the_answer_is_in_the_most_probable_topology(answer):
    outputs = outputs_of(BOTH, 8, events=40, seed=1)
    outputs["patterns"][:, :6] += 3  # ttH has more hypotheses
    found = sums_of(BOTH, (8,), outputs, question=Question(answer))
    chosen = found.topology_probability.argmax(axis=1)
    assert 5 < chosen.sum() < 35  # both occur
    for number, part in enumerate(parts_of(BOTH)):
        mine, own = chosen == number, found.answer().assignment[:, 0, part.slots]
        assert (own[mine] >= 0).all()
        rest = [slot.index for slot in BOTH.slots if slot.index not in part.slots]
        assert (found.answer().assignment[mine][:, 0, rest] == -1).all()
        if answer == "event":  # as in a network of that topology alone
            separate = sums_of(part.topology, (8,), alone(part, number, outputs)).answer()
            np.testing.assert_array_equal(own[mine], separate.assignment[mine, 0])
            np.testing.assert_allclose(found.answer().score[mine], separate.score[mine], rtol=1e-6)


def test_worked_by_hand():
    """Four jets, equal scores: 6 + 1 hypotheses of one H, 3 + 6 + 1 of two."""
    outputs = {"edges": np.zeros((1, 1, 4, 4), np.float32), "patterns": np.zeros((1, 5), np.float32)}
    assert [pattern.name for pattern in plan_of(ONE_OR_TWO).patterns] == [
        "one: H", "one: nothing", "two: H + H", "two: H", "two: nothing",
    ]  # fmt: skip
    sums = sums_of(ONE_OR_TWO, (4,), outputs)
    np.testing.assert_allclose(sums.topology_probability, [[7 / 17, 10 / 17]], rtol=1e-12)
    np.testing.assert_allclose(sums.present["H"][:, 0], (6 + 6 + 6) / 17 / 6, rtol=1e-12)
    for prior, expected in (
        ({"two": 0}, [1, 0]),
        ({"one": 10 / 7}, [0.5, 0.5]),
        ({"incomplete": 0}, [6 / 9, 3 / 9]),
        ({"two_H_H": 0}, [7 / 14, 7 / 14]),
    ):
        changed = sums_of(ONE_OR_TWO, (4,), outputs, question=Question(prior=prior))
        np.testing.assert_allclose(changed.topology_probability, [expected], rtol=1e-12)
    with pytest.raises(ConfigError, match=r"no pattern 'three' of one_or_two: choose from one, two, one_H"):
        sums_of(ONE_OR_TWO, (4,), outputs, question=Question(prior={"three": 1}))


def test_the_truth_says_which_topology_an_event_is_of():
    """The same two tops are a complete ttbar event or a ttH event without its H."""
    tables = set_tables(BOTH, allowed_nodes(BOTH, 8))
    truth = np.array([[0, 1, 2, 3, 4, 5, -1, -1]] * 2 + [[0, 1, 2, 3, 4, 5, 6, 7]] * 2)
    found = hypotheses(tables, truth, np.array([0, 1, 1, 0]))
    names = [tables.patterns[k].name if k >= 0 else None for k in found.pattern]
    assert names == ["ttbar_allhad: t + t", "tth_allhad: t + t", "tth_allhad: t + t + H", None]
    sums = sums_of(BOTH, (8,), outputs_of(BOTH, 8, events=4))
    scores = log_scores(tables, sums.scores, found, sums.terms)
    assert np.isneginf(scores[3])
    assert (scores[:3] < log_normaliser(sums.log_sums)[:3]).all()


def test_answers_as_columns():
    outputs = outputs_of(BOTH, 8, events=6, seed=2)
    nodes = Nodes.full({"jet": np.zeros((6, 8, 5), dtype=np.float32)})
    mixed = decode(lambda nodes, tokens: outputs, BOTH, nodes)
    columns = topology_columns(BOTH, mixed) | pattern_columns(BOTH, mixed)
    assert list(columns)[:4] == [
        "topology_ttbar_allhad", "topology_tth_allhad", "complete_probability", "event_probability_if_complete",
    ]  # fmt: skip
    total = sum(columns[f"topology_{tree.name}"] for tree in BOTH.trees)
    np.testing.assert_allclose(total, 1, rtol=1e-6)
    of_ttbar = [values for name, values in columns.items() if name.startswith("pattern_ttbar_allhad_")]
    np.testing.assert_allclose(sum(of_ttbar), columns["topology_ttbar_allhad"], rtol=1e-5)
    both = columns["pattern_ttbar_allhad_t_t"] + columns["pattern_tth_allhad_t_t_H"]
    np.testing.assert_allclose(columns["complete_probability"], both, rtol=1e-5)
    np.testing.assert_allclose(columns["event_probability_if_complete"], mixed.event_probability / both, rtol=1e-5)


def test_trees():
    assert BOTH.event == ("t", "t", "H")
    assert BOTH.types == ("W", "H", "t")
    assert parse_topology(BOTH.to_dict()) == BOTH
    assert parse_topology({**BOTH.to_dict(), "alternatives": {"a": ["t", "t"], "b": ["t", "t", "H"]}}).trees[
        1
    ] == (parse_topology({**TTH.to_dict(), "name": "b", "selection": BOTH.selection.to_dict()}))
    assert same_alternative(BOTH, TTH) == TTH
    assert same_alternative(BOTH, BOTH) is None
    assert same_alternative(TTBAR, TTBAR) == TTBAR
    flipped = mixture([TTH, TTBAR])
    assert [tree.name for tree in flipped.trees] == ["tth_allhad", "ttbar_allhad"]
    assert parts_of(ONE_OR_TWO)[0].slots == (0, 1)
    truth = np.array([[-1, -1, 0, 1]])  # an only H stands in the first place
    assert canonical(ONE_OR_TWO, truth).tolist() == [[0, 1, -1, -1]]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: mixture([TTBAR, TTBAR]), "need different names of letters, digits and _"),
        (
            lambda: parse_topology(
                {**BOTH.to_dict(), "alternatives": {"a": ["t", "t"], "b": ["H"], "c": ["t"] * 3}}
            ),
            r"need \[t, t, t, H\]: list each particle as often as the alternative that has the most of it",
        ),
        (lambda: parse_topology({**BOTH.to_dict(), "alternatives": [1]}), r"alternatives\[0\] is 1, but must be"),
    ],
)
def test_what_does_not_go_together(make, said):
    with pytest.raises(TopologyError, match=said):
        make()


def test_an_event_that_can_be_complete_in_one_topology_is_not_incomplete():
    counts = (8, 7, 6, 5)
    columns = {"pt": 50.0, "eta": 0.1, "phi": 0.2, "mass": 5.0}
    jets = make_jets(**{name: [[value] * n for n in counts] for name, value in columns.items()})
    needs = Question().needs(BOTH)
    found = accept(Events(jets, BOTH), Domain(), Inputs((("jet", ()),)), needs=needs)
    assert found.status.tolist() == [Status.OK, Status.OK, Status.OK, Status.INCOMPLETE]
