"""Index tables for exact sums over all hypotheses of an event, without a list of assignments.

A hypothesis says which particles are present and which objects each of them has. `pairton.decoding.patterns`
writes the sum over hypotheses as products of factors. Here each factor gets its sets of objects:

- for a particle type, every set of objects that it may have, and the candidates with exactly these objects;
- for a product, every union of disjoint sets, and the ways to split it between the left and the right factor;
- for a power (interchangeable particles), only splits whose left set holds the smallest object: each choice counts
  once.

The tables depend on the topology and on the objects that each slot may take. `pairton.decoding.set_sums` evaluates
them. Shapes: C candidates of a type, n sets of a factor, K ways to make a set. Tables are (K, n); if a set has
fewer ways than others, the remaining entries are one past the last valid index, where sums have a row of zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import comb, factorial, perm, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton._common.remember import remember
from pairton.decoding.patterns import Pattern, plan_of
from pairton.decoding.set_pairs import (
    Masks,
    Partners,
    Rows,
    Table,
    disjoint,
    index_table,
    masks_of,
    smallest,
    union_counts,
)
from pairton.errors import ModelError
from pairton.events.nodes import MOST_OBJECTS as MOST_NODES
from pairton.topology import Layout, Topology
from pairton.topology.assignments import canonical, canonical_within, present

__all__ = [
    "MAX_SUMS",
    "Candidates",
    "Hypotheses",
    "Leaf",
    "Product",
    "SetTables",
    "Table",
    "TooManySumsError",
    "allowed_nodes",
    "count_sums",
    "exact_limit",
    "hypotheses",
    "largest_count",
    "set_tables",
]

KEPT_BYTES = 2**26  # memory for cached tables of all layouts
MAX_SUMS = 6_000_000  # four tops in 16 jets need 4.3 million: 10 ms per event with marginals, 100 MB of tables
MOST_OBJECTS = 64  # per event: bits of an integer

Allowed = tuple[tuple[int, ...], ...]
Ints = npt.NDArray[np.integer[Any]]
Index = npt.NDArray[np.intp]


class TooManySumsError(ModelError):
    """An event would need more sums than `MAX_SUMS`."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Every choice of objects for one type of particle, ordered by the set of objects as a binary number."""

    objects: npt.NDArray[np.int8]  # (C, slots of the type), interchangeable products in canonical order
    children: tuple[tuple[str, Index], ...]  # for each child its type and its candidate (C,)
    base: int  # number of objects that there may be

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.int64], Index]:
        keys = _keys(self.objects, self.base)
        order = np.argsort(keys)
        return keys[order], order

    @cached_property
    def rank(self) -> Index:
        """(C,): rank of each candidate in the lexicographic order of its objects."""
        return np.argsort(self._sorted[1])

    def find(self, objects: Ints) -> Index:
        """(B,): the candidate with each row of canonical objects (B, slots), -1 if there is none."""
        keys, order = self._sorted
        inside = np.all((objects >= 0) & (objects < self.base), axis=1)
        return np.where(inside, _lookup(keys, order, _keys(objects, self.base)), -1)


class Leaf(NamedTuple):
    """The sets of objects of one particle type."""

    type: str
    masks: Masks  # (n,): one bit per object, increasing
    ways: tuple[Table]  # (K, n): candidates with these objects
    set_of: Index  # (C,): the set of each candidate


@dataclass(frozen=True, eq=False)
class Product:
    """The disjoint unions of the sets of two factors."""

    left: int
    right: int
    power: bool  # whether the right factor is a power of the left one
    masks: Masks  # (n,), increasing
    ways: tuple[Table, Table]  # (K, n): set of the left factor, set of the right factor
    factors: tuple[Masks, Masks]  # sets of the left factor, sets of the right factor

    @cached_property
    def to_left(self) -> Partners:
        """For each left set, all disjoint right sets."""
        return Partners(*self.factors, self.masks)

    @cached_property
    def to_right(self) -> Partners:
        """For each right set, all disjoint left sets."""
        return Partners(*self.factors[::-1], self.masks)


