"""The figures of an evaluation; each function returns a `Plot`, or None if there is nothing to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation import metrics
from pairton.evaluation.head_metrics import roc_curve
from pairton.report import event_figures
from pairton.report.drawing import FEWEST, file_name, legend, new_axes, points
from pairton.report.mass_figures import mass_peaks
from pairton.report.palette import GREY
from pairton.report.sankey import flow_plot
from pairton.report.style import COLOURS, Plot, plain
from pairton.topology import collection_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pairton.evaluation.scoreboard import Evaluation

__all__ = ["FIGURES", "against_mass", "against_multiplicity", "calibration", "cuts", "mass_peaks"]

MOST_JETS = 12  # this and larger numbers share a bin
CUTS = np.linspace(0, 1, 101)

Floats = npt.NDArray[np.float64]


def _floor(axes: Axes) -> None:
    """An axis from zero, with room for a legend at the top."""
    axes.set_ylim(0, 1.12)
    legend(axes, ncols=2, loc="upper right")


def against_mass(result: Evaluation) -> Plot | None:
    """Event efficiency in bins of the invariant mass of all truth-matched objects."""
    edges = result.result("mass", result.methods[0])["edges"]
    if len(edges) < 2:
        return None
    each = {method.name: result.result("mass", method)["efficiency"] for method in result.methods}
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    shown = min(edges[-1], edges[-2] + 2 * (edges[-2] - edges[-3])) if len(edges) > 2 else edges[-1]

    def draw() -> Figure:
        figure, axes = new_axes("mass of all truth-matched objects [GeV]", "event efficiency")
        top = np.minimum(high, shown)  # the last bin is cut, as it is long
        for k, (name, cells) in enumerate(each.items()):
            points(axes, k, (low + top) / 2, [cell[:3] for cell in cells], name, xerr=(top - low) / 2)
        axes.set_xlim(edges[0], shown)
        _floor(axes)
        return figure

    rows = [
        {"method": name, "from": edges[k], "to": edges[k + 1], **cell.to_dict()}
        for name, cells in each.items()
        for k, cell in enumerate(cells)
    ]
    caption = (
        "Event efficiency in bins with about equal numbers of events; the last bin extends further to the right."
    )
    return Plot("efficiency_mass", "Event efficiency and mass", caption, draw, rows)


def against_multiplicity(result: Evaluation) -> Plot | None:
    """Event efficiency for each number of objects of the main kind."""
    topology = result.topology
    first = topology.slots_per_kind[topology.kinds.index(topology.main_kind)]
    objects = collection_name(topology.main_kind)
    counts = np.clip(result.scores(result.methods[0]).n_jets, first, max(MOST_JETS, first + 2))
    values = np.arange(first, int(counts.max(initial=first)) + 1)
    edges = [*(values - 0.5).tolist(), values[-1] + 0.5]
    each = {m.name: metrics.efficiency_against(result.scores(m), counts, edges) for m in result.methods}
    used = [k for k in range(len(values)) if next(iter(each.values()))[k].total]
    if not used:
        return None
    values = values[used]
    names = [f"{value}+" if value == max(MOST_JETS, first + 2) else str(value) for value in values]

    def draw() -> Figure:
        figure, axes = new_axes(objects, "event efficiency")
        for k, (name, cells) in enumerate(each.items()):
            at = (values + 0.08 * (k - (len(each) - 1) / 2)).astype(np.float64)
            points(axes, k, at, [cells[i][:3] for i in used], name)
        axes.set_xticks(values, names)
        axes.minorticks_off()
        axes.set_xlim(first - 0.6, max(float(values.max(initial=first)), first + 1) + 0.6)
        _floor(axes)
        return figure

    rows = [
        {"method": name, objects: label, **cells[i].to_dict()}
        for name, cells in each.items()
        for label, i in zip(names, used, strict=True)
    ]
    caption = f"Share of complete events with every object in the right slot, by the number of {objects}."
    return Plot(f"efficiency_{objects}", f"Event efficiency and number of {objects}", caption, draw, rows)


def calibration(result: Evaluation) -> Plot | None:
    """Predicted probability against the share that is right."""
    each = {
        f"{method.name}, {what}": found["bins"]
        for method in result.methods
        for what, found in result.result("calibration", method).items()
        if method is result.methods[0] or what == metrics.EVENT
    }
    each = {name: bins for name, bins in each.items() if bins}
    if not each:
        return None

    def draw() -> Figure:
        figure, axes = new_axes("predicted probability", "share that is right")
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        for k, (name, every) in enumerate(each.items()):
            bins = [row for row in every if row["total"] >= FEWEST]
            shares = [[row[key] for key in ("value", "low", "high")] for row in bins]
            points(
                axes, k, np.array([row["probability"] for row in bins]), shares, name, linestyle="-", linewidth=1
            )
        axes.set(xlim=(0, 1), ylim=(0, 1.05))
        legend(axes, loc="upper left")
        return figure

    rows = [{"what": name, **row} for name, bins in each.items() for row in bins]
    caption = "Complete events. On the diagonal, answers of 80 % probability are right in 80 % of cases."
    return Plot("calibration", "Calibration", caption, draw, rows)


def cuts(result: Evaluation) -> Plot | None:
    """Efficiency and purity of a cut on the event probability."""
    each, of_all = {}, {}
    for method in result.methods:
        if metrics.EVENT in (known := result.probabilities(method)):
            answered = np.isfinite(known[metrics.EVENT].probability)
            probability, right, complete, weight = (column[answered] for column in known[metrics.EVENT])
            if weight[complete].sum() > 0:
                each[method.name] = _kept(probability[complete], right[complete], weight[complete])
                of_all[method.name] = _kept(probability, right, weight)[1]
    if not each:
        return None

    def draw() -> Figure:
        figure, axes = new_axes("cut on the event probability", "share")
        for k, (name, (kept, pure)) in enumerate(each.items()):
            colour = COLOURS[k % len(COLOURS)]
            axes.plot(CUTS, pure, color=colour, label=plain(name))
            axes.plot(CUTS, kept, color=colour, linestyle=(0, (5, 3)))
            axes.plot(CUTS, of_all[name], color=colour, linestyle=(0, (1, 1.5)))
        axes.plot([], [], color=GREY, label="right among kept")
        axes.plot([], [], color=GREY, linestyle=(0, (1, 1.5)), label="right, of all events")
        axes.plot([], [], color=GREY, linestyle=(0, (5, 3)), label="kept")
        axes.set(xlim=(0, 1), ylim=(0, 1.1 + 0.1 * ((len(each) + 4) // 2)))
        legend(axes, loc="upper left", ncols=2)
        return figure

    rows = [
        {"method": name, **dict(zip(("cut", "kept", "purity", "purity_of_all"), map(float, line), strict=True))}
        for name, shares in each.items()
        for line in zip(CUTS, *shares, of_all[name], strict=True)
    ]
    caption = (
        "Dashed: share of complete events above the cut. Solid: share of right answers among them. Dotted: share "
        "of right answers among all events above the cut, as in data; events with a missing object cannot be "
        "right."
    )
    return Plot("probability_cut", "Efficiency and purity of a cut", caption, draw, rows)


def _kept(probability: Floats, right: npt.NDArray[np.bool_], weight: Floats) -> tuple[Floats, Floats]:
    """Weighted shares of events at or above each of CUTS, and of right answers among them; NaN for none."""
    order = np.argsort(probability)
    first = np.searchsorted(probability[order], CUTS)
    above, good = (
        np.concatenate([np.cumsum(each[order][::-1])[::-1], [0.0]])[first] for each in (weight, weight * right)
    )
    pure = np.divide(good, above, out=np.full(len(CUTS), np.nan), where=above > 0)
    return above / weight.sum(), pure


def roc_curves(result: Evaluation) -> Iterable[Plot | None]:
    """For each head with two classes, the rejection of class 0 against the efficiency of class 1."""
    counted = {method.name: result.counted("heads", method) or {} for method in result.methods}
    return [_roc(name, counted) for name in dict.fromkeys(n for found in counted.values() for n in found)]


def _roc(head: str, counted: dict[str, Any]) -> Plot | None:
    curves: dict[str, tuple[Floats, Floats]] = {}
    for method, found in counted.items():
        if head in found and found[head].values.ndim == 3 and found[head].values.shape[2] == 2:
            judged, compared = found[head], found[head].compared
            curves[method] = roc_curve(judged.labels[compared] == 1, judged.values[compared][:, 1], judged.weights)
    curves = {name: curve for name, curve in curves.items() if np.isfinite(curve[1]).all()}
    if not curves:
        return None
    rows = [
        {"method": name, "signal": float(s), "background": float(b)}
        for name, curve in curves.items()
        for s, b in zip(*curve, strict=True)
    ]

    def draw() -> Figure:
        figure, axes = new_axes("efficiency of class 1", "rejection of class 0")
        for k, (name, (signal, background)) in enumerate(curves.items()):
            axes.plot(signal, 1 - background, color=COLOURS[k % len(COLOURS)], label=plain(name))
        axes.plot([0, 1], [1, 0], color=GREY, linewidth=1, linestyle=":")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        legend(axes, loc="lower left")
        return figure

    about = (
        "Share of class 0 that a cut rejects, against the share of class 1 that it keeps. Dotted: random choice."
    )
    return Plot(file_name(f"roc_{head}"), f"ROC of {head}", about, draw, rows)


def _peaks(result: Evaluation) -> Iterable[Plot | None]:
    types = list(reversed(result.topology.types))
    return [mass_peaks(result, name, every) for every in (False, True) for name in types]


def _flows(result: Evaluation) -> Iterable[Plot | None]:
    found = ((method.name, result.result("flow", method)) for method in result.methods)
    return [flow_plot(name, flow) for name, flow in found if flow is not None][:1]


# metric -> its figures; other metrics have their own method `plots`
FIGURES: dict[str, Callable[[Evaluation], Iterable[Plot | None]]] = {
    "efficiency": lambda result: [against_multiplicity(result), against_mass(result)],
    "candidates": _peaks,
    "calibration": lambda result: [calibration(result), cuts(result)],
    "area": lambda result: [event_figures.calibration(result), event_figures.purity(result)],
    "patterns": lambda result: [event_figures.patterns(result)],
    "background": event_figures.background,
    "resolution": lambda result: [event_figures.resolution(result)],
    "flow": _flows,
    "heads": roc_curves,
}
