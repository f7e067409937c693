"""The decay tree, and what follows from it: particles, types, slots, symmetries and stages.

A layout is the number of objects of each kind in an event, in the order of `Topology.kinds`. The objects of an
event, one kind after the other, are the nodes that the network sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, permutations, product
from math import factorial, perm, prod
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, TopologyError, nearest
from pairton.topology.extras import Extras
from pairton.topology.kinds import JET
from pairton.topology.pdg import Invisible, neutrinos_of, systems_of
from pairton.topology.selection import Selection

__all__ = ["Form", "Layout", "Particle", "Slot", "Stage", "Topology", "below", "same_tree"]

Layout = tuple[int, ...]  # objects of each kind

MAX_SYMMETRIES = 100_000  # rows of `Topology.symmetries`; eight interchangeable tops would need ten million


@dataclass(frozen=True)
class Slot:
    """One decay product to be filled with an object of its kind."""

    index: int
    name: str  # "t1.W.q1"
    path: str  # names without numbers: "t.W.q"
    particle: int  # index of the particle that decays directly to it
    kind: str = JET
    merged: bool = False  # whether its object is the whole particle

    @property
    def product(self) -> str:
        """Its name in the decay: "q"."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Particle:
    """A short-lived particle to reconstruct."""

    index: int
    name: str  # "t1.W"
    type: str  # "W"
    parent: int  # index, -1 at the root
    children: tuple[int, ...]  # indices of the particles it decays to
    own_slots: tuple[int, ...]  # indices of the slots it decays to directly
    slots: tuple[int, ...]  # indices of all slots below it, at any depth, if nothing is merged
    span: tuple[int, ...]  # all slots below it, those of merged particles included
    merged_slot: int = -1  # index of the slot of the object that it is if it is merged; -1: it never is


