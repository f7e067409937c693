"""`pairton inspect` and `pairton convert`: show what is in files, and convert between formats."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairton._common.atomic import refuse_existing
from pairton.cli.options import (
    INPUT,
    OUTPUT,
    GroupedCommand,
    completing,
    force_option,
    option,
    reading_options,
)
from pairton.cli.progress import progress
from pairton.errors import ConfigError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from pairton.events import Events
    from pairton.formats.summary import Summary

__all__ = ["convert", "inspect"]

CHUNK = 10_000  # events in memory while converting
BAR = 24  # characters of the longest bar
MOST_INPUTS = 20  # of a result, that are shown
WHOLE = "model", "inputs"  # metadata of a result that are shown with all their entries
NOT_SHOWN = "format_version", "slots", "parts", "part", "input_metadata"  # `--json` has them


@click.command(cls=GroupedCommand, short_help="Show what is in a file, or how a result was made.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@option(OUTPUT, "--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@option(INPUT, "--verify", is_flag=True, help="Check that a result, and its inputs, have not changed.")
@reading_options("keep")
def inspect(files: tuple[str, ...], as_json: bool, verify: bool, reading: dict[str, Any]) -> None:
    """Show what is in FILE...: format, events, objects, truth, and the first event.

    A FILE may be a glob, a URL, or @list.txt. For a result of `pairton reconstruct` (a file or a folder of parts),
    show with which model, settings and inputs it was made. With --verify, the SHA-256 of every part, and of every
    input that still exists, must be the recorded one. Each problem is one line, and the exit code is then 1.

    \b
    Example: pairton inspect events.h5 --topology tth_allhad
             pairton inspect out/ --verify
    """
    from pairton.formats import OpenFile, expand, sources
    from pairton.formats.base import damage
    from pairton.formats.summary import Summary
    from pairton.reconstruction.run import labelled_topology

    if verify:
        sys.exit(max(map(_verify, files)))
    if len(files) == 1 and _show_result(files[0], as_json):
        return
    summary, paths = Summary(), expand(files)
    with OpenFile(paths[0], reading.get("format"), reading.get("isolate")) as first:
        how = {name: value for name, value in reading.items() if name not in ("format", "isolate")}
        if (found := labelled_topology(first, how)) is not None:
            reading = reading | {"topology": found}
        for source in sources(paths, first=first, **reading):
            summary.others += [name for name in source.others if name not in summary.others]
            with damage(source.path):
                summary.taggers = summary.taggers or source.taggers()
            summary.add(source.no_events(), source.format)
            for events in progress(source.chunks(), source.n_events, f"reading {Path(source.path).name}", len):
                summary.add(events, source.format)
            for kind, reasons in source.rejected.items():
                summary.rejected.setdefault(kind, Counter()).update(reasons)
    if as_json:
        click.echo(json.dumps(summary.to_dict()))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False)  # names are no markup
    console.print(_overview(summary))
    if summary.first is not None:
        for table in _event(summary.first):
            console.print(table)


def _show_result(path: str, as_json: bool) -> bool:
    """Show how a result of `reconstruct` was made, as YAML or JSON; False if the file is none."""
    import yaml

    from pairton.reconstruction.provenance import read_result, result_metadata

    if not Path(path).is_dir() and (not Path(path).is_file() or result_metadata(path) is None):
        return False
    metadata = read_result(path)
    if as_json:
        click.echo(json.dumps(metadata))
        return True
    if isinstance(inputs := metadata.get("inputs"), list) and len(inputs) > MOST_INPUTS:
        metadata["inputs"] = [*inputs[:MOST_INPUTS], f"and {len(inputs) - MOST_INPUTS} more: --json lists them"]
    shown = {name: _brief(value, name in WHOLE) for name, value in metadata.items() if name not in NOT_SHOWN}
    click.echo(yaml.safe_dump(shown, sort_keys=False, default_flow_style=None, width=110), nl=False)
    return True


def _brief(value: Any, whole: bool = False) -> Any:
    """An entry of the metadata; a topology or a table of tags is its name, unless the `whole` is wanted."""
    if isinstance(value, Mapping):
        named = isinstance(value.get("name"), str) and not whole
        return value["name"] if named else {name: _brief(item) for name, item in value.items()}
    return [_brief(item, whole) for item in value] if isinstance(value, list) else value


def _verify(path: str) -> int:
    """Check a result and print what was found; the exit code."""
    from pairton.reconstruction.provenance import verify

    about, problems = verify(path)
    for problem in problems:
        click.echo(f"pairton: {printable(problem)}", err=True)
    click.echo(f"{path}: {about}")
    return int(bool(problems))


@click.command(cls=GroupedCommand, short_help="Write events in another file format.")
@click.argument("inputs", nargs=-1, metavar="IN...")
@click.argument("output", type=click.Path(path_type=Path), metavar="OUT")
@option(
    OUTPUT,
    "--to",
    "format_to",
    metavar="FORMAT",
    help="Format of OUT. [by its suffix]",
    shell_complete=completing("format"),
)
@force_option
@option(
    OUTPUT, "--select", is_flag=True, help="Write only objects and events that pass the selection of the topology."
)
@reading_options(variations=True)
def convert(
    inputs: tuple[str, ...],
    output: Path,
    format_to: str | None,
    force: bool,
    select: bool,
    reading: dict[str, Any],
) -> None:
    """Write the events of IN... to OUT in another format, with all objects, truth, weights, ids, kept columns and
    variations (`jet_pt_NAME`, `jet_mass_NAME`).

    The suffix chooses the format: .h5 (SPANet's layout), .root (a flat tree) or .parquet. `--to hyper_hdf5` writes
    HyPER's layout.

    Example: pairton convert events.root events.h5 --select
    """
    from pairton.formats import create, expand, sources
    from pairton.formats.writing import EventWriter

    if not inputs:
        raise ConfigError(f"OUT is missing: pairton convert {output} OUT, a name ending in .h5, .root or .parquet")
    paths = expand(inputs)
    refuse_existing(output, force)
    writer: EventWriter | None = None
    count = total = 0
    try:
        for source in sources(paths, **reading):
            for events in _chunks(source):
                if writer is None:
                    writer = create(output, events.topology, events.metadata, format_to)
                chosen = events.select() if select else events.keep(events.usable)
                writer.write(chosen)
                count += len(chosen)
                total += len(events)
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    assert writer is not None  # every source gives at least one chunk
    writer.close()
    click.echo(f"{output}: {f'{count} of {total}' if select else count} events")


def _chunks(source: Any) -> Any:
    if not source.n_events:
        return [source.no_events()]
    return progress(source.chunks(CHUNK), source.n_events, f"converting {Path(source.path).name}", len)


# -- tables of `inspect` -----------------------------------------------------------------------------------


def _table() -> Table:
    """A table of names and values."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _overview(summary: Summary) -> Table:
    from pairton.topology.kinds import LEPTONS, collection_name, counted

    topology = summary.topology
    assert topology is not None
    table = _table()
    table.columns[1].justify = "right"
    table.add_column(style="dim")
    table.add_row("format", ", ".join(summary.formats))
    table.add_row("topology", topology.name)
    table.add_row("events", str(summary.events))
    if summary.has_weights:
        effective = f"sum; effective number {summary.effective:,.0f}"
        table.add_row("weights", f"{summary.sum_of_weights:.5g}", effective)
    for kind, counts in summary.counts.items():
        name = collection_name(kind)
        table.add_row(name, str(sum(n * count for n, count in counts.items())), ", ".join(summary.fields[kind]))
        total, usable = sum(n * count for n, count in counts.items()), summary.usable[kind]
        if usable < total:
            why = _rule(kind, summary, total - usable)
            table.add_row("  usable", str(usable), f"{_share(usable, total)}  {why}")
        if any(cut := summary.cut.get(kind, Counter()).values()):
            used = usable - sum(cut)
            table.add_row("  pass cuts", str(used), f"{_share(used, total)}  {_reasons(summary.cut[kind])}")
        shown = summary.passing[kind] if usable < total and kind in LEPTONS else counts
        which = " pass" if shown is not counts else ""
        most = max(shown.values(), default=1)
        for n, count in sorted(shown.items()) if set(shown) != {1} or shown is not counts else ():
            bar = "█" * round(BAR * count / most) or "▏"
            table.add_row(f"{counted(n, kind)}{which}", str(count), f"{bar} {_share(count, summary.events)}")
        if kind in summary.medians and kind != topology.main_kind:
            table.add_row("  median", f"{summary.medians[kind]:.0f}", f"GeV  {summary.metadata.get(kind, '')}")
    if summary.others:
        table.add_row("also there", "", ", ".join(summary.others))
    if summary.tagged[1]:
        share = f"{_share(*summary.tagged)} of usable jets"
        table.add_row("b-tagged", str(summary.tagged[0]), f"{share}  {_tags(summary)}")
    for tagger in summary.taggers:
        if tagger["tables"] or tagger["used"]:
            table.add_row(f"  {tagger['name']}", "", _tagger(tagger))
    if others := [tagger["name"] for tagger in summary.taggers if not (tagger["tables"] or tagger["used"])]:
        table.add_row("  other scores", "", ", ".join(others))
    share = _share(summary.selected, summary.events)
    table.add_row("selected", str(summary.selected), f"{share}  {topology.selection}")
    if summary.selected < summary.events:
        table.add_row("  lost", str(summary.events - summary.selected), _reasons(summary.lost))
    if summary.bad:
        table.add_row("bad objects", str(summary.bad), "events with a NaN, an infinity, pT <= 0 or E < p")
    if summary.has_truth:
        for name, count in summary.present.items():
            table.add_row(f"{name} present", str(count), f"{_share(count, summary.events)}  at least one")
        whole = summary.complete
        table.add_row("complete", str(whole), f"{_share(whole, summary.events)}  every particle present")
    else:
        table.add_row("truth", "none")
    if made := summary.metadata.get("generator"):
        table.add_row("made by", "generate", _generated(made))
    if (median := summary.medians.get(topology.main_kind)) is not None:
        table.add_row("units", "GeV", f"median {topology.main_kind} pT {median:.0f} GeV")
    return table


def _rule(kind: str, summary: Summary, lost: int) -> str:
    """How many objects of a kind each rule rejects, or the rule, if the format does not count them."""
    metadata, reasons = summary.metadata, summary.rejected.get(kind, Counter[str]())
    left = lost - reasons.total()
    if kind == "jet" and left and metadata.get("overlap", "none") != "none":  # the only other rule
        near = f"within {metadata['overlap']:g} of leptons above {metadata['lepton_pt']:g} GeV"
        return _reasons(reasons + Counter({near: left}))
    if kind == "jet" or not left:
        return _reasons(reasons)
    kinds = ("electron", "muon") if kind == "lepton" and "lepton_id" not in metadata else (kind,)
    return "; ".join(f"{each}s: {metadata[f'{each}_id']}" for each in kinds if f"{each}_id" in metadata)


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in counts.items() if count)


