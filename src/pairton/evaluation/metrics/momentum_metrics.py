"""Momenta of the answer: pT and masses against the labelled objects, and pz of a neutrino against the true one.

The columns `neutrino_px`, `neutrino_py` and `neutrino_pz` of the events have the true momentum of a neutrino in
GeV, NaN for none. Only topologies with one neutrino are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.evaluation.metrics.head_metrics import Labelled, judge_number
from pairton.evaluation.plots import COLOURS, STYLES, Plot, draw_histograms, in_rows, legend, plain
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.statistics import Efficiency
from pairton.evaluation.tables import Table
from pairton.events.vectors import polar
from pairton.reconstruction.momenta import particle_momenta
from pairton.reconstruction.result import positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method
    from pairton.events import Events

__all__ = ["TRUE_MOMENTUM", "NeutrinoMomentum", "Resolution"]

CLOSE = 0.1  # a smaller relative difference counts as close
EDGES = (np.arange(-40, 42) - 0.5) / 40  # of the figure; right answers, at 0, are in the middle of a bin
Floats = npt.NDArray[np.float64]


class Resolution(Metric):
    """pT of the root particles, by falling pT, and the mass of their sum, relative to the truth.

    The truth is computed from the labelled objects as measured, so it shows the effect of wrong answers and not
    that of the detector.
    """

    name, title = "resolution", "Momenta of the answer"

    def count(self, chunk: Chunk, method: Method) -> dict[str, Floats] | None:
        events = chunk.events[chunk.events.complete]
        if not len(events):
            return None
        assert events.truth is not None
        found = positions(events, chunk.answers[method.name].assignment[chunk.events.complete])
        predicted, true = _quantities(events, found), _quantities(events, events.truth)
        weight = chunk.weight[chunk.events.complete]
        return {name: np.stack([predicted[name], true[name], weight], axis=1) for name in true}

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None:
            return None
        result = {}
        for name, values in counted.items():
            away, weight = _relative(values)
            if weight.sum() > 0:
                mean = float(np.average(away, weights=weight))
                variance = float(np.average((away - mean) ** 2, weights=weight))
                close = float(np.average(np.abs(away) <= CLOSE, weights=weight))
                moments = {"mean": mean, "deviation": float(np.sqrt(max(variance, 0.0)))}
                result[name] = {**moments, "close": close, "total": len(away)}
        return result or None

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        header = ["relative difference", "entries", "mean", "standard deviation", f"within {CLOSE:.0%}"]
        for method, found in evaluation.results(self.name):
            keys = ("total", "mean", "deviation", "close")
            rows = [[name, *(row[key] for key in keys)] for name, row in found.items()]
            yield Table(f"{method.title}, complete events", header, rows)

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        yield _plot(evaluation)


def _relative(values: Floats) -> tuple[Floats, Floats]:
    """The finite relative differences and their weights, from (n, 3): answer, truth, weight."""
    away = values[:, 0] / values[:, 1] - 1
    known = np.isfinite(away)
    return away[known], values[known, 2]


def _quantities(events: Events, assignment: npt.NDArray[np.integer[Any]]) -> dict[str, Floats]:
    """(n,) each: `pT(t1)`, `pT(t2)`, … by falling pT for each type of root, and `m(tt)` of their sum."""
    found, topology = particle_momenta(events, assignment), events.topology
    pt = polar(found.p4)["pt"]
    result: dict[str, Floats] = {}
    for name in dict.fromkeys(root.type for root in topology.roots):
        same = [root.index for root in topology.roots if root.type == name]
        ordered = -np.sort(-pt[:, same], axis=1)  # NaN stays last
        for k in range(len(same)):
            result[f"pT({name}{k + 1 if len(same) > 1 else ''})"] = ordered[:, k]
    return result | {f"m({name})": polar(p4)["mass"] for name, p4 in found.systems.items()}


def _plot(evaluation: Evaluation) -> Plot | None:
    counted = evaluation.counted("resolution", evaluation.methods[0]) or {}
    parts: list[dict[str, Any]] = []
    rows = []
    for name, values in counted.items():
        away, weight = _relative(values)
        if weight.sum() > 0:
            clipped = np.clip(away, EDGES[0], np.nextafter(EDGES[-1], 0))
            shares, k = np.histogram(clipped, EDGES, weights=weight)[0] / weight.sum(), len(parts)
            look = {"color": COLOURS[k % len(COLOURS)], "linestyle": STYLES[k % len(STYLES)]}
            parts.append({"H": shares, "histtype": "step", "label": plain(name), **look})
            rows += in_rows({"from": EDGES[:-1], "to": EDGES[1:], "share": shares.tolist()}, quantity=name)
    if not parts:
        return None

    def finish(axes: Axes) -> None:
        axes.set_yscale("log")
        axes.set_ylim(top=3)
        legend(axes, loc="upper right")

    labels = "answer / truth - 1", f"share of events / {EDGES[1] - EDGES[0]:.3f}"
    draw = draw_histograms(*labels, EDGES, parts, finish)
    caption = (
        f"{evaluation.methods[0].name}, complete events: effect of wrong answers on momenta. The truth is "
        "computed from the labelled objects as measured. The first and last bins include underflow and overflow."
    )
    return Plot("resolution", "Momenta of the answer", caption, draw, rows)


# -- the longitudinal momentum of a neutrino --------------------------------------------------------------

TRUE_MOMENTUM = ("neutrino_px", "neutrino_py", "neutrino_pz")
TRUTH = "true objects"  # row for the neutrino that follows from the true assignment
SMALLEST = 5.0  # GeV: if the median pT is below, the columns have another unit


class Solved(NamedTuple):
    """The true neutrino of some events, and the solutions for it."""

    true: Floats  # (n, 3)
    pz: Floats  # (n, 2): the solution that is used, and the other one; NaN for none
    real: npt.NDArray[np.bool_]  # (n,)
    weight: Floats  # (n,)


class NeutrinoMomentum(Metric):
    """pz of the neutrino minus the true one, for every answer and for the true assignment."""

    name, title = "neutrino_pz", "Longitudinal momentum of the neutrino"

    def count(self, chunk: Chunk, method: Method) -> dict[str, Solved] | None:
        events = chunk.events
        if len(events.topology.neutrinos) != 1 or not all(name in events.columns for name in TRUE_MOMENTUM):
            return None
        found = {method.name: _solved(chunk, positions(events, chunk.answers[method.name].assignment))}
        if method is chunk.methods[0] and events.truth is not None:
            found[TRUTH] = _solved(chunk, events.truth)
        return found

    def result(self, evaluation: Evaluation, method: Method) -> dict[str, Any] | None:
        counted = evaluation.counted(self.name, method)
        if counted is None or _unit_is_wrong(counted[method.name]):
            return None
        found = {name: _summary(solved) for name, solved in counted.items()}
        return found[method.name] | ({"true_objects": found[TRUTH]} if TRUTH in found else {})

    def tables(self, evaluation: Evaluation) -> Iterator[Table]:
        found = {method.title: evaluation.result(self.name, method) for method in evaluation.methods}
        counted = evaluation.counted(self.name, evaluation.methods[0])
        if counted is not None and _unit_is_wrong(next(iter(counted.values()))):
            note = f"the median pT is below {SMALLEST:g}, so these columns are not in GeV and are not compared"
            yield Table(", ".join(TRUE_MOMENTUM), notes=[note])
        known = {name: result for name, result in found.items() if result is not None}
        rows = [_row(TRUTH, result["true_objects"]) for result in known.values() if "true_objects" in result]
        rows += [_row(name, result) for name, result in known.items()]
        if rows:
            header = ["", "neutrinos", "real solutions", "better one used", "bias [GeV]", "resolution [GeV]"]
            yield Table("pz of the neutrino, minus the true one", header, rows)


def _solved(chunk: Chunk, assignment: npt.NDArray[np.integer[Any]]) -> Solved:
    events = chunk.events
    true = np.stack([np.asarray(events.columns[name], np.float64) for name in TRUE_MOMENTUM], axis=1)
    found = particle_momenta(events, assignment).neutrinos
    return Solved(true, found.p4[:, :, 0, 2], found.solutions > 0, chunk.weight)


def _unit_is_wrong(solved: Solved) -> bool:
    size = np.hypot(*solved.true[np.isfinite(solved.true).all(axis=1), :2].T)
    return bool(len(size)) and float(np.median(size)) < SMALLEST


def _summary(solved: Solved) -> dict[str, Any]:
    known = np.isfinite(solved.true).all(axis=1) & np.isfinite(solved.pz).all(axis=1)
    pz, true, real = solved.pz[known], solved.true[known, 2], solved.real[known]
    better = np.abs(pz[real, 0] - true[real]) <= np.abs(pz[real, 1] - true[real])
    weight = solved.weight[known]
    found = judge_number(Labelled(true[:, None], pz[:, :1], weight))
    return {
        "neutrinos": int(known.sum()),
        "real": Efficiency.of(real, np.ones(len(real)), weight),
        "better": Efficiency.of(better, np.ones(len(better)), weight[real]),
        "bias": found["bias"],
        "resolution": found["resolution"],
    }


def _row(name: str, result: dict[str, Any]) -> list[Any]:
    return [name, *(result[key] for key in ("neutrinos", "real", "better", "bias", "resolution"))]
