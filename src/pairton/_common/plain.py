"""Results as plain data for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

__all__ = ["as_plain"]


def as_plain(value: Any, digits: int | None = None) -> Any:
    """Convert dataclasses, named tuples and arrays to mappings, lists and numbers. NaN and infinity become None.

    >>> as_plain({"mass": np.array([80.41, np.nan]), 6: (1, 2)}, digits=1)
    {'mass': [80.4, None], '6': [1, 2]}
    """
    if is_dataclass(value):
        value = vars(value)
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): as_plain(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item, digits) for item in value]
    if isinstance(value, float):
        return (value if digits is None else round(value, digits)) if math.isfinite(value) else None
    return value
