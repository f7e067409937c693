"""Networks for particles instead of topologies: views on any tree, against slow sums and dedicated networks."""

import itertools

import numpy as np
import pytest
import torch

from pairton.decoding import decode
from pairton.decoding.patterns import plan_of
from pairton.decoding.views import View, presence_names, presence_terms
from pairton.errors import ModelError, TopologyError
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.network import Network, NetworkConfig
from pairton.network.engine import predictor
from pairton.network.transfer import transferred
from pairton.topology import load_topology, parse_topology
from pairton.topology.vocabulary import check_known, check_mixture, mixture, vocabulary
from random_objects import TRIANGLES, random_nodes

CONFIG = TRIANGLES | {"pair_width": 8, "pair_heads": 1, "triplets": "potential", "patterns": "presence"}
ALL = [load_topology(name) for name in ("ttbar_allhad", "ttbar_semilep", "hh4b")]
KNOWN = vocabulary(ALL, "known")
# never listed: one top, an H and a leptonic top, whose lepton comes first
UNSEEN = parse_topology({
    "name": "unseen", "event": ["tl", "t", "H"], "objects": {"l": "lepton"}, "context": ["met"],
    "particles": {"tl": ["b", "l"], "t": ["W", "b"], "W": ["q", "q"], "H": ["b", "b"]},
})  # fmt: skip
LEPTONS_FIRST = parse_topology({
    "name": "leptons_first", "event": ["Z", "H"], "objects": {"l": "lepton"},
    "particles": {"Z": ["l", "l"], "H": ["b", "b"]},
})  # fmt: skip


def network_of(topology, seed=0, **settings):
    """Random weights, also of those that start at zero."""
    torch.manual_seed(seed)
    network = Network(topology, NetworkConfig(**(CONFIG | settings)), Inputs.default(topology))
    with torch.no_grad():
        for weights in network.parameters():
            weights.add_(0.3 * torch.randn_like(weights))
    return network.eval()


def slow_scores(tree, outputs, layout):
    """Every hypothesis and its score in the first event, particle by particle, from the network's own outputs.

    For trees in which no particle but a t has another one below it.
    """
    names, n = list(KNOWN.types), sum(layout)
    edges, triplets = outputs["edges"][0].astype(float), outputs["triplets"][0].astype(float)
    jets = set(tree.nodes("jet", layout))
    coefficients = dict(zip(presence_names(KNOWN), outputs["presence"][0].astype(float), strict=True))

    def options(particle):
        """(types that are present, nodes used, score)"""
        kinds = [tree.slots[slot].kind for slot in particle.slots]
        found = [((), (), 0.0)]
        for nodes in itertools.permutations(range(n), len(kinds)):
            if any(node not in tree.nodes(kind, layout) for node, kind in zip(nodes, kinds, strict=True)):
                continue
            e = edges[names.index(particle.type)]
            if particle.type == "t":
                i, j, b = nodes
                if i < j:
                    w = edges[names.index("W")]
                    w = w[i, j] - w[i, i] - w[j, j]
                    top = w + e[i, b] + e[j, b] - e[b, b] + triplets[0, i, j, b]
                    found += [(("t", "W"), nodes, top)]
                    found += [(("W",), (i, j), w)] if b == (jets - {i, j}).pop() else []
            elif len(set(kinds)) > 1 or nodes[0] < nodes[1]:
                i, j = nodes
                found.append(((particle.type,), nodes, e[i, j] - e[i, i] - e[j, j]))
        return found

    every = []
    whole = [particle.type for particle in tree.particles]
    for choice in itertools.product(*(options(root) for root in tree.roots)):
        nodes = [node for _, some, _ in choice for node in some]
        if len(set(nodes)) < len(nodes):
            continue
        there = [name for some, _, _ in choice for name in some]
        score = sum(part for *_, part in choice)
        for name in names:
            present, absent = there.count(name), whole.count(name) - there.count(name)
            for term, value in (
                ("present", present), ("some present", present > 0),
                ("absent", absent), ("some absent", absent > 0),
            ):  # fmt: skip
                score += coefficients[f"{name} {term}"] * value
        for kind in ("jet", "lepton"):
            used = sum(node in tree.nodes(kind, layout) for node in nodes if kind in tree.kinds) / 4
            score += coefficients[f"{kind} used"] * used + coefficients[f"{kind} used squared"] * used**2
        every.append((tuple(sorted(nodes)), tuple(sorted(there)), score))
    return every


