"""Baselines whose answer is the best of all assignments, for a score that is a sum over particles.

Two of them use no known mass. Both put as many b-tagged jets as possible into slots for b quarks. Among the
remaining assignments, `min_mass` takes the one whose root particles have the smallest sum of masses, which for two
leptonic tops is the pairing of smallest m(b l); `random` takes a random one.

Shapes: n events, B events of a batch, N nodes, S slots, C candidates of a type.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding.set_sums import best, log_normaliser, log_sums
from pairton.decoding.set_tables import SetTables, allowed_nodes, set_tables
from pairton.events import Events
from pairton.events.inputs import MOMENTUM
from pairton.events.splits import uniform
from pairton.events.vectors import cartesian, pair_products
from pairton.topology import JET, Layout, Topology
from pairton.topology.pdg import codes_of

__all__ = [
    "Batch",
    "BestAssignment",
    "MinMass",
    "RandomChoice",
    "Scores",
    "candidate_masses",
    "dense_nodes",
    "product_name",
]

BATCH = 512  # events at once
TAG_CUT = 0.5  # a jet above it is b-tagged
BOTTOM = (5,)  # PDG codes of a slot for b quarks only
TAG = np.float32(1e5)  # score of a b-tag: larger than any mass in GeV
SPREAD = np.float32(1e3)  # range of random scores

Floats = npt.NDArray[np.floating[Any]]
Bools = npt.NDArray[np.bool_]
Scores = dict[str, Floats]  # type -> (C, B): contribution of each candidate to the score


class Batch(NamedTuple):
    """Events of one layout."""

    p4: Floats  # (B, N, 4)
    tagged: Bools  # (B, N)
    ids: npt.NDArray[np.uint64]  # (B, 2)
    layout: Layout


class BestAssignment:
    """A baseline; subclasses have a `name`, and `scores` for the candidates of a batch of events."""

    name: str
    has_probability: ClassVar[bool] = False  # whether exp(score) is a likelihood

    def fit(self, events: Events) -> BestAssignment:
        """The baseline itself, if there is nothing to fit."""
        return self

    def scores(self, tables: SetTables, batch: Batch) -> Scores:
        """The contributions of candidates to the score."""
        raise NotImplementedError

    def assign(self, events: Events) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """The assignments (n, S) of largest score, and their probabilities (n,): exp(score) over the sum of all.

        Events with fewer objects of a kind than slots get -1 and NaN.
        """
        topology = events.topology
        momenta_of, _, tagged = dense_nodes(events)
        p4 = np.concatenate(momenta_of, axis=1)
        widths = tuple(part.shape[1] for part in momenta_of)
        counts = np.stack([events.counts[kind] for kind in topology.kinds], axis=1)
        assignment = np.full((len(events), len(topology.slots)), -1, dtype=np.int32)
        probability = np.full(len(events), np.nan)
        for layout in np.unique(counts, axis=0):
            if (layout < topology.slots_per_kind).any():
                continue
            kept = tuple(layout.tolist())
            tables = set_tables(topology, allowed_nodes(topology, kept), complete_only=True)
            used = np.concatenate([sum(widths[:k]) + np.arange(n) for k, n in enumerate(kept)])  # without padding
            (rows,) = np.nonzero((counts == layout).all(axis=1))
            for some in np.split(rows, range(BATCH, len(rows), BATCH)):
                scores = self.scores(
                    tables, Batch(p4[some][:, used], tagged[some][:, used], events.ids[some], kept)
                )
                found = best(tables, scores)
                assignment[some] = found.assignment[:, 0] - topology.offsets(kept)
                if self.has_probability:
                    chance = found.score[:, 0] - log_normaliser(log_sums(tables, scores))
                    probability[some] = np.exp(chance)
        return assignment, probability


def candidate_masses(tables: SetTables, p4: Floats) -> dict[str, npt.NDArray[np.float32]]:
    """Type -> (C, B): the invariant mass of each candidate, from the momenta p4 (B, N, 4) of nodes."""
    n_nodes = p4.shape[1]
    products = pair_products(p4).astype(np.float32).reshape(len(p4), -1).T  # (N N, B): indexing takes rows
    products = np.ascontiguousarray(products)
    masses = {}
    for name, known in tables.candidates.items():
        nodes = known.objects.astype(np.intp).T
        square = np.zeros((len(known.objects), len(p4)), dtype=np.float32)
        for i, first in enumerate(nodes):
            for j, second in enumerate(nodes[: i + 1]):
                square += products[first * n_nodes + second] * np.float32(1 if i == j else 2)
        masses[name] = np.sqrt(np.maximum(square, 0))
    return masses


def dense_nodes(events: Events) -> tuple[list[npt.NDArray[np.float64]], Bools, Bools]:
    """The momenta (n, N, 4) of each kind, then the mask (n, N) and the b-tags (n, N) of all nodes together."""
    momenta_of, masks, tags = [], [], []
    for kind in events.topology.kinds:
        values, mask = events.dense(kind)
        momenta_of.append(cartesian(*(values[:, :, MOMENTUM.index(name)] for name in MOMENTUM)))
        masks.append(mask)
        has = kind == JET and "btag" in ak.fields(events.jets)
        tags.append(events.dense(kind, ("btag",))[0][:, :, 0] > TAG_CUT if has else np.zeros_like(mask))
    return momenta_of, np.concatenate(masks, axis=1), np.concatenate(tags, axis=1)


def product_name(topology: Topology, slot: int) -> str:
    """The name of a slot's product in the topology: b for t1.b, q for W.q2."""
    return topology.slots[slot].name.split(".")[-1].rstrip("0123456789")


# -- baselines that use no known mass ----------------------------------------------------------------------


class MinMass(BestAssignment):
    """The baseline `min_mass`."""

    name = "min_mass"

    def scores(self, tables: SetTables, batch: Batch) -> Scores:
        masses, scores = candidate_masses(tables, batch.p4), _tagged(tables, batch)
        for name in {root.type for root in tables.topology.roots}:
            scores[name] = scores[name] - masses[name]
        return scores


class RandomChoice(BestAssignment):
    """The baseline `random`: every candidate of an event gets its own score, always the same one."""

    name = "random"

    def scores(self, tables: SetTables, batch: Batch) -> Scores:
        scores, drawn = _tagged(tables, batch), 0
        for tags in scores.values():
            for candidate in range(len(tags)):
                drawn += 1
                tags[candidate] += SPREAD * uniform(batch.ids, drawn).astype(np.float32)
        return scores


def _tagged(tables: SetTables, batch: Batch) -> Scores:
    """Type -> (C, B): the score of b-tagged jets in the own slots for b quarks of each candidate."""
    topology, codes = tables.topology, codes_of(tables.topology)
    scores: Scores = {}
    for name, known in tables.candidates.items():
        particle, nodes = topology.of_type(name)[0], known.objects.astype(np.intp).T
        scores[name] = np.zeros((len(known.objects), len(batch.p4)), dtype=np.float32)
        for slot in particle.own_slots:
            if topology.slots[slot].kind == JET and tuple(codes.get(product_name(topology, slot), ())) == BOTTOM:
                scores[name] += TAG * batch.tagged.T[nodes[slot - particle.slots[0]]]
    return scores
