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
from pairton.decoding.set_tables import allowed_nodes, set_tables
from pairton.evaluation.metrics.probabilities import GRID
from pairton.evaluation.plots import (
    COLOURS,
    DASHED,
    GREY,
    INK,
    RIGHT,
    WRONG,
    Line,
    Plot,
    draw_cells,
    draw_histograms,
    draw_lines,
    in_rows,
    legend,
    mixed,
    name_of_file,
    new_axes,
    plain,
)
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.scores import matches
from pairton.evaluation.statistics import area, cuts_at_efficiency, effective_entries, quantile, weighted_quantile
from pairton.evaluation.tables import Table
from pairton.reconstruction.result import momenta, positions
from pairton.topology import Topology
from pairton.topology.assignments import present

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["Background", "Patterns", "Seen", "true_pattern"]

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

    rows = []
    for true, counts, sums_of_weights in zip(names, events.tolist(), weights.tolist(), strict=True):
        columns = {"most_probable": names, "events": counts, "weight": sums_of_weights}
        rows += in_rows(columns, true=true)
    caption = "Numbers of events; the colour is the share of the row. Events on the diagonal are recognised."
    return Plot("patterns", "Particles that are present", caption, draw, rows)


def true_pattern(topology: Topology, truth: Ints) -> npt.NDArray[np.intp]:
    """(n,): the index in `plan_of(topology).patterns` of the pattern of each truth (n, S).

    >>> from pairton.topology import load_topology
    >>> truth = np.array([[0, 1, 2, 3, 4, 5], [0, -1, 2, 3, 4, 5], [-1, 1, -1, 3, 4, -1], [-1] * 6])
    >>> true_pattern(load_topology("ttbar_allhad"), truth).tolist()  # t + t, t, W, nothing
    [0, 2, 4, 5]
    """
    tables = set_tables(topology, allowed_nodes(topology, topology.slots_per_kind))
    return tables.pattern_of(present(topology, truth)[:, [slot.particle for slot in topology.slots]])


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
    mass: Floats  # (n, roots), GeV
    right: Bools  # (n, roots)

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

    def count(self, chunk: Chunk, method: Method) -> Seen | None:
        answer, events = chunk.answers[method.name], chunk.events
        if not np.isfinite(answer.pattern_probability).any():
            return None
        roots = [root.index for root in events.topology.roots]
        nothing = [pattern.entry < 0 for pattern in plan_of(events.topology).patterns].index(True)
        column = np.asarray(events.columns[COLUMN], np.float64) if COLUMN in events.columns else None
        return Seen(
            events.ids[:, 0],
            np.asarray(events.present.any(axis=1)),
            np.full(len(events), np.nan) if column is None else column,
            chunk.weight,
            1 - answer.pattern_probability[:, nothing],
            answer.pattern_probability[:, 0],
            momenta(events, positions(events, answer.assignment))["mass"][:, roots],
            matches(events.topology, answer.assignment, chunk.truth)[:, roots],
        )

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        seen: Seen | None = evaluation.counted(self.name, method)
        if seen is None:
            return None
        known = np.isfinite(seen.something)
        other, weight = seen.background(), seen.weight
        signal, background = known & ~other, known & other
        if not signal.any() or not background.any():
            return None
        numbers = {SOMETHING: seen.something, COMPLETE: seen.complete}
        curves = {
            name: cuts_at_efficiency(number[known], ~other[known], GRID, weight[known])
            for name, number in numbers.items()
        }
        sizes = {
            name: {
                "events": int(rows.sum()),
                "weight": weight[rows].sum(),
                "effective": effective_entries(weight[rows]),
            }
            for name, rows in (("signal", signal), ("background", background))
        }
        cut = curves[SOMETHING].cut[GRID.index(CUT)]
        return {
            **sizes,
            "area": {name: area(number[known], ~other[known], weight[known]) for name, number in numbers.items()},
            "curve": {
                name: {"signal": c.efficiency, "background": c.background_efficiency, "cut": c.cut}
                for name, c in curves.items()
            },
            "cut": {"something": cut, "signal_efficiency": CUT},
            "mass": _masses(evaluation.topology, seen, signal, background, seen.something >= cut),
        }

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        for method, found in evaluation.results(self.name):
            rows = []
            for name, title in ((SOMETHING, "any particle present"), (COMPLETE, "event complete")):
                curve, under = found["curve"][name], found["area"][name]
                kept = [curve["background"][GRID.index(share)] for share in SHOWN]
                rows.append([title, str(under), *kept])
            header = ["probability", "area", *(f"at {share:.0%}" for share in SHOWN)]
            counts = [
                f"{found[name]['events']} events of {name} (effective number {found[name]['effective']:,.0f})"
                for name in ("signal", "background")
            ]
            yield Table(f"{method.title}, share of background kept at signal efficiencies", header, rows, counts)
            masses = [
                [
                    f"{name}, {mass['window'][0]:.0f} to {mass['window'][1]:.0f} GeV",
                    *(mass[when]["share"] for when in ("signal", "before", "after")),
                    *(f"{mass[when]['median']:.0f} ± {mass[when]['width']:.0f}" for when in ("before", "after")),
                ]
                for name, mass in found["mass"].items()
            ]
            header = [
                "candidates in the peak",
                "signal",
                "background",
                "after the cut",
                "median ± width [GeV]",
                "after the cut",
            ]
            nothing = 1 - found["cut"]["something"]
            note = f"the cut keeps {CUT:.0%} of signal: P(nothing is present) of at most {nothing:.2g}"
            if masses:
                yield Table(f"{method.title}, masses of background", header, masses, [note])

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        yield _roc_plot(evaluation)
        found = evaluation.result(self.name, evaluation.methods[0]) or {"mass": {}}
        for name, mass in found["mass"].items():
            yield _mass_plot(name, mass, found["cut"])


