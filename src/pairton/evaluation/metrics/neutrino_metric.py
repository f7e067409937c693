"""The resolution of the longitudinal momentum of a neutrino, for events with the true momentum.

The columns `neutrino_px`, `neutrino_py` and `neutrino_pz` of the events have the true momentum in GeV, NaN for
none. Only topologies with one neutrino are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.evaluation.metrics.head_metrics import Labelled, judge_number
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.statistics import Efficiency
from pairton.evaluation.tables import Table
from pairton.reconstruction.momenta import particle_momenta
from pairton.reconstruction.result import positions

if TYPE_CHECKING:
    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["TRUE_MOMENTUM", "NeutrinoMomentum"]

TRUE_MOMENTUM = ("neutrino_px", "neutrino_py", "neutrino_pz")
TRUTH = "true objects"  # row for the neutrino that follows from the true assignment
SMALLEST = 5.0  # GeV: if the median pT is below, the columns have another unit

Floats = npt.NDArray[np.float64]


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
