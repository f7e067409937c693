"""Two baselines that know no mass: the lightest particles, and chance.

Both put as many b-tagged jets as they can into slots for b quarks. Of what is left, `min_mass` takes the
assignment whose root particles have the smallest summed mass, which for two leptonic tops is the pairing of
smallest m(b l), and `random` takes any.

Shapes: B events, C candidates of a type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.set_tables import SetTables
from pairton.evaluation.best_assignment import Batch, Scores, best_assignments, candidate_masses, product_name
from pairton.evaluation.registry import register_baseline
from pairton.events import Events
from pairton.events.splits import uniform
from pairton.topology import JET
from pairton.topology.pdg import codes_of

__all__ = ["MinMass", "RandomChoice"]

BOTTOM = (5,)  # PDG codes of a slot that a b-tag is for
TAG = np.float32(1e5)  # GeV: no mass outweighs a b-tag
SPREAD = np.float32(1e3)  # of random scores

Floats = npt.NDArray[np.floating[Any]]


def _tagged(tables: SetTables, batch: Batch) -> Scores:
    """Type -> (C, B): a score for each b-tagged jet in a slot for a b quark of its own."""
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
    """The baseline `random`: the same choice for an event whenever it is asked."""

    name: str = "random"

    def fit(self, events: Events) -> RandomChoice:
        """Nothing to fit."""
        return self

    def assign(self, events: Events) -> tuple[npt.NDArray[np.int32], Floats]:
        """Assignments (n, S), and no probabilities.

        Every candidate gets a random score of its own: nothing prefers one of several objects that are alike.
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


for _baseline in (MinMass(), RandomChoice()):
    register_baseline(_baseline)