def _masses(
    topology: Topology,
    seen: Seen,
    signal: Bools,
    background: Bools,
    passes: Bools,
) -> dict[str, Any]:
    """Root type -> window of the peak, and mass spectra of signal, and of background before and after a cut."""
    result = {}
    for name in dict.fromkeys(root.type for root in topology.roots):
        columns = [k for k, root in enumerate(topology.roots) if root.type == name]
        mass, right = seen.mass[:, columns], seen.right[:, columns]
        weight = np.repeat(seen.weight[:, None], len(columns), axis=1)
        known = np.isfinite(mass)
        peak = mass[known & right & signal[:, None]]
        if len(topology.of_type(name)[0].slots) < 2 or not len(peak):
            continue
        low, high = quantile(peak, WINDOW, weight[known & right & signal[:, None]])
        rows = {"signal": signal, "before": background, "after": background & passes}
        result[name] = {"window": [float(low), float(high)], "edges": MASS_EDGES.tolist()} | {
            when: _spectrum(mass[chosen := known & events[:, None]], weight[chosen], low, high)
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
    lines, rows = [], []
    for k, (method, found) in enumerate(evaluation.results("background")):
        for name, curve in found["curve"].items():
            what, style = ("any particle", "-") if name == SOMETHING else ("complete", DASHED)
            label = f"{plain(method.name)}, P({what}): {found['area'][name].value:.3f}"
            lines.append(Line(label, curve["signal"], curve["background"], COLOURS[k % len(COLOURS)], style))
            rows += in_rows(curve, method=method.name, cut_on=name)
    if not lines:
        return None
    under: dict[str, Any] = {"loc": "upper left", "title": "area under the curve"}
    draw = draw_lines("share of signal kept", "share of background kept", lines, diagonal=(0, 1), **under)
    caption = (
        "Events above a cut on the probability that any particle is present, or that the event is complete. "
        "Background: events with 0 in the column `signal`, or else events of sources without labels."
    )
    return Plot("background", "Signal and background", caption, draw, rows)


def _mass_plot(name: str, mass: dict[str, Any], cut: dict[str, float]) -> Plot:
    edges = np.array(mass["edges"])
    looks: dict[str, dict[str, Any]] = {
        "signal": {"label": "signal", "histtype": "fill", "color": RIGHT, "alpha": 0.3},
        "before": {"label": "background", "histtype": "step", "color": INK},
        "after": {"label": "background, after the cut", "histtype": "errorbar", "color": WRONG, "markersize": 4},
    }
    totals = {part: max(float(np.sum(mass[part]["weights"])), 1e-300) for part in looks}
    looks["after"]["yerr"] = np.sqrt(mass["after"]["squares"]) / totals["after"]

    def finish(axes: Axes) -> None:
        axes.axvspan(*mass["window"], color=GREY, alpha=0.12, linewidth=0)
        axes.set_ylim(0, 1.3 * float(axes.dataLim.ymax))
        legend(axes, loc="upper right")

    parts = [{"H": mass[part]["weights"] / totals[part], **look} for part, look in looks.items()]
    labels = f"mass of {plain(name)} candidates [GeV]", "share of candidates"
    draw = draw_histograms(*labels, edges, parts, finish)
    weights = {part: mass[part]["weights"].tolist() for part in looks}
    rows = in_rows({"from": edges[:-1], "to": edges[1:], **weights})
    caption = (
        f"Normalised to unit area. The cut requires P(nothing is present) of at most {1 - cut['something']:.2g}, "
        f"which keeps {cut['signal_efficiency']:.0%} of signal. The band has 68 % of the right candidates of "
        "signal: if its share of background is larger after the cut, the cut makes background peak."
    )
    return Plot(f"background_mass_{name_of_file(name)}", f"Mass of {name} in background", caption, draw, rows)
