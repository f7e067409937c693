"""`pairton measure`: tag efficiencies and transfer functions from simulated events, and the mixture of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pairton._common.atomic import refuse_existing
from pairton.cli.listing import table_lines
from pairton.cli.options import (
    OUTPUT,
    PHYSICS,
    GroupedCommand,
    force_option,
    option,
    parse_pairs,
    reading_options,
)
from pairton.errors import ConfigError

__all__ = ["measure"]


@click.group(short_help="Measure tag efficiencies, transfer functions or the mixture of data.")
def measure() -> None:
    """Measure the efficiencies of a tagger or the transfer functions of a kinematic fit on simulation, or the
    mixture of data.

    Example: pairton measure tags nano.root --score btagDeepFlavB -o mine.yaml
    """


@measure.command(cls=GroupedCommand, short_help="How often b, c and light jets pass cuts on a score.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@option(
    PHYSICS,
    "--score",
    required=True,
    metavar="COLUMN",
    help="A column of jets, or the name of a tagger.",
)
@option(PHYSICS, "--cuts", metavar="C1,C2,…", help="Cuts on the score. [at b efficiencies from 0.95 to 0.1]")
@option(PHYSICS, "--at", metavar="E1,E2,…", help="Choose the cuts to have these b efficiencies.")
@option(
    PHYSICS,
    "--pt",
    metavar="P1,P2,…",
    help="Edges between ranges of pT, or none. [as many as the number of jets allows]",
)
@option(
    PHYSICS,
    "--jets",
    metavar="CUTS",
    default="pt>20,abs_eta<2.5",
    show_default=True,
    help="Which jets are counted.",
)
@option(OUTPUT, "-o", "--output", metavar="TABLE", help="File to write: .yaml. Without it, the table is printed.")
@force_option
@reading_options("btag", "keep")
def tags(
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
    Example: pairton measure tags nano.root --score btagDeepFlavB --cuts 0.049,0.2783,0.71 -o mine.yaml
             pairton reconstruct nano.root -o out.parquet --btag mine.yaml
    """
    from pairton.measuring.tag_efficiencies import measure as run
    from pairton.measuring.tag_efficiencies import table_text

    if cuts is not None and at is not None:
        raise ConfigError("--cuts and --at: choose one")
    _check_output(output, force)
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
    _write(output, table_text(found.table), "\n".join(table_lines(found.table, found)), "--btag")


@measure.command(cls=GroupedCommand, short_help="The transfer functions of a kinematic fit.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@option(
    OUTPUT,
    "-o",
    "--output",
    metavar="SETTINGS",
    help="File to write: .yaml. [the settings are printed]",
)
@force_option
@reading_options("keep")
def transfer(files: tuple[str, ...], output: str | None, force: bool, reading: dict[str, Any]) -> None:
    """Measure the transfer functions of a kinematic fit on the labelled objects of FILE... (simulated events).

    Jets and leptons need the energy of the quark or lepton they come from. `pairton generate` writes it; for other
    files, `--map true_energy=COLUMN` names its column. Other settings of the fit, such as masses, are the built-in
    ones; edit SETTINGS to change them.

    \b
    Example: pairton generate ttbar_semilep -n 14000 -o simulated.h5
             pairton measure transfer simulated.h5 -o mine.yaml
             pairton reconstruct events.h5 -o out.parquet --model mine.yaml
    """
    from pairton.measuring.transfer_measurement import measure_transfer, settings_text

    _check_output(output, force)
    found = measure_transfer(list(files), **reading)
    _write(output, settings_text(found), found.about, "--model")


@measure.command(cls=GroupedCommand, short_help="What data are a mixture of, for --prior.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@option(PHYSICS, "--model", metavar="MODEL", help="Name or path of a model. [that of the topology]")
@option(
    PHYSICS,
    "--of",
    type=click.Choice(("patterns", "nothing", "topology")),
    default="patterns",
    show_default=True,
    help="Fit every pattern; nothing, against all others; or each topology of a mixture.",
)
@option(
    PHYSICS,
    "--reference",
    multiple=True,
    metavar="[TOPOLOGY=]FILE",
    help="Labelled simulation of any mixture, with the selection of the data. [the data are like the training]",
)
@option(OUTPUT, "-o", "--output", metavar="PRIOR", help="File to write: .yaml. Without it, the prior is printed.")
@force_option
@reading_options("keep")
def prior(
    files: tuple[str, ...],
    model: str | None,
    of: str,
    reference: tuple[str, ...],
    output: str | None,
    force: bool,
    reading: dict[str, Any],
) -> None:
    """Fit how frequent each pattern of particles is in FILE..., which need no labels.

    The probabilities of a model hold for the mixture of its training; --prior PRIOR makes them hold for the data.
    Errors are from 50 bootstrap samples.

    \b
    Example: pairton measure prior data.root -o mine.yaml
             pairton reconstruct data.root -o out.parquet --prior mine.yaml
    """
    from pairton.measuring.prior_measurement import measure_prior, prior_text

    _check_output(output, force)
    simulated: Any = list(reference) or None
    if of == "topology" and reference:
        simulated = parse_pairs("reference", reference, str, "ttbar_allhad=FILE")
    found = measure_prior(list(files), model, of=of, reference=simulated, **reading)
    rows = zip(found.names, found.fraction, found.error, found.training, strict=True)
    lines = [f"{name}: {share:.4f} ± {error:.4f} (training {known:.4f})" for name, share, error, known in rows]
    about = [f"fractions of patterns in {found.events} events, fitted with {found.model}:", *lines]
    _write(output, prior_text(found), "\n".join(about), "--prior")


def _check_output(output: str | None, force: bool) -> None:
    """Raise an error before the work if the output cannot be written."""
    from pairton._common.atomic import Replacement

    if output is not None:
        if Path(output).suffix not in (".yaml", ".yml"):
            raise ConfigError(f"{output}: the output must end in .yaml or .yml")
        refuse_existing(output, force)
        Replacement(output)


def _write(output: str | None, text: str, about: str, flag: str) -> None:
    """Write the text of a YAML file, or print it."""
    from pairton._common.atomic import replacing

    if output is None:
        click.echo(text, nl=False)
        return
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    click.echo(about)
    click.echo(f"wrote {output}: {flag} {output}")


def _numbers(option: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--{option} {text!r}: give numbers, as in 0.1,0.5") from None
