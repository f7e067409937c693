"""Results that are kept for the next time they are asked for, as long as they take little memory together."""

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
    """Keep the results of a function, those last asked for, up to `limit` bytes in all; the last one always.

    size: the bytes of a result. Arguments must be hashable. Threads that ask for the same wait for one result.

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
        kept: OrderedDict[Hashable, tuple[R, int]] = OrderedDict()  # the last asked for at the end
        lock = RLock()

        def shrink(fewest: int) -> None:
            while len(kept) > fewest and sum(taken for _, taken in kept.values()) > limit:
                kept.popitem(last=False)

        @wraps(function)
        def remembered(*args: P.args, **kwargs: P.kwargs) -> R:
            key = (args, tuple(sorted(kwargs.items())))
            with lock:
                if key not in kept:
                    shrink(0)  # what is made next needs memory too
                    made = function(*args, **kwargs)
                    kept[key] = made, size(made)
                kept.move_to_end(key)
                shrink(1)
                return kept[key][0]

        return remembered

    return decorate