def _tags(summary: Summary) -> str:
    """The tagger, and the table of its efficiencies."""
    parts = [str(summary.metadata["btag"])] if "btag" in summary.metadata else []
    if table := summary.metadata.get("tag_table"):
        parts.append(f"table {table['name']}" + ("" if table.get("measured", True) else " (approximate)"))
    else:
        parts.append("of unknown efficiencies: --btag TABLE gives them")
    return ", ".join(parts)


def _tagger(tagger: Mapping[str, Any]) -> str:
    """The values of a score, its tables, and whether it is used."""
    if not tagger["jets"]:
        values = "not read"
    elif not tagger["filled"]:
        values = "not filled"
    else:
        share = _share(tagger["known"], tagger["jets"])
        values = f"filled for {share} of jets, {tagger['low']:.3g} to {tagger['high']:.3g}"
    first, *others = tagger["tables"] or [None]
    known = f"cuts {', '.join(f'{cut:g}' for cut in tagger['cuts'])} in table {first}" if first else "no table"
    known += f", also {', '.join(others[:2])}{', …' * (len(others) > 2)}" if others else ""
    return "; ".join([*([f"used: {tagger['used']}"] if tagger["used"] else []), values, known])


def _generated(made: Mapping[str, Any]) -> str:
    """A short description of how the events were generated; `--json` has everything."""
    parts = [f"seed {made['seed']}"] if "seed" in made else []
    parts.append("filtered: not for tests" if made.get("filter") else "not filtered")
    parts += [f"from {made['lhe']}"] if made.get("lhe") else []
    if counts := made.get("counts"):
        parts.append(f"{counts['tried']} tried, {counts['kept']} kept")
    return "; ".join(parts)


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f}%" if total else ""


