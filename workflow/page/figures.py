"""The figures of the pages, in the style of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pairton.evaluation.plots import Plot, Series, new_figure, plain, plot_series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["calibrations", "learning_curves", "masses", "multiplicities"]

WIDTH, HEIGHT = 6.4, 4.2  # inches
PANEL = 3.6  # width of a panel, if there are several
COLUMNS = 3  # panels side by side
FEWEST = 20  # least number of entries in a bin of probability that is drawn

Json = Mapping[str, Any]


def _shares(label: str, k: int, x: Sequence[float], cells: Sequence[Json], style: str = "none") -> Series:
    """Shares with intervals, in the colour and marker number k."""
    known = [(at, cell) for at, cell in zip(x, cells, strict=True) if cell.get("value") is not None]
    value, low, high = ([cell[key] for _, cell in known] for key in ("value", "low", "high"))
    return Series(label, [at for at, _ in known], value, k, style, low, high)


def multiplicities(panels: Mapping[str, Mapping[str, Mapping[str, Json]]]) -> Figure:
    """Event efficiency by number of jets: title of a panel -> method -> bin -> share."""
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(max(WIDTH, PANEL * columns), HEIGHT * rows * (0.9 if columns > 1 else 1))
    every = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, (title, methods) in zip(every, panels.items(), strict=False):
        bins = list(next(iter(methods.values())))
        for k, (name, values) in enumerate(methods.items()):
            series = _shares(name, k, range(len(bins)), [values[each] for each in bins])
            series.draw(axes, 0.0, 0.09 * (k - (len(methods) - 1) / 2))
        axes.set_xticks(range(len(bins)), bins)
        axes.minorticks_off()
        axes.set(xlabel="jets", title=plain(title, 40), xlim=(-0.6, len(bins) - 0.4), ylim=(0, 1.0))
        axes.legend(frameon=False, loc="best").set_in_layout(False)
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    for axes in every[::columns]:
        axes.set_ylabel("share of complete events")
    return figure


def calibrations(curves: Mapping[str, Sequence[Json]]) -> Figure:
    """Share of right answers against their probability: label -> bins of probability."""
    series = []
    for k, (name, bins) in enumerate(curves.items()):
        shown = [row for row in bins if row["total"] >= FEWEST]
        series.append(_shares(name, k, [row["probability"] for row in shown], shown, "-"))
    labels = "probability of the answer", "share of all events"
    return _drawn(labels, series, x=(0, 1), y=(0, 1), diagonal=(0, 1), loc="upper left")


def masses(curves: Mapping[str, Json]) -> Figure:
    """Event efficiency in bins of mass: label -> edges in GeV, and the share in each bin."""
    series = []
    for k, (name, found) in enumerate(curves.items()):
        middles = [(low + high) / 2 for low, high in pairwise(found["edges"])]
        series.append(_shares(name, k, middles, found["efficiency"], "-"))
    return _drawn(("mass of all matched jets [GeV]", "share of complete events"), series, loc="lower right")


def learning_curves(curves: Mapping[str, Sequence[Sequence[tuple[int, float]]]], symbol: str) -> Figure:
    """Event efficiency on validation events against the step: label -> seeds -> (step, share)."""
    series = []
    for k, (name, seeds) in enumerate(curves.items()):
        for i, points in enumerate(seeds):
            steps, values = zip(*points, strict=True)
            series.append(Series("_" if i else name, steps, values, k))  # one entry of the legend per label
    return _drawn(("step", symbol), series, loc="lower right")


def _drawn(labels: tuple[str, str], series: Sequence[Series], **how: Any) -> Figure:
    plot = plot_series("", "", "", labels, series, **how)
    assert isinstance(plot, Plot)
    return plot.draw()
