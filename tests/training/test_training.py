"""Losses, forward process and data: what a network is trained on, and what it is not told."""

import itertools
import warnings
from dataclasses import replace

import awkward as ak
import numpy as np
import pytest
import torch

from enumeration import enumerate_assignments, index_of, log_normaliser, scores
from pairton._common.configuration import read_yaml
from pairton.decoding.graph import MASKED, adjacency, visible_tokens
from pairton.decoding.patterns import allowed_nodes, count_sums
from pairton.decoding.terms import triplet_types
from pairton.errors import ConfigError, PairtonWarning, TrainingError
from pairton.events import Events
from pairton.events.head_specs import parse_head
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.events.objects import make_jets
from pairton.network import Network, NetworkConfig
from pairton.recipes import find_recipe
from pairton.topology import load_topology, parse_topology
from pairton.training import measuring
from pairton.training.augmentation import Augmentation, AugmentationConfig
from pairton.training.batch import BatchPlan, make_batch, terms_of
from pairton.training.data import DataConfig, Key, pack
from pairton.training.losses import LOSSES, Examples
from pairton.training.masking import Unmasked, draw_levels, draw_tokens
from pairton.training.measuring import measured
from pairton.training.optimising import learning_rate, make_optimiser
from pairton.training.recipes import load_recipe, parse_recipe

TTBAR, TTH, HH4B = (load_topology(name) for name in ("ttbar_allhad", "tth_allhad", "hh4b"))
INPUTS = Inputs.default(TTBAR)
EDGES, EVENT = {"masked_edges": 1.0}, {"event_likelihood": 1.0}
TRIPLETS = {"masked_edges": 1.0, "triplets": 1.0}


def plan(topology, loss, **network):
    raw = {"topology": topology.to_dict(), "network": network, "loss": {"masked_edges": 0, **loss}}
    return parse_recipe({**raw, "optimiser": {"steps": 1}})


def batch_of(topology, nodes, truth, revealed, loss, weights=None, **network):
    visible = None if revealed is None else visible_tokens(topology, truth, revealed, nodes.mask)
    examples = Examples(plan(topology, loss, **network), nodes, truth, visible, weights=weights)
    return make_batch(examples, {name: LOSSES[name] for name in loss})


def truths(topology, n_jets, batch, seed=0):
    order = np.argsort(np.random.default_rng(seed).random((batch, n_jets)), axis=1)
    return order[:, : len(topology.slots)]


def jets(n_jets, batch, seed=0):
    rng = np.random.default_rng(seed)
    pt, eta = rng.uniform(30, 200, (batch, n_jets)), rng.uniform(-2, 2, (batch, n_jets))
    phi = rng.uniform(-3, 3, (batch, n_jets))
    tags = rng.permuted(np.tile(np.arange(n_jets) < 2, (batch, 1)), axis=1)
    return np.stack([pt, eta, phi, pt * np.cosh(eta) + 5, tags], axis=-1).astype(np.float32)


def nodes(n_jets, batch, seed=0):
    return Nodes.full({"jet": jets(n_jets, batch, seed)})


