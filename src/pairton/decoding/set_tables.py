"""Index tables for exact sums over all hypotheses of an event, without a list of assignments.

A hypothesis says which particles are present and which objects each of them has. `pairton.decoding.patterns`
writes the sum over hypotheses as products of factors. Here each factor gets its sets of objects:

- for a particle type, every set of objects that it may have, and the candidates with exactly these objects;
- for a product, every union of disjoint sets, and the ways to split it between the left and the right factor;
- for a power (interchangeable particles), only splits whose left set holds the smallest object: each choice counts
  once.

The tables depend on the topology and on the objects that each slot may take. `pairton.decoding.set_sums` evaluates
them. A set of objects is an integer with one bit per object.

Shapes: C candidates of a type, n sets of a factor, K ways to make a set. Tables are (K, n); if a set has fewer
ways than others, the remaining entries are one past the last valid index, where sums have a row of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import MAX_SUMS, Allowed, Pattern, allowed_nodes, count_sums, plan_of
from pairton.errors import ModelError
from pairton.topology import Form, Topology
from pairton.topology.assignments import canonical, canonical_within, in_use, states

__all__ = [
    "Candidates",
    "Hypotheses",
    "Leaf",
    "Product",
    "SetTables",
    "Table",
    "hypotheses",
    "masks_of",
    "set_tables",
    "true_pattern",
]

KEPT_BYTES = 2**26  # memory for cached tables of all layouts
BLOCK = 2**17  # pairs of sets that are compared at a time

Ints = npt.NDArray[np.integer[Any]]
Index = npt.NDArray[np.intp]
Table = npt.NDArray[np.int32]
Masks = npt.NDArray[np.uint64]  # sets of objects


class RowIndex:
    """Finds rows of integers from -1 to `base` - 1 in a table (C, columns) of different rows."""

    def __init__(self, table: Ints, base: int) -> None:
        keys = keys_of(table, base)
        self._base, self.order = base, np.argsort(keys)
        self._keys = keys[self.order]

    def find(self, rows: Ints) -> Index:
        """(B,): the number of each row (B, columns) in the table, -1 if it is not there."""
        if not len(self._keys):
            return np.full(len(rows), -1)
        keys = keys_of(rows, self._base)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        same = (self._keys[place] == keys) & ((rows >= -1) & (rows < self._base)).all(axis=1)
        return np.where(same, self.order[place], -1)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Every choice of objects for one form of a particle, ordered by the set of objects as a binary number."""

    objects: npt.NDArray[np.int8]  # (C, span of the type), interchangeable products in canonical order; -1: empty
    children: tuple[tuple[str, Index], ...]  # for each child its form and its candidate (C,)
    base: int  # number of objects that there may be

    @cached_property
    def _index(self) -> RowIndex:
        return RowIndex(self.objects, self.base)

    @cached_property
    def rank(self) -> Index:
        """(C,): rank of each candidate in the lexicographic order of its objects."""
        return np.argsort(self._index.order)

    def find(self, objects: Ints) -> Index:
        """(B,): the candidate with each row of canonical objects (B, slots), -1 if there is none."""
        return self._index.find(objects)


class Leaf(NamedTuple):
    """The sets of objects of one form of a particle."""

    form: str
    masks: Masks  # (n,), increasing
    ways: tuple[Table]  # (K, n): candidates with these objects
    set_of: Index  # (C,): the set of each candidate


@dataclass(frozen=True, eq=False)
class Partners:
    """The disjoint sets of two factors, seen from one of them; each table is made when it is first used."""

    own: Masks
    other: Masks
    unions_of: Masks  # of the product of the two factors, increasing

    @cached_property
    def sets(self) -> Table:
        """(K, own sets): for each set, the other sets that are disjoint from it."""
        return index_table(*disjoint(self.own, self.other), len(self.own), len(self.other))

    @cached_property
    def unions(self) -> Table:
        """(K, own sets): the unions with those sets. Only a product that is part of another one needs them."""
        result, padded = np.empty_like(self.sets), np.append(self.other, np.uint64(0))
        for other, row in zip(self.sets, result, strict=True):
            place = np.searchsorted(self.unions_of, self.own | padded[other])
            row[:] = np.where(other < len(self.other), place, len(self.unions_of))
        return result


