"""Truth: assigns quarks and leptons of the hard process to slots, and matches them to objects."""

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
    """Raise TopologyError unless all names of the topology have PDG codes, and the generator makes its objects."""
    if unknown := unknown_names(topology):
        raise TopologyError(
            f"the generator does not know the PDG codes of {', '.join(unknown)} in {topology.name}: give them "
            f"under `codes:` of the topology, or rename the particles to some of {', '.join(pdg_codes())}"
        )
    if missing := [kind for kind in topology.kinds if kind not in KINDS]:
        raise TopologyError(
            f"the generator makes no {', '.join(map(collection_name, missing))} for {topology.name}: its kinds of "
            f"objects are {', '.join(KINDS)}"
        )


def hard_parents(record: Record) -> tuple[Ints, Ints]:
    """Entries of the hard process, and the entry of the resonance that each comes from, -1 for none.

    Mothers are followed through copies of the resonance, which the shower makes when it recoils. Electrons and
    muons from taus of the hard process count as entries of it.
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
    """(B, S): the entry of the particle in each slot, -1 if the hard process has none. See `fill_slots`."""
    hard, parent = hard_parents(record)
    return fill_slots(topology, hard, record.event[hard], record.code[hard], parent, len(record))


def neutrinos(record: Record) -> dict[str, Floats]:
    """The summed momenta of the neutrinos of the hard process, (B,) each."""
    code = np.abs(record.code)
    at = np.flatnonzero((np.abs(record.status) == OUTGOING) & ((code == 12) | (code == 14) | (code == 16)))
    return {
        f"neutrino_{name}": np.bincount(record.event[at], getattr(record, name)[at], len(record)).astype(
            np.float64
        )
        for name in ("px", "py", "pz")
    }


def match(events: Events, record: Record, slots: Ints, radius: float) -> npt.NDArray[np.int32]:
    """(B, S): the position of the object in each slot, -1 for none. See `pairton.events.matching.match_slots`.

    Objects that pass the selection of the topology are matched first. The others are matched only to the slots
    that are then still empty.
    """
    pt = np.hypot(record.px[slots], record.py[slots])
    eta = np.where(slots >= 0, np.arcsinh(record.pz[slots] / np.maximum(pt, 1e-9)), np.nan)
    phi = np.arctan2(record.py[slots], record.px[slots])
    within = match_slots(events.topology, events.objects, eta, phi, events.passes, radius)
    outside = {kind: ~passes for kind, passes in events.passes.items()}
    left = np.where(within < 0, eta, np.nan)
    return np.where(within < 0, match_slots(events.topology, events.objects, left, phi, outside, radius), within)


def true_energies(
    events: Events, record: Record, slots: Ints, truth: npt.NDArray[np.int32]
) -> dict[str, ak.Array]:
    """The objects with a field `true_energy`: the energy of the quark or lepton they are matched to, or 0.

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
