"""Pythia's event record, flat over a batch: columns of numpy arrays instead of nested awkward records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.generator.detector import Particles

__all__ = ["Record", "flatten"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Record:
    """Entries of all events, one after the other."""

    offsets: Ints  # (events + 1,): first entry of each event
    event: Ints
    code: Ints  # PDG
    status: Ints  # Pythia's, positive if the particle is still there at the end
    mother: Ints  # entry of the (first) mother, -1 where there is none
    px: Floats
    py: Floats
    pz: Floats
    energy: Floats
    x: Floats  # production point, m
    y: Floats
    z: Floats
    weights: Floats  # (events,): nominal weight

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def stable(self, charge: Callable[[int], float]) -> Particles:
        """Particles that meet the detector; `charge` gives the charge of a PDG code."""
        keep = self.status > 0
        code = self.code[keep]
        codes, where = np.unique(code, return_inverse=True)
        charges = np.array([charge(int(c)) for c in codes], dtype=np.float64)
        rest = (getattr(self, name)[keep] for name in ("px", "py", "pz", "energy", "x", "y", "z"))
        return Particles(self.event[keep], code, charges[where], *rest)


def flatten(batch: ak.Array) -> Record:
    """Columns of the record of a batch, as returned by Pythia's `nextBatch`; failed events left out."""
    batch = batch[~ak.is_none(batch)]
    particles = batch.prt
    counts = ak.to_numpy(ak.num(particles, axis=1)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    event = np.repeat(np.arange(len(counts)), counts)
    flat = ak.flatten(particles, axis=1)

    def column(values: ak.Array, kind: type) -> npt.NDArray[np.float64] | Ints:
        return np.asarray(ak.to_numpy(values), dtype=kind)

    mother = column(flat.mother1, np.int64)
    vertex = flat.vProd
    millimetres = [column(ak.fill_none(vertex[name], 0.0), np.float64) / 1000 for name in ("px", "py", "pz")]
    momenta = [column(flat.p[name], np.float64) for name in ("px", "py", "pz", "e")]
    weights = ak.to_numpy(ak.fill_none(ak.firsts(batch.info.weights, axis=1), 1.0))
    return Record(
        offsets=offsets,
        event=event,
        code=column(flat.id, np.int64).astype(np.int64),
        status=column(flat.status, np.int64).astype(np.int64),
        mother=np.where(mother > 0, mother + offsets[event], -1).astype(np.int64),
        px=momenta[0],
        py=momenta[1],
        pz=momenta[2],
        energy=momenta[3],
        x=millimetres[0],
        y=millimetres[1],
        z=millimetres[2],
        weights=np.asarray(weights, dtype=np.float64),
    )
