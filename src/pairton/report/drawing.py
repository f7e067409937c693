"""Axes, points and legends of the figures of an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.report.picture import new_figure
from pairton.report.style import COLOURS, MARKERS, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FEWEST", "file_name", "legend", "new_axes", "points"]

WIDTH, HEIGHT = 5.3, 3.9  # inches
FEWEST = 10  # a bin of probability needs so many entries to be drawn

Floats = npt.NDArray[np.float64]


def new_axes(x: str, y: str) -> tuple[Figure, Axes]:
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def points(axes: Axes, k: int, x: Floats, shares: Any, label: str, **options: Any) -> None:
    """Draw shares with intervals, (n, 3): value, low, high; series k has its own colour and marker."""
    value, low, high = np.asarray(shares, dtype=np.float64).reshape(-1, 3).T
    look = {"marker": MARKERS[k % len(MARKERS)], "color": COLOURS[k % len(COLOURS)], "linestyle": "none"} | options
    axes.errorbar(x, value, yerr=[value - low, high - value], label=plain(label), elinewidth=1.4, **look)


def legend(axes: Axes, **options: Any) -> None:
    """A legend that does not shrink the axes."""
    axes.legend(frameon=False, **options).set_in_layout(False)


def file_name(name: str) -> str:
    """A name in which all characters but ASCII letters and digits are replaced by _.

    >>> file_name("t'")
    't_'
    """
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
