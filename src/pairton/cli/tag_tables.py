"""`pairton tags`: list, show and measure tables of tag efficiencies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairton.cli.options import completing, force_option, reading_options, refuse_existing
from pairton.errors import ConfigError

if TYPE_CHECKING:
    from pairton.events.tags import TagTable
    from pairton.measuring.tag_efficiencies import Measurement

__all__ = ["tags"]


@click.group(invoke_without_command=True, short_help="List, show or measure tables of tag efficiencies.")
@click.pass_context
def tags(context: click.Context) -> None:
    """List the tables of tag efficiencies that come with Pairton, show one, or measure one.

    \b
    Example: pairton tags show deepjet_2018
             pairton tags measure nano.root --score btagDeepFlavB -o mine.yaml
             pairton reconstruct nano.root -o out.parquet --tags mine.yaml
    """
    if context.invoked_subcommand is not None:
        return
    from pairton.events.tags import builtin_tables, load_table

    tables = [load_table(name) for name in builtin_tables()]
    names, fields = (max(map(len, column)) for column in zip(*((t.name, t.field) for t in tables), strict=True))
    for table in tables:
        known = "" if table.measured else "  approximate"
        points = f"{len(table.cuts)} cut{'s' * (len(table.cuts) > 1)}"
        click.echo(f"{table.name:{names}}  {table.field:{fields}}  {points}{known}".rstrip())


@tags.command(short_help="Show a table: its cuts and efficiencies.")
@click.argument("table", metavar="NAME|FILE", shell_complete=completing("tags"))
def show(table: str) -> None:
    """Show a table: its cuts, and the share of b, c and light jets that pass each of them.

    Example: pairton tags show gn2v01
    """
    from pairton.events.tags import load_table

    found = load_table(table)
    click.echo(f"{found.name}: the score {found.field}{'' if found.measured else ', approximate'}")
    click.echo(f"  {found.about}" if found.about else "  the table does not say where its numbers come from")
    for line in _lines(found, None):
        click.echo(line)


@tags.command(short_help="Measure how often b, c and light jets pass cuts on a score.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--score", required=True, metavar="COLUMN", help="The score: a column of jets, or the name of a tagger."
)
@click.option("--cuts", metavar="C1,C2,…", help="Cuts on the score. [at b efficiencies from 0.95 to 0.1]")
@click.option("--at", metavar="E1,E2,…", help="Choose the cuts to have these b efficiencies.")
@click.option(
    "--pt", metavar="P1,P2,…", help="Edges between ranges of pT, or none. [as many as the number of jets allows]"
)
@click.option(
    "--jets", metavar="CUTS", default="pt>20,abs_eta<2.5", show_default=True, help="Which jets are counted."
)
@click.option("-o", "--output", metavar="TABLE", help="File to write: .yaml. Without it, the table is printed.")
@force_option
@reading_options
def measure(
    files: tuple[str, ...],
    score: str,
    cuts: str | None,
    at: str | None,
    pt: str | None,
    jets: str,
    output: str | None,
    force: bool,
    reading: dict[str, Any],
) -> None:
    """Measure how often the b, c and light jets of FILE... pass cuts on a score.

    Jets need a flavour. Simulation in NanoAOD (hadronFlavour), PHYSLITE (HadronConeExclTruthLabelID) and Delphes
    (Flavor) has one, and `pairton generate` writes it; for other files, `--map flavour=COLUMN` names its column.
    Event weights are used.

    \b
    Example: pairton tags measure nano.root --score btagDeepFlavB --cuts 0.049,0.2783,0.71 -o mine.yaml
    """
    from pairton._common.atomic import Replacement, replacing
    from pairton.measuring.tag_efficiencies import measure as run
    from pairton.measuring.tag_efficiencies import table_text

    if cuts is not None and at is not None:
        raise ConfigError("--cuts and --at: choose one")
    for name in ("btag", "tags"):
        if reading.pop(name, None) is not None:
            raise ConfigError(f"--{name} cannot be used here: --score names the score to measure")
    if output is not None:
        if Path(output).suffix not in (".yaml", ".yml"):
            raise ConfigError(f"{output}: the output must end in .yaml or .yml")
        refuse_existing(output, force)
        Replacement(output)  # raises an error before the work if the output cannot be written
    found = run(
        list(files),
        score,
        cuts=_numbers("cuts", cuts),
        efficiencies=_numbers("at", at),
        pt=() if pt == "none" else _numbers("pt", pt),
        jets=jets,
        name=Path(output).stem if output else None,
        **reading,
    )
    text = table_text(found.table)
    if output is None:
        click.echo(text, nl=False)
        return
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    for line in _lines(found.table, found):
        click.echo(line)
    click.echo(f"wrote {output}: --tags {output}")


def _numbers(option: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--{option} {text!r}: give numbers, as in 0.1,0.5") from None


def _lines(table: TagTable, measured: Measurement | None) -> list[str]:
    """Cuts and efficiencies as a table, one block per range of pT."""
    from pairton.events.tags import FLAVOURS

    lines = []
    low = 0.0
    for k, high in enumerate([*table.edges, float("inf")]):
        if len(table.edges):
            lines.append(f"pT from {low:g} GeV" + (f" to {high:g} GeV" if high < float("inf") else ""))
        lines.append("      cut" + "".join(f"{name:>22}" for name in FLAVOURS))
        for point, cut in enumerate(table.cuts):
            cells = ""
            for flavour, name in enumerate(FLAVOURS):
                error = "" if measured is None else f" ± {measured.error[flavour, k, point]:.2g}"
                value = f"{table.efficiency[flavour, k, point]:.4g}{error}"
                cells += f"{value if name != 'c' or table.has_c else '-':>22}"
            lines.append(f"{cut:9.4g}{cells}")
        low = high
    return lines
