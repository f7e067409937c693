"""Packs events for training, by topology and layout, in memory or memory-mapped.

Shapes: E events of one group, N objects of a kind, F columns of a kind, S slots. The events of a batch have the
same topology and layout, so nothing is padded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from pairton._common.atomic import output_errors
from pairton.errors import ConfigError, TrainingError
from pairton.events import Events, Status
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.events.inputs import COMPUTED, Inputs
from pairton.events.nodes import MOST_OBJECTS, Nodes
from pairton.events.splits import fold_of
from pairton.events.tags import load_table
from pairton.topology import Layout, Topology, same_tree
from pairton.topology.assignments import present
from pairton.training.draws import draw_acceptance, draw_tags

__all__ = ["DataConfig", "Group", "Key", "PackedEvents", "check_enough", "pack"]

MIN_TRAINING_EVENTS = 10
MOST_SOURCES = 10_000  # largest number of sources that a model lists; NanoAOD has one per luminosity block
COPIED = 2**16  # events that are copied at a time
OBJECTS, COLUMNS = "objects.", "columns."  # prefixes of the names of a group's arrays


@dataclass(frozen=True)
class DataConfig:
    """Which events are used."""

    # partial: at least one particle is present
    events: Literal["complete", "partial", "all"] = "complete"
    max_objects: Annotated[int, Meta(ge=1, le=MOST_OBJECTS)] = (
        20  # events with more objects of a kind are left out
    )
    train_fraction: float = 0.9
    validation_fraction: float = 0.05  # the remaining events are test events
    validation_events: Annotated[int, Meta(ge=1)] = 20_000  # largest number of events to validate on
    memory_gib: float = 8.0  # larger samples are memory-mapped
    jet_radius: float | None = 0.4  # stored in the domain of the model
    draws: Annotated[int, Meta(ge=1, le=100)] = 1  # how often each event is used, with new random cuts and tags
    draw_acceptance: bool = False  # whether cuts on jets are drawn per event: see training/draws.py
    tag_table: str | None = None  # tagger whose resolution is drawn per event, for the inputs b_ and c_evidence

    def __post_init__(self) -> None:
        if self.tag_table is not None:
            load_table(self.tag_table)
        train, validation = self.train_fraction, self.validation_fraction
        if not (0 < train < 1 and 0 < validation < 1 and train + validation <= 1 + 1e-9):
            raise ConfigError(
                f"data.train_fraction {train} and data.validation_fraction {validation} must be above 0 and add "
                "up to at most 1"
            )

    @property
    def fractions(self) -> tuple[float, float, float]:
        rest = max(0.0, 1 - self.train_fraction - self.validation_fraction)
        return self.train_fraction, self.validation_fraction, rest


DEFAULT_CONFIG = DataConfig()


class Key(NamedTuple):
    """What the events of a batch have in common."""

    tree: int  # number of their topology in `Topology.trees` of the recipe
    layout: Layout


@dataclass(frozen=True)
class Group:
    """Events of one topology and layout."""

    objects: Mapping[str, npt.NDArray[np.float32]]  # kind -> (E, N, F)
    truth: npt.NDArray[np.int8]  # (E, S): nodes, -1 for none
    ids: npt.NDArray[np.uint64]  # (E, 2)
    weights: npt.NDArray[np.float32]  # (E,)
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # (E, ...): labels of further heads

    def __len__(self) -> int:
        return len(self.truth)

    def __getitem__(self, rows: npt.NDArray[Any] | slice) -> Group:
        return Group.of_arrays({name: np.asarray(array[rows]) for name, array in self.arrays().items()})

    def nodes(self, rows: npt.NDArray[Any] | slice = slice(None)) -> Nodes:
        return Nodes.full({kind: np.asarray(array[rows]) for kind, array in self.objects.items()})

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name; the inverse of `of_arrays`."""
        named = {f"{OBJECTS}{kind}": array for kind, array in self.objects.items()}
        named |= {f"{COLUMNS}{name}": array for name, array in self.columns.items()}
        return named | {"truth": self.truth, "ids": self.ids, "weights": self.weights}

    @classmethod
    def of_arrays(cls, named: Mapping[str, npt.NDArray[Any]]) -> Group:
        def part(start: str) -> dict[str, npt.NDArray[Any]]:
            return {name.removeprefix(start): array for name, array in named.items() if name.startswith(start)}

        return cls(part(OBJECTS), named["truth"], named["ids"], named["weights"], part(COLUMNS))


