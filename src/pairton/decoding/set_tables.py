"""Index tables for exact sums over all hypotheses of an event, without a list of assignments.

A hypothesis says which particles are present and which objects each of them has. Its *pattern* is the part that does
not say where: "t + W". The highest present particles of a hypothesis have disjoint objects and interact in no
other way, so a sum over hypotheses is a chain of sums over sets of objects:

- a leaf of the chain is a particle type: for each set, the candidates that have exactly these objects;
- a product joins two entries: for each set, the ways to split it between the left and the right one;
- in a power (interchangeable particles), the left one holds the smallest object, so that each choice counts once.

The tables depend on the topology and on the objects that each slot may take. `pairton.decoding.set_sums` evaluates
them. Shapes: C candidates of a type, n sets of an entry, K ways to make a set; tables are (K, n), and missing ways
point to one row behind the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import combinations_with_replacement, product
from math import comb, factorial, perm, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.errors import ModelError
from pairton.topology import Topology
from pairton.topology.assignments import canonical, canonical_within, present

__all__ = [
    "MAX_SUMS",
    "Candidates",
    "Hypotheses",
    "Leaf",
    "Pattern",
    "Product",
    "SetTables",
    "TooManySumsError",
    "allowed_nodes",
    "count_sums",
    "hypotheses",
    "set_tables",
]

MAX_SUMS = 6_000_000  # four tops in 16 jets need 4.3 million: about 20 ms per event, and 35 MB of tables

Allowed = tuple[tuple[int, ...], ...]
Ints = npt.NDArray[np.integer[Any]]
Table = npt.NDArray[np.int32]
Masks = npt.NDArray[np.uint64]


class TooManySumsError(ModelError):
    """An event with more sums over sets of objects than are made."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Every way to choose the objects of one particle, ordered by the set of objects as a binary number."""

    objects: npt.NDArray[np.int8]  # (C, slots of the type), interchangeable products in canonical order
    children: tuple[tuple[str, npt.NDArray[np.intp]], ...]  # type of each child, its candidate (C,)

    @cached_property
    def masks(self) -> Masks:
        """(C,): the set of objects, one bit each."""
        return _masks(self.objects)

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp]]:
        keys = _keys(self.objects)
        order = np.argsort(keys)
        return keys[order], order

    @cached_property
    def rank(self) -> npt.NDArray[np.intp]:
        """(C,): place of each candidate in the lexicographic order of objects."""
        return np.argsort(self._sorted[1])

    def find(self, objects: Ints) -> npt.NDArray[np.intp]:
        """(B,): index of each row of canonical objects (B, slots), -1 where it is no candidate."""
        keys, order = self._sorted
        if not len(keys):
            return np.full(len(objects), -1)
        wanted = _keys(objects)
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        inside = np.all((objects >= 0) & (objects < _BASE), axis=1)
        return np.where(inside & (keys[place] == wanted), order[place], -1)


class Pattern(NamedTuple):
    """Which particles are present: the highest of each branch, with the slots they are given."""

    name: str
    entry: int  # of the tables; -1 if nothing is present
    placed: tuple[tuple[str, int], ...]  # type and first slot, in the order in which the entry is taken apart
    complete: bool


class Leaf(NamedTuple):
    """The sets of objects of one type."""

    type: str
    masks: Masks  # (n,), increasing
    ways: Table  # (K, n): candidates with these objects
    set_of: npt.NDArray[np.intp]  # (C,)


@dataclass(frozen=True, eq=False)
class Product:
    """The disjoint unions of the sets of two entries."""

    left: int
    right: int
    power: bool  # the right entry is a lower power of the left one
    masks: Masks  # (n,), increasing
    first: Table  # (K, n): set of the left entry
    second: Table  # (K, n): set of the right entry
    factors: tuple[Masks, Masks]  # of the left and the right entry

    @cached_property
    def to_left(self) -> tuple[Table, Table]:
        """For each left set, all right sets that are disjoint from it, and the unions: two (K, left sets)."""
        return self._partners(*self.factors)

    @cached_property
    def to_right(self) -> tuple[Table, Table]:
        """For each right set, all left sets that are disjoint from it, and the unions: two (K, right sets)."""
        return self._partners(*self.factors[::-1])

    def _partners(self, own: Masks, other: Masks) -> tuple[Table, Table]:
        one, two = _disjoint(own, other)
        union = np.searchsorted(self.masks, own[one] | other[two])
        return _table(one, two, len(own), len(other)), _table(one, union, len(own), len(self.masks))


