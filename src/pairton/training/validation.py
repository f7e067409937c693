"""Efficiencies and losses on validation events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pairton.decoding import Outputs, Predict, decode
from pairton.decoding.views import view_of
from pairton.evaluation.scores import score
from pairton.events.nodes import Nodes
from pairton.network import Network
from pairton.network.engine import predictor
from pairton.topology.vocabulary import parts_of
from pairton.training.batch import Sampler, losses_of, make_batch
from pairton.training.data import Key, PackedEvents
from pairton.training.losses import Examples
from pairton.training.recipes import Recipe

__all__ = [
    "Block",
    "Counts",
    "Replayed",
    "averages",
    "blocks",
    "count_events",
    "evaluating",
]

BLOCK = 256  # events decoded at once
Counts = npt.NDArray[np.float64]
Block = tuple[Key, npt.NDArray[np.int64]]


def blocks(events: PackedEvents, limit: int) -> list[Block]:
    """(group, rows) of every block.

    If there are more than `limit` events, evenly spaced rows of each group are used, so that all files count.
    """
    share = min(1.0, limit / max(1, len(events)))
    found = []
    for key, count in events.counts.items():
        used = int(np.ceil(share * count))
        rows = np.arange(used) * count // max(1, used)
        found += [(key, rows[start : start + BLOCK]) for start in range(0, used, BLOCK)]
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


class Replayed:
    """A predictor that records its outputs, and returns them again in the same order after `rewind`."""

    def __init__(self, predict: Predict, recorded: Sequence[Outputs] = ()) -> None:
        self.predict, self.recorded, self.at = predict, list(recorded), 0

    def rewind(self) -> None:
        self.at = 0

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8]) -> Outputs:
        if self.at == len(self.recorded):
            self.recorded.append(self.predict(nodes, tokens))
        self.at += 1
        return self.recorded[self.at - 1]


def validated(recipe: Recipe) -> list[str]:
    """The losses by which models are compared."""
    losses = losses_of(recipe)
    return [name for name in (*recipe.loss.weights, *recipe.heads) if losses[name].validated]


def count_events(network: Network, sampler: Sampler, which: list[Block]) -> Counts:
    """(1 + types + losses, 2): sums over events, from which `averages` makes efficiencies and losses.

    Weights of right and of possible answers, for whole events and for each type. Then each loss of `validated`
    times weights, and the weights of what it counts; only where the loss is possible.
    """
    topology, recipe = network.topology, sampler.recipe
    names = validated(recipe)
    n_types = len(topology.types)
    total = np.zeros((1 + n_types + len(names), 2))
    device = next(network.parameters()).device
    for key, rows in which:
        examples = sampler.take(key, rows)
        losses = {name: loss for name, loss in sampler.losses[key].items() if name in names}
        batch = make_batch(examples, losses, device)
        with evaluating(network):
            with torch.no_grad():  # not inference mode: training uses the same cached tables
                outputs = network(batch.objects)
                sums = batch.sums(network, outputs)
            found = {name: output.float().cpu().numpy() for name, output in outputs.items()}
            total[: 1 + n_types] += _count_right(network, examples, found, recipe.decoding)
        for name, value in sums.items():
            counted = batch.targets[name]["counted"].cpu().numpy().reshape(len(rows), -1).sum(axis=1)
            total[1 + n_types + names.index(name)] += (
                float(value),
                float((np.asarray(examples.weights) * counted).sum()),
            )
    return total


def first_answers(network: Network, examples: Examples) -> npt.NDArray[np.integer[Any]]:
    """(B, S): what the network answers in steps, as it is now."""
    objects = {kind: torch.as_tensor(values) for kind, values in examples.nodes.values.items()}
    device = next(network.parameters()).device
    with evaluating(network):
        with torch.no_grad():  # as in `count_events`
            outputs = network({kind: values.to(device) for kind, values in objects.items()})
        first = {name: output.float().cpu().numpy() for name, output in outputs.items()}
        predict = Replayed(predictor(network), [first])
        return decode(predict, network.topology, examples.nodes, decoding="steps").assignment


def _count_right(network: Network, examples: Examples, outputs: Outputs, decoding: str) -> Counts:
    """(1 + types, 2): the first rows of `count_events`. `outputs` are those of the network's first pass."""
    part, layout = parts_of(examples.topology)[examples.part], examples.nodes.layout
    tree, truth = part.topology, examples.truth[:, part.slots]
    weights = np.asarray(examples.weights)
    counts = np.zeros((1 + len(network.topology.types), 2))
    view = view_of(network.topology, tree)
    predict = Replayed(predictor(network.for_topology(tree)), [view.outputs(outputs, view.order(layout))])
    answer = decode(predict, tree, examples.nodes, decoding=decoding).assignment
    main = layout[tree.kinds.index(tree.main_kind)]
    counted = score(tree, truth, answer, np.full(len(truth), main))
    for name in ("event", *tree.types):
        k = 0 if name == "event" else 1 + network.topology.type_index(name)
        counts[k] += [(right[name] * weights).sum() for right in (counted.correct, counted.total)]
    return counts


def averages(recipe: Recipe, counts: Counts) -> dict[str, float]:
    """The efficiencies e_event and e_<type>, and the losses of `validated`; NaN if there was nothing to count."""
    names = [*(f"e_{name}" for name in ("event", *recipe.topology.types)), *validated(recipe)]
    return {
        name: float(value) / float(total) if total else float("nan")
        for name, (value, total) in zip(names, counts, strict=True)
    }