def _event(event: Events) -> Iterator[Table]:
    """The objects of an event, one table per kind."""
    from rich import box
    from rich.table import Table

    from pairton.events.event_checks import MARKS
    from pairton.events.inputs import MOMENTUM
    from pairton.events.vectors import mass_of

    source, number = (int(word) for word in event.ids[0])
    title: str | None = f"first event, id {source:016x}:{number}"
    for kind, collection in event.objects.items():
        fields = [name for name in collection.fields if name not in (*MOMENTUM, *MARKS)]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
        title = None
        for name in (kind, "pT", "eta", "phi", "energy", "mass", *fields):
            table.add_column(name, justify="right")
        slots = [slot for slot in event.topology.slots if slot.kind == kind]
        labelled = event.truth is not None and bool(slots)
        labels: dict[int, str] = {}
        if event.truth is not None and labelled:
            table.add_column("truth")
            labels = {int(event.truth[0, slot.index]): slot.name for slot in slots}
        rows = zip(collection[0], event.stored_index[kind][0], event.usable[kind][0], strict=True)
        for k, (item, index, usable) in enumerate(rows):
            mass = float(mass_of(item.pt, item.eta, item.energy))
            values = [f"{item.pt:.1f}", f"{item.eta:.2f}", f"{item.phi:.2f}", f"{item.energy:.1f}", f"{mass:.1f}"]
            values += [f"{item[name]:.4g}" for name in fields]
            truth = [labels.get(k, "")] if labelled else []
            table.add_row(str(index), *values, *truth, style=None if usable else "dim")
        yield table