@dataclass(frozen=True, eq=False)
class SetTables:
    """Everything that sums over the hypotheses of an event need besides the scores.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> tables = set_tables(ttbar, allowed_nodes(ttbar, 8))
    >>> tables.candidates["t"].objects.shape, len(tables.patterns), count_sums(ttbar, allowed_nodes(ttbar, 8))
    ((168, 3), 6, 1246)
    """

    topology: Topology
    candidates: Mapping[str, Candidates]  # of every type, children before parents
    entries: tuple[Leaf | Product, ...]  # factors before products
    patterns: tuple[Pattern, ...]  # the complete one first; in a mixture, for one topology after the other
    derived: dict[int, Any] = field(default_factory=dict, repr=False)  # cache of `candidate_scores`, by nodes

    def bytes_of(self) -> int:
        """Memory of the large tables, including those of `Product.to_left` and `to_right`, made on demand."""
        products = [entry for entry in self.entries if isinstance(entry, Product)]
        factors = {side for entry in products for side in (entry.left, entry.right)}  # whose unions are needed
        sizes = [sum(table.nbytes for table in entry.ways) for entry in self.entries]
        return sum(size * (3 if k in factors else 2) for k, size in enumerate(sizes))

    @cached_property
    def parents(self) -> dict[str, dict[str, Table]]:
        """Type -> parent type -> (K, C): the parent's candidates that contain each candidate of the type."""
        found: dict[str, dict[str, Table]] = {name: {} for name in self.candidates}
        for parent, known in self.candidates.items():
            for child in {name for name, _ in known.children}:
                index = np.stack([rows for name, rows in known.children if name == child], axis=1)
                rows = np.repeat(np.arange(len(index)), index.shape[1])
                table = index_table(index.ravel(), rows, len(self.candidates[child].objects), len(index))
                found[child][parent] = table
        return found

    @cached_property
    def _pattern_codes(self) -> tuple[npt.NDArray[np.int64], Index]:
        filled = np.zeros((len(self.patterns), len(self.topology.slots)), dtype=bool)
        for k, pattern in enumerate(self.patterns):
            for name, first in pattern.placed:
                filled[k, first : first + self.candidates[name].objects.shape[1]] = True
        codes = _codes(self.topology, filled, np.array([pattern.part for pattern in self.patterns]))
        order = np.argsort(codes)
        return codes[order], order

    def pattern_of(self, filled: npt.NDArray[np.bool_], part: Ints | int = 0) -> Index:
        """(B,): the pattern in which exactly these slots (B, S) are filled, -1 if none; `part` as in `Pattern`."""
        return _lookup(*self._pattern_codes, _codes(self.topology, filled, part))

    def patterns_of(self, part: int, complete: bool = False) -> list[int]:
        """The patterns of one topology of a mixture, or only its complete one."""
        return [k for k, p in enumerate(self.patterns) if p.part == part and (p.complete or not complete)]

    def needed(self, patterns: Sequence[int]) -> list[bool]:
        """Which entries are needed for some patterns."""
        wanted = [k in {self.patterns[number].entry for number in patterns} for k in range(len(self.entries))]
        for k, entry in reversed(list(enumerate(self.entries))):
            if wanted[k] and isinstance(entry, Product):
                wanted[entry.left] = wanted[entry.right] = True
        return wanted


class Hypotheses(NamedTuple):
    """Hypotheses as indices: pattern (B,), candidates (particles, B) per type; -1 for absent or impossible."""

    pattern: Index
    candidates: dict[str, Index]


