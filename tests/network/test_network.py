"""Networks: symmetries that hold by construction, padding, features, sub-layers against slow transcriptions."""

import itertools

import numpy as np
import pytest
import torch

from pairton._common.configuration import configure
from pairton.errors import ConfigError
from pairton.events.inputs import Input, Inputs
from pairton.network import Network, NetworkConfig
from pairton.network.features import node_features, pair_features, transverse_part
from pairton.network.heads import Embedding, ThreeBodyPotential
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
from random_objects import TRIANGLES, random_nodes
from triangles import slow_attention, slow_multiplication

TTBAR, TTH, HH4B = (load_topology(name) for name in ("ttbar_allhad", "tth_allhad", "hh4b"))
BTAG = Inputs.default(TTBAR)["jet"]
THREE = parse_topology({"name": "three", "event": ["g", "g"], "particles": {"g": ["q", "q", "q"]}})
SEMI = parse_topology({
    "name": "semi", "event": ["t", "tl"], "objects": {"l": "lepton"}, "context": ["met"],
    "particles": {"t": ["W", "b"], "W": ["q", "q"], "tl": ["b", "l"]},
})  # fmt: skip
SMALL = {"blocks": 2, "single_width": 16, "single_heads": 2, "pair_width": 8, "pair_heads": 2}
NARROW = {"triplets": "potential", "potential_width": 6, "triangle_width": 4}
FORMS = {
    "paper": {},
    "paper_features_of_reference": {"pair_features": "reference", "triplets": "hyper"},
    "paper_both": {"edges_from": "both", "triplets": "potential", "triangle_width": 4},
    "object_sum": {"tokens": False, "triplets": "object_sum"},
    "hyper": {"tokens": False, "triplets": "hyper"},
    "symmetric": {"architecture": "symmetric", "edges_from": "both", "triplets": "potential"},
    "symmetric_pairs_alone": TRIANGLES | {"tokens": True, "triplets": "potential"},
    "symmetric_without_gates": TRIANGLES | {"tokens": True, "gates": False, **NARROW},
    "symmetric_attention_alone": {"architecture": "symmetric", "triangle_multiplication": False, "tokens": False},
    "objects_into_pairs": {"objects_into_pairs": True},
    "transformer": {"architecture": "transformer", "tokens": False},
    "biased_transformer": {"architecture": "biased_transformer", "edges_from": "both"},
}


def make(form, topology=TTBAR, inputs=None):
    torch.manual_seed(0)
    network = Network(topology, NetworkConfig(**(FORMS[form] | SMALL)), inputs).eval()
    with torch.no_grad():  # outputs that start at zero would hide mistakes
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def event(n_jets=7, topology=TTBAR, batch=3):
    """Objects by kind, and tokens."""
    layout = (6, 2, 1) if topology is SEMI else (n_jets,)
    objects = {kind: torch.tensor(v) for kind, v in random_nodes(topology, layout, batch, seed=1).values.items()}
    tokens = np.random.default_rng(1).integers(0, 3, (batch, len(topology.types), sum(layout), sum(layout)))
    return objects, torch.tensor(np.triu(tokens) + np.triu(tokens, 1).swapaxes(2, 3))


def masks_of(objects):
    return {kind: torch.ones(part.shape[:2], dtype=torch.bool) for kind, part in objects.items()}


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def at(output, index):
    """Rows of every node axis."""
    for axis in range(2, output.dim()):
        output = output.index_select(axis, index)
    return output


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


of_jets_and_of_all_kinds = pytest.mark.parametrize("topology", [TTBAR, SEMI], ids=lambda t: t.name)


