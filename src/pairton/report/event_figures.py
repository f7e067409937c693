"""Figures of all events, complete or not: calibration, cuts, patterns, background, and momenta."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation import metrics
from pairton.evaluation.all_events import PROBABILITY
from pairton.evaluation.resolution import relative
from pairton.report.drawing import FEWEST, file_name, legend, new_axes, points
from pairton.report.palette import GREY, INK, RIGHT, WRONG, mixed
from pairton.report.style import COLOURS, Plot, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pairton.evaluation.scoreboard import Evaluation

__all__ = ["background", "calibration", "patterns", "purity", "resolution"]

RESOLUTION_EDGES = (np.arange(-40, 42) - 0.5) / 40  # right answers, at 0, are in the middle of a bin
DASHED = (0, (5, 3))

Floats = npt.NDArray[np.float64]


def calibration(result: Evaluation) -> Plot | None:
    """Predicted probability against the true share, for all events."""
    each = {
        f"{method.name}, {what}": found["bins"]
        for method in result.methods
        for what, found in result.result("calibration_all", method).items()
        if method is result.methods[0] or what == metrics.EVENT
    }
    each = {name: bins for name, bins in each.items() if bins}
    if not each:
        return None

    def draw() -> Figure:
        figure, axes = new_axes("predicted probability", "share that is true")
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        for k, (name, every) in enumerate(each.items()):
            bins = [row for row in every if row["total"] >= FEWEST]
            shares = [[row[key] for key in ("value", "low", "high")] for row in bins]
            at = np.array([row["probability"] for row in bins])
            points(axes, k, at, shares, name, linestyle="-", linewidth=1)
        axes.set(xlim=(0, 1), ylim=(0, 1.05))
        legend(axes, loc="upper left")
        return figure

    rows = [{"what": name, **row} for name, bins in each.items() for row in bins]
    caption = (
        "All events, as in data. Answers to incomplete events count as wrong if they have a particle that is not "
        "present, so a model that knows complete events only lies below the diagonal."
    )
    return Plot("calibration_all", "Calibration, all events", caption, draw, rows)


def purity(result: Evaluation) -> Plot | None:
    """Purity against efficiency of a cut on the probability, for all events."""
    each = {
        (method.name, name): found
        for method in result.methods
        for name, found in (result.result("purity", method) or {}).items()
    }
    if not each:
        return None

    def draw() -> Figure:
        figure, axes = new_axes("share of right answers kept", "right answers among events kept")
        colours: dict[str, str] = {}
        for (method, name), found in each.items():
            colour = colours.setdefault(method, COLOURS[len(colours) % len(COLOURS)])
            main = name == PROBABILITY
            label = plain(method) if main else f"{plain(method)}, if complete"
            axes.plot(
                found["efficiency"], found["purity"], color=colour, linestyle="-" if main else DASHED, label=label
            )
        axes.set(xlim=(0, 1), ylim=(0, 1.05 + 0.08 * len(each)))
        legend(axes, loc="upper right")
        return figure

    rows = [
        {"method": method, "cut_on": name, **dict(zip(found, values, strict=True))}
        for (method, name), found in each.items()
        for values in zip(*found.values(), strict=True)
    ]
    caption = (
        "All events above a cut on the probability of the answer. Dashed: a cut on the probability that the "
        "answer is right if the event is complete."
    )
    return Plot("purity", "Purity and efficiency of a cut, all events", caption, draw, rows)


def patterns(result: Evaluation) -> Plot | None:
    """Which particles are present: the most probable pattern against the true one."""
    found = result.result("patterns", result.methods[0])
    if found is None:
        return None
    names, events, weights = found["names"], found["events"], found["weights"]
    sums = weights.sum(axis=1, keepdims=True)
    share = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    share = np.clip(share, 0, 1)  # some weights may be negative

    def draw() -> Figure:
        figure, axes = new_axes("most probable", "true")
        size = len(names)
        image = np.array(
            [[[int(mixed(RIGHT, s)[k : k + 2], 16) / 255 for k in (1, 3, 5)] for s in row] for row in share]
        )
        axes.pcolormesh(
            np.arange(size + 1) - 0.5, np.arange(size + 1) - 0.5, image, edgecolors="#aeb6bf", linewidth=0.5
        )
        for i in range(size if size <= 8 else 0):
            for j in range(size):
                colour = "white" if share[i, j] > 0.55 else INK
                axes.annotate(str(events[i, j]), (j, i), ha="center", va="center", fontsize=10, color=colour)
        axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
        axes.set_xticks(range(size), [plain(name) for name in names], fontsize=9, rotation=30)
        axes.set_yticks(range(size), [plain(name) for name in names], fontsize=9)
        axes.minorticks_off()
        axes.tick_params(length=0, which="both", top=False, right=False)
        return figure

    rows = [
        {"true": true, "most_probable": predicted, "events": int(events[i, j]), "weight": float(weights[i, j])}
        for i, true in enumerate(names)
        for j, predicted in enumerate(names)
    ]
    caption = "Numbers of events; the colour is the share of the row. Events on the diagonal are recognised."
    return Plot("patterns", "Particles that are present", caption, draw, rows)


def background(result: Evaluation) -> Iterator[Plot | None]:
    """Signal against background, and masses of background before and after a cut."""
    yield _roc(result)
    found = result.result("background", result.methods[0]) or {"mass": {}}
    for name, mass in found["mass"].items():
        yield _sculpted(name, mass, found["cut"])


def _roc(result: Evaluation) -> Plot | None:
    each = {
        (method.name, name): (curve, found["area"][name])
        for method in result.methods
        if (found := result.result("background", method)) is not None
        for name, curve in found["curve"].items()
    }
    if not each:
        return None

    def draw() -> Figure:
        figure, axes = new_axes("share of signal kept", "share of background kept")
        for k, ((method, name), (curve, under)) in enumerate(each.items()):
            what = "P(any particle)" if name == "something" else "P(complete)"
            label = f"{plain(method)}, {what}: {under.value:.3f}"
            style = "-" if name == "something" else DASHED
            axes.plot(
                curve["signal"],
                curve["background"],
                color=COLOURS[k // 2 % len(COLOURS)],
                linestyle=style,
                label=label,
            )
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.set(xlim=(0, 1), ylim=(0, 1.05))
        legend(axes, loc="upper left", title="area under the curve")
        return figure

    rows = [
        {"method": method, "cut_on": name, **dict(zip(curve, values, strict=True))}
        for (method, name), (curve, _) in each.items()
        for values in zip(*curve.values(), strict=True)
    ]
    caption = (
        "Events above a cut on the probability that any particle is present, or that the event is complete. "
        "Background: events with 0 in the column `signal`, or else events of sources without labels."
    )
    return Plot("background", "Signal and background", caption, draw, rows)


def _sculpted(name: str, mass: dict[str, Any], cut: dict[str, float]) -> Plot:
    edges = np.array(mass["edges"])
    parts = {"signal": "signal", "before": "background", "after": "background, after the cut"}

    def draw() -> Figure:
        import mplhep

        figure, axes = new_axes(f"mass of {plain(name)} candidates [GeV]", "share of candidates")
        axes.axvspan(*mass["window"], color=GREY, alpha=0.12, linewidth=0)
        looks: dict[str, dict[str, Any]] = {
            "signal": {"histtype": "fill", "color": RIGHT, "alpha": 0.3},
            "before": {"histtype": "step", "color": INK},
            "after": {"histtype": "errorbar", "color": WRONG, "markersize": 4},
        }
        for part, label in parts.items():
            total = max(float(np.sum(mass[part]["weights"])), 1e-300)
            error = np.sqrt(mass[part]["squares"]) / total if part == "after" else False
            mplhep.histplot(mass[part]["weights"] / total, edges, ax=axes, yerr=error, label=label, **looks[part])
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 1.3 * float(axes.dataLim.ymax))
        legend(axes, loc="upper right")
        return figure

    rows = [
        {"from": edges[k], "to": edges[k + 1], **{part: float(mass[part]["weights"][k]) for part in parts}}
        for k in range(len(edges) - 1)
    ]
    caption = (
        f"Normalised to unit area. The cut requires P(nothing is present) of at most {1 - cut['something']:.2g}, "
        f"which keeps {cut['signal_efficiency']:.0%} of signal. The band has 68 % of the right candidates of "
        "signal: if its share of background is larger after the cut, the cut makes background peak."
    )
    return Plot(f"background_mass_{file_name(name)}", f"Mass of {name} in background", caption, draw, rows)


def resolution(result: Evaluation) -> Plot | None:
    """Momenta of the answer relative to those of the labelled objects."""
    counted = result.counted("resolution", result.methods[0])
    if counted is None:
        return None
    edges = RESOLUTION_EDGES
    each = {}
    for name, values in counted.items():
        away, weight = relative(values)
        if weight.sum() > 0:
            clipped = np.clip(away, edges[0], np.nextafter(edges[-1], 0))
            each[name] = np.histogram(clipped, edges, weights=weight)[0] / weight.sum()
    if not each:
        return None

    def draw() -> Figure:
        import mplhep

        figure, axes = new_axes("answer / truth - 1", f"share of events / {edges[1] - edges[0]:.3f}")
        for k, (name, shares) in enumerate(each.items()):
            line: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "linestyle": ("-", "--", ":", "-.")[k % 4]}
            mplhep.histplot(shares, edges, ax=axes, yerr=False, histtype="step", label=plain(name), **line)
        axes.set_yscale("log")
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(top=3)
        legend(axes, loc="upper right")
        return figure

    rows = [
        {"quantity": name, "from": edges[k], "to": edges[k + 1], "share": float(share)}
        for name, shares in each.items()
        for k, share in enumerate(shares)
    ]
    caption = (
        f"{result.methods[0].name}, complete events: effect of wrong answers on momenta. The truth is computed "
        "from the labelled objects as measured. The first and last bins include underflow and overflow."
    )
    return Plot("resolution", "Momenta of the answer", caption, draw, rows)
