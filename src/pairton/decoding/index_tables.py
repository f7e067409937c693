"""Sets of objects as integers with one bit per object, and tables of indices.

Shapes: C candidates, n sets, K entries per set. In a table (K, n), column g lists the entries of set g. If a set
has fewer than others, its column ends with `fill`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["RowIndex", "disjoint", "index_table", "keys_of", "masks_of"]

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
