"""The display of one event: in a notebook, as a page that steps through it, or as a picture."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.atomic import replacing
from pairton.errors import EventsError, OutputError
from pairton.reconstruction.run_settings import hypotheses
from pairton.report.page import display_html, embedded
from pairton.report.picture import draw_event
from pairton.report.record import EventRecord
from pairton.report.recording import record_answer, record_event

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pairton.events import Events
    from pairton.models.engines import Model
    from pairton.reconstruction.result import Reconstruction

__all__ = ["PICTURES", "Display", "check_suffix", "display_event", "display_row", "save_figure"]

PICTURES = (".png", ".svg", ".pdf")
DPI = 150


@dataclass(frozen=True, repr=False)
class Display:
    """A record that can be drawn; a notebook shows it as the last value of a cell."""

    record: EventRecord

    def __repr__(self) -> str:
        return f"<Display of {self.record.name}: {len(self.record.frames)} frames>"

    def html(self) -> str:
        """A self-contained page; arrow keys step through the event."""
        return display_html(self.record)

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
        return embedded(self.record)


def display_event(events: Events, row: int, model: Model | str | Path | None = None, **options: Any) -> Display:
    """Reconstruct the event in a row with a model, by default that of its topology, and record its steps.

    The options are those of `pairton.report.recording.record_event`: settings, source, number.
    """
    if model is None or isinstance(model, str | Path):
        from pairton.models.engines import load_model, model_for

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


def save_figure(figure: Figure, path: str | Path) -> None:
    """Save a figure without dates or versions, so that files are reproducible; text in SVG stays text."""
    import matplotlib as mpl

    kind = Path(path).suffix.lower()
    metadata: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind, {})
    drawn = io.BytesIO()  # matplotlib itself does not survive a disk that is full
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pairton"}):
        figure.savefig(drawn, dpi=DPI, metadata=metadata, format=kind.removeprefix("."))
    Path(path).write_bytes(drawn.getbuffer())