@dataclass
class PackedEvents:
    """Groups of events, and their fingerprint."""

    groups: dict[Key, Group]
    fingerprint: str = ""
    sources: tuple[int, ...] = ()  # all values of the first number of event ids; empty if there are too many
    fold: tuple[int, int] | None = None  # the fold that was left out, and how many there are
    largest: Mapping[str, float] = field(default_factory=dict)  # column -> largest value, in all folds; or -1

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups.values())

    @property
    def counts(self) -> dict[Key, int]:
        return {key: len(group) for key, group in self.groups.items()}

    @cached_property
    def mean_weight(self) -> float:
        """Mean weight of all events. Raises TrainingError unless it is positive."""
        mean = sum(float(group.weights.sum(dtype=np.float64)) for group in self.groups.values()) / max(
            1, len(self)
        )
        if not mean > 0:
            raise TrainingError(f"the weights of the events have the mean {mean:g}, but it must be above 0")
        return mean

    def weights(self, key: Key, rows: npt.NDArray[Any] | slice) -> npt.NDArray[np.float32]:
        """The weights of some events, scaled to a mean of 1 over all events."""
        return np.asarray(self.groups[key].weights[rows] / np.float32(self.mean_weight))

    def without(self, fold: tuple[int, int], folder: Path, memory: float) -> PackedEvents:
        """These events except those of a fold, given by its number and how many folds there are.

        folder, memory    as for `pack`
        """
        store = _Store(folder, memory)
        for key, group in self.groups.items():
            for start in range(0, len(group), COPIED):
                part = group[start : start + COPIED]
                part = part[fold_of(part.ids, fold[1]) != fold[0]]
                if len(part):
                    store.add(key, part)
        named = hashlib.sha256(f"{self.fingerprint} without {fold[0]} of {fold[1]}".encode()).hexdigest()[:16]
        return replace(store.finish(), fingerprint=named, fold=fold, largest=self.largest)