def output(topology, n_jets, batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randn(batch, len(topology.types), n_jets, n_jets, generator=generator)
    kinds = len(triplet_types(topology))
    outputs = {"edges": (edges + edges.mT).requires_grad_()}
    if kinds:
        outputs["triplets"] = torch.randn(batch, kinds, n_jets, n_jets, n_jets, generator=generator)
    return outputs


def unmasked(topology, truth, n_jets=7, weights=()):
    mask = np.ones((len(truth), n_jets), dtype=bool)
    return Unmasked(topology, truth, mask, np.random.default_rng(0), weights)


# -- forward process ---------------------------------------------------------------------------------------


def test_levels_are_drawn_uniformly_and_then_their_states():
    truth = truths(TTBAR, 7, 6000)
    revealed = draw_levels(unmasked(TTBAR, truth))
    names = [particle.name for particle in TTBAR.particles]
    shares = {
        (): 1 / 3, ("t1.W",): 1 / 6, ("t2.W",): 1 / 6, ("t1.W", "t2.W"): 1 / 3,
    }  # fmt: skip
    for shown, share in shares.items():
        found = (revealed == [name in shown for name in names]).all(axis=1).mean()
        assert abs(found - share) < 4 * np.sqrt(share * (1 - share) / 6000)


def test_four_steps_add_one_whole_top():
    from pairton.topology import Stage

    four = replace(TTBAR, given_stages=(Stage(("W",)), Stage(("W",)), Stage(("t",)), Stage(("t",))))
    revealed = draw_levels(unmasked(four, truths(four, 7, 4000)))
    of_top = [particle.index for particle in four.of_type("t")]
    assert abs((revealed[:, of_top].sum(axis=1) == 1).mean() - 1 / 4) < 0.03
    assert revealed[:, of_top].sum(axis=1).max() == 1


def test_a_particle_with_a_missing_jet_is_never_revealed():
    truth = truths(TTBAR, 7, 500)
    truth[:, TTBAR.slot_index("t1.W.q1")] = -1
    revealed = draw_levels(unmasked(TTBAR, truth))
    names = [particle.name for particle in TTBAR.particles]
    assert not revealed[:, [names.index("t1"), names.index("t1.W")]].any()
    assert revealed[:, names.index("t2.W")].any()


def test_level_weights_are_shares_of_the_states():
    weighted = draw_levels(unmasked(TTBAR, truths(TTBAR, 7, 4000), weights=(0.0, 1.0, 3.0))).sum(axis=1)
    assert np.bincount(weighted)[0] == 0
    assert abs((weighted == 2).mean() - 3 / 4) < 0.03
    with pytest.raises(ConfigError, match=r"loss.level_weights is \[1.0, 1.0\], but must have 3 numbers"):
        plan(TTBAR, {"masked_edges": 1, "level_weights": [1, 1]})


@pytest.mark.parametrize(("name", "states"), [("particles", 9), ("edges", 1000)])
def test_random_masking_shows_only_what_is_true(name, states):
    truth = truths(TTBAR, 7, 1000)
    tokens = draw_tokens(name, unmasked(TTBAR, truth))
    edges, _ = adjacency(TTBAR, truth, np.ones((1000, 7), dtype=bool))
    shown = tokens != MASKED
    np.testing.assert_array_equal(tokens[shown], edges[shown])
    np.testing.assert_array_equal(tokens, tokens.swapaxes(-1, -2))
    assert 0.3 < shown.mean() < 0.8
    patterns = len(np.unique((tokens != MASKED)[truth[:, 0] >= 0].reshape(1000, -1).sum(axis=1)))
    assert patterns >= min(states, 40) - 4


def test_a_share_of_the_revealed_particles_is_what_the_network_answers():
    truth, answer = truths(TTBAR, 7, 2000), truths(TTBAR, 7, 2000, seed=1)
    events = unmasked(TTBAR, truth, weights=(0.0, 0.0, 1.0))  # both W are revealed
    tokens = draw_tokens("levels", events, answer, wrong=0.25)
    both = np.array([[not particle.parent < 0 for particle in TTBAR.particles]] * 2000)
    right, wrong = (visible_tokens(TTBAR, each, both, events.mask) for each in (truth, answer))
    as_wrong = (tokens == wrong).all(axis=(1, 2, 3))
    assert ((tokens == right).all(axis=(1, 2, 3)) | as_wrong).all()
    assert abs(as_wrong.mean() - 0.25) < 0.03


@pytest.mark.parametrize(
    ("entries", "tokens", "counts"),
    [("masked", True, (64, 36, 0)), ("masked", False, (64, 64, 64)), ("drawn", False, (64, 36, 0))],
)
def test_the_entries_of_w_that_a_loss_counts_at_each_level(entries, tokens, counts):
    """The authors' one-shot loss leaves out entries of the drawn state although nothing is shown."""
    recipe = plan(TTBAR, {"masked_edges": 1, "entries": entries}, tokens=tokens)
    truth = np.tile(np.arange(6), (3, 1))
    order = [particle.index for particle in TTBAR.of_type("W")]
    revealed = np.zeros((3, len(TTBAR.particles)), dtype=bool)
    revealed[1, order[0]] = revealed[2, order] = True
    seen = visible_tokens(TTBAR, truth, revealed, np.ones((3, 8), dtype=bool))
    examples = Examples(recipe, nodes(8, 3), truth, seen if tokens or entries == "drawn" else None)
    counted = LOSSES["masked_edges"].target(examples)["counted"]
    assert tuple(counted[:, TTBAR.type_index("W")].sum(axis=(1, 2))) == counts
    assert (examples.tokens is None) == (not tokens)


def test_the_next_step_alone_is_w_before_both_are_shown_and_then_t():
    recipe = plan(TTBAR, {"masked_edges": 1, "entries": "next"})
    events = unmasked(TTBAR, truths(TTBAR, 7, 300))
    seen = draw_tokens("levels", events)
    counted = LOSSES["masked_edges"].target(Examples(recipe, nodes(7, 300), events.truth, seen))["counted"]
    w, t = (TTBAR.type_index(name) for name in ("W", "t"))
    both_shown = ~(seen[:, w] == MASKED).any(axis=(1, 2))
    np.testing.assert_array_equal(counted[:, w], (seen[:, w] == MASKED))
    np.testing.assert_array_equal(counted[:, t], (seen[:, t] == MASKED) & both_shown[:, None, None])
    with pytest.raises(ConfigError, match=r"loss\.entries next and loss.wrong are for networks with tokens"):
        plan(TTBAR, {"masked_edges": 1, "entries": "next"}, tokens=False)


def test_the_authors_decay_all_weights_and_their_cosine_ends_at_step_800_000():
    config = load_recipe("authors").optimiser
    steps = {0: 1e-5, 10_000: 5.05e-4, 20_000: 1e-3, 410_000: 5.25e-4, 800_000: 5e-5, 826_000: 5e-5}
    assert {step: round(learning_rate(config, step, 826_000), 9) for step in steps} == steps
    network = torch.nn.Linear(2, 2)
    for decay, groups in (("matrices", [1, 1]), ("all", [2, 0])):
        optimiser = make_optimiser(network, replace(config, decay=decay))
        assert [len(group["params"]) for group in optimiser.param_groups] == groups


def test_changing_hidden_truth_does_not_change_the_output():
    torch.manual_seed(0)
    network = Network(TTBAR, NetworkConfig(blocks=1, architecture="symmetric", edges_from="both")).eval()
    truth = np.array([[0, 1, 2, 3, 4, 5]])
    hidden = np.array([[0, 1, 6, 2, 4, 3]])  # the first W is the same
    revealed = np.array([[particle.name == "t1.W" for particle in TTBAR.particles]])
    features = nodes(7, 1)
    answers = []
    for one in (truth, hidden):
        batch = batch_of(TTBAR, features, one, revealed, EDGES)
        answers.append(network(batch.objects, None, batch.tokens)["edges"])
    assert torch.equal(*answers)
    other = batch_of(TTBAR, features, np.array([[0, 2, 1, 3, 4, 5]]), revealed, EDGES)
    assert not torch.equal(network(other.objects, None, other.tokens)["edges"], answers[0])


# -- losses ------------------------------------------------------------------------------------------------


def test_edge_loss_ignores_visible_padded_and_unknown_entries():
    truth = truths(TTBAR, 7, 6)
    truth[:2, TTBAR.slot_index("t2.b")] = -1
    names = [particle.name for particle in TTBAR.particles]
    revealed = np.tile([name == "t1.W" for name in names], (6, 1))
    revealed[3] = [name in ("t1.W", "t2.W") for name in names]
    mask = np.arange(9) < np.full((6, 1), 7)
    padded = np.concatenate([jets(7, 6), np.zeros((6, 2, 5), np.float32)], axis=1)
    batch = batch_of(TTBAR, Nodes({"jet": padded}, {"jet": mask}), truth, revealed, EDGES)
    found = output(TTBAR, 9, 6)
    (gradient,) = torch.autograd.grad(batch.sums(None, found)["masked_edges"], found["edges"])
    seen = visible_tokens(TTBAR, truth, revealed, mask)
    labelled = np.zeros((6, 9), dtype=bool)
    for row, column in itertools.product(range(6), range(6)):
        if truth[row, column] >= 0:
            labelled[row, truth[row, column]] = True
    labelled[2:, :7] = True  # fully reconstructible: the other jets are known to be in no particle
    pairs = labelled[:, None, :, None] & labelled[:, None, None, :]
    counted = (seen == MASKED) & pairs
    assert counted.any()
    assert (~counted & mask[:, None, :, None]).any()
    np.testing.assert_array_equal(gradient.numpy() != 0, counted)
    assert batch.counts == {"masked_edges": counted.sum()}


def test_edge_loss_by_hand():
    truth = np.array([[0, 1, 2, 3]])
    batch = batch_of(HH4B, nodes(4, 1), truth, None, EDGES)
    found = {"edges": torch.full((1, 1, 4, 4), 2.0)}
    # four entries are edges (01, 10, 23, 32), the twelve others, among them the diagonal, are not
    expected = 4 * np.log1p(np.exp(-2.0)) + 12 * np.log1p(np.exp(2.0))
    total = batch.sums(None, found)["masked_edges"]
    np.testing.assert_allclose(total.item(), expected, rtol=1e-5)


def negative_log(topology, n_jets, found, truth, patterns=False):
    """The loss of a batch, and how many events it counts."""
    batch = batch_of(topology, nodes(n_jets, len(truth)), truth, None, EVENT, patterns=patterns, tokens=False)
    return batch.sums(None, found)["event_likelihood"], batch.counts["event_likelihood"]


@pytest.mark.parametrize(("topology", "n_jets"), [(TTBAR, 6), (TTBAR, 8), (HH4B, 6), (TTH, 8)])
def test_the_likelihood_is_that_of_the_list_of_assignments(topology, n_jets):
    enumeration = enumerate_assignments(topology, (n_jets,))
    found, truth = output(topology, n_jets, 4), truths(topology, n_jets, 4)
    values = scores(enumeration, {name: tensor.detach().numpy() for name, tensor in found.items()})
    expected = values[np.arange(4), index_of(enumeration, truth)] - log_normaliser(values)
    loss, count = negative_log(topology, n_jets, found, truth)
    assert count == 4
    np.testing.assert_allclose(-loss.detach(), expected.sum(), rtol=1e-4, atol=1e-4)
    direction, size = torch.randn(found["edges"].shape, generator=torch.Generator().manual_seed(5)), 1e-2
    (gradient,) = torch.autograd.grad(loss, found["edges"])
    ends = [
        negative_log(topology, n_jets, found | {"edges": found["edges"] + step * direction}, truth)[0]
        for step in (size, -size)
    ]
    slope = (ends[0] - ends[1]) / (2 * size)
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=0.01, atol=0.02)


