"""`pairton transfer`: measure the transfer functions of a kinematic fit on simulated events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pairton.cli.options import force_option, reading_options, refuse_existing
from pairton.errors import ConfigError

__all__ = ["transfer"]


@click.command(short_help="Measure the transfer functions of a kinematic fit.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "-o", "--output", metavar="SETTINGS", help="File to write: .yaml. Without it, the settings are printed."
)
@force_option
@reading_options
def transfer(files: tuple[str, ...], output: str | None, force: bool, reading: dict[str, Any]) -> None:
    """Measure the transfer functions of a kinematic fit on the labelled objects of FILE... (simulated events).

    Jets and leptons need the energy of the quark or lepton they come from. `pairton generate` writes it; for other
    files, `--map true_energy=COLUMN` names its column. Other settings of the fit, such as masses, are the built-in
    ones; edit SETTINGS to change them.

    \b
    Example: pairton generate ttbar_semilep -n 14000 -o simulated.h5
             pairton transfer simulated.h5 -o mine.yaml
             pairton reconstruct events.h5 -o out.parquet --model mine.yaml
    """
    from pairton._common.atomic import Replacement, replacing
    from pairton.measuring.transfer_measurement import measure_transfer, settings_text

    if output is not None:
        if Path(output).suffix not in (".yaml", ".yml"):
            raise ConfigError(f"{output}: the output must end in .yaml or .yml")
        refuse_existing(output, force)
        Replacement(output)  # raises an error before the work if the output cannot be written
    found = measure_transfer(list(files), **reading)
    text = settings_text(found)
    if output is None:
        click.echo(text, nl=False)
        return
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    click.echo(found.about)
    click.echo(f"wrote {output}: --model {output}")
