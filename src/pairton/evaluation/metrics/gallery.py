"""A gallery of events, for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.scores import EVENT
from pairton.events import Events
from pairton.reconstruction.result import positions

if TYPE_CHECKING:
    from pairton.evaluation.methods import Method

__all__ = ["GALLERY", "GROUPS", "Exhibit", "Gallery"]

GALLERY = 3  # events per group
GROUPS = ("most confident, right", "most confident, wrong", "most uncertain")


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
        if method is not chunk.methods[0]:
            return None
        answer, scores = chunk.answers[method.name], chunk.scores[method.name]
        right = scores.correct[EVENT] > 0
        chance = answer.event_probability
        known = chunk.events.complete & np.isfinite(chance)
        groups = {}
        criteria = (known & right, -chance), (known & ~right, -chance), (known, chance)
        for group, (rows, order) in zip(GROUPS, criteria, strict=True):
            (at,) = np.nonzero(rows)
            best = at[np.argsort(order[at], kind="stable")[:GALLERY]]
            few, chances = chunk.events[best], answer.particle_probability[best]
            places = positions(few, answer.assignment[best])
            groups[group] = [
                Exhibit(
                    order[row], few[k : k + 1], int(chunk.rows[row]), places[k], float(chance[row]), chances[k]
                )
                for k, row in enumerate(best)
            ]
        return groups

    def merge(self, counts: Sequence[dict[str, list[Exhibit]]]) -> dict[str, list[Exhibit]]:
        every = {group: [exhibit for part in counts for exhibit in part[group]] for group in GROUPS}
        return {
            group: sorted(exhibits, key=lambda exhibit: (exhibit.order, exhibit.number))[:GALLERY]
            for group, exhibits in every.items()
        }