@dataclass(frozen=True, eq=False)
class Product:
    """The disjoint unions of the sets of two factors."""

    left: int
    right: int
    power: bool  # whether the right factor is a power of the left one
    masks: Masks  # (n,), increasing
    ways: tuple[Table, Table]  # (K, n): set of the left factor, set of the right factor
    partners: tuple[Partners, Partners]  # right sets for each left set, left sets for each right set


@dataclass(frozen=True, eq=False)
class SetTables:
    """Everything that sums over the hypotheses of an event need besides the scores.

    >>> from pairton.decoding.patterns import allowed_nodes
    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> tables = set_tables(ttbar, allowed_nodes(ttbar, 8))
    >>> tables.candidates["t"].objects.shape, len(tables.patterns), count_sums(ttbar, allowed_nodes(ttbar, 8))
    ((168, 3), 6, 1246)
    """

    topology: Topology
    candidates: Mapping[str, Candidates]  # of every form, children before parents
    entries: tuple[Leaf | Product, ...]  # factors before products
    patterns: tuple[Pattern, ...]  # a complete one first; in a mixture, for one topology after the other
    derived: dict[int, Any] = field(default_factory=dict, repr=False)  # cache of `terms.score_terms`, by nodes

    def bytes_of(self) -> int:
        """Memory of the large tables, including those of `Partners`, made on demand."""
        products = [entry for entry in self.entries if isinstance(entry, Product)]
        factors = {side for entry in products for side in (entry.left, entry.right)}  # whose unions are needed
        sizes = [sum(table.nbytes for table in entry.ways) for entry in self.entries]
        return sum(size * (3 if k in factors else 2) for k, size in enumerate(sizes))

    @cached_property
    def parents(self) -> dict[str, dict[str, Table]]:
        """Form -> parent's form -> (K, C): the parent's candidates that contain each candidate of the form."""
        result: dict[str, dict[str, Table]] = {name: {} for name in self.candidates}
        for parent, known in self.candidates.items():
            for child in {name for name, _ in known.children}:
                index = np.stack([rows for name, rows in known.children if name == child], axis=1)
                rows = np.repeat(np.arange(len(index)), index.shape[1])
                table = index_table(index.ravel(), rows, len(self.candidates[child].objects), len(index))
                result[child][parent] = table
        return result

    @cached_property
    def _pattern_index(self) -> RowIndex:
        filled = np.zeros((len(self.patterns), len(self.topology.slots)), dtype=bool)
        for row, pattern in zip(filled, self.patterns, strict=True):
            row[pattern.filled(self.topology)] = True
        parts = np.array([pattern.part for pattern in self.patterns])
        return RowIndex(_part_and_slots(self.topology, filled, parts), max(2, parts.max() + 1))

    def pattern_of(self, filled: npt.NDArray[np.bool_], part: Ints | int = 0) -> Index:
        """(B,): the pattern in which exactly these slots (B, S) are filled, -1 if none; `part` as in `Pattern`."""
        return self._pattern_index.find(_part_and_slots(self.topology, filled, part))

    def patterns_of(self, part: int, complete: bool = False) -> list[int]:
        """The patterns of one topology of a mixture, or only its complete ones."""
        return [k for k, p in enumerate(self.patterns) if p.part == part and (p.complete or not complete)]

    def needed(self, patterns: Sequence[int]) -> list[bool]:
        """Which entries are needed for some patterns."""
        result = [k in {self.patterns[number].entry for number in patterns} for k in range(len(self.entries))]
        for k, entry in reversed(list(enumerate(self.entries))):
            if result[k] and isinstance(entry, Product):
                result[entry.left] = result[entry.right] = True
        return result


def _part_and_slots(topology: Topology, filled: npt.NDArray[np.bool_], part: Ints | int) -> Ints:
    """(B, 1 + S): part, then the filled slots as 0 and 1, equal under exchange of interchangeable products."""
    same = canonical(topology, np.where(filled, 0, -1).astype(np.int8)) >= 0
    return np.column_stack([np.broadcast_to(part, len(filled)), same])


class Hypotheses(NamedTuple):
    """Hypotheses as indices: pattern (B,), candidates (particles, B) per form; -1 for absent or impossible."""

    pattern: Index
    candidates: dict[str, Index]