@pytest.mark.parametrize(("tree", "layout"), [(UNSEEN, (6, 1, 1)), (load_topology("ttbar_allhad"), (6,))])
def test_probabilities_of_a_tree_that_the_network_never_saw(tree, layout):
    network, nodes = network_of(KNOWN), random_nodes(tree, layout)
    raw = predictor(network)(nodes, None)
    # interchangeable particles are counted once
    every = {(nodes, there, round(score, 6)): score for nodes, there, score in slow_scores(tree, raw, layout)}
    every = [(there, score) for (_, there, _), score in every.items()]
    weights = np.exp([score for _, score in every])
    total = weights.sum()
    found = decode(predictor(network.for_topology(tree)), tree, nodes)
    by_pattern = {}
    for (there, _), weight in zip(every, weights, strict=True):
        by_pattern[there] = by_pattern.get(there, 0) + weight / total
    for pattern, chance in zip(plan_of(tree).patterns, found.pattern_probability[0], strict=True):
        types = sorted(name for name, _ in pattern.placed for name in ([name, "W"] if name == "t" else [name]))
        assert chance == pytest.approx(by_pattern.get(tuple(types), 0), rel=1e-4, abs=1e-7), pattern
    complete = [score for there, score in every if len(there) == len(tree.particles)]
    assert found.event_probability[0] == pytest.approx(np.exp(max(complete)) / total, rel=1e-4)


def test_a_vocabulary_of_one_topology_is_a_network_for_it():
    tree = load_topology("ttbar_allhad")
    alone = network_of(tree, patterns=True)
    known = vocabulary([tree, load_topology("hh4b")])
    both = network_of(known, seed=1)
    with torch.no_grad():  # the same weights where both have them, and the same scores of patterns
        both.load_state_dict(transferred(alone, both))
        both.heads["presence"].layers[2].weight.zero_()
        alone.heads["patterns"].layers[2].weight.zero_()
        alone.heads["patterns"].layers[2].bias.copy_(
            both.heads["presence"].layers[2].bias @ torch.as_tensor(presence_terms(known, tree))
        )
    nodes = random_nodes(tree, (8,))
    found, expected = (decode(predictor(network.for_topology(tree)), tree, nodes) for network in (both, alone))
    np.testing.assert_array_equal(found.assignment, expected.assignment)
    for name in ("event_probability", "particle_probability", "pattern_probability"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-4)


@pytest.mark.parametrize("patterns", [True, "presence"])
def test_a_dedicated_network_starts_where_the_vocabulary_is(patterns):
    network = network_of(KNOWN)
    tree = load_topology("ttbar_semilep")
    dedicated = network_of(tree, seed=5, patterns=patterns)
    dedicated.load_state_dict(transferred(network, dedicated))
    nodes = random_nodes(tree, (5, 1, 1))
    found, expected = (decode(predictor(each.for_topology(tree)), tree, nodes) for each in (dedicated, network))
    np.testing.assert_allclose(found.event_probability, expected.event_probability, rtol=1e-4)
    np.testing.assert_allclose(found.pattern_probability, expected.pattern_probability, rtol=1e-4, atol=1e-7)


