"""Metrics that only the page uses: masses of candidates, and a gallery of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation import metrics
from pairton.evaluation.registry import Chunk, Metric
from pairton.events import Events
from pairton.reconstruction.result import momenta, positions

if TYPE_CHECKING:
    from pairton.evaluation.scoreboard import Method

__all__ = ["GALLERY", "GROUPS", "Candidates", "Exhibit", "Gallery"]

GALLERY = 3  # events per group
GROUPS = ("most confident, right", "most confident, wrong", "most uncertain")


class Candidates(Metric):
    """Masses of the predicted particles (n, P), which of them are right, and which events are complete."""

    name, title = "candidates", "Masses of candidates"

    def count(self, chunk: Chunk, method: Method) -> dict[str, npt.NDArray[Any]]:
        events = chunk.events
        assert events.truth is not None
        places = positions(events, chunk.answers[method.name].assignment)
        right = metrics.matches(events.topology, places, events.truth)
        mass = momenta(events, places)["mass"].astype(np.float32)
        return {"mass": mass, "right": right, "complete": events.complete, "weight": chunk.weight}


@dataclass(frozen=True)
class Exhibit:
    """An event of the gallery: one row of Events, its row in the input, and its answer."""

    order: float  # smaller comes first
    events: Events
    number: int
    assignment: npt.NDArray[np.int64]  # (S,): positions in `events.objects`
    event_probability: float
    particle_probability: npt.NDArray[np.float64]


class Gallery(Metric):
    """Group -> some complete events, with the answers of the first method."""

    name = "gallery"

    def count(self, chunk: Chunk, method: Method) -> dict[str, list[Exhibit]] | None:
        if method.name != next(iter(chunk.answers)):
            return None
        answer, scores = chunk.answers[method.name], chunk.scores[method.name]
        right = scores.correct[metrics.EVENT] > 0
        chance = answer.event_probability
        known = chunk.events.complete & np.isfinite(chance)
        found = {}
        chosen_by = (known & right, -chance), (known & ~right, -chance), (known, chance)
        for group, (chosen, order) in zip(GROUPS, chosen_by, strict=True):
            (at,) = np.nonzero(chosen)
            best = at[np.argsort(order[at], kind="stable")[:GALLERY]]
            few, chances = chunk.events[best], answer.particle_probability[best]
            places = positions(few, answer.assignment[best])
            found[group] = [
                Exhibit(
                    order[row], few[k : k + 1], int(chunk.rows[row]), places[k], float(chance[row]), chances[k]
                )
                for k, row in enumerate(best)
            ]
        return found

    def merge(self, counts: Sequence[dict[str, list[Exhibit]]]) -> dict[str, list[Exhibit]]:
        every = {group: [exhibit for part in counts for exhibit in part[group]] for group in GROUPS}
        return {
            group: sorted(exhibits, key=lambda exhibit: (exhibit.order, exhibit.number))[:GALLERY]
            for group, exhibits in every.items()
        }
