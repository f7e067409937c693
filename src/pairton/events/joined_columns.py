"""Join the parts of a column without a loss of precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import EventsError

__all__ = ["joined_column"]


def joined_column(name: str, parts: Sequence[Any]) -> ak.Array:
    """The parts one after the other; integers of several types stay integers.

    Raises EventsError if some are below zero and others are too large for int64.

    >>> parts = np.array([2**60 + 1], np.int64), np.array([2**60 + 3], np.uint64)
    >>> (joined_column("event", parts) - 2**60).tolist()
    [1, 3]
    """
    types = [_integer_type(part) for part in parts]
    known = {kind for kind in types if kind is not None}
    # int64 and uint64 would become doubles, which have 53 bits
    if len(known) < 2 or None in types or np.issubdtype(np.result_type(*known), np.integer):
        return ak.concatenate(parts)
    values = [np.asarray(ak.flatten(part, axis=None)) for part in parts]
    if min(int(each.min(initial=0)) for each in values) >= 0:
        common: type[np.integer] = np.uint64
    elif max(int(each.max(initial=0)) for each in values) <= np.iinfo(np.int64).max:
        common = np.int64
    else:
        raise EventsError(
            f"the column {name} has numbers below zero in some parts and above {np.iinfo(np.int64).max} in "
            "others, which no integer type holds: read the parts separately, or without this column"
        )
    return ak.concatenate([ak.values_astype(part, common) for part in parts])


def _integer_type(column: Any) -> np.dtype[Any] | None:
    """The type of the integers in a column, or in its lists; None for other columns."""
    layout = ak.to_layout(column)
    while (layout.is_list or layout.is_option or layout.is_indexed) and layout.parameter("__array__") is None:
        layout = layout.content
    return layout.dtype if layout.is_numpy and np.issubdtype(layout.dtype, np.integer) else None
