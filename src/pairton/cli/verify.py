"""`pairton verify`: check that a result and its inputs are unchanged."""

from __future__ import annotations

import sys

import click

from pairton.errors import printable

__all__ = ["verify"]

FAILED = 1


@click.command(short_help="Check that a result and its inputs are unchanged.")
@click.argument("result", metavar="RESULT")
def verify(result: str) -> None:
    """Check that RESULT of `pairton reconstruct`, a folder of parts or a file, and its inputs are unchanged.

    The SHA-256 of every part, and of every input that still exists, must be the recorded one. Each problem is
    printed on one line, and the exit code is then 1.

    Example: pairton verify out/
    """
    from pairton.reconstruction.verifying import verify as check

    found = check(result)
    for problem in found.problems:
        click.echo(f"pairton: {printable(problem)}", err=True)
    parts = f"{found.parts} parts" if found.parts else "one file, whose own hash is not recorded"
    absent = f", {found.absent} missing or on the network" if found.absent else ""
    click.echo(f"{result}: {found.events} events, {parts}; {found.inputs} inputs unchanged{absent}")
    if found.problems:
        sys.exit(FAILED)