class Form(NamedTuple):
    """How a particle of some type appears: by its products, each in some form, or merged into one object."""

    name: str  # "H"; "HJ": merged; "tWV": with a child that is merged
    type: str
    children: tuple[str, ...]  # forms of its children
    filled: tuple[int, ...]  # which slots of its span are filled, counted from the first one
    merged: bool = False


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
    event: tuple[str, ...]  # types of the root particles
    decays: tuple[tuple[str, tuple[str, ...]], ...]  # type -> products, in the order of the file
    selection: Selection = field(default_factory=Selection)  # cuts on objects and events
    given_stages: tuple[Stage, ...] = ()
    objects: tuple[tuple[str, str], ...] = ()  # product -> kind, if it is not a jet
    merged: tuple[tuple[str, str], ...] = ()  # type -> object that may be the whole particle
    context: tuple[str, ...] = ()  # kinds that the network sees but no slot takes
    codes: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), compare=False)  # name -> PDG codes
    invisible: tuple[Invisible, ...] = field(default=(), compare=False)
    alternatives: tuple[Topology, ...] = ()  # of a vocabulary: the topologies that it was made of
    extras: Extras = field(default=Extras(), compare=False)
    particles: tuple[Particle, ...] = field(init=False, compare=False, repr=False)  # parents before children
    slots: tuple[Slot, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        particles, slots = list[Any](), list[Slot]()
        for name, label in _numbered(self.event):
            self._grow(name, (label, name), -1, particles, slots)
        object.__setattr__(self, "particles", tuple(particles))
        object.__setattr__(self, "slots", tuple(slots))

    def _grow(
        self, name: str, paths: tuple[str, str], parent: int, particles: list[Any], slots: list[Slot]
    ) -> int:
        """Add a particle and all below it, depth first, parents before their children; return its index.

        paths: with and without numbers
        """
        index, first, decays, kinds = len(particles), len(slots), dict(self.decays), dict(self.objects)
        particles.append(None)  # reserves the place before those of its children
        children, own = [], []
        below = [
            (product_name, (f"{paths[0]}.{part}", f"{paths[1]}.{product_name}"))
            for product_name, part in _numbered(decays.get(name, ()))
        ]
        for product_name, both in below or [(name, paths)]:  # a plain object at the root is its own slot
            if product_name in decays:
                children.append(self._grow(product_name, both, index, particles, slots))
            else:
                own.append(len(slots))
                slots.append(Slot(len(slots), *both, index, kinds.get(product_name, JET)))
        inside = [slot for child in children for slot in particles[child].slots] + own
        merged = -1
        if whole := dict(self.merged).get(name):
            merged = len(slots)
            label, path = (f"{path}.{whole}" for path in paths)
            slots.append(Slot(merged, label, path, index, kinds.get(whole, JET), True))
        span = tuple(range(first, len(slots)))
        particles[index] = Particle(
            index, paths[0], name, parent, tuple(children), tuple(own), tuple(sorted(inside)), span, merged
        )
        return index

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `parse_topology` reads back to an equal topology."""
        raw = {
            "name": self.name,
            "event": self.event,
            "particles": {
                name: [products, [dict(self.merged)[name]]] if name in dict(self.merged) else products
                for name, products in self.decays
            },
            "stages": [{"any": stage.types} if stage.any else stage.types for stage in self.given_stages],
            "selection": self.selection.to_dict(),
            "objects": dict(self.objects),
            "context": self.context,
            "codes": dict(self.codes),
            "invisible": {entry.type: entry.to_raw() for entry in self.invisible},
            "alternatives": {tree.name: tree.to_dict() for tree in self.alternatives},
        }
        raw |= msgspec.to_builtins(self.extras)
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(raw))  # with lists, as in a file
        return {key: value for key, value in plain.items() if value}

    # -- what follows from the tree ------------------------------------------------------------------------

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Types of particles, children before parents. The network has one adjacency matrix per type."""
        return tuple(sorted(dict.fromkeys(particle.type for particle in self.particles), key=self.height))

    @property
    def trees(self) -> tuple[Topology, ...]:
        """The topologies of a vocabulary; any other topology itself."""
        return self.alternatives or (self,)

    def height(self, type_name: str) -> int:
        """Number of levels of particles below a type: 0 if it decays to objects only."""
        decays = dict(self.decays)
        return max((1 + self.height(name) for name in decays.get(type_name, ()) if name in decays), default=0)

    @cached_property
    def forms(self) -> dict[str, Form]:
        """The forms of all types by name, children first; the first form of a type has its name.

        >>> from pairton.topology import parse_topology
        >>> particles = {"t": [["W", "b"], ["T"]], "W": [["q", "q"], ["V"]]}
        >>> list(parse_topology({"name": "x", "event": ["t"], "particles": particles}).forms)
        ['W', 'WV', 't', 'tWV', 'tT']
        """
        forms: dict[str, Form] = {}
        for name in self.types:
            particle = self.of_type(name)[0]
            first = particle.span[0]
            children = [self.particles[child] for child in particle.children]
            for choice in product(*(self.forms_of(child.type, forms) for child in children)):
                order = [list(forms).index(form.name) for form in choice]
                pairs = combinations(zip(children, order, strict=True), 2)
                if any(one.type == other.type and k > n for (one, k), (other, n) in pairs):
                    continue  # interchangeable children: the order of their forms does not matter
                below = [child.span[0] + k for child, f in zip(children, choice, strict=True) for k in f.filled]
                filled = tuple(sorted(slot - first for slot in (*below, *particle.own_slots)))
                title = name + "".join(form.name for form in choice if form.name != form.type)
                forms[title] = Form(title, name, tuple(form.name for form in choice), filled)
            if particle.merged_slot >= 0:
                title = f"{name}{dict(self.merged)[name]}"
                if title in forms or title in self.types:
                    raise TopologyError(f"{title} would be two things, one of them a merged {name}: rename one")
                forms[title] = Form(title, name, (), (particle.merged_slot - first,), True)
        return forms

    def forms_of(self, type_name: str, among: Mapping[str, Form] | None = None) -> list[Form]:
        """The forms of one type."""
        return [form for form in (self.forms if among is None else among).values() if form.type == type_name]

    @cached_property
    def complete_layouts(self) -> tuple[Layout, ...]:
        """The numbers of objects of each kind that fill all root particles, for every choice of their forms."""
        found: dict[Layout, None] = {}
        for choice in product(*(self.forms_of(root.type) for root in self.roots)):
            used = [root.span[k] for root, form in zip(self.roots, choice, strict=True) for k in form.filled]
            found[tuple(sum(self.slots[slot].kind == kind for slot in used) for kind in self.kinds)] = None
        return tuple(found)

    def refuse_merged(self, what: str) -> None:
        """Raise ConfigError, which names what cannot handle them, if particles may be merged."""
        if self.merged:
            name, whole = self.merged[0]
            raise ConfigError(
                f"{what} knows particles by their products only, but {name} of {self.name} may be one object, "
                f"{whole}: use the decoding exact, or a topology without {whole}"
            )

    def of_type(self, type_name: str) -> tuple[Particle, ...]:
        return tuple(particle for particle in self.particles if particle.type == type_name)

    def type_index(self, type_name: str) -> int:
        """Its position in `types`."""
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
        return max(self.object_kinds, key=[slot.kind for slot in self.slots].count)

    @cached_property
    def slots_per_kind(self) -> Layout:
        """The number of slots of each kind: the smallest layout that can fill all slots."""
        return tuple(sum(slot.kind == kind for slot in self.slots) for kind in self.kinds)

    def layout(self, counts: int | Mapping[str, int] | Sequence[int]) -> Layout:
        """Turn numbers of objects into a layout; a single number suffices if the topology has one kind."""
        if isinstance(counts, Mapping):
            return tuple(int(counts.get(kind, 0)) for kind in self.kinds)
        return (int(counts),) if isinstance(counts, int | np.integer) else tuple(int(n) for n in counts)

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

    def products(self, parent: Particle | None) -> list[tuple[str, str, tuple[int, ...], int]]:
        """Name, label, slots, and index of the particle (-1 for an object) of each product; None: of the event."""
        if parent is None:
            return [(p.type, p.name, p.span, p.index) for p in self.roots]
        decays = dict(self.decays)
        children, own = iter(parent.children), iter(parent.own_slots)
        below = [
            (*pair, next(children) if pair[0] in decays else -1) for pair in _numbered(decays.get(parent.type, ()))
        ]
        return [(name, label, self.particles[k].span if k >= 0 else (next(own),), k) for name, label, k in below]

    @cached_property
    def sibling_groups(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Groups of interchangeable siblings, deepest first.

        Each member of a group is given by its slots; the slots of different members correspond in order.
        """
        groups = []
        for parent in [*reversed(self.particles), None]:
            members: dict[str, list[tuple[int, ...]]] = {}
            for name, _, slots, _ in self.products(parent):
                members.setdefault(name, []).append(slots)
            groups += [tuple(same) for same in members.values() if len(same) > 1]
        return tuple(groups)

    @cached_property
    def n_symmetries(self) -> int:
        """Number of slot permutations that leave the physics unchanged."""
        return prod(factorial(len(group)) for group in self.sibling_groups)

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
        group = np.arange(len(self.slots))[None]
        for siblings in self.sibling_groups:
            moved = []
            for order in permutations(siblings):
                element = group.copy()
                element[:, np.ravel(siblings)] = group[:, np.ravel(order)]
                moved.append(element)
            group = np.concatenate(moved)
        return np.unique(group, axis=0).astype(np.intp)

    def count_assignments(self, counts: int | Mapping[str, int] | Sequence[int]) -> int:
        """Number of complete assignments that differ by more than a symmetry, for numbers of objects by kind."""
        self.refuse_merged("the number of assignments")
        pairs = zip(self.layout(counts), self.slots_per_kind, strict=True)
        return prod(perm(n, slots) for n, slots in pairs) // self.n_symmetries  # perm is 0 for too few objects

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The steps in which an answer is built: `given_stages`, or a default order.

        By default, children come before parents. Types whose particles add one object each are revealed together,
        all others one particle at a time.
        """
        stages: list[Stage] = []
        for height in sorted({self.height(name) for name in self.types}):
            level = [self.of_type(name) for name in self.types if self.height(name) == height]
            single = tuple(p.type for same in level if len(same[0].own_slots) != 1 for p in same)
            types = tuple(dict.fromkeys(single))
            stages += [Stage(types, any=len(types) > 1)] * len(single)
            if together := tuple(p.type for same in level if len(same[0].own_slots) == 1 for p in same):
                stages.append(Stage(together))
        return self.given_stages or tuple(stages)

    @cached_property
    def levels(self) -> tuple[npt.NDArray[np.bool_], ...]:
        """After each number of stages (0, 1, …), the possible sets of revealed particles, as (sets, particles).

        >>> from pairton.topology import load_topology
        >>> [level.shape[0] for level in load_topology("ttbar_allhad").levels]
        [1, 2, 1, 1]
        """
        levels: list[list[frozenset[int]]] = [[frozenset()]]
        for stage in self.stages:
            reached = (done | more for done in levels[-1] for more in self.revealable(stage, done))
            levels.append(list(dict.fromkeys(reached)))
        return tuple(
            np.array([[p.index in state for p in self.particles] for state in level], dtype=bool)
            for level in levels
        )

    def revealable(self, stage: Stage, done: frozenset[int]) -> list[frozenset[int]]:
        """Every set of particles that a stage may reveal after those `done`."""
        free = [p for p in self.particles if p.index not in done and all(child in done for child in p.children)]
        if stage.any:
            return [frozenset([p.index]) for p in free if p.type in stage.types]
        picks = [
            combinations([p.index for p in free if p.type == name], stage.types.count(name))
            for name in dict.fromkeys(stage.types)
        ]
        return [frozenset(i for part in choice for i in part) for choice in product(*picks)]

    neutrinos = cached_property(neutrinos_of)  # that `invisible` adds to the tree
    systems = cached_property(systems_of)  # of root particles with one PDG code, as `tt`: name -> their indices

    def tree(self) -> str:
        """The decay tree as text."""

        def lines(parent: Particle | None, indent: str) -> Iterator[str]:
            products = self.products(parent)
            for _, label, _, index in products:
                branch, below = ("└── ", "    ") if label == products[-1][1] else ("├── ", "│   ")
                whole = dict(self.merged).get(self.particles[index].type) if index >= 0 else None
                yield f"{indent}{branch}{label}{f' or {whole}' if whole else ''}"
                if index >= 0:
                    yield from lines(self.particles[index], indent + below)

        return "\n".join([self.name, *lines(None, "")])


def same_tree(one: Topology, other: Topology) -> bool:
    """Whether two topologies have the same slots and kinds; cuts, stages and names may differ."""
    first, second = (
        [(t.event, dict(t.decays), dict(t.merged), dict(t.objects), t.context) for t in (tree, *tree.alternatives)]
        for tree in (one, other)
    )
    return first == second


def below(name: str, decays: Mapping[str, tuple[str, ...]]) -> dict[str, None]:
    """A name, and the names of all its products at any depth."""
    names = {name: None}
    for product_name in decays.get(name, ()):
        names |= below(product_name, decays)
    return names


def _numbered(names: Sequence[str]) -> list[tuple[str, str]]:
    """Names with labels, which number those that occur more than once: q, q, b -> q1, q2, b."""
    return [
        (name, f"{name}{names[: k + 1].count(name)}" if names.count(name) > 1 else name)
        for k, name in enumerate(names)
    ]
