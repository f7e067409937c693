"""KLFitter's test event, and toy decays of tops whose masses are exact."""

import awkward as ak
import numpy as np
import pytest

from pairton.events import Events
from pairton.events.objects import make_jets, make_met, make_objects
from pairton.topology import load_topology

# pT, eta, phi, E of KLFitter's test event
JETS = [
    (133.56953, 0.2231264, 1.7798618, 137.56292),
    (77.834281, 0.8158330, -1.533635, 105.72334),
    (49.327293, 1.9828589, -1.878274, 182.64006),  # has a b-tag
    (43.140816, 0.4029131, -0.472721, 47.186804),
]
MUON = (30.501886, 0.4483959, 2.9649317, 33.620113)
MET = (26.125748, 0.3639200)
TRANSFER = {
    "b": [
        {"abs_eta": 1.7, "a": 0.0302, "b": 0.5205, "c": 1.59},
        {"abs_eta": 3.2, "a": 0.05, "b": 0.706},
        {"abs_eta": 4.9, "a": 0.05, "b": 1.0},
    ],
    "lepton": [{"c": 0.02}],
    "met": {"c": 20},
}
TRANSFER["light"] = TRANSFER["b"]
SETTINGS = {
    "masses": {6: {"mass": 172.5, "width": 1.5, "free": True}, 24: {"mass": 80.4, "width": 2.1}},
    "tags": {"efficiency": 0.7, "rejection": 125},
    "integrate": False,
    "transfer": TRANSFER,
}


@pytest.fixture(scope="session")
def klfitter_event():
    """The event, and the settings with which KLFitter fits it."""
    pt, eta, phi, energy = (list(values) for values in zip(*JETS, strict=True))
    jets = make_jets(pt=[pt], eta=[eta], phi=[phi], energy=[energy], btag=[[0, 0, 1, 0]])
    leptons = make_objects(**{k: [[v]] for k, v in zip(("pt", "eta", "phi", "energy"), MUON, strict=True)})
    return Events({"jet": jets, "lepton": leptons, "met": make_met([MET[0]], [MET[1]])}, "ttbar_semilep"), SETTINGS


def two_body(rng, parent, m, m1, m2):
    """px, py, pz, E (n, 4) of both products of a parent of mass m, in a random direction."""
    p = np.sqrt((m**2 - (m1 + m2) ** 2) * (m**2 - (m1 - m2) ** 2)) / (2 * m)
    axis = rng.normal(size=(len(parent), 3))
    axis *= p / np.linalg.norm(axis, axis=1, keepdims=True)
    beta, gamma = parent[:, :3] / parent[:, 3:], parent[:, 3:] / m
    products = []
    for sign, mass in ((1, m1), (-1, m2)):
        energy = np.hypot(p, mass)
        along = sign * (beta * axis).sum(1, keepdims=True)
        moved = sign * axis + (gamma**2 / (gamma + 1) * along + gamma * energy) * beta
        products.append(np.concatenate([moved, gamma * (energy + along)], axis=1))
    return products


def make_tops(kinds, n=40, seed=0, extra=0, mass=172.5, smear=0.0, tagged=1.0):
    """Events of tops, `h` hadronic and `l` leptonic, with W bosons of 80.4 GeV, and of Higgs bosons `H` to bb.

    Jets are shuffled, the truth is known.
    """
    rng = np.random.default_rng(seed)
    jets, leptons, neutrinos = [], [], []  # (n, 4) each; jets with whether they are b jets
    slots = []  # (collection, number) of each slot
    for kind in kinds:
        momentum = rng.normal(0, 90, (n, 3))
        if kind == "H":
            higgs = np.concatenate([momentum, np.sqrt(125**2 + (momentum**2).sum(1, keepdims=True))], axis=1)
            slots += [("jet", len(jets)), ("jet", len(jets) + 1)]
            jets += [(b, 1) for b in two_body(rng, higgs, 125.0, 4.7, 4.7)]
            continue
        top = np.concatenate([momentum, np.sqrt(mass**2 + (momentum**2).sum(1, keepdims=True))], axis=1)
        w, b = two_body(rng, top, mass, 80.4, 4.7)
        first, second = two_body(rng, w, 80.4, 0.0, 0.0)
        if kind == "h":
            slots += [("jet", len(jets)), ("jet", len(jets) + 1), ("jet", len(jets) + 2)]
            jets += [(first, 0), (second, 0), (b, 1)]
        else:
            slots += [("jet", len(jets)), ("lepton", len(leptons))]
            jets.append((b, 1))
            leptons.append(first)
            neutrinos.append(second)
    for _ in range(extra):
        momentum = rng.normal(0, 50, (n, 3))
        jets.append((np.concatenate([momentum, np.linalg.norm(momentum, axis=1, keepdims=True)], axis=1), 0))
    order = np.argsort(rng.random((n, len(jets))), axis=1)
    p4 = np.stack([jet for jet, _ in jets], axis=1)
    p4 = p4 * rng.normal(1, smear, p4.shape[:2])[:, :, None] if smear else p4
    p4 = np.take_along_axis(p4, order[:, :, None], axis=1)
    is_b = np.array([b for _, b in jets])[order] * (rng.random(order.shape) < tagged)
    place = np.argsort(order, axis=1)
    truth = np.stack([place[:, k] if kind == "jet" else np.full(n, k) for kind, k in slots], axis=1)
    objects = {"jet": make_jets(**_columns(p4), btag=ak.from_regular(ak.Array(is_b)))}
    if leptons:
        total = np.sum(neutrinos, axis=0)
        objects["lepton"] = make_objects(**_columns(np.stack(leptons, axis=1)))
        objects["met"] = make_met(np.hypot(total[:, 0], total[:, 1]), np.arctan2(total[:, 1], total[:, 0]))
    names = {"hh": "ttbar_allhad", "hl": "ttbar_semilep", "ll": "ttbar_dilep"}
    name = {**names, "hhH": "tth_allhad", "hlH": "tth_semilep"}[kinds]
    events = Events(objects, load_topology(name), truth=truth)
    return events, np.stack(neutrinos, axis=1) if neutrinos else None


def _columns(p4):
    x, y, z, energy = np.moveaxis(p4, -1, 0)
    pt = np.hypot(x, y)
    columns = {"pt": pt, "eta": np.arcsinh(z / pt), "phi": np.arctan2(y, x), "energy": energy}
    return {name: ak.from_regular(ak.Array(values)) for name, values in columns.items()}


@pytest.fixture(scope="session")
def tops():
    return make_tops
