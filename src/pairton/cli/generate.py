"""`pairton generate`: simulate events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairton.cli.options import (
    OUTPUT,
    PHYSICS,
    RUNNING,
    GroupedCommand,
    completing,
    force_option,
    jobs_option,
    option,
)

if TYPE_CHECKING:
    from pairton.generator.production import Counts

__all__ = ["generate"]


@click.command(cls=GroupedCommand, short_help="Simulate events: Pythia 8, a fast detector, jets, truth.")
@click.argument("topology", default="ttbar_allhad", shell_complete=completing("topology"))
@option(PHYSICS, "-n", "n_events", type=int, help="Number of events to simulate. [with --lhe: all of the file]")
@option(PHYSICS, "--process", metavar="NAME", help="Simulate another process than TOPOLOGY's own, as background.")
@option(PHYSICS, "--seed", type=int, default=1, show_default=True, help="Different seeds never share events.")
@option(
    PHYSICS,
    "--keep",
    default="selected",
    show_default=True,
    help="Events to write: all, selected, or reconstructible (selected, and a particle has all its objects).",
)
@option(
    PHYSICS,
    "--filter",
    "filtered",
    is_flag=True,
    help="Drop events with soft or forward quarks before the shower: faster, but biased.",
)
@option(
    PHYSICS,
    "--copies",
    type=int,
    default=1,
    show_default=True,
    help="Pass each collision so many times through the detector: more training events in less time.",
)
@option(PHYSICS, "--lhe", type=click.Path(path_type=Path), help="Read Les Houches events of another generator.")
@option(
    PHYSICS,
    "--card",
    default="atlas",
    show_default=True,
    help="The detector: a built-in card or a YAML file.",
    shell_complete=completing("card"),
)
@option(PHYSICS, "--pythia", multiple=True, metavar="LINE", help="An additional Pythia setting; may be repeated.")
@jobs_option("The events do not depend on it.")
@option(RUNNING, "--resume", is_flag=True, help="Continue an interrupted run.")
@option(OUTPUT, "-o", "--output", type=click.Path(path_type=Path), required=True, help="File to write.")
@force_option
def generate(
    topology: str,
    n_events: int | None,
    output: Path,
    resume: bool,
    force: bool,
    jobs: int | str | None,
    **sample: Any,  # options that `pairton.generate` has under the same name
) -> None:
    """Simulate events of TOPOLOGY: Pythia 8, a fast detector, jets, truth.

    Finished chunks are kept in OUTPUT.parts until all are done, so that --resume can continue an interrupted run.

    `multijet`, in place of TOPOLOGY or as --process, is background: jets without any of the particles.

    \b
    Example: pairton generate ttbar_allhad -n 100000 -o events.h5 --seed 1 --jobs 2
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from pairton._common.parallel import workers
    from pairton.generator.production import produce
    from pairton.generator.settings import make_settings

    settings = make_settings(topology, n_events, **sample)
    rate = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    chunks = 0
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        row = bar.add_task("", total=settings.n_events * settings.copies, rate="")

        def progress(new: bool, counts: Counts) -> None:
            nonlocal chunks
            chunks += 1
            bar.update(row, advance=counts.simulated)
            if new and (speed := bar.tasks[row].speed):
                bar.update(row, rate=f"{speed:.0f} events/s")

        with workers(1 if jobs is None else jobs) as pool:
            counts = produce(settings, output, resume=resume, force=force, progress=progress, **pool)
    click.echo(report(counts))
    click.echo(f"wrote {output}" if chunks else f"{output} is complete")


def report(counts: Counts) -> str:
    """The counts as a table; with weights or copies, also the sum of weights and the effective number."""
    numbers = {name: number for name, number in vars(counts).items() if isinstance(number, int)}
    simulated = max(1, counts.simulated)  # all may have been vetoed
    shares = {name: f"{number / simulated:8.2%}" if name != "tried" else "" for name, number in numbers.items()}
    lines = [f"{name:15}  {number:>10,}  {shares[name]}".rstrip() for name, number in numbers.items()]
    if (counts.sum_of_weights, counts.sum_of_squares) != (counts.kept, counts.kept):
        effective = f"effective number {counts.effective:,.0f}"
        lines.append(f"{'weights':15}  {counts.sum_of_weights:>10.5g}  {effective}")
    return "\n".join(lines)
