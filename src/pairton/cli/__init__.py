"""The `pairton` command: one file per group of verbs, imported when a verb is called."""

from __future__ import annotations

import os
import re
import sys
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import Any, TextIO

import click

from pairton._common.atomic import protecting_inputs
from pairton._common.parallel import Stopped, stopping
from pairton._version import __version__
from pairton.errors import PairtonError, PairtonWarning, naming_flags, nearest, printable

__all__ = ["main"]

# verb -> module:command
VERBS = {
    "reconstruct": "pairton.cli.reconstruct:reconstruct",
    "evaluate": "pairton.cli.evaluate:evaluate",
    "display": "pairton.cli.display:display",
    "inspect": "pairton.cli.inspect_convert:inspect",
    "convert": "pairton.cli.inspect_convert:convert",
    "generate": "pairton.cli.generate:generate",
    "train": "pairton.cli.train:train",
    "export": "pairton.cli.export:export",
    "list": "pairton.cli.listing:list_",
    "measure": "pairton.cli.measure:measure",
}

SECTIONS = {  # of `pairton --help`
    "Use a model": ("reconstruct", "evaluate", "display"),
    "Look at files, and convert them": ("inspect", "convert", "list"),
    "Make a model": ("generate", "train", "export", "measure"),
}
FIRST = """\b
To begin:
  pairton reconstruct                      the candidates of the sample events
  pairton inspect FILE                     what is in your file, and how it would be read
  pairton reconstruct FILE -o out.parquet"""

CITATION = """\
@software{pairton_software,
  title   = {Pairton: which jet came from which particle},
  author  = {{The Pairton developers}},
  version = {%s},
  license = {MIT}
}
@article{pairton_method,
  title  = {Pairton: Iterative Reconstruction of Short-Lived Particles},
  author = {Hermansen, Andreas and Scheulen, Chris and Golling, Tobias},
  note   = {the method: masked discrete diffusion over adjacency matrices with a pairformer}
}"""


class LazyGroup(click.Group):
    """A group of commands that are imported when they are called, so that `--help` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, one.get_short_help_str(90)) for name, one in commands if one])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}{nearest(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module, function = VERBS[name].split(":")
        command = getattr(import_module(module), function)
        assert isinstance(command, click.Command)
        return _with_checks(command)


@cache  # a verb may be called several times in a process
def _with_checks(command: click.Command) -> click.Command:
    """The command, which refuses an option of one value that is given twice: click would take the last one.

    If an argument is missing, the message has the example of the help text.
    """
    parse = command.parse_args

    def parse_once(ctx: click.Context, words: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # completion in a shell
            given = command.make_parser(ctx).parse_args(args=list(words))[2]
            for one in given:
                if isinstance(one, click.Option) and not one.multiple and not one.is_flag and given.count(one) > 1:
                    raise click.UsageError(f"{one.opts[0]} is given {given.count(one)} times: give it once", ctx)
        try:
            return parse(ctx, words)
        except click.MissingParameter as error:
            example = re.search(r"Example: (.+)", command.help or "")
            if example is None:
                raise
            raise click.UsageError(f"{error.format_message()} For example: {example[1]}", ctx) from None

    command.parse_args = parse_once  # type: ignore[method-assign, assignment]  # of every verb, however it was made
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _with_checks(inner)
    return command


_SHOWN: set[str] = set()  # warnings printed in this run


def _cite(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(CITATION % __version__)
        ctx.exit()


@click.command(cls=LazyGroup, epilog=FIRST, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pairton")
@click.option(
    "--cite",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_cite,
    help="Print how to cite Pairton, as BibTeX.",
)
def cli() -> None:
    """Reconstruct short-lived particles at colliders: which jet came from which particle."""


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a PairtonWarning in one line, once per run; show other warnings as Python does."""
    if issubclass(category, PairtonWarning):
        if str(message) not in _SHOWN:
            click.echo(f"pairton: warning: {printable(str(message))}", err=True)
        _SHOWN.add(str(message))
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno), err=True, nl=False)


@naming_flags()
def main(arguments: list[str] | None = None) -> Any:
    """Run the command line. A user's mistake is one line on stderr and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal with latin-1 shows ? for what it lacks
            stream.reconfigure(errors="replace")
    try:
        with stopping(), warnings.catch_warnings(), protecting_inputs():
            warnings.simplefilter("always", PairtonWarning)
            warnings.showwarning = _show_warning
            _SHOWN.clear()
            return cli.main(args=arguments, prog_name="pairton", standalone_mode=True)
    except PairtonError as error:
        click.echo(f"pairton: {printable(str(error))}", err=True)
        sys.exit(2)
    except Stopped as stop:
        with suppress(OSError):  # SIGHUP: the terminal may be gone
            click.echo(f"pairton: stopped by {stop.name}", err=True)
        sys.exit(stop.code)
    except BrokenPipeError:  # `pairton … | head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.filename is None:  # the disk is full: otherwise Python tries to write the rest when it exits
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        name = "the output" if error.filename is None else printable(str(error.filename))[:80]
        click.echo(f"pairton: {name}: {error.strerror or error}", err=True)
        sys.exit(2)
