"""Truth: quarks and leptons of the hard process, put in the slots of a topology and matched to objects."""

from __future__ import annotations

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import TopologyError
from pairton.events import Events
from pairton.events.matching import fill_slots, from_taus, match_slots, pdg_codes, unknown_names
from pairton.generator.pythia_record import Record
from pairton.topology import Topology, collection_name

__all__ = ["check_topology", "hard_parents", "match", "neutrinos", "slot_entries", "true_energies"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

KINDS = ("jet", "lepton", "electron", "muon", "met")
RESONANCE, OUTGOING = 22, 23  # Pythia's status codes, without sign, of the hard process


def check_topology(topology: Topology) -> None:
    """Every name of the topology must stand for PDG codes, and its objects be among those that are made."""
    if unknown := unknown_names(topology):
        raise TopologyError(
            f"the generator cannot tell which particles {', '.join(unknown)} of {topology.name} are: say so under "
            f"`codes:` of the topology, or rename them to some of {', '.join(pdg_codes())}"
        )
    if missing := [kind for kind in topology.kinds if kind not in KINDS]:
        raise TopologyError(
            f"the generator makes no {', '.join(map(collection_name, missing))} for {topology.name}: its kinds of "
            f"objects are {', '.join(KINDS)}"
        )


def hard_parents(record: Record) -> tuple[Ints, Ints]:
    """Entries of the hard process, and the entry of the resonance each comes from, -1 at the root.

    Between the two lie copies, as showers make the resonance recoil: mothers are followed up through them.
    Electrons and muons from taus of the hard process count as entries of it.
    """
    status = np.abs(record.status)
    is_hard = (status == RESONANCE) | (status == OUTGOING)
    is_hard |= from_taus(record.code, is_hard, lambda entries: record.mother[entries])
    hard = np.flatnonzero(is_hard)
    parent = record.mother[hard]
    while True:
        climbing = np.flatnonzero((parent >= 0) & ~is_hard[parent])
        if len(climbing) == 0:
            return hard, parent
        parent[climbing] = record.mother[parent[climbing]]


def slot_entries(record: Record, topology: Topology) -> Ints:
    """(B, S) entry of the particle of each slot, -1 where the hard process has none: see `fill_slots`."""
    hard, parent = hard_parents(record)
    return fill_slots(topology, hard, record.event[hard], record.code[hard], parent, len(record))


def neutrinos(record: Record) -> dict[str, Floats]:
    """(B,) each: the sum of the momenta of the neutrinos of the hard process."""
    code = np.abs(record.code)
    at = np.flatnonzero((np.abs(record.status) == OUTGOING) & ((code == 12) | (code == 14) | (code == 16)))
    return {
        f"neutrino_{name}": np.bincount(record.event[at], getattr(record, name)[at], len(record)).astype(
            np.float64
        )
        for name in ("px", "py", "pz")
    }


def match(events: Events, record: Record, slots: Ints, radius: float) -> npt.NDArray[np.int32]:
    """(B, S) position of the object of each slot, -1 without one: see `pairton.events.matching.match_slots`.

    Objects within the topology's selection come first, as if there were no others; of the others only what
    is left over can have one.
    """
    pt = np.hypot(record.px[slots], record.py[slots])
    eta = np.where(slots >= 0, np.arcsinh(record.pz[slots] / np.maximum(pt, 1e-9)), np.nan)
    phi = np.arctan2(record.py[slots], record.px[slots])
    within = match_slots(events.topology, events.objects, eta, phi, radius, events.passes)
    outside = {kind: ~passes for kind, passes in events.passes.items()}
    left = np.where(within < 0, eta, np.nan)
    return np.where(within < 0, match_slots(events.topology, events.objects, left, phi, radius, outside), within)


def true_energies(
    events: Events, record: Record, slots: Ints, truth: npt.NDArray[np.int32]
) -> dict[str, ak.Array]:
    """The objects with `true_energy`: that of the quark or lepton which an object is matched to, 0 for none.

    slots   (B, S): entries of the quarks and leptons
    truth   (B, S): positions of their objects
    """
    objects = dict(events.objects)
    for kind in events.topology.object_kinds:
        counts = events.counts[kind]
        energy = np.zeros(counts.sum())
        starts = np.cumsum(counts) - counts
        for slot in (slot.index for slot in events.topology.slots if slot.kind == kind):
            (rows,) = np.nonzero(truth[:, slot] >= 0)
            energy[starts[rows] + truth[rows, slot]] = record.energy[slots[rows, slot]]
        objects[kind] = ak.with_field(objects[kind], ak.unflatten(energy, counts), "true_energy")
    return objects
