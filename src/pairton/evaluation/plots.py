"""Figures: how their numbers are drawn and listed, their style, and how they are saved.

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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "DASHED",
    "DOTTED",
    "GREY",
    "INK",
    "MARKERS",
    "RIGHT",
    "STYLES",
    "WRONG",
    "Plot",
    "Series",
    "draw_cells",
    "mixed",
    "name_of_file",
    "new_axes",
    "new_figure",
    "plain",
    "plot_series",
    "require",
    "roc_plot",
    "save_figure",
    "styled",
    "svg_of",
]

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
RIGHT, WRONG = BLUE, VERMILLION
INK, GREY = "#1b1f24", "#6b7280"
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHED, DOTTED = (0, (5, 3)), (0, (1, 1.5))
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


class Series(NamedTuple):
    """Numbers of a figure: a line; points, if there are intervals; or a histogram, if there are edges (n + 1)."""

    label: str
    x: Sequence[float] | npt.NDArray[Any]
    y: Sequence[float] | npt.NDArray[Any]
    colour: int | str = 0  # or number of the colour, and of the marker
    style: Any = "-"  # of the line
    low: Any = None  # (n,): ends of the intervals
    high: Any = None
    width: Any = None  # (n,): half the width of the bins of points
    filled: bool = False  # filled histograms are stacked, the first at the bottom

    @property
    def is_histogram(self) -> bool:
        return len(self.x) > len(self.y)

    def draw(self, axes: Axes, base: Any, shift: float) -> None:
        """Draw the series, a filled histogram above `base`, points moved by `shift`."""
        number, text = self.colour if isinstance(self.colour, int) else 0, plain(self.label, 44)
        colour = COLOURS[number % len(COLOURS)] if isinstance(self.colour, int) else self.colour
        look: dict[str, Any] = {"color": colour, "linestyle": self.style, "label": text}
        if self.is_histogram and self.filled:
            axes.stairs(base + self.y, self.x, baseline=base, fill=True, color=colour, alpha=0.6, label=text)
        elif self.is_histogram:
            axes.stairs(self.y, self.x, baseline=None, **look)
        elif self.low is not None:
            y, marker = np.asarray(self.y), MARKERS[number % len(MARKERS)]
            look |= {"yerr": [y - self.low, self.high - y], "xerr": self.width, "elinewidth": 1.4, "linewidth": 1}
            axes.errorbar(np.add(self.x, shift), y, marker=marker, **look)
        else:
            axes.plot(self.x, self.y, **look)

    def rows(self, x: str, y: str) -> list[dict[str, Any]]:
        """The numbers as rows of a CSV file."""
        columns: dict[str, Any] = {"from": self.x[:-1], "to": self.x[1:]} if self.is_histogram else {x: self.x}
        columns |= {y: self.y} | ({} if self.low is None else {"low": self.low, "high": self.high})
        values = (np.asarray(column).tolist() for column in columns.values())
        return [{"series": self.label} | dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


@dataclass(frozen=True)
class Plot:
    """A figure, and the numbers that it shows."""

    name: str  # of its files, without suffix
    title: str
    caption: str
    draw: Callable[[], Figure]
    rows: Sequence[Mapping[str, Any]]  # of its CSV file


def plot_series(
    name: str,
    title: str,
    caption: str,
    labels: tuple[str, str],
    series: Sequence[Series],
    *,
    x: tuple[float, float] | None = None,
    y: tuple[float, float] | None = None,
    room: float = 0.0,
    shift: float = 0.0,
    diagonal: Sequence[float] = (),
    finish: Callable[[Axes], Any] | None = None,
    **legend: Any,
) -> Plot | None:
    """A figure of some series; None if there are none.

    labels     of both axes
    x, y       ranges of the axes
    room       the y axis reaches from 0 to so many times the largest value
    shift      distance between the points of two series at the same x
    diagonal   heights at x = 0 and 1 of a dashed line
    finish     a function that adds something to the axes
    legend     options of the legend
    """
    if not series:
        return None

    def draw() -> Figure:
        figure, axes = new_axes(*labels)
        base: Any = 0.0
        for k, one in enumerate(series):
            one.draw(axes, base, shift * (k - (len(series) - 1) / 2))
            base = base + np.asarray(one.y) if one.filled else base
        if len(diagonal):
            axes.plot([0, 1], diagonal, color=GREY, linewidth=1, linestyle=DASHED)
        highest = max(np.max(base), *(max(one.y, default=0) for one in series), 1e-300)
        axes.set(xlim=x, ylim=(0, room * highest) if room else y)
        if finish is not None:
            finish(axes)
        axes.legend(frameon=False, **legend).set_in_layout(False)  # it does not shrink the axes
        return figure

    return Plot(name, title, caption, draw, [row for one in series for row in one.rows(*labels)])


def roc_plot(
    name: str, title: str, caption: str, classes: tuple[str, str], series: Sequence[Series]
) -> Plot | None:
    """ROC curves: the share of a class that a cut keeps, against that of the other class; None without series."""
    labels = f"efficiency of {classes[0]}", f"efficiency of {classes[1]}"
    how: dict[str, Any] = {"x": (0, 1), "y": (0, 1.05), "diagonal": (0, 1), "loc": "upper left"}
    return plot_series(name, title, f"{caption} Dashed diagonal: random choice.", labels, series, **how)


def draw_cells(axes: Axes, image: Any, names: Sequence[str], size: int, **options: Any) -> None:
    """Draw a square matrix of colours (n, n, 3) with names of its rows and columns."""
    n = len(names)
    edges = np.arange(n + 1) - 0.5
    axes.pcolormesh(edges, edges, np.asarray(image), edgecolors="#aeb6bf", linewidth=0.5)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    axes.set_xticks(range(n), names, fontsize=size, **options)
    axes.set_yticks(range(n), names, fontsize=size)
    axes.minorticks_off()
    axes.tick_params(length=0, which="both", top=False, right=False)


def plain(text: str, longest: int = 24) -> str:
    """Text for matplotlib: dollar signs, which would begin a formula, are escaped, and long text is shortened.

    >>> plain("$a$"), plain("a_very_long_name_of_some_file.h5")
    ('\\\\$a\\\\$', 'a_very_long…some_file.h5')
    """
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[half + 1 - longest :]}"
    return text.replace("$", r"\$")


def mixed(colour: str, share: Any) -> npt.NDArray[np.float64]:
    """(..., 3): a colour mixed into white with these shares (...), as red, green and blue from 0 to 1."""
    full = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.asarray(1 - np.multiply.outer(np.asarray(share), 1 - full))


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