def hypotheses(
    tables: SetTables, assignment: Ints, part: Ints | int = 0, overlaps: npt.NDArray[np.bool_] | None = None
) -> Hypotheses:
    """The hypothesis of each assignment (B, S); objects of particles that are not present are ignored.

    part: the index of each event's topology in a mixture, (B,) or one for all. overlaps: see `set_sums`.
    The pattern is -1 where the assignment uses an object twice, in a slot that cannot take it or with one that
    overlaps, and where a particle is absent but the tables are for complete events.

    >>> from pairton.decoding.patterns import allowed_nodes
    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> tables = set_tables(ttbar, allowed_nodes(ttbar, 6))
    >>> found = hypotheses(tables, np.array([[5, 4, 3, 1, 0, 2], [0, 1, -1, 3, -1, 2]]))
    >>> [tables.patterns[k].name for k in found.pattern], found.candidates["W"].tolist()
    (['t + t', 'W'], [[14, 0], [0, -1]])
    """
    topology, assignment = tables.topology, np.asarray(assignment)
    state = states(topology, assignment)  # (B, P)
    kept = np.where(in_use(topology, state), assignment, -1)
    in_order = np.sort(kept, axis=1)
    valid = ~((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).any(axis=1)
    if overlaps is not None:
        row, used = np.arange(len(kept))[:, None, None], kept >= 0
        shared = overlaps[row, kept[:, :, None], kept[:, None]] & used[:, :, None] & used[:, None]
        valid &= ~shared.any(axis=(1, 2))
    candidates = {}
    for name in topology.types:
        places = topology.of_type(name)
        there = state[:, [p.index for p in places]].T > 0
        objects = [canonical_within(topology, p, kept) for p in places]
        for form in topology.forms_of(name):
            index = np.stack([tables.candidates[form.name].find(rows) for rows in objects])
            candidates[form.name] = np.where(there, index, -1)
            there = there & (index < 0)  # in another form
        valid &= ~there.any(axis=0)
    return Hypotheses(np.where(valid, tables.pattern_of(kept >= 0, part), -1), candidates)


def true_pattern(topology: Topology, truth: Ints) -> Index:
    """(n,): the index in `plan_of(topology).patterns` of the pattern of each truth (n, S).

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, -1, 2, 3, 4, 5], [-1, 1, -1, 3, 4, -1], [-1] * 6])
    >>> true_pattern(load_topology("ttbar_allhad"), truth).tolist()  # t + t, t, W, nothing
    [0, 2, 4, 5]
    """
    tables = set_tables(topology, allowed_nodes(topology, topology.slots_per_kind))
    return tables.pattern_of(in_use(topology, states(topology, truth)))


# -- tables ------------------------------------------------------------------------------------------------


_kept: dict[tuple[Topology, Allowed, bool], SetTables] = {}  # the most recently used last
_lock = Lock()


def set_tables(topology: Topology, allowed: Allowed, complete_only: bool = False) -> SetTables:
    """The tables of a topology; they are cached as long as `KEPT_BYTES` allows.

    allowed         for each slot the nodes that it may take, from `allowed_nodes`
    complete_only   only hypotheses in which every particle is present
    """
    key = topology, allowed, complete_only
    with _lock:  # others wait for the same tables
        found = _kept.pop(key, None)
        _shrink(0)  # before new tables need memory
        _kept[key] = _make_tables(*key) if found is None else found
        _shrink(1)
        return _kept[key]


def _shrink(fewest: int) -> None:
    while len(_kept) > fewest and sum(tables.bytes_of() for tables in _kept.values()) > KEPT_BYTES:
        del _kept[next(iter(_kept))]


def _make_tables(topology: Topology, allowed: Allowed, complete_only: bool) -> SetTables:
    count, objects = count_sums(topology, allowed, complete_only), {node for nodes in allowed for node in nodes}
    if count > MAX_SUMS:
        raise ModelError(
            f"{topology.name} with {len(objects)} objects needs {count} sums per event, more than the bound of "
            f"{MAX_SUMS}: keep fewer objects"
        )
    widest, base = max(len(particle.span) for particle in topology.particles), max(objects, default=0) + 1
    if (base + 1) ** widest >= 2**63:  # a candidate is found by one integer
        raise ModelError(
            f"{topology.name} has a particle of {widest} slots and {base} objects per event, too many for exact "
            "sums: split the particle or keep fewer objects"
        )
    candidates: dict[str, Candidates] = {}
    for form in topology.forms.values():
        candidates[form.name] = _candidates(topology, form, allowed, candidates, base)
    plan = plan_of(topology, complete_only)
    entries: list[Leaf | Product] = []
    for spec in plan.specs:
        if spec.form:
            masks, set_of = np.unique(masks_of(candidates[spec.form].objects), return_inverse=True)
            ways = index_table(set_of, np.arange(len(set_of)), len(masks), len(set_of))
            entries.append(Leaf(spec.form, masks, (ways,), set_of))
        else:
            entries.append(_product(plan.number(spec.left), plan.number(spec.right), spec.degree > 1, entries))
    return SetTables(topology, candidates, tuple(entries), plan.patterns)


def _candidates(
    topology: Topology, form: Form, allowed: Allowed, known: Mapping[str, Candidates], base: int
) -> Candidates:
    """Disjoint choices of the products of a form, interchangeable ones in lexicographic order."""
    particle = topology.of_type(form.type)[0]
    below = zip(particle.children, form.children, strict=not form.merged)
    parts = [(topology.particles[child].span, name) for child, name in below]
    parts += [((slot,), "") for slot in ([particle.merged_slot] if form.merged else particle.own_slots)]
    objects = np.full((1, len(particle.span)), -1, dtype=np.int8)
    used = np.zeros(1, dtype=np.uint64)
    last: dict[tuple[str, str], Index] = {}  # form and name of a product -> rank of the last one
    children: list[tuple[str, Index]] = []
    for slots, child in sorted(parts):
        if child:
            options, rank = known[child].objects, known[child].rank
        else:
            options = np.array(allowed[slots[0]], dtype=np.int8)[:, None]
            rank = np.arange(len(options))
        masks = masks_of(options)
        free = (used[:, None] & masks[None, :]) == 0
        product = child, topology.slots[slots[0]].product
        if product in last:
            free &= last[product][:, None] < rank[None, :]
        row, option = np.nonzero(free)
        objects = objects[row]
        objects[:, [slot - particle.span[0] for slot in slots]] = options[option]
        used = used[row] | masks[option]
        last = {other: ranks[row] for other, ranks in last.items()} | {product: rank[option]}
        children = [(other, index[row]) for other, index in children]
        if child:
            children.append((child, option))
    if form.name != form.type:  # children in different forms
        whole = np.full((len(objects), len(topology.slots)), -1, dtype=np.int8)
        whole[:, list(particle.span)] = objects
        objects = canonical_within(topology, particle, whole).astype(np.int8)
    order = np.lexsort((keys_of(objects, base), used))
    return Candidates(objects[order], tuple((child, index[order]) for child, index in children), base)


def _product(left: int, right: int, power: bool, entries: Sequence[Leaf | Product]) -> Product:
    one, two = entries[left].masks, entries[right].masks
    i, j = disjoint(one, two)
    if power:  # the left set holds the smallest object
        lowest = [masks & (~masks + np.uint64(1)) for masks in (one, two)]
        keep = lowest[0][i] < lowest[1][j]
        i, j = i[keep], j[keep]
    masks, union = np.unique(one[i] | two[j], return_inverse=True)
    ways = index_table(union, i, len(masks), len(one)), index_table(union, j, len(masks), len(two))
    return Product(left, right, power, masks, ways, (Partners(one, two, masks), Partners(two, one, masks)))


# -- sets, and tables of indices ------------------------------------------------------------------------------


def keys_of(rows: Ints, base: int) -> npt.NDArray[np.int64]:
    """(C,): one integer that sorts like the row."""
    key = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        key = key * (base + 1) + column + 1
    return key


def disjoint(left: Masks, right: Masks) -> tuple[Index, Index]:
    """The indices of all pairs of disjoint sets, in order."""
    step = max(1, BLOCK // max(1, len(right)))
    starts = range(0, max(1, len(left)), step)
    blocks = [np.nonzero((left[start : start + step, None] & right) == 0) for start in starts]
    one = [rows + start for start, (rows, _) in zip(starts, blocks, strict=True)]
    return np.concatenate(one), np.concatenate([columns for _, columns in blocks])


def index_table(group: Index, value: Index, n: int, fill: int) -> Table:
    """(K, n): column g has the values of group g in order, then `fill`."""
    order, counts = np.argsort(group, kind="stable"), np.bincount(group, minlength=n)
    place = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((counts.max(initial=0), n), fill, dtype=np.int32)
    table[place, group[order]] = value[order]
    return table


def masks_of(objects: Ints) -> Masks:
    """(C,): each row of objects (C, slots) as a set; -1 is none."""
    bits = np.where(objects >= 0, np.uint64(1) << np.maximum(objects, 0).astype(np.uint64), np.uint64(0))
    return np.asarray(np.bitwise_or.reduce(bits, axis=1))
