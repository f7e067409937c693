"""The report of an evaluation: one HTML file that stands alone, and its figures as files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pairton._common.atomic import replacing
from pairton.errors import OutputError
from pairton.evaluation import metrics
from pairton.report.collecting import Collector, Exhibit
from pairton.report.event_display import save_figure
from pairton.report.figures import against_mass, against_multiplicity, calibration, cuts, mass_peaks
from pairton.report.page import as_json, asset, markup, render
from pairton.report.recording import record_answer, record_event
from pairton.report.sankey import flow_plot
from pairton.report.style import Plot, require, styled, svg

if TYPE_CHECKING:
    from pairton.evaluation.scoreboard import Evaluation, Method
    from pairton.report.record import EventRecord

__all__ = ["check_outputs", "plots_of", "write_plots", "write_report"]

SUFFIXES = (".pdf", ".png")

Tables = Mapping[str, Mapping[str, Mapping[str, metrics.Efficiency]]]  # method -> what -> bin
Leads = Mapping[str, Mapping[str, Mapping[str, metrics.Difference]]]  # of the first over each other method


def check_outputs(report: str | Path | None, plots: str | Path | None) -> None:
    """Before the work: what is needed to draw is installed, and there is a place to write to."""
    require()
    if report is not None:
        path = Path(report)
        if path.suffix.lower() not in (".html", ".htm"):
            raise OutputError(f"{path}: a report is a page: give a name that ends with .html")
        if not path.parent.is_dir():
            raise OutputError(f"{path}: there is no folder {path.parent}: create it first")
    if plots is not None:
        path = Path(plots)
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path}: plots go to a folder, and this is a file: give another name")
        if not path.absolute().parent.is_dir():
            raise OutputError(f"{path}: there is no folder {path.parent}: create it first")


def plots_of(result: Evaluation, seen: Collector) -> list[Plot]:
    """Every figure for which there is something to show."""
    first = result.methods[0]
    found: list[Plot | None] = [against_mass(result), against_multiplicity(result, seen.n_jets)]
    for kind in reversed(result.topology.types):
        if len(result.topology.of_type(kind)[0].slots) > 1:  # a jet alone has no peak
            others = {m.name: seen.peaks[m.name][kind] for m in result.methods[1:] if m.name in seen.peaks}
            found.append(mass_peaks(kind, first.name, seen.peaks[first.name][kind], others))
    found += [flow_plot(method.name, result.flow(method)) for method in result.methods if method.flows][:1]
    found += [calibration(result), cuts(result)]
    return [plot for plot in found if plot is not None]


def write_plots(folder: str | Path, result: Evaluation, seen: Collector) -> list[Path]:
    """Every figure as PDF and PNG, its numbers as CSV, and the table of efficiencies as CSV."""
    folder = Path(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be made ({error.strerror}): give another folder") from None
    written = []
    for plot in plots_of(result, seen):
        with styled():
            figure = plot.draw()
            for suffix in SUFFIXES:
                with replacing(folder / f"{plot.name}{suffix}") as temporary:
                    save_figure(figure, temporary)
                written.append(folder / f"{plot.name}{suffix}")
        written.append(_write_csv(folder / f"{plot.name}.csv", plot.rows))
    rows = [
        {"method": method.name, "efficiency": what, "jets": cell, **value.to_dict()}
        for method in result.methods
        for what, cells in result.efficiency(method).items()
        for cell, value in cells.items()
    ]
    written.append(_write_csv(folder / "efficiencies.csv", rows))
    return written


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


# -- the page ----------------------------------------------------------------------------------------------


def write_report(
    path: str | Path,
    result: Evaluation,
    seen: Collector,
    *,
    max_jets: int,
    jet_cuts: bool,
    command: str = "",
) -> None:
    """Write the page; `max_jets` and `jet_cuts` as in the evaluation, for the steps of the gallery's events."""
    figures = []
    with styled():
        for plot in plots_of(result, seen):
            picture = svg(plot.draw(), f"{plot.title}. {plot.caption}")
            wide = plot.name == "flow"
            figures.append(
                {
                    "title": plot.title,
                    "caption": plot.caption,
                    "svg": markup(picture),
                    "wide": wide,
                    "plot": plot.name,
                }
            )
    gallery, records = _gallery(result, seen, max_jets, jet_cuts)
    scores = result.scores(result.methods[0])
    tables = {method.name: result.efficiency(method) for method in result.methods}
    leads = {m.name: result.difference(result.methods[0], m) for m in result.methods[1:]}
    page = render(
        "report.html",
        title=f"{result.methods[0].name} on {', '.join(Path(p).name for p in result.inputs)}",
        result=result,
        files=[str(p) for p in result.inputs],
        events=len(scores),
        full=int(scores.total[metrics.EVENT].sum()),
        headline=_headline(result, tables, leads),
        cells=[*result.topology.bins, metrics.INCLUSIVE],
        table=_table(result, tables),
        differences=_differences(result, leads),
        figures=figures,
        has_flow=any(figure["plot"] == "flow" for figure in figures),
        gallery=gallery,
        confidence=f"{metrics.CONFIDENCE:.1%}",
        command=command,
        css=markup(asset("display.css")),
        script=markup(asset("display.js")),
        data=markup(as_json([record.to_dict() for record in records])),
    )
    with replacing(path) as temporary:
        temporary.write_text(page, "utf-8")


