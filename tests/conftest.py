"""What several tests share: decays with the right masses, and a model of them that needs no weights."""

import os
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import vector

from pairton import formats
from pairton.cli import main
from pairton.decoding.patterns import plan_of
from pairton.decoding.terms import triplet_types
from pairton.errors import naming_flags
from pairton.events import Events
from pairton.events.domain import Domain, KindDomain
from pairton.events.inputs import EVIDENCE, MOMENTUM, Inputs
from pairton.events.objects import make_jets
from pairton.events.vectors import cartesian, pair_products
from pairton.models.storage import ModelInfo
from pairton.topology import Topology, load_topology
from random_objects import TRIANGLES

collect_ignore = ["makers"]  # one of them needs atheris


@pytest.fixture(autouse=True, scope="session")
def messages_as_written():
    """Tests read messages with the flags of the command line; `in_python` has its own tests."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell lets jobs ignore
    with naming_flags():
        yield


vector.register_awkward()  # as `pairton` does at its first use: masses and sums of momenta


def two_body(rng, parent, m, m1, m2):
    """(n, 4) E, p of both products of a parent (n, 4) of mass m."""
    p = np.sqrt((m**2 - (m1 + m2) ** 2) * (m**2 - (m1 - m2) ** 2)) / (2 * m)
    axis = rng.normal(size=(len(parent), 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    result = []
    for sign, mass in ((1, m1), (-1, m2)):
        rest = np.concatenate([np.full((len(parent), 1), np.hypot(p, mass)), sign * p * axis], axis=1)
        beta = parent[:, 1:] / parent[:, :1]
        gamma = parent[:, :1] / m
        along = (beta * rest[:, 1:]).sum(1, keepdims=True)
        move = (gamma**2 / (gamma + 1) * along + gamma * rest[:, :1]) * beta
        result.append(np.concatenate([gamma * (rest[:, :1] + along), rest[:, 1:] + move], axis=1))
    return result


def make_decays(n=200, seed=0, extra=2, labelled=1.0, floor=0.0, **more):
    """Events with two tops of 170 GeV, `extra` further jets, shuffled; a share `labelled` of the truth is known.

    Jets softer than `floor` are dropped, so that jet counts vary.
    """
    rng = np.random.default_rng(seed)
    products = []
    for _ in range(2):
        momentum = rng.normal(0, 120, (n, 3))
        top = np.concatenate([np.sqrt(170.0**2 + (momentum**2).sum(1, keepdims=True)), momentum], axis=1)
        w, b = two_body(rng, top, 170.0, 80.0, 5.0)
        products += [*two_body(rng, w, 80.0, 1.0, 1.0), b]
    momentum = rng.normal(0, 60, (extra, n, 3))
    products += [np.concatenate([np.sqrt((m**2).sum(1, keepdims=True) + 1), m], axis=1) for m in momentum]
    p4 = np.stack(products, axis=1)  # (n, 6 + extra, 4)
    p4 *= rng.normal(1, 0.03, p4.shape[:2])[:, :, None]
    order = np.argsort(rng.random(p4.shape[:2]), axis=1)
    p4 = np.take_along_axis(p4, order[:, :, None], axis=1)
    truth = np.argsort(order, axis=1)[:, :6]
    truth = np.where(rng.random(truth.shape) < labelled, truth, -1)
    tags = np.isin(order, [2, 5]) & (rng.random(order.shape) < 0.8)
    pt = np.hypot(p4[..., 1], p4[..., 2])
    columns = {
        "pt": pt,
        "eta": np.arcsinh(p4[..., 3] / pt),
        "phi": np.arctan2(p4[..., 2], p4[..., 1]),
        "energy": p4[..., 0],
        "btag": tags,
    }
    jets = make_jets(**{name: ak.from_regular(ak.Array(values)) for name, values in columns.items()})
    events = Events(jets, truth=truth, **more)
    if floor:
        events = events.keep({"jet": events.jets.pt > floor})
        events = events.replace(jets=ak.without_field(events.jets, "index")) if n else events
    return events


@dataclass
class MassModel:
    """A model that knows masses: the logit of a pair falls with its distance from 80 GeV, of a triplet from 170.

    Deterministic, with the interface of `Model`: tests of all but the network need no weights.
    """

    topology: Topology = field(default_factory=load_topology)
    name: str = "masses"
    decoding: str = "exact"
    temperatures: None = None
    takes_tokens: bool = False
    domain: Domain = field(default_factory=lambda: Domain({"jet": KindDomain(count=(6, 16), binary=("btag",))}))
    strength: float = 1.0
    tags: tuple[str, ...] = ("btag",)  # fields of jets that it takes; the first one raises the logit of a triplet
    calls: list = field(default_factory=list)  # shape of every batch

    @property
    def inputs(self):
        return Inputs.parse({"jet": self.tags}, self.topology)

    @property
    def info(self):
        outputs = {"edges": ("type", "node", "node")}
        about = self.topology, {"tokens": self.takes_tokens}, self.domain, self.inputs, outputs, self.decoding
        return ModelInfo(*about)

    def for_topology(self, tree):
        return self

    def predict(self, nodes, tokens):
        (jets,) = nodes.values.values()
        self.calls.append(jets.shape)
        products = pair_products(cartesian(*np.moveaxis(jets[..., : len(MOMENTUM)], -1, 0)))
        single = np.einsum("bii->bi", products)
        pair = np.sqrt(np.maximum(single[:, :, None] + single[:, None, :] + 2 * products, 0))
        edges = np.zeros((len(jets), len(self.topology.types), *pair.shape[1:]), dtype=np.float32)
        for name in self.topology.types:
            if len(self.topology.of_type(name)[0].slots) == 2:
                edges[:, self.topology.type_index(name)] = 4 - np.minimum(((pair - 80) / 8) ** 2, 50)
        if not triplet_types(self.topology):
            return {"edges": self.strength * edges}
        square = (
            (single[:, :, None, None] + single[:, None, :, None] + single[:, None, None, :])
            + 2 * products[:, :, :, None]
            + 2 * products[:, :, None, :]
            + 2 * products[:, None, :, :]
        )
        away = (np.sqrt(np.maximum(square, 0)) - 170) / 15
        tag = jets[:, None, None, :, self.inputs.columns("jet").index(self.tags[0])]
        triplets = (2 * tag - np.minimum(away**2, 50)).astype(np.float32)[:, None]
        return {"edges": self.strength * edges, "triplets": self.strength * triplets}


@dataclass
class MissingModel(MassModel):
    """A model of masses that knows missing particles: a pair or triplet of the right mass gains, others lose."""

    terms: tuple[float, ...] = ()  # of the patterns; those that are not given are 0

    @property
    def info(self):
        known = super().info
        return replace(known, outputs={**known.outputs, "patterns": ("pattern",)})

    def predict(self, nodes, tokens):
        outputs = dict(super().predict(nodes, tokens))
        at = np.arange(outputs["edges"].shape[-1])
        outputs["edges"][:, :, at, at] = 0
        terms = np.zeros((len(nodes), len(plan_of(self.topology).patterns)), dtype=np.float32)
        terms[:, : len(self.terms)] = self.terms
        return outputs | {"patterns": terms}


@pytest.fixture
def missing_model():
    return MissingModel()


@pytest.fixture(scope="session")
def missing_model_type():
    return MissingModel


@pytest.fixture(scope="session")
def decays():
    return make_decays


@pytest.fixture
def mass_model():
    return MassModel()


@pytest.fixture
def evidence_model():
    """The same, of what tags are worth."""
    return MassModel(domain=Domain({"jet": KindDomain(count=(6, 16))}), tags=EVIDENCE)


@pytest.fixture(scope="session")
def mass_model_type():
    """For tests that need a model of their own, or with changes."""
    return MassModel


def make_network(topology, seed=0, **more):
    """A small network with all inputs and outputs, its logits spread as those of a trained one, and its info."""
    import torch

    from pairton.network import Network, NetworkConfig

    settings = TRIANGLES | {"pair_heads": 2, "triplets": "potential" if triplet_types(topology) else "none"}
    config = NetworkConfig(**(settings | {"tokens": True} | more))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Network(topology, config).eval()
        for parameter in network.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.4)
    slots = dict(zip(topology.kinds, topology.slots_per_kind, strict=True))
    kinds = {kind: KindDomain(25.0 if kind == "jet" else 0.0, 2.5, (slots[kind], 16)) for kind in topology.kinds}
    about = topology, config.to_dict(), Domain(kinds), network.inputs, network.outputs
    return network, ModelInfo(*about, decoding="steps")


@pytest.fixture(scope="session")
def small_network():
    return make_network


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A model on disk, for all engines."""
    from pairton.export import export_network
    from pairton.models.storage import save_model

    folder = tmp_path_factory.mktemp("models") / "small"
    folder.mkdir()
    network, info = make_network(load_topology())
    save_model(folder, {name: tensor.numpy() for name, tensor in network.state_dict().items()}, info)
    export_network(network, info, folder / "model.onnx")
    return folder


