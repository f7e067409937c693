"""The decay tree, and what follows from it: particles, types, slots, symmetries and stages.

A layout is the number of objects of each kind in an event, in the order of `Topology.kinds`. The objects of an
event, one kind after the other, are the nodes that the network sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, permutations, product
from math import factorial, perm
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pairton.errors import TopologyError, nearest
from pairton.topology.checks import check_topology
from pairton.topology.extras import Extras
from pairton.topology.invisible import Invisible, Neutrino, neutrinos_of
from pairton.topology.particles import Particle, Slot, grow_tree
from pairton.topology.pdg import systems_of
from pairton.topology.selection import Selection

__all__ = ["Layout", "Particle", "Slot", "Stage", "Topology", "same_tree"]

Layout = tuple[int, ...]  # objects of each kind

MAX_SYMMETRIES = 100_000  # rows of `Topology.symmetries`; eight interchangeable tops would need ten million


@dataclass(frozen=True)
class Stage:
    """One step when an answer is built in steps.

    The step reveals particles of all `types` together or, with `any`, only the most confident one of them.
    """

    types: tuple[str, ...]
    any: bool = False

    def __str__(self) -> str:
        return (" or " if self.any else " + ").join(self.types)


@dataclass(frozen=True)
class Topology:
    """A decay tree, with the slots that objects are assigned to. Made by `load_topology`.

    Attributes:
        name: Name of the topology.
        event: Types of the root particles.
        decays: Pairs of a type and its products.
        selection: Cuts on objects and events.
        particles: All particles of the tree, parents before children.
        slots: All decay products to be filled with an object.

    Examples:
        >>> from pairton.topology import load_topology
        >>> ttbar = load_topology("ttbar_allhad")
        >>> [slot.name for slot in ttbar.slots]
        ['t1.W.q1', 't1.W.q2', 't1.b', 't2.W.q1', 't2.W.q2', 't2.b']
        >>> ttbar.types, [particle.name for particle in ttbar.particles]
        (('W', 't'), ['t1', 't1.W', 't2', 't2.W'])
        >>> [str(stage) for stage in ttbar.stages]
        ['W', 'W', 't + t']
        >>> ttbar.symmetries.shape, ttbar.count_assignments(7)
        ((8, 6), 630)
    """

    name: str
    event: tuple[str, ...]
    decays: tuple[tuple[str, tuple[str, ...]], ...]  # type -> products, in the order of the file
    selection: Selection = field(default_factory=Selection)
    given_stages: tuple[Stage, ...] = ()
    objects: tuple[tuple[str, str], ...] = ()  # product -> kind, if it is not a jet
    context: tuple[str, ...] = ()  # kinds that the network sees but no slot takes
    codes: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), compare=False)  # name -> PDG codes
    invisible: tuple[Invisible, ...] = field(default=(), compare=False)
    alternatives: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of a mixture: name of a topology -> its roots
    extras: Extras = field(default=Extras(), compare=False)
    particles: tuple[Particle, ...] = field(init=False, compare=False, repr=False)
    slots: tuple[Slot, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        particles, slots = grow_tree(self.event, dict(self.decays), dict(self.objects))
        object.__setattr__(self, "particles", particles)
        object.__setattr__(self, "slots", slots)
        check_topology(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `parse_topology` reads back to an equal topology."""
        raw = {
            "name": self.name,
            "event": self.event,
            "particles": dict(self.decays),
            "stages": [{"any": stage.types} if stage.any else stage.types for stage in self.given_stages],
            "selection": self.selection.to_dict(),
            "objects": dict(self.objects),
            "context": self.context,
            "codes": dict(self.codes),
            "invisible": {entry.type: entry.to_raw() for entry in self.invisible},
            "alternatives": dict(self.alternatives),
        }
        raw |= msgspec.to_builtins(self.extras)
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(raw))  # with lists, as in a file
        return {key: value for key, value in plain.items() if value}

    # -- what follows from the tree ------------------------------------------------------------------------

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Types of particles, children before parents. The network has one adjacency matrix per type."""
        seen = list(dict.fromkeys(particle.type for particle in self.particles))
        return tuple(sorted(seen, key=lambda name: (self.height(name), seen.index(name))))

    def height(self, type_name: str) -> int:
        """Number of levels of particles below a type: 0 if it decays to objects only."""
        decays = dict(self.decays)
        below = [self.height(name) for name in decays.get(type_name, ()) if name in decays]
        return 1 + max(below) if below else 0

    def of_type(self, type_name: str) -> tuple[Particle, ...]:
        """The particles of a type."""
        return tuple(particle for particle in self.particles if particle.type == type_name)

    def type_index(self, type_name: str) -> int:
        """The position of a type in `types`."""
        return self.types.index(type_name)

    def ancestry(self, particle: int) -> Iterator[int]:
        """Indices of a particle, its parent, and so on up to the root."""
        while particle >= 0:
            yield particle
            particle = self.particles[particle].parent

    def slot_index(self, name: str) -> int:
        """The index of the slot with a name such as `t1.b`; TopologyError if there is none."""
        names = [slot.name for slot in self.slots]
        if name not in names:
            raise TopologyError(
                f"{self.name} has no slot {name!r}: it has {', '.join(names)}{nearest(name, names)}"
            )
        return names.index(name)

    # -- kinds of objects ----------------------------------------------------------------------------------

    @cached_property
    def object_kinds(self) -> tuple[str, ...]:
        """Kinds of the objects that fill slots, in the order of the slots."""
        return tuple(dict.fromkeys(slot.kind for slot in self.slots))

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of objects in an event: those that fill slots, then the context."""
        return self.object_kinds + self.context

    @cached_property
    def main_kind(self) -> str:
        """The kind that most slots have. Results are binned in the number of its objects."""
        kinds = [slot.kind for slot in self.slots]
        return max(self.object_kinds, key=kinds.count)

    @cached_property
    def slots_per_kind(self) -> Layout:
        """The number of slots of each kind: the smallest layout that can fill all slots."""
        return tuple(sum(slot.kind == kind for slot in self.slots) for kind in self.kinds)

    def layout(self, counts: int | Mapping[str, int] | Sequence[int]) -> Layout:
        """Turn numbers of objects into a layout; a single number suffices if the topology has one kind.

        >>> from pairton.topology import load_topology
        >>> load_topology("ttbar_allhad").layout(7)
        (7,)
        """
        if isinstance(counts, Mapping):
            return tuple(int(counts.get(kind, 0)) for kind in self.kinds)
        layout = (int(counts),) if isinstance(counts, int | np.integer) else tuple(int(n) for n in counts)
        if len(layout) != len(self.kinds):
            raise TopologyError(
                f"read {len(layout)} numbers of objects, but {self.name} has the kinds {', '.join(self.kinds)}: "
                "give one number per kind"
            )
        return layout

    def nodes(self, kind: str, layout: Layout) -> range:
        """The indices of the nodes that are objects of a kind."""
        k = self.kinds.index(kind)
        return range(sum(layout[:k]), sum(layout[: k + 1]))

    def offsets(self, layout: Layout) -> npt.NDArray[np.intp]:
        """(S,): for each slot, the index of the first node that has its kind."""
        return np.array([self.nodes(slot.kind, layout).start for slot in self.slots], dtype=np.intp)

    @cached_property
    def roots(self) -> tuple[Particle, ...]:
        """The particles without a parent."""
        return tuple(particle for particle in self.particles if particle.parent < 0)

    @cached_property
    def sibling_groups(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Groups of interchangeable siblings, deepest first.

        Each member of a group is given by its slots; the slots of different members correspond in order.
        """
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
        """Number of slot permutations that leave the physics unchanged."""
        return int(np.prod([factorial(len(group)) for group in self.sibling_groups], dtype=object))

    @cached_property
    def symmetries(self) -> npt.NDArray[np.intp]:
        """(G, S): slot permutations that leave the physics unchanged, the identity first.

        `assignment[:, symmetries[g]]` is an equivalent assignment.
        """
        if self.n_symmetries > MAX_SYMMETRIES:
            raise TopologyError(
                f"{self.name} has {self.n_symmetries} symmetries, more than the {MAX_SYMMETRIES} that can be "
                "listed: compare assignments with pairton.topology.assignments.canonical instead"
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

    def count_assignments(self, counts: int | Mapping[str, int] | Sequence[int]) -> int:
        """Number of complete assignments that differ by more than a symmetry, for numbers of objects by kind."""
        pairs = list(zip(self.layout(counts), self.slots_per_kind, strict=True))
        if any(n < slots for n, slots in pairs):
            return 0
        return int(np.prod([perm(n, slots) for n, slots in pairs], dtype=object)) // self.n_symmetries

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The steps in which an answer is built: `given_stages`, or a default order.

        By default, children come before parents. Types whose particles add one object each are revealed together,
        all others one particle at a time.
        """
        return self.given_stages or _default_stages(self)

    def with_stages(self, stages: Sequence[Stage]) -> Topology:
        """A copy of the topology with other stages."""
        return replace(self, given_stages=tuple(stages))

    @cached_property
    def levels(self) -> tuple[npt.NDArray[np.bool_], ...]:
        """After each number of stages (0, 1, …), the possible sets of revealed particles, as (sets, particles).

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
        """Every set of particles that `stage` may reveal after the particles `done` are revealed."""
        free = [p for p in self.particles if p.index not in done and all(child in done for child in p.children)]
        if stage.any:
            return [frozenset([p.index]) for p in free if p.type in stage.types]
        picks = []
        for name in dict.fromkeys(stage.types):
            same = [p.index for p in free if p.type == name]
            picks.append(list(combinations(same, stage.types.count(name))))
        return [frozenset(i for part in choice for i in part) for choice in product(*picks)]

    @cached_property
    def neutrinos(self) -> tuple[Neutrino, ...]:
        """The neutrinos that `invisible` adds to the tree.

        >>> from pairton.topology import load_topology
        >>> [neutrino.name for neutrino in load_topology("ttbar_dilep").neutrinos]
        ['tl1.nu', 'tl2.nu']
        """
        return neutrinos_of(self)

    @cached_property
    def systems(self) -> dict[str, tuple[int, ...]]:
        """Systems of root particles with the same PDG code, such as `tt`: name -> indices of the particles."""
        return systems_of(self)

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
        """Products of a particle in the order of the file: (last name, index of a particle or -1 for a slot)."""
        parent = self.particles[particle]
        below = [(self.particles[c].slots[0], self.particles[c].name, c) for c in parent.children]
        below += [(s, self.slots[s].name, -1) for s in parent.own_slots if self.slots[s].name != parent.name]
        return [(name.split(".")[-1], index) for _, name, index in sorted(below)]


def same_tree(one: Topology, other: Topology) -> bool:
    """Whether two topologies have the same slots and kinds; cuts, stages and names may differ."""
    trees = [(t.event, dict(t.decays), dict(t.objects), t.context, t.alternatives) for t in (one, other)]
    return trees[0] == trees[1]


def _products(
    topology: Topology, parent: Particle | None, decays: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, tuple[int, ...]]]:
    """(type or name of the object, its slots) for each product of a particle; None: for the root particles."""
    if parent is None:
        return [(p.type, p.slots) for p in topology.roots]
    particles = [(topology.particles[c].type, topology.particles[c].slots) for c in parent.children]
    if parent.type not in decays:
        return []
    objects = [name for name in decays[parent.type] if name not in decays]
    return particles + [(name, (slot,)) for name, slot in zip(objects, parent.own_slots, strict=True)]


def _default_stages(topology: Topology) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    for height in sorted({topology.height(name) for name in topology.types}):
        level = [name for name in topology.types if topology.height(name) == height]
        one_by_one = [name for name in level if len(topology.of_type(name)[0].own_slots) != 1]
        count = sum(len(topology.of_type(name)) for name in one_by_one)
        stages += [Stage(tuple(one_by_one), any=len(one_by_one) > 1)] * count
        others = [name for name in level if name not in one_by_one]
        if together := tuple(name for name in others for _ in topology.of_type(name)):
            stages.append(Stage(together))
    return tuple(stages)
