"""Batches with their targets, and the losses on them as sums with a count, so that processes and parts can add up.

Shapes: B events, N jets, T types, K types of three slots, S slots, P particles, A assignments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from pairton.decoding.graph import MASKED, adjacency, visible_tokens
from pairton.decoding.likelihood import Enumeration, consistent, enumerate_assignments, index_of, triplet_types
from pairton.network import NetworkOutput
from pairton.topology import Topology
from pairton.topology.assignments import present
from pairton.training.recipes import LossConfig
from pairton.training.torch_likelihood import log_likelihood

__all__ = ["Batch", "batch_loss", "make_batch", "terms_of"]

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass
class Batch:
    """What a network is given, and what its answer is compared with; only what the losses need is filled."""

    jets: Tensor  # (B, N, 5)
    jet_mask: Tensor | None = None  # (B, N), None without padding
    tokens: Tensor | None = None  # (B, T, N, N), None where nothing is revealed
    edges: Tensor | None = None  # (B, T, N, N): true matrices
    counted: Tensor | None = None  # (B, T, N, N): entries in the loss
    triplets: Tensor | None = None  # (B, K, N, N, N): true hyperedges
    triplets_counted: Tensor | None = None
    enumeration: Enumeration | None = None
    rows: Tensor | None = None  # (B,): true assignments
    allowed: Tensor | None = None  # (B, A): consistent with what is revealed; None: all
    target: Tensor | None = None  # (B, A): consistent with what is known, for partly reconstructible events
    weight: int = 1  # 0 for a process without a share of the batch, which must take part all the same

    def counts(self, terms: dict[str, float]) -> dict[str, int]:
        """What the sum of each loss is divided by: hidden entries, or events."""
        entries = {"masked_edges": self.counted, "hyperedges": self.triplets_counted}
        result = {}
        for name in terms:
            counted = entries.get(name)
            result[name] = self.weight * (len(self.jets) if counted is None else int(counted.sum()))
        return result


def terms_of(loss: LossConfig, topology: Topology, n_jets: int) -> dict[str, float]:
    """Losses of a batch of this jet count and their weights: without the likelihood beyond its bound.

    >>> from pairton.topology import load_topology
    >>> loss = LossConfig(masked_edges=0, event_likelihood=1)
    >>> [terms_of(loss, load_topology("ttbar_allhad"), n_jets) for n_jets in (9, 10)]
    [{'event_likelihood': 1}, {'masked_edges': 1}]
    """
    weights = {
        "masked_edges": loss.masked_edges,
        "event_likelihood": loss.event_likelihood,
        "hyperedges": loss.hyperedges,
    }
    if loss.event_likelihood and topology.count_assignments(n_jets) > loss.likelihood_bound:
        weights["masked_edges"] = loss.masked_edges or loss.event_likelihood
        weights["event_likelihood"] = 0
    return {name: weight for name, weight in weights.items() if weight}


def make_batch(
    topology: Topology,
    jets: npt.NDArray[np.float32],
    truth: Ints,
    revealed: Bools | None,
    loss: LossConfig,
    device: torch.device | str = "cpu",
    jet_mask: Bools | None = None,
    shown: Ints | None = None,
) -> Batch:
    """A batch of events; `revealed` (B, P) is None for a network without tokens.

    Events of one jet count need no padding; with a `jet_mask` (B, N) only edges are compared. `shown` (B, S): the
    jets of the revealed particles, where they may be wrong ones; of the edges left hidden the truth is asked for.
    """
    n_jets = jets.shape[1]
    terms = terms_of(loss, topology, n_jets)
    batch = Batch(torch.as_tensor(jets, device=device))
    mask = np.ones(jets.shape[:2], dtype=bool) if jet_mask is None else jet_mask
    if jet_mask is not None:
        terms = {"masked_edges": 1.0}
        batch.jet_mask = torch.as_tensor(jet_mask, device=device)
    tokens = None
    if revealed is not None:
        tokens = visible_tokens(topology, truth if shown is None else shown, revealed, mask)
        batch.tokens = torch.as_tensor(tokens, device=device)
    if "masked_edges" in terms:
        edges, known = adjacency(topology, truth, mask)
        hidden = known if tokens is None else known & (tokens == MASKED)
        if loss.hyperedges:  # types that hyperedges stand for have no edges to learn
            hidden = (
                hidden & np.array([name not in triplet_types(topology) for name in topology.types])[:, None, None]
            )
        batch.edges = torch.as_tensor(edges, device=device)
        batch.counted = torch.as_tensor(np.array(hidden), device=device)
    if "hyperedges" in terms:
        triplets, counted = _true_triplets(topology, truth, n_jets)
        batch.triplets = torch.as_tensor(triplets, device=device)
        batch.triplets_counted = torch.as_tensor(counted, device=device)
    if "event_likelihood" in terms:
        enumeration = enumerate_assignments(topology, n_jets)
        batch.enumeration = enumeration
        rows = index_of(enumeration, truth)
        batch.rows = torch.as_tensor(np.maximum(rows, 0), device=device)
        if revealed is not None and revealed.any():
            batch.allowed = torch.as_tensor(consistent(enumeration, truth, revealed), device=device)
        if (rows < 0).any():
            known = present(topology, truth)
            batch.target = torch.as_tensor(consistent(enumeration, truth, known), device=device)
    return batch


def batch_loss(output: NetworkOutput, batch: Batch, terms: dict[str, float]) -> dict[str, Tensor]:
    """The sum of each loss over the batch: over hidden entries, or events."""
    sums = {}
    for name in terms:
        if name == "event_likelihood":
            assert batch.enumeration is not None
            assert batch.rows is not None
            chances = log_likelihood(batch.enumeration, output, batch.rows, batch.allowed, batch.target)
            sums[name] = -chances.sum()
        elif name == "masked_edges":
            sums[name] = _cross_entropy(output.edges, batch.edges, batch.counted)
        else:
            sums[name] = _cross_entropy(output.triplets, batch.triplets, batch.triplets_counted)
    return {name: batch.weight * value for name, value in sums.items()}


def _cross_entropy(logits: Tensor | None, truth: Tensor | None, counted: Tensor | None) -> Tensor:
    assert logits is not None
    assert truth is not None
    assert counted is not None
    each = functional.binary_cross_entropy_with_logits(logits.float(), truth.float(), reduction="none")
    return (each * counted).sum()


@lru_cache(maxsize=64)
def _unordered(n_jets: int) -> Bools:
    """(N, N, N): i < j < l."""
    i, j, k = np.indices((n_jets,) * 3)
    return np.asarray((i < j) & (j < k))


def _true_triplets(topology: Topology, truth: Ints, n_jets: int) -> tuple[npt.NDArray[np.float32], Bools]:
    """(B, K, N, N, N) each: 1 at i < j < l of every particle of the type, and which entries are known."""
    types = list(triplet_types(topology))
    edges = np.zeros((len(truth), len(types), n_jets, n_jets, n_jets), dtype=np.float32)
    for k, name in enumerate(types):
        for particle in topology.of_type(name):
            jets = np.sort(truth[:, list(particle.slots)], axis=1)
            (rows,) = np.nonzero(jets[:, 0] >= 0)
            edges[rows, k, jets[rows, 0], jets[rows, 1], jets[rows, 2]] = 1
    known = adjacency(topology, truth, np.ones((len(truth), n_jets), dtype=bool))[1][:, 0]  # (B, N, N)
    all_three = known[:, :, :, None] & known[:, None, :, :] & known[:, :, None, :] & _unordered(n_jets)
    return edges, np.array(np.broadcast_to(all_three[:, None], edges.shape))
