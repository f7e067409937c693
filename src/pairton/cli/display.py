"""`pairton display`: draw one event."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairton.cli.options import (
    INPUT,
    OUTPUT,
    PHYSICS,
    GroupedCommand,
    completing,
    decoding_option,
    model_options,
    option,
    reading_options,
)

if TYPE_CHECKING:
    from pairton.events import Events
    from pairton.reconstruction.run import Run

__all__ = ["display"]


@click.command(cls=GroupedCommand, short_help="Draw one event and the steps of its reconstruction.")
@click.argument("inputs", nargs=-1, metavar="[IN]...")
@option(
    INPUT, "--event", "row", type=int, default=0, show_default=True, help="Which event: its row, counted from 0."
)
@option(
    PHYSICS,
    "--model",
    default="default",
    help="A built-in model, or the path of one. [that of the topology]",
    shell_complete=completing("model"),
)
@decoding_option()
@model_options
@option(
    OUTPUT,
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write: .html, .png, .svg or .pdf. [event-K.html]",
)
@reading_options("keep", "strict")
def display(
    inputs: tuple[str, ...],
    row: int,
    output: Path | None,
    model: str,
    threads: int | None,
    engine: str,
    reading: dict[str, Any],
    **settings: Any,
) -> None:
    """Draw one event of IN as a picture, or as a page that steps through its reconstruction.

    The page is a single file. The arrow keys or the slider move from step to step. Without IN, the sample events
    of the package are used.

    \b
    Example: pairton display events.h5 --event 3 -o event.html
    """
    from pairton._common.atomic import Replacement
    from pairton.reconstruction.run import Run
    from pairton.reconstruction.run_settings import RunSettings
    from pairton.report.page import check_suffix, display_event

    output = output or Path(f"event-{row}.html")
    check_suffix(output)
    chosen = RunSettings.of(**settings)
    with Run(list(inputs) or None, model, chosen, engine=engine, threads=threads, **reading) as run:
        events, first = _chunk_of(run, row)
        Replacement(output)  # raises an error before the work if the output cannot be written
        source = ", ".join(Path(path).name for path in run.files)
        shown = display_event(events, row - first, run.model, settings=chosen, source=source, number=row)
    shown.save(output)
    record = shown.record
    named = [f"{item.kind} {item.index}" for item in record.objects]
    found = ", ".join(
        f"{s.label} {s.mass:.1f} GeV ({', '.join(named[k] for k in s.objects)})" for s in record.answer
    )
    if not found and record.event_probability is not None:
        found = f"nothing is present, with a probability of {record.event_probability:.3f}"
    why = f"no answer, {record.status}: {record.frames[0].note}"
    click.echo(f"{record.name}: {found or why}")
    click.echo(f"wrote {output}")


def _chunk_of(run: Run, row: int) -> tuple[Events, int]:
    """The chunk that holds a row, and the number of its first row."""
    from pairton.errors import InputError

    first = 0
    if row >= 0:
        for events in run.chunks():
            if row < first + len(events):
                return events, first
            first += len(events)
        raise InputError(f"there is no event {row}: {', '.join(run.files)} has {first}, counted from 0")
    raise InputError(f"there is no event {row}: rows count from 0")
