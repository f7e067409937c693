"""Networks: symmetries that hold by construction, padding, size, and sub-layers against slow transcriptions."""

import itertools

import numpy as np
import pytest
import torch

from pairton._common.configuration import configure
from pairton.errors import ConfigError
from pairton.events.inputs import Inputs
from pairton.network import Network, NetworkConfig
from pairton.network.features import node_features, pair_features
from pairton.network.trunks import PairIndex
from pairton.network.trunks.pairformer import TriangleAttention, TriangleMultiplication
from pairton.network.trunks.symmetric import (
    SymmetricTriangleAttention,
    SymmetricTriangleMultiplication,
    triangle_product,
    triangle_product_in_graph,
    triangle_product_on_cpu,
)
from pairton.topology import load_topology, parse_topology

TTBAR, TTH, HH4B = (load_topology(name) for name in ("ttbar_allhad", "tth_allhad", "hh4b"))
BTAG = Inputs.default(TTBAR)["jet"]
THREE = parse_topology({"name": "three", "event": ["g", "g"], "particles": {"g": ["q", "q", "q"]}})
SMALL = {"blocks": 2, "single_width": 16, "single_heads": 2, "pair_width": 8, "pair_heads": 2}
FORMS = {
    "paper": {},
    "paper_features_of_reference": {"pair_features": "reference"},
    "paper_both": {"edges_from": "both", "triplets": "potential"},
    "object_sum": {"tokens": False, "triplets": "object_sum"},
    "hyper": {"tokens": False, "triplets": "hyper"},
    "symmetric": {"architecture": "symmetric", "edges_from": "both", "triplets": "potential"},
    "symmetric_pairs_alone": {
        "architecture": "symmetric", "single_stream": False, "triangle_attention": False, "edges_from": "pair",
        "triplets": "potential",
    },
    "symmetric_without_gates": {
        "architecture": "symmetric", "single_stream": False, "triangle_attention": False, "edges_from": "pair",
        "gates": False, "triplets": "potential",
    },
    "symmetric_attention_alone": {"architecture": "symmetric", "triangle_multiplication": False, "tokens": False},
    "objects_into_pairs": {"objects_into_pairs": True},
    "transformer": {"architecture": "transformer", "tokens": False},
    "biased_transformer": {"architecture": "biased_transformer", "edges_from": "both"},
}  # fmt: skip


def make(form, topology=TTBAR, seed=0):
    torch.manual_seed(seed)
    network = Network(topology, NetworkConfig(**(SMALL | FORMS[form]))).eval()
    with torch.no_grad():  # outputs that start at zero would hide mistakes
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def event(n_jets=7, batch=3, seed=1, topology=TTBAR):
    rng = np.random.default_rng(seed)
    shape = (batch, n_jets)
    pt, eta, phi = rng.uniform(30, 200, shape), rng.normal(size=shape), rng.uniform(-3, 3, shape)
    energy = pt * np.cosh(eta) + 5
    jets = np.stack([pt, eta, phi, energy, rng.integers(0, 2, (batch, n_jets))], axis=-1)
    tokens = rng.integers(0, 3, (batch, len(topology.types), n_jets, n_jets))
    tokens = np.triu(tokens) + np.triu(tokens, 1).swapaxes(2, 3)
    return torch.tensor(jets, dtype=torch.float32), torch.tensor(tokens)


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


def test_permuting_jets_permutes_logits(form):
    network, (jets, tokens) = make(form), event()
    order = torch.tensor([4, 2, 6, 0, 1, 5, 3])
    plain = network({"jet": jets}, None, tokens)
    moved = network({"jet": jets[:, order]}, None, tokens[:, :, order][:, :, :, order])
    close(moved["edges"], plain["edges"][:, :, order][:, :, :, order])
    if "triplets" in plain:
        close(moved["triplets"], plain["triplets"][:, :, order][:, :, :, order][:, :, :, :, order])


def test_padding_changes_nothing(form):
    network, (jets, tokens) = make(form), event()
    plain = network({"jet": jets}, None, tokens)
    padded = torch.cat([jets, torch.full((3, 2, 5), 77.0)], dim=1)  # rubbish, to be ignored
    wide = torch.full((3, 2, 9, 9), 2)
    wide[:, :, :7, :7] = tokens
    mask = torch.arange(9).expand(3, 9) < 7
    found = network({"jet": padded}, {"jet": mask}, wide)
    close(found["edges"][:, :, :7, :7], plain["edges"])
    assert not found["edges"][:, :, 7:].any()
    close(network({"jet": jets}, {"jet": mask[:, :7]}, tokens)["edges"], plain["edges"])
    if "triplets" in plain:
        close(found["triplets"][:, :, :7, :7, :7], plain["triplets"])
        assert not found["triplets"][:, :, :, :, 7:].any()


