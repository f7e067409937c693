"""The batch of each step: which events, augmented and masked, as tensors with what the outputs are compared with.

Shapes: B events, N objects, F columns per kind, T types, S slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pairton.network import Network
from pairton.topology.vocabulary import mixture, parts_of
from pairton.training.augmentation import Augmentation
from pairton.training.data import Key, PackedEvents
from pairton.training.losses import LOSSES, Examples, HeadLoss, Loss
from pairton.training.losses.loss import Arrays
from pairton.training.masking import Unmasked, draw_tokens
from pairton.training.recipes import Recipe

__all__ = ["Batch", "BatchPlan", "Drawn", "Sampler", "losses_of", "make_batch", "shares", "terms_of"]

MOST_USES = 3.0  # of the events of a topology, per epoch
PREPARED = 65536  # events whose targets are prepared at a time


class Drawn(NamedTuple):
    """The events of one step, as rows (B,) in their group."""

    step: int
    key: Key
    rows: npt.NDArray[np.int64]


class BatchPlan:
    """Which events form the batch of each step. It depends only on the seed and the step.

    Each epoch uses every event once. With `balance`, the events of topologies that have few are used up to three
    times, and a part of those that have many: see `shares`. The events of each group are shuffled and cut into
    batches, the last of which may be smaller. Then all batches are shuffled.

    >>> plan = BatchPlan({Key(0, (6,)): 5, Key(0, (7,)): 3}, batch=2, seed=0)
    >>> plan.steps_per_epoch, [drawn.key.layout for drawn in plan.epoch(0)], plan.draw(1).rows.tolist()
    (5, [(6,), (7,), (7,), (6,), (6,)], [1])
    """

    def __init__(self, counts: dict[Key, int], batch: int, seed: int, balance: bool = False) -> None:
        self.counts, self.batch, self.seed = counts, batch, seed
        each = shares(counts) if balance else {}
        self.drawn = {key: max(1, round(count * each.get(key.tree, 1))) for key, count in counts.items()}
        self.steps_per_epoch = sum(-(-count // batch) for count in self.drawn.values())
        self._epoch = -1
        self._order: list[tuple[Key, int]] = []  # (group, start) of each batch of the epoch
        self._rows: dict[Key, npt.NDArray[np.int64]] = {}

    def draw(self, step: int) -> Drawn:
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._shuffle(epoch)
        key, start = self._order[position]
        return Drawn(step, key, self._rows[key][start : start + self.batch])

    def epoch(self, epoch: int) -> Iterator[Drawn]:
        for position in range(self.steps_per_epoch):
            yield self.draw(epoch * self.steps_per_epoch + position)

    def _shuffle(self, epoch: int) -> None:
        self._rows = {}
        for key, count in self.counts.items():
            rng = np.random.default_rng([self.seed, epoch, *key.layout, *[key.tree] * (key.tree > 0)])
            turns = [rng.permutation(count) for _ in range(-(-self.drawn[key] // count))]
            self._rows[key] = np.concatenate(turns)[: self.drawn[key]]
        starts = [(key, start) for key, count in self.drawn.items() for start in range(0, count, self.batch)]
        order = np.random.default_rng([self.seed, epoch]).permutation(len(starts))
        self._order = [starts[k] for k in order]
        self._epoch = epoch


def shares(counts: Mapping[Key, int]) -> dict[int, float]:
    """Topology -> how often its events are used per epoch: the root of the mean number over its own, at most 3.

    >>> shares({Key(0, (6,)): 1800, Key(1, (4,)): 200})
    {0: 0.7453559924999299, 1: 2.23606797749979}
    """
    total: Counter[int] = Counter()
    for key, count in counts.items():
        total[key.tree] += count
    mean = total.total() / len(total)
    return {tree: min(MOST_USES, (mean / count) ** 0.5) for tree, count in total.items()}


def losses_of(recipe: Recipe) -> dict[str, Loss]:
    """All losses by name, those of the recipe's heads included."""
    return {**LOSSES, **{name: HeadLoss(name, recipe.specs.get(name)) for name in recipe.heads}}


def terms_of(recipe: Recipe, key: Key) -> dict[str, float]:
    """The losses of a group of events, and their weights. Where one is not possible, edges take its place.

    >>> from pairton.training.recipes import load_recipe
    >>> [terms_of(load_recipe("cpu"), Key(0, (n,))) for n in (12, 13)]
    [{'event_likelihood': 1.0}, {'masked_edges': 1.0}]
    """
    weights = dict(recipe.loss.weights)
    for name, weight in recipe.loss.weights.items():
        if not LOSSES[name].possible(recipe, recipe.topology.trees[key.tree], key.layout):
            del weights[name]
            weights.setdefault("masked_edges", weight)
    return {**{name: weights[name] for name in LOSSES if name in weights}, **recipe.heads}


