"""Tables of choices that serve every number of objects up to the one they were made for.

Rows are sorted by the last object they use, so that those for n objects are the first ones, and their number is a
polynomial in n: an exported graph takes a slice of a table, whatever the number of objects it is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

__all__ = ["PrefixTable", "by_last", "fitted"]


def by_last(nodes: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The order of rows (C, nodes) by their last node, otherwise unchanged."""
    if nodes.shape[1] == 0:
        return np.arange(len(nodes))
    return np.argsort(nodes.max(axis=1), kind="stable")


def fitted(objects: Tensor, mask: Tensor, fewest: int, most: int) -> tuple[Tensor, Tensor]:
    """The first `most` objects (B, N, F), padded to at least `fewest`; (B, N) says which are there.

    >>> [part.shape[1] for n in (2, 5, 9) for part in fitted(torch.ones(1, n, 5), torch.ones(1, n) > 0, 4, 6)]
    [4, 4, 5, 5, 6, 6]
    """
    count = torch.clamp(torch.as_tensor(objects.shape[1]), min=fewest, max=most)
    missing = objects.new_zeros(objects.shape[0], fewest, objects.shape[2])
    objects = torch.cat([objects, missing], dim=1)[:, :count]
    mask = torch.cat([mask, missing[:, :, 0] > 0], dim=1)[:, :count]
    return objects, mask


class PrefixTable(nn.Module):
    """A table (C, columns) of choices that use `n_used` of `most` objects.

    >>> pairs = PrefixTable(np.array([[0, 1], [0, 2], [1, 2]]), 2, 3)
    >>> pairs.rows(2).tolist(), pairs.rows(3).tolist()
    ([[0, 1]], [[0, 1], [0, 2], [1, 2]])
    """

    table: Tensor

    def __init__(self, table: npt.NDArray[Any], n_used: int, most: int) -> None:
        super().__init__()
        self.n_used = n_used
        self.total, self.orders = len(table), self._orders(most)
        self.register_buffer("table", torch.as_tensor(np.ascontiguousarray(table)).long(), persistent=False)

    def _orders(self, count: Any) -> Any:
        """n (n - 1) ...: ways to pick the objects in order."""
        orders = 1
        for k in range(self.n_used):
            orders = orders * (count - k)
        return orders

    def rows(self, count: Any) -> Tensor:
        """The choices for `count` objects."""
        return self.table[: self._orders(count) * self.total // self.orders]
