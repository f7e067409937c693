"""Before the network: which jets of an event are used, and in which order, so that the answer is always the same.

Shapes: n events, N jets, J jets of all events together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding.graph import MOST_JETS
from pairton.errors import ConfigError
from pairton.events import Events, Status
from pairton.events.domain import Domain
from pairton.events.objects import JET_FIELDS
from pairton.topology import Topology

__all__ = ["MAX_JETS", "Prepared", "check_max_jets", "prepare"]

MAX_JETS = 12  # of highest pT that are used: 83,160 assignments in all-hadronic ttbar

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Prepared:
    """Jets in canonical order, within the cuts, as many as are used."""

    jets: npt.NDArray[np.float32]  # (n, N, 5), zero-padded
    position: npt.NDArray[np.int32]  # (n, N): where each jet is in `events.jets`, -1 for none
    counts: npt.NDArray[np.int64]  # (n,): jets used
    status: npt.NDArray[np.uint8]  # (n,)

    @property
    def answerable(self) -> Bools:
        return ~np.isin(self.status, [Status.TOO_FEW_JETS, Status.BAD_JET])


def prepare(
    events: Events, domain: Domain | None = None, *, max_jets: int = MAX_JETS, jet_cuts: bool = True
) -> Prepared:
    """Order jets by falling pT, then eta, phi, energy and b-tag; cut on them as the model's domain says."""
    check_max_jets(events.topology, max_jets)
    n_slots = len(events.topology.slots)
    n = len(events)
    with np.errstate(over="ignore"):  # such jets are bad, and left out below
        features = np.stack([np.asarray(ak.flatten(events.jets[name]), np.float32) for name in JET_FIELDS], axis=1)
    row = np.repeat(np.arange(n), events.n_jets)  # (J,)
    pt, eta, phi, energy, btag = features.T
    inside = np.ones(len(row), dtype=bool)
    if domain is not None:
        inside = (pt >= domain.pt) & (np.abs(eta) <= domain.abs_eta)
    usable = np.asarray(ak.flatten(events.usable), dtype=bool)
    bad = events.status == Status.BAD_JET
    (kept,) = np.nonzero(usable & ~bad[row] & (inside if jet_cuts else True))
    order = kept[np.lexsort((btag[kept], energy[kept], phi[kept], eta[kept], -pt[kept], row[kept]))]

    found = np.bincount(row[order], minlength=n)
    counts = np.minimum(found, max_jets)
    rank = np.arange(len(order)) - (np.cumsum(found) - found)[row[order]]
    order, rank = order[rank < max_jets], rank[rank < max_jets]
    starts = np.cumsum(events.n_jets) - events.n_jets
    width = int(counts.max(initial=0))
    jets = np.zeros((n, width, len(JET_FIELDS)), dtype=np.float32)
    jets[row[order], rank] = features[order]
    position = np.full((n, width), -1, dtype=np.int32)
    position[row[order], rank] = order - starts[row[order]]

    status = np.full(n, Status.OK, dtype=np.uint8)
    if domain is not None:
        strange = np.zeros(n, dtype=bool)
        strange[row[order[~inside[order] | ~_tag_fits(btag[order], domain)]]] = True
        low, high = domain.jets
        status[strange | (counts < low) | (counts > high)] = Status.OUTSIDE_DOMAIN
    status[found > max_jets] = Status.TRUNCATED
    status[counts < n_slots] = Status.TOO_FEW_JETS
    status[bad] = Status.BAD_JET
    return Prepared(jets, position, counts, status)


def check_max_jets(topology: Topology, max_jets: int) -> None:
    n_slots = len(topology.slots)
    if max_jets < n_slots:
        raise ConfigError(f"max_jets is {max_jets}, but {topology.name} has {n_slots} slots: raise it")
    if max_jets > MOST_JETS:
        raise ConfigError(f"max_jets is {max_jets}, but networks take at most {MOST_JETS} jets: lower it")


def _tag_fits(btag: npt.NDArray[Any], domain: Domain) -> Bools:
    """Whether b-tags are of the kind that the model knows; a binary one has only ever seen 0 and 1."""
    if domain.btag != "binary":
        return np.ones(len(btag), dtype=bool)
    return np.asarray((btag == 0) | (btag == 1))
