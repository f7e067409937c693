"""`pairton list`: the models, topologies, tables of tags and recipes that come with Pairton, or one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pairton.cli.options import BUILT_IN, built_in, completing
from pairton.errors import printable

if TYPE_CHECKING:
    from pairton.events.tags import TagTable
    from pairton.measuring.tag_efficiencies import Measurement

__all__ = ["list_", "table_lines"]


@click.group("list", short_help="List models, topologies, tables of tags or recipes, or show one.")
def list_() -> None:
    """List what comes with Pairton, or show one of it.

    \b
    Example: pairton list models
             pairton list topologies tth_allhad
    """


@list_.command(short_help="Decay trees; with NAME, draw one.")
@click.argument("name", required=False, shell_complete=completing("topology"))
def topologies(name: str | None) -> None:
    """List the built-in topologies, or draw the decay tree of NAME (built-in, or a YAML file).

    Example: pairton list topologies tth_allhad
    """
    from pairton.topology import builtin_topologies, collection_name, load_topology
    from pairton.topology.extras import bin_names

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


@list_.command(short_help="Models; with NAME, show the card of one.")
@click.argument("name", required=False, shell_complete=completing("model"))
def models(name: str | None) -> None:
    """List the models that come with Pairton, or show the card of NAME.

    Example: pairton list models ttbar_allhad
    """
    from pairton.models.model import DEFAULT, load_model
    from pairton.models.storage import builtin_models
    from pairton.topology import collection_name

    if name is None:
        known = builtin_models()
        if not known:
            click.echo("no models in this installation")
        for each in known:
            model = load_model(each)
            scores = "  ".join(f"{key} {value:.4g}" for key, value in model.info.metrics.items())
            which = " (default)" if each == DEFAULT else ""
            trees = model.topology.trees
            of = model.topology.name if len(trees) == 1 else f"{len(trees)} topologies"
            click.echo(f"{each}{which}  {of}, {model.decoding}  {scores}".rstrip())
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
        text = card.read_text("utf-8")  # without the front matter, which is for web sites
        click.echo("\n" + re.sub(r"\A---\n.*?\n---\n+", "", text, flags=re.DOTALL).rstrip())


@list_.command(short_help="Tables of tag efficiencies; with NAME, show one.")
@click.argument("name", required=False, shell_complete=completing("tags"))
def tags(name: str | None) -> None:
    """List the tables of tag efficiencies, or show NAME (built-in, or a YAML file).

    A table has cuts, and the share of b, c and light jets that pass each of them.

    Example: pairton list tags gn2v01
    """
    from pairton.events.tags import builtin_tables, load_table

    if name is not None:
        table = load_table(name)
        click.echo(f"{table.name}: the score {table.field}{'' if table.measured else ', approximate'}")
        click.echo(f"  {table.about}" if table.about else "  the table does not say where its numbers come from")
        for line in table_lines(table):
            click.echo(line)
        return
    tables = [load_table(each) for each in builtin_tables()]
    names, fields = (max(map(len, column)) for column in zip(*((t.name, t.field) for t in tables), strict=True))
    for table in tables:
        known = "" if table.measured else "  approximate"
        points = f"{len(table.cuts)} cut{'s' * (len(table.cuts) > 1)}"
        click.echo(f"{table.name:{names}}  {table.field:{fields}}  {points}{known}".rstrip())


@list_.command(short_help="Recipes of trainings; with NAME, print one.")
@click.argument("name", required=False, shell_complete=completing("recipe"))
def recipes(name: str | None) -> None:
    """List the recipes for `pairton train`, or print NAME, to be copied and changed.

    Example: pairton list recipes cpu
    """
    from pathlib import Path

    import pairton
    from pairton.errors import ConfigError, nearest

    known = built_in("recipe")
    if name is None:
        click.echo("\n".join(known))
    elif name not in known:
        raise ConfigError(f"no recipe {name!r}: choose one of {', '.join(known)}{nearest(name, known)}")
    else:
        text = Path(pairton.__file__).parent / BUILT_IN["recipe"][0] / f"{name}.yaml"
        click.echo(text.read_text("utf-8"), nl=False)


def table_lines(table: TagTable, measured: Measurement | None = None) -> Iterator[str]:
    """Cuts and efficiencies as a table, one block per range of pT."""
    from pairton.events.tags import FLAVOURS

    low = 0.0
    for k, high in enumerate([*table.pt, float("inf")]):
        if len(table.pt):
            yield (f"pT from {low:g} GeV" + (f" to {high:g} GeV" if high < float("inf") else ""))
        yield ("      cut" + "".join(f"{name:>22}" for name in FLAVOURS))
        for point, cut in enumerate(table.cuts):
            cells = ""
            for flavour, name in enumerate(FLAVOURS):
                error = "" if measured is None else f" ± {measured.error[flavour, k, point]:.2g}"
                value = f"{table.efficiencies[flavour, k, point]:.4g}{error}"
                cells += f"{value if name != 'c' or table.has_c else '-':>22}"
            yield (f"{cut:9.4g}{cells}")
        low = high