def test_nodes_in_the_order_of_the_tree():
    known = vocabulary([load_topology("hh4b"), LEPTONS_FIRST])
    assert (known.kinds, LEPTONS_FIRST.kinds) == (("jet", "lepton"), ("lepton", "jet"))
    network, nodes = network_of(known, triplets="none"), random_nodes(LEPTONS_FIRST, (2, 4))
    raw = predictor(network)(nodes, None)
    view = View(known, LEPTONS_FIRST)
    own = view.outputs(raw, view.order(nodes.layout))
    order = [4, 5, 0, 1, 2, 3]
    np.testing.assert_array_equal(
        own["edges"][:, 0], raw["edges"][:, known.type_index("Z")][:, order][:, :, order]
    )
    answer = decode(predictor(network.for_topology(LEPTONS_FIRST)), LEPTONS_FIRST, nodes).assignment
    assert (answer[:, :2] < 2).all()
    assert (answer[:, 2:] >= 2).all()


def test_a_kind_that_an_event_lacks_changes_nothing():
    network, tree = network_of(KNOWN), load_topology("hh4b")
    nodes = random_nodes(tree, (5,))
    empty = {"lepton": np.zeros((3, 0, 4), np.float32), "met": np.zeros((3, 0, 4), np.float32)}
    with_empty = Nodes.full({**nodes.values, **empty})
    assert with_empty.layout == (5, 0, 0)
    for name, output in predictor(network)(with_empty, None).items():
        np.testing.assert_array_equal(output, predictor(network)(nodes, None)[name])
    assert View(KNOWN, tree).nodes(nodes, network.inputs).layout == (5, 0, 0)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"event": ["top"], "particles": {"top": ["b", "b"]}}, r"not know top -> b b of x \(it knows .*t -> W b"),
        ({"event": ["H"], "particles": {"H": ["q", "q"]}}, r"not know H -> q q of x .*: train one with `pairton"),
        ({"event": ["H"], "particles": {"H": ["b", "b"]}, "context": ["photon"]}, "has not seen the photons of x"),
        (
            {"event": ["tl"], "particles": {"tl": ["b", "l"]}, "objects": {"l": "muon"}},
            r"does not know tl -> b l \(muon\) of x",
        ),
    ],
)
def test_a_tree_of_unknown_particles_is_refused(tree, said):
    with pytest.raises(ModelError, match=said):
        check_known(KNOWN, parse_topology({"name": "x", **tree}), "any")


def test_topologies_that_do_not_go_together():
    with pytest.raises(TopologyError, match=r"t decays to \[b, b\] in x, but to \[W, b\] in another"):
        vocabulary([ALL[0], parse_topology({"name": "x", "event": ["t"], "particles": {"t": ["b", "b"]}})])
    with pytest.raises(TopologyError, match="one of several topologies with the same kinds of objects, but there"):
        mixture(ALL)
    with pytest.raises(TopologyError, match="choose one of them"):
        check_mixture(KNOWN)


def test_particles_that_may_be_merged():
    """H to two jets or one large jet, in a vocabulary and in a tree that it never saw."""
    higgs = {"particles": {"H": [["b", "b"], ["J"]]}, "objects": {"J": "fatjet"}}
    pair = parse_topology({"name": "pair", "event": ["H", "H"], **higgs})
    known = vocabulary([pair, load_topology("ttbar_allhad")])
    assert known.merged == (("H", "J"),)
    network = network_of(known)
    one = parse_topology({"name": "one", "event": ["H"], **higgs})
    nodes = random_nodes(one, (3, 1))
    found = decode(predictor(network.for_topology(one)), one, nodes)
    np.testing.assert_allclose(found.pattern_probability.sum(axis=1), 1, rtol=1e-6)
    names = presence_names(known)
    for pattern, terms in zip(plan_of(one).patterns, presence_terms(known, one).T, strict=True):
        assert terms[names.index("H merged")] == ("HJ" in pattern.name)
        assert terms[names.index("H present")] == ("H" in pattern.name)
    check_known(known, parse_topology({"name": "resolved", "event": ["H"], "particles": {"H": ["b", "b"]}}), "any")
    with pytest.raises(ModelError, match=r"does not know H -> b b or J \(fatjet\) of one"):
        check_known(KNOWN, one, "any")
