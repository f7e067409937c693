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
    "Line",
    "Plot",
    "draw_cells",
    "draw_histograms",
    "draw_lines",
    "draw_points",
    "in_rows",
    "legend",
    "mixed",
    "name_of_file",
    "new_axes",
    "new_figure",
    "plain",
    "require",
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


class Line(NamedTuple):
    """A line of a figure; without points it is only in the legend."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    style: Any = "-"


def draw_lines(
    x: str, y: str, lines: Sequence[Line], *, top: float = 1.05, diagonal: Sequence[float] = (), **options: Any
) -> Callable[[], Figure]:
    """A function that draws lines of shares from 0 to 1, and one for random choice if `diagonal` is given."""

    def draw() -> Figure:
        figure, axes = new_axes(x, y)
        for line in lines:
            axes.plot(line.x, line.y, color=line.colour, linestyle=line.style, label=line.label)
        if diagonal:
            axes.plot([0, 1], diagonal, color=GREY, linewidth=1, linestyle=DASHED)
        axes.set(xlim=(0, 1), ylim=(0, top))
        legend(axes, **options)
        return figure

    return draw


def draw_points(
    x: str, y: str, series: Mapping[str, Sequence[Any]], finish: Callable[[Axes], None], **options: Any
) -> Callable[[], Figure]:
    """A function that draws shares with intervals; `finish` sets the ranges of the axes and adds the legend.

    `series` has for each label the places (n,), the shares as (n, 3): value, low, high, and optionally half the
    widths of the bins (n,).
    """

    def draw() -> Figure:
        figure, axes = new_axes(x, y)
        for k, (label, (at, shares, *width)) in enumerate(series.items()):
            value, low, high = np.asarray(shares, dtype=np.float64).reshape(-1, 3).T
            look: dict[str, Any] = {"marker": MARKERS[k % len(MARKERS)], "color": COLOURS[k % len(COLOURS)]}
            look |= {"yerr": [value - low, high - value], "xerr": width[0] if width else None}
            axes.errorbar(at, value, label=plain(label), elinewidth=1.4, **look | {"linestyle": "none"} | options)
        finish(axes)
        return figure

    return draw


def draw_histograms(
    x: str,
    y: str,
    edges: npt.NDArray[np.float64],
    parts: Sequence[Mapping[str, Any]],
    finish: Callable[[Axes], None],
) -> Callable[[], Figure]:
    """A function that draws histograms; each part has `H` and other options of `mplhep.histplot`."""

    def draw() -> Figure:
        import mplhep

        figure, axes = new_axes(x, y)
        for part in parts:
            mplhep.histplot(**{"bins": edges, "ax": axes, "yerr": False} | dict(part))
        axes.set_xlim(edges[0], edges[-1])
        finish(axes)
        return figure

    return draw


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


def in_rows(columns: Mapping[str, Any], **first: Any) -> list[dict[str, Any]]:
    """Columns of equal length as rows of a CSV file, each beginning with the entries `first`.

    >>> in_rows({"cut": [0.1, 0.2]}, method="chi2")
    [{'method': 'chi2', 'cut': 0.1}, {'method': 'chi2', 'cut': 0.2}]
    """
    return [first | dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


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
