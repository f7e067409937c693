"""Losses on edges, triplets and whole events. Further heads have their own (`pairton.network.heads`).

A loss is returned as a sum and a count, so that it can be added up over processes and parts of a batch.

Shapes: B events, N nodes, T types, K types of three slots, S slots, P particles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from pairton.decoding.graph import MASKED, adjacency, visible_tokens
from pairton.decoding.set_tables import allowed_nodes, count_sums, hypotheses, set_tables
from pairton.decoding.terms import triplet_types
from pairton.events.head_specs import HeadSpec, labels_of
from pairton.events.mixed_events import TOPOLOGY
from pairton.events.nodes import Nodes
from pairton.network.torch_set_sums import candidate_scores, log_likelihood
from pairton.topology import Layout, Topology
from pairton.training.recipes import LossConfig

__all__ = ["LOSSES", "Batch", "Example", "Loss", "batch_loss", "make_batch", "terms_of"]

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Target = dict[str, Any]  # tensors and other data


@dataclass(frozen=True)
class Example:
    """Labelled events."""

    topology: Topology
    nodes: Nodes
    truth: Ints  # (B, S): nodes, -1 for none
    tokens: npt.NDArray[np.uint8] | None = None  # (B, T, N, N): the network's input
    has_triplets: bool = False  # whether scores of triplets replace the edges of their types
    has_patterns: bool = False  # whether the network scores hypotheses with missing particles
    part: Ints | int = 0  # (B,): the topology, of a mixture, that each event is of
    alpha: float = 0.0  # weight of hyperedges in HyPER's loss


class Loss(ABC):
    """One term of the training loss."""

    name: ClassVar[str]

    @abstractmethod
    def target(self, example: Example) -> dict[str, Any]:
        """What the outputs are compared with."""

    @abstractmethod
    def per_event(self, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        """(B,): the loss, summed over the counted entries of each event."""

    def count(self, target: Target, events: int) -> int:
        """The number that the sum over events is divided by: of counted entries, or of events."""
        return int(target["counted"].sum()) if "counted" in target else events


class MaskedEdges(Loss):
    """The paper's loss: cross-entropy of masked edges."""

    name = "masked_edges"

    def target(self, example: Example) -> dict[str, Any]:
        topology = example.topology
        edges, known = adjacency(topology, example.truth, example.nodes.mask)
        hidden = known if example.tokens is None else known & (example.tokens == MASKED)
        if example.has_triplets:
            with_edges = np.array([name not in triplet_types(topology) for name in topology.types])
            hidden = hidden & with_edges[:, None, None]
        return {"truth": edges, "counted": np.array(hidden)}

    def per_event(self, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        return _cross_entropy(outputs["edges"], target)


class Triplets(Loss):
    """Cross-entropy of triplets."""

    name = "triplets"

    def target(self, example: Example) -> dict[str, Any]:
        triplets, counted = _true_triplets(example.topology, example.truth, example.nodes.mask.shape[1])
        return {"truth": triplets, "counted": counted}

    def per_event(self, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        return _cross_entropy(outputs["triplets"], target)


class Hyper(Loss):
    """HyPER's loss per event: alpha times the mean cross-entropy of hyperedges plus 1 - alpha times that of edges.

    An event without a labelled hyperedge has alpha = 0. Edges are those of particles of two objects. As in HyPER,
    objects without a label are taken to form no edge and no hyperedge.
    """

    name = "hyper"

    def target(self, example: Example) -> dict[str, Any]:
        topology, n_nodes = example.topology, example.nodes.mask.shape[1]
        triplets, _ = _true_triplets(topology, example.truth, n_nodes)
        pairs = [k for k, name in enumerate(topology.types) if len(topology.of_type(name)[0].slots) == 2]
        edges = adjacency(topology, example.truth, example.nodes.mask)[0][:, pairs]
        upper = np.triu(np.ones((n_nodes, n_nodes), dtype=bool), 1)
        alpha = example.alpha * (triplets > 0).any(axis=(1, 2, 3, 4))
        given = {"pairs": np.array(pairs), "upper": upper, "ordered": np.array(_unordered(n_nodes))}
        return {"edges": edges, "triplets": triplets, "alpha": alpha.astype(np.float32), **given}

    def per_event(self, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        edges = _binary(outputs["edges"][:, target["pairs"]], target["edges"])[:, :, target["upper"]]
        triplets = _binary(outputs["triplets"], target["triplets"])[:, :, target["ordered"]]
        alpha: Tensor = target["alpha"]
        return alpha * triplets.flatten(1).mean(dim=1) + (1 - alpha) * edges.flatten(1).mean(dim=1)


class EventLikelihood(Loss):
    """- log P(truth), among all hypotheses, or among complete ones if the network has no output `patterns`."""

    name = "event_likelihood"

    def target(self, example: Example) -> dict[str, Any]:
        allowed = allowed_nodes(example.topology, example.nodes.layout)
        tables = set_tables(example.topology, allowed, complete_only=not example.has_patterns)
        truth = hypotheses(tables, example.truth, example.part)
        return {"tables": tables, "truth": truth, "counted": truth.pattern >= 0}

    def per_event(self, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        triplets = outputs["triplets"].float() if "triplets" in outputs else None
        scores = candidate_scores(target["tables"], outputs["edges"].float(), triplets)
        terms = outputs["patterns"].float().T if "patterns" in outputs else None
        chances = log_likelihood(target["tables"], scores, target["truth"], terms)
        # the truth of an incomplete event is not among the complete hypotheses
        return torch.where(target["counted"], -chances, torch.zeros_like(chances))


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (MaskedEdges(), EventLikelihood(), Triplets(), Hyper())}


@dataclass
class Batch:
    """The inputs of a network, and what its outputs are compared with."""

    objects: dict[str, Tensor]  # kind -> (B, N, F)
    tokens: Tensor | None = None  # (B, T, N, N); None if nothing is revealed
    targets: dict[str, Target] = field(default_factory=dict)  # name of a loss -> its target
    event_weights: Tensor | None = None  # (B,), with a mean of 1 over all training events; None: all are 1
    weight: int = 1  # 0 for a process without a share of the batch, which must still take part

    def __len__(self) -> int:
        return len(next(iter(self.objects.values())))

    def counts(self, terms: Mapping[str, float]) -> dict[str, int]:
        """The number that the sum of each loss is divided by."""
        return {
            name: self.weight * (LOSSES[name].count if name in LOSSES else _count)(self.targets[name], len(self))
            for name in terms
        }


def terms_of(
    loss: LossConfig,
    topology: Topology,
    layout: Layout,
    heads: Mapping[str, float] | None = None,
    *,
    patterns: bool,
) -> dict[str, float]:
    """The losses of a batch of this layout, and their weights. Beyond its bound, edges replace the likelihood.

    patterns: whether the network has the output `patterns`, with which the likelihood has more sums.

    >>> from pairton.topology import load_topology
    >>> loss = LossConfig(masked_edges=0, event_likelihood=1)
    >>> [terms_of(loss, load_topology("ttbar_allhad"), (n,), patterns=True) for n in (12, 16)]
    [{'event_likelihood': 1}, {'masked_edges': 1}]
    """
    weights: dict[str, float] = {name: getattr(loss, name) for name in LOSSES}
    allowed = allowed_nodes(topology, layout)
    if loss.event_likelihood and count_sums(topology, allowed, not patterns) > loss.likelihood_bound:
        weights["masked_edges"] = loss.masked_edges or loss.event_likelihood
        weights["event_likelihood"] = 0
    return {name: weight for name, weight in {**weights, **(heads or {})}.items() if weight}


def make_batch(
    topology: Topology,
    nodes: Nodes,
    truth: Ints,
    revealed: Bools | None,
    terms: Mapping[str, float],
    device: torch.device | str = "cpu",
    *,
    columns: Mapping[str, npt.NDArray[Any]] | None = None,
    patterns: bool = False,
    weights: npt.NDArray[np.float32] | None = None,
    specs: Mapping[str, HeadSpec] | None = None,
    alpha: float = LossConfig.hyper_alpha,
) -> Batch:
    """Make a batch from events of one layout.

    revealed   (B, P): the revealed particles; None for a network without tokens
    terms      losses and their weights
    columns    labels of further heads and, for a mixture, the topology of each event
    patterns   whether the network has the output `patterns`
    weights    (B,): event weights
    specs      heads that the recipe declares
    alpha      weight of hyperedges in HyPER's loss
    """
    tokens = None
    if revealed is not None:
        tokens = visible_tokens(topology, truth, revealed, nodes.mask)
    part = (columns or {}).get(TOPOLOGY, 0)
    example = Example(topology, nodes, truth, tokens, "triplets" in terms, patterns, part, alpha)

    def tensors(named: Mapping[str, Any]) -> Target:
        return {
            name: torch.as_tensor(value, device=device) if isinstance(value, np.ndarray) else value
            for name, value in named.items()
        }

    labels = tensors({name: np.asarray(values, np.float32) for name, values in (columns or {}).items()})
    declared = {name: spec for name, spec in (specs or {}).items() if name in terms}
    return Batch(
        tensors(nodes.values),
        None if tokens is None else torch.as_tensor(tokens, device=device),
        {name: tensors(LOSSES[name].target(example)) if name in LOSSES else labels for name in terms}
        | {name: tensors(labels_of(spec, columns or {}, topology, truth)) for name, spec in declared.items()},
        None if weights is None else torch.as_tensor(weights, device=device),
    )


def _count(target: Target, events: int) -> int:
    """The number that the sum of a head's loss is divided by: of labels, or of events."""
    return int(target["counted"].sum()) if "counted" in target else events


def batch_loss(network: Any, outputs: Mapping[str, Tensor], batch: Batch, terms: Mapping[str, float]) -> Target:
    """The sum of each loss over the events of the batch, with event weights."""
    sums = {}
    for name in terms:
        if name in LOSSES:
            each = LOSSES[name].per_event(outputs, batch.targets[name])
        else:
            each = network.heads[name].loss(outputs[name], batch.targets[name])
        each = each if batch.event_weights is None else each * batch.event_weights
        sums[name] = batch.weight * each.sum()
    return sums


def _binary(logits: Tensor, truth: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits.float(), truth.float(), reduction="none")


def _cross_entropy(logits: Tensor, target: Target) -> Tensor:
    total: Tensor = (_binary(logits, target["truth"]) * target["counted"]).flatten(1).sum(dim=1)
    return total


@lru_cache(maxsize=64)
def _unordered(n_nodes: int) -> Bools:
    """(N, N, N): whether i < j < l."""
    i, j, k = np.indices((n_nodes,) * 3)
    return np.asarray((i < j) & (j < k))


def _true_triplets(topology: Topology, truth: Ints, n_nodes: int) -> tuple[npt.NDArray[np.float32], Bools]:
    """(B, K, N, N, N) each: 1 at i < j < l of every particle of the type, and which entries are known."""
    types = list(triplet_types(topology))
    edges = np.zeros((len(truth), len(types), n_nodes, n_nodes, n_nodes), dtype=np.float32)
    for k, name in enumerate(types):
        for particle in topology.of_type(name):
            nodes = np.sort(truth[:, list(particle.slots)], axis=1)
            (rows,) = np.nonzero(nodes[:, 0] >= 0)
            edges[rows, k, nodes[rows, 0], nodes[rows, 1], nodes[rows, 2]] = 1
    known = adjacency(topology, truth, np.ones((len(truth), n_nodes), dtype=bool))[1][:, 0]  # (B, N, N)
    all_three = known[:, :, :, None] & known[:, None, :, :] & known[:, :, None, :] & _unordered(n_nodes)
    return edges, np.array(np.broadcast_to(all_three[:, None], edges.shape))
