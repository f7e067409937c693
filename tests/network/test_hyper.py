"""HyPER's head, loss and decoding (arXiv:2402.10149) against slow transcriptions, event by event."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from pairton.decoding import decode
from pairton.errors import ConfigError, ModelError
from pairton.events.nodes import Nodes
from pairton.network import Network, NetworkConfig
from pairton.network.heads import Embedding
from pairton.network.hyper_head import HyperHead
from pairton.network.trunks import PairIndex
from pairton.topology import load_topology
from pairton.training import load_recipe
from pairton.training.batch import make_batch
from pairton.training.losses import LOSSES, Examples

TTBAR, TTH, TTTT = (load_topology(name) for name in ("ttbar_allhad", "tth_allhad", "tttt_allhad"))


def some_jets(n_jets, events=4, seed=0):
    rng = np.random.default_rng(seed)
    return Nodes.full({"jet": rng.uniform(30, 90, (events, n_jets, 5)).astype(np.float32)})


def embedding(n_nodes, events=3, mask=None):
    torch.manual_seed(1)
    index = PairIndex()
    low, _ = index.pairs(n_nodes)
    return Embedding(torch.randn(events, n_nodes, 6), torch.randn(events, len(low), 4), mask, index)


def slow_head(head, given, row, nodes):
    """Hyperedges of one event, one after the other; the softmax runs over all of them, in every feature."""
    event = given.pooled()[row]
    each = {k: head.objects[0](torch.cat([given.singles[row, k], event])) for k in nodes}
    hyperedges = list(combinations(nodes, 3))
    vectors = [each[i] + each[j] + each[k] for i, j, k in hyperedges]
    total = sum(vector.exp() for vector in vectors)
    found = {}
    for hyperedge, vector in zip(hyperedges, vectors, strict=True):
        attention = vector.exp() / total
        weighted = attention * torch.relu(head.mix[0].weight @ vector)
        found[hyperedge] = head.score[0](torch.cat([vector, weighted])).item()
    return found


@pytest.mark.parametrize("padded", [False, True])
def test_the_head_is_that_of_hyper(padded):
    torch.manual_seed(0)
    head = HyperHead(1, single_width=6, pair_width=4, hidden=5).eval()
    mask = torch.tensor([[True] * 7, [True] * 5 + [False] * 2, [True] * 3 + [False] * 4]) if padded else None
    given = embedding(7, mask=mask)
    with torch.no_grad():
        found = head(given)
        assert found.shape == (3, 1, 7, 7, 7)
        for row in range(3):
            nodes = range(7) if mask is None else mask[row].nonzero().flatten().tolist()
            for (i, j, k), logit in slow_head(head, given, row, nodes).items():
                for order in ((i, j, k), (k, i, j), (j, k, i), (j, i, k)):
                    assert found[row, 0][order].item() == pytest.approx(logit, abs=1e-5)


def slow_loss(edges, triplets, truth, alpha):
    """Of one event: what is not labelled is no edge and no hyperedge."""

    def mean(logits, right):
        chances = [1 / (1 + np.exp(-logit)) for logit in logits]
        return np.mean([-np.log(p if is_right else 1 - p) for p, is_right in zip(chances, right, strict=True)])

    tops = [set(truth[:3]), set(truth[3:])]
    pairs, threes = (list(combinations(range(len(edges)), k)) for k in (2, 3))
    is_w = [any(set(pair) == set(w) for w in (truth[:2], truth[3:5])) for pair in pairs]
    is_top = [set(three) in tops and -1 not in three for three in threes]
    alpha = alpha if any(is_top) else 0.0
    of_threes = mean([triplets[three] for three in threes], is_top)
    return alpha * of_threes + (1 - alpha) * mean([edges[pair] for pair in pairs], is_w)


def test_the_loss_is_that_of_hyper():
    rng = np.random.default_rng(3)
    truth = np.array([[0, 1, 2, 3, 4, 5], [6, 2, 1, 0, 3, -1], [0, 1, -1, 4, -1, 5], [-1] * 6])
    edges, triplets = rng.normal(size=(4, 2, 7, 7)), rng.normal(size=(4, 1, 7, 7, 7))
    edges += edges.transpose(0, 1, 3, 2)
    outputs = {"edges": torch.as_tensor(edges), "triplets": torch.as_tensor(triplets)}
    expected = [slow_loss(edges[k, 0], triplets[k, 0], truth[k].tolist(), 0.8) for k in range(4)]
    for rows in (slice(0, 4), slice(1, 2), slice(3, 4)):
        examples = Examples(load_recipe("ablations/hyper"), some_jets(7)[rows], truth[rows])
        batch = make_batch(examples, {"hyper": LOSSES["hyper"]})
        found = batch.sums(None, {name: array[rows] for name, array in outputs.items()})
        assert found["hyper"].item() == pytest.approx(sum(expected[rows]), rel=1e-5)
        assert batch.counts == {"hyper": len(truth[rows])}


def slow_decoding(edges, triplets, n_nodes, particles):
    """The best hyperedge that is left and shares no object with those before it; then its best edge."""
    chosen = []
    ranked = sorted(combinations(range(n_nodes), 3), key=lambda three: -triplets[three])
    while len(chosen) < particles:
        top = next(three for three in ranked if not any(set(three) & set(other[0]) for other in chosen))
        pair = max(combinations(top, 2), key=lambda two: edges[two])
        chosen.append((top, pair))
    return chosen


@pytest.mark.parametrize(("topology", "n_jets"), [(TTBAR, 6), (TTBAR, 9), (TTTT, 13)], ids=["6", "9", "four_tops"])
def test_the_decoding_is_that_of_hyper(topology, n_jets):
    rng = np.random.default_rng(n_jets)
    edges = rng.normal(size=(20, 2, n_jets, n_jets)).astype(np.float32)
    edges += edges.transpose(0, 1, 3, 2)
    triplets = rng.normal(size=(20, 1, n_jets, n_jets, n_jets)).astype(np.float32)
    outputs = {"edges": edges, "triplets": triplets}
    found = decode(lambda nodes, tokens: outputs, topology, some_jets(n_jets, 20), decoding="hyper")
    for row in range(20):
        slots, total = found.assignment[row], 1.0
        assert len(set(slots.tolist())) == len(slots)
        mine = {}
        for top, pair in slow_decoding(edges[row, 0], triplets[row, 0], n_jets, len(topology.roots)):
            (b,) = set(top) - set(pair)
            mine[pair, b] = [1 / (1 + np.exp(-logit)) for logit in (triplets[row, 0][top], edges[row, 0][pair])]
            total *= np.prod(mine[pair, b])
        answer = {}
        for root in topology.roots:
            w = topology.particles[root.children[0]]
            key = tuple(slots[list(w.slots)].tolist()), slots[root.own_slots[0]]
            answer[key] = found.particle_probability[row, [root.index, w.index]]
        assert answer.keys() == mine.keys()
        for key, chances in mine.items():
            np.testing.assert_allclose(answer[key], chances, rtol=1e-5)
        assert found.event_probability[row] == pytest.approx(total, rel=1e-5)
    assert not found.exact.any()


def test_an_object_has_no_edge_with_itself():
    """HyPER's loss does not train such an edge, and exact decoding would subtract it."""
    config = NetworkConfig(blocks=1, single_width=16, pair_width=8, pair_heads=2, tokens=False, triplets="hyper")
    network = Network(TTBAR, config).eval()
    jets = torch.from_numpy(some_jets(7, 2).values["jet"]) / torch.tensor([1.0, 60.0, 60.0, 0.1, 90.0])
    with torch.inference_mode():
        edges = network({"jet": jets})["edges"]
    assert (edges.diagonal(dim1=2, dim2=3) == 0).all()
    assert (edges[:, TTBAR.type_index("W")][:, ~torch.eye(7, dtype=bool)] != 0).all()
    other = Network(TTBAR, replace(config, triplets="object_sum")).eval()
    with torch.inference_mode():
        assert (other({"jet": jets})["edges"][:, TTBAR.type_index("W")] != 0).all()


def test_padding_is_no_object():
    nodes = some_jets(8, 2)
    masks = {"jet": np.array([[True] * 8, [True] * 6 + [False] * 2])}
    rng = np.random.default_rng(0)
    outputs = {
        "edges": rng.normal(size=(2, 2, 8, 8)).astype(np.float32),
        "triplets": rng.normal(size=(2, 1, 8, 8, 8)).astype(np.float32),
    }
    found = decode(lambda nodes, tokens: outputs, TTBAR, Nodes(nodes.values, masks), decoding="hyper")
    assert sorted(found.assignment[1].tolist()) == [0, 1, 2, 3, 4, 5]


def test_other_topologies_and_networks_are_refused():
    nodes = some_jets(8, 1)
    edges = {"edges": np.zeros((1, 3, 8, 8), np.float32)}
    with pytest.raises(ConfigError, match=r"roots that all decay like .* but tth_allhad has others"):
        decode(lambda nodes, tokens: edges, TTH, nodes, decoding="hyper")
    with pytest.raises(ModelError, match="needs a network that scores triplets"):
        decode(lambda nodes, tokens: edges, TTBAR, nodes, decoding="hyper")
