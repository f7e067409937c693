"""What is in the events: which particles are present, and signal against background.

Background are the events whose column `signal` is 0. Without that column, they are all events of sources without
any label, such as a sample of `pairton generate multijet`. Event weights are used.

Shapes: n events, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.decoding.set_tables import true_pattern
from pairton.evaluation.evaluation import Chunk, Metric, Table
from pairton.evaluation.metrics.probabilities import GRID
from pairton.evaluation.plots import (
    DASHED,
    GREY,
    INK,
    RIGHT,
    WRONG,
    Plot,
    Series,
    draw_cells,
    mixed,
    name_of_file,
    new_axes,
    plain,
    plot_series,
    roc_plot,
)
from pairton.evaluation.statistics import area, cuts_at_efficiency, effective_entries, quantile, weighted_quantile
from pairton.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method
    from pairton.evaluation.metrics.candidates import Candidate

__all__ = ["Background", "Patterns", "Seen"]

COLUMN = "signal"
FEWEST = 20  # a source without labels needs so many events to be called background
SHOWN = (0.9, 0.7, 0.5, 0.3)  # efficiencies for signal in the table
CUT = 0.5  # signal efficiency of the cut before and after which masses are shown
MASS_EDGES = np.linspace(0, 500, 51)  # GeV
WINDOW = (0.16, 0.84)  # quantiles of the mass of right candidates, which define the peak
SOMETHING, COMPLETE = "something", "complete"

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class Patterns(Metric):
    """Numbers of events, and sums of weights, by true and by most probable pattern."""

    name, title = "patterns", "What is in the events"

    def count(self, chunk: Chunk, method: Method) -> dict[str, npt.NDArray[Any]] | None:
        chance = chunk.answers[method.name].pattern_probability
        known = np.isfinite(chance).all(axis=1)
        if not known.any():
            return None
        topology, weight = chunk.events.topology, chunk.weight[known]
        size = len(plan_of(topology).patterns)
        both = true_pattern(topology, chunk.truth[known]) * size + chance[known].argmax(axis=1)
        return {
            "events": np.bincount(both, minlength=size**2)[None],
            "weights": np.bincount(both, weight, size**2)[None],
            "predicted": (weight[:, None] * chance[known]).sum(axis=0)[None],
        }

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None:
            return None
        names = [pattern.name for pattern in plan_of(evaluation.topology).patterns]
        square = len(names), len(names)
        weights = counted["weights"].sum(axis=0).reshape(square)
        return {
            "names": names,
            "events": counted["events"].sum(axis=0).reshape(square),  # true, most probable
            "weights": weights,
            "true": weights.sum(axis=1) / weights.sum(),
            "probability": counted["predicted"].sum(axis=0) / weights.sum(),
        }

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for method, result in evaluation.results(self.name):
            rows = [
                [name, *(int(n) for n in counts), result["true"][k], result["probability"][k]]
                for k, (name, counts) in enumerate(zip(result["names"], result["events"], strict=True))
            ]
            header = ["true, against most probable", *result["names"], "share", "mean probability"]
            yield Table(f"{method.title}, particles that are present", header, rows)

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        result = evaluation.result(self.name, evaluation.methods[0])
        if result is not None:
            yield _plot(result["names"], result["events"], result["weights"])


def _plot(names: list[str], events: Ints, weights: Floats) -> Plot:
    sums = weights.sum(axis=1, keepdims=True)
    share = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    share = np.clip(share, 0, 1)  # some weights may be negative
    size = len(names)

    def draw() -> Figure:
        figure, axes = new_axes("most probable", "true")
        draw_cells(axes, mixed(RIGHT, share), [plain(name) for name in names], 9, rotation=30)
        for i in range(size if size <= 8 else 0):
            for j in range(size):
                colour = "white" if share[i, j] > 0.55 else INK
                axes.annotate(str(events[i, j]), (j, i), ha="center", va="center", fontsize=10, color=colour)
        return figure

    rows = [
        {"true": true, "most_probable": name, "events": int(events[i, j]), "weight": float(weights[i, j])}
        for i, true in enumerate(names)
        for j, name in enumerate(names)
    ]
    caption = "Numbers of events; the colour is the share of the row. Events on the diagonal are recognised."
    return Plot("patterns", "Particles that are present", caption, draw, rows)


# -- signal and background --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What the metric needs of each event."""

    source: npt.NDArray[np.uint64]
    labelled: Bools
    signal: Floats  # the column `signal`; NaN if there is none
    weight: Floats
    something: Floats  # probability that any particle is present
    complete: Floats

    def background(self) -> Bools:
        """(n,): which events are background."""
        if np.isfinite(self.signal).all():
            return np.asarray(self.signal < 0.5)
        if not self.labelled.any():  # sources may be small, such as the luminosity blocks of NanoAOD
            return np.ones(len(self.labelled), dtype=bool)
        _, where, counts = np.unique(self.source, return_inverse=True, return_counts=True)
        labelled = np.bincount(where, self.labelled, len(counts))
        return np.asarray((labelled == 0) & (counts >= FEWEST))[where]