@pytest.mark.parametrize("topology", [TTBAR, TTH, THREE], ids=lambda t: t.name)
def test_logits_are_symmetric(form, topology):
    network, (jets, tokens) = make(form, topology), event(9, topology=topology)
    found = network({"jet": jets}, None, tokens)
    assert found["edges"].shape == (3, len(topology.types), 9, 9)
    torch.testing.assert_close(found["edges"], found["edges"].transpose(2, 3), rtol=0, atol=0)
    if "triplets" in found:
        close(found["triplets"], found["triplets"].transpose(2, 3))
        if topology is THREE or form in ("object_sum", "hyper"):
            close(found["triplets"], found["triplets"].transpose(3, 4))
        else:  # the own jet is not one of the pair
            assert not torch.allclose(found["triplets"], found["triplets"].transpose(3, 4))


def test_tokens_matter_only_where_they_are_an_input(form):
    network, (jets, tokens) = make(form), event()
    same = torch.equal(network({"jet": jets}, None, tokens)["edges"], network({"jet": jets})["edges"])
    assert same != network.config.tokens


def test_no_tokens_are_all_masked():
    network, (jets, tokens) = make("symmetric"), event()
    close(network({"jet": jets})["edges"], network({"jet": jets}, None, torch.full_like(tokens, 2))["edges"])


@pytest.mark.parametrize("head", ["object_sum", "hyper"])
def test_scores_of_triplets_stand_for_the_edges_of_their_type(head):
    found = make(head)({"jet": event()[0]})
    assert found["edges"][:, TTBAR.type_index("W")].any()
    assert not found["edges"][:, TTBAR.type_index("t")].any()


def test_the_paper_model_has_its_size():
    count = sum(p.numel() for p in Network(TTBAR, NetworkConfig()).parameters())
    assert 1.15e6 <= count <= 1.30e6


def test_tags_reach_the_pairs_of_ordered_networks_only_by_objects_into_pairs():
    jets, tokens = event()
    tagged = jets.clone()
    tagged[..., 4] = 1 - tagged[..., 4]
    for reached in (False, True):
        settings = {**SMALL, "edges_from": "pair", "single_stream": False, "objects_into_pairs": reached}
        torch.manual_seed(0)
        network = Network(TTBAR, NetworkConfig(**settings)).eval()
        same = torch.equal(*(network({"jet": given}, None, tokens)["edges"] for given in (jets, tagged)))
        assert same != reached


def test_potential_starts_at_zero():
    network = Network(TTBAR, NetworkConfig(**SMALL, triplets="potential"))
    assert not network({"jet": event()[0]})["triplets"].any()


def test_dropout_acts_in_training_only():
    network, (jets, _) = make("paper"), event()
    close(network({"jet": jets})["edges"], network({"jet": jets})["edges"])
    network.train()
    assert not torch.allclose(network({"jet": jets})["edges"], network({"jet": jets})["edges"])


@pytest.mark.parametrize("form", ["symmetric", "symmetric_without_gates"])
def test_an_event_turned_about_the_beam_or_reflected_is_the_same_to_a_symmetric_network(form):
    network, (jets, tokens) = make(form), event()
    turned = jets.clone()
    turned[..., 2] = torch.remainder(turned[..., 2] + 2.0 + np.pi, 2 * np.pi) - np.pi
    turned[..., 1] *= -1
    close(network({"jet": turned}, None, tokens)["edges"], network({"jet": jets}, None, tokens)["edges"])


# -- features ----------------------------------------------------------------------------------------------


def test_jet_features_by_hand():
    jet = torch.tensor([np.e**4, 0.5, np.pi / 2, np.e**5, 1.0], dtype=torch.float32)
    close(node_features(jet, "paper", BTAG), torch.tensor([0.5, -0.5, 0.5, 0.0, 1.0, 1.0]))
    jet[1] = -0.5
    close(node_features(jet, "symmetric", BTAG), torch.tensor([0.5, -0.5, 0.5, 1.0]))


