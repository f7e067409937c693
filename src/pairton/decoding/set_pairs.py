"""Sets of objects as bits of an integer, and index tables that are filled in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Masks", "Rows", "Table", "disjoint", "index_table", "masks_of", "smallest"]

BLOCK = 2**20  # pairs of sets that are compared at a time

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
