"""Logs of a training: a CSV file, TensorBoard if it is installed, and a progress bar on a terminal."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairton._common.atomic import output_errors, replacing

__all__ = ["Logs"]

COLUMNS = ("step", "kind", "name", "value")


class Logs:
    """Writes (step, kind, name, value) to `metrics.csv`. When a training is resumed, later rows are dropped."""

    def __init__(self, folder: Path, first_step: int, steps: int) -> None:
        self.path = folder / "metrics.csv"
        self._keep_before(first_step)
        self._board = _tensorboard(folder / "tensorboard", first_step)
        self._bar = _Bar(first_step, steps)

    def __enter__(self) -> Logs:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._board is not None:
            self._board.close()

    def write(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        with output_errors(self.path), self.path.open("a", newline="") as file:
            csv.writer(file).writerows((step, kind, name, repr(value)) for name, value in values.items())
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(f"{kind}/{name}", value, step)
        self._bar.show(step, kind, values)

    def advance(self, step: int) -> None:
        self._bar.advance(step)

    def _keep_before(self, first_step: int) -> None:
        rows: list[list[str]] = []
        if self.path.exists() and first_step > 0:
            with self.path.open(newline="") as file:
                rows = [row for row in csv.reader(file) if row and row[0].isdigit() and int(row[0]) <= first_step]
        with replacing(self.path) as temporary, temporary.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])


def _tensorboard(folder: Path, first_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # optional: the CSV has the same numbers
        return None
    return SummaryWriter(str(folder), purge_step=first_step or None)


class _Bar:
    """A bar with step, loss and the latest efficiencies. Without a terminal, it prints a line per validation."""

    def __init__(self, first_step: int, steps: int) -> None:
        self._progress: Any = None
        self._first, self._steps = first_step, steps
        self._shown: dict[str, float] = {}

    def start(self) -> None:
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[text]}"))
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task("train", total=self._steps, completed=self._first, text="")
        self._progress.start()

    def advance(self, step: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=step)

    def show(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        self._shown |= {name: value for name, value in values.items() if name == "loss" or kind == "validation"}
        text = "  ".join(f"{name} {value:.4g}" for name, value in self._shown.items())
        if self._progress is not None:
            self._progress.update(self._task, completed=step, text=text)
        elif kind == "validation":
            print(f"step {step}/{self._steps}  {text}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