@of_jets_and_of_all_kinds
def test_permuting_objects_of_a_kind_permutes_the_outputs(form, topology):
    network, (objects, tokens) = make(form, topology), event(topology=topology)
    orders = {kind: torch.randperm(part.shape[1]) for kind, part in objects.items()}
    starts = dict(zip(objects, np.cumsum([0, *(len(order) for order in orders.values())]).tolist(), strict=False))
    order = torch.cat([starts[kind] + orders[kind] for kind in objects])
    moved = {kind: part[:, orders[kind]] for kind, part in objects.items()}
    plain, found = network(objects, None, tokens), network(moved, None, at(tokens, order))
    assert plain.keys() == found.keys()
    for name, output in plain.items():
        assert output.std() > 1e-3
        close(found[name], at(output, order))


def test_the_order_of_the_mapping_does_not_matter(form):
    network, (objects, tokens) = make(form, SEMI), event(topology=SEMI)
    turned = dict(reversed(objects.items()))
    close(network(turned, None, tokens)["edges"], network(objects, None, tokens)["edges"])


@pytest.mark.parametrize(
    ("topology", "gone"),
    [(TTBAR, {"jet": [1, 4]}), (SEMI, {"jet": [1, 4], "lepton": [0]}), (SEMI, {"met": [0]})],
    ids=["ttbar", "semi", "no met"],
)
def test_a_mask_is_as_good_as_removing(form, topology, gone):
    network, (objects, tokens) = make(form, topology), event(topology=topology)
    masks = masks_of(objects)
    for kind, places in gone.items():
        masks[kind][:, places] = False
    there = torch.cat(list(masks.values()), dim=1)[0]
    kept = {kind: part[:, masks[kind][0]] for kind, part in objects.items()}
    plain = network(kept, None, at(tokens, there.nonzero()[:, 0]))
    rubbish = {kind: torch.where(masks[kind][..., None], part, 77.0) for kind, part in objects.items()}
    found, padding = network(rubbish, masks, tokens), (~there).nonzero()[:, 0]
    for name, output in plain.items():
        close(at(found[name], there.nonzero()[:, 0]), output)
        assert not found[name].index_select(2, padding).any()
        assert not found[name].index_select(-1, padding).any()
    full = network(objects, masks_of(objects), tokens)
    close(full["edges"], network(objects, None, tokens)["edges"])


def test_kinds_are_told_apart(form):
    inputs = Inputs.parse({"jet": []}, SEMI)
    network, (objects, _) = make(form, SEMI, inputs), event(topology=SEMI)
    objects["jet"] = objects["jet"][..., :4]
    objects["lepton"][:, 0] = objects["jet"][:, 0]
    edges = network(objects)["edges"]
    assert not torch.allclose(edges[:, :, 0, 2:6], edges[:, :, 6, 2:6], atol=1e-3)


def test_the_gradient_is_finite_in_the_padding_too(form):
    network, (objects, tokens) = make(form, SEMI), event(topology=SEMI)
    masks = masks_of(objects)
    for kind, part in objects.items():
        masks[kind][0, -1] = False
        part[0, -1] = 0
        part.requires_grad_()
    sum(output.sum() for output in network(objects, masks, tokens).values()).backward()
    for part in objects.values():
        assert torch.isfinite(part.grad).all()


@pytest.mark.parametrize("topology", [TTBAR, TTH, THREE], ids=lambda t: t.name)
def test_logits_are_symmetric(form, topology):
    network, (objects, tokens) = make(form, topology), event(9, topology)
    found = network(objects, None, tokens)
    assert found["edges"].shape == (3, len(topology.types), 9, 9)
    torch.testing.assert_close(found["edges"], found["edges"].transpose(2, 3), rtol=0, atol=0)
    if "triplets" in found:
        close(found["triplets"], found["triplets"].transpose(2, 3))
        if topology is THREE or network.config.triplets in ("object_sum", "hyper"):
            close(found["triplets"], found["triplets"].transpose(3, 4))
        else:  # the own jet is not one of the pair
            assert not torch.allclose(found["triplets"], found["triplets"].transpose(3, 4))


def test_tokens_matter_only_where_they_are_an_input(form):
    network, (objects, tokens) = make(form), event()
    same = torch.equal(network(objects, None, tokens)["edges"], network(objects)["edges"])
    assert same != network.config.tokens


