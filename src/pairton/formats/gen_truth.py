"""From a generator record (codes, mothers, which entries are of the hard process) to the truth of a topology."""

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

BLOCK = 8192  # events searched at once: their entries nearly fit in the cache


@dataclass(frozen=True)
class GenRecord:
    """Columns of a record, the entries of all events one after the other."""

    counts: Ints  # (n,): entries of each event
    code: npt.NDArray[Any]  # PDG
    mother: npt.NDArray[Any]  # position among the entries of the event; anything that is not one counts as none
    hard: npt.NDArray[np.bool_]  # of the hard process, incoming partons excluded
    eta: npt.NDArray[Any]
    phi: npt.NDArray[Any]

    def truth(self, topology: Topology, objects: Objects, passes: Objects | None = None) -> npt.NDArray[np.int32]:
        """(n, S) position of the object of each slot, of those that pass; -1 where there is none."""
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
        """(n, S) entry of the quark or lepton of each slot, -1 where the event has none.

        An electron or muon that a tau of the hard process decays to counts as one of the hard process.
        """
        with_leptons = any(slot.kind != JET for slot in topology.slots)
        return replace(self, hard=self.hard | self._from_taus() if with_leptons else self.hard)._fill(topology)

    def _fill(self, topology: Topology) -> Ints:
        chosen, event, parent = self._tree(topology)
        return fill_slots(topology, chosen, event, self.code[chosen], parent, len(self.counts))

    def _tree(self, topology: Topology) -> tuple[Ints, Ints, Ints]:
        """Hard entries that are no copies, their events, and the resonance each comes from, or -1: its first copy.

        A shower copies a resonance as it recoils, and some records flag the copies as hard too: entries whose
        mother has their own code are copies, and the parent is looked for through them.
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
            here = parent[climbing]
            up = self._mothers(here, event[climbing], first)
            found = self.hard[here] & is_one_of(self.code[here], wanted) & ~self._is_copy(here, up)
            climbing, here, up = climbing[~found], here[~found], up[~found]
            parent[climbing] = np.where(up < here, up, -1)  # mothers come first; what says otherwise is beam
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
    """Whether every name of the topology stands for PDG codes; a warning says why not."""
    unknown = unknown_names(topology)
    if unknown:
        warnings.warn(
            f"{path}: no truth, as {', '.join(unknown)} of {topology.name} stands for no known particle: "
            f"rename to some of {', '.join(pdg_codes())}, or say which under `codes:`",
            PairtonWarning,
            stacklevel=3,
        )
    return not unknown
