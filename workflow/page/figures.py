"""The figures of the page, in the style of the report; each takes plain numbers and returns a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pairton.report.palette import GREY
from pairton.report.picture import new_figure
from pairton.report.style import COLOURS, MARKERS, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["against_mass", "against_scale", "calibrations", "learning_curve", "multiplicities"]

WIDTH, HEIGHT = 6.4, 4.2  # inches
DASHED = (0, (4, 3))
FEWEST = 10  # entries of a bin of probability, to be drawn

Json = Mapping[str, Any]


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _points(axes: Axes, k: int, x: Sequence[float], cells: Sequence[Json], label: str, **more: Any) -> None:
    """Shares with intervals; methods are told apart by colour and marker."""
    known = [i for i, cell in enumerate(cells) if cell["value"] is not None]
    value = [cells[i]["value"] for i in known]
    down = [cells[i]["value"] - cells[i]["low"] for i in known]
    up = [cells[i]["high"] - cells[i]["value"] for i in known]
    if "xerr" in more:
        more["xerr"] = [more["xerr"][i] for i in known]
    style: dict[str, Any] = {"fmt": MARKERS[k % len(MARKERS)], "markersize": 4.5, "elinewidth": 1.4} | more
    colour = COLOURS[k % len(COLOURS)]
    axes.errorbar([x[i] for i in known], value, yerr=[down, up], color=colour, label=plain(label, 32), **style)


def _legend(axes: Axes, **options: Any) -> None:
    axes.legend(frameon=False, **options).set_in_layout(False)


def _range(axes: Axes, cells: Sequence[Json], names: int) -> None:
    """From the tenth below the lowest point to the tenth above the highest, and room for the legend."""
    low = min((cell["low"] for cell in cells if cell["value"] is not None), default=0.0)
    high = max((cell["high"] for cell in cells if cell["value"] is not None), default=1.0)
    bottom, top = math.floor(10 * low) / 10, math.ceil(10 * high) / 10
    axes.set_ylim(bottom, top + (top - bottom) * 0.1 * ((names + 1) // 2))
    _legend(axes, ncols=2, loc="upper right")


def against_mass(each: Mapping[str, Json], symbol: str) -> Figure:
    """Event efficiency in bins of the mass of all truth-matched jets; `mass` of each method."""
    edges = next(iter(each.values()))["edges"]
    end = min(edges[-1], edges[-2] + 2 * (edges[-2] - edges[-3])) if len(edges) > 2 else edges[-1]
    low, high = edges[:-1], [min(edge, end) for edge in edges[1:]]
    figure, axes = _axes("mass of all truth-matched jets [GeV]", symbol)
    centre = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    half = [(b - a) / 2 for a, b in zip(low, high, strict=True)]
    for k, (name, mass) in enumerate(each.items()):
        _points(axes, k, centre, mass["efficiency"], name, xerr=half)
    axes.set_xlim(edges[0], end)
    _range(axes, [cell for mass in each.values() for cell in mass["efficiency"]], len(each))
    return figure


def multiplicities(each: Mapping[str, Mapping[str, Json]], cells: Sequence[str], symbol: str) -> Figure:
    """Event efficiency by multiplicity bin, method beside method."""
    figure, axes = _axes("jets", symbol)
    for k, (name, values) in enumerate(each.items()):
        at = [i + 0.09 * (k - (len(each) - 1) / 2) for i in range(len(cells))]
        _points(axes, k, at, [values[cell] for cell in cells], name)
    axes.set_xticks(range(len(cells)), [cell.replace("+", " or more") for cell in cells])
    axes.minorticks_off()
    axes.set_xlim(-0.6, len(cells) - 0.4)
    _range(axes, [values[cell] for values in each.values() for cell in cells], len(each))
    return figure


def calibrations(panels: Mapping[str, Mapping[str, Sequence[Json]]]) -> Figure:
    """Title of a panel -> label -> bins of probability."""
    figure = new_figure(0.86 * WIDTH * len(panels), 4.4)
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(every, panels.items(), strict=True):
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHED)
        for k, (name, bins) in enumerate(curves.items()):
            shown = [row for row in bins if row["total"] >= FEWEST]
            x = [row["probability"] for row in shown]
            _points(axes, k, x, shown, name, fmt=f"{MARKERS[k]}-", linewidth=1)
        axes.set(xlabel="predicted probability", xlim=(0, 1), ylim=(0, 1), title=title)
        _legend(axes, loc="upper left")
    every[0].set_ylabel("share that is right")
    return figure


def learning_curve(points: Sequence[tuple[float, Json]], symbol: str, limit: float | None) -> Figure:
    """Efficiency against the number of training events, one point a training."""
    figure, axes = _axes("fully reconstructible events in the training", symbol)
    counts = sorted({n for n, _ in points})
    each = [[cell["value"] for n, cell in points if n == count] for count in counts]
    axes.plot(counts, [sum(values) / len(values) for values in each], color=COLOURS[0], linewidth=1)
    _points(axes, 0, [n for n, _ in points], [cell for _, cell in points], "test events")
    if limit is not None:
        axes.axhline(limit, color=GREY, linewidth=1, linestyle=DASHED)
        axes.annotate(
            "mean probability of the answer", (0.02, limit), xycoords=("axes fraction", "data"),
            xytext=(0, 4), textcoords="offset points", fontsize=11, color=GREY,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.margins(x=0.12, y=0.25)
    return figure


def against_scale(curves: Mapping[str, Sequence[tuple[float, Json]]], symbol: str) -> Figure:
    """Efficiency against a shift of the jet energy scale; label -> (scale, efficiency)."""
    figure, axes = _axes("shift of the jet energy scale [%]", symbol)
    for k, (name, points) in enumerate(curves.items()):
        ordered = sorted(points, key=lambda point: point[0])
        x = [100 * (scale - 1) for scale, _ in ordered]
        _points(axes, k, x, [cell for _, cell in ordered], name, fmt=f"{MARKERS[k]}-", linewidth=1)
    axes.axvline(0, color=GREY, linewidth=1, linestyle=DASHED)
    axes.margins(x=0.06, y=0.3)
    _legend(axes, loc="upper right", ncols=2)
    return figure
