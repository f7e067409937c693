"""`pairton train`: train a model on labelled events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pairton.cli.options import INPUT, OUTPUT, PHYSICS, RUNNING, GroupedCommand, completing, option
from pairton.errors import MissingExtraError

__all__ = ["train"]

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: tells a batch system that the training is not finished


@click.command(cls=GroupedCommand, short_help="Train a model on labelled events.")
@click.argument("recipe", shell_complete=completing("recipe"))
@option(INPUT, "--data", "-d", multiple=True, required=True, help="Files with labelled events; may be repeated.")
@option(
    OUTPUT, "--out", "-o", type=click.Path(path_type=Path), help="Folder for the model and its logs. [runs/RECIPE]"
)
@option(
    PHYSICS,
    "--topology",
    metavar="NAME|FILE",
    help="Use another decay tree than the recipe's.",
    shell_complete=completing("topology"),
)
@option(PHYSICS, "--init", metavar="MODEL", help="Start from the weights of a model: fine-tuning.")
@option(
    RUNNING,
    "--resume",
    is_flag=True,
    help="Continue the training in --out. The result is the same as without the interruption.",
)
@option(OUTPUT, "--force", is_flag=True, help="Start again in --out and replace the training that is there.")
@option(
    PHYSICS,
    "--folds",
    type=int,
    metavar="K",
    help="Train K networks, each on all folds of events but one; it then answers for that fold.",
)
@option(RUNNING, "--seed", type=int, help="Use another seed than the recipe's.")
@option(RUNNING, "--devices", type=int, help="Number of processes on this machine, one per device.")
@option(RUNNING, "--threads", type=int, help="CPU threads per process.")
def train(
    recipe: str,
    data: tuple[str, ...],
    out: Path | None,
    folds: int | None,
    threads: int | None,
    **how: Any,  # options that `pairton.train` has under the same name
) -> None:
    """Train RECIPE, a built-in one (cpu, iterative, paper, …) or a YAML file, on labelled events.

    The best model on validation events is written to --out. Use it with `pairton reconstruct --model`.

    \b
    Example: pairton train cpu --data events.h5 --out my-model
    """
    from pairton.making import train as run

    if threads is not None:
        try:
            import torch
        except ImportError:
            raise MissingExtraError("train", "torch") from None
        torch.set_num_threads(max(1, threads))
    folder = out or Path("runs") / Path(recipe).stem
    result = run(recipe, data, folder, folds=folds, **how)
    found = "  ".join(f"{name} {value:.4f}" for name, value in result.best.items()) or "not validated yet"
    if not result.leads:
        return
    if result.finished:
        each, means = ("", "") if folds is None else (f" in each of {folds} folds", ", on average")
        click.echo(f"{folder}: {result.steps} steps{each}; best on validation events{means}: {found}")
    else:
        part = "" if result.fold is None else f" of fold {result.fold[0]}"
        click.echo(f"{folder}: stopped after {result.step} of {result.steps} steps{part} ({found}); use --resume")
        sys.exit(STOPPED)