@dataclass(frozen=True, eq=False)
class SetTables:
    """All that a sum over the hypotheses of an event needs besides the scores.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> tables = set_tables(ttbar, allowed_nodes(ttbar, 8))
    >>> [pattern.name for pattern in tables.patterns]
    ['t + t', 't + W', 't', 'W + W', 'W', 'nothing']
    >>> tables.candidates["t"].objects.shape, count_sums(ttbar, allowed_nodes(ttbar, 8))
    ((168, 3), 1246)
    """

    topology: Topology
    candidates: Mapping[str, Candidates]  # of every type
    entries: tuple[Leaf | Product, ...]  # factors before products
    patterns: tuple[Pattern, ...]  # the complete one first

    @cached_property
    def parents(self) -> dict[str, tuple[tuple[str, Table], ...]]:
        """Type -> types that decay to it, and for each candidate (K, C) those of the parent that contain it."""
        found: dict[str, list[tuple[str, Table]]] = {name: [] for name in self.topology.types}
        for parent, candidates in self.candidates.items():
            for child, index in candidates.children:
                rows = np.arange(len(index))
                found[child].append((parent, _table(index, rows, len(self.candidates[child].objects), len(rows))))
        return {name: tuple(pairs) for name, pairs in found.items()}

    def pattern_of(self, filled: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
        """(B,): the pattern in which exactly these slots (B, S) are filled, -1 if there is none."""
        codes = _codes(self.topology, filled)
        known, order = self._pattern_codes
        place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[place] == codes, order[place], -1)

    @cached_property
    def _pattern_codes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp]]:
        filled = np.zeros((len(self.patterns), len(self.topology.slots)), dtype=bool)
        for k, pattern in enumerate(self.patterns):
            for name, first in pattern.placed:
                filled[k, first : first + len(self.topology.of_type(name)[0].slots)] = True
        codes = _codes(self.topology, filled)
        order = np.argsort(codes)
        return codes[order], order

    def needed(self, patterns: Sequence[int]) -> list[bool]:
        """Which entries some patterns are made of."""
        wanted = [False] * len(self.entries)
        for k in patterns:
            if self.patterns[k].entry >= 0:
                wanted[self.patterns[k].entry] = True
        for k in reversed(range(len(wanted))):
            entry = self.entries[k]
            if wanted[k] and isinstance(entry, Product):
                wanted[entry.left] = wanted[entry.right] = True
        return wanted


class Hypotheses(NamedTuple):
    """Hypotheses by index: pattern (B,), and per type the candidates (particles, B); -1 is absent or impossible."""

    pattern: npt.NDArray[np.intp]
    candidates: dict[str, npt.NDArray[np.intp]]


