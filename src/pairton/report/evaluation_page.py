"""The report of an evaluation: a self-contained HTML page, and figures as files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pairton._common.atomic import replacing
from pairton.errors import OutputError
from pairton.evaluation.evaluation import Table, formatted
from pairton.evaluation.metrics.candidates import Exhibit
from pairton.evaluation.plots import Plot, require, save_figure, styled, svg_of
from pairton.evaluation.scores import EVENT, INCLUSIVE
from pairton.evaluation.statistics import CONFIDENCE, Efficiency
from pairton.reconstruction.run_settings import hypotheses
from pairton.report.frames import record_answer, record_event
from pairton.report.page import render

if TYPE_CHECKING:
    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.registry import Metric
    from pairton.report.record import EventRecord

__all__ = ["check_outputs", "plots_of", "write_plots", "write_report"]

SUFFIXES = (".pdf", ".png")
DIGITS = 4


def check_outputs(report: str | Path | None, plots: str | Path | None) -> None:
    """Check before the evaluation that figures can be drawn and the outputs be written."""
    require()
    if report is not None and Path(report).suffix.lower() not in (".html", ".htm"):
        raise OutputError(f"{report}: the report must end in .html")
    if plots is not None and Path(plots).exists() and not Path(plots).is_dir():
        raise OutputError(f"{plots} is a file, but plots need a folder: give another name")
    for path in (Path(each) for each in (report, plots) if each is not None):
        if not path.absolute().parent.is_dir():
            raise OutputError(f"{path}: there is no folder {path.parent}: create it first")


def plots_of(result: Evaluation) -> list[Plot]:
    """All figures that have something to show."""
    return [plot for metric in result.metrics.values() for plot in _plots(result, metric)]


def _plots(result: Evaluation, metric: Metric) -> list[Plot]:
    return [plot for plot in metric.plots(result) if plot is not None]


def write_plots(folder: str | Path, result: Evaluation) -> list[Path]:
    """Write every figure as PDF and PNG, its numbers as CSV, and the table of efficiencies as CSV."""
    folder = Path(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be created ({error.strerror}): give another folder") from None
    written = []
    for plot in plots_of(result):
        with styled():
            figure = plot.draw()
            for suffix in SUFFIXES:
                with replacing(folder / f"{plot.name}{suffix}") as temporary:
                    save_figure(figure, temporary)
                written.append(folder / f"{plot.name}{suffix}")
        written.append(_write_csv(folder / f"{plot.name}.csv", plot.rows))
    rows = [
        {"method": method.name, "efficiency": what, "objects": cell, **value.to_dict()}
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


def write_report(path: str | Path, result: Evaluation, *, command: str = "") -> None:
    """Write the page: one section per metric with tables or figures, and a gallery of events."""
    with styled():
        found = [_section(result, metric) for metric in result.metrics.values()]
    sections = [section for section in found if section["tables"] or section["figures"]]
    gallery, records = _gallery(result)
    page = render(
        "report.html",
        records,
        title=f"{result.methods[0].name} on {', '.join(Path(p).name for p in result.inputs)}",
        result=result,
        complete=int(result.scores(result.methods[0]).total[EVENT].sum()),
        headline=_headline(result),
        sections=sections,
        has_flow=any(section["name"] == "flow" for section in sections),
        knows_missing=any(section["name"] == "patterns" for section in sections),
        gallery=gallery,
        confidence=f"{CONFIDENCE:.1%}",
        command=command,
    )
    with replacing(path) as temporary:
        temporary.write_text(page, "utf-8", errors="replace")  # names of files may be no UTF-8


def _section(result: Evaluation, metric: Metric) -> dict[str, Any]:
    alike = groupby(metric.tables(result), lambda table: (list(table.header), [row[0] for row in table.rows]))
    plots = _plots(result, metric)
    figures = [(plot, svg_of(plot.draw(), f"{plot.title}. {plot.caption}")) for plot in plots]
    tables = [_side_by_side(list(group)) for _, group in alike]
    return {"name": metric.name, "title": metric.title, "tables": tables, "figures": figures}


def _side_by_side(tables: Sequence[Table]) -> dict[str, Any]:
    """Merge tables with the same row names: one block per row, with one line per table."""
    notes = [table for table in tables if table.notes]
    if len(tables) == 1:
        blocks = [{"title": tables[0].title, "rows": [_cells(row) for row in tables[0].rows]}]
        return {"header": tables[0].header, "blocks": blocks, "notes": notes}
    blocks = [
        _block(str(rows[0][0]), [[table.title, *row[1:]] for table, row in zip(tables, rows, strict=True)])
        for rows in zip(*(table.rows for table in tables), strict=True)
    ]
    return {"header": ["", *tables[0].header[1:]], "blocks": blocks, "notes": notes}


def _block(title: str, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A block of lines, in which the highest efficiency of each column is marked."""
    lines = [_cells(row) for row in rows]
    for column, shown in zip(zip(*rows, strict=True), zip(*lines, strict=True), strict=True):
        values = [cell.value if isinstance(cell, Efficiency) else np.nan for cell in column]
        for value, cell in zip(values, shown, strict=True):
            cell["best"] = value == np.nanmax([*values, -1.0])
    return {"title": title, "rows": lines}


