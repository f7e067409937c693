"""Limits on the CPU time and memory of calls into compiled libraries, which Python cannot interrupt.

A thread watches the calls and asks those that have used up their time to stop. If the library does not react, the
`pairton` command or the worker process is ended. A program that imports Pairton as a library is never ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import parent_process
from os import _exit
from threading import Condition, Thread, get_ident

__all__ = ["Budget", "ending_overruns", "memory_limit"]

INTERVAL = 0.25  # seconds between two checks of the clocks
GRACE = 4.0  # seconds of CPU time between the request to stop and the end of the process

Clock = Callable[[], float]


@dataclass(eq=False)
class _Call:
    budget: Budget
    stop: Callable[[], None]
    clock: Clock
    begun: float


@dataclass(eq=False)
class Budget:
    """A limit on the CPU time, in seconds, of several calls together, in all threads.

    complaint  the message if the process has to be ended because a call did not stop

    >>> budget = Budget("too slow", 1.0)
    >>> with budget.spending():
    ...     _ = sum(range(10))
    >>> budget.spent
    False
    """

    complaint: str
    seconds: float
    spent: bool = field(default=False, init=False)  # whether the limit was exceeded
    _used: float = field(default=0.0, init=False)  # seconds used by calls that have ended

    def allow(self, seconds: float) -> None:
        """Raise the limit by some seconds."""
        with _watched:
            self.seconds += seconds

    @contextmanager
    def spending(self, stop: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Charge the CPU time of the block to the budget. If it runs out, another thread calls `stop`."""
        clock = _thread_clock()
        call = _Call(self, stop, clock, clock())
        with _watched:
            _calls.add(call)
            _start_watching()
            _watched.notify()
        try:
            yield
        finally:
            with _watched:
                _calls.discard(call)
                self._used += clock() - call.begun

    def check(self, calls: list[_Call]) -> None:
        """Stop `calls`, all running calls of this budget, if they have used it up."""
        used = self._used + sum(call.clock() - call.begun for call in calls)
        if used > self.seconds:
            self.spent = True
            for call in calls:
                call.stop()
        if used > self.seconds + GRACE:
            if parent_process() is not None:
                _exit(1)
            if _end is not None:
                _end(self.complaint)


_watched = Condition()
_calls: set[_Call] = set()
_watcher: Thread | None = None
_end: Callable[[str], None] | None = None


@contextmanager
def ending_overruns(end: Callable[[str], None]) -> Iterator[None]:
    """Within the block, call `end` with a message if a call does not stop. `end` should end the process."""
    global _end
    before, _end = _end, end
    try:
        yield
    finally:
        _end = before


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Let allocations in the block fail once the process has mapped `more` bytes more than now. Linux only."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            limit = int(file.read().split()[0]) * resource.getpagesize() + more
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = min([limit, *(bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _thread_clock() -> Clock:
    """A clock for the CPU time of this thread that any thread can read; elapsed time if the system has none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(get_ident())
    return lambda: time.clock_gettime(clock)


def _start_watching() -> None:
    """Start the watching thread if there is none, as after a fork. The caller holds the lock."""
    global _watcher
    if _watcher is None or not _watcher.is_alive():
        _watcher = Thread(target=_watch, daemon=True, name="pairton-budget")
        _watcher.start()


def _watch() -> None:
    while True:
        with _watched:
            while not _calls:
                _watched.wait()
        time.sleep(INTERVAL)
        with _watched:
            for budget in {call.budget for call in _calls}:
                with suppress(OSError):  # the clock of a thread that has ended
                    budget.check([call for call in _calls if call.budget is budget])
