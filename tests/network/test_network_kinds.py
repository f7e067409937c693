"""Networks of several kinds of objects: symmetries, padding, transverse pairs, and further inputs."""

import numpy as np
import pytest
import torch

from pairton._common.configuration import configure
from pairton.errors import ConfigError
from pairton.events.inputs import Input, Inputs
from pairton.network import Network, NetworkConfig
from pairton.network.features import node_features, pair_features, transverse_part
from pairton.topology import parse_topology

SEMI = parse_topology(
    {
        "name": "semi",
        "event": ["t", "tl"],
        "particles": {"t": ["W", "b"], "W": ["q", "q"], "tl": ["b", "l"]},
        "objects": {"l": "lepton"},
        "context": ["met"],
    }
)
SMALL = {"blocks": 2, "single_width": 16, "single_heads": 2, "pair_width": 8, "pair_heads": 2}
FORMS = {
    "paper": {"edges_from": "both", "triplets": "potential"},
    "reference": {"pair_features": "reference", "triplets": "hyper"},
    "symmetric": {"architecture": "symmetric", "edges_from": "both", "triplets": "potential"},
    "pairs_alone": {
        "architecture": "symmetric", "single_stream": False, "triangle_attention": False, "edges_from": "pair",
    },
    "transformer": {"architecture": "transformer", "tokens": False},
    "biased_transformer": {"architecture": "biased_transformer", "edges_from": "both"},
}  # fmt: skip
COUNTS = {"jet": 6, "lepton": 2, "met": 1}


def make(form, inputs=None):
    torch.manual_seed(0)
    network = Network(SEMI, NetworkConfig(**(SMALL | FORMS[form])), inputs).eval()
    with torch.no_grad():  # outputs that start at zero would hide mistakes
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def event(batch=3, seed=1):
    rng = np.random.default_rng(seed)
    objects = {}
    for kind, count in COUNTS.items():
        shape = (batch, count)
        pt, eta, phi = rng.uniform(30, 200, shape), rng.normal(size=shape), rng.uniform(-3, 3, shape)
        eta *= kind != "met"
        columns = [pt, eta, phi, np.hypot(pt * np.cosh(eta), 5.0)]
        columns += [rng.integers(0, 2, shape)] if kind == "jet" else []
        objects[kind] = torch.tensor(np.stack(columns, axis=-1), dtype=torch.float32)
    tokens = rng.integers(0, 3, (batch, len(SEMI.types), 9, 9))
    return objects, torch.tensor(np.triu(tokens) + np.triu(tokens, 1).swapaxes(2, 3))


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


def test_permuting_objects_of_a_kind_permutes_the_outputs(form):
    network, (objects, tokens) = make(form), event()
    order = torch.tensor([3, 1, 5, 0, 2, 4, 7, 6, 8])  # jets, leptons, missing energy
    moved = {
        "jet": objects["jet"][:, order[:6]],
        "lepton": objects["lepton"][:, order[6:8] - 6],
        "met": objects["met"],
    }
    plain, found = network(objects, None, tokens), network(moved, None, at(tokens, order))
    assert plain.keys() == found.keys()
    for name, output in plain.items():
        assert output.std() > 1e-3
        close(found[name], at(output, order))


def test_the_order_of_the_mapping_does_not_matter(form):
    network, (objects, tokens) = make(form), event()
    turned = dict(reversed(objects.items()))
    close(network(turned, None, tokens)["edges"], network(objects, None, tokens)["edges"])


def test_a_mask_is_as_good_as_removing(form):
    network, (objects, tokens) = make(form), event()
    masks = {kind: torch.ones(3, count, dtype=torch.bool) for kind, count in COUNTS.items()}
    masks["jet"][:, [1, 4]] = False
    masks["lepton"][:, 0] = False
    there = torch.nonzero(torch.cat(list(masks.values()), dim=1)[0])[:, 0]
    kept = {kind: part[:, masks[kind][0]] for kind, part in objects.items()}
    plain = network(kept, None, at(tokens, there))
    rubbish = {kind: torch.where(masks[kind][..., None], part, 77.0) for kind, part in objects.items()}
    found = network(rubbish, masks, tokens)
    gone = torch.tensor([1, 4, 6])
    for name, output in plain.items():
        close(at(found[name], there), output)
        assert not found[name].index_select(2, gone).any()
        assert not found[name].index_select(-1, gone).any()


def test_a_kind_may_be_absent(form):
    network, (objects, tokens) = make(form), event()
    without = objects | {"met": objects["met"][:, :0]}
    masks = {kind: torch.ones(part.shape[:2], dtype=torch.bool) for kind, part in objects.items()}
    masks["met"][:] = False
    plain = network(without, None, tokens[:, :, :8, :8])
    for name, output in plain.items():
        close(at(network(objects, masks, tokens)[name], torch.arange(8)), output)


def test_kinds_are_told_apart(form):
    inputs = Inputs.parse({"jet": []}, SEMI)
    network, (objects, _) = make(form, inputs), event()
    objects["jet"] = objects["jet"][..., :4]
    objects["lepton"][:, 0] = objects["jet"][:, 0]
    edges = network(objects)["edges"]
    assert not torch.allclose(edges[:, :, 0, 2:6], edges[:, :, 6, 2:6], atol=1e-3)


def test_an_event_turned_about_the_beam_or_reflected_is_the_same_to_a_symmetric_network():
    network, (objects, tokens) = make("symmetric"), event()
    turned = {kind: part.clone() for kind, part in objects.items()}
    for part in turned.values():
        part[..., 2] = torch.remainder(part[..., 2] + 2.0 + np.pi, 2 * np.pi) - np.pi
        part[..., 1] *= -1
    close(network(turned, None, tokens)["edges"], network(objects, None, tokens)["edges"])


# -- transverse pairs --------------------------------------------------------------------------------------


def along_the_beam(momenta, eta):
    """The same pT, phi and mass at another eta."""
    pt, old, phi, energy = momenta.double().unbind(dim=-1)
    square = energy**2 - (pt * torch.cosh(old)) ** 2
    eta = torch.full_like(pt, eta)
    energy = torch.sqrt((pt * torch.cosh(eta)) ** 2 + square)
    return torch.stack([pt, eta, phi, energy], dim=-1).float()


@pytest.mark.parametrize("form", ["paper", "reference", "symmetric"])
def test_pairs_with_missing_energy_do_not_depend_on_eta(form):
    network, (objects, _) = make(form), event()
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


def test_the_gradient_is_finite_in_the_padding_too(form):
    network, (objects, tokens) = make(form), event()
    masks = {kind: torch.ones(3, count, dtype=torch.bool) for kind, count in COUNTS.items()}
    for kind, part in objects.items():
        masks[kind][0, -1] = False
        part[0, -1] = 0
        part.requires_grad_()
    sum(output.sum() for output in network(objects, masks, tokens).values()).backward()
    for part in objects.values():
        assert torch.isfinite(part.grad).all()


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
    one, other = make("symmetric", inputs), make("symmetric", plain)  # the same weights
    objects, tokens = event()
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
