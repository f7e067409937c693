"""The result of an evaluation: methods, results of metrics, tables, and plain data for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.plain import as_plain
from pairton._version import __version__
from pairton.decoding import Decoded
from pairton.evaluation import metrics as counting
from pairton.evaluation import tables
from pairton.evaluation.answers import Assignments
from pairton.evaluation.intervals import effective, even
from pairton.evaluation.measures import Probabilities
from pairton.evaluation.registry import Metric
from pairton.evaluation.steps import FOLLOWED
from pairton.events import Events
from pairton.events.acceptance import Accepted, accept
from pairton.events.domain import Bounds, Domain
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.topology import JET, Topology

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["Evaluation", "Method"]

WIDTH = 120  # characters, of tables as text


@dataclass
class Method:
    """A method to evaluate (a model with a decoding, a baseline, a file of answers), and the counts of metrics."""

    name: str
    about: dict[str, Any]
    ask: Callable[[Method, Events, npt.NDArray[np.intp]], Decoded]  # itself, events, rows of the input
    model: Model | None = None
    decoding: str | None = None  # of the model
    answers: Assignments | None = None  # from a file
    domain: Domain = field(default_factory=Domain)  # range of objects that are used
    inputs: Inputs | None = None  # fields of objects that it needs; None: only the four-momentum
    settings: RunSettings = DEFAULT_SETTINGS
    jet_scale: float = 1.0  # factor on pT and energy of all jets
    counts: dict[str, list[Any]] = field(default_factory=dict)  # metric -> one entry per chunk
    unanswered: int = 0  # number of events with a true particle but without an answer
    unknown_objects: int = 0  # number of answers from a file that name objects which do not exist

    @property
    def title(self) -> str:
        """Its name, and its decoding unless the name contains it."""
        return f"{self.name} ({self.decoding})" if self.decoding and self.decoding not in self.name else self.name

    @property
    def takes_steps(self) -> bool:
        """Whether `pairton.evaluation.steps` follows its steps."""
        reads = self.model is not None and self.model.info.takes_tokens
        return reads and self.decoding in FOLLOWED and self.jet_scale == 1

    def accept(self, events: Events) -> Accepted:
        """The objects that the method uses."""
        inputs = self.inputs or Inputs(tuple((kind, ()) for kind in events.topology.kinds))
        most, cuts = self.settings.max_objects, self.settings.cuts
        needs = () if self.model is None else self.settings.needs(self.model)
        accepted = accept(events, self.domain, inputs, max_objects=most, cuts=cuts, needs=needs)
        if self.jet_scale == 1:
            return accepted
        scales = np.where(np.isin(inputs.columns(JET), ("pt", "energy")), self.jet_scale, 1).astype(np.float32)
        nodes = accepted.nodes
        return replace(accepted, nodes=Nodes({**nodes.values, JET: nodes.values[JET] * scales}, nodes.masks))


@dataclass(frozen=True)
class Evaluation:
    """The result of `pairton.evaluate`; see `table` and `to_dict`."""

    topology: Topology
    inputs: list[str]
    selected: bool
    methods: list[Method]
    metrics: Mapping[str, Metric]
    mix: tuple[float, ...] | None
    cuts: Bounds = field(default_factory=dict)  # of objects that are used and labelled
    objects_used: str = ""  # the same in words, and the other choice
    _known: dict[tuple[str, ...], Any] = field(default_factory=dict, repr=False)

    def counted(self, metric: str, method: Method) -> Any:
        """The counts of a metric for a method, merged over all events; None if there are none."""
        key = ("counted", metric, method.name)
        if key not in self._known:
            parts = method.counts.get(metric)
            self._known[key] = self.metrics[metric].merge(parts) if parts else None
        return self._known[key]

    def result(self, metric: str, method: Method | None = None) -> Any:
        """The result of a metric for a method, or its comparison of all methods; None if there is none."""
        key = ("result", metric, "" if method is None else method.name)
        if key not in self._known:
            entry = self.metrics[metric]
            self._known[key] = entry.comparison(self) if method is None else entry.result(self, method)
        return self._known[key]

    def scores(self, method: Method) -> counting.Scores:
        """The numbers of right and possible answers per event."""
        found: counting.Scores = self.counted("efficiency", method)
        return found

    def efficiency(self, method: Method) -> dict[str, dict[str, counting.Efficiency]]:
        """`event` and each type -> multiplicity bin or `inclusive` -> efficiency."""
        found: dict[str, dict[str, counting.Efficiency]] = self.result("efficiency", method)
        return found

    def probabilities(self, method: Method) -> dict[str, Probabilities]:
        """`event` and each type -> predicted probabilities, if the method gives any."""
        counted: dict[str, Probabilities] = self.counted("calibration", method)
        return {what: each for what, each in counted.items() if np.isfinite(each.probability).any()}

    def knows_patterns(self, method: Method) -> bool:
        """Whether the method gives the probability that particles are missing."""
        return counting.COMPLETE in self.probabilities(method)

    def if_complete(self, method: Method) -> npt.NDArray[np.float64]:
        """(n,): the probability of each answer, given that the event is complete."""
        known = self.probabilities(method)
        return np.asarray(known.get(counting.IF_COMPLETE, known[counting.EVENT]).probability, dtype=np.float64)

    @property
    def weighted(self) -> bool:
        """Whether the events have unequal weights."""
        return not even(self.scores(self.methods[0]).weight)

    # -- output --------------------------------------------------------------------------------------------

    def summary(self) -> list[str]:
        """Lines with the number of events, and the number without an answer per method."""
        first = self.scores(self.methods[0])
        labelled = {what: int(total.sum()) for what, total in first.total.items()}
        complete = labelled.pop(counting.EVENT)
        listed = ", ".join(f"{count} {what}" for what, count in labelled.items())
        chosen = "selected " if self.selected else ""
        number = f" (effective number {effective(first.weight):,.0f})" if self.weighted else ""
        lines = [f"{len(first)} {chosen}events with truth{number}, {complete} complete; labelled: {listed}"]
        lines += [self.objects_used] if self.objects_used else []
        cuts = "" if self.selected else "; --select leaves out events that fail the selection"
        return lines + [
            f"{method.name}: {method.unanswered} without an answer, which count as wrong{cuts}"
            for method in self.methods
            if method.unanswered
        ]

    def tables(self) -> list[tables.Table]:
        """The tables of all metrics."""
        return [table for metric in self.metrics.values() for table in metric.tables(self)]

    def table(self, width: int = WIDTH) -> str:
        """All tables as text."""
        from rich.console import Console

        text = StringIO()
        tables.show(Console(file=text, width=width), self.tables())
        return "\n".join([*self.summary(), text.getvalue()])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` writes it; the entries at the top level are those of the first method."""
        each = {method.name: {"method": method.about, **self._results(method)} for method in self.methods}
        first = self.scores(self.methods[0])
        result: dict[str, Any] = {
            "pairton_version": __version__,
            "inputs": self.inputs,
            "topology": self.topology.name,
            "selected": self.selected,
            "cuts": self.cuts,
            "events": len(first),
            **({"weights": self._weights()} if self.weighted else {}),
            "complete": first.total[counting.EVENT].sum(),
            "confidence": counting.CONFIDENCE,
            **each[self.methods[0].name],
            "methods": each,
            **self._results(None),
        }
        plain: dict[str, Any] = as_plain(result)
        return plain

    def _weights(self) -> dict[str, float | int]:
        """A summary of the weights."""
        weight = self.scores(self.methods[0]).weight
        return {"sum": float(weight.sum()), "effective": effective(weight), "negative": int((weight < 0).sum())}

    def _results(self, method: Method | None) -> dict[str, Any]:
        found = {name: self.result(name, method) for name in self.metrics}
        return {name: result for name, result in found.items() if result is not None}