def test_no_tokens_are_all_masked():
    network, (objects, tokens) = make("symmetric"), event()
    close(network(objects)["edges"], network(objects, None, torch.full_like(tokens, 2))["edges"])


@pytest.mark.parametrize("head", ["object_sum", "hyper"])
def test_scores_of_triplets_stand_for_the_edges_of_their_type(head):
    found = make(head)(event()[0])
    assert found["edges"][:, TTBAR.type_index("W")].any()
    assert not found["edges"][:, TTBAR.type_index("t")].any()


def test_the_paper_model_has_its_size():
    count = sum(p.numel() for p in Network(TTBAR, NetworkConfig()).parameters())
    assert 1.15e6 <= count <= 1.30e6


def test_tags_reach_the_pairs_of_ordered_networks_only_by_objects_into_pairs():
    objects, tokens = event()
    tagged = {"jet": objects["jet"].clone()}
    tagged["jet"][..., 4] = 1 - tagged["jet"][..., 4]
    for reached in (False, True):
        settings = {**SMALL, "edges_from": "pair", "single_stream": False, "objects_into_pairs": reached}
        torch.manual_seed(0)
        network = Network(TTBAR, NetworkConfig(**settings)).eval()
        same = torch.equal(*(network(given, None, tokens)["edges"] for given in (objects, tagged)))
        assert same != reached


