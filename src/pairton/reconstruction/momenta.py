"""Four-momenta of the particles of an assignment: sums of objects, and of neutrinos from mass constraints.

Shapes: n events, S slots, P particles, K neutrinos, L solutions, J objects of one kind in all events together.
p4 is (..., 4): px, py, pz, energy; GeV.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.events import Events
from pairton.events.inputs import MOMENTUM
from pairton.events.neutrinos import nearest_mass, one_neutrino, two_neutrinos
from pairton.events.vectors import cartesian
from pairton.kinematics.fit_settings import load_settings
from pairton.kinematics.smearing import smeared_neutrinos
from pairton.topology import Topology
from pairton.topology.kinds import KINDS
from pairton.topology.pdg import properties_of

__all__ = [
    "Momenta",
    "Neutrinos",
    "met_follows",
    "missing_momentum",
    "momenta_of",
    "particle_momenta",
    "pick",
    "signed_codes",
    "slot_momenta",
    "varied_events",
    "with_sign",
]

MET_PT = 15.0  # GeV: jets above it enter the missing energy

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Neutrinos:
    """What is used for the neutrinos, then all other solutions; NaN where there are fewer.

    For two neutrinos the mean over smeared measurements is used, and all solutions follow.
    """

    p4: Floats  # (n, L, K, 4)
    solutions: npt.NDArray[np.int32]  # (n,): number of real ones as measured; 0: none; -1: no neutrinos

    @property
    def used(self) -> Floats:
        """(n, K, 4)."""
        return self.p4[:, 0]


@dataclass(frozen=True)
class Momenta:
    """The momenta of the particles of some assignments."""

    topology: Topology
    visible: Floats  # (n, P, 4): the sum of a particle's objects; NaN where one is missing
    neutrinos: Neutrinos

    @cached_property
    def p4(self) -> Floats:
        """(n, P, 4): the momentum of each particle, including its neutrinos."""
        total = self.visible.copy()
        for k, neutrino in enumerate(self.topology.neutrinos):
            for particle in self.topology.ancestry(neutrino.particle):
                total[:, particle] += self.neutrinos.used[:, k]
        return total

    def exchanged(self, particles: Ints) -> Momenta:
        """The same with interchangeable particles exchanged; `particles` (n, P) is the previous index of each."""
        visible = np.take_along_axis(self.visible, particles[:, :, None], axis=1)
        places = [neutrino.particle for neutrino in self.topology.neutrinos]
        if not places:
            return Momenta(self.topology, visible, self.neutrinos)
        number = np.zeros(len(self.topology.particles), dtype=np.intp)
        number[places] = np.arange(len(places))
        order = number[particles[:, places]]  # (n, K)
        p4 = np.take_along_axis(self.neutrinos.p4, order[:, None, :, None], axis=2)
        return Momenta(self.topology, visible, Neutrinos(p4, self.neutrinos.solutions))

    @cached_property
    def systems(self) -> dict[str, Floats]:
        """Name -> (n, 4): sums of root particles with the same PDG code, such as `tt`."""
        return {name: self.p4[:, list(same)].sum(axis=1) for name, same in self.topology.systems.items()}


def particle_momenta(events: Events, assignment: Ints) -> Momenta:
    """The momenta of the particles of an assignment (n, S): positions in `events.objects`, -1 for none."""
    return momenta_of(events.topology, slot_momenta(events, assignment), missing_momentum(events), events.ids)


def momenta_of(topology: Topology, slots: Floats, met: Floats, ids: npt.NDArray[np.uint64]) -> Momenta:
    """The momenta of particles, from objects in slots (n, S, 4) and missing momenta (n, 2); NaN for none.

    ids: (n, 2): of the events, which give the random numbers of smeared measurements
    """
    visible = np.stack([slots[:, list(particle.slots)].sum(axis=1) for particle in topology.particles], axis=1)
    for particle in reversed(topology.particles) if topology.merged else ():  # children first
        parts = [slots[:, slot] for slot in particle.own_slots] + [visible[:, k] for k in particle.children]
        visible[:, particle.index] = np.sum(parts, axis=0)
        if particle.merged_slot >= 0:
            whole = slots[:, particle.merged_slot]
            visible[:, particle.index] = np.where(np.isnan(whole), visible[:, particle.index], whole)
    return Momenta(topology, visible, _solved(topology, slots, met, ids))


def _solved(topology: Topology, slots: Floats, met: Floats, ids: npt.NDArray[np.uint64]) -> Neutrinos:
    unseen, n = topology.neutrinos, len(slots)
    p4 = np.full((n, max(1, 2 * len(unseen)), len(unseen), 4), np.nan)
    solutions = np.full(n, -1, dtype=np.int32)
    leptons = [slots[:, list(neutrino.lepton)].sum(axis=1) for neutrino in unseen]
    others = [slots[:, list(neutrino.others)].sum(axis=1) for neutrino in unseen]
    if len(unseen) == 1:
        ((neutrino,), (lepton,), (other,)) = unseen, leptons, others
        found = one_neutrino(lepton, met, neutrino.mass)
        p4[:, :, 0] = found.p4
        if neutrino.mother >= 0:
            second = nearest_mass(lepton + other, found.p4, neutrino.mother_mass) == 1
            p4[second] = p4[second][:, ::-1]
            p4[np.isnan(other).any(axis=1)] = np.nan  # the mother is incomplete
        known = np.isfinite(p4).all(axis=(1, 2, 3))
        solutions[known] = np.where(found.real, 2, 0)[known]
    elif len(unseen) == 2 and all(neutrino.mother >= 0 for neutrino in unseen):
        masses = np.array([(neutrino.mass, neutrino.mother_mass) for neutrino in unseen]).T
        measured = np.stack(leptons, axis=1), np.stack(others, axis=1), met, masses[0], masses[1]
        both = two_neutrinos(*measured)
        known = np.isfinite(both.p4[:, 0]).all(axis=(1, 2))
        solutions[known] = both.n_real[known]
        mean = smeared_neutrinos(*measured, ids, load_settings().transfer)[:, None]
        p4 = np.concatenate([np.where(np.isfinite(mean), mean, both.p4[:, :1]), both.p4], axis=1)
    return Neutrinos(p4, solutions)


# -- objects -----------------------------------------------------------------------------------------------


def slot_momenta(events: Events, assignment: Ints) -> Floats:
    """(n, S, 4): px, py, pz and energy of the object in each slot; NaN for empty slots."""
    p4 = {
        kind: cartesian(*(np.asarray(ak.flatten(events.objects[kind][name])) for name in MOMENTUM))
        for kind in events.topology.object_kinds
    }
    columns = [pick(p4[s.kind], events, s.kind, assignment[:, s.index]) for s in events.topology.slots]
    return np.where(assignment[:, :, None] >= 0, np.stack(columns, axis=1), np.nan)


def missing_momentum(events: Events) -> Floats:
    """(n, 2): px and py of the missing energy; NaN where an event has none."""
    kind = next((kind for kind in events.topology.context if KINDS[kind].transverse), None)
    if kind is None:
        return np.full((len(events), 2), np.nan)
    pt, phi = (np.asarray(ak.flatten(events.objects[kind][name]), np.float64) for name in ("pt", "phi"))
    flat = np.stack([pt * np.cos(phi), pt * np.sin(phi)], axis=1)
    none = events.counts[kind] == 0
    found = pick(flat, events, kind, np.where(none, -1, 0))
    return np.where(none[:, None], np.nan, found)


def met_follows(topology: Topology, varied: Iterable[str]) -> str:
    """The missing energy that a variation of these kinds moves: that of the topology, if it is not among them."""
    met = next((kind for kind in topology.kinds if KINDS[kind].transverse), "")
    return "" if met in varied else met


def varied_events(events: Events, name: str) -> Events:
    """The events of a variation.

    Missing energy that the variation does not give is moved by the opposite of the shifts of its objects: the sum
    over those that are usable and nominally above `MET_PT`, as jets that enter the missing energy are.

    >>> import pairton
    >>> jet, up, lepton = (pairton.make_objects(pt=[[p]], eta=[[0]], phi=[[0]], mass=[[0]]) for p in (50, 56, 30))
    >>> objects, up = {"jet": jet, "lepton": lepton, "met": pairton.make_met([20.0], [0.0])}, {"jet": up}
    >>> varied_events(Events(objects, "ttbar_semilep", variations={"up": up}), "up").objects["met"].pt.tolist()
    [[14.0]]
    """
    varied = events.varied(name)
    kinds = events.variations[name]
    if not (met := met_follows(events.topology, kinds)):
        return varied
    moved = missing_momentum(events)
    for kind in kinds:
        before, after = (_transverse(each, kind) for each in (events, varied))
        hard = np.asarray(ak.flatten(events.objects[kind].pt > MET_PT))
        enters = hard & np.asarray(ak.flatten(events.usable[kind])) & np.isfinite(before + after).all(axis=0)
        shift = np.where(enters, after - before, 0)
        event = np.repeat(np.arange(len(events)), events.counts[kind])
        moved -= np.stack([np.bincount(event, part, len(events)) for part in shift], axis=1)
    own = moved[np.repeat(np.arange(len(events)), events.counts[met])]
    pt, counts = np.hypot(*own.T), events.counts[met]
    array = varied.objects[met]
    for field, values in {"pt": pt, "phi": np.arctan2(own[:, 1], own[:, 0]), "energy": pt}.items():
        dtype = np.float64 if field == "energy" else np.float32
        array = ak.with_field(array, ak.unflatten(values.astype(dtype), counts), field)
    return varied.replace(objects={**varied.objects, met: array})


def _transverse(events: Events, kind: str) -> Floats:
    """(2, J): px and py of all objects of a kind."""
    pt, phi = (np.asarray(ak.flatten(events.objects[kind][name]), np.float64) for name in ("pt", "phi"))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.stack([pt * np.cos(phi), pt * np.sin(phi)])


def pick(flat: npt.NDArray[Any], events: Events, kind: str, position: Ints) -> npt.NDArray[Any]:
    """The entries of `flat` (J, ...) for the objects at positions (n,); arbitrary where the position is -1."""
    if not len(flat):
        return np.zeros((len(position), *flat.shape[1:]), dtype=flat.dtype)
    starts = np.cumsum(events.counts[kind]) - events.counts[kind]
    return np.asarray(flat[np.where(position >= 0, starts + position, 0)])


# -- particle or antiparticle ------------------------------------------------------------------------------


def with_sign(topology: Topology) -> tuple[int, ...]:
    """The particles whose sign follows from the charge of a lepton, directly or through their partner."""
    known = {_charged(topology, k): None for k in range(len(topology.neutrinos))} if topology.neutrinos else {}
    pairs = [pair for pair in topology.systems.values() if len(pair) == 2 and known.keys() & set(pair)]
    return tuple(sorted({*known, *(index for pair in pairs for index in pair)}))


def signed_codes(events: Events, assignment: Ints) -> npt.NDArray[np.int32]:
    """(n, P): PDG codes of particles, negative for antiparticles, from the charges of leptons; 0 if unknown.

    A positive lepton comes from a W+, and a W+ from a top. The other particle of a pair is the antiparticle.
    """
    topology = events.topology
    signs = np.zeros((len(events), len(topology.particles)), dtype=np.int32)
    codes = np.zeros(len(topology.particles), dtype=np.int32)
    for index in with_sign(topology):
        known = properties_of(topology, topology.particles[index].type)
        codes[index] = 0 if known is None else known.code
    for k, neutrino in enumerate(topology.neutrinos):
        known = properties_of(topology, topology.particles[_charged(topology, k)].type)
        if known is not None:
            charge = _charges(events, assignment[:, neutrino.lepton[0]], neutrino.lepton[0])
            signs[:, _charged(topology, k)] = np.sign(known.charge) * np.sign(charge)
    for pair in topology.systems.values():
        if len(pair) == 2:
            one, other = signs[:, pair[0]].copy(), signs[:, pair[1]].copy()
            differ = one != other
            signs[:, pair[0]] = np.where(one == 0, -other, one) * differ
            signs[:, pair[1]] = np.where(other == 0, -one, other) * differ
    return signs * codes


def _charged(topology: Topology, k: int) -> int:
    """The particle whose sign follows from the lepton beside neutrino k: its mother, or the resonance itself."""
    neutrino = topology.neutrinos[k]
    return neutrino.mother if neutrino.mother >= 0 else neutrino.particle


def _charges(events: Events, position: Ints, slot: int) -> Floats:
    """(n,): the charge of the object in a slot; 0 if unknown."""
    kind = events.topology.slots[slot].kind
    objects = events.objects[kind]
    fields = ak.fields(objects)
    if "charge" not in fields and "pdgid" not in fields:
        return np.zeros(len(position))
    values = (
        objects.charge if "charge" in fields else -objects.pdgid
    )  # the electron, of charge -1, has the code 11
    found = pick(np.asarray(ak.flatten(values), np.float64), events, kind, position)
    return np.where((position >= 0) & np.isfinite(found), found, 0)