@dataclass
class Batch:
    """The inputs of a network, and what its outputs are compared with."""

    objects: dict[str, Tensor]  # kind -> (B, N, F)
    tokens: Tensor | None  # (B, T, N, N); None if nothing is revealed
    losses: Mapping[str, Loss]
    targets: Mapping[str, Mapping[str, Any]]  # name of a loss -> its target
    view: Callable[[Any], Any]  # the outputs for the topology of the events, from those of the network
    event_weights: Tensor | None = None  # (B,), with a mean of 1 over all training events; None: all are 1
    weight: int = 1  # 0 for a process without a share of the batch, which must still take part

    def __len__(self) -> int:
        return len(next(iter(self.objects.values())))

    @property
    def counts(self) -> dict[str, int]:
        """The number that the sum of each loss is divided by: of its counted entries, or of events."""
        counted = {name: target.get("counted") for name, target in self.targets.items()}
        return {name: self.weight * (len(self) if c is None else int(c.sum())) for name, c in counted.items()}

    def sums(self, network: Network, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The sum of each loss over the events of the batch, with event weights."""
        found, outputs = {}, self.view(outputs)
        for name, loss in self.losses.items():
            each = loss.per_event(network, outputs, self.targets[name])
            each = each if self.event_weights is None else each * self.event_weights
            found[name] = self.weight * each.sum()
        return found


def make_batch(examples: Examples, losses: Mapping[str, Loss], device: torch.device | str = "cpu") -> Batch:
    def tensors(named: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: torch.as_tensor(value, device=device) if isinstance(value, np.ndarray) else value
            for name, value in named.items()
        }

    more = tensors({"tokens": examples.tokens, "weights": examples.weights})
    targets = {name: tensors(loss.target(examples)) for name, loss in losses.items()}
    objects = tensors(examples.nodes.values)
    return Batch(objects, more["tokens"], losses, targets, examples.of_topology, more["weights"])


class Sampler:
    """Takes events from packed ones, as examples of a recipe. Targets that never change are made once."""

    def __init__(self, recipe: Recipe, events: PackedEvents) -> None:
        self.recipe, self.events = recipe, events
        self.terms = {key: terms_of(recipe, key) for key in events.groups}  # group -> loss -> weight
        self.mixture = mixture(recipe.topology.trees) if recipe.loss.settings["mixture"] else recipe.topology
        known = losses_of(recipe)
        self.losses = {key: {name: known[name] for name in terms} for key, terms in self.terms.items()}
        self._prepared: dict[Key, dict[str, Arrays]] = {}

    def take(self, key: Key, rows: npt.NDArray[np.int64]) -> Examples:
        """Events as they are: nothing is revealed."""
        prepared = {
            name: {label: values[rows] for label, values in arrays.items()}
            for name, arrays in self._prepared_for(key).items()
        }
        return self._examples(key, rows, weights=self.events.weights(key, rows), prepared=prepared)

    def draw(
        self,
        key: Key,
        rows: npt.NDArray[np.int64],
        rng: np.random.Generator,
        answer: Callable[[Examples], npt.NDArray[np.integer[Any]]] | None = None,
    ) -> Examples:
        """Events for training: augmented, and in a random state of what is revealed.

        answer    what the network answers (B, S), for `loss.wrong`
        """
        recipe, examples = self.recipe, self.take(key, rows)
        augmentation = Augmentation.draw(len(rows), recipe.augmentation, rng)
        nodes = augmentation.of_nodes(examples.nodes)
        columns = augmentation.of_labels(examples.columns, recipe.specs.values())
        examples = replace(examples, nodes=nodes, columns=columns)
        settings = recipe.loss.settings
        if not recipe.network.tokens and settings["entries"] != "drawn":
            return examples
        events = Unmasked(examples.topology, examples.truth, nodes.mask, rng, settings["level_weights"])
        answers = answer(examples) if answer is not None and settings["wrong"] else None
        visible = draw_tokens(settings["masking"], events, answers, settings["wrong"])
        return replace(examples, visible=visible)

    def _examples(self, key: Key, rows: npt.NDArray[np.int64] | slice, **more: Any) -> Examples:
        group = self.events.groups[key]
        columns = {name: np.asarray(values[rows]) for name, values in group.columns.items()}
        tree, truth, part = self.recipe.topology.trees[key.tree], np.array(group.truth[rows]), 0
        if self.recipe.loss.settings["mixture"]:
            tree, own, part = self.mixture, truth, key.tree
            truth = np.full((len(own), len(tree.slots)), -1, dtype=own.dtype)
            truth[:, parts_of(tree)[part].slots] = own
        return Examples(self.recipe, group.nodes(rows), truth, columns=columns, tree=tree, part=part, **more)

    def _prepared_for(self, key: Key) -> dict[str, Arrays]:
        if key not in self._prepared:
            starts = range(0, len(self.events.groups[key]), PREPARED)
            parts = [self._examples(key, slice(start, start + PREPARED)) for start in starts]
            self._prepared[key] = {
                name: _joined([loss.prepare(part) for part in parts]) for name, loss in self.losses[key].items()
            }
        return self._prepared[key]


def _joined(parts: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
