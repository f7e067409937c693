"""`pairton evaluate`: how often the answer is right."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import warnings
from typing import TYPE_CHECKING, Any

import click

from pairton.cli.options import as_the_model, reading_options
from pairton.cli.reconstruct import model_options
from pairton.errors import ConfigError, PairtonWarning

if TYPE_CHECKING:
    from rich.console import Console

    from pairton.evaluation.scoreboard import Evaluation, Method
    from pairton.report.collecting import Collector

__all__ = ["evaluate"]

WIDTH = 120  # of tables that are not shown on a terminal


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="IN...")
@click.option("--model", "models", multiple=True, help="Built-in or a path; several are compared. [default]")
@click.option("--decoding", "decodings", multiple=True, metavar="NAME", help="Several are compared.")
@click.option("--baseline", "baselines", multiple=True, metavar="chi2", help="A method without a network.")
@click.option("--assignments", multiple=True, metavar="FILE", help="Somebody's answers: ours, SPANet's, HyPER's.")
@click.option("--select", is_flag=True, help="Apply the selection of the topology first.")
@click.option("--mix", metavar="A,B,C", help="Shares of the multiplicity bins to reweight to. [the paper's]")
@click.option("--jet-scale", "jet_scales", type=float, multiple=True, metavar="S", help="Also with jets times S.")
@click.option("--json", "json_file", metavar="FILE", help="Write all numbers; - for the screen.")
@click.option("--report", metavar="PAGE", help="Write a page with figures and a gallery of events: .html.")
@click.option("--plots", metavar="DIR", help="Write the figures to a folder: PDF, PNG and CSV.")
@model_options
@reading_options
def evaluate(
    inputs: tuple[str, ...],
    models: tuple[str, ...],
    decodings: tuple[str, ...],
    baselines: tuple[str, ...],
    assignments: tuple[str, ...],
    select: bool,
    mix: str | None,
    jet_scales: tuple[float, ...],
    json_file: str | None,
    report: str | None,
    plots: str | None,
    beam: int | None,
    max_jets: int,
    no_jet_cuts: bool,
    threads: int | None,
    engine: str,
    reading: dict[str, Any],
) -> None:
    """Efficiencies on the labelled events of IN, by jet multiplicity, with intervals.

    Every event with truth is scored as it is; --select applies the selection first. A baseline is compared with
    the model; --assignments alone needs no model. Two or more methods are also compared on the same events.

    \b
    Example: pairton evaluate test.h5 --baseline chi2 --json numbers.json --report page.html
    """
    from pairton._common.atomic import Replacement, note_input, replacing
    from pairton.cli.progress import progress
    from pairton.evaluation.evaluating import evaluate as run
    from pairton.formats import expand
    from pairton.models.engines import load_model
    from pairton.reconstruction.streaming import count_events

    names = models or (() if assignments else ("default",))
    loaded = [load_model(name, engine=engine, threads=threads) for name in names]
    files = expand(inputs)
    for path in assignments:
        note_input(path)
        if any(os.path.exists(file) and os.path.exists(path) and os.path.samefile(file, path) for file in files):
            said = f"--assignments {path} is an input too: its truth is scored against itself"
            warnings.warn(said, PairtonWarning, stacklevel=2)
    for output in (json_file, report):
        if output not in (None, "-"):
            Replacement(str(output))  # an output that cannot be written is refused before the work
    seen = None
    if report is not None or plots is not None:
        from pairton.report.collecting import Collector
        from pairton.report.evaluation_page import check_outputs

        check_outputs(report, plots)
        seen = Collector()
    if loaded:
        as_the_model(reading, loaded[0])
    total = count_events(list(inputs), **reading) if sys.stderr.isatty() else None
    result = run(
        list(inputs),
        loaded,
        decodings=decodings,
        beam=beam,
        baselines=baselines,
        assignments=assignments,
        select=select,
        max_jets=max_jets,
        jet_cuts=not no_jet_cuts,
        mix=None if mix is None else _shares(mix),
        jet_scales=jet_scales,
        progress=lambda stream: progress(stream, total, "evaluating", size=len),
        observe=seen,
        **reading,
    )
    if json_file == "-":
        click.echo(json.dumps({"command": _command(), **result.to_dict()}, indent=1))
    else:
        show(result)
    if json_file not in (None, "-"):
        with replacing(json_file) as temporary:
            temporary.write_text(json.dumps({"command": _command(), **result.to_dict()}, indent=1) + "\n")
        click.echo(f"wrote {json_file}")
    if seen is not None:  # last: if it fails, the numbers are there
        _draw(result, seen, report, plots, max_jets=max_jets, jet_cuts=not no_jet_cuts)


def _command() -> str:
    return shlex.join(["pairton", *sys.argv[1:]])


def _draw(
    result: Evaluation, seen: Collector, report: str | None, plots: str | None, *, max_jets: int, jet_cuts: bool
) -> None:
    from pairton.report.evaluation_page import write_plots, write_report

    if report is not None:
        write_report(report, result, seen, max_jets=max_jets, jet_cuts=jet_cuts, command=_command())
        click.echo(f"wrote {report}", err=True)
    if plots is not None:
        written = write_plots(plots, result, seen)
        click.echo(f"wrote {len(written)} files to {plots}", err=True)


def _shares(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(math.isfinite(share) and share >= 0 for share in shares) or sum(shares) <= 0:
        raise ConfigError(f"mix {text!r}: give a share for each multiplicity bin, as in 36,30,34")
    return shares


# -- tables ------------------------------------------------------------------------------------------------


def show(result: Evaluation) -> None:
    """All tables."""
    from rich.console import Console

    console = Console(markup=False)  # names are no markup
    console.width = console.width if console.is_terminal else max(console.width, WIDTH)
    first = result.scores(result.methods[0])
    full = int(first.total["event"].sum())
    chosen = "selected " if result.selected else ""
    labelled = {what: int(total.sum()) for what, total in first.total.items() if what != "event"}
    listed = ", ".join(f"{count} {what}" for what, count in labelled.items())
    click.echo(f"{len(first)} {chosen}events with truth, {full} fully reconstructible; labelled: {listed}")
    if not any(labelled.values()):
        click.echo("pairton: warning: nothing is labelled in these events, so nothing can be scored", err=True)
    for method in result.methods:
        if method.unanswered:
            cuts = "" if result.selected else "; --select leaves out events that do not pass the cuts"
            click.echo(f"{method.name}: {method.unanswered} without an answer, which count as wrong{cuts}")
    for method in result.methods:
        _efficiencies(console, result, method)
    for k, one in enumerate(result.methods):
        for other in result.methods[k + 1 :]:
            _difference(console, result, one, other)
    for same in result.seeds():
        _spread(console, result, same)
    _mass(console, result)


def _efficiencies(console: Console, result: Evaluation, method: Method) -> None:
    from rich.table import Table

    from pairton.evaluation import metrics

    cells = result.efficiency(method)
    weighted = metrics.reweighted(result.scores(method), result.mix) if result.mix else {}
    mix = "/".join(f"{100 * share / sum(result.mix):.0f}" for share in result.mix) if result.mix else ""
    table = Table("efficiency", title=_title(method), title_justify="left")
    for name in (*result.topology.bins, metrics.INCLUSIVE):
        table.add_column(f"{name} jets" if name in result.topology.bins else name, justify="right")
    if weighted:
        table.add_column(f"mix {mix}", justify="right")
    for what, values in cells.items():
        row = [_with_interval(value) for value in values.values()]
        table.add_row(what, *row, *([_with_interval(weighted[what])] if weighted else []))
    console.print(table)
    if "event" in method.promises:
        found = result.calibration(method, "event")
        if found["total"]:
            click.echo(
                f"  calibration: mean P(event) {found['probability']:.3f}, right {found['right']:.3f}, "
                f"mean |difference| {found['error']:.3f}"
            )
        every = result.calibration_of_all(method, "event")
        if every["total"] > found["total"]:
            click.echo(
                f"  of all {every['total']} events, {found['total']} of them complete: mean P(event) "
                f"{every['probability']:.3f}, right {every['right']:.3f}"
            )
    if method.flows:
        _flow(result, method)


def _title(method: Method) -> str:
    decoding = method.about.get("decoding")
    return f"{method.name} ({decoding})" if decoding and decoding not in method.name else method.name


def _with_interval(value: Any) -> str:
    if math.isnan(value.value):
        return "-"
    low, high = value.value - value.low, value.high - value.value
    return f"{value.value:.3f} -{_short(low)} +{_short(high)}"


def _short(number: float) -> str:
    """Three decimals without the zero before them."""
    return f"{number:.3f}".removeprefix("0")


def _flow(result: Evaluation, method: Method) -> None:
    from pairton.evaluation.steps import recovery, recovery_difference

    found = result.flow(method)
    after = f"(+ right, - wrong, after {', '.join(found['stages'])})"
    for kind in method.steps:
        steps = "; ".join(
            " ".join(f"{history} {count}" for history, count in counts.items()) for counts in found[kind]
        )
        click.echo(f"  flow, {kind:8} {after}: {steps}")
    each = {kind: recovery(method.followed(kind)) for kind in method.steps}
    for kind, cells in each.items():
        listed = "; ".join(f"{name} {_with_interval(c)} of {c.total}" for name, c in cells.items())
        click.echo(f"  recovery, {kind} (found of what a wrong first step has left possible): {listed}")
    one_pass, several = each
    change = recovery_difference(method.followed(several), method.followed(one_pass))
    listed = "; ".join(f"{name} {_with_interval(value)}" for name, value in change.items())
    click.echo(f"  recovery, {several} minus {one_pass}: {listed}")


def _difference(console: Console, result: Evaluation, one: Method, other: Method) -> None:
    from rich.table import Table

    from pairton.evaluation import metrics

    table = Table("difference", title=f"{_title(one)} minus {_title(other)}", title_justify="left")
    for name in (*result.topology.bins, metrics.INCLUSIVE):
        table.add_column(f"{name} jets" if name in result.topology.bins else name, justify="right")
    for what, cells in result.difference(one, other).items():
        table.add_row(what, *(_with_interval(value) for value in cells.values()))
    console.print(table)
    event = result.difference(one, other)[metrics.EVENT][metrics.INCLUSIVE]
    if not math.isnan(event.value):
        click.echo(
            f"  events right in the first alone {event.only_first}, in the second alone {event.only_second}: "
            f"McNemar p {event.p_value:.2g}"
        )
    if one.flows and other.flows:
        cells = result.recovery(one, other)
        listed = "; ".join(f"{name} {_with_interval(value)}" for name, value in cells.items())
        click.echo(f"  recovery, of events in which both took a wrong first step: {listed}")


def _spread(console: Console, result: Evaluation, same: list[Method]) -> None:
    from rich.table import Table

    from pairton.evaluation import metrics

    names = ", ".join(method.name for method in same)
    table = Table("spread", title=f"{len(same)} trainings: {names}", title_justify="left")
    for name in (*result.topology.bins, metrics.INCLUSIVE):
        table.add_column(name, justify="right")
    for what, cells in metrics.spread([result.efficiency(method) for method in same]).items():
        table.add_row(what, *(f"{cell.mean:.4f} ± {cell.deviation:.4f}" for cell in cells.values()))
    console.print(table)


def _mass(console: Console, result: Evaluation) -> None:
    from rich.table import Table

    from pairton.evaluation import metrics

    edges = result.mass_edges()
    if not edges:
        return
    table = Table("mass of all matched jets [GeV]", "events", title="event efficiency", title_justify="left")
    columns = []
    for method in result.methods:
        table.add_column(method.name, justify="right")
        columns.append(metrics.efficiency_against(result.scores(method), result.mass, edges))
    for k in range(len(edges) - 1):
        cells = [_with_interval(column[k]) for column in columns]
        table.add_row(f"{edges[k]:.0f} to {edges[k + 1]:.0f}", str(columns[0][k].total), *cells)
    console.print(table)
