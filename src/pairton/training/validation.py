"""Efficiencies and losses on validation events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from pairton.decoding import Question, decode
from pairton.evaluation.metrics import score
from pairton.events.head_specs import HeadSpec
from pairton.events.mixed_events import TOPOLOGY
from pairton.network import Network
from pairton.network.engine import predictor
from pairton.topology import Layout, Topology
from pairton.topology.mixtures import parts_of
from pairton.training.data import PackedEvents
from pairton.training.losses import batch_loss, make_batch, terms_of
from pairton.training.recipes import LossConfig

__all__ = [
    "Block",
    "Counts",
    "blocks",
    "count_right",
    "efficiencies_of",
    "evaluating",
    "sum_head_losses",
    "sum_likelihood",
]

BLOCK = 256  # events decoded at once
Counts = npt.NDArray[np.float64]
Block = tuple[Layout, npt.NDArray[np.int64]]


def blocks(events: PackedEvents, limit: int) -> list[Block]:
    """(layout, rows) of every block.

    If there are more than `limit` events, evenly spaced rows of each layout are used, so that all files count.
    """
    share = min(1.0, limit / max(1, len(events)))
    found = []
    for layout, count in events.counts.items():
        used = int(np.ceil(share * count))
        rows = np.arange(used) * count // max(1, used)
        found += [(layout, rows[start : start + BLOCK]) for start in range(0, used, BLOCK)]
    return found


@contextmanager
def evaluating(network: Network) -> Iterator[None]:
    """Put the network into evaluation mode (no dropout) within the block."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def count_right(network: Network, events: PackedEvents, which: list[Block], decoding: str) -> Counts:
    """(1 + types, 2): right and possible answers, as sums of event weights, for whole events and for each type."""
    topology = network.topology
    counts = np.zeros((1 + len(topology.types), 2))
    for layout, rows in which:
        group = events.groups[layout]
        truth, weights = np.array(group.truth[rows]), events.weights(layout, rows)
        for number, part in enumerate(parts_of(topology)):  # of a mixture, each event in its own topology
            own = np.asarray(group.columns[TOPOLOGY][rows] == number) if topology.alternatives else slice(None)
            question = Question(topology=part.name if topology.alternatives else None)
            nodes = group.nodes(rows)[own]
            with evaluating(network):
                found = decode(predictor(network), topology, nodes, decoding=decoding, question=question)
            main = layout[topology.kinds.index(part.topology.main_kind)]
            answer, slots = found.assignment[:, part.slots], truth[own][:, part.slots]
            counted = score(part.topology, slots, answer, np.full(len(slots), main))
            for name in ("event", *part.topology.types):
                k = 0 if name == "event" else 1 + topology.type_index(name)
                counts[k] += [(right[name] * weights[own]).sum() for right in (counted.correct, counted.total)]
    return counts


def sum_likelihood(
    network: Network, events: PackedEvents, which: list[Block], loss: LossConfig
) -> npt.NDArray[np.float64]:
    """(2,): the sum of - log P(truth) times weight, and the sum of weights, within the likelihood bound."""
    topology, name = network.topology, "event_likelihood"
    total = np.zeros(2)
    for layout, rows in which:
        every = terms_of(loss, topology, layout, patterns=network.config.patterns)
        terms = {key: weight for key, weight in every.items() if key == name}
        group = events.groups[layout]
        truth = np.array(group.truth[rows])
        if not terms:
            continue
        device = next(network.parameters()).device
        given = topology, group.nodes(rows), truth, None, terms, device
        weights = events.weights(layout, rows)
        columns = {name: np.asarray(values[rows]) for name, values in group.columns.items() if name == TOPOLOGY}
        batch = make_batch(*given, patterns=network.config.patterns, weights=weights, columns=columns)
        with evaluating(network), torch.no_grad():  # not inference mode: training uses the same cached tables
            sums = batch_loss(network, network(batch.objects), batch, terms)
        counted = batch.targets[name]["counted"].cpu().numpy()
        total += float(sums[name]), float(weights[counted].sum())
    return total


def sum_head_losses(
    network: Network, events: PackedEvents, which: list[Block], specs: Mapping[str, HeadSpec]
) -> npt.NDArray[np.float64]:
    """(heads, 2): the sum of the loss of each declared head times weight, and the sum of weights of its labels."""
    total = np.zeros((len(specs), 2))
    terms = dict.fromkeys(specs, 1.0)
    device = next(network.parameters()).device
    for layout, rows in which:
        group = events.groups[layout]
        given = network.topology, group.nodes(rows), np.array(group.truth[rows]), None, terms, device
        columns = {name: np.asarray(values[rows]) for name, values in group.columns.items()}
        weights = events.weights(layout, rows)
        batch = make_batch(*given, columns=columns, specs=specs, weights=weights)
        with evaluating(network), torch.no_grad():
            sums = batch_loss(network, network(batch.objects), batch, terms)
        counted = {name: batch.targets[name]["counted"].sum(dim=1).cpu().numpy() for name in specs}
        total += [(float(sums[name]), float((weights * counted[name]).sum())) for name in specs]
    return total


def efficiencies_of(topology: Topology, counts: Counts) -> dict[str, float]:
    """The efficiencies e_event and e_<type>; NaN if there was nothing to find."""
    names = [f"e_{name}" for name in ("event", *topology.types)]
    return {
        name: float(right) / float(possible) if possible else float("nan")
        for name, (right, possible) in zip(names, counts, strict=True)
    }
