"""Truth: quarks of the hard process, put in the slots of a topology and matched to jets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pairton.errors import TopologyError
from pairton.events.events import Objects
from pairton.events.matching import fill_slots, match_slots
from pairton.generator.pythia_record import Record
from pairton.topology import Topology

__all__ = ["check_codes", "hard_parents", "match", "slot_entries"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RESONANCE, OUTGOING = 22, 23  # Pythia's status codes, without sign, of the hard process


def check_codes(topology: Topology, codes: Mapping[str, Sequence[int]]) -> None:
    """Every name of the topology must stand for PDG codes."""
    names = {*topology.event, *(name for _, products in topology.decays for name in products)}
    unknown = sorted(names - set(codes))
    if unknown:
        raise TopologyError(
            f"the generator cannot tell which particles {', '.join(unknown)} of {topology.name} are: "
            f"rename them to some of {', '.join(codes)}"
        )


def hard_parents(record: Record) -> tuple[Ints, Ints]:
    """Entries of the hard process, and the entry of the resonance each comes from, -1 at the root.

    Between the two lie copies, as showers make the resonance recoil: mothers are followed up through them.
    """
    status = np.abs(record.status)
    hard = np.flatnonzero((status == RESONANCE) | (status == OUTGOING))
    is_hard = np.zeros(len(status), dtype=bool)
    is_hard[hard] = True
    parent = record.mother[hard]
    while True:
        climbing = np.flatnonzero((parent >= 0) & ~is_hard[parent])
        if len(climbing) == 0:
            return hard, parent
        parent[climbing] = record.mother[parent[climbing]]


def slot_entries(record: Record, topology: Topology, codes: Mapping[str, Sequence[int]]) -> Ints:
    """(B, S) entry of the quark of each slot, -1 where the hard process has none.

    Particles come before antiparticles: the first of two tops is the quark, the second the antiquark.
    """
    hard, parent = hard_parents(record)
    return fill_slots(topology, hard, record.event[hard], record.code[hard], parent, len(record), codes)


def match(topology: Topology, objects: Objects, record: Record, slots: Ints, radius: float) -> Ints:
    """(B, S) position of the object of each slot, -1 without one: see `pairton.events.matching.match_slots`."""
    pt = np.hypot(record.px[slots], record.py[slots])
    eta = np.where(slots >= 0, np.arcsinh(record.pz[slots] / np.maximum(pt, 1e-9)), np.nan)
    phi = np.arctan2(record.py[slots], record.px[slots])
    return match_slots(topology, objects, eta, phi, radius).astype(np.int64)