@pytest.fixture(params=["onnx", "torch"])
def model(request, model_folder):
    """The same model through every engine."""
    from pairton.models.model import load_model

    return load_model(model_folder, engine=request.param, threads=1)


@pytest.fixture
def source(decays, tmp_path):
    """A file of 400 events with truth and a column of the user's."""
    events = decays(400, seed=2, extra=2)
    events = Events(events.jets, truth=events.truth, columns={"run": np.arange(400)})
    with formats.create(tmp_path / "in.h5", events.topology) as writer:
        writer.write(events)
    return tmp_path / "in.h5"


@pytest.fixture(scope="session")
def sample():
    """The path of a real file, which few machines have."""
    folder = Path(__file__).parents[2] / "shared" / "data" / "samples"  # beside the clone

    def call(name):
        path = Path(os.environ.get("PAIRTON_SAMPLES", folder)) / name
        return path if path.exists() else pytest.skip("the sample is not here")

    return call


@pytest.fixture
def run(capsys):
    """Runs a command that must end with this code; gives what it said, with the attributes out and err."""

    def call(*arguments, code=0):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said.err
        return said

    return call


@pytest.fixture
def refused(run):
    """Runs a command that must refuse, and gives its one line."""

    def call(*arguments):
        error = run(*arguments, code=2).err
        assert len(error.splitlines()) == 1, error
        assert error.startswith("pairton: ")
        return error

    return call


@pytest.fixture
def command(monkeypatch, mass_model):
    """The command line with the model of masses: arguments in, exit code out."""
    from pairton.models import model as models

    monkeypatch.setattr(models, "load_model", lambda *_, **__: mass_model)

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        return stop.value.code

    return call
