"""`pairton reconstruct`: find the particles of every event."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairton._common.atomic import refuse_existing
from pairton.cli.options import (
    OUTPUT,
    PHYSICS,
    RUNNING,
    GroupedCommand,
    completing,
    decoding_option,
    force_option,
    jobs_option,
    model_options,
    option,
    reading_options,
)
from pairton.errors import printable

if TYPE_CHECKING:
    from pairton.reconstruction.writers import Summary

__all__ = ["reconstruct"]


@click.command(cls=GroupedCommand, short_help="Find the particles of every event, and write them to a file.")
@click.argument("inputs", nargs=-1, metavar="[IN]...")
@option(
    PHYSICS,
    "--model",
    default="default",
    help="A built-in model or a path; `kinematic`, or FILE.yaml with its settings, for a kinematic fit. "
    "[that of the topology]",
    shell_complete=completing("model"),
)
@decoding_option()
@model_options
@option(
    OUTPUT,
    "--best",
    type=int,
    default=0,
    metavar="K",
    help="List the K most probable assignments: columns best_….",
)
@option(
    OUTPUT,
    "--truth",
    is_flag=True,
    help="Add the labels of the input, and which particles are right: true_…, …_truth.",
)
@jobs_option("OUT becomes a folder of parts.")
@option(
    RUNNING,
    "--resume",
    is_flag=True,
    help="Continue an interrupted run: keep the finished parts in OUT.",
)
@option(
    OUTPUT,
    "-o",
    "--output",
    metavar="OUT",
    help="File to write: .parquet, .root or .h5; with --jobs, --resume or --per-file a folder of Parquet files, "
    "or as in out/*.root. Without it, a table is printed.",
)
@option(OUTPUT, "--per-file", is_flag=True, help="Write one file per input, under its name, to the folder OUT.")
@force_option
@reading_options("strict", variations=True)
def reconstruct(
    inputs: tuple[str, ...],
    output: str | None,
    model: str,
    threads: int | None,
    engine: str,
    jobs: int | str | None,
    resume: bool,
    force: bool,
    per_file: bool,
    reading: dict[str, Any],
    **settings: Any,
) -> None:
    """Find the particles of every event of IN (files, globs, URLs, @list.txt) and write them to OUT.

    OUT has one row per event, in order: a status, the index (in the input) of the object of each slot, and the
    probability, pt, eta, phi and mass of each particle. Without IN, the sample events of the package are used.

    \b
    Example: pairton reconstruct events.root -o out.parquet --keep genWeight
             pairton reconstruct events/*.root -o out --jobs tls://scheduler:8786 --resume
    """
    from pairton.cli.progress import progress
    from pairton.reconstruction.run import Run
    from pairton.reconstruction.run_settings import RunSettings
    from pairton.reconstruction.running import write_result

    if jobs is None and not (resume or per_file):
        refuse_existing(output, force)
    elif threads is None and jobs not in (None, 1):
        threads = 1
    begun = time.monotonic()
    chosen = RunSettings.of(**settings)
    with Run(
        list(inputs) or None, model, chosen, engine=engine, threads=threads, truth=chosen.truth, **reading
    ) as run:

        def bar(stream: Any) -> Any:
            return progress(stream, lambda: run.expected, "reconstructing", size=len)

        summary = write_result(run, output, jobs=jobs, resume=resume, force=force, per_file=per_file, progress=bar)
        if output is None:
            _show(summary, None if inputs else Path(run.files[0]).name)
        wrote = f"; wrote {output}" if output else ""
        if summary.paths:
            wrote = f"; wrote {len(summary.paths)} parts to {summary.paths[0].parent}"
            wrote += f", {summary.skipped} of them kept" if summary.skipped else ""
            replaced = f", {summary.replaced} replaced (damaged, or other inputs or settings)"
            wrote += replaced if summary.replaced else ""
        tags = f", {100 * summary.tagged / summary.jets:.1f} % of jets b-tagged," if summary.jets else ""
        took, tree = f"{time.monotonic() - begun:.1f} s", run.model.topology.name
        click.echo(f"{summary.events} events ({_counts(summary.status)}){tags} in {took}, as {tree}{wrote}")
        for name, status in summary.varied.items():
            click.echo(f"  variation {name}: {_counts(status)}")
        for line in summary.warnings:
            click.echo(f"pairton: warning: {printable(line)}", err=True)
        click.echo(chosen.objects_used(run.model, run.topology, run.pile_up))


def _counts(status: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {label}" for label, n in status.items() if n) or "none"


def _show(summary: Summary, sample: str | None) -> None:
    """Print the first events as a table, with mass and objects of every root particle, grouped by child."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from pairton.events import Status
    from pairton.topology import collection_name

    reco = summary.first
    assert reco is not None
    roots = reco.topology.roots
    title = f"the sample events, {sample}" if sample else None
    main = reco.topology.main_kind
    table = Table("row", "event", collection_name(main), title=title, title_justify="left")
    labels = [Status(number).label for number in reco.status]
    table.add_column("status", min_width=max(map(len, labels), default=0))
    table.add_column("P(event)", min_width=len("P(event)"))
    for root in roots:
        table.add_column(f"{root.name} [GeV]", justify="right", overflow="fold")
        table.add_column("objects", overflow="fold")
    for row in range(len(reco)):
        cells = [str(row), str(reco.events.ids[row, 1]), str(reco.used[main][row]), labels[row]]
        probability = reco.event_probability[row]
        cells.append("" if np.isnan(probability) else f"{probability:.3f}")
        for root in roots:
            mass = reco.momenta["mass"][row, root.index]
            cells.append("" if np.isnan(mass) else f"{mass:.1f}")
            groups = [reco.topology.particles[child].slots for child in root.children] + [root.own_slots]
            found = [[reco.index[row, slot] for slot in group] for group in groups]
            filled = [" ".join(map(str, group)) for group in found if group and min(group) >= 0]
            cells.append(" + ".join(filled) or ("" if np.isnan(probability) else "absent"))
        table.add_row(*cells)
    console = Console(markup=False)  # names are no markup
    if not console.is_terminal:
        console.width = max(console.width, 60 + 24 * len(roots))  # nothing is cut
    console.print(table)