class Background(Metric):
    """Separation by the probability that any particle is present; masses before and after a cut on it."""

    name, title = "background", "Signal and background"
    brief = True

    def count(self, chunk: Chunk, method: Method) -> Seen | None:
        chance, events = chunk.answers[method.name].pattern_probability, chunk.events
        if not np.isfinite(chance).any():
            return None
        plan = plan_of(events.topology)
        nothing = [pattern.entry < 0 for pattern in plan.patterns].index(True)
        complete = chance[:, plan.complete].sum(axis=1)
        signal = np.asarray(events.columns.get(COLUMN, np.full(len(events), np.nan)), np.float64)
        labelled = np.asarray(events.present.any(axis=1))
        return Seen(events.ids[:, 0], labelled, signal, chunk.weight, 1 - chance[:, nothing], complete)

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        seen: Seen | None = evaluation.counted(self.name, method)
        if seen is None:
            return None
        known, other = np.isfinite(seen.something), seen.background()
        classes = {"signal": known & ~other, "background": known & other}
        if not all(rows.any() for rows in classes.values()):
            return None
        result: dict[str, Any] = {
            name: {
                "events": int(rows.sum()),
                "weight": seen.weight[rows].sum(),
                "effective": effective_entries(seen.weight[rows]),
            }
            for name, rows in classes.items()
        } | {"area": {}, "curve": {}}
        for name in (SOMETHING, COMPLETE):
            entries = getattr(seen, name)[known], ~other[known]
            result["area"][name] = area(*entries, seen.weight[known])
            cuts = cuts_at_efficiency(*entries, GRID, seen.weight[known])
            curve = {"signal": cuts.efficiency, "background": cuts.background_efficiency, "cut": cuts.cut}
            result["curve"][name] = curve
        cut = result["curve"][SOMETHING]["cut"][GRID.index(CUT)]
        parts = {"signal": classes["signal"], "before": classes["background"]}
        parts["after"] = parts["before"] & (seen.something >= cut)
        masses = _masses(evaluation.topology, evaluation.counted("candidates", method), parts)
        return result | {"cut": {"something": cut, "signal_efficiency": CUT}, "mass": masses}

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for method, found in evaluation.results(self.name):
            rows = []
            for name, title in ((SOMETHING, "any particle present"), (COMPLETE, "event complete")):
                kept = [found["curve"][name]["background"][GRID.index(share)] for share in SHOWN]
                rows.append([title, str(found["area"][name]), *kept])
            header = ["probability", "area", *(f"at {share:.0%}" for share in SHOWN)]
            counts = [
                f"{found[name]['events']} events of {name} (effective number {found[name]['effective']:,.0f})"
                for name in ("signal", "background")
            ]
            yield Table(f"{method.title}, share of background kept at signal efficiencies", header, rows, counts)
            rows = []
            for name, mass in found["mass"].items():
                shares = (mass[when]["share"] for when in ("signal", "before", "after"))
                peaks = (f"{mass[when]['median']:.0f} ± {mass[when]['width']:.0f}" for when in ("before", "after"))
                rows.append(["{}, {:.0f} to {:.0f} GeV".format(name, *mass["window"]), *shares, *peaks])
            after = "after the cut"
            header = ["candidates in the peak", "signal", "background", after, "median ± width [GeV]", after]
            nothing = 1 - found["cut"]["something"]
            note = f"the cut keeps {CUT:.0%} of signal: P(nothing is present) of at most {nothing:.2g}"
            if rows:
                yield Table(f"{method.title}, masses of background", header, rows, [note])

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        yield _roc_plot(evaluation)
        found = evaluation.result(self.name, evaluation.methods[0]) or {"mass": {}}
        for name, mass in found["mass"].items():
            yield _mass_plot(name, mass, found["cut"])


