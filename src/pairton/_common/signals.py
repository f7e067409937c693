"""Ctrl-C, SIGTERM and SIGHUP: the signals that ask a run to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Stopped", "blocked", "handled", "stopping"]

SIGNALS = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
AGAIN = 2.0  # seconds in which further signals are the same one: `timeout` and some batch systems send two


class Stopped(SystemExit):
    """A signal asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.name = signal.Signals(number).name


@contextmanager
def handled(handler: Callable[[int, Any], None]) -> Iterator[dict[int, Any]]:
    """Handle the signals within the block, except those that are ignored (`nohup`). Yield the earlier handlers."""
    mine = SIGNALS if threading.current_thread() is threading.main_thread() else []
    before: dict[int, Any] = {n: one for n in mine if (one := signal.getsignal(n)) not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, handler)
        yield before
    finally:
        for number, one in before.items():
            signal.signal(number, one)


@contextmanager
def stopping() -> Iterator[None]:
    """Raise Stopped within the block when a signal comes."""
    last = -AGAIN

    def stop(number: int, frame: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= AGAIN:
            last = time.monotonic()
            raise Stopped(number)

    with handled(stop):
        yield


@contextmanager
def blocked() -> Iterator[None]:
    """Let the signals wait for the end of the block; processes that it starts never get them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
