"""Limits on processor time and memory of calls into compiled libraries, which Python cannot interrupt.

A watching thread asks a call that has used up its time to stop. A library may look at that request late or never:
then a command, or a worker process, is ended. Other programs that import Pairton are never ended.
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

INTERVAL = 0.25  # seconds between two looks at the clocks
GRACE = 4.0  # seconds of processor time from the request to stop to the end of the process

Clock = Callable[[], float]


@dataclass(eq=False)
class _Call:
    budget: Budget
    stop: Callable[[], None]
    clock: Clock
    begun: float


@dataclass(eq=False)
class Budget:
    """Seconds of processor time that some calls may take together, in all threads.

    complaint  what is said where the process is ended because a call did not stop

    >>> budget = Budget("too slow", 1.0)
    >>> with budget.spending():
    ...     _ = sum(range(10))
    >>> budget.spent
    False
    """

    complaint: str
    seconds: float
    spent: bool = field(default=False, init=False)  # whether more was used
    _used: float = field(default=0.0, init=False)  # by calls that have ended

    def allow(self, seconds: float) -> None:
        """Add to what may be used."""
        with _watched:
            self.seconds += seconds

    @contextmanager
    def spending(self, stop: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Count the time of the block, in this thread; `stop` is called from another one when it is used up."""
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
        """Stop the calls, which are those of this budget, if they have used it up."""
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
    """Within the block, `end` is called with a complaint where a call does not stop; it should end the process."""
    global _end
    before, _end = _end, end
    try:
        yield
    finally:
        _end = before


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Within the block the process may map so many bytes more than now, or allocations fail; on Linux only."""
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
    """Processor time of this thread, for any thread to read; elapsed time where the system has no such clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(get_ident())
    return lambda: time.clock_gettime(clock)


def _start_watching() -> None:
    """Called with the lock; a process that was forked has no thread but its own."""
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
