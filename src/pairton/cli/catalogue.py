"""What is built in."""

from __future__ import annotations

from collections.abc import Mapping

import click

from pairton.errors import printable
from pairton.topology import builtin_topologies, load_topology

__all__ = ["models", "topologies"]


@click.command()
@click.argument("name", required=False)
def topologies(name: str | None) -> None:
    """List the built-in topologies, or draw the decay tree of NAME (built-in, or a YAML file).

    Example: pairton topologies tth_allhad
    """
    if name is None:
        known = builtin_topologies()
        width = max(map(len, known))
        for key, about in known.items():
            click.echo(f"{key:{width}}  {about}")
        return
    topology = load_topology(name)
    click.echo(topology.tree())
    click.echo(f"\nslots       {', '.join(slot.name for slot in topology.slots)}")
    click.echo(f"matrices    {', '.join(topology.types)}")
    click.echo(f"symmetries  {topology.n_symmetries}")
    click.echo(f"stages      {', then '.join(str(stage) for stage in topology.stages)}")
    click.echo(f"bins        {', '.join(topology.bins)} jets")
    click.echo(f"selection   {topology.selection}")


@click.command()
@click.argument("name", required=False)
def models(name: str | None) -> None:
    """List the models that come with Pairton, or show the card of NAME.

    Example: pairton models ttbar_allhad
    """
    from pairton.models.engines import DEFAULT, load_model
    from pairton.models.storage import builtin_models

    if name is None:
        known = builtin_models()
        if not known:
            click.echo("no models in this installation")
        for each in known:
            model = load_model(each)
            scores = "  ".join(f"{key} {value:.4g}" for key, value in _numbers(model.metadata.get("metrics")))
            which = " (default)" if each == DEFAULT else ""
            click.echo(f"{each}{which}  {model.topology.name}, {model.decoding}  {scores}".rstrip())
        return
    model = load_model(name)
    folder = builtin_models().get(DEFAULT if name == "default" else name)
    domain, (low, high) = model.domain, model.domain.jets
    click.echo(f"topology    {model.topology.name}")
    click.echo(printable(f"decoding    {model.decoding}, {'reads' if model.takes_tokens else 'no'} tokens"))
    click.echo(
        f"jets        pT > {domain.pt:g} GeV, |eta| < {domain.abs_eta:g}; {low} to {high}; "
        f"b-tags {printable(domain.btag)}"
    )
    for key, value in _numbers(model.metadata.get("metrics")):
        click.echo(f"{printable(key):11} {value:.4g}")
    if folder is not None and (card := folder / "README.md").is_file():
        click.echo("\n" + card.read_text("utf-8").rstrip())


def _numbers(metrics: object) -> list[tuple[str, float]]:
    """The numbers of a model's metrics, however deep, with dotted names."""
    if not isinstance(metrics, Mapping):
        return []
    found: list[tuple[str, float]] = []
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            found += [(f"{key}.{name}", number) for name, number in _numbers(value)]
        elif isinstance(value, int | float):
            found.append((str(key), float(value)))
    return found