@pytest.mark.parametrize("n_nodes", [1, 2, 3, 6])
@torch.no_grad()
def test_potential_against_loops(n_nodes):
    torch.manual_seed(0)
    width, index = 5, PairIndex()
    head = ThreeBodyPotential((False, True), width, 3)
    for out in head.outs:
        torch.nn.init.normal_(out.weight)
    pairs = torch.randn(2, n_nodes * (n_nodes + 1) // 2, width)
    found = head(Embedding(torch.zeros(2, n_nodes, 1), pairs, None, index))
    z = torch.nn.functional.silu(index.unpack(pairs, n_nodes))
    expected = torch.zeros(2, 2, n_nodes, n_nodes, n_nodes)
    for i, j, third in itertools.permutations(range(n_nodes), 3):
        for k, (project, out) in enumerate(zip(head.sides, head.outs, strict=True)):
            pair, side = project(z[:, i, j])[:, :3], project(z)[..., -3:]
            total = pair + side[:, i, third] + side[:, j, third]
            expected[:, k, i, j, third] = out(torch.nn.functional.silu(total))[:, 0]
    close(found, expected)


def test_potential_starts_at_zero():
    network = Network(TTBAR, NetworkConfig(**SMALL, triplets="potential"))
    assert not network(event()[0])["triplets"].any()


def test_dropout_acts_in_training_only():
    network, (objects, _) = make("paper"), event()
    close(network(objects)["edges"], network(objects)["edges"])
    network.train()
    assert not torch.allclose(network(objects)["edges"], network(objects)["edges"])


@of_jets_and_of_all_kinds
@pytest.mark.parametrize("form", ["symmetric", "symmetric_without_gates"])
def test_an_event_turned_about_the_beam_or_reflected_is_the_same_to_a_symmetric_network(form, topology):
    network, (objects, tokens) = make(form, topology), event(topology=topology)
    turned = {kind: part.clone() for kind, part in objects.items()}
    for part in turned.values():
        part[..., 2] = torch.remainder(part[..., 2] + 2.0 + np.pi, 2 * np.pi) - np.pi
        part[..., 1] *= -1
    close(network(turned, None, tokens)["edges"], network(objects, None, tokens)["edges"])


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
        "symmetric": [1, -dphi, distance, np.cos(dphi), mass, np.log(50 * 80) - 9, np.log(80 / 50), momentum],
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


# -- transverse pairs --------------------------------------------------------------------------------------


def along_the_beam(momenta, eta):
    """The same pT, phi and mass at another eta."""
    pt, old, phi, energy = momenta.double().unbind(dim=-1)
    square = energy**2 - (pt * torch.cosh(old)) ** 2
    eta = torch.full_like(pt, eta)
    energy = torch.sqrt((pt * torch.cosh(eta)) ** 2 + square)
    return torch.stack([pt, eta, phi, energy], dim=-1).float()


@pytest.mark.parametrize("form", ["paper_both", "paper_features_of_reference", "symmetric"])
def test_pairs_with_missing_energy_do_not_depend_on_eta(form):
    network, (objects, _) = make(form, SEMI), event(topology=SEMI)
    jets, met = objects["jet"][..., :4], objects["met"].expand(-1, 6, -1)
    moved = along_the_beam(jets, 1.3)
    kinds = {kind: torch.full((6,), k) for k, kind in enumerate(SEMI.kinds)}

    def features(first, second, one, two):
        return network._pair_features(first, second, kinds[one], kinds[two])

    close(features(jets, met, "jet", "met"), features(moved, met, "jet", "met"))
    close(features(met, jets, "met", "jet"), features(met, moved, "met", "jet"))
    close(features(jets, along_the_beam(met, 2.0), "jet", "met"), features(jets, met, "jet", "met"))
    others = jets.roll(1, dims=1)
    plain = features(jets, others, "jet", "lepton")
    assert not torch.allclose(plain, features(moved, others, "jet", "lepton"), atol=0.1)
    torch.testing.assert_close(plain, pair_features(jets, others, network.features), rtol=0, atol=0)


def test_transverse_mass_by_hand():
    # massless lepton of 40 GeV and missing energy of 60 GeV: mT^2 = 2 pT pT (1 - cos dphi)
    lepton = torch.tensor([40.0, 1.5, 0.3, 40.0 * np.cosh(1.5)], dtype=torch.float32)
    met = torch.tensor([60.0, 0.0, -2.0, 60.0])
    features = pair_features(transverse_part(lepton), transverse_part(met), "symmetric")
    mass = 0.5 * np.log(2 * 40 * 60 * (1 - np.cos(2.3))) - 4.5
    close(features[[0, 1, 2, 4]], torch.tensor([0.0, 2.3, 2.3, mass], dtype=torch.float32))
    jet = torch.tensor([30.0, -2.0, 1.0, np.hypot(30 * np.cosh(2.0), 12.0)], dtype=torch.float32)
    close(transverse_part(jet), torch.tensor([30.0, 0.0, 1.0, np.hypot(30, 12)], dtype=torch.float32))


# -- further inputs ----------------------------------------------------------------------------------------


def test_inputs_are_transformed_inside_the_network():
    raw = {"lepton": ["charge", {"field": "isolation", "transform": "log", "offset": 0.5, "scale": 2.0}]}
    inputs = Inputs.parse(raw, SEMI)
    assert inputs.columns("lepton") == ("pt", "eta", "phi", "energy", "charge", "isolation")
    assert inputs.columns("met") == ("pt", "eta", "phi", "energy")
    lepton = torch.tensor([40.0, 0.2, 0.1, 41.0, -1.0, 3.0])
    found = node_features(lepton, "paper", inputs["lepton"])
    close(found[5:], torch.tensor([-1.0, (np.log(4.0) - 0.5) / 2], dtype=torch.float32))
    assert torch.isfinite(node_features(torch.full((6,), -5.0), "paper", inputs["lepton"])).all()  # padding

    plain = Inputs.parse({"lepton": ["charge", "isolation"]}, SEMI)
    one, other = make("symmetric", SEMI, inputs), make("symmetric", SEMI, plain)  # the same weights
    objects, tokens = event(topology=SEMI)
    further = torch.tensor([[1.0, 0.3], [-1.0, 7.0]]).expand(3, 2, 2)
    with_raw = objects | {"lepton": torch.cat([objects["lepton"], further], dim=-1)}
    done = torch.stack([further[..., 0], (torch.log1p(further[..., 1]) - 0.5) / 2], dim=-1)
    with_done = objects | {"lepton": torch.cat([objects["lepton"], done], dim=-1)}
    close(one(with_raw, None, tokens)["edges"], other(with_done, None, tokens)["edges"])
    assert not torch.allclose(one(with_raw, None, tokens)["edges"], other(with_raw, None, tokens)["edges"])
    assert Inputs.parse(inputs.to_dict(), SEMI) == inputs
    assert inputs["lepton"][1] == Input("isolation", "log", 0.5, 2.0)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"electron": ["charge"]}, "no setting 'electron'; did you mean 'lepton'"),
        ({"lepton": "charge"}, "must be a list"),
        ({"lepton": ["pt"]}, "lists pt, which is an input already"),
        ({"lepton": [{"field": "iso", "transform": "sqrt"}]}, "transform is 'sqrt', but must be one of none, log"),
        ({"lepton": [{"field": "iso", "scale": 0}]}, "scale 0"),
        ({"lepton": [{"field": "iso", "offest": 1}]}, "no setting 'offest'; did you mean 'offset'"),
    ],
)
def test_bad_inputs(raw, message):
    with pytest.raises(ConfigError, match=message):
        Inputs.parse(raw, SEMI)


