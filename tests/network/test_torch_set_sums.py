"""The torch twin of sums over sets: the same numbers, and gradients that are probabilities."""

import numpy as np
import pytest
import torch

from pairton.decoding import set_sums
from pairton.decoding import terms as numpy_scores
from pairton.decoding.patterns import allowed_nodes
from pairton.decoding.set_tables import hypotheses, set_tables
from pairton.decoding.terms import triplet_types
from pairton.network.torch_set_sums import candidate_scores, log_likelihood, log_scores, log_sums
from pairton.topology import load_topology, parse_topology

DEEP = parse_topology({"name": "deep", "event": ["H", "j"], "particles": {"H": ["W", "W"], "W": ["q", "q"]}})
ONLY = parse_topology({"name": "only", "event": ["X", "j"], "particles": {"X": ["A"], "A": ["q", "q"]}})
CASES = [
    (ONLY, 4),
    (load_topology("ttbar_allhad"), 7),
    (load_topology("tth_allhad"), 8),
    (DEEP, 6),
    (load_topology("hh4b"), 3),
]


def drawn(tables, events, dtype, seed=0):
    rng = np.random.default_rng(seed)
    scores = {n: rng.normal(size=(len(c.objects), events)).astype(dtype) for n, c in tables.candidates.items()}
    return scores, rng.normal(size=(len(tables.patterns), events)).astype(dtype)


def test_overlaps_exclude_the_same_hypotheses_as_in_numpy():
    particles, objects = {"H": [["b", "b"], ["J"]]}, {"J": "fatjet"}
    topology = parse_topology({"name": "hh", "event": ["H", "H"], "particles": particles, "objects": objects})
    tables = set_tables(topology, allowed_nodes(topology, (4, 2)))
    scores, terms = drawn(tables, 3, np.float64)
    overlaps = np.zeros((3, 6, 6), dtype=bool)
    overlaps[0, 4, :2] = overlaps[1, 5, 3] = True
    truth = hypotheses(tables, np.array([[0, 2, -1, -1, -1, 4]] * 3), overlaps=overlaps)
    assert (truth.pattern >= 0).tolist() == [False, True, True]
    sums, present = set_sums.marginals(tables, scores, terms, overlaps)
    given = tensors(scores)
    ours = log_sums(tables, given, torch.tensor(terms), torch.tensor(overlaps))
    np.testing.assert_allclose(ours.detach().numpy(), sums, rtol=1e-11)
    ours.logsumexp(dim=0).sum().backward()
    for name, values in present.items():
        np.testing.assert_allclose(given[name].grad.numpy(), values, rtol=1e-9, atol=1e-12)
    chance = log_likelihood(tables, given, truth, torch.tensor(terms), torch.tensor(overlaps)).exp()
    assert chance[0] == 0
    assert chance[1] > 0


def tensors(scores):
    return {name: torch.tensor(values, requires_grad=True) for name, values in scores.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("topology", "n_jets"), CASES, ids=lambda x: getattr(x, "name", x))
@pytest.mark.parametrize("complete_only", [False, True])
def test_equals_numpy_and_gradients_are_marginals(topology, n_jets, complete_only, dtype):
    tables = set_tables(topology, allowed_nodes(topology, n_jets), complete_only)
    scores, terms = drawn(tables, 4, dtype)
    sums, present = set_sums.marginals(tables, scores, terms)
    given, c = tensors(scores), torch.tensor(terms, requires_grad=True)
    ours = log_sums(tables, given, c)
    assert ours.dtype == c.dtype
    tolerance = 1e-5 if dtype == np.float32 else 1e-11
    possible = np.isfinite(sums)
    np.testing.assert_allclose(ours.detach().numpy()[possible], sums[possible], rtol=tolerance, atol=tolerance)
    assert (ours.detach().numpy()[~possible] < -1e29).all()
    if not possible.any():  # three jets have no complete hypothesis
        return
    ours.logsumexp(dim=0).sum().backward()
    for name, values in present.items():
        np.testing.assert_allclose(given[name].grad.numpy(), values, rtol=10 * tolerance, atol=tolerance)
    np.testing.assert_allclose(
        c.grad.numpy(), np.exp(sums - set_sums.log_normaliser(sums)), rtol=10 * tolerance, atol=tolerance
    )


@pytest.mark.parametrize(("topology", "n_jets"), CASES[:4], ids=lambda x: getattr(x, "name", x))
def test_scores_of_candidates_equal_numpy(topology, n_jets):
    tables = set_tables(topology, allowed_nodes(topology, n_jets))
    rng = np.random.default_rng(2)
    edges = rng.normal(size=(3, len(topology.types), n_jets + 1, n_jets + 1)).astype(np.float32)
    outputs, triplets = {"edges": edges}, None
    if kinds := triplet_types(topology):
        triplets = rng.normal(size=(3, len(kinds), *[n_jets + 1] * 3)).astype(np.float32)
        outputs["triplets"] = triplets
    expected = numpy_scores.candidate_scores(tables, outputs)
    given = None if triplets is None else torch.tensor(triplets)
    for name, values in candidate_scores(tables, torch.tensor(edges), given).items():
        np.testing.assert_allclose(values.numpy(), expected[name], rtol=1e-5, atol=1e-5)


def test_the_log_likelihood_is_that_of_numpy_and_its_gradient_is_checked():
    topology = load_topology("ttbar_allhad")
    tables = set_tables(topology, allowed_nodes(topology, 6))
    scores, terms = drawn(tables, 3, np.float64)
    truth = hypotheses(tables, np.array([[3, 0, 2, 5, 1, 4], [0, 1, 2, 4, 3, -1], [-1, 1, 2, -1, 3, 5]]))
    expected = set_sums.log_scores(tables, scores, truth, terms)
    expected -= set_sums.log_normaliser(set_sums.log_sums(tables, scores, terms))
    given, c = tensors(scores), torch.tensor(terms, requires_grad=True)
    np.testing.assert_allclose(log_likelihood(tables, given, truth, c).detach().numpy(), expected, rtol=1e-12)
    names = list(given)
    assert torch.autograd.gradcheck(
        lambda *values: log_likelihood(tables, dict(zip(names, values[1:], strict=True)), truth, values[0]),
        (c, *given.values()),
    )


def test_excluded_candidates_keep_gradients_finite():
    topology = load_topology("ttbar_allhad")
    tables = set_tables(topology, allowed_nodes(topology, 6))
    scores, terms = drawn(tables, 2, np.float32)
    scores["W"][tables.candidates["W"].objects.max(axis=1) == 5] = -np.inf  # the last jet is padding
    scores["t"][tables.candidates["t"].objects.max(axis=1) == 5] = -np.inf
    fewer = set_tables(topology, allowed_nodes(topology, 5))
    kept = {n: scores[n][tables.candidates[n].find(fewer.candidates[n].objects)] for n in scores}
    given = tensors(scores)
    sums = log_sums(tables, given, torch.tensor(terms))
    expected = set_sums.log_sums(fewer, kept, terms)
    np.testing.assert_allclose(sums.detach().numpy()[1:], expected[1:], rtol=1e-5)
    sums.logsumexp(dim=0).sum().backward()
    assert all(values.grad.isfinite().all() for values in given.values())
    assert log_scores(given, hypotheses(tables, np.array([[0, 1, 2, 3, 4, 4]] * 2))).tolist() == [-torch.inf] * 2
