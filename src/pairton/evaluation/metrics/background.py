"""Signal against background: how well they are separated, and whether a cut makes background peak in mass.

Background are the events whose column `signal` is 0. Without that column, they are all events of sources without
any label, such as a sample of `pairton generate multijet`. Event weights are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.evaluation.plots import (
    COLOURS,
    DASHED,
    GREY,
    INK,
    RIGHT,
    WRONG,
    Line,
    Plot,
    draw_histograms,
    draw_lines,
    in_rows,
    legend,
    name_of_file,
    plain,
)
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.scores import matches
from pairton.evaluation.statistics import area, cuts_at_efficiency, effective_entries, quantile, weighted_quantile
from pairton.evaluation.tables import Table
from pairton.reconstruction.result import momenta, positions
from pairton.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["Background", "Seen"]

COLUMN = "signal"
FEWEST = 20  # a source without labels needs so many events to be called background
SHOWN = (0.9, 0.7, 0.5, 0.3)  # efficiencies for signal in the table
GRID = tuple(k / 100 for k in range(1, 101))
CUT = 0.5  # signal efficiency of the cut before and after which masses are shown
MASS_EDGES = np.linspace(0, 500, 51)  # GeV
WINDOW = (0.16, 0.84)  # quantiles of the mass of right candidates, which define the peak
SOMETHING, COMPLETE = "something", "complete"


@dataclass(frozen=True)
class Seen:
    """What the metric needs of each event."""

    source: npt.NDArray[np.uint64]
    labelled: npt.NDArray[np.bool_]
    signal: npt.NDArray[np.float64]  # the column `signal`; NaN if there is none
    weight: npt.NDArray[np.float64]
    something: npt.NDArray[np.float64]  # probability that any particle is present
    complete: npt.NDArray[np.float64]
    mass: npt.NDArray[np.float64]  # (n, roots), GeV
    right: npt.NDArray[np.bool_]  # (n, roots)

    def background(self) -> npt.NDArray[np.bool_]:
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
    signal: npt.NDArray[np.bool_],
    background: npt.NDArray[np.bool_],
    passes: npt.NDArray[np.bool_],
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


def _spectrum(
    mass: npt.NDArray[np.float64], weight: npt.NDArray[np.float64], low: float, high: float
) -> dict[str, Any]:
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


# -- figures -----------------------------------------------------------------------------------------------


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
