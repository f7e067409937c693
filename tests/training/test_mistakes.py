"""Wrong earlier steps: they are wrong, they are the network's own, and all else stays the truth."""

import itertools

import numpy as np
import pytest
import torch

from pairton.decoding.graph import MASKED, adjacency, visible_tokens
from pairton.evaluation.metrics import matches
from pairton.events.nodes import Nodes
from pairton.topology import Stage, load_topology, parse_topology
from pairton.training.losses import batch_loss, make_batch
from pairton.training.mistakes import Mistakes, draw_mistakes, wrong_states
from pairton.training.process import draw_revealed

TTBAR, TTH = load_topology("ttbar_allhad"), load_topology("tth_allhad")
FOUR_STEP = TTBAR.with_stages([Stage(("W",)), Stage(("W",)), Stage(("t",)), Stage(("t",))])


def asked(topology, seed=0):
    """A network of random logits, the same for every event of a batch, which notes what it was shown."""
    seen = []

    def predict(nodes, tokens):
        seen.append(tokens)
        (n_jets,) = nodes.layout
        edges = np.random.default_rng(seed).normal(size=(len(topology.types), n_jets, n_jets)).astype(np.float32)
        return {"edges": np.repeat((edges + edges.swapaxes(1, 2))[None], len(nodes), axis=0)}

    return predict, seen


def empty(events, n_jets):
    return Nodes.full({"jet": np.zeros((events, n_jets, 5), dtype=np.float32)})


def truths(topology, n_jets, events, seed=0):
    order = np.argsort(np.random.default_rng(seed).random((events, n_jets)), axis=1)
    return order[:, : len(topology.slots)]


def states(topology, events=400, share=1.0, extra=1, seed=0):
    n_jets = len(topology.slots) + extra
    truth, rng = truths(topology, n_jets, events), np.random.default_rng(seed)
    revealed = draw_revealed(topology, truth, rng)
    mistakes = draw_mistakes(topology, truth, revealed, share, rng)
    predict, seen = asked(topology)
    shown, known = wrong_states(predict, topology, empty(events, n_jets), truth, revealed, mistakes)
    return truth, revealed, mistakes, shown, known, seen


@pytest.mark.parametrize("topology", [TTBAR, TTH, FOUR_STEP], ids=["ttbar", "tth", "four-step"])
def test_as_much_is_shown_but_something_is_wrong(topology):
    truth, revealed, mistakes, shown, known, _ = states(topology)
    some = mistakes.first >= 0
    np.testing.assert_array_equal(some, revealed.any(axis=1))
    np.testing.assert_array_equal(known.sum(axis=1), revealed.sum(axis=1))
    right = matches(topology, shown, truth) & known
    wrong = known & ~right
    np.testing.assert_array_equal(wrong.any(axis=1), some)
    np.testing.assert_array_equal(shown[~some], truth[~some])
    for row in np.flatnonzero(some):
        visible = [slot for p in topology.particles if known[row, p.index] for slot in p.slots]
        jets = shown[row, sorted(set(visible))]
        assert len(set(jets.tolist())) == len(jets)
        assert jets.min() >= 0
        assert (shown[row, [k for k in range(len(topology.slots)) if k not in visible]] == -1).all()
    # steps before the first wrong one are right: as many particles at least
    sizes = np.array([level[0].sum() for level in topology.levels])
    assert (right.sum(axis=1)[some] >= sizes[mistakes.first[some]]).all()
    later = mistakes.level[some] - mistakes.first[some] > 1
    after = wrong.sum(axis=1)[some]
    assert len(set(after[later].tolist())) > 1  # what follows a mistake may be right or wrong
    assert {*mistakes.first[some].tolist()} == set(range(len(topology.stages) - 1))


