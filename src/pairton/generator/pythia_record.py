"""Pythia's event record as numpy arrays, flat over a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.generator.detector import Particles

__all__ = ["Record", "flatten"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Record:
    """The entries of all events of a batch, concatenated."""

    offsets: Ints  # (events + 1,): first entry of each event
    event: Ints
    code: Ints  # PDG
    status: Ints  # Pythia's, positive for stable particles
    mother: Ints  # entry of the (first) mother, -1 for none
    px: Floats
    py: Floats
    pz: Floats
    energy: Floats
    vertex: Floats  # (stable particles, 3): production points, m

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def stable(self, charge: Callable[[int], float]) -> Particles:
        """The stable particles. `charge` returns the charge of a PDG code."""
        keep = np.flatnonzero(self.status > 0)
        codes, where = np.unique(self.code[keep], return_inverse=True)
        charges = np.array([charge(int(code)) for code in codes], dtype=np.float64)
        momenta = (getattr(self, name)[keep] for name in ("px", "py", "pz", "energy"))
        return Particles(self.event[keep], self.code[keep], charges[where], *momenta, *self.vertex.T)


def flatten(batch: ak.Array) -> Record:
    """The record of a batch from Pythia's `nextBatch`, without failed events."""
    if ak.all(ak.is_none(batch)):  # its fields have no names then
        none, real = np.zeros(0, dtype=np.int64), np.zeros(0)
        return Record(
            np.zeros(1, dtype=np.int64), none, none, none, none, real, real, real, real, np.zeros((0, 3))
        )
    particles = batch[~ak.is_none(batch)].prt
    counts = np.asarray(ak.num(particles, axis=1), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    event = np.repeat(np.arange(len(counts)), counts)
    flat = ak.flatten(particles, axis=1)
    status = np.asarray(flat.status, dtype=np.int64)
    mother = np.asarray(flat.mother1, dtype=np.int64)
    produced: Any = flat.vProd[status > 0]  # None at the origin
    vertex = [np.asarray(ak.fill_none(produced[name], 0.0)) / 1000 for name in ("px", "py", "pz")]  # from mm
    return Record(
        offsets=offsets,
        event=event,
        code=np.asarray(flat.id, dtype=np.int64),
        status=status,
        mother=np.where(mother > 0, mother + offsets[event], -1),
        px=np.asarray(flat.p.px),
        py=np.asarray(flat.p.py),
        pz=np.asarray(flat.p.pz),
        energy=np.asarray(flat.p.e),
        vertex=np.stack(vertex, axis=1),
    )
