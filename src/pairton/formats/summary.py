"""Summary of the events in files, for `pairton inspect`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import InputError
from pairton.events import Events, Status
from pairton.events.event_checks import MARKS
from pairton.topology import JET, Topology
from pairton.topology.kinds import KINDS

__all__ = ["Summary"]


@dataclass
class Summary:
    """Counts of events and objects, filled chunk by chunk.

    >>> from pairton.events.objects import make_jets
    >>> jets = make_jets(**{name: [[50.0] * 4] for name in ("pt", "eta", "phi", "mass", "btag")})
    >>> summary = Summary()
    >>> summary.add(Events(jets, "hh4b", truth=[[0, 1, 2, -1]]), "parquet")
    >>> summary.to_dict()["objects"]["jet"]["counts"], summary.to_dict()["present"]
    ({'4': 1}, {'H': 1})
    """

    formats: list[str] = field(default_factory=list)
    topology: Topology | None = None
    events: int = 0
    counts: dict[str, Counter[int]] = field(default_factory=dict)  # kind -> objects per event -> number of events
    fields: dict[str, list[str]] = field(default_factory=dict)  # kind -> fields in the first file
    usable: Counter[str] = field(default_factory=Counter)  # kind -> objects that passed their identification
    passing: dict[str, Counter[int]] = field(default_factory=dict)  # like counts, for objects that pass the cuts
    medians: dict[str, float] = field(default_factory=dict)  # kind -> median pT in the first chunk, GeV
    others: list[str] = field(default_factory=list)  # collections that are not read
    selected: int = 0
    bad: int = 0  # events with a bad object
    present: Counter[str] = field(default_factory=Counter)
    complete: int = 0
    has_truth: bool = False
    has_weights: bool = False
    sum_of_weights: float = 0.0
    sum_of_squares: float = 0.0  # of the weights
    first: Events | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # of the first file
    rejected: dict[str, Counter[str]] = field(
        default_factory=dict
    )  # kind -> reason -> objects that are not usable
    cut: dict[str, Counter[str]] = field(
        default_factory=dict
    )  # kind -> reason -> usable objects that fail the cuts
    lost: Counter[str] = field(
        default_factory=Counter
    )  # reason -> events that fail the selection, each counted once
    taggers: list[dict[str, Any]] = field(default_factory=list)  # scores of jets in the first file
    tagged: tuple[int, int] = (0, 0)  # number of b-tagged jets, and of all usable jets

    def add(self, events: Events, format: str) -> None:
        if self.topology not in (None, events.topology):
            raise InputError("the files have different topologies: inspect them separately, or give --topology")
        self.topology = events.topology
        self.metadata = self.metadata or dict(events.metadata)
        if format not in self.formats:
            self.formats.append(format)
        if self.first is None and len(events):
            self.first = events[:1]
            for kind in (events.topology.main_kind, *(kind for kind in events.objects if KINDS[kind].transverse)):
                pt = np.asarray(ak.flatten(events.objects[kind].pt))
                self.medians |= {kind: float(np.median(pt))} if len(pt) else {}
        self.events += len(events)
        if JET in events.objects and "btag" in ak.fields(events.jets):
            tags = np.asarray(ak.flatten(events.jets.btag[events.usable[JET]]))
            self.tagged = self.tagged[0] + int((tags > 0.5).sum()), self.tagged[1] + len(tags)
        for kind, objects in events.objects.items():
            self.fields.setdefault(kind, [name for name in ak.fields(objects) if name not in MARKS])
            self.usable[kind] += int(ak.sum(events.usable[kind]))
            passing = np.asarray(ak.sum(events.passes[kind], axis=1), dtype=np.int64)
            for kept, numbers in ((self.counts, events.counts[kind]), (self.passing, passing)):
                counts = np.bincount(numbers)
                per_event = kept.setdefault(kind, Counter())
                per_event.update({int(n): int(counts[n]) for n in np.flatnonzero(counts)})
            cuts, usable, pt = events.topology.selection.cuts(kind), events.usable[kind], objects.pt
            if cuts.pt:
                soft = int(ak.sum(usable & (pt < cuts.pt)))
                self.cut.setdefault(kind, Counter())[f"below {cuts.pt:g} GeV"] += soft
            if cuts.abs_eta < np.inf:
                wide = int(ak.sum(usable & (pt >= cuts.pt) & (abs(objects.eta) > cuts.abs_eta)))
                self.cut.setdefault(kind, Counter())[f"beyond |eta| {cuts.abs_eta:g}"] += wide
        counted = np.zeros(len(events), dtype=bool)
        for reason, failed in events.failures.items():
            self.lost[reason] += int((failed & ~counted).sum())
            counted |= failed
        self.selected += int(events.selected.sum())
        self.bad += int((events.status == Status.BAD_OBJECT).sum())
        self.has_truth |= events.truth is not None
        self.has_weights |= events.weights is not None
        if events.weights is not None:
            self.sum_of_weights += float(events.weights.sum())
            self.sum_of_squares += float((events.weights**2).sum())
        for name in events.topology.types:
            same = [particle.index for particle in events.topology.of_type(name)]
            self.present[name] += int(events.present[:, same].any(axis=1).sum())
        self.complete += int(events.complete.sum())

    @property
    def effective(self) -> float:
        """The effective number of events: (sum of weights)^2 / (sum of squared weights)."""
        return self.sum_of_weights**2 / self.sum_of_squares if self.sum_of_squares else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "format": ", ".join(self.formats),
            "events": self.events,
            "objects": {
                kind: {
                    "fields": self.fields[kind],
                    "counts": {str(n): counts[n] for n in sorted(counts)},
                    "usable": self.usable[kind],
                    **_counted(rejected=self.rejected.get(kind), cut=self.cut.get(kind)),
                    "passing": {str(n): self.passing[kind][n] for n in sorted(self.passing[kind])},
                }
                for kind, counts in self.counts.items()
            },
            "others": self.others,
            "median_pt": self.medians,
            "selected": self.selected,
            **_counted(lost=self.lost),
            "present": dict(self.present),
            "complete": self.complete,
            **({"weights": {"sum": self.sum_of_weights, "effective": self.effective}} if self.has_weights else {}),
            "topology": None if self.topology is None else self.topology.name,
            "taggers": self.taggers,
            "tagged": {"b": self.tagged[0], "jets": self.tagged[1]},
            "metadata": self.metadata,
        }


def _counted(**counts: Counter[str] | None) -> dict[str, dict[str, int]]:
    """Counts by reason, without those of 0."""
    return {name: dict(+reasons) for name, reasons in counts.items() if reasons and reasons.total()}
