"""A cache for the results of a function, limited by memory rather than by number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar

__all__ = ["remember"]

P = ParamSpec("P")
R = TypeVar("R")


def remember(limit: int, size: Callable[[R], int]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache the most recently used results of a function, up to `limit` bytes in total, and at least the last one.

    size: returns the bytes of a result. Arguments must be hashable. Threads wait while another computes a result.

    >>> @remember(10, len)
    ... def letters(text):
    ...     print("made", text)
    ...     return text
    >>> [letters(word) for word in ("abcdef", "abcdef", "xyzxyz", "abcdef")]
    made abcdef
    made xyzxyz
    made abcdef
    ['abcdef', 'abcdef', 'xyzxyz', 'abcdef']
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        kept: OrderedDict[Hashable, tuple[R, int]] = OrderedDict()  # most recently used last
        lock = RLock()

        def shrink(fewest: int) -> None:
            while len(kept) > fewest and sum(taken for _, taken in kept.values()) > limit:
                kept.popitem(last=False)

        @wraps(function)
        def remembered(*args: P.args, **kwargs: P.kwargs) -> R:
            key = (args, tuple(sorted(kwargs.items())))
            with lock:
                if key not in kept:
                    shrink(0)  # before the new result needs memory
                    made = function(*args, **kwargs)
                    kept[key] = made, size(made)
                kept.move_to_end(key)
                shrink(1)
                return kept[key][0]

        return remembered

    return decorate
