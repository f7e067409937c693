"""The display of one event: in a notebook, as a page that steps through it, or as a picture.

Pages are self-contained: templates with autoescape, and data as JSON that cannot end its script element.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.atomic import replacing
from pairton._version import __version__
from pairton.errors import EventsError, MissingExtraError, OutputError
from pairton.evaluation.plots import save_figure
from pairton.reconstruction.run_settings import hypotheses
from pairton.report.frames import record_answer, record_event
from pairton.report.picture import draw_event, plane_svg
from pairton.report.record import EventRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pairton.events import Events
    from pairton.models.model import Model
    from pairton.reconstruction.result import Reconstruction

__all__ = ["PICTURES", "Display", "as_json", "check_suffix", "display_event", "display_row", "render"]

PICTURES = (".png", ".svg", ".pdf")
HEIGHT = 900  # pixels, of a display in a notebook


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
