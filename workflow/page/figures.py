"""The figures of the pages, in the style of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pairton.evaluation.plots import COLOURS, GREY, MARKERS, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["calibrations", "learning_curves", "masses", "multiplicities"]

WIDTH, HEIGHT = 6.4, 4.2  # inches
PANEL = 3.6  # width of a panel, if there are several
COLUMNS = 3  # panels side by side
DASHED = (0, (4, 3))
FEWEST = 20  # least number of entries in a bin of probability that is drawn

Json = Mapping[str, Any]


def _points(axes: Axes, k: int, x: Sequence[float], cells: Sequence[Json], label: str, **more: Any) -> None:
    """Draw shares with intervals, in the colour and marker number k."""
    known = [i for i, cell in enumerate(cells) if cell.get("value") is not None]
    value = [cells[i]["value"] for i in known]
    down = [cells[i]["value"] - cells[i]["low"] for i in known]
    up = [cells[i]["high"] - cells[i]["value"] for i in known]
    style: dict[str, Any] = {"fmt": MARKERS[k % len(MARKERS)], "markersize": 4.5, "elinewidth": 1.4} | more
    colour = COLOURS[k % len(COLOURS)]
    axes.errorbar([x[i] for i in known], value, yerr=[down, up], color=colour, label=plain(label, 32), **style)


def multiplicities(panels: Mapping[str, Mapping[str, Mapping[str, Json]]]) -> Figure:
    """Event efficiency by number of jets: title of a panel -> method -> bin -> share."""
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(max(WIDTH, PANEL * columns), HEIGHT * rows * (0.9 if columns > 1 else 1))
    every = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, (title, methods) in zip(every, panels.items(), strict=False):
        bins = list(next(iter(methods.values())))
        for k, (name, values) in enumerate(methods.items()):
            at = [i + 0.09 * (k - (len(methods) - 1) / 2) for i in range(len(bins))]
            _points(axes, k, at, [values[each] for each in bins], name)
        axes.set_xticks(range(len(bins)), bins)
        axes.minorticks_off()
        axes.set(xlabel="jets", title=plain(title, 40), xlim=(-0.6, len(bins) - 0.4), ylim=(0, 1.0))
        axes.legend(frameon=False, loc="upper right").set_in_layout(False)  # shares fall with the jets
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    for axes in every[::columns]:
        axes.set_ylabel("share of complete events")
    return figure


def calibrations(curves: Mapping[str, Sequence[Json]]) -> Figure:
    """Share of right answers against their probability: label -> bins of probability."""
    figure = new_figure(WIDTH, 0.8 * WIDTH)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHED)
    for k, (name, bins) in enumerate(curves.items()):
        shown = [row for row in bins if row["total"] >= FEWEST]
        x = [row["probability"] for row in shown]
        _points(axes, k, x, shown, name, fmt=f"{MARKERS[k]}-", linewidth=1)
    axes.set(xlabel="probability of the answer", ylabel="share of all events", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False, loc="upper left").set_in_layout(False)
    return figure


def masses(curves: Mapping[str, Json]) -> Figure:
    """Event efficiency in bins of mass: label -> edges in GeV, and the share in each bin."""
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    for k, (name, found) in enumerate(curves.items()):
        edges = found["edges"]
        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        _points(axes, k, middles, found["efficiency"], name, fmt=f"{MARKERS[k % len(MARKERS)]}-", linewidth=1)
    axes.set(xlabel="mass of all matched jets [GeV]", ylabel="share of complete events")
    axes.legend(frameon=False, loc="lower right").set_in_layout(False)
    return figure


def learning_curves(curves: Mapping[str, Sequence[Sequence[tuple[int, float]]]], symbol: str) -> Figure:
    """Event efficiency on validation events against the step: label -> seeds -> (step, share)."""
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    for k, (name, seeds) in enumerate(curves.items()):
        for i, points in enumerate(seeds):
            steps, values = zip(*points, strict=True)
            axes.plot(
                steps, values, f"{MARKERS[k % len(MARKERS)]}-", color=COLOURS[k % len(COLOURS)], linewidth=1,
                markersize=3.5, label=plain(name, 32) if not i else None,
            )  # fmt: skip
    axes.set(xlabel="step", ylabel=symbol)
    axes.legend(frameon=False, loc="lower right").set_in_layout(False)
    return figure
