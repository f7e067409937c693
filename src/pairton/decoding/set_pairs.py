"""Sets of objects as bits of an integer, and index tables that are filled in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Masks", "Partners", "Rows", "Table", "disjoint", "index_table", "masks_of", "smallest", "union_counts"]

BLOCK = 2**17  # pairs of sets that are compared at a time
HELD = 2**19  # sets that are held before equal ones are merged

Index = npt.NDArray[np.intp]
Table = npt.NDArray[np.int32]
Masks = npt.NDArray[np.uint64]


def disjoint(left: Masks, right: Masks) -> Iterator[tuple[Index, Index]]:
    """Indices of all pairs of disjoint sets, in order and in blocks, since there may be millions."""
    step = max(1, BLOCK // max(1, len(right)))
    for start in range(0, len(left), step):
        one, two = np.nonzero((left[start : start + step, None] & right) == 0)
        yield one + start, two


class Rows:
    """A table (K, n) that is filled block by block: column g has the values of group g in order, then `fill`."""

    def __init__(self, n: int, most: int, fill: int) -> None:
        self.table = np.full((most, n), fill, dtype=np.int32)
        self._held = np.zeros(n, dtype=np.int64)

    def add(self, group: Index, value: Index) -> None:
        order = np.argsort(group, kind="stable")
        group, counts = group[order], np.bincount(group, minlength=len(self._held))
        place = np.arange(len(group)) - (np.cumsum(counts) - counts - self._held)[group]
        self.table[place, group] = value[order]
        self._held += counts


def index_table(group: Index, value: Index, n: int, fill: int) -> Table:
    """(K, n): column g has the values of group g in order, then `fill`."""
    rows = Rows(n, np.bincount(group, minlength=n).max(initial=0), fill)
    rows.add(group, value)
    return rows.table


def masks_of(objects: npt.NDArray[np.integer[Any]]) -> Masks:
    """(C,): each row of objects (C, slots) as a set, one bit per object."""
    return np.asarray(np.bitwise_or.reduce(np.uint64(1) << objects.astype(np.uint64), axis=1))


def smallest(masks: Masks) -> Masks:
    """The lowest bit of each set: its smallest object."""
    return masks & (~masks + np.uint64(1))


def union_counts(blocks: Iterable[Masks]) -> tuple[Masks, npt.NDArray[np.int64]]:
    """The different sets of all blocks, increasing, and how often each occurs. Repeated sets take no memory.

    >>> union_counts([np.array([3, 5], dtype=np.uint64), np.array([3], dtype=np.uint64)])
    (array([3, 5], dtype=uint64), array([2, 1]))
    """
    masks, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    held: list[Masks] = []

    def merge() -> None:
        nonlocal masks, counts
        new, times = np.unique(np.concatenate([np.zeros(0, np.uint64), *held]), return_counts=True)
        held.clear()
        merged = np.union1d(masks, new)
        total = np.zeros(len(merged), np.int64)
        total[np.searchsorted(merged, masks)] += counts
        total[np.searchsorted(merged, new)] += times
        masks, counts = merged, total

    for block in blocks:
        held.append(block)
        if sum(map(len, held)) >= HELD:
            merge()
    merge()
    return masks, counts


@dataclass(frozen=True, eq=False)
class Partners:
    """The disjoint sets of two factors, seen from one of them; each table is made when it is first used."""

    own: Masks
    other: Masks
    masks: Masks  # of all unions, increasing

    @cached_property
    def sets(self) -> Table:
        """(K, own sets): for each set, the other sets that are disjoint from it."""
        pairs = disjoint(self.own, self.other)
        most = max((int(np.bincount(one).max(initial=0)) for one, _ in pairs), default=0)
        rows = Rows(len(self.own), most, len(self.other))
        for one, two in disjoint(self.own, self.other):
            rows.add(one, two)
        return rows.table

    @cached_property
    def unions(self) -> Table:
        """(K, own sets): the unions with those sets. Only a product that is part of another one needs them."""
        result, padded = np.empty_like(self.sets), np.append(self.other, np.uint64(0))
        for other, row in zip(self.sets, result, strict=True):
            found = np.searchsorted(self.masks, self.own | padded[other])
            row[:] = np.where(other < len(self.other), found, len(self.masks))
        return result
