"""Validation: predict, decode, count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pairton.decoding import Predict, decode
from pairton.decoding.likelihood import Prediction
from pairton.evaluation.metrics import score
from pairton.network import Network
from pairton.topology import Topology
from pairton.topology.assignments import present
from pairton.training.data import PackedEvents
from pairton.training.losses import batch_loss, make_batch, terms_of
from pairton.training.recipes import LossConfig

__all__ = ["Counts", "asked", "blocks", "count_right", "efficiencies_of", "predictor", "sum_likelihood"]

BLOCK = 256  # events decoded at once
Counts = npt.NDArray[np.int64]


def blocks(events: PackedEvents, limit: int) -> list[tuple[int, slice]]:
    """(jet count, rows) of every block; beyond `limit` events each jet count keeps its share of first rows."""
    share = min(1.0, limit / max(1, len(events)))
    cut = {n_jets: int(np.ceil(share * count)) for n_jets, count in events.counts.items()}
    return [
        (n_jets, slice(start, min(start + BLOCK, count)))
        for n_jets, count in cut.items()
        for start in range(0, count, BLOCK)
    ]


def predictor(network: Network) -> Predict:
    """`predict(jets, jet_mask, tokens) -> Prediction` from a network, as decoders want it."""

    @torch.inference_mode()
    def predict(
        jets: npt.NDArray[Any], jet_mask: npt.NDArray[Any] | None = None, tokens: npt.NDArray[Any] | None = None
    ) -> Prediction:
        device = next(network.parameters()).device
        whole = jet_mask is None or bool(jet_mask.all())
        output = network(
            torch.as_tensor(jets, device=device),
            None if whole else torch.as_tensor(jet_mask, device=device),
            None if tokens is None or not network.config.tokens else torch.as_tensor(tokens, device=device),
        )
        triplets = None if output.triplets is None else output.triplets.float().cpu().numpy()
        return Prediction(output.edges.float().cpu().numpy(), triplets)

    return predict


@contextmanager
def asked(network: Network) -> Iterator[None]:
    """The network answers as it will be used, without dropout, and then goes on to train."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def count_right(network: Network, events: PackedEvents, which: list[tuple[int, slice]], method: str) -> Counts:
    """(1 + types, 2): right and possible answers, for whole events and then each type; `method` of decoding."""
    topology = network.topology
    counts = np.zeros((1 + len(topology.types), 2), dtype=np.int64)
    for n_jets, rows in which:
        group = events.groups[n_jets]
        jets, truth = np.array(group.jets[rows]), np.array(group.truth[rows])
        mask = np.ones(jets.shape[:2], dtype=bool)
        with asked(network):
            found = decode(predictor(network), topology, jets, mask, method=method).assignment
        counted = score(topology, truth, found, np.full(len(truth), n_jets))
        for k, name in enumerate(("event", *topology.types)):
            counts[k] += counted.correct[name].sum(), counted.total[name].sum()
    return counts


def sum_likelihood(
    network: Network, events: PackedEvents, which: list[tuple[int, slice]], loss: LossConfig
) -> npt.NDArray[np.float64]:
    """(2,): the sum of - log P(truth), nothing revealed, and of how many events: complete ones below the bound."""
    topology, name = network.topology, "event_likelihood"
    total = np.zeros(2)
    for n_jets, rows in which:
        terms = {key: weight for key, weight in terms_of(loss, topology, n_jets).items() if key == name}
        group = events.groups[n_jets]
        truth = np.array(group.truth[rows])
        whole = present(topology, truth).all(axis=1)
        if not terms or not whole.any():
            continue
        device = next(network.parameters()).device
        batch = make_batch(topology, np.array(group.jets[rows])[whole], truth[whole], None, loss, device)
        with asked(network), torch.no_grad():  # no inference mode: training shares the tables of a jet count
            total += float(batch_loss(network(batch.jets, None, None), batch, terms)[name]), whole.sum()
    return total


def efficiencies_of(topology: Topology, counts: Counts) -> dict[str, float]:
    """e_event and e_<type>; NaN where nothing could be right."""
    names = [f"e_{name}" for name in ("event", *topology.types)]
    return {
        name: float(right) / float(possible) if possible else float("nan")
        for name, (right, possible) in zip(names, counts, strict=True)
    }
