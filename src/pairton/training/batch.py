"""The batch of each step: which events, augmented and masked, as tensors with what the outputs are compared with.

Shapes: B events, N objects, F columns per kind, T types, S slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pairton.network import Network
from pairton.topology import Layout
from pairton.training.augmentation import Augmentation
from pairton.training.data import PackedEvents
from pairton.training.losses import LOSSES, Examples, HeadLoss, Loss
from pairton.training.losses.loss import Arrays
from pairton.training.masking import Unmasked, draw_tokens
from pairton.training.recipes import Recipe

__all__ = ["Batch", "BatchPlan", "Drawn", "Sampler", "losses_of", "make_batch", "terms_of"]

PREPARED = 65536  # events whose targets are prepared at a time


class Drawn(NamedTuple):
    """The events of one step, as rows (B,) in the group of their layout."""

    step: int
    layout: Layout
    rows: npt.NDArray[np.int64]


class BatchPlan:
    """Which events form the batch of each step. It depends only on the seed and the step.

    Each epoch uses every event once. The events of each layout are shuffled and cut into batches, the last of
    which may be smaller. Then the batches of all layouts are shuffled.

    >>> plan = BatchPlan({(6,): 5, (7,): 3}, batch=2, seed=0)
    >>> plan.steps_per_epoch, [drawn.layout for drawn in plan.epoch(0)], plan.draw(1).rows.tolist()
    (5, [(6,), (7,), (7,), (6,), (6,)], [1])
    """

    def __init__(self, counts: dict[Layout, int], batch: int, seed: int) -> None:
        self.counts, self.batch, self.seed = counts, batch, seed
        self.steps_per_epoch = sum(-(-count // batch) for count in counts.values())
        self._epoch = -1
        self._order: list[tuple[Layout, int]] = []  # (layout, start) of each batch of the epoch
        self._rows: dict[Layout, npt.NDArray[np.int64]] = {}

    def draw(self, step: int) -> Drawn:
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._shuffle(epoch)
        layout, start = self._order[position]
        return Drawn(step, layout, self._rows[layout][start : start + self.batch])

    def epoch(self, epoch: int) -> Iterator[Drawn]:
        for position in range(self.steps_per_epoch):
            yield self.draw(epoch * self.steps_per_epoch + position)

    def _shuffle(self, epoch: int) -> None:
        self._rows = {
            layout: np.random.default_rng([self.seed, epoch, *layout]).permutation(count)
            for layout, count in self.counts.items()
        }
        starts = [
            (layout, start) for layout, count in self.counts.items() for start in range(0, count, self.batch)
        ]
        order = np.random.default_rng([self.seed, epoch]).permutation(len(starts))
        self._order = [starts[k] for k in order]
        self._epoch = epoch


def losses_of(recipe: Recipe) -> dict[str, Loss]:
    """All losses by name, those of the recipe's heads included."""
    return {**LOSSES, **{name: HeadLoss(name, recipe.specs.get(name)) for name in recipe.heads}}


def terms_of(recipe: Recipe, layout: Layout) -> dict[str, float]:
    """The losses of events of a layout, and their weights. Where one is not possible, edges take its place.

    >>> from pairton.training.recipes import load_recipe
    >>> [terms_of(load_recipe("cpu"), (n,)) for n in (12, 13)]
    [{'event_likelihood': 1.0}, {'masked_edges': 1.0}]
    """
    weights = dict(recipe.loss.weights)
    for name, weight in recipe.loss.weights.items():
        if not LOSSES[name].possible(recipe, layout):
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
        found = {}
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
    return Batch(tensors(examples.nodes.values), more["tokens"], losses, targets, more["weights"])


class Sampler:
    """Takes events from packed ones, as examples of a recipe. Targets that never change are made once."""

    def __init__(self, recipe: Recipe, events: PackedEvents) -> None:
        self.recipe, self.events = recipe, events
        self.terms = {layout: terms_of(recipe, layout) for layout in events.groups}  # layout -> loss -> weight
        known = losses_of(recipe)
        self.losses = {layout: {name: known[name] for name in terms} for layout, terms in self.terms.items()}
        self._prepared: dict[Layout, dict[str, Arrays]] = {}

    def take(self, layout: Layout, rows: npt.NDArray[np.int64]) -> Examples:
        """Events as they are: nothing is revealed."""
        prepared = {
            name: {key: values[rows] for key, values in arrays.items()}
            for name, arrays in self._prepared_for(layout).items()
        }
        return self._examples(layout, rows, weights=self.events.weights(layout, rows), prepared=prepared)

    def draw(
        self,
        layout: Layout,
        rows: npt.NDArray[np.int64],
        rng: np.random.Generator,
        answer: Callable[[Examples], npt.NDArray[np.integer[Any]]] | None = None,
    ) -> Examples:
        """Events for training: augmented, and in a random state of what is revealed.

        answer    what the network answers (B, S), for `loss.wrong`
        """
        recipe, examples = self.recipe, self.take(layout, rows)
        augmentation = Augmentation.draw(len(rows), recipe.augmentation, rng)
        nodes = augmentation.of_nodes(examples.nodes)
        columns = augmentation.of_labels(examples.columns, recipe.specs.values())
        examples = replace(examples, nodes=nodes, columns=columns)
        settings = recipe.loss.settings
        if not recipe.network.tokens and settings["entries"] != "drawn":
            return examples
        events = Unmasked(recipe.topology, examples.truth, nodes.mask, rng, settings["level_weights"])
        answers = answer(examples) if answer is not None and settings["wrong"] else None
        visible = draw_tokens(settings["masking"], events, answers, settings["wrong"])
        return replace(examples, visible=visible)

    def _examples(self, layout: Layout, rows: npt.NDArray[np.int64] | slice, **more: Any) -> Examples:
        group = self.events.groups[layout]
        columns = {name: np.asarray(values[rows]) for name, values in group.columns.items()}
        return Examples(self.recipe, group.nodes(rows), np.array(group.truth[rows]), columns=columns, **more)

    def _prepared_for(self, layout: Layout) -> dict[str, Arrays]:
        if layout not in self._prepared:
            starts = range(0, len(self.events.groups[layout]), PREPARED)
            parts = [self._examples(layout, slice(start, start + PREPARED)) for start in starts]
            self._prepared[layout] = {
                name: _joined([loss.prepare(part) for part in parts]) for name, loss in self.losses[layout].items()
            }
        return self._prepared[layout]


def _joined(parts: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