@dataclass
class _Store:
    """Collects groups. Beyond `bound` bytes, arrays are written to files, which are memory-mapped in the end."""

    folder: Path
    bound: float  # bytes
    parts: dict[Key, list[Group]] = field(default_factory=dict)
    held: int = 0
    on_disk: dict[Key, dict[str, tuple[np.dtype[Any], tuple[int, ...]]]] = field(default_factory=dict)
    digests: dict[str, Any] = field(default_factory=dict)  # one per array, so that chunks do not matter
    sources: set[int] = field(default_factory=set)

    def add(self, key: Key, group: Group) -> None:
        self.parts.setdefault(key, []).append(group)
        self.sources.update(np.unique(group.ids[:, 0]).tolist())
        self.held += sum(array.nbytes for array in group.arrays().values())
        if self.held > self.bound:
            self.spill()

    def digest(self, name: str, array: npt.NDArray[Any]) -> None:
        """Add rows of an array to the fingerprint."""
        self.digests.setdefault(name, hashlib.sha256()).update(np.ascontiguousarray(array).tobytes())

    def fingerprint(self) -> str:
        joined = "".join(f"{name} {self.digests[name].hexdigest()} " for name in sorted(self.digests))
        return hashlib.sha256(joined.encode()).hexdigest()[:16]

    def spill(self) -> None:
        """Append everything in memory to files, one per array."""
        with output_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for key, groups in self.parts.items():
                mode = "ab" if key in self.on_disk else "wb"
                for number, name in enumerate(groups[0].arrays()):
                    with self._path(key, number).open(mode) as file:
                        for group in groups:
                            file.write(np.ascontiguousarray(group.arrays()[name]).data)
                shapes = {name: (array.dtype, array.shape[1:]) for name, array in groups[0].arrays().items()}
                self.on_disk[key] = shapes
        self.parts, self.held = {}, 0

    def _path(self, key: Key, number: int) -> Path:
        """The file of an array, by its number, since names of columns may contain a slash."""
        return self.folder / f"{'-'.join(map(str, (key.tree, *key.layout)))}.{number}.bin"

    def finish(self) -> PackedEvents:
        if self.on_disk:
            self.spill()
            groups = {key: self._mapped(key) for key in sorted(self.on_disk)}
        else:
            groups = {key: _joined(self.parts[key]) for key in sorted(self.parts)}
        listed = tuple(sorted(self.sources)) if len(self.sources) <= MOST_SOURCES else ()
        return PackedEvents(groups, self.fingerprint(), listed)

    def _mapped(self, key: Key) -> Group:
        arrays = {}
        for number, (name, (dtype, shape)) in enumerate(self.on_disk[key].items()):
            flat = np.memmap(self._path(key, number), dtype=dtype, mode="r")
            arrays[name] = flat.reshape(-1, *shape)
        return Group.of_arrays(arrays)


def _joined(groups: list[Group]) -> Group:
    arrays = [group.arrays() for group in groups]
    return Group.of_arrays({name: np.concatenate([part[name] for part in arrays]) for name in arrays[0]})


def pack(
    chunks: Iterable[Events],
    topology: Topology,
    inputs: Inputs,
    *,
    folder: Path,
    config: DataConfig = DEFAULT_CONFIG,
    max_objects: Sequence[int] = (),
    memory: float = 8 * 2**30,
    columns: tuple[str, ...] = (),
) -> tuple[PackedEvents, PackedEvents]:
    """Return the packed events of the training and of the validation split, from all selected events.

    chunks       events with truth, of the topology or, for a vocabulary, each of one of its topologies
    folder       where to put files that are memory-mapped
    max_objects  events with more objects of a kind are left out: a number for each topology, else `config`'s
    memory       bytes to hold in memory; beyond, events are memory-mapped
    columns      columns of the events to keep, such as labels of heads

    Training uses the events that `config.events` names: `complete` ones, `partial` ones with at least one particle
    present, or `all`. Validation always includes the partial ones, so that the efficiencies of all types can be
    counted. Objects are those that a reconstruction would use, within the cuts that are drawn.
    """
    events, fractions = config.events, config.fractions
    stores = {name: _Store(folder / name, memory / 2) for name in ("train", "validation")}
    limits = max_objects or [config.max_objects] * len(topology.trees)
    largest = dict.fromkeys(columns, -1.0)
    seen = complete = 0
    for turn, chunk in _drawn(chunks, config, columns):
        number, tree = _tree_of(chunk, topology.trees)
        seen += len(chunk) * (turn == 0)
        chosen = chunk[chunk.selected]
        domain = Domain.of_selection(tree)
        accepted = accept(chosen, domain, inputs.of(tree), max_objects=limits[number])
        usable = accepted.usable if events == "all" else accepted.answerable
        usable = usable & (accepted.status != Status.TRUNCATED)
        usable &= accepted.nodes.counts.sum(axis=1) > 0  # a network needs an object
        for column in columns:
            values = np.asarray(chosen.columns[column], dtype=np.float64)[usable]
            largest[column] = float(values.max(initial=largest[column], where=np.isfinite(values)))
        split = {name: chosen.in_split(name, fractions) for name in stores}
        assert chosen.truth is not None
        weights = chosen.each_weight.astype(np.float32)
        found = {}  # key -> rows and truth
        some, every = np.zeros(len(chosen), dtype=bool), np.zeros(len(chosen), dtype=bool)
        for layout, rows in accepted.by_layout(usable):
            truth = accepted.to_nodes(chosen.truth[rows], rows, layout).astype(np.int8)
            particles = present(tree, truth)
            some[rows], every[rows] = particles.any(axis=1), particles.all(axis=1)
            found[Key(number, layout)] = rows, truth
        complete += int(every.sum()) * (turn == 0)
        taken = {"complete": every, "partial": some, "all": usable}[events]
        wanted = {
            "train": split["train"] & taken,
            "validation": split["validation"] & (some | taken & (events == "all")) & (turn == 0),
        }
        for name, store in stores.items():
            store.digest("ids", chosen.ids[wanted[name]])  # in file order
            for key, (rows, truth) in found.items():
                inside = wanted[name][rows]
                if inside.any():
                    kept = rows[inside]
                    labels = {column: np.asarray(chosen.columns[column])[kept] for column in columns}
                    objects = accepted.batch(kept, key.layout).values
                    store.add(key, Group(objects, truth[inside], chosen.ids[kept], weights[kept], labels))
                    of = f"{key.layout}" + f" of {tree.name}" * (len(topology.trees) > 1)
                    store.digest(f"truth {of}", truth[inside])
                    store.digest(f"weights {of}", weights[kept])
                    for kind, values in objects.items():
                        store.digest(f"{kind} {of}", values[..., _stored(inputs.columns(kind))])
    train, validation = (replace(store.finish(), largest=largest) for store in stores.values())
    check_enough(train, validation, f"{seen} events were read, {complete} of them selected and complete")
    return train, validation


