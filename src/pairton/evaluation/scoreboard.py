"""What methods scored on the same events: tables, comparisons, and all of it as plain data for JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton._version import __version__
from pairton.evaluation import metrics
from pairton.evaluation.answers import Assignments
from pairton.evaluation.steps import Followed, recovery, recovery_difference
from pairton.events.domain import Domain
from pairton.reconstruction.assigning import Assign
from pairton.topology import Topology

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["Evaluation", "Method", "Promises"]

MASS_BINS = 8  # of equal numbers of events
MASS_STEP = 10.0  # GeV, to which their edges are rounded

Bools = npt.NDArray[np.bool_]
Table = dict[str, dict[str, metrics.Efficiency]]


class Promises(NamedTuple):
    """Probabilities, what came of them, and which are of fully labelled events; of events or of particles."""

    probability: npt.NDArray[Any]
    right: Bools
    full: Bools

    @staticmethod
    def concatenate(parts: Sequence[Promises]) -> Promises:
        return Promises(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass
class Method:
    """Something that answers, and what it scored so far."""

    name: str
    about: dict[str, Any]
    model: Model | None = None
    assign: Assign | None = None
    answers: Assignments | None = None
    domain: Domain | None = None  # jets that are used
    flows: bool = False  # follow its steps, with and without what they reveal
    jet_scale: float = 1.0  # of pT and energy of the jets it is given
    scores: list[metrics.Scores] = field(default_factory=list)
    promises: dict[str, list[Promises]] = field(default_factory=dict)  # of the event, of particles of each type
    steps: dict[str, list[Followed]] = field(default_factory=dict)  # decodings that are followed
    unanswered: int = 0  # events without an answer that have some truth
    nowhere: int = 0  # answers from a file that name jets which are not there

    def followed(self, kind: str | None = None) -> Followed:
        """The steps of a decoding, by default its own."""
        return Followed.concatenate(self.steps[kind or self.about["decoding"]])


@dataclass(frozen=True)
class Evaluation:
    """The result; `to_dict` is what `--json` writes."""

    topology: Topology
    inputs: list[str]
    selected: bool
    methods: list[Method]
    mass: npt.NDArray[np.float64]  # (n,): of the truth-matched jets of fully labelled events, NaN elsewhere
    mix: tuple[float, ...] | None

    def scores(self, method: Method) -> metrics.Scores:
        return metrics.Scores.concatenate(method.scores)

    def efficiency(self, method: Method) -> Table:
        return metrics.table(self.scores(method))

    def to_dict(self) -> dict[str, Any]:
        """Plain data. What stands at the top is that of the first method."""
        each = {method.name: self._method(method) for method in self.methods}
        first = self.scores(self.methods[0])
        result: dict[str, Any] = {
            "pairton_version": __version__,
            "inputs": self.inputs,
            "topology": self.topology.name,
            "selected": self.selected,
            "events": len(first),
            "complete": int(first.total[metrics.EVENT].sum()),
            "confidence": metrics.CONFIDENCE,
            **each[self.methods[0].name],
            "methods": each,
            "differences": [
                {
                    "first": one.name,
                    "second": other.name,
                    "efficiency": _plain(self.difference(one, other)),
                    **({"recovery": _cells(self.recovery(one, other))} if one.flows and other.flows else {}),
                }
                for k, one in enumerate(self.methods)
                for other in self.methods[k + 1 :]
            ],
            "spread": [
                {
                    "methods": [m.name for m in same],
                    "efficiency": _plain(metrics.spread(list(map(self.efficiency, same)))),
                }
                for same in self.seeds()
            ],
        }
        return _without_nan(result)  # type: ignore[no-any-return]

    def _method(self, method: Method) -> dict[str, Any]:
        scores = self.scores(method)
        edges = self.mass_edges()
        result = {
            "method": method.about,
            "efficiency": _plain(metrics.table(scores)),
            "mass": {
                "edges": edges,
                "efficiency": [c._asdict() for c in metrics.efficiency_against(scores, self.mass, edges)],
            },
            "calibration": {what: self.calibration(method, what) for what in method.promises},
            "calibration_all": {what: self.calibration_of_all(method, what) for what in method.promises},
            "limit": self.limit(method),
        }
        if self.mix is not None:
            result["reweighted"] = {
                "mix": dict(zip(self.topology.bins, self.mix, strict=True)),
                "efficiency": {k: v._asdict() for k, v in metrics.reweighted(scores, self.mix).items()},
            }
        if method.flows:
            result["flow"] = self.flow(method)
        return result

    def difference(self, one: Method, other: Method) -> dict[str, dict[str, metrics.Difference]]:
        return metrics.differences(self.scores(one), self.scores(other))

    def calibration(self, method: Method, what: str) -> dict[str, Any]:
        """Of fully labelled events, where everything that is asked for can be right."""
        found = Promises.concatenate(method.promises[what])
        return metrics.calibration(found.probability[found.full], found.right[found.full])

    def calibration_of_all(self, method: Method, what: str) -> dict[str, Any]:
        """Of every event, as in data, where nobody knows which are complete.

        Where a product has no jet, the event cannot be right, nor can a particle that needs it: they are wrong.
        """
        found = Promises.concatenate(method.promises[what])
        return metrics.calibration(found.probability, found.right, possible=found.full)

    def limit(self, method: Method) -> dict[str, dict[str, Any]]:
        """Mean probability of the answer against the share that is right, of fully labelled events, by bin.

        Calibrated probabilities cannot be beaten by another choice from the same network: their mean is its limit.
        """
        if metrics.EVENT not in method.promises:
            return {}
        found = Promises.concatenate(method.promises[metrics.EVENT])
        result = {}
        for cell, inside in self.scores(method).cells.items():
            chosen = found.full & inside
            means = metrics.calibration(found.probability[chosen], found.right[chosen])
            result[cell] = {name: means[name] for name in means if name not in ("bins", "error")}
        return result

    def flow(self, method: Method) -> dict[str, Any]:
        """Right and wrong steps of fully labelled events, from the first answer and step by step."""
        stages = [str(stage) for stage in self.topology.stages]
        each = {kind: method.followed(kind) for kind in method.steps}
        counts = {kind: metrics.flow(steps.right[steps.asked]) for kind, steps in each.items()}
        found: dict[str, Any] = {kind: _cells(recovery(steps)) for kind, steps in each.items()}
        one_pass, several = each
        found["difference"] = _cells(recovery_difference(each[several], each[one_pass]))
        return {"stages": stages, **counts, "recovery": found}

    def recovery(self, one: Method, other: Method) -> dict[str, metrics.Difference]:
        """What is found after a wrong first step: one minus the other, of events in which both took one."""
        return recovery_difference(one.followed(), other.followed())

    def mass_edges(self) -> list[float]:
        """Bins of about equal numbers of events, with round edges."""
        known = self.mass[np.isfinite(self.mass)]
        if not len(known):
            return []
        inner = np.round(np.quantile(known, np.linspace(0, 1, MASS_BINS + 1)) / MASS_STEP) * MASS_STEP
        inner[0] = np.floor(known.min() / MASS_STEP) * MASS_STEP
        inner[-1] = (np.floor(known.max() / MASS_STEP) + 1) * MASS_STEP
        return [float(edge) for edge in np.unique(inner)]

    def seeds(self) -> list[list[Method]]:
        """Methods that are one recipe and decoding, trained again."""
        groups: dict[str, list[Method]] = {}
        for method in self.methods:
            if method.model is not None:
                raw = method.model.metadata
                network = raw.get("network", raw.get("config"))
                if network:
                    recipe = {name: part for name, part in raw.get("recipe", {}).items() if name != "run"}
                    same = [network, recipe, method.about["decoding"], method.jet_scale]
                    key = json.dumps(same, sort_keys=True, default=str)
                    groups.setdefault(key, []).append(method)
        return [same for same in groups.values() if len(same) > 1]


# -- JSON --------------------------------------------------------------------------------------------------


def _plain(table: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {what: _cells(cells) for what, cells in table.items()}


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    return {cell: value._asdict() for cell, value in row.items()}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