def _headline(result: Evaluation, tables: Tables, leads: Leads) -> list[dict[str, str]]:
    """Inclusive efficiencies of the first method, and its lead over the second."""
    first = result.methods[0]
    cards = [
        {
            "name": _what(what),
            "value": _value(cells[metrics.INCLUSIVE].value),
            "note": _interval(cells[metrics.INCLUSIVE]),
        }
        for what, cells in tables[first.name].items()
    ]
    if len(result.methods) > 1:
        lead = leads[result.methods[1].name][metrics.EVENT][metrics.INCLUSIVE]
        cards.append(
            {
                "name": f"event efficiency, less that of {result.methods[1].name}",
                "value": f"{lead.value:+.4f}".replace("-", "−"),
                "note": f"{lead.low:+.4f} to {lead.high:+.4f}, same events".replace("-", "−"),
            }
        )
    return cards


def _what(what: str) -> str:
    return "event efficiency" if what == metrics.EVENT else f"{what} efficiency"


def _value(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _interval(cell: metrics.Efficiency) -> str:
    if np.isnan(cell.value):
        return "nothing to count"
    return f"{cell.low:.4f} to {cell.high:.4f}; {cell.correct} of {cell.total}"


def _table(result: Evaluation, tables: Tables) -> list[dict[str, Any]]:
    """One block an efficiency, one row a method; the best of each column is marked."""
    cells = [*result.topology.bins, metrics.INCLUSIVE]
    blocks = []
    for what in next(iter(tables.values())):
        best = {cell: np.nanmax([tables[name][what][cell].value for name in tables] + [-1.0]) for cell in cells}
        rows = []
        for method in result.methods:
            values = tables[method.name][what]
            rows.append(
                {
                    "method": _title(method),
                    "cells": [
                        {
                            "value": _value(values[cell].value),
                            "down": ""
                            if np.isnan(values[cell].value)
                            else f"−{values[cell].value - values[cell].low:.4f}",
                            "up": ""
                            if np.isnan(values[cell].value)
                            else f"+{values[cell].high - values[cell].value:.4f}",
                            "count": f"{values[cell].correct} of {values[cell].total}",
                            "best": len(tables) > 1 and values[cell].value == best[cell],
                        }
                        for cell in cells
                    ],
                }
            )
        blocks.append({"what": _what(what), "rows": rows})
    return blocks


def _title(method: Method) -> str:
    decoding = method.about.get("decoding")
    return f"{method.name} ({decoding})" if decoding and decoding not in method.name else method.name


def _differences(result: Evaluation, leads: Leads) -> list[dict[str, Any]]:
    first = result.methods[0]
    found = []
    for other in result.methods[1:]:
        for what, cells in leads[other.name].items():
            row = [
                "–" if np.isnan(d.value) else f"{d.value:+.4f} ({d.low:+.4f} to {d.high:+.4f})".replace("-", "−")
                for d in cells.values()
            ]
            found.append({"what": f"{_what(what)}, {first.name} minus {other.name}", "cells": row})
    return found


def _gallery(
    result: Evaluation, seen: Collector, max_jets: int, jet_cuts: bool
) -> tuple[list[dict[str, Any]], list[EventRecord]]:
    records: list[EventRecord] = []
    groups = []
    for kind, exhibits in seen.gallery.items():
        if exhibits:
            groups.append({"kind": kind, "first": len(records), "count": len(exhibits)})
            records += [_record(result, exhibit, max_jets, jet_cuts) for exhibit in exhibits]
    return groups, records


def _record(result: Evaluation, exhibit: Exhibit, max_jets: int, jet_cuts: bool) -> EventRecord:
    method = result.methods[0]
    source = ", ".join(Path(path).name for path in result.inputs)
    if method.model is not None and method.about["decoding"] != "beam":
        return record_event(
            exhibit.events,
            0,
            method.model,
            decoding=method.about["decoding"],
            max_jets=max_jets,
            jet_cuts=jet_cuts,
            source=source,
            number=exhibit.number,
        )
    return record_answer(
        exhibit.events,
        0,
        exhibit.assignment,
        event_probability=exhibit.event_probability,
        particle_probability=exhibit.particle_probability,
        model=method.name,
        source=source,
        number=exhibit.number,
    )
