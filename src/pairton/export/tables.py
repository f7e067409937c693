"""Tables of choices that serve every jet count up to the one they were made for.

Rows are sorted by the last jet they use, so that those for n jets are the first ones, and their number is a
polynomial in n: an exported graph takes a slice of a table, whatever the number of jets it is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

__all__ = ["PrefixTable", "by_last_jet", "fitted"]


def by_last_jet(jets: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The order of rows (C, jets) by their last jet, otherwise unchanged."""
    if jets.shape[1] == 0:
        return np.arange(len(jets))
    return np.argsort(jets.max(axis=1), kind="stable")


def fitted(jets: Tensor, jet_mask: Tensor, fewest: int, most: int) -> tuple[Tensor, Tensor]:
    """The first `most` jets (B, N, 5), padded to at least `fewest`; (B, N) says which are there.

    >>> [part.shape[1] for n in (2, 5, 9) for part in fitted(torch.ones(1, n, 5), torch.ones(1, n) > 0, 4, 6)]
    [4, 4, 5, 5, 6, 6]
    """
    n_jets = torch.clamp(torch.as_tensor(jets.shape[1]), min=fewest, max=most)
    missing = torch.zeros_like(jets[:, :1]).repeat(1, fewest, 1)  # (B, fewest, 5)
    jets = torch.cat([jets, missing], dim=1)[:, :n_jets]
    jet_mask = torch.cat([jet_mask, missing[:, :, 0] > 0], dim=1)[:, :n_jets]
    return jets, jet_mask


class PrefixTable(nn.Module):
    """A table (C, columns) of choices that use `n_used` of `max_jets` jets.

    >>> pairs = PrefixTable(np.array([[0, 1], [0, 2], [1, 2]]), 2, 3)
    >>> pairs.rows(2).tolist(), pairs.rows(3).tolist()
    ([[0, 1]], [[0, 1], [0, 2], [1, 2]])
    """

    table: Tensor

    def __init__(self, table: npt.NDArray[Any], n_used: int, max_jets: int) -> None:
        super().__init__()
        self.n_used = n_used
        self.total, self.orders = len(table), self._orders(max_jets)
        self.register_buffer("table", torch.as_tensor(np.ascontiguousarray(table)).long(), persistent=False)

    def _orders(self, n_jets: Any) -> Any:
        """n (n - 1) ...: ways to pick the jets in order."""
        count = 1
        for k in range(self.n_used):
            count = count * (n_jets - k)
        return count

    def rows(self, n_jets: Any) -> Tensor:
        """The choices for `n_jets` jets."""
        return self.table[: self._orders(n_jets) * self.total // self.orders]
