"""A network without weights: its logits are looked up by the identities of objects, and by the tokens."""

import itertools

import numpy as np

from pairton.decoding.terms import triplet_types
from pairton.events.nodes import Nodes

FIRST = {"jet": 0, "lepton": 16, "met": 24}  # identities of objects of a kind begin there, where there are leptons
SIZE = 25


class LookupNetwork:
    """The first column of an object is its identity, so that the order of objects does not matter.

    As a network does, it gives no numbers for padding.
    """

    def __init__(self, topology, potentials=True, seed=0, sharpness=2.0):
        rng = np.random.default_rng(seed)
        edges = rng.normal(scale=sharpness, size=(len(topology.types), 3, SIZE, SIZE))
        if len(topology.kinds) > 1:  # as if two leptons, and any object with missing energy, belonged together
            edges[..., 16:, 16:] += 50 * (1 - np.eye(9))
            edges[..., 24, :24] += 50
        self.edges = (edges + edges.swapaxes(2, 3)).astype(np.float32)
        kinds = triplet_types(topology) if potentials else {}
        self.triplets = np.zeros((len(kinds), SIZE, SIZE, SIZE), dtype=np.float32)
        for k, symmetric in enumerate(kinds.values()):
            drawn = rng.normal(size=(SIZE, SIZE, SIZE))
            axes = list(itertools.permutations(range(3))) if symmetric else [(0, 1, 2), (1, 0, 2)]
            self.triplets[k] = sum(np.transpose(drawn, axis) for axis in axes)
        self.calls = 0

    def __call__(self, nodes, tokens):
        self.calls += 1
        mask = nodes.mask
        who = np.concatenate([values[..., 0] for values in nodes.values.values()], axis=1)
        who = np.where(mask, who, 0).astype(int)
        types = np.arange(len(self.edges))[None, :, None, None]
        edges = self.edges[types, tokens.astype(int), who[:, None, :, None], who[:, None, None, :]]
        outputs = {"edges": np.where((mask[:, :, None] & mask[:, None, :])[:, None], edges, np.float32("nan"))}
        if len(self.triplets):
            kinds = np.arange(len(self.triplets))[None, :, None, None, None]
            axes = (who.reshape(len(who), 1, *shape) for shape in ((-1, 1, 1), (1, -1, 1), (1, 1, -1)))
            outputs["triplets"] = self.triplets[kinds, *axes]
        return outputs


def drawn_nodes(topology, layout, events=12, seed=1, padding=True):
    """Objects of random identities; some are missing, anywhere, but never too many."""
    rng = np.random.default_rng(seed)
    sizes = {"jet": 16, "lepton": 8, "met": 1} if len(topology.kinds) > 1 else {"jet": SIZE}
    values, masks = {}, {}
    for kind, count, slots in zip(topology.kinds, layout, topology.slots_per_kind, strict=True):
        values[kind] = np.zeros((events, count, 4), dtype=np.float32)
        values[kind][..., 0] = [FIRST[kind] + rng.permutation(sizes[kind])[:count] for _ in range(events)]
        missing = rng.integers(0, count - slots + 1, events) if padding else np.zeros(events)
        masks[kind] = rng.random((events, count)).argsort(axis=1) >= missing[:, None]
    return Nodes(values, masks)
