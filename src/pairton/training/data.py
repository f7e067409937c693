"""Events for training: packed by jet count, in memory or memory-mapped; which of them form a step's batch.

Shapes: E events of one jet count, N jets, S slots. A batch has one jet count, so nothing is padded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import output_errors
from pairton.errors import TrainingError
from pairton.events import Events
from pairton.topology import Topology

__all__ = ["BatchPlan", "Drawn", "Group", "PackedEvents", "pack"]

MIN_TRAINING_EVENTS = 10


class Group(NamedTuple):
    """Events with the same number of jets."""

    jets: npt.NDArray[np.float32]  # (E, N, 5)
    truth: npt.NDArray[np.int8]  # (E, S)
    ids: npt.NDArray[np.uint64]  # (E, 2)


@dataclass
class PackedEvents:
    """Groups by jet count, and a fingerprint of what is in them."""

    groups: dict[int, Group]
    fingerprint: str = ""

    def __len__(self) -> int:
        return sum(len(group.jets) for group in self.groups.values())

    @property
    def counts(self) -> dict[int, int]:
        return {n_jets: len(group.jets) for n_jets, group in self.groups.items()}


@dataclass
class _Store:
    """Grows chunk by chunk; past a bound on memory the arrays go to files, to be mapped."""

    folder: Path
    bound: float  # bytes
    parts: dict[int, list[Group]] = field(default_factory=dict)
    held: int = 0
    on_disk: set[int] = field(default_factory=set)
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, n_jets: int, group: Group) -> None:
        self.parts.setdefault(n_jets, []).append(group)
        self.held += sum(array.nbytes for array in group)
        if self.held > self.bound:
            self.spill()

    def spill(self) -> None:
        """Append all that is held to one file for each array."""
        with output_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for n_jets, groups in self.parts.items():
                for name in Group._fields:
                    mode = "ab" if n_jets in self.on_disk else "wb"
                    with self._path(n_jets, name).open(mode) as file:
                        for group in groups:
                            file.write(np.ascontiguousarray(getattr(group, name)).data)
                self.on_disk.add(n_jets)
        self.parts, self.held = {}, 0

    def _path(self, n_jets: int, name: str) -> Path:
        return self.folder / f"{n_jets}-{name}.bin"

    def finish(self, n_slots: int) -> PackedEvents:
        if self.on_disk:
            self.spill()
            groups = {n: self._mapped(n, n_slots) for n in sorted(self.on_disk)}
        else:
            groups = {
                n: Group(*(np.concatenate(arrays) for arrays in zip(*self.parts[n], strict=True)))
                for n in sorted(self.parts)
            }
        return PackedEvents(groups, self.digest.hexdigest()[:16])

    def _mapped(self, n_jets: int, n_slots: int) -> Group:
        shapes = {"jets": (np.float32, (n_jets, 5)), "truth": (np.int8, (n_slots,)), "ids": (np.uint64, (2,))}
        arrays = []
        for name, (dtype, shape) in shapes.items():
            flat = np.memmap(self._path(n_jets, name), dtype=dtype, mode="r")
            arrays.append(flat.reshape(-1, *shape))
        return Group(*arrays)


def pack(
    chunks: Iterable[Events],
    topology: Topology,
    *,
    folder: Path,
    fractions: tuple[float, float, float] = (0.9, 0.05, 0.05),
    partial: bool = False,
    max_jets: int = 20,
    memory: float = 8 * 2**30,
) -> tuple[PackedEvents, PackedEvents]:
    """The training and validation events among selected ones: (training, validation).

    Training takes fully reconstructible events, with `partial` those with at least one reconstructible particle;
    validation takes the latter, so that efficiencies of every kind can be counted.
    """
    stores = {name: _Store(folder / name, memory / 2) for name in ("train", "validation")}
    seen = labelled = 0
    for events in chunks:
        if events.topology.event != topology.event or dict(events.topology.decays) != dict(topology.decays):
            raise TrainingError(
                f"the events are of the topology {events.topology.name}, but the recipe is for {topology.name}: "
                "give the data or the recipe that fits"
            )
        if events.truth is None:
            raise TrainingError(
                "the events have no truth, which training needs: give files with labelled jets (`pairton inspect` "
                "shows what a file has)"
            )
        seen += len(events)
        chosen = events.select()
        chosen = chosen[(chosen.n_jets >= len(topology.slots)) & (chosen.n_jets <= max_jets)]
        labelled += int(chosen.complete.sum())
        usable = {
            "train": chosen.present.any(axis=1) if partial else chosen.complete,
            "validation": chosen.present.any(axis=1),
        }
        for name, store in stores.items():
            _fill(store, chosen[chosen.in_split(name, fractions) & usable[name]])
    train, validation = (store.finish(len(topology.slots)) for store in stores.values())
    if len(train) < MIN_TRAINING_EVENTS or len(validation) == 0:
        raise TrainingError(
            f"{seen} events were read, {labelled} of them selected and fully reconstructible, which leaves "
            f"{len(train)} to train on and {len(validation)} to validate: at least {MIN_TRAINING_EVENTS} and 1 "
            "are needed, give more data"
        )
    return train, validation


def _fill(store: _Store, events: Events) -> None:
    assert events.truth is not None
    store.digest.update(np.ascontiguousarray(events.ids).tobytes())  # in file order, whatever the chunks
    for n_jets in np.unique(events.n_jets):
        same = events[events.n_jets == n_jets]
        assert same.truth is not None
        jets, _ = same.dense(int(n_jets))
        group = Group(jets, same.truth.astype(np.int8), same.ids)
        store.add(int(n_jets), group)


class Drawn(NamedTuple):
    """The events of one step: rows (B,) of the group with `n_jets` jets."""

    step: int
    n_jets: int
    rows: npt.NDArray[np.int64]


class BatchPlan:
    """Which events form the batch of a step: a function of the seed and the step alone.

    Each epoch visits every event once; events of one jet count are shuffled and cut into batches, and the batches
    of all jet counts are shuffled. The last batch of a jet count may be smaller.

    >>> plan = BatchPlan({6: 5, 7: 3}, batch=2, seed=0)
    >>> plan.steps_per_epoch, [drawn.n_jets for drawn in plan.epoch(0)], plan.draw(1).rows.tolist()
    (5, [6, 7, 7, 6, 6], [1])
    """

    def __init__(self, counts: dict[int, int], batch: int, seed: int) -> None:
        self.counts, self.batch, self.seed = counts, batch, seed
        self.steps_per_epoch = sum(-(-count // batch) for count in counts.values())
        self._epoch = -1
        self._order: list[tuple[int, int]] = []  # (jet count, start) of each batch of the epoch
        self._rows: dict[int, npt.NDArray[np.int64]] = {}

    def draw(self, step: int) -> Drawn:
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._shuffle(epoch)
        n_jets, start = self._order[position]
        return Drawn(step, n_jets, self._rows[n_jets][start : start + self.batch])

    def epoch(self, epoch: int) -> Iterator[Drawn]:
        for position in range(self.steps_per_epoch):
            yield self.draw(epoch * self.steps_per_epoch + position)

    def _shuffle(self, epoch: int) -> None:
        self._rows = {
            n_jets: np.random.default_rng([self.seed, epoch, n_jets]).permutation(count)
            for n_jets, count in self.counts.items()
        }
        starts = [
            (n_jets, start) for n_jets, count in self.counts.items() for start in range(0, count, self.batch)
        ]
        order = np.random.default_rng([self.seed, epoch]).permutation(len(starts))
        self._order = [starts[k] for k in order]
        self._epoch = epoch
