"""`pairton verify`: check that a result and its inputs are unchanged."""

from __future__ import annotations

import sys

import click

from pairton.errors import printable

__all__ = ["verify"]

FAILED = 1


@click.command()
@click.argument("result", metavar="RESULT")
def verify(result: str) -> None:
    """Check RESULT of `pairton reconstruct`, a folder of parts or a file, against what was recorded with it.

    Every part must have the SHA-256 that it was written with, and every input that is still there the one that it
    was read with. One line for each problem, and exit code 1 where there is any.

    Example: pairton verify out/
    """
    from pairton.reconstruction.verifying import verify as check

    found = check(result)
    for problem in found.problems:
        click.echo(f"pairton: {printable(problem)}", err=True)
    said = f"{found.parts} parts" if found.parts else "one file, which has no hash of itself"
    absent = f", {found.absent} not there or on the network" if found.absent else ""
    click.echo(f"{result}: {found.events} events, {said}; {found.inputs} inputs as they were read{absent}")
    if found.problems:
        sys.exit(FAILED)
