"""What figures share: their style, colours, axes, and how they are saved.

The style is that of mplhep, but smaller. Colours are those of Okabe and Ito, safe for colour-blind readers.
matplotlib and mplhep are imported when something is drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "DASHED",
    "GREY",
    "INK",
    "MARKERS",
    "RIGHT",
    "WRONG",
    "Plot",
    "legend",
    "mixed",
    "name_of_file",
    "new_axes",
    "new_figure",
    "plain",
    "points",
    "require",
    "save_figure",
    "styled",
    "svg_of",
]

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
RIGHT, WRONG = BLUE, VERMILLION
INK, GREY = "#1b1f24", "#6b7280"
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHED = (0, (5, 3))
WIDTH, HEIGHT = 5.3, 3.9  # inches
DPI = 150
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
        for name, value in {**mplhep.style.ROOT, **CHANGES}.items():
            mpl.rcParams[name] = value
        yield


# -- parts of figures --------------------------------------------------------------------------------------


def new_figure(width: float, height: float) -> Figure:
    """A figure without a window or global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("report", "matplotlib") from None
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    engine = ConstrainedLayoutEngine(h_pad=0.07, w_pad=0.07)
    return Figure(figsize=(width, height), layout=engine, facecolor="white")


def new_axes(x: str, y: str) -> tuple[Figure, Axes]:
    """A figure of the usual size, and axes with these labels."""
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def points(axes: Axes, k: int, x: npt.NDArray[np.float64], shares: Any, label: str, **options: Any) -> None:
    """Draw shares with intervals, (n, 3): value, low, high; series k has its own colour and marker."""
    value, low, high = np.asarray(shares, dtype=np.float64).reshape(-1, 3).T
    look = {"marker": MARKERS[k % len(MARKERS)], "color": COLOURS[k % len(COLOURS)], "linestyle": "none"} | options
    axes.errorbar(x, value, yerr=[value - low, high - value], label=plain(label), elinewidth=1.4, **look)


def legend(axes: Axes, **options: Any) -> None:
    """A legend that does not shrink the axes."""
    axes.legend(frameon=False, **options).set_in_layout(False)


def plain(text: str, longest: int = 24) -> str:
    """Text for matplotlib: dollar signs, which would begin a formula, are escaped, and long text is shortened.

    >>> plain("$a$"), plain("a_very_long_name_of_some_file.h5")
    ('\\\\$a\\\\$', 'a_very_long…some_file.h5')
    """
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[half + 1 - longest :]}"
    return text.replace("$", r"\$")


def mixed(colour: str, share: float) -> tuple[float, float, float]:
    """A colour mixed into white with this share, as red, green and blue from 0 to 1."""
    red, green, blue = (share * int(colour[k : k + 2], 16) / 255 + 1 - share for k in (1, 3, 5))
    return red, green, blue


# -- files -------------------------------------------------------------------------------------------------


def name_of_file(text: str) -> str:
    """A name in which all characters but ASCII letters and digits are replaced by _.

    >>> name_of_file("t'")
    't_'
    """
    return re.sub("[^A-Za-z0-9]", "_", text)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Save a figure as the suffix says."""
    Path(path).write_bytes(_saved(figure, Path(path).suffix.lower().removeprefix(".")))


def svg_of(figure: Figure, label: str) -> str:
    """A figure as an SVG element for a page, with a label for screen readers."""
    from html import escape

    text = _saved(figure, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(label, quote=True)}"', 1)


def _saved(figure: Figure, kind: str) -> bytes:
    """The content of a file without dates, so that files are reproducible; text in SVG stays text."""
    import matplotlib as mpl

    metadata: dict[str, Any] = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}.get(
        kind, {}
    )
    drawn = io.BytesIO()  # matplotlib itself does not survive a disk that is full
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pairton"}):
        figure.savefig(drawn, dpi=DPI, metadata=metadata, format=kind)
    return drawn.getvalue()