def hypotheses(tables: SetTables, assignment: Ints) -> Hypotheses:
    """The hypothesis that each assignment (B, S) stands for; objects of absent particles do not matter.

    The pattern is -1 where the assignment uses an object twice or in a slot that may not take it, or where
    the tables are for complete events and a particle is absent.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> tables = set_tables(ttbar, allowed_nodes(ttbar, 6))
    >>> found = hypotheses(tables, np.array([[5, 4, 3, 1, 0, 2], [0, 1, -1, 3, -1, 2]]))
    >>> [tables.patterns[k].name for k in found.pattern], found.candidates["W"].tolist()
    (['t + t', 'W'], [[14, 0], [0, -1]])
    """
    topology = tables.topology
    assignment = np.asarray(assignment)
    there = present(topology, assignment)  # (B, P)
    kept = np.where(there[:, [slot.particle for slot in topology.slots]], assignment, -1)
    pattern = tables.pattern_of(kept >= 0)
    candidates = {}
    in_order = np.sort(kept, axis=1)
    valid = ~((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).any(axis=1)
    for name, known in tables.candidates.items():
        places = topology.of_type(name)
        found = np.stack([known.find(canonical_within(topology, p, kept)) for p in places])
        wanted = there[:, [p.index for p in places]].T
        candidates[name] = np.where(wanted, found, -1)
        valid &= ~(wanted & (found < 0)).any(axis=0)
    return Hypotheses(np.where(valid, pattern, -1), candidates)


def allowed_nodes(topology: Topology, nodes: int | Mapping[str, Sequence[int]]) -> Allowed:
    """For each slot the nodes of the event that it may take.

    nodes: the number of jets, or for each kind of object the indices of its nodes.

    >>> from pairton.topology import load_topology
    >>> allowed_nodes(load_topology("hh4b"), {"jet": [0, 1, 2, 3, 4], "lepton": [5]})[0]
    (0, 1, 2, 3, 4)
    """
    kinds = {"jet": range(nodes)} if isinstance(nodes, int) else nodes
    return tuple(tuple(sorted(kinds.get(getattr(slot, "kind", "jet"), ()))) for slot in topology.slots)


# -- the chain of sums, for any number of objects ----------------------------------------------------------


class _Spec(NamedTuple):
    """An entry before it has sets: a leaf of some type, or left times right; a power if degree > 1."""

    type: str
    left: _Spec | None = None
    right: _Spec | None = None
    degree: int = 1


class _Option(NamedTuple):
    paths: tuple[str, ...]  # of the highest present particles, by type
    spec: _Spec | None  # None: nothing is present
    placed: tuple[tuple[str, int], ...]


class _Plan:
    """Options of every particle, patterns of the event, and the entries that they need, each once."""

    def __init__(self, topology: Topology, complete_only: bool) -> None:
        self.topology, self.complete_only = topology, complete_only
        self.specs: dict[_Spec, int] = {}  # factors before products
        options = self.choices([(root.type, root.slots[0], root.type) for root in topology.roots])
        names = [tuple(path.split(".")[-1] for path in option.paths) for option in options]
        if len(set(names)) < len(names):  # one type in several places
            names = [option.paths for option in options]
        self.patterns = tuple(
            Pattern(" + ".join(name) or "nothing", self.number(option.spec), option.placed, k == 0)
            for k, (name, option) in enumerate(zip(names, options, strict=True))
        )

    def number(self, spec: _Spec | None) -> int:
        """The place of an entry, which it gets with its factors if it is new."""
        if spec is None:
            return -1
        self.number(spec.left)
        self.number(spec.right)
        return self.specs.setdefault(spec, len(self.specs))

    def options(self, type_name: str, path: str) -> list[_Option]:
        """A particle is present, or any choice of what is below it that does not make it present."""
        itself = _Option((path,), _Spec(type_name), ((type_name, 0),))
        if self.complete_only:
            return [itself]
        particle = self.topology.of_type(type_name)[0]
        below = [self.topology.particles[child] for child in particle.children]
        offset = particle.slots[0]
        choices = self.choices([(p.type, p.slots[0] - offset, f"{path}.{p.type}") for p in below])
        return [itself, *(choices if particle.own_slots else choices[1:])]  # the first: all children are present

    def choices(self, products: Sequence[tuple[str, int, str]]) -> list[_Option]:
        """An option for every product (type, first slot, path); the order of interchangeable ones is no matter."""
        groups = []
        for name, path in {name: path for name, _, path in products}.items():
            slots = [slot for other, slot, _ in products if other == name]
            chosen = combinations_with_replacement(self.options(name, path), len(slots))
            groups.append([_interchangeable(options, slots) for options in chosen])
        return [_together(parts) for parts in product(*groups)]


def _together(parts: Sequence[_Option]) -> _Option:
    paths = tuple(path for part in parts for path in part.paths)
    placed = tuple(place for part in parts for place in part.placed)
    return _Option(paths, reduce(_times, [part.spec for part in parts], None), placed)


def _interchangeable(options: Sequence[_Option], slots: Sequence[int]) -> _Option:
    """Interchangeable products, the first slots of which are given; equal options are side by side."""
    moved = [
        option._replace(placed=tuple((name, slot + first) for name, first in option.placed))
        for option, slot in zip(options, slots, strict=True)
    ]
    powers = [_power(option.spec, degree) for option, degree in Counter(options).items()]
    return _together(moved)._replace(spec=reduce(_times, powers, None))


def _times(left: _Spec | None, right: _Spec | None) -> _Spec | None:
    return _Spec("", left, right) if left and right else left or right


def _power(base: _Spec | None, degree: int) -> _Spec | None:
    return _Spec("", base, _power(base, degree - 1), degree) if base and degree > 1 else base


@lru_cache(maxsize=64)
def _plan(topology: Topology, complete_only: bool) -> _Plan:
    return _Plan(topology, complete_only)


def count_sums(topology: Topology, allowed: Allowed, complete_only: bool = False) -> int:
    """How many terms the sums over sets have per event: a measure of their cost.

    >>> from pairton.topology import load_topology
    >>> tttt = load_topology("tttt_allhad")
    >>> [count_sums(tttt, allowed_nodes(tttt, n), complete_only=True) for n in (12, 14)]  # tops alone: 660 and 1092
    [16115, 92183]
    """
    plan = _plan(topology, complete_only)
    contents: list[Counter[tuple[int, ...]]] = []  # of each entry: how many objects of which slots' nodes
    total = 0
    for spec in plan.specs:
        if spec.type:
            particle = topology.of_type(spec.type)[0]
            contents.append(Counter(allowed[slot] for slot in particle.slots))
            inside = set(particle.slots)
            same = [g for g in topology.sibling_groups if {slot for slots in g for slot in slots} <= inside]
            orders = prod(factorial(len(group)) for group in same)
            total += prod(perm(len(nodes), count) for nodes, count in contents[-1].items()) // orders
        else:
            left, right = (contents[plan.number(side)] for side in (spec.left, spec.right))
            contents.append(left + right)
            pairs = prod(comb(len(n), left[n]) * comb(max(len(n) - left[n], 0), right[n]) for n in contents[-1])
            total += pairs // spec.degree
    return total


# -- tables for given objects ------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def set_tables(topology: Topology, allowed: Allowed, complete_only: bool = False) -> SetTables:
    """The tables of a topology; made once and kept.

    allowed: for each slot the nodes that it may take, from `allowed_nodes`.
    complete_only: only hypotheses in which every particle is present.
    Raises TooManySumsError if there are more than MAX_SUMS sums per event.
    """
    count, objects = count_sums(topology, allowed, complete_only), {node for nodes in allowed for node in nodes}
    if count > MAX_SUMS:
        raise TooManySumsError(
            f"{topology.name} with {len(objects)} objects needs {count} sums per event, more than the bound of "
            f"{MAX_SUMS}: keep fewer objects"
        )
    if max(objects, default=0) >= _BASE:
        raise ModelError(
            f"an event has the object {max(objects)}, but sums take at most {_BASE}: keep fewer objects"
        )
    if (widest := max(len(particle.slots) for particle in topology.particles)) > _SLOTS:
        raise ModelError(
            f"{topology.name} has a particle of {widest} slots, but sums take at most {_SLOTS}: split it"
        )
    candidates: dict[str, Candidates] = {}
    for name in topology.types:
        candidates[name] = _candidates(topology, name, allowed, candidates)
    plan = _plan(topology, complete_only)
    entries: list[Leaf | Product] = []
    for spec in plan.specs:
        if spec.type:
            masks, set_of = np.unique(candidates[spec.type].masks, return_inverse=True)
            ways = _table(set_of, np.arange(len(set_of)), len(masks), len(set_of))
            entries.append(Leaf(spec.type, masks, ways, set_of))
        else:
            entries.append(_product(plan.number(spec.left), plan.number(spec.right), spec.degree > 1, entries))
    return SetTables(topology, candidates, tuple(entries), plan.patterns)


def _candidates(topology: Topology, name: str, allowed: Allowed, known: Mapping[str, Candidates]) -> Candidates:
    """Disjoint choices of the products of a type, interchangeable ones in lexicographic order."""
    decays = dict(topology.decays)
    own = iter(topology.of_type(name)[0].own_slots)
    objects, used = np.zeros((1, 0), dtype=np.int8), np.zeros(1, dtype=np.uint64)
    last: dict[str, npt.NDArray[np.intp]] = {}  # rank of the last product of each name
    children: list[tuple[str, npt.NDArray[np.intp]]] = []
    for product_name in decays.get(name, (name,)):  # a plain object at the root is its own product
        if product_name in decays:
            options, rank = known[product_name].objects, known[product_name].rank
        else:
            options = np.array(allowed[next(own)], dtype=np.int8)[:, None]
            rank = np.arange(len(options))
        masks = _masks(options)
        free = (used[:, None] & masks[None, :]) == 0
        if product_name in last:
            free &= last[product_name][:, None] < rank[None, :]
        row, option = np.nonzero(free)
        objects = np.concatenate([objects[row], options[option]], axis=1)
        used = used[row] | masks[option]
        last = {other: ranks[row] for other, ranks in last.items()} | {product_name: rank[option]}
        children = [(child, index[row]) for child, index in children]
        if product_name in decays:
            children.append((product_name, option))
    order = np.lexsort((_keys(objects), used))
    return Candidates(objects[order], tuple((child, index[order]) for child, index in children))


def _product(left: int, right: int, power: bool, entries: Sequence[Leaf | Product]) -> Product:
    factors = entries[left].masks, entries[right].masks
    one, two = _disjoint(*factors)
    if power:  # the left one holds the smallest object
        kept = _smallest(factors[0])[one] < _smallest(factors[1])[two]
        one, two = one[kept], two[kept]
    masks, group = np.unique(factors[0][one] | factors[1][two], return_inverse=True)
    first, second = (
        _table(group, rows, len(masks), len(side)) for rows, side in zip((one, two), factors, strict=True)
    )
    return Product(left, right, power, masks, first, second, factors)


def _disjoint(left: Masks, right: Masks) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices of all pairs of disjoint sets; a block of left sets at a time."""
    step = max(1, 4_000_000 // max(1, len(right)))
    parts = [
        np.nonzero((left[start : start + step, None] & right[None, :]) == 0) for start in range(0, len(left), step)
    ]
    nothing = [np.zeros(0, dtype=np.intp)]
    rows = [row + k * step for k, (row, _) in enumerate(parts)]
    return np.concatenate(rows or nothing), np.concatenate([column for _, column in parts] or nothing)


def _table(group: npt.NDArray[np.intp], value: npt.NDArray[np.intp], n: int, fill: int) -> Table:
    """(K, n): the values of each of n groups, in order, with `fill` behind those of smaller groups."""
    order = np.argsort(group, kind="stable")
    group, counts = group[order], np.bincount(group, minlength=n)
    place = np.arange(len(group)) - (np.cumsum(counts) - counts)[group]
    table = np.full((counts.max(initial=0), n), fill, dtype=np.int32)
    table[place, group] = value[order]
    return table


_BASE = 32  # objects of an event
_SLOTS = 12  # of a particle: five bits each in one integer


def _masks(objects: Ints) -> Masks:
    return np.bitwise_or.reduce(np.uint64(1) << objects.astype(np.uint64), axis=1)


def _smallest(masks: Masks) -> Masks:
    return masks & (~masks + np.uint64(1))


def _keys(objects: Ints) -> npt.NDArray[np.int64]:
    """(C,): one integer that sorts like the row of objects."""
    key = np.zeros(len(objects), dtype=np.int64)
    for column in objects.T:
        key = key * _BASE + column
    return key


def _codes(topology: Topology, filled: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """(B,): filled slots (B, S) as one integer, the same whichever of interchangeable products they belong to."""
    same = canonical(topology, np.where(filled, 0, -1).astype(np.int8)) >= 0
    return np.asarray(same @ (1 << np.arange(same.shape[1], dtype=np.int64)))