def check_enough(train: PackedEvents, validation: PackedEvents, events: str) -> None:
    """Raise TrainingError if there are too few events, out of those that `events` describes."""
    if len(train) < MIN_TRAINING_EVENTS or len(validation) == 0:
        raise TrainingError(
            f"{events}, which leaves {len(train)} to train on and {len(validation)} to validate: at least "
            f"{MIN_TRAINING_EVENTS} and 1 are needed, give more data"
        )


def _stored(columns: tuple[str, ...]) -> list[int]:
    """Places of columns that files store. Others are computed, and may differ in the last bit between machines."""
    return [k for k, name in enumerate(columns) if name not in ("energy", *COMPUTED)]


def _drawn(chunks: Iterable[Events], config: DataConfig, columns: tuple[str, ...]) -> Iterator[tuple[int, Events]]:
    """Yield (draw, events) of each chunk, `config.draws` times. The first event's id seeds the random numbers."""
    table = None if config.tag_table is None else load_table(config.tag_table)
    for chunk in chunks:
        _check(chunk, columns)
        for turn in range(config.draws):
            rng = np.random.default_rng([turn, *chunk.ids[:1].ravel().tolist()])
            drawn = draw_acceptance(chunk, rng) if config.draw_acceptance else chunk
            yield turn, drawn if table is None else draw_tags(drawn, table, rng)


def _tree_of(events: Events, trees: Sequence[Topology]) -> tuple[int, Topology]:
    """The topology of the recipe that the events have, and its number."""
    for number, tree in enumerate(trees):
        if same_tree(events.topology, tree):
            return number, tree
    raise TrainingError(
        f"the events are of the topology {events.topology.name}, but the recipe is for "
        f"{', '.join(tree.name for tree in trees)}: give events and a recipe of the same topology"
    )


def _check(events: Events, columns: tuple[str, ...]) -> None:
    if events.truth is None:
        raise TrainingError(
            "the events have no truth, which training needs: give files with labelled objects (`pairton inspect` "
            "shows what a file has)"
        )
    missing = [name for name in columns if name not in events.columns]
    if missing:
        raise TrainingError(
            f"a head learns from the column {missing[0]}, which the events do not have: add it, or remove the head"
        )
