"""`pairton topologies` and `pairton models`: list the built-in topologies and models."""

from __future__ import annotations

import click

from pairton.cli.options import completing
from pairton.errors import printable
from pairton.topology import builtin_topologies, collection_name, load_topology
from pairton.topology.extras import bin_names

__all__ = ["models", "topologies"]


@click.command(short_help="List the built-in decay trees, or draw one.")
@click.argument("name", required=False, shell_complete=completing("topology"))
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
    click.echo(f"bins        {', '.join(bin_names(topology))} {collection_name(topology.main_kind)}")
    click.echo(f"selection   {topology.selection}")


@click.command(short_help="List the built-in models, or show the card of one.")
@click.argument("name", required=False, shell_complete=completing("model"))
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
            scores = "  ".join(f"{key} {value:.4g}" for key, value in model.info.metrics.items())
            which = " (default)" if each == DEFAULT else ""
            click.echo(f"{each}{which}  {model.topology.name}, {model.decoding}  {scores}".rstrip())
        if len(known) > 1:
            click.echo(
                "e_…: share that is right among the validation events of each model, which are not the same; "
                "`pairton evaluate` compares models"
            )
        return
    model = load_model(name)
    folder = builtin_models().get(DEFAULT if name == "default" else name)
    click.echo(f"topology    {model.topology.name}")
    click.echo(f"decoding    {model.decoding}, {'reads' if model.info.takes_tokens else 'no'} tokens")
    for kind in model.topology.kinds:
        domain, fields = model.domain[kind], model.inputs.fields(kind)
        parts = [f"pT > {domain.pt:g} GeV, |eta| < {domain.abs_eta:g}", "{} to {}".format(*domain.count)]
        parts += [f"{name} 0 or 1" if name in domain.binary else name for name in fields]
        click.echo(printable(f"{collection_name(kind):11} {'; '.join(parts)}"))
    data = model.info.data
    if "fold" in data:
        click.echo(f"folds       {data['folds']}; this network is for events of fold {data['fold']}")
    elif "folds" in data:
        click.echo(f"folds       {data['folds']}, by a hash of the event number; means of their metrics:")
    for key, value in model.info.metrics.items():
        click.echo(printable(f"{key:11} {value:.4g}"))
    if folder is not None and (card := folder / "README.md").is_file():
        click.echo("\n" + card.read_text("utf-8").rstrip())