def test_the_share_is_that_of_events_with_something_shown():
    truth, revealed, mistakes, *_ = states(TTBAR, events=6000, share=0.25)
    some = revealed.any(axis=1)
    share = (mistakes.first >= 0)[some].mean()
    assert abs(share - 0.25) < 4 * np.sqrt(0.25 * 0.75 / some.sum())
    both = mistakes.level == 2
    assert abs((mistakes.first[both & (mistakes.first >= 0)] == 0).mean() - 0.5) < 0.08
    truth[:, 5] = -1  # a jet without a label
    rng = np.random.default_rng(1)
    partly = draw_mistakes(TTBAR, truth, draw_revealed(TTBAR, truth, rng), 1.0, rng)
    assert (partly.first == -1).all()


def test_wrong_choices_are_drawn_by_the_networks_own_probability():
    events, n_jets = 20_000, 6
    truth = np.tile(np.arange(6), (events, 1))
    revealed = np.tile([False, True, False, False], (events, 1))
    rng = np.random.default_rng(0)
    mistakes = draw_mistakes(TTBAR, truth, revealed, 1.0, rng)
    predict, _ = asked(TTBAR)
    shown, known = wrong_states(predict, TTBAR, empty(events, n_jets), truth, revealed, mistakes)
    s = predict(empty(1, n_jets), None)["edges"][0, 0].astype(float)
    weight = {
        pair: np.exp(s[pair] - s[pair[0], pair[0]] - s[pair[1], pair[1]])
        for pair in itertools.combinations(range(n_jets), 2)
        if pair not in ((0, 1), (3, 4))
    }
    slots = np.array([p.slots for p in TTBAR.of_type("W")])[known[:, [1, 3]].argmax(axis=1)]
    found = np.take_along_axis(shown, slots, axis=1)
    for pair, value in weight.items():
        expected = value / sum(weight.values())
        assert abs((found == pair).all(axis=1).mean() - expected) < 4 * np.sqrt(expected / events) + 1e-4
    assert not ((found == (0, 1)).all(axis=1) | (found == (3, 4)).all(axis=1)).any()


def test_the_network_sees_its_mistake_before_the_next_step():
    _, _, mistakes, _, _, seen = states(TTBAR)
    levels = mistakes.level[mistakes.first >= 0]
    assert [len(tokens) for tokens in seen] == [len(levels), (levels == 2).sum()]
    assert (seen[0] == MASKED).all()
    assert ((seen[1] != MASKED).any(axis=(1, 2, 3))).all()


def test_the_only_candidate_stays_though_it_is_right():
    pair = parse_topology({"name": "pair", "event": ["H"], "particles": {"H": ["b", "b"]}})
    mistakes = Mistakes(np.array([0]), np.array([1]), np.array([[0.5]]))
    given = empty(1, 2), np.array([[0, 1]]), np.array([[True]])
    shown, known = wrong_states(asked(pair)[0], pair, *given, mistakes)
    assert shown.tolist() == [[0, 1]]
    assert known.all()


def test_the_loss_asks_for_the_truth_of_what_is_hidden():
    truth = np.array([[0, 1, 2, 3, 4, 5]])
    shown = np.array([[0, 3, -1, -1, -1, -1]])  # a jet of each W
    known = np.array([[False, True, False, False]])
    mask = np.ones((1, 7), dtype=bool)
    batch = make_batch(TTBAR, empty(1, 7), truth, known, {"masked_edges": 1.0}, shown=shown)
    tokens = visible_tokens(TTBAR, shown, known, mask)
    np.testing.assert_array_equal(batch.tokens.numpy(), tokens)
    assert tokens[0, 0, 0, 3] == 1  # shown as a W
    target = batch.targets["masked_edges"]
    edges, _ = adjacency(TTBAR, truth, mask)
    np.testing.assert_array_equal(target["truth"].numpy(), edges)
    np.testing.assert_array_equal(target["counted"].numpy(), tokens == MASKED)
    found = torch.zeros(1, 2, 7, 7, requires_grad=True)
    loss = batch_loss(None, {"edges": found}, batch, {"masked_edges": 1.0})["masked_edges"]
    (gradient,) = torch.autograd.grad(loss, found)
    assert gradient[0, 0, 0, 3] == 0  # the mistake itself is given, neither rewarded nor punished
    assert gradient[0, 1, 0, 2] < 0  # that jet 0 goes with b 2 is true and hidden: wanted
    assert gradient[0, 0, 4, 5] > 0
