"""Truth: quarks of the hard process, put in the slots of a topology and matched to jets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import TopologyError
from pairton.generator.record import Record
from pairton.generator.tagging import delta_r, padded
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
    particles = np.full((len(record), len(topology.particles)), -1, dtype=np.int64)
    slots = np.full((len(record), len(topology.slots)), -1, dtype=np.int64)
    decays = dict(topology.decays)

    def fill(target: Ints, columns: list[int], name: str, mothers: Ints | None) -> None:
        """Candidates of one name below one mother per event, in order, into as many columns."""
        allowed = np.isin(np.abs(record.code[hard]), codes[name])
        wanted = -1 if mothers is None else mothers[record.event[hard]]
        found = hard[allowed & (parent == wanted) & ((mothers is None) | (wanted >= 0))]
        found = found[np.lexsort((found, record.code[found] < 0, record.event[found]))]
        event = record.event[found]
        rank = np.arange(len(found)) - np.searchsorted(event, event)
        fits = rank < len(columns)
        target[event[fits], np.array(columns)[rank[fits]]] = found[fits]

    for name in dict.fromkeys(topology.event):
        fill(particles, [p.index for p in topology.roots if p.type == name], name, None)
    for particle in topology.particles:  # parents come first
        mothers = particles[:, particle.index]
        if particle.type not in decays:  # a plain jet at the root
            slots[:, particle.own_slots[0]] = mothers
            continue
        for name in dict.fromkeys(decays[particle.type]):
            if name in decays:
                children = [c for c in particle.children if topology.particles[c].type == name]
                fill(particles, children, name, mothers)
            else:
                jets = [product for product in decays[particle.type] if product not in decays]
                own = [s for s, jet in zip(particle.own_slots, jets, strict=True) if jet == name]
                fill(slots, own, name, mothers)
    return slots


def match(jets: ak.Array, record: Record, slots: Ints, radius: float) -> Ints:
    """(B, S) position of the jet of each slot, -1 without one.

    A quark takes the nearest jet within the radius; a jet claimed by two quarks is matched to neither.
    """
    counts = ak.to_numpy(ak.num(jets, axis=1))
    event = np.repeat(np.arange(len(counts)), counts)
    jet_eta, jet_phi = (padded(event, ak.to_numpy(ak.flatten(jets[name])), len(counts)) for name in ("eta", "phi"))
    if jet_eta.shape[1] == 0:
        return np.full(slots.shape, -1, dtype=np.int64)
    pt = np.hypot(record.px[slots], record.py[slots])
    eta = np.arcsinh(record.pz[slots] / np.maximum(pt, 1e-9))
    phi = np.arctan2(record.py[slots], record.px[slots])
    distance = np.nan_to_num(delta_r(eta, phi, jet_eta, jet_phi), nan=np.inf)
    distance[slots < 0] = np.inf
    nearest = distance.argmin(axis=2)
    claim = np.where(distance.min(axis=2) < radius, nearest, -1)
    shared = (claim[:, :, None] == claim[:, None, :]).sum(axis=2) > 1
    return np.where(shared, -1, claim).astype(np.int64)