def test_incomplete_events_are_no_hypothesis_without_patterns_and_one_with_them():
    """Of seven jets and the outputs zero, every hypothesis has the same probability."""
    truth = np.array([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, -1], [-1, 1, 2, 3, -1, 5]])  # t + t, t + W, nothing
    zero = {name: tensor * 0 for name, tensor in output(TTBAR, 7, 3).items()}
    loss, count = negative_log(TTBAR, 7, zero, truth)
    assert count == 1
    np.testing.assert_allclose(loss.item(), np.log(TTBAR.count_assignments(7)), rtol=1e-5)
    terms = torch.zeros(3, 6, requires_grad=True)
    loss, count = negative_log(TTBAR, 7, zero | {"patterns": terms}, truth, patterns=True)
    assert count == 3
    # t + t: 35 * 3 * 4 * 3 / 2; t + W: 105 * 6; t: 105; W + W: 21 * 10 / 2; W: 21; nothing: 1
    each = np.array([630, 630, 105, 105, 21, 1])
    np.testing.assert_allclose(loss.item(), 3 * np.log(each.sum()), rtol=1e-5)
    (gradient,) = torch.autograd.grad(loss, terms)  # P(pattern) - 1 for the true one
    expected = np.tile(each / each.sum(), (3, 1))
    expected[[0, 1, 2], [0, 1, 5]] -= 1
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_events_with_fewer_jets_than_slots_have_a_likelihood_with_patterns():
    for n_jets in (1, 3, 5):
        truth = np.full((2, 6), -1)
        truth[0, : min(3, n_jets)] = range(min(3, n_jets))
        found = output(TTBAR, n_jets, 2) | {"patterns": torch.zeros(2, 6, requires_grad=True)}
        loss, count = negative_log(TTBAR, n_jets, found, truth, patterns=True)
        assert count == 2
        assert 0 <= loss.item() < 50
        for gradient in torch.autograd.grad(loss, [found["edges"], found["patterns"]], allow_unused=True):
            assert gradient is None or gradient.isfinite().all()


