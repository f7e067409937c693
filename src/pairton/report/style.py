"""The style of figures: that of mplhep, but smaller, with our colours and markers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from pairton.errors import MissingExtraError
from pairton.report.palette import TYPES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "MARKERS", "Plot", "plain", "require", "styled", "svg"]

COLOURS = TYPES
MARKERS = ("o", "s", "^", "D", "v", "P")
CHANGES: dict[str, Any] = {
    "font.size": 12,
    "axes.labelsize": 13,
    "axes.titlesize": 12,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "legend.fontsize": 11,
    "legend.title_fontsize": 11,
    "legend.handlelength": 1.6,
    "axes.linewidth": 1.0,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "xtick.major.size": 6,
    "ytick.major.size": 6,
    "xtick.minor.size": 3,
    "ytick.minor.size": 3,
    "savefig.transparent": False,
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class Plot:
    """A figure, and the numbers that it shows."""

    name: str  # of its files, without suffix
    title: str
    caption: str
    draw: Callable[[], Figure]
    rows: Sequence[Mapping[str, Any]]  # of its CSV file


def require() -> None:
    """Raise MissingExtraError if a package of the extra `report` is not installed."""
    for module in ("matplotlib", "mplhep", "jinja2"):
        try:
            __import__(module)
        except ImportError:
            raise MissingExtraError("report", module) from None


@contextmanager
def styled() -> Iterator[None]:
    """A context in which figures are drawn and saved with this style."""
    import logging

    import matplotlib as mpl
    import mplhep

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    with mpl.rc_context():
        for name, value in {**mplhep.style.ROOT, **CHANGES, "svg.hashsalt": "pairton"}.items():
            mpl.rcParams[name] = value
        yield


def svg(figure: Figure, label: str) -> str:
    """A figure as an SVG element for a page, with a label for screen readers."""
    from html import escape

    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    body = body[body.index("<svg") :]
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(label, quote=True)}"', 1)


def plain(text: str, longest: int = 24) -> str:
    """Text for matplotlib: dollar signs, which would begin a formula, are escaped, and long text is shortened.

    >>> plain("$a$"), plain("a_very_long_name_of_some_file.h5")
    ('\\\\$a\\\\$', 'a_very_long…some_file.h5')
    """
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[half + 1 - longest :]}"
    return text.replace("$", r"\$")