def test_heads_of_a_config_are_a_tuple_of_words():
    assert configure(NetworkConfig, {"heads": ["mine"]}, "network").heads == ("mine",)
    for wrong in ("mine", [1], None):
        with pytest.raises(ConfigError, match=r"network.heads.* is .* must be a (list of words|word)"):
            configure(NetworkConfig, {"heads": wrong}, "network")


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
def test_symmetric_triangle_layers_against_loops():
    torch.manual_seed(0)
    n, width, heads = 4, 6, 2
    index, z = PairIndex(), torch.randn(1, 10, width)
    low, high = index.pairs(n)

    def matrix(packed):
        return index.unpack(packed[None], n)[0]

    layer = SymmetricTriangleMultiplication(width, width)
    *sides, gate = layer.sides_and_gate(layer.norm(z))[0].chunk(5, dim=-1)
    a, c = (matrix(side * torch.sigmoid(own)) for side, own in zip(sides[:2], sides[2:], strict=True))
    total = slow_multiplication(a, c, True) + slow_multiplication(c, a, True)
    expected = layer.out(layer.norm_out(total[low, high])) * torch.sigmoid(gate)
    close(layer(z, index, n, None)[0], expected)

    layer = SymmetricTriangleAttention(width, heads)
    h = layer.norm(z)[0]
    *parts, gate = layer.query_key_value_gate(h).chunk(4, dim=-1)
    mixed = slow_attention(*map(matrix, parts), matrix(layer.bias(h)), True)
    expected = layer.out((mixed + mixed.transpose(0, 1))[low, high] * torch.sigmoid(gate))
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
@pytest.mark.parametrize("direction", ["outgoing", "incoming"])
def test_triangle_layers_against_loops(direction):
    torch.manual_seed(0)
    n, width, heads = 4, 6, 2
    z, outgoing = torch.randn(1, n, n, width), direction == "outgoing"
    layer = TriangleMultiplication(width, width, direction)
    h = layer.norm(z)[0]
    value, gate = layer.sides(h).chunk(2, dim=-1)
    product = slow_multiplication(*(value * torch.sigmoid(gate)).chunk(2, dim=-1), outgoing)
    close(layer(z, None)[0], layer.out(layer.norm_out(product)) * torch.sigmoid(layer.gate(h)))

    layer = TriangleAttention(width, heads, direction)
    h = layer.norm(z)[0]
    *parts, gate = layer.query_key_value_gate(h).chunk(4, dim=-1)
    mixed = slow_attention(*parts, layer.bias(h), outgoing)
    close(layer(z, None)[0], layer.out(mixed * torch.sigmoid(gate)))


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bloks": 3}, "no setting 'bloks'; did you mean 'blocks'"),
        ({"blocks": "three"}, "network.blocks is 'three', but must be a whole number"),
        ({"blocks": 0}, "at least 1 and at most 4096"),
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