def test_triplet_loss_by_hand():
    truth = np.array([[0, 1, 2, 5, 4, 3]])
    batch = batch_of(TTBAR, nodes(6, 1), truth, None, TRIPLETS, triplets="object_sum")
    logits = torch.full((1, 1, 6, 6, 6), 1.0)
    outputs = {"edges": torch.zeros(1, 2, 6, 6), "triplets": logits}
    found = batch.sums(None, outputs)["triplets"]
    expected = 2 * np.log1p(np.exp(-1.0)) + 18 * np.log1p(np.exp(1.0))  # of 20 triplets two are tops
    np.testing.assert_allclose(found.item(), expected, rtol=1e-5)
    assert batch.counts["triplets"] == 20
    assert not batch.targets["masked_edges"]["counted"][
        :, TTBAR.type_index("t")
    ].any()  # its edges have no logits to learn


@pytest.mark.parametrize(("patterns", "jets"), [(False, 16), (True, 15), (True, 6)])
def test_beyond_the_bound_edges_take_over(patterns, jets):
    """It counts the sums of the network: one without patterns has fewer."""
    own = {"likelihood_bound": count_sums(TTBAR, allowed_nodes(TTBAR, 6))} if jets == 6 else {}
    for edges in (0, 0.5):
        loss = {"masked_edges": edges, "event_likelihood": 2.0, **own}
        recipe = plan(TTBAR, loss, patterns=patterns, tokens=False)
        within, beyond = (terms_of(recipe, Key(0, (n,))) for n in (jets, jets + 1))
        assert within == {"masked_edges": 0.5, "event_likelihood": 2.0} if edges else {"event_likelihood": 2.0}
        assert beyond == {"masked_edges": edges or 2.0}


