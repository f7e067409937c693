"""Ends a training after the current step on Ctrl-C, SIGTERM or SIGHUP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pairton._common.signals import handled

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether one of the signals was received. A second one ends the block."""
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if not asked.is_set():
            asked.set()
        elif callable(before[number]):
            before[number](number, frame)
        else:
            raise KeyboardInterrupt

    with handled(ask) as before:
        yield asked.is_set
