"""Leptonic tops with exact masses: b, lepton and neutrino from decays in random directions."""

import awkward as ak
import numpy as np

from pairton.events import Events
from pairton.events.objects import make_met, make_objects
from pairton.events.vectors import polar
from pairton.topology import load_topology

W, TOP, B, MUON = 80.37, 172.5, 4.8, 0.1057


def mass(p4):
    return np.sqrt(np.maximum(p4[..., 3] ** 2 - (p4[..., :3] ** 2).sum(axis=-1), 0))


def decay(rng, mother, m1, m2):
    """Two products (n, 4) of each mother (n, 4), in a random direction."""
    m, n = mass(mother), len(mother)
    size = np.sqrt((m**2 - (m1 + m2) ** 2) * (m**2 - (m1 - m2) ** 2)) / (2 * m)
    cos, phi = rng.uniform(-1, 1, n), rng.uniform(0, 2 * np.pi, n)
    unit = np.stack([np.sqrt(1 - cos**2) * np.cos(phi), np.sqrt(1 - cos**2) * np.sin(phi), cos], axis=1)
    beta, gamma = mother[:, :3] / mother[:, 3:], mother[:, 3] / m
    found = []
    for sign, mine in ((1, m1), (-1, m2)):
        p, energy = sign * size[:, None] * unit, np.sqrt(size**2 + mine**2)
        along = (beta * p).sum(axis=1)
        more = (gamma - 1) * along / (beta**2).sum(axis=1) + gamma * energy
        found.append(np.column_stack([p + beta * more[:, None], gamma * (energy + along)]))
    return found


def tops(rng, n):
    p = rng.normal(0, [100, 100, 300], (n, 3))
    return np.column_stack([p, np.sqrt((p**2).sum(axis=1) + TOP**2)])


def leptonic_tops(rng, n):
    """b, lepton and neutrino of n tops."""
    w, b = decay(rng, tops(rng, n), W, B)
    return b, *decay(rng, w, MUON, 0.0)


def hadronic_tops(rng, n):
    """Two quarks and b of n tops."""
    w, b = decay(rng, tops(rng, n), W, B)
    return *decay(rng, w, 1.0, 1.0), b


def leptonic_events(leptonic, n=200, seed=0, topology=None):
    """Events of two tops, `leptonic` of them to leptons, with truth, and the neutrinos (n, leptonic, 4).

    Objects are in the order of the slots. The first top is the quark, and so is the only leptonic one.
    """
    rng = np.random.default_rng(seed)
    jets = [] if leptonic == 2 else [*hadronic_tops(rng, n)]
    leptons, neutrinos = [], []
    for _ in range(leptonic):
        b, lepton, neutrino = leptonic_tops(rng, n)
        jets.append(b)
        leptons.append(lepton)
        neutrinos.append(neutrino)
    missing = np.sum(neutrinos, axis=0)
    objects = {
        "jet": _objects(jets, btag=np.ones((n, len(jets)))),
        "lepton": _objects(leptons, charge=np.tile([1.0, -1.0][:leptonic], (n, 1))),
        "met": make_met(np.hypot(*missing[:, :2].T), np.arctan2(missing[:, 1], missing[:, 0])),
    }
    name = {1: "ttbar_semilep", 2: "ttbar_dilep"}[leptonic]
    truth = {1: [0, 1, 2, 3, 0], 2: [0, 0, 1, 1]}[leptonic]
    events = Events(objects, load_topology(name) if topology is None else topology, np.tile(truth, (n, 1)))
    return events, np.stack(neutrinos, axis=1)


def _objects(p4s, **fields):
    p4 = np.stack(p4s, axis=1)
    columns = {**polar(p4), **fields}
    return make_objects(**{name: ak.from_regular(ak.Array(values)) for name, values in columns.items()})