# -- augmentation ------------------------------------------------------------------------------------------


def momenta(events):
    pt, eta, phi, energy = (events[..., k].astype(np.float64) for k in range(4))
    return np.stack([energy, pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)], axis=-1)


def masses(events):
    total = momenta(events)[:, :, None] + momenta(events)[:, None]
    return total[..., 0] ** 2 - (total[..., 1:] ** 2).sum(axis=-1)


def test_rotation_and_reflection_leave_masses_alone():
    before = jets(7, 50)
    config = AugmentationConfig(rotate=True, reflect=True)
    augmentation = Augmentation.draw(len(before), config, np.random.default_rng(0))
    after = augmentation.of_nodes(Nodes.full({"jet": before})).values["jet"]
    np.testing.assert_allclose(masses(after), masses(before), rtol=1e-3)
    assert np.abs(after[:, :, 2]).max() <= np.pi + 1e-6
    np.testing.assert_array_equal(after[:, :, [0, 3, 4]], before[:, :, [0, 3, 4]])
    flipped = (after[:, :, 1] == -before[:, :, 1]).all(axis=1)
    assert 0.2 < flipped.mean() < 0.8
    assert (flipped | (after[:, :, 1] == before[:, :, 1]).all(axis=1)).all()
    assert len(np.unique(np.round(after[:, 0, 2] - before[:, 0, 2], 3))) > 40


def test_energy_jitter_scales_a_whole_event():
    before = jets(7, 400)
    config = AugmentationConfig(energy_jitter=0.05)
    augmentation = Augmentation.draw(len(before), config, np.random.default_rng(0))
    after = augmentation.of_nodes(Nodes.full({"jet": before})).values["jet"]
    scale = after[:, :, [0, 3]] / before[:, :, [0, 3]]
    np.testing.assert_allclose(scale, scale[:, :1, :1] * np.ones_like(scale), rtol=1e-5)
    assert 0.04 < np.log(scale[:, 0, 0]).std() < 0.06
    np.testing.assert_array_equal(after[:, :, [1, 2, 4]], before[:, :, [1, 2, 4]])
    columns = {name: np.arange(400.0) for name in ("t_mass", "nu_px", "nu_py", "nu_eta", "n")}
    specs = [parse_head(name, {"kind": "regression"}, TTBAR, "x")[0] for name in columns]
    labels = augmentation.of_labels(columns, specs)
    for name, value in labels.items():
        factor = 1 if name in ("nu_eta", "n") else scale[:, 0, 0]
        np.testing.assert_allclose(value, columns[name] * factor, rtol=1e-5)
    turned = Augmentation.draw(400, replace(config, rotate=True), np.random.default_rng(0)).of_labels(
        columns, specs
    )
    both = [np.hypot(each["nu_px"], each["nu_py"]) for each in (turned, columns)]
    assert 0.04 < np.log(both[0][1:] / both[1][1:]).std() < 0.06


