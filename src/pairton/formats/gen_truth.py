"""Find the truth of a topology in a generator record."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
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
        for start in range(0, len(self.counts), BLOCK):
            stop = min(start + BLOCK, len(self.counts))
            part = self._part(slice(start, stop), slice(self._first[start], self._first[stop]))
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
        hard = self.hard | from_taus(self.code, self.hard, self.mothers) if with_leptons else self.hard
        return replace(self, hard=hard)._fill(topology)

    def _fill(self, topology: Topology) -> Ints:
        chosen, event, parent = self._tree(topology)
        return fill_slots(topology, chosen, event, self.code[chosen], parent, len(self.counts))

    def _tree(self, topology: Topology) -> tuple[Ints, Ints, Ints]:
        """Entries of the hard process without copies, their events, and the resonance each comes from, or -1.

        A parton shower copies a resonance when it recoils, and some records mark the copies as hard too. The
        resonance is given by its first copy.
        """
        codes = codes_of(topology)
        wanted = [c for name in topology.types if name in dict(topology.decays) for c in codes[name]]
        hard = np.flatnonzero(self.hard)
        chosen = hard[~self.is_copy(hard)]
        parent = self.mothers(chosen)
        climbing = np.flatnonzero(parent >= 0)
        while len(climbing):
            current = parent[climbing]
            found = self.hard[current] & is_one_of(self.code[current], wanted)
            found[found] = ~self.is_copy(current[found])
            climbing, current = climbing[~found], current[~found]
            up = self.mothers(current)
            parent[climbing] = np.where(up < current, up, -1)  # mothers come first, except for beam particles
            climbing = climbing[parent[climbing] >= 0]
        return chosen, self._event(chosen), parent

    @cached_property
    def _first(self) -> Ints:
        """(n + 1,): the first entry of each event."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    def _event(self, entries: Ints) -> Ints:
        return np.searchsorted(self._first, entries, side="right") - 1

    def mothers(self, entries: Ints) -> Ints:
        """The entries of their first mothers, -1 for none."""
        event, local = self._event(entries), self.mother[entries].astype(np.int64)
        valid = (local >= 0) & (local < self.counts[event])
        return np.where(valid, local + self._first[event], -1)

    def is_copy(self, entries: Ints) -> npt.NDArray[np.bool_]:
        """Whether each entry is a copy of one in the hard process: mothers of the same code lead to it.

        A quark that scatters has the code of an incoming parton, which is not in the hard process: it is no copy.
        """
        found = np.zeros(len(entries), dtype=bool)
        at, current = np.arange(len(entries)), entries
        while len(at):
            up = self.mothers(current)
            same = (up >= 0) & (up < current) & (self.code[up] == self.code[current])  # mothers come first
            at, current = at[same], up[same]
            hard = self.hard[current]
            found[at[hard]] = True
            at, current = at[~hard], current[~hard]
        return found


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
