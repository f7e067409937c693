"""What is built in."""

from __future__ import annotations

import click

from pairton.topology import builtin_topologies, load_topology

__all__ = ["topologies"]


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
    cuts = topology.selection
    click.echo(f"\nslots       {', '.join(slot.name for slot in topology.slots)}")
    click.echo(f"matrices    {', '.join(topology.types)}")
    click.echo(f"symmetries  {topology.n_symmetries}")
    click.echo(f"stages      {', then '.join(str(stage) for stage in topology.stages)}")
    click.echo(f"bins        {', '.join(topology.bins)} jets")
    click.echo(
        f"selection   jets pT > {cuts.pt:g} GeV, |eta| < {cuts.abs_eta:g}; "
        f"at least {cuts.jets} of them, {cuts.btags} b-tagged"
    )
