"""One event to look at: in a notebook, as a page that steps through it, or as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.atomic import replacing
from pairton.errors import EventsError, OutputError
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
    """A record and the ways to draw it. A notebook shows it by itself."""

    record: EventRecord

    def __repr__(self) -> str:
        return f"<Display of {self.record.name}: {len(self.record.frames)} frames>"

    def html(self) -> str:
        """A page of its own, to be stepped through with arrow keys."""
        return display_html(self.record)

    def figure(self) -> Figure:
        """A matplotlib figure: the plane, and the matrices state by state."""
        return draw_event(self.record)

    def save(self, path: str | Path) -> None:
        """Write .html, .png, .svg or .pdf, by the suffix."""
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


def display_event(events: Events, row: int, model: Model | str | None = None, **options: Any) -> Display:
    """Reconstruct event `row` with a model, by default that of its topology, and keep what there is to see.

    Further options are those of `pairton.report.recording.record_event`: settings, source, number.
    """
    if model is None or isinstance(model, str):
        from pairton.models.engines import load_model, model_for

        model = load_model(model or model_for(events.topology), topology=events.topology)
    return Display(record_event(events, row, model, **options))


def display_row(reco: Reconstruction, row: int) -> Display:
    """A row of a reconstruction: replayed with its model, or its answer alone where that cannot be."""
    settings = reco.settings
    if (
        reco.model is not None and settings is not None and settings.decoding != "beam"
    ):  # which has no single chain
        return display_event(reco.events, row, reco.model, settings=settings)
    if not 0 <= row < len(reco):
        raise EventsError(f"there is no event {row}: the rows are 0 to {len(reco) - 1}")
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
    """Only names that say what to write."""
    if Path(path).suffix.lower() not in (".html", *PICTURES):
        known = ", ".join((".html", *PICTURES))
        raise OutputError(f"{path}: an event is drawn as {known}: give a name that ends so")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Without dates or versions, so that the same event gives the same file; text of an SVG stays text."""
    import matplotlib as mpl

    kind = Path(path).suffix.lower()
    metadata: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind, {})
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pairton"}):
        figure.savefig(path, dpi=DPI, metadata=metadata)
