"""The figures of an evaluation. Each function returns a Plot: how to draw it, and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation import metrics
from pairton.evaluation.head_metrics import roc_curve
from pairton.report.palette import GREY, INK, RIGHT, WRONG
from pairton.report.picture import new_figure
from pairton.report.sankey import flow_plot
from pairton.report.style import COLOURS, MARKERS, Plot, plain
from pairton.topology import collection_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pairton.evaluation.scoreboard import Evaluation

__all__ = ["FIGURES", "against_mass", "against_multiplicity", "calibration", "cuts", "mass_peaks"]

WIDTH, HEIGHT = 5.3, 3.9  # inches
MASS_EDGES = np.linspace(0, 1000, 501)  # GeV; figures show a part, with wider bins where events are few
MOST_JETS = 12  # counts from here on share a bin
CUTS = np.linspace(0, 1, 101)
ROUND = 5  # bins to which a mass axis is rounded
FEWEST = 10  # entries of a bin of probability, to be drawn
VIEW = 0.99  # share of right particles that a mass figure shows

Floats = npt.NDArray[np.float64]


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _points(axes: Axes, k: int, x: Floats, shares: Any, label: str, **options: Any) -> None:
    """Shares with intervals, (n, 3): value, low, high; series are told apart by colour and marker."""
    value, low, high = np.asarray(shares, dtype=np.float64).reshape(-1, 3).T
    look = {"marker": MARKERS[k % len(MARKERS)], "color": COLOURS[k % len(COLOURS)], "linestyle": "none"} | options
    axes.errorbar(x, value, yerr=[value - low, high - value], label=plain(label), elinewidth=1.4, **look)


def _legend(axes: Axes, **options: Any) -> None:
    """A legend that does not push the axes aside."""
    axes.legend(frameon=False, **options).set_in_layout(False)


def _floor(axes: Axes) -> None:
    """Room for the legend above, and an axis that begins at zero."""
    axes.set_ylim(0, 1.12)
    _legend(axes, ncols=2, loc="upper right")


def against_mass(result: Evaluation) -> Plot | None:
    """Event efficiency in bins of the mass of all truth-matched objects."""
    edges = result.result("mass", result.methods[0])["edges"]
    if len(edges) < 2:
        return None
    each = {method.name: result.result("mass", method)["efficiency"] for method in result.methods}
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    shown = min(edges[-1], edges[-2] + 2 * (edges[-2] - edges[-3])) if len(edges) > 2 else edges[-1]

    def draw() -> Figure:
        figure, axes = _axes("mass of all truth-matched objects [GeV]", "event efficiency")
        top = np.minimum(high, shown)  # the last bin is long
        for k, (name, cells) in enumerate(each.items()):
            _points(axes, k, (low + top) / 2, [cell[:3] for cell in cells], name, xerr=(top - low) / 2)
        axes.set_xlim(edges[0], shown)
        _floor(axes)
        return figure

    rows = [
        {"method": name, "from": edges[k], "to": edges[k + 1], **cell.to_dict()}
        for name, cells in each.items()
        for k, cell in enumerate(cells)
    ]
    caption = "The same share in bins of about equal numbers of events; the last bin goes on to the right."
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
        figure, axes = _axes(objects, "event efficiency")
        for k, (name, cells) in enumerate(each.items()):
            at = (values + 0.08 * (k - (len(each) - 1) / 2)).astype(np.float64)
            _points(axes, k, at, [cells[i][:3] for i in used], name)
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
    caption = f"Share of complete events with every object in its place: more {objects}, more ways to be wrong."
    return Plot(f"efficiency_{objects}", f"Event efficiency and number of {objects}", caption, draw, rows)


def mass_peaks(result: Evaluation, type_name: str) -> Plot | None:
    """Masses of the particles of a type: right and wrong ones of the first method, all of every other."""
    columns = [particle.index for particle in result.topology.of_type(type_name)]
    if len(result.topology.particles[columns[0]].slots) < 2:
        return None  # an object alone has no peak
    peaks = {}  # method -> right and wrong ones in bins, (2, bins)
    for method in result.methods:
        counted = result.counted("candidates", method)
        complete = counted["complete"]
        mass, good = (counted[name][complete][:, columns] for name in ("mass", "right"))
        peaks[method.name] = np.stack([np.histogram(mass[chosen], MASS_EDGES)[0] for chosen in (good, ~good)])
    (first, shown), *others = peaks.items()
    total = shown.sum()
    if not total:
        return None
    low, high = _view(shown[0] if shown[0].any() else shown.sum(axis=0))
    width = 1 if total > 20_000 else 2 if total > 3_000 else 5
    bins = slice(low, low + (high - low) // width * width)
    edges = MASS_EDGES[bins.start : bins.stop + 1 : width]

    def counts(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.asarray(values[..., bins].reshape(*values.shape[:-1], -1, width).sum(axis=-1))

    def draw() -> Figure:
        import mplhep

        figure, axes = _axes(
            f"mass of {plain(type_name)} candidates [GeV]", f"candidates / {edges[1] - edges[0]:g} GeV"
        )
        look: dict[str, Any] = {"bins": edges, "ax": axes, "yerr": False}
        names = [f"{plain(first)}, right", f"{plain(first)}, wrong"]
        filled = {"stack": True, "histtype": "fill", "color": [RIGHT, WRONG], "alpha": 0.75, "label": names}
        mplhep.histplot(list(counts(shown)), **look, **filled)
        for k, (name, other) in enumerate(others):
            line = {"histtype": "step", "color": INK, "linestyle": ("-", "--", ":", "-.")[k % 4]}
            mplhep.histplot(counts(other.sum(axis=0)), label=plain(name), **look, **line)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 1.32 * max(float(axes.dataLim.ymax), 1))
        _legend(axes, loc="upper right")
        return figure

    rows = [
        {"method": name, "from": edges[k], "to": edges[k + 1], "right": int(right), "wrong": int(wrong)}
        for name, every in peaks.items()
        for k, (right, wrong) in enumerate(counts(every).T)
    ]
    ancestry = {
        index for neutrino in result.topology.neutrinos for index in result.topology.ancestry(neutrino.particle)
    }
    solved = ", with its neutrino" if ancestry & set(columns) else ""
    caption = (
        f"Every {type_name} that was predicted in complete events{solved}; right where its objects are all right."
    )
    return Plot(f"mass_{_file_name(type_name)}", f"Mass of {type_name}", caption, draw, rows)


def _view(values: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Bins around the peak: most of it, and as much again on both sides."""
    share = np.cumsum(values) / values.sum()
    low = int(np.searchsorted(share, (1 - VIEW) / 2))
    high = int(np.searchsorted(share, (1 + VIEW) / 2)) + 1
    half = max((high - low) // 2, 10)
    return max(0, low - half // 2) // ROUND * ROUND, min(len(values), high + half)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)


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
        figure, axes = _axes("predicted probability", "share that is right")
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        for k, (name, every) in enumerate(each.items()):
            bins = [row for row in every if row["total"] >= FEWEST]
            shares = [[row[key] for key in ("value", "low", "high")] for row in bins]
            _points(
                axes, k, np.array([row["probability"] for row in bins]), shares, name, linestyle="-", linewidth=1
            )
        axes.set(xlim=(0, 1), ylim=(0, 1.05))
        _legend(axes, loc="upper left")
        return figure

    rows = [{"what": name, **row} for name, bins in each.items() for row in bins]
    caption = "Complete events. On the diagonal, what is called 80 % probable is right in 80 % of cases."
    return Plot("calibration", "Calibration", caption, draw, rows)


def cuts(result: Evaluation) -> Plot | None:
    """What a cut on the event probability keeps, and how pure that is."""
    each, of_all = {}, {}
    for method in result.methods:
        if metrics.EVENT in (known := result.probabilities(method)):
            answered = np.isfinite(known[metrics.EVENT].probability)
            probability, right, complete, _ = (column[answered] for column in known[metrics.EVENT])
            if complete.any():
                each[method.name] = _kept(probability[complete], right[complete])
                of_all[method.name] = _kept(probability, right)[1]
    if not each:
        return None

    def draw() -> Figure:
        figure, axes = _axes("cut on the event probability", "share")
        for k, (name, (kept, pure)) in enumerate(each.items()):
            colour = COLOURS[k % len(COLOURS)]
            axes.plot(CUTS, pure, color=colour, label=plain(name))
            axes.plot(CUTS, kept, color=colour, linestyle=(0, (5, 3)))
            axes.plot(CUTS, of_all[name], color=colour, linestyle=(0, (1, 1.5)))
        axes.plot([], [], color=GREY, label="right among kept")
        axes.plot([], [], color=GREY, linestyle=(0, (1, 1.5)), label="right, of all events")
        axes.plot([], [], color=GREY, linestyle=(0, (5, 3)), label="kept")
        axes.set(xlim=(0, 1), ylim=(0, 1.1 + 0.1 * ((len(each) + 4) // 2)))
        _legend(axes, loc="upper left", ncols=2)
        return figure

    rows = [
        {"method": name, **dict(zip(("cut", "kept", "purity", "purity_of_all"), map(float, line), strict=True))}
        for name, shares in each.items()
        for line in zip(CUTS, *shares, of_all[name], strict=True)
    ]
    caption = (
        "Complete events above a cut: the share kept (dashed), and the share of those that is right. "
        "Dotted: the share that is right of all events above it, as in data; with an object missing none can be."
    )
    return Plot("probability_cut", "Efficiency and purity of a cut", caption, draw, rows)


def _kept(probability: Floats, right: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Shares of events at or above each of CUTS, and of those that are right among them, NaN for none."""
    order = np.argsort(probability)
    above = len(order) - np.searchsorted(probability[order], CUTS)
    good = np.concatenate([np.cumsum(right[order][::-1])[::-1], [0]])[len(order) - above]
    pure = np.divide(good, above, out=np.full(len(CUTS), np.nan), where=above > 0)
    return above / len(order), pure


def roc_curves(result: Evaluation) -> Iterable[Plot | None]:
    """For each head of two classes: the rejection of the background against the efficiency of the signal."""
    counted = {method.name: result.counted("heads", method) or {} for method in result.methods}
    return [_roc(name, counted) for name in dict.fromkeys(n for found in counted.values() for n in found)]


def _roc(head: str, counted: dict[str, Any]) -> Plot | None:
    curves: dict[str, tuple[Floats, Floats]] = {}
    for method, found in counted.items():
        if head in found and found[head].values.ndim == 3 and found[head].values.shape[2] == 2:
            judged, compared = found[head], found[head].compared
            curves[method] = roc_curve(judged.labels[compared] == 1, judged.values[compared][:, 1])
    curves = {name: curve for name, curve in curves.items() if np.isfinite(curve[1]).all()}
    if not curves:
        return None
    rows = [
        {"method": name, "signal": float(s), "background": float(b)}
        for name, curve in curves.items()
        for s, b in zip(*curve, strict=True)
    ]

    def draw() -> Figure:
        figure, axes = _axes("efficiency of class 1", "rejection of class 0")
        for k, (name, (signal, background)) in enumerate(curves.items()):
            axes.plot(signal, 1 - background, color=COLOURS[k % len(COLOURS)], label=plain(name))
        axes.plot([0, 1], [1, 0], color=GREY, linewidth=1, linestyle=":")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        _legend(axes, loc="lower left")
        return figure

    about = "share of class 0 that a cut leaves out, against the share of class 1 that it keeps; dotted: by chance"
    return Plot(_file_name(f"roc_{head}"), f"ROC of {head}", about, draw, rows)


def _peaks(result: Evaluation) -> Iterable[Plot | None]:
    return [mass_peaks(result, name) for name in reversed(result.topology.types)]


def _flows(result: Evaluation) -> Iterable[Plot | None]:
    found = ((method.name, result.result("flow", method)) for method in result.methods)
    return [flow_plot(name, flow) for name, flow in found if flow is not None][:1]


# metric -> its figures; a metric that is not listed brings its own
FIGURES: dict[str, Callable[[Evaluation], Iterable[Plot | None]]] = {
    "efficiency": lambda result: [against_multiplicity(result), against_mass(result)],
    "candidates": _peaks,
    "calibration": lambda result: [calibration(result), cuts(result)],
    "flow": _flows,
    "heads": roc_curves,
}
