"""The display of one event, and the page and the figures of an evaluation.

Pages are self-contained: templates with autoescape, and data as JSON that cannot end its script element.
"""

from __future__ import annotations

import csv
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pairton._common.atomic import replacing
from pairton._version import __version__
from pairton.errors import EventsError, MissingExtraError, OutputError
from pairton.evaluation.evaluation import Table, formatted
from pairton.evaluation.metrics.candidates import Exhibit
from pairton.evaluation.plots import Plot, require, save_figure, styled, svg_of
from pairton.evaluation.scores import EVENT, INCLUSIVE
from pairton.evaluation.statistics import CONFIDENCE, Efficiency
from pairton.reconstruction.run_settings import hypotheses
from pairton.report.frames import record_answer, record_event
from pairton.report.picture import draw_event, plane_svg
from pairton.report.record import EventRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pairton.evaluation.evaluation import Evaluation, Metric
    from pairton.events import Events
    from pairton.models.model import Model
    from pairton.reconstruction.result import Reconstruction

__all__ = [
    "PICTURES",
    "Display",
    "as_json",
    "check_outputs",
    "check_suffix",
    "display_event",
    "display_row",
    "plots_of",
    "render",
    "write_plots",
    "write_report",
]

PICTURES = (".png", ".svg", ".pdf")
HEIGHT = 900  # pixels, of a display in a notebook
SUFFIXES = (".pdf", ".png")  # of the figures of an evaluation
DIGITS = 4


@dataclass(frozen=True, repr=False)
class Display:
    """A record that can be drawn; a notebook shows it as the last value of a cell."""

    record: EventRecord

    def __repr__(self) -> str:
        return f"<Display of {self.record.name}: {len(self.record.frames)} frames>"

    def html(self) -> str:
        """A self-contained page; arrow keys step through the event."""
        return render("display.html", [self.record], title=f"{self.record.name} - Pairton")

    def figure(self) -> Figure:
        """A matplotlib figure: the eta-phi plane, and adjacency matrices of each state."""
        return draw_event(self.record)

    def save(self, path: str | Path) -> None:
        """Write a page (.html) or a picture (.png, .svg, .pdf), depending on the suffix."""
        check_suffix(path)
        if Path(path).suffix.lower() == ".html":
            text = self.html()
            with replacing(path) as temporary:
                temporary.write_text(text, "utf-8")
            return
        figure = self.figure()
        with replacing(path) as temporary:
            save_figure(figure, temporary)

    def _repr_html_(self) -> str:
        """The page in an iframe: its scripts and styles stay inside."""
        page, style = html.escape(self.html(), quote=True), f"width:100%;height:{HEIGHT}px;border:0"
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="{style}" title="event display"></iframe>'


def display_event(events: Events, row: int, model: Model | str | Path | None = None, **options: Any) -> Display:
    """Reconstruct the event in a row with a model, by default that of its topology, and record its steps.

    The options are those of `pairton.report.frames.record_event`: settings, source, number.
    """
    if model is None or isinstance(model, str | Path):
        from pairton.models.model import load_model, model_for

        model = load_model(model or model_for(events.topology), topology=events.topology)
    return Display(record_event(events, row, model, **options))


def display_row(reco: Reconstruction, row: int) -> Display:
    """The display of a row of a reconstruction: with its steps, or only its answer if there is no model."""
    settings = reco.settings
    # a beam has no single chain of steps
    if reco.model is not None and settings is not None and hypotheses(settings.decoding) == 1:
        return display_event(reco.events, row, reco.model, settings=settings)
    if not 0 <= row < len(reco):
        raise EventsError(f"there is no event {row}: choose a row from 0 to {len(reco) - 1}")
    record = record_answer(
        reco.events,
        row,
        reco.assignment[row],
        event_probability=reco.event_probability[row],
        particle_probability=reco.particle_probability[row],
        status=int(reco.status[row]),
        decoding="" if settings is None else str(settings.decoding),
        model="" if reco.model is None else reco.model.name,
    )
    return Display(record)


def check_suffix(path: str | Path) -> None:
    """Raise OutputError for an unknown suffix."""
    if Path(path).suffix.lower() not in (".html", *PICTURES):
        raise OutputError(f"{path}: the output must end in .html, {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")


# -- templates ---------------------------------------------------------------------------------------------


def as_json(data: Any) -> str:
    """JSON for a script element; it contains no markup characters.

    >>> as_json({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def render(template: str, records: list[EventRecord], **values: Any) -> str:
    """A filled template, with records to step through and what draws them; text is escaped unless it is Markup."""
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("report", "jinja2") from None
    folder = resources.files("pairton.report") / "templates"
    css, script, page = ((folder / name).read_text("utf-8") for name in ("display.css", "display.js", template))
    environment = Environment(
        loader=DictLoader({template: page}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    values |= {"css": Markup(css), "script": Markup(script), "version": __version__}
    data = as_json([record.to_dict() | {"plane": plane_svg(record)} for record in records])
    return environment.get_template(template).render(data=Markup(data), **values)


# -- an evaluation -----------------------------------------------------------------------------------------


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


# -- its page ----------------------------------------------------------------------------------------------


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
