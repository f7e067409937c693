"""Two baselines that use no known mass: the lightest particles, and a random choice.

Both put as many b-tagged jets as possible into slots for b quarks. Among the remaining assignments, `min_mass`
takes the one whose root particles have the smallest sum of masses, which for two leptonic tops is the pairing of
smallest m(b l); `random` takes a random one.

Shapes: B events, C candidates of a type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.set_tables import SetTables
from pairton.evaluation.baselines.best_assignment import (
    Batch,
    Scores,
    best_assignments,
    candidate_masses,
    product_name,
)
from pairton.events import Events
from pairton.events.splits import uniform
from pairton.topology import JET
from pairton.topology.pdg import codes_of

__all__ = ["MinMass", "RandomChoice"]

BOTTOM = (5,)  # PDG codes of a slot for b quarks only
TAG = np.float32(1e5)  # score of a b-tag: larger than any mass in GeV
SPREAD = np.float32(1e3)  # range of random scores

Floats = npt.NDArray[np.floating[Any]]


def _tagged(tables: SetTables, batch: Batch) -> Scores:
    """Type -> (C, B): the score of b-tagged jets in the own slots for b quarks of each candidate."""
    topology, codes = tables.topology, codes_of(tables.topology)
    scores: Scores = {}
    for name, known in tables.candidates.items():
        particle, nodes = topology.of_type(name)[0], known.objects.astype(np.intp).T
        scores[name] = np.zeros((len(known.objects), len(batch)), dtype=np.float32)
        for slot in particle.own_slots:
            if topology.slots[slot].kind == JET and tuple(codes.get(product_name(topology, slot), ())) == BOTTOM:
                scores[name] += TAG * batch.tagged.T[nodes[slot - particle.slots[0]]]
    return scores


@dataclass(frozen=True)
class MinMass:
    """The baseline `min_mass`."""

    name: str = "min_mass"

    def fit(self, events: Events) -> MinMass:
        """Nothing to fit."""
        return self

    def assign(self, events: Events) -> tuple[npt.NDArray[np.int32], Floats]:
        """Assignments (n, S), and no probabilities."""

        def score(tables: SetTables, batch: Batch) -> Scores:
            masses = candidate_masses(tables, batch.p4)
            roots = {root.type for root in tables.topology.roots}
            return {
                name: tags - masses[name] if name in roots else tags
                for name, tags in _tagged(tables, batch).items()
            }

        found, _ = best_assignments(events, score)
        return found, np.full(len(found), np.nan)


@dataclass(frozen=True)
class RandomChoice:
    """The baseline `random`; its choice for an event is always the same."""

    name: str = "random"

    def fit(self, events: Events) -> RandomChoice:
        """Nothing to fit."""
        return self

    def assign(self, events: Events) -> tuple[npt.NDArray[np.int32], Floats]:
        """Assignments (n, S), and no probabilities.

        Every candidate gets its own random score, so that no object is preferred.
        """

        def score(tables: SetTables, batch: Batch) -> Scores:
            scores, drawn = _tagged(tables, batch), 0
            for name, tags in scores.items():
                for candidate in range(len(tags)):
                    drawn += 1
                    tags[candidate] += SPREAD * uniform(events.ids[batch.rows], drawn).astype(np.float32)
                scores[name] = tags
            return scores

        found, _ = best_assignments(events, score)
        return found, np.full(len(found), np.nan)