def test_numbers_without_a_unit_are_not_scaled_without_a_word():
    raw = read_yaml(find_recipe("cpu")) | {"heads": {"ht": {"kind": "regression"}}}
    raw["augmentation"] = {"energy_jitter": 0.1}
    with pytest.warns(PairtonWarning, match="heads.ht are not scaled .* set its component to energy"):
        parse_recipe(raw)


# -- data --------------------------------------------------------------------------------------------------


def labelled_events(n=300, seed=0, missing=0.0, topology=TTBAR, truth=True):
    rng = np.random.default_rng(seed)
    counts = rng.integers(len(topology.slots), len(topology.slots) + 3, n)
    rows = [jets(int(count), 1, seed=1000 * seed + k)[0] for k, count in enumerate(counts)]
    flat = np.concatenate(rows)
    fields = dict(zip(("pt", "eta", "phi", "energy", "btag"), flat.T, strict=True))
    ragged = {name: ak.unflatten(values, counts) for name, values in fields.items()}
    labels = np.stack([rng.permutation(count)[: len(topology.slots)] for count in counts])
    labels = np.where(rng.random(labels.shape) < missing, -1, labels)
    return Events(make_jets(**ragged), topology, labels if truth else None)


def test_packed_events_are_the_events(tmp_path):
    events = labelled_events(missing=0.05)
    config = DataConfig(train_fraction=0.7, validation_fraction=0.2)
    train, validation = pack([events[:100], events[100:]], TTBAR, INPUTS, folder=tmp_path, config=config)
    full = events.complete
    assert len(train) == (events.in_split("train", (0.7, 0.2, 0.1)) & full).sum()
    some = events.present.any(axis=1)
    assert len(validation) == (events.in_split("validation", (0.7, 0.2, 0.1)) & some).sum()
    for (_, layout), group in train.groups.items():
        rows = group.ids[:, 1].astype(int)
        assert (events.n_jets[rows] == layout[0]).all()
        stored, _ = events[rows].dense("jet", INPUTS.columns("jet"))
        order = np.argsort(-stored[:, :, 0], axis=1)  # highest pT first, as everywhere
        np.testing.assert_array_equal(group.objects["jet"], np.take_along_axis(stored, order[..., None], axis=1))
        np.testing.assert_array_equal(np.take_along_axis(order, group.truth, axis=1), events.truth[rows])
    for which, kept in (("partial", some), ("all", np.ones(len(events), dtype=bool))):
        more, _ = pack([events], TTBAR, INPUTS, folder=tmp_path, config=replace(config, events=which))
        assert len(more) == (events.in_split("train", (0.7, 0.2, 0.1)) & kept).sum()


@pytest.mark.parametrize("terms", [EDGES, EVENT])
def test_weight_two_is_the_event_twice(terms):
    found, truth = output(TTBAR, 7, 3), truths(TTBAR, 7, 3)
    weights = np.array([2.0, 1.0, 1.0], np.float32) / np.float32(4 / 3)  # of mean 1
    twice = [0, 0, 1, 2]
    (name,) = terms
    batches = [
        batch_of(TTBAR, nodes(7, 3), truth, None, terms, weights=weights, tokens=False),
        batch_of(TTBAR, nodes(7, 4), truth[twice], None, terms, tokens=False),
    ]
    outputs = [found, {key: tensor[twice] for key, tensor in found.items()}]
    weighted, doubled = (
        batch.sums(None, given)[name] / batch.counts[name] for given, batch in zip(outputs, batches, strict=True)
    )
    torch.testing.assert_close(weighted, doubled)


