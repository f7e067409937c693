"""Sets of objects as integers with one bit per object, and tables of indices.

Shapes: C candidates, n sets, K entries per set. In a table (K, n), column g lists the entries of set g. If a set
has fewer than others, its column ends with `fill`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Filling", "RowIndex", "disjoint", "index_table", "keys_of", "masks_of"]

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


def keys_of(rows: Ints, base: int) -> npt.NDArray[np.int64]:
    """(C,): one integer that sorts like the row."""
    key = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        key = key * (base + 1) + column + 1
    return key


def disjoint(left: Masks, right: Masks) -> Iterator[tuple[Index, Index]]:
    """Indices of all pairs of disjoint sets, in order and in blocks, since there may be millions."""
    step = max(1, BLOCK // max(1, len(right)))
    for start in range(0, len(left), step):
        one, two = np.nonzero((left[start : start + step, None] & right) == 0)
        yield one + start, two


class Filling:
    """A table (K, n) that is filled block by block: column g has the values of group g in order, then `fill`."""

    def __init__(self, n: int, most: int, fill: int) -> None:
        self.rows = np.full((most, n), fill, dtype=np.int32)
        self._held = np.zeros(n, dtype=np.int64)

    def add(self, group: Index, value: Index) -> None:
        order = np.argsort(group, kind="stable")
        group, counts = group[order], np.bincount(group, minlength=len(self._held))
        place = np.arange(len(group)) - (np.cumsum(counts) - counts - self._held)[group]
        self.rows[place, group] = value[order]
        self._held += counts


def index_table(group: Index, value: Index, n: int, fill: int) -> Table:
    """(K, n): column g has the values of group g in order, then `fill`."""
    table = Filling(n, np.bincount(group, minlength=n).max(initial=0), fill)
    table.add(group, value)
    return table.rows


def masks_of(objects: Ints) -> Masks:
    """(C,): each row of objects (C, slots) as a set; -1 is none."""
    bits = np.where(objects >= 0, np.uint64(1) << np.maximum(objects, 0).astype(np.uint64), np.uint64(0))
    return np.asarray(np.bitwise_or.reduce(bits, axis=1))
