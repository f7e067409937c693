"""`pairton evaluate`: measure how often answers are right."""

from __future__ import annotations

import json
import shlex
import sys
from shutil import get_terminal_size
from typing import Any

import click

from pairton.cli.options import (
    OUTPUT,
    PHYSICS,
    GroupedCommand,
    completing,
    decoding_option,
    model_options,
    option,
    reading_options,
)
from pairton.errors import ConfigError

__all__ = ["evaluate"]


@click.command(cls=GroupedCommand, short_help="Measure efficiencies on labelled events, and compare methods.")
@click.argument("inputs", nargs=-1, required=True, metavar="IN...")
@option(
    PHYSICS,
    "--model",
    "models",
    multiple=True,
    help="A built-in model, a path, or kinematic; repeat to compare. [that of the topology]",
    shell_complete=completing("model"),
)
@decoding_option(param="decodings", multiple=True)
@option(
    PHYSICS,
    "--baseline",
    "baselines",
    multiple=True,
    metavar="NAME",
    help="Compare with a method without a network: chi2, kinematic, min_mass, random.",
)
@option(
    PHYSICS,
    "--assignments",
    multiple=True,
    metavar="FILE",
    help="Compare with answers in a file: of Pairton, SPANet or HyPER.",
)
@option(PHYSICS, "--select", is_flag=True, help="Apply the selection of the topology first.")
@option(
    PHYSICS,
    "--split",
    metavar="train|validation|test",
    help="Use only the train, validation or test events of the (first) model.",
    shell_complete=completing(("train", "validation", "test")),
)
@option(
    PHYSICS,
    "--mix",
    metavar="A,B,C",
    help="Also reweight efficiencies to these shares of the multiplicity bins. [the paper's]",
)
@option(
    PHYSICS,
    "--jet-scale",
    "jet_scales",
    type=float,
    multiple=True,
    metavar="S",
    help="Also evaluate with the energies of all jets times S.",
)
@option(PHYSICS, "--no-weights", is_flag=True, help="Count every event once, whatever its weight.")
@option(OUTPUT, "--full", is_flag=True, help="Print all tables.")
@option(OUTPUT, "--json", "json_file", metavar="FILE", help="Write all numbers as JSON; - prints them.")
@option(OUTPUT, "--report", metavar="PAGE", help="Write an HTML page with figures and a gallery of events.")
@option(OUTPUT, "--plots", metavar="DIR", help="Write the figures to a folder: PDF, PNG and CSV.")
@model_options
@reading_options("keep")
def evaluate(
    inputs: tuple[str, ...],
    models: tuple[str, ...],
    mix: str | None,
    no_weights: bool,
    full: bool,
    json_file: str | None,
    report: str | None,
    plots: str | None,
    reading: dict[str, Any],
    **how: Any,  # options that `pairton.evaluate` has under the same name
) -> None:
    """Measure efficiencies, with intervals and by jet multiplicity, on the labelled events of IN.

    Every event with truth is scored; --select applies the selection of the topology first. --assignments alone
    needs no model. Two or more methods are also compared event by event. Event weights are used if they differ.

    \b
    Example: pairton evaluate test.h5 --baseline chi2 --json numbers.json --report page.html
    """
    from pairton._common.atomic import Replacement, replacing
    from pairton.cli.progress import progress
    from pairton.evaluation.evaluating import evaluate as run
    from pairton.evaluation.evaluation import WIDTH

    for output in (json_file, report):
        if output not in (None, "-"):
            Replacement(str(output))  # raises an error before the work if the output cannot be written
    if report is not None or plots is not None:
        from pairton.report import page

        page.check_outputs(report, plots)
    result = run(
        list(inputs),
        list(models) or None,
        mix=None if mix is None else _shares(mix),
        use_weights=not no_weights,
        progress=lambda stream: progress(stream, None, "evaluating", size=len),
        **how,
        **reading,
    )
    command = shlex.join(["pairton", *sys.argv[1:]])
    if json_file is not None:
        text = json.dumps({"command": command, **result.to_dict()}, indent=1)
    if json_file == "-":
        click.echo(text)
    else:
        width = get_terminal_size().columns if sys.stdout.isatty() else WIDTH
        click.echo(result.table(width, full), nl=False)
        if not full:
            click.echo("--full prints all tables, --report PAGE.html adds figures")
        if not any(total.any() for total in result.scores(result.methods[0]).total.values()):
            click.echo("pairton: warning: these events have no truth labels, so nothing can be scored", err=True)
    if json_file not in (None, "-"):
        with replacing(json_file) as temporary:
            temporary.write_text(f"{text}\n")
        click.echo(f"wrote {json_file}")
    if report is not None:  # last, so that the numbers are written even if it fails
        page.write_report(report, result, command=command)
        click.echo(f"wrote {report}", err=True)
    if plots is not None:
        click.echo(f"wrote {len(page.write_plots(plots, result))} files to {plots}", err=True)


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"mix is {text!r}: give a share for each multiplicity bin, as in 36,30,34") from None