def test_events_without_any_object_are_left_out(tmp_path):
    cuts = {"jets": {"pt": 0, "abs_eta": 10}, "event": {"jets": 0}}
    free = parse_topology({**TTBAR.to_dict(), "selection": cuts})
    events = labelled_events(topology=free)
    kept = np.arange(len(events)) % 2 == 0
    truth = np.where(kept[:, None], events.truth, -1)
    events = Events(events.jets[(events.jets.pt > 0) & kept], free, truth)
    train, _ = pack([events], free, INPUTS, folder=tmp_path, config=DataConfig(events="all"))
    assert len(train) == (events.in_split("train", DataConfig().fractions) & kept).sum()
    assert Key(0, (0,)) not in train.groups


def test_the_logarithm_of_an_input_is_measured_as_the_network_computes_it(tmp_path):
    events = labelled_events()
    rows = np.asarray(ak.num(events.jets))
    values = np.resize([-3.0, np.e - 1], rows.sum())  # below 0, the network takes log(1 + 0)
    given = ak.with_field(events.jets, ak.unflatten(values, rows), "width")
    raw = {"topology": "ttbar_allhad", "optimiser": {"steps": 1}}
    recipe = parse_recipe({**raw, "inputs": {"jet": [{"field": "width", "transform": "log_normalize"}]}})
    packed, _ = pack([Events(given, TTBAR, events.truth)], TTBAR, recipe.inputs, folder=tmp_path)
    (width,) = measured(recipe, packed).inputs["jet"]
    assert (width.offset, width.scale) == pytest.approx((0.5, 0.5), abs=0.05)


def test_files_with_harder_cuts_than_the_recipe_are_noticed(tmp_path, monkeypatch):
    events = labelled_events()
    raw = {"topology": "ttbar_allhad", "optimiser": {"steps": 1}}
    softest = float(ak.min(events.jets.pt))
    packed = {}
    for pt, abs_eta in ((softest, 2.1), (softest / 1.2, 2.1), (softest, 4.5)):
        selection = {"jets": {"pt": pt, "abs_eta": abs_eta}, "event": {"jets": 6}}
        recipe = parse_recipe({**raw, "selection": selection})
        packed[pt, abs_eta] = recipe, pack([events], recipe.topology, INPUTS, folder=tmp_path)[0]
    said = []
    for many in (100_000, 100):  # with few objects, none may be close to the cut
        monkeypatch.setattr(measuring, "MANY_OBJECTS", many)
        for recipe, train in packed.values():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                measured(recipe, train)
            said.append([str(one.message) for one in caught])
    assert [len(lines) for lines in said] == [0, 0, 0, 0, 1, 1]
    assert "set selection.jets.pt to the cut of the files" in said[4][0]
    assert "set selection.jets.abs_eta to the cut of the files" in said[5][0]


def test_packed_weights_have_the_mean_one_and_may_be_negative(tmp_path):
    events = labelled_events()
    weights = np.where(np.arange(len(events)) % 5 == 0, -3.0, 6.0)
    train, _ = pack([events.replace(weights=weights)], TTBAR, INPUTS, folder=tmp_path)
    assert train.mean_weight == pytest.approx(weights[events.in_split("train") & events.complete].mean())
    scaled = np.concatenate([train.weights(key, slice(None)) for key in train.groups])
    assert scaled.mean() == pytest.approx(1)
    assert scaled.min() < 0
    train, _ = pack([events.replace(weights=-weights)], TTBAR, INPUTS, folder=tmp_path)
    with pytest.raises(TrainingError, match="above 0"):
        train.weights(next(iter(train.groups)), slice(None))


def test_memory_mapped_equals_in_memory(tmp_path):
    signal = np.arange(300) % 2
    events = labelled_events().replace(columns={"EVENT/signal": signal})  # a slash, as in names of HDF5
    chunks = [events[start : start + 70] for start in range(0, 300, 70)]
    held, _ = pack([events], TTBAR, INPUTS, folder=tmp_path / "a", columns=("EVENT/signal",))
    mapped, _ = pack(chunks, TTBAR, INPUTS, folder=tmp_path / "b", memory=4000, columns=("EVENT/signal",))
    assert not (tmp_path / "a").exists()
    assert any(isinstance(group.objects["jet"].base, np.memmap) for group in mapped.groups.values())
    assert held.fingerprint == mapped.fingerprint
    for key, group in held.groups.items():
        others = mapped.groups[key].arrays()
        for name, array in group.arrays().items():
            np.testing.assert_array_equal(array, others[name])
        np.testing.assert_array_equal(group.columns["EVENT/signal"], signal[group.ids[:, 1].astype(int)])