def _cells(row: Sequence[Any]) -> list[dict[str, Any]]:
    shown = []
    for cell in row:
        value, interval = (text if cell is text else text.replace("-", "−") for text in formatted(cell, DIGITS))
        count = f"{cell.correct} of {cell.total}" if isinstance(cell, Efficiency) else ""
        shown.append({"value": value, "interval": interval, "count": count, "best": False})
    return shown


def _headline(result: Evaluation) -> list[dict[str, str]]:
    """The cards at the top of the page, for the first method.

    Inclusive efficiencies, the share of right answers in all events, and the difference to the second method.
    """
    cards = []
    for what, cells in result.efficiency(result.methods[0]).items():
        cell = cells[INCLUSIVE]
        number = f", weighted; effective number {cell.effective:,.0f}" if result.weighted else ""
        known = f"{cell.low:.4f} to {cell.high:.4f}; {cell.correct} of {cell.total}{number}"
        note = known if cell.total else "nothing to count"
        of_what = "event efficiency, of complete events" if what == EVENT else f"{what} efficiency"
        cards.append({"name": of_what, "value": formatted(cell, DIGITS)[0], "note": note})
        if what == EVENT:
            cards.append(_of_all(result))
    for pair in result.result("differences")[:1]:
        lead = pair["efficiency"][EVENT][INCLUSIVE]
        cards.append(
            {
                "name": f"event efficiency, minus that of {pair['second']}",
                "value": f"{lead.value:+.4f}".replace("-", "−"),
                "note": f"{lead.low:+.4f} to {lead.high:+.4f}, same events".replace("-", "−"),
            }
        )
    return cards


def _of_all(result: Evaluation) -> dict[str, str]:
    """The weighted share of right answers in all events, and the mean probability."""
    method = result.methods[0]
    known = result.counted("calibration", method)[EVENT]
    total = float(known.weight.sum())
    share = float(known.weight[known.right].sum()) / total if total > 0 else np.nan
    found = result.result("calibration_all", method).get(EVENT)
    mean = f"; mean probability {found['probability']:.4f}" if found and found["probability"] is not None else ""
    name = "right answers, of all selected events" if result.selected else "right answers, of all events"
    note = f"{int(known.right.sum())} of {len(known.right)}{mean}"
    return {"name": name, "value": formatted(share, DIGITS)[0], "note": note}


def _gallery(result: Evaluation) -> tuple[list[dict[str, Any]], list[EventRecord]]:
    records: list[EventRecord] = []
    groups = []
    for name, exhibits in (result.counted("gallery", result.methods[0]) or {}).items():
        if exhibits:
            groups.append({"name": name, "first": len(records), "count": len(exhibits)})
            records += [_record(result, exhibit) for exhibit in exhibits]
    return groups, records


def _record(result: Evaluation, exhibit: Exhibit) -> EventRecord:
    method = result.methods[0]
    source = ", ".join(Path(path).name for path in result.inputs)
    which: dict[str, Any] = {"source": source, "number": exhibit.number}
    if method.model is not None and hypotheses(method.decoding) == 1:
        return record_event(exhibit.events, 0, method.model, method.settings, **which)
    return record_answer(
        exhibit.events,
        0,
        exhibit.assignment,
        event_probability=exhibit.event_probability,
        particle_probability=exhibit.particle_probability,
        model=method.name,
        **which,
    )
