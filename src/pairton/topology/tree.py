"""Particles, types, slots, symmetries, stages and bins: all that follows from a decay tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, permutations, product
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import TopologyError, nearest
from pairton.topology.checks import check_topology
from pairton.topology.labels import hyper_labels, spanet_labels

__all__ = ["Particle", "Selection", "Slot", "Stage", "Topology", "same_tree"]

MAX_SYMMETRIES = 100_000  # rows of `Topology.symmetries`; eight interchangeable tops would need ten million


@dataclass(frozen=True)
class Slot:
    """One decay product to be filled with a jet."""

    index: int
    name: str  # "t1.W.q1"
    particle: int  # index of the particle that decays directly to it


@dataclass(frozen=True)
class Particle:
    """A short-lived particle to reconstruct."""

    index: int
    name: str  # "t1.W"
    type: str  # "W"
    parent: int  # index, -1 at the root
    children: tuple[int, ...]  # particles it decays to
    own_slots: tuple[int, ...]  # jets it decays to directly
    slots: tuple[int, ...]  # every jet below it


@dataclass(frozen=True)
class Stage:
    """One step of the reverse process: `types` revealed together or, with `any`, the most confident one."""

    types: tuple[str, ...]
    any: bool = False

    def __str__(self) -> str:
        return (" or " if self.any else " + ").join(self.types)


@dataclass(frozen=True)
class Selection:
    """Cuts that exist on data too: on jets, then on events of the jets that are left."""

    pt: float = 0.0  # GeV, jets above
    abs_eta: float = float("inf")  # jets below
    jets: int = 0  # at least
    btags: int = 0  # at least

    def __str__(self) -> str:
        """In words.

        >>> str(Selection(pt=25, jets=6)), str(Selection())
        ('6+ jets; pT > 25 GeV', 'no cuts')
        """
        events = [f"{self.jets}+ jets"] * (self.jets > 0) + [f"{self.btags}+ b-tags"] * (self.btags > 0)
        jets = [f"pT > {self.pt:g} GeV"] * (self.pt > 0) + [f"|eta| < {self.abs_eta:g}"] * (self.abs_eta < np.inf)
        return "; ".join(", ".join(part) for part in (events, jets) if part) or "no cuts"


@dataclass(frozen=True)
class Topology:
    """A decay tree and all that follows from it.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> [slot.name for slot in ttbar.slots]
    ['t1.W.q1', 't1.W.q2', 't1.b', 't2.W.q1', 't2.W.q2', 't2.b']
    >>> ttbar.types, [particle.name for particle in ttbar.particles]
    (('W', 't'), ['t1', 't1.W', 't2', 't2.W'])
    >>> [str(stage) for stage in ttbar.stages], ttbar.bins
    (['W', 'W', 't + t'], ('6', '7', '8+'))
    >>> ttbar.symmetries.shape, ttbar.count_assignments(7)
    ((8, 6), 630)
    """

    name: str
    event: tuple[str, ...]
    decays: tuple[tuple[str, tuple[str, ...]], ...]  # type -> products, in the order of the file
    selection: Selection = Selection()
    given_stages: tuple[Stage, ...] = ()
    given_labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    particles: tuple[Particle, ...] = field(init=False, compare=False, repr=False)
    slots: tuple[Slot, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        particles, slots = _grow(self.event, dict(self.decays))
        object.__setattr__(self, "particles", particles)
        object.__setattr__(self, "slots", slots)
        check_topology(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `parse_topology` reads back to an equal topology."""
        raw: dict[str, Any] = {
            "name": self.name,
            "event": list(self.event),
            "particles": {name: list(products) for name, products in self.decays},
        }
        if self.given_stages:
            raw["stages"] = [{"any": list(s.types)} if s.any else list(s.types) for s in self.given_stages]
        cuts = self.selection
        jets = {"pt": cuts.pt} | ({"abs_eta": cuts.abs_eta} if np.isfinite(cuts.abs_eta) else {})
        raw["selection"] = {"jets": jets, "event": {"jets": cuts.jets, "btags": cuts.btags}}
        if self.given_labels:
            raw["labels"] = {namespace: list(names) for namespace, names in self.given_labels}
        return raw

    # -- what follows from the tree ------------------------------------------------------------------------

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Kinds of particle, children before parents; one adjacency matrix for each."""
        seen = list(dict.fromkeys(particle.type for particle in self.particles))
        return tuple(sorted(seen, key=lambda name: (self.height(name), seen.index(name))))

    def height(self, type_name: str) -> int:
        """Decays below: 0 for a particle that decays to jets only."""
        decays = dict(self.decays)
        below = [self.height(name) for name in decays.get(type_name, ()) if name in decays]
        return 1 + max(below) if below else 0

    def of_type(self, type_name: str) -> tuple[Particle, ...]:
        return tuple(particle for particle in self.particles if particle.type == type_name)

    def type_index(self, type_name: str) -> int:
        return self.types.index(type_name)

    def ancestry(self, particle: int) -> Iterator[int]:
        """The particle itself, its parent, and so on up to the root."""
        while particle >= 0:
            yield particle
            particle = self.particles[particle].parent

    def slot_index(self, name: str) -> int:
        names = [slot.name for slot in self.slots]
        if name not in names:
            raise TopologyError(
                f"{self.name} has no slot {name!r}: it has {', '.join(names)}{nearest(name, names)}"
            )
        return names.index(name)

    @cached_property
    def roots(self) -> tuple[Particle, ...]:
        return tuple(particle for particle in self.particles if particle.parent < 0)

    @cached_property
    def sibling_groups(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Groups of interchangeable siblings, deepest first; a member is its slots, in corresponding order."""
        groups = []
        decays = dict(self.decays)
        for parent in [*reversed(self.particles), None]:
            members: dict[str, list[tuple[int, ...]]] = {}
            for name, slots in _products(self, parent, decays):
                members.setdefault(name, []).append(slots)
            groups += [tuple(same) for same in members.values() if len(same) > 1]
        return tuple(groups)

    @cached_property
    def n_symmetries(self) -> int:
        """Order of the group that permutes interchangeable products."""
        return int(np.prod([factorial(len(group)) for group in self.sibling_groups], dtype=object))

    @cached_property
    def symmetries(self) -> npt.NDArray[np.intp]:
        """(G, S): slot permutations that leave the physics unchanged, the identity first.

        `assignment[:, symmetries[g]]` is an equivalent assignment.
        """
        if self.n_symmetries > MAX_SYMMETRIES:
            raise TopologyError(
                f"{self.name} has {self.n_symmetries} symmetries, more than the {MAX_SYMMETRIES} that are "
                "listed one by one: compare assignments with pairton.decoding.graph.canonical instead"
            )
        group = [tuple(range(len(self.slots)))]
        for siblings in self.sibling_groups:
            grown = []
            for element, order in product(group, permutations(range(len(siblings)))):
                moved = list(element)
                for member, source in zip(siblings, order, strict=True):
                    for slot, other in zip(member, siblings[source], strict=True):
                        moved[slot] = element[other]
                grown.append(tuple(moved))
            group = grown
        return np.array(sorted(set(group)), dtype=np.intp)

    def count_assignments(self, n_jets: int) -> int:
        """Distinct complete assignments of `n_jets` jets."""
        n_slots = len(self.slots)
        if n_jets < n_slots:
            return 0
        return factorial(n_jets) // factorial(n_jets - n_slots) // self.n_symmetries

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Children before parents; types that add one jet per particle jointly, the others one at a time."""
        return self.given_stages or _default_stages(self)

    def with_stages(self, stages: Sequence[Stage]) -> Topology:
        """The same tree revealed in another order."""
        return Topology(self.name, self.event, self.decays, self.selection, tuple(stages), self.given_labels)

    @cached_property
    def levels(self) -> tuple[npt.NDArray[np.bool_], ...]:
        """For k = 0, 1, ... stages done, the (states, particles) sets that may then be revealed; last: all.

        >>> from pairton.topology import load_topology
        >>> [level.shape[0] for level in load_topology("ttbar_allhad").levels]
        [1, 2, 1, 1]
        """
        states: list[frozenset[int]] = [frozenset()]
        levels = [states]
        for stage in self.stages:
            reached = dict.fromkeys(done | more for done in states for more in self.revealable(stage, done))
            states = list(reached)
            levels.append(states)
        return tuple(
            np.array([[p.index in state for p in self.particles] for state in level], dtype=bool)
            for level in levels
        )

    def revealable(self, stage: Stage, done: frozenset[int]) -> list[frozenset[int]]:
        """Every set of particles that `stage` may reveal once `done` are."""
        free = [p for p in self.particles if p.index not in done and all(child in done for child in p.children)]
        if stage.any:
            return [frozenset([p.index]) for p in free if p.type in stage.types]
        picks = []
        for name in dict.fromkeys(stage.types):
            same = [p.index for p in free if p.type == name]
            picks.append(list(combinations(same, stage.types.count(name))))
        return [frozenset(i for part in choice for i in part) for choice in product(*picks)]

    @cached_property
    def bins(self) -> tuple[str, ...]:
        """Jet multiplicity bins of the results: n, n + 1, n + 2 and more."""
        n = len(self.slots)
        return (str(n), str(n + 1), f"{n + 2}+")

    def bin_index(self, n_jets: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """The bin of each jet count; -1 below the smallest."""
        n = len(self.slots)
        return np.where(n_jets < n, -1, np.clip(np.asarray(n_jets) - n, 0, 2)).astype(np.intp)

    def labels(self, namespace: str) -> tuple[str, ...]:
        """How another code names the slots, in the order of `slots`: `hyper` numbers, `spanet` paths.

        >>> from pairton.topology import load_topology
        >>> load_topology("ttbar_allhad").labels("hyper")
        ('2', '3', '1', '5', '6', '4')
        >>> load_topology("ttbar_allhad").labels("spanet")
        ('t1/q1', 't1/q2', 't1/b', 't2/q1', 't2/q2', 't2/b')
        """
        given = dict(self.given_labels)
        if namespace in given:
            return given[namespace]
        return hyper_labels(self) if namespace == "hyper" else spanet_labels(self)

    def tree(self) -> str:
        """The decay tree as text.

        >>> from pairton.topology import load_topology
        >>> print(load_topology("hh4b").tree())
        hh4b
        ├── H1
        │   ├── b1
        │   └── b2
        └── H2
            ├── b1
            └── b2
        """
        lines = [self.name]

        def draw(entries: list[tuple[str, int]], indent: str) -> None:
            for k, (label, particle) in enumerate(entries):
                last = k == len(entries) - 1
                lines.append(f"{indent}{'└── ' if last else '├── '}{label}")
                if particle >= 0:
                    draw(self._entries(particle), indent + ("    " if last else "│   "))

        draw([(p.name, p.index) for p in self.roots], "")
        return "\n".join(lines)

    def _entries(self, particle: int) -> list[tuple[str, int]]:
        """Products of a particle in the order of the file: (last name, particle index or -1 for a jet)."""
        parent = self.particles[particle]
        below = [(self.particles[c].slots[0], self.particles[c].name, c) for c in parent.children]
        below += [(s, self.slots[s].name, -1) for s in parent.own_slots if self.slots[s].name != parent.name]
        return [(name.split(".")[-1], index) for _, name, index in sorted(below)]


def same_tree(one: Topology, other: Topology) -> bool:
    """Whether two topologies have the same slots; cuts, stages and names may differ."""
    return (one.event, dict(one.decays)) == (other.event, dict(other.decays))


# -- the tree ----------------------------------------------------------------------------------------------


def _numbered(names: Sequence[str]) -> list[str]:
    """Siblings of one name get numbers: [q, q, b] -> [q1, q2, b]."""
    return [
        f"{name}{list(names[: k + 1]).count(name)}" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]


def _grow(
    event: tuple[str, ...], decays: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[Particle, ...], tuple[Slot, ...]]:
    particles: list[Particle | None] = []
    slots: list[Slot] = []

    def grow(type_name: str, name: str, parent: int) -> int:
        index = len(particles)
        particles.append(None)  # keeps parents before children
        first = len(slots)
        children, own = [], []
        if type_name in decays:
            for product_name, label in zip(decays[type_name], _numbered(decays[type_name]), strict=True):
                if product_name in decays:
                    children.append(grow(product_name, f"{name}.{label}", index))
                else:
                    own.append(len(slots))
                    slots.append(Slot(len(slots), f"{name}.{label}", index))
        else:  # a plain jet at the root
            own.append(len(slots))
            slots.append(Slot(len(slots), name, index))
        particles[index] = Particle(
            index, name, type_name, parent, tuple(children), tuple(own), tuple(range(first, len(slots)))
        )
        return index

    for type_name, name in zip(event, _numbered(event), strict=True):
        grow(type_name, name, -1)
    return tuple(p for p in particles if p is not None), tuple(slots)


def _products(
    topology: Topology, parent: Particle | None, decays: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, tuple[int, ...]]]:
    """(type or jet name, slots) of each product of a particle, or of the event."""
    if parent is None:
        return [(p.type, p.slots) for p in topology.roots]
    particles = [(topology.particles[c].type, topology.particles[c].slots) for c in parent.children]
    if parent.type not in decays:
        return []
    jets = [name for name in decays[parent.type] if name not in decays]
    return particles + [(name, (slot,)) for name, slot in zip(jets, parent.own_slots, strict=True)]


def _default_stages(topology: Topology) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    for height in sorted({topology.height(name) for name in topology.types}):
        level = [name for name in topology.types if topology.height(name) == height]
        one_by_one = [name for name in level if len(topology.of_type(name)[0].own_slots) != 1]
        count = sum(len(topology.of_type(name)) for name in one_by_one)
        stages += [Stage(tuple(one_by_one), any=len(one_by_one) > 1)] * count
        jointly = [name for name in level if name not in one_by_one]
        joint = tuple(name for name in jointly for _ in topology.of_type(name))
        if joint:
            stages.append(Stage(joint))
    return tuple(stages)