def _masses(topology: Topology, candidates: Candidate, rows: dict[str, Bools]) -> dict[str, Any]:
    """Root type -> window of the peak, and mass spectra of signal, and of background before and after a cut."""
    result = {}
    for name in dict.fromkeys(root.type for root in topology.roots):
        columns = [root.index for root in topology.roots if root.type == name]
        mass = candidates.mass[:, columns]
        weight = np.repeat(candidates.weight[:, None], len(columns), axis=1)
        known = np.isfinite(mass)
        peak = known & candidates.right[:, columns] & rows["signal"][:, None]
        if len(topology.of_type(name)[0].slots) < 2 or not peak.any():
            continue
        low, high = quantile(mass[peak], WINDOW, weight[peak]).tolist()
        result[name] = {"window": [low, high], "edges": MASS_EDGES.tolist()} | {
            when: _spectrum(mass[inside := known & events[:, None]], weight[inside], low, high)
            for when, events in rows.items()
        }
    return result


def _spectrum(mass: Floats, weight: Floats, low: float, high: float) -> dict[str, Any]:
    """A histogram of weights, the share in the window, the median, and half the width of the central 68 %."""
    total = weight.sum()
    if not total > 0:
        nothing = np.full(len(MASS_EDGES) - 1, 0.0)
        return {"weights": nothing, "squares": nothing, "share": np.nan, "median": np.nan, "width": np.nan}
    down, middle, up = weighted_quantile(mass, (0.16, 0.5, 0.84), weight).tolist()
    return {
        "weights": np.histogram(mass, MASS_EDGES, weights=weight)[0],
        "squares": np.histogram(mass, MASS_EDGES, weights=weight**2)[0],
        "share": float(weight[(mass >= low) & (mass <= high)].sum() / total),
        "median": middle,
        "width": (up - down) / 2,
    }


# -- figures ----------------------------------------------------------------------------------------------


def _roc_plot(evaluation: Evaluation) -> Plot | None:
    series = []
    for k, (method, found) in enumerate(evaluation.results("background")):
        for name, curve in found["curve"].items():
            what, style = ("any particle", "-") if name == SOMETHING else ("complete", DASHED)
            label = f"{method.name}, P({what}), area {found['area'][name].value:.3f}"
            series.append(Series(label, curve["signal"], curve["background"], k, style))
    caption = (
        "Events above a cut on the probability that any particle is present, or that the event is complete. "
        "Background: events with 0 in the column `signal`, or else events of sources without labels."
    )
    return roc_plot("background", "Signal and background", caption, ("signal", "background"), series)


def _mass_plot(name: str, mass: dict[str, Any], cut: dict[str, float]) -> Plot | None:
    edges, series = np.array(mass["edges"]), []
    labels = {"signal": "signal", "before": "background", "after": "background, after the cut"}
    for (part, label), colour in zip(labels.items(), (RIGHT, INK, WRONG), strict=True):
        weights, squares = (np.array(mass[part][key]) for key in ("weights", "squares"))
        total = max(float(weights.sum()), 1e-300)
        share, error = weights / total, np.sqrt(squares) / total
        if part == "after":
            centre = (edges[1:] + edges[:-1]) / 2
            series.append(Series(label, centre, share, colour, "none", share - error, share + error))
        else:
            series.append(Series(label, edges, share, colour, filled=part == "signal"))
    caption = (
        f"Normalised to unit area. The cut requires P(nothing is present) of at most {1 - cut['something']:.2g}, "
        f"which keeps {cut['signal_efficiency']:.0%} of signal. The band has 68 % of the right candidates of "
        "signal: if its share of background is larger after the cut, the cut makes background peak."
    )
    axes_labels = f"mass of {plain(name)} candidates [GeV]", "share of candidates"

    def finish(axes: Axes) -> None:
        axes.axvspan(*mass["window"], color=GREY, alpha=0.12, linewidth=0)

    how: dict[str, Any] = {"x": (edges[0], edges[-1]), "room": 1.3, "finish": finish, "loc": "upper right"}
    file, title = f"background_mass_{name_of_file(name)}", f"Mass of {name} in background"
    return plot_series(file, title, caption, axes_labels, series, **how)
