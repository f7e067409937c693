"""What a report needs beyond efficiencies, gathered while events stream by: masses, and events worth a look."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.evaluation import metrics
from pairton.events import Events
from pairton.reconstruction.assigning import Answer
from pairton.reconstruction.reconstruction import momenta

if TYPE_CHECKING:
    from pairton.evaluation.scoreboard import Method

__all__ = ["GALLERY", "KINDS", "Collector", "Exhibit", "Peaks"]

MASS_EDGES = np.linspace(0, 1000, 501)  # GeV; figures show a part, with wider bins where events are few
GALLERY = 3  # events of each kind
KINDS = ("most confident, right", "most confident, wrong", "most uncertain")

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Exhibit:
    """An event of the gallery: one row of Events, its row in the input, and the answer to it."""

    order: float  # smaller comes first
    events: Events
    number: int
    assignment: npt.NDArray[np.int64]  # (S,): positions in `events.jets`
    event_probability: float
    particle_probability: npt.NDArray[np.float64]


@dataclass
class Peaks:
    """Masses of the particles of one type that were predicted: how many in each bin, right and wrong."""

    right: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(MASS_EDGES) - 1, dtype=np.int64))
    wrong: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(MASS_EDGES) - 1, dtype=np.int64))


class Collector:
    """To be given to `pairton.evaluation.evaluating.evaluate` as `observe`."""

    def __init__(self) -> None:
        self.peaks: dict[str, dict[str, Peaks]] = {}  # method -> type -> masses
        self.gallery: dict[str, list[Exhibit]] = {kind: [] for kind in KINDS}
        self._first: str | None = None
        self._n_jets: list[Ints] = []

    def __call__(self, method: Method, events: Events, rows: Ints, answer: Answer, scores: metrics.Scores) -> None:
        """Add the events of a window; `answer` has jets by their number in the input."""
        self._first = self._first or method.name
        if method.name == self._first:
            self._n_jets.append(events.n_jets)
        (full,) = np.nonzero(scores.total[metrics.EVENT] > 0)
        some = events[full]
        places = positions(some, answer.assignment[full])
        self._add_masses(method.name, some, places)
        if method.name == self._first:
            found = Answer(places, answer.particle_probability[full], answer.event_probability[full])
            self._add_exhibits(some, rows[full], found, scores.correct[metrics.EVENT][full] > 0)

    def _add_masses(self, name: str, events: Events, places: Ints) -> None:
        topology = events.topology
        each = self.peaks.setdefault(name, {kind: Peaks() for kind in topology.types})
        assert events.truth is not None
        mass = momenta(events, places)["mass"]
        right = metrics.matches(topology, places, events.truth)
        for kind, peaks in each.items():
            columns = [particle.index for particle in topology.of_type(kind)]
            values, good = mass[:, columns].ravel(), right[:, columns].ravel()
            peaks.right += np.histogram(values[good & np.isfinite(values)], MASS_EDGES)[0]
            peaks.wrong += np.histogram(values[~good & np.isfinite(values)], MASS_EDGES)[0]

    def _add_exhibits(self, events: Events, rows: Ints, answer: Answer, right: npt.NDArray[np.bool_]) -> None:
        chance = answer.event_probability
        known = np.isfinite(chance)
        for kind, chosen, order in zip(
            KINDS, (known & right, known & ~right, known), (-chance, -chance, chance), strict=True
        ):
            (at,) = np.nonzero(chosen)
            best = at[np.argsort(order[at], kind="stable")[:GALLERY]]
            new = [
                Exhibit(
                    float(order[k]),
                    events[k : k + 1],
                    int(rows[k]),
                    answer.assignment[k].astype(np.int64),
                    float(chance[k]),
                    np.asarray(answer.particle_probability[k]),
                )
                for k in best
            ]
            merged = [*self.gallery[kind], *new]
            self.gallery[kind] = sorted(merged, key=lambda exhibit: (exhibit.order, exhibit.number))[:GALLERY]

    @property
    def n_jets(self) -> Ints:
        """(n,): jets of every event."""
        return np.concatenate(self._n_jets)


def positions(events: Events, stored: Ints) -> npt.NDArray[np.int64]:
    """Jets by their number in the input (n, S) as positions in `events.jets`; -1 for none."""
    if not len(stored):
        return stored.astype(np.int64)
    if "index" not in ak.fields(events.jets):
        return np.where(stored < events.n_jets[:, None], stored, -1).astype(np.int64)
    index = ak.to_numpy(ak.fill_none(ak.pad_none(events.stored_index, int(events.n_jets.max()), axis=1), -2))
    same = index[:, None, :] == stored[:, :, None]  # (n, S, N)
    return np.where(same.any(axis=2), same.argmax(axis=2), -1)