def hypotheses(tables: SetTables, assignment: Ints, part: Ints | int = 0) -> Hypotheses:
    """The hypothesis of each assignment (B, S); objects of particles that are not present are ignored.

    part: the index of each event's topology in a mixture, (B,) or one for all.
    The pattern is -1 where the assignment uses an object twice or in a slot that cannot take it, and where a
    particle is absent but the tables are for complete events.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> tables = set_tables(ttbar, allowed_nodes(ttbar, 6))
    >>> found = hypotheses(tables, np.array([[5, 4, 3, 1, 0, 2], [0, 1, -1, 3, -1, 2]]))
    >>> [tables.patterns[k].name for k in found.pattern], found.candidates["W"].tolist()
    (['t + t', 'W'], [[14, 0], [0, -1]])
    """
    topology, assignment = tables.topology, np.asarray(assignment)
    is_present = present(topology, assignment)  # (B, P)
    kept = np.where(is_present[:, [slot.particle for slot in topology.slots]], assignment, -1)
    in_order = np.sort(kept, axis=1)
    valid = ~((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).any(axis=1)
    candidates = {}
    for name, known in tables.candidates.items():
        places = topology.of_type(name)
        found = np.stack([known.find(canonical_within(topology, p, kept)) for p in places])
        wanted = is_present[:, [p.index for p in places]].T
        candidates[name] = np.where(wanted, found, -1)
        valid &= ~(wanted & (found < 0)).any(axis=0)
    return Hypotheses(np.where(valid, tables.pattern_of(kept >= 0, part), -1), candidates)


# -- which objects, and how many sums ----------------------------------------------------------------------


def allowed_nodes(topology: Topology, counts: int | Mapping[str, int] | Sequence[int]) -> Allowed:
    """For each slot the nodes that it may take: those of its kind.

    >>> from pairton.topology import load_topology
    >>> allowed_nodes(load_topology("hh4b"), 5)[0]
    (0, 1, 2, 3, 4)
    """
    layout = topology.layout(counts)
    return tuple(tuple(topology.nodes(slot.kind, layout)) for slot in topology.slots)


def exact_limit(topology: Topology, complete_only: bool = False) -> int:
    """The largest number of objects per kind for which the sums of an event stay within `MAX_SUMS`.

    >>> from pairton.topology import load_topology
    >>> [exact_limit(load_topology(name)) for name in ("ttbar_allhad", "tth_allhad", "tttt_allhad")]
    [28, 19, 16]
    """
    return largest_count(
        topology, lambda layout: count_sums(topology, allowed_nodes(topology, layout), complete_only)
    )


def largest_count(topology: Topology, sums: Callable[[Layout], int]) -> int:
    """The largest number of objects per kind for which `sums` of a layout stays within `MAX_SUMS`."""
    kinds = topology.object_kinds
    layouts = {n: topology.layout(dict.fromkeys(kinds, n)) for n in range(1, MOST_NODES // len(kinds) + 1)}
    return max((count for count, layout in layouts.items() if sums(layout) <= MAX_SUMS), default=0)


def count_sums(topology: Topology, allowed: Allowed, complete_only: bool = False) -> int:
    """How many terms the sums over sets have per event: a measure of their cost.

    It is an upper bound if two slots share some of their allowed nodes, but not all.

    >>> from pairton.topology import load_topology
    >>> tttt = load_topology("tttt_allhad")
    >>> [count_sums(tttt, allowed_nodes(tttt, n)) for n in (12, 14)]
    [108251, 753935]
    """
    plan = plan_of(topology, complete_only)
    contents: list[Counter[tuple[int, ...]]] = []  # per factor: number of objects by allowed nodes
    total = 0
    for spec in plan.specs:
        if spec.type:
            particle = topology.of_type(spec.type)[0]
            contents.append(Counter(allowed[slot] for slot in particle.slots))
            groups = [g for g in topology.sibling_groups if {s for slots in g for s in slots} <= {*particle.slots}]
            orders = prod(factorial(len(group)) for group in groups)
            total += prod(perm(len(nodes), count) for nodes, count in contents[-1].items()) // orders
        else:
            left, right = (contents[plan.number(side)] for side in (spec.left, spec.right))
            contents.append(left + right)
            pairs = (comb(len(n), left[n]) * comb(max(len(n) - left[n], 0), right[n]) for n in contents[-1])
            total += prod(pairs) // spec.degree
    return total


# -- tables ------------------------------------------------------------------------------------------------


@remember(KEPT_BYTES, SetTables.bytes_of)
def set_tables(topology: Topology, allowed: Allowed, complete_only: bool = False) -> SetTables:
    """The tables of a topology; they are cached as long as `KEPT_BYTES` allows.

    allowed         for each slot the nodes that it may take, from `allowed_nodes`
    complete_only   only hypotheses in which every particle is present

    Raises TooManySumsError if an event needs more than MAX_SUMS sums.
    """
    count, objects = count_sums(topology, allowed, complete_only), {node for nodes in allowed for node in nodes}
    if count > MAX_SUMS:
        raise TooManySumsError(
            f"{topology.name} with {len(objects)} objects needs {count} sums per event, more than the bound of "
            f"{MAX_SUMS}: keep fewer objects"
        )
    widest, base = max(len(particle.slots) for particle in topology.particles), max(objects, default=0) + 1
    if base > MOST_OBJECTS or base**widest >= 2**63:  # a candidate is found by one integer
        raise ModelError(
            f"{topology.name} has a particle of {widest} slots and {base} objects per event, too many for exact "
            "sums: split the particle or keep fewer objects"
        )
    candidates: dict[str, Candidates] = {}
    for name in topology.types:
        candidates[name] = _candidates(topology, name, allowed, candidates, base)
    plan = plan_of(topology, complete_only)
    entries: list[Leaf | Product] = []
    for spec in plan.specs:
        if spec.type:
            masks, set_of = np.unique(masks_of(candidates[spec.type].objects), return_inverse=True)
            ways = index_table(set_of, np.arange(len(set_of)), len(masks), len(set_of))
            entries.append(Leaf(spec.type, masks, (ways,), set_of))
        else:
            entries.append(_product(plan.number(spec.left), plan.number(spec.right), spec.degree > 1, entries))
    return SetTables(topology, candidates, tuple(entries), plan.patterns)


def _candidates(
    topology: Topology, name: str, allowed: Allowed, known: Mapping[str, Candidates], base: int
) -> Candidates:
    """Disjoint choices of the products of a type, interchangeable ones in lexicographic order."""
    decays = dict(topology.decays)
    own = iter(topology.of_type(name)[0].own_slots)
    objects, used = np.zeros((1, 0), dtype=np.int8), np.zeros(1, dtype=np.uint64)
    last: dict[str, Index] = {}  # name of a product -> rank of the last one chosen
    children: list[tuple[str, Index]] = []
    for product_name in decays.get(name, (name,)):  # a plain object at the root is its own product
        if product_name in decays:
            options, rank = known[product_name].objects, known[product_name].rank
        else:
            options = np.array(allowed[next(own)], dtype=np.int8)[:, None]
            rank = np.arange(len(options))
        masks = masks_of(options)
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
    order = np.lexsort((_keys(objects, base), used))
    return Candidates(objects[order], tuple((child, index[order]) for child, index in children), base)


def _product(left: int, right: int, power: bool, entries: Sequence[Leaf | Product]) -> Product:
    factors = entries[left].masks, entries[right].masks
    first, second = (smallest(masks) for masks in factors)

    def pairs() -> Iterator[tuple[Index, Index]]:
        for one, two in disjoint(*factors):
            kept = first[one] < second[two] if power else slice(None)  # the left set holds the smallest object
            yield one[kept], two[kept]

    masks, counts = union_counts(factors[0][one] | factors[1][two] for one, two in pairs())
    lefts, rights = (Rows(len(masks), counts.max(initial=0), len(sets)) for sets in factors)
    for one, two in pairs():
        group = np.searchsorted(masks, factors[0][one] | factors[1][two])
        lefts.add(group, one)
        rights.add(group, two)
    return Product(left, right, power, masks, (lefts.table, rights.table), factors)


def _keys(objects: Ints, base: int) -> npt.NDArray[np.int64]:
    """(C,): one integer that sorts like the row of objects."""
    key = np.zeros(len(objects), dtype=np.int64)
    for column in objects.T:
        key = key * base + column
    return key


def _codes(topology: Topology, filled: npt.NDArray[np.bool_], part: Ints | int) -> npt.NDArray[np.int64]:
    """(B,): part and filled slots (B, S) as one integer, the same under exchange of interchangeable products."""
    same = canonical(topology, np.where(filled, 0, -1).astype(np.int8)) >= 0
    bits = 1 << np.arange(same.shape[1], dtype=np.int64)
    return np.asarray(same @ bits + (np.asarray(part, dtype=np.int64) << same.shape[1]))


def _lookup(keys: npt.NDArray[np.int64], order: Index, wanted: npt.NDArray[np.int64]) -> Index:
    """(B,): the positions of the wanted keys before sorting, -1 for unknown keys."""
    if not len(keys):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, order[place], -1)
