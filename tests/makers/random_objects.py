"""Random objects: as inputs of networks, and packed for training."""

import numpy as np

from pairton.events.nodes import Nodes
from pairton.topology import load_topology

# networks and a training of seconds, as a YAML file would have them
SMALL = {"blocks": 1, "single_width": 8, "single_heads": 2, "pair_width": 8, "pair_heads": 2}
TRIANGLES = {
    "architecture": "symmetric", "blocks": 1, "pair_width": 16, "tokens": False, "dropout": 0.0,
    "single_stream": False, "triangle_attention": False, "edges_from": "pair",
}  # fmt: skip
RECIPE = {
    "topology": "ttbar_allhad",
    "network": SMALL,
    "data": {"train_fraction": 0.5, "validation_fraction": 0.3},
    "optimiser": {"steps": 4, "batch": 16},
    "run": {"accelerator": "cpu", "validate_every": 2, "save_every": 2, "log_every": 1},
}


def random_values(rng, shape, kind="jet", further=None):
    """(*shape, 4 + further) float32: pt, eta, phi, energy and inputs that are 0 or 1 (a tag of jets)."""
    pt, phi = rng.uniform(30, 200, shape), rng.uniform(-3, 3, shape)
    eta = rng.normal(size=shape) * (kind != "met")
    count = int(kind == "jet") if further is None else further
    columns = [pt, eta, phi, pt * np.cosh(eta) + 5, *rng.integers(0, 2, (count, *shape))]
    return np.stack(columns, axis=-1).astype(np.float32)


def random_nodes(tree, layout, events=3, seed=0):
    """Nodes of a topology, with so many objects of each kind."""
    rng, kinds = np.random.default_rng(seed), zip(tree.kinds, layout, strict=True)
    return Nodes.full({kind: random_values(rng, (events, count), kind) for kind, count in kinds})


def packed_events(counts, topology="ttbar_allhad", seed=0):
    """Events for training, from the number of those with n jets: labels follow from nothing."""
    from pairton.training.data import Group, Key, PackedEvents

    rng, groups = np.random.default_rng(seed), {}
    for n_jets, count in counts.items():
        objects = {"jet": random_values(rng, (count, n_jets))}
        truth = np.argsort(rng.random((count, n_jets)), axis=1)[:, : len(load_topology(topology).slots)]
        ids = np.stack([np.full(count, n_jets), np.arange(count)], axis=1).astype(np.uint64)
        groups[Key(0, (n_jets,))] = Group(objects, truth.astype(np.int8), ids, np.ones(count, np.float32))
    return PackedEvents(groups, f"random {seed}")
