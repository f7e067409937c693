"""From a generator record (codes, mothers, which entries are of the hard process) to the truth of a topology."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import PairtonWarning
from pairton.matching import fill_slots, match, pdg_codes, unknown_names
from pairton.topology import Topology

__all__ = ["GenRecord", "can_search"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GenRecord:
    """Ragged columns of a record, one list per event."""

    code: ak.Array  # PDG
    mother: ak.Array  # position in the event's list; anything that is not one counts as none
    hard: ak.Array  # bool: of the hard process, incoming partons excluded
    eta: ak.Array
    phi: ak.Array

    def truth(self, topology: Topology, jets: ak.Array) -> npt.NDArray[np.int32]:
        """(n, S) position of the jet of each slot, -1 where there is no quark or no jet."""
        entries = self.slot_entries(topology)
        there = entries >= 0
        eta, phi = (
            np.where(there, np.append(np.asarray(ak.flatten(column), dtype=np.float32), np.nan)[entries], np.nan)
            for column in (self.eta, self.phi)
        )
        return match(jets, eta, phi)

    def slot_entries(self, topology: Topology) -> Ints:
        """(n, S) flat entry of the quark of each slot, -1 where the event has none: a leptonic W, say."""
        counts = np.asarray(ak.num(self.code, axis=1), dtype=np.int64)
        code = np.asarray(ak.flatten(self.code), dtype=np.int64)
        hard = np.flatnonzero(np.asarray(ak.flatten(self.hard), dtype=bool))
        event = np.repeat(np.arange(len(counts)), counts)
        resonance = self._resonances(topology, code, hard)
        mother = self._flat_mothers(counts, event)
        chosen, parent = _climb(code, mother, resonance, hard)
        number = np.full(len(code) + 1, -1, dtype=np.int64)  # the last one stands for "no parent"
        number[chosen] = np.arange(len(chosen))
        slots = fill_slots(topology, event[chosen], code[chosen], number[parent], len(counts))
        return np.where(slots >= 0, np.append(chosen, -1)[slots], -1)

    def _flat_mothers(self, counts: Ints, event: Ints) -> Ints:
        offsets = np.concatenate([[0], np.cumsum(counts)])
        local = np.asarray(ak.flatten(self.mother), dtype=np.int64)
        valid = (local >= 0) & (local < counts[event])
        return np.where(valid, local + offsets[event], -1)

    @staticmethod
    def _resonances(topology: Topology, code: Ints, hard: Ints) -> npt.NDArray[np.bool_]:
        codes = pdg_codes()
        wanted = [c for name in topology.types for c in codes[name] if name in dict(topology.decays)]
        is_resonance = np.zeros(len(code), dtype=bool)
        is_resonance[hard[np.isin(np.abs(code[hard]), wanted)]] = True
        return is_resonance


def _climb(code: Ints, mother: Ints, resonance: npt.NDArray[np.bool_], hard: Ints) -> tuple[Ints, Ints]:
    """Hard entries that are no copies, and the first copy of the resonance each comes from, -1 at the root.

    A shower copies a resonance as it recoils, and some records flag the copies as hard too: entries whose
    mother has their own code are copies, and a mother is looked for through them.
    """
    copy = np.zeros(len(code), dtype=bool)
    has = np.flatnonzero(mother >= 0)
    copy[has] = code[has] == code[mother[has]]
    chosen = hard[~copy[hard]]
    parent = mother[chosen]
    for _ in range(len(code)):  # ends much earlier: records are a few dozen steps deep
        climbing = np.flatnonzero((parent >= 0) & (copy[parent] | ~resonance[parent]))
        if len(climbing) == 0:
            break
        up = mother[parent[climbing]]
        parent[climbing] = np.where(up < parent[climbing], up, -1)  # a record with a loop ends here
    return chosen, parent


def can_search(topology: Topology, path: str) -> bool:
    """Whether every name of the topology stands for PDG codes; a warning says why not."""
    unknown = unknown_names(topology)
    if unknown:
        warnings.warn(
            f"{path}: no truth, as {', '.join(unknown)} of {topology.name} stands for no known particle: "
            f"rename to some of {', '.join(pdg_codes())}",
            PairtonWarning,
            stacklevel=3,
        )
    return not unknown


def pseudorapidity(pt: Any, pz: Any) -> npt.NDArray[np.float64]:
    """eta from the transverse momentum and the one along the beam."""
    return np.asarray(np.arcsinh(np.asarray(pz, np.float64) / np.maximum(np.asarray(pt, np.float64), 1e-9)))
