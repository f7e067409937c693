"""Find the truth of a topology in a generator record."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import PairtonWarning
from pairton.events.events import Objects
from pairton.events.matching import (
    codes_of,
    fill_slots,
    from_taus,
    is_one_of,
    match_slots,
    pdg_codes,
    unknown_names,
)
from pairton.topology import JET, Topology

__all__ = ["GenRecord", "can_search"]

Ints = npt.NDArray[np.int64]

BLOCK = 8192  # events searched at once, so that their entries nearly fit in the cache


@dataclass(frozen=True)
class GenRecord:
    """A generator record: flat arrays over the entries (particles) of all events."""

    counts: Ints  # (n,): entries per event
    code: npt.NDArray[Any]  # PDG code
    mother: npt.NDArray[Any]  # position among the entries of the event; numbers out of range mean none
    hard: npt.NDArray[np.bool_]  # whether it is in the hard process; False for incoming partons
    eta: npt.NDArray[Any]
    phi: npt.NDArray[Any]

    def truth(self, topology: Topology, objects: Objects, passes: Objects | None = None) -> npt.NDArray[np.int32]:
        """(n, S): the position of each slot's object, among the objects that pass; -1 for none."""
        eta, phi = (np.full((len(self.counts), len(topology.slots)), np.nan, np.float32) for _ in range(2))
        first = np.concatenate([[0], np.cumsum(self.counts)])
        for start in range(0, len(self.counts), BLOCK):
            rows = slice(start, start + BLOCK)
            part = self._part(rows, slice(first[start], first[min(start + BLOCK, len(self.counts))]))
            entries = part.slot_entries(topology)
            row, slot = np.nonzero(entries >= 0)
            eta[start + row, slot] = part.eta[entries[row, slot]]
            phi[start + row, slot] = part.phi[entries[row, slot]]
        return match_slots(topology, objects, eta, phi, passes=passes)

    def _part(self, rows: slice, entries: slice) -> GenRecord:
        columns = (self.code, self.mother, self.hard, self.eta, self.phi)
        return GenRecord(self.counts[rows], *(column[entries] for column in columns))

    def slot_entries(self, topology: Topology) -> Ints:
        """(n, S): the entry of each slot's quark or lepton, -1 for none.

        Electrons and muons from a tau of the hard process count as part of the hard process.
        """
        with_leptons = any(slot.kind != JET for slot in topology.slots)
        return replace(self, hard=self.hard | self._from_taus() if with_leptons else self.hard)._fill(topology)

    def _fill(self, topology: Topology) -> Ints:
        chosen, event, parent = self._tree(topology)
        return fill_slots(topology, chosen, event, self.code[chosen], parent, len(self.counts))

    def _tree(self, topology: Topology) -> tuple[Ints, Ints, Ints]:
        """Entries of the hard process without copies, their events, and the resonance each comes from, or -1.

        A parton shower copies a resonance when it recoils, and some records mark the copies as hard too. An entry
        whose mother has the same code is a copy. The resonance is given by its first copy.
        """
        codes = codes_of(topology)
        wanted = [c for name in topology.types if name in dict(topology.decays) for c in codes[name]]
        first = np.concatenate([[0], np.cumsum(self.counts)])
        hard = np.flatnonzero(self.hard)
        event = np.repeat(np.arange(len(self.counts)), np.diff(np.searchsorted(hard, first)))
        mother = self._mothers(hard, event, first)
        original = ~self._is_copy(hard, mother)
        chosen, event, parent = hard[original], event[original], mother[original].copy()
        climbing = np.flatnonzero(parent >= 0)
        while len(climbing):
            current = parent[climbing]
            up = self._mothers(current, event[climbing], first)
            found = self.hard[current] & is_one_of(self.code[current], wanted) & ~self._is_copy(current, up)
            climbing, current, up = climbing[~found], current[~found], up[~found]
            parent[climbing] = np.where(up < current, up, -1)  # mothers come first, except for beam particles
            climbing = climbing[parent[climbing] >= 0]
        return chosen, event, parent

    def _from_taus(self) -> npt.NDArray[np.bool_]:
        first = np.concatenate([[0], np.cumsum(self.counts)])

        def mother(entries: Ints) -> Ints:
            return self._mothers(entries, np.searchsorted(first, entries, side="right") - 1, first)

        return from_taus(self.code, self.hard, mother)

    def _mothers(self, entries: Ints, event: Ints, first: Ints) -> Ints:
        local = self.mother[entries].astype(np.int64)
        valid = (local >= 0) & (local < self.counts[event])
        return np.where(valid, local + first[event], -1)

    def _is_copy(self, entries: Ints, mother: Ints) -> npt.NDArray[np.bool_]:
        return np.asarray((mother >= 0) & (self.code[entries] == self.code[mother]))


def can_search(topology: Topology, path: str) -> bool:
    """Whether all names of the topology have PDG codes; warns if not."""
    unknown = unknown_names(topology)
    if unknown:
        warnings.warn(
            f"{path}: truth is not read, because {', '.join(unknown)} of {topology.name} has no PDG code: add it "
            f"under `codes:` of the topology, or use the names {', '.join(pdg_codes())}",
            PairtonWarning,
            stacklevel=3,
        )
    return not unknown