@pytest.mark.parametrize("kind", ["paper", "symmetric"])
def test_pair_features_by_hand(kind):
    # two massless jets of 50 and 80 GeV at eta 0 and 1, across phi = pi: m^2 = 2 pT pT (cosh deta - cos dphi)
    one = torch.tensor([50.0, 0.0, 3.0, 50.0, 0.0])
    two = torch.tensor([80.0, 1.0, -3.0, 80.0 * np.cosh(1.0), 0.0], dtype=torch.float32)
    dphi = 6.0 - 2 * np.pi  # wrapped
    mass = 0.5 * np.log(2 * 50 * 80 * (np.cosh(1.0) - np.cos(dphi))) - 4.5
    momentum = np.log(np.hypot(50 + 80 * np.cos(dphi), 80 * np.sin(dphi))) - 4.5
    distance = np.hypot(1.0, dphi)
    sine, cosine = np.sin(3.0) - np.sin(-3.0), 0.0
    expected = {
        "paper": [-1.0, dphi, sine, cosine, distance, mass],
        "symmetric": [
            1.0,
            -dphi,
            distance,
            np.cos(dphi),
            mass,
            np.log(50.0 * 80.0) - 9,
            np.log(80 / 50),
            momentum,
        ],
    }[kind]
    close(pair_features(one[:4], two[:4], kind), torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("kind", ["paper", "reference", "symmetric"])
def test_features_of_one_jet_with_itself_and_of_padding_are_finite_with_their_gradient(kind):
    jets = torch.tensor([[60.0, 0.1, 0.2, 61.0, 1.0], [0.0] * 5], requires_grad=True)
    total = pair_features(jets[:, None, :4], jets[None, :, :4], kind).sum()
    total = total + node_features(jets, kind, BTAG).sum()
    (gradient,) = torch.autograd.grad(total, jets)
    assert torch.isfinite(total)
    assert torch.isfinite(gradient).all()


# -- sub-layers against loops ------------------------------------------------------------------------------


def packed_position(i, j):
    return max(i, j) * (max(i, j) + 1) // 2 + min(i, j)


def test_packed_layout():
    index, n = PairIndex(), 5
    low, high = index.pairs(n)
    assert [packed_position(i, j) for i, j in zip(low.tolist(), high.tolist(), strict=True)] == list(range(15))
    matrix = torch.randn(2, n, n, 3)
    close(index.unpack(index.fold(matrix), n), matrix + matrix.transpose(1, 2))
    symmetric = matrix + matrix.transpose(1, 2)
    close(index.unpack(index.pack(symmetric), n), symmetric)


@torch.no_grad()
def test_symmetric_triangle_multiplication_against_loops():
    torch.manual_seed(0)
    n, width = 4, 6
    layer, index = SymmetricTriangleMultiplication(width), PairIndex()
    z = torch.randn(1, 10, width)
    h = layer.sides_and_gate(layer.norm(z))[0]
    a, c = (
        h[:, k * width : (k + 1) * width] * torch.sigmoid(h[:, (k + 2) * width : (k + 3) * width]) for k in (0, 1)
    )
    gate = torch.sigmoid(h[:, 4 * width :])
    at = packed_position
    expected = torch.zeros(10, width)
    for j in range(n):
        for i in range(j + 1):
            t = sum(a[at(i, k)] * c[at(j, k)] + c[at(i, k)] * a[at(j, k)] for k in range(n))
            expected[at(i, j)] = layer.out(layer.norm_out(t)) * gate[at(i, j)]
    close(layer(z, index, n, None)[0], expected)


def test_fast_triangle_product_equals_the_reference():
    torch.manual_seed(0)
    index, n = PairIndex(), 7
    results = []
    for product in (triangle_product, triangle_product_on_cpu, triangle_product_in_graph):
        sides = torch.randn(3, 28, 10, generator=torch.Generator().manual_seed(1)).requires_grad_()
        t = product(sides, index, n)
        (t * torch.linspace(-1, 1, t.numel()).reshape(t.shape)).sum().backward()
        results.append((t.detach(), sides.grad))
    for values, gradient in results[1:]:
        close(values, results[0][0])
        close(gradient, results[0][1])


@torch.no_grad()
def test_symmetric_triangle_attention_against_loops():
    torch.manual_seed(0)
    n, width, heads = 4, 6, 2
    layer, index = SymmetricTriangleAttention(width, heads), PairIndex()
    z = torch.randn(1, 10, width)
    h = layer.norm(z)[0]
    query, key, value, gate = layer.query_key_value_gate(h).chunk(4, dim=-1)
    bias, size, at = layer.bias(h), width // heads, packed_position

    def at_node(i, j, head):
        part = slice(head * size, (head + 1) * size)
        logits = torch.stack(
            [query[at(i, j), part] @ key[at(i, k), part] * size**-0.5 + bias[at(j, k), head] for k in range(n)]
        )
        values = torch.stack([value[at(i, k), part] for k in range(n)])
        return torch.softmax(logits, 0) @ values

    expected = torch.zeros(10, width)
    for j in range(n):
        for i in range(j + 1):
            mixed = torch.cat([at_node(i, j, head) + at_node(j, i, head) for head in range(heads)])
            expected[at(i, j)] = layer.out(mixed * torch.sigmoid(gate[at(i, j)]))
    close(layer(z, index, n, None)[0], expected)


@torch.no_grad()
@pytest.mark.parametrize("direction", ["outgoing", "incoming"])
def test_triangle_layers_against_loops(direction):
    torch.manual_seed(0)
    n, width, heads, size = 4, 6, 2, 3
    z = torch.randn(1, n, n, width)
    outgoing = direction == "outgoing"
    layer = TriangleMultiplication(width, direction)
    h = layer.norm(z)[0]
    value, gate = layer.sides(h).chunk(2, dim=-1)
    a, b = (value * torch.sigmoid(gate)).chunk(2, dim=-1)
    for i, j in itertools.product(range(n), repeat=2):
        t = sum(a[i, k] * b[j, k] if outgoing else a[k, i] * b[k, j] for k in range(n))
        close(layer(z, None)[0, i, j], layer.out(layer.norm_out(t)) * torch.sigmoid(layer.gate(h[i, j])))

    layer = TriangleAttention(width, heads, direction)
    h = layer.norm(z)[0]
    query, key, value, gate = layer.query_key_value_gate(h).chunk(4, dim=-1)
    bias = layer.bias(h)
    found = layer(z, None)[0]
    for i, j in itertools.product(range(n), repeat=2):
        mixed = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            # starting: edges ik, third side jk; ending: edges kj, third side ki
            others = [((i, k), (j, k)) if outgoing else ((k, j), (k, i)) for k in range(n)]
            logits = torch.stack(
                [query[i, j, part] @ key[*edge][part] * size**-0.5 + bias[*third][head] for edge, third in others]
            )
            mixed.append(torch.softmax(logits, 0) @ torch.stack([value[*edge][part] for edge, _ in others]))
        close(found[i, j], layer.out(torch.cat(mixed) * torch.sigmoid(gate[i, j])))


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bloks": 3}, "no setting 'bloks'; did you mean 'blocks'"),
        ({"blocks": "three"}, "network.blocks is 'three', but must be a whole number"),
        ({"blocks": 0}, "must be 1 to 4096"),
        ({"tokens": 1}, "must be true or false"),
        ({"single_width": 100}, "multiple of single_heads, 8"),
        ({"dropout": 1.5}, "below 1"),
        ({"architecture": "transformer"}, "set tokens: false"),
        ({"single_stream": False}, "edges_from: pair"),
        ({"architecture": "simmetric"}, "did you mean 'symmetric'"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        configure(NetworkConfig, settings, "network")


def test_a_topology_without_triplets_has_no_potential():
    with pytest.raises(ConfigError, match="hh4b has no particle of three objects"):
        Network(HH4B, NetworkConfig(triplets="potential"))


def test_too_many_jets():
    with pytest.raises(ConfigError, match="33 objects: networks take up to 32"):
        make("symmetric")({"jet": torch.ones(1, 33, 5)})


def test_masses_survive_single_precision():
    """Jets of 5 GeV at hundreds: E^2 - p^2 in float32 would keep three digits of the mass."""
    rng = np.random.default_rng(0)
    pt, eta, phi, mass = rng.uniform(25, 400, 40), rng.normal(0, 1.2, 40), rng.uniform(-np.pi, np.pi, 40), 5.0
    energy = np.sqrt((pt * np.cosh(eta)) ** 2 + mass**2)
    jets = np.stack([pt, eta, phi, energy, 0 * pt], axis=1).astype(np.float32)
    pt, eta, phi, energy, _ = jets.astype(np.float64).T
    p4 = np.stack([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), energy], axis=1)
    total = p4[:, None] + p4[None]
    wanted = 0.5 * np.log(np.maximum(total[..., 3] ** 2 - (total[..., :3] ** 2).sum(axis=2), 1)) - 4.5
    found = pair_features(torch.from_numpy(jets[:, None, :4]), torch.from_numpy(jets[None, :, :4]), "symmetric")[
        ..., 4
    ]
    np.testing.assert_allclose(found.numpy(), wanted, atol=3e-6)
