"""A progress bar on terminals, for work that takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pairton.errors import printable

__all__ = ["progress"]

T = TypeVar("T")

PATIENCE = 1.0  # seconds before a bar appears


def progress(
    items: Iterable[T],
    total: int | Callable[[], int | None] | None,
    label: str,
    size: Callable[[T], int] = lambda _: 1,
) -> Iterator[T]:
    """Yield the items, with a bar on stderr if that is a terminal.

    total   the length of the bar, or a function that gives it, if it becomes known on the way
    size    the length of an item

    >>> list(progress(range(3), 3, "counting"))
    [0, 1, 2]
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(printable(label), total=None if callable(total) else total)
    begun = time.monotonic()
    shown = False
    try:
        for item in items:
            yield item
            bar.update(task, advance=size(item), total=total() if callable(total) else None)
            if not shown and time.monotonic() - begun > PATIENCE:
                bar.start()
                shown = True
    finally:
        if shown:
            bar.stop()