@pytest.mark.parametrize("changed", ["objects", "truth", "weights"])
def test_the_fingerprint_is_that_of_all_content(tmp_path, changed):
    """The ids are the same: a file may be written again with other jets, labels or weights."""
    events = labelled_events().replace(weights=np.ones(300))
    truth, weights = events.truth.copy(), np.ones(300)
    row = int(np.flatnonzero(events.in_split("train"))[0])
    truth[row], weights[row] = truth[row][::-1], 2
    jets = ak.with_field(events.jets, events.jets.btag[:, ::-1], "btag")
    content = {"objects": {"jets": jets}, "truth": {"truth": truth}, "weights": {"weights": weights}}
    other = events.replace(**content[changed])
    one, two = (pack([each], TTBAR, INPUTS, folder=tmp_path)[0].fingerprint for each in (events, other))
    assert one != two


def test_normalised_inputs_keep_the_scales_that_the_first_weights_expect(tmp_path):
    settings = {"topology": "ttbar_allhad", "optimiser": {"steps": 1}}
    recipe = parse_recipe(settings | {"inputs": {"jet": [{"field": "btag", "transform": "normalize"}]}})
    train, _ = pack([labelled_events()], TTBAR, recipe.inputs, folder=tmp_path)
    first = measured(recipe, train)
    other, _ = pack([labelled_events(seed=1)], TTBAR, recipe.inputs, folder=tmp_path)
    assert measured(recipe, other).inputs != first.inputs
    assert measured(recipe, other, first.inputs).inputs == first.inputs
    plain = measured(recipe, other, INPUTS)  # weights that expect the field as it is are of another network
    assert plain == measured(recipe, other)


def test_every_event_once_per_epoch_in_batches_of_one_layout():
    plan = BatchPlan({Key(0, (6,)): 50, Key(0, (7, 1)): 33}, batch=16, seed=3)
    assert plan.steps_per_epoch == 4 + 3
    orders = []
    for epoch in range(2):
        drawn = list(plan.epoch(epoch))
        for key, count in plan.counts.items():
            rows = np.concatenate([batch.rows for batch in drawn if batch.key == key])
            np.testing.assert_array_equal(np.sort(rows), np.arange(count))
        orders.append([batch.rows.tolist() for batch in drawn])
    assert orders[0] != orders[1]
    again = BatchPlan({Key(0, (6,)): 50, Key(0, (7, 1)): 33}, batch=16, seed=3)
    np.testing.assert_array_equal(again.draw(9).rows, list(plan.epoch(1))[2].rows)  # whatever was drawn before
    assert (
        BatchPlan({Key(0, (6,)): 50, Key(0, (7, 1)): 33}, batch=16, seed=4).draw(0).rows.tolist() != orders[0][0]
    )


def test_topologies_are_balanced():
    """Per epoch, the root of the mean number over that of a topology; no event more than three times."""
    counts = {Key(0, (6,)): 1600, Key(1, (4,)): 100, Key(1, (5,)): 100, Key(2, (4,)): 6}
    used = dict.fromkeys(range(3), 0)
    plan = BatchPlan(counts, batch=32, seed=1, balance=True)
    for drawn in plan.epoch(0):
        assert (np.unique(drawn.rows, return_counts=True)[1] <= 3).all()
        used[drawn.key.tree] += len(drawn.rows)
    assert used == {0: round(1600 * (602 / 1600) ** 0.5), 1: 2 * round(100 * (602 / 200) ** 0.5), 2: 18}


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (labelled_events(20, truth=False), "no truth"),
        (labelled_events(8), "8 events were read, 8 of them .* give more data"),
        (labelled_events(30, missing=1.0), "30 events were read, 0 of them selected and complete"),
        (labelled_events(30, topology=HH4B), "of the topology hh4b, but the recipe is for ttbar_allhad"),
    ],
    ids=["no truth", "too few", "no labels", "wrong topology"],
)
def test_data_that_cannot_be_trained_on(events, message, tmp_path):
    with pytest.raises(TrainingError, match=message):
        pack([events], TTBAR, INPUTS, folder=tmp_path)
