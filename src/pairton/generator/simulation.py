"""Simulates one batch: from Pythia's record to measured objects, tags and truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, TopologyError
from pairton.events import Events
from pairton.events.matching import (
    codes_of,
    fill_slots,
    from_taus,
    is_one_of,
    match_slots,
    pdg_codes,
    unknown_names,
)
from pairton.events.objects import make_jets, make_met, make_objects
from pairton.generator.card import Card
from pairton.generator.detector import Momenta, detect, joined
from pairton.generator.fatjets import find_fatjets, scores
from pairton.generator.jets import find_jets, tags
from pairton.generator.leptons import ELECTRON, MUON, find_leptons, near_jets, prompt
from pairton.generator.pythia import OUTGOING, RESONANCE, Record
from pairton.topology import JET, Topology, collection_name

__all__ = ["KEEP", "check_topology", "keep_mask", "match", "measure", "simulate", "slot_entries", "true_neutrinos"]

Ints = npt.NDArray[np.int64]
Truth = npt.NDArray[np.int32]

KEEP = ("all", "selected", "reconstructible")
KINDS = ("jet", "lepton", "electron", "muon", "fatjet", "met")
NEUTRINOS = (12, 14, 16)


def simulate(
    record: Record,
    charge: Callable[[int], float],
    topology: Topology,
    card: Card,
    rng: np.random.Generator,
) -> Events:
    """Events with truth from a batch. The column `found` says whether the hard process has all slots."""
    slots = slot_entries(record, topology)
    resolved = [slot.index for slot in topology.slots if not slot.merged]
    columns: dict[str, npt.NDArray[Any]] = {"found": np.asarray((slots[:, resolved] >= 0).all(axis=1))}
    if "met" in topology.kinds or topology.merged:
        columns |= true_neutrinos(record, topology, slots)
    events = Events(measure(record, charge, card, rng, topology.kinds), topology, columns=columns)
    radii = dict.fromkeys(topology.object_kinds, card.matching.radius)
    if card.fatjets is not None:
        radii["fatjet"] = card.fatjets.radius
    truth = match(events, record, slots, radii)
    return events.replace(truth=truth, objects=_with_true_energies(events, record, slots, truth))


def measure(
    record: Record,
    charge: Callable[[int], float],
    card: Card,
    rng: np.random.Generator,
    wanted: Sequence[str] = KINDS,
) -> dict[str, ak.Array]:
    """The measured objects of a batch, by kind. Large jets take time, and are made only if they are `wanted`."""
    n = len(record)
    particles = record.stable(charge)
    leptons, removed = find_leptons(particles, prompt(record), card.leptons, rng)
    inputs = detect(particles[~removed], card, rng)
    clusters = find_jets(inputs, n, card.jets)
    while (near := near_jets(leptons, clusters, card.leptons.isolation)).any():
        inputs, leptons = joined([inputs, leptons[near]]), leptons[~near]
        clusters = find_jets(inputs, n, card.jets)
    columns = {name: clusters[name] for name in ("pt", "eta", "phi", "energy")}
    jets = make_jets(**columns, **tags(clusters, record, card.btag, rng))
    every = leptons.objects(n)
    kinds = {"electron": every[every.flavour == ELECTRON], "muon": every[every.flavour == MUON]}
    if "fatjet" in wanted:
        kinds["fatjet"] = _fatjets(inputs, record, card, rng)
    return {JET: jets, "lepton": every, **kinds, "met": _met([inputs, leptons], clusters)}


def _fatjets(inputs: Momenta, record: Record, card: Card, rng: np.random.Generator) -> ak.Array:
    if card.fatjets is None:
        raise ConfigError(f"the card {card.name} has no large jets: add `fatjets`, as in the card atlas")
    found = find_fatjets(inputs, len(record), card.fatjets, card.jets)
    columns = {name: found[name] for name in ak.fields(found) if name != "raw"}
    return make_objects(**columns, **scores(found, record, card.fatjets, rng))


def _met(parts: Sequence[Momenta], jets: ak.Array) -> ak.Array:
    """Missing transverse momentum: minus the sum of all measured momenta, corrected for the scale of jets."""
    gain = jets.pt - jets.raw
    px, py = (-np.asarray(ak.sum(gain * axis(jets.phi), axis=1)) for axis in (np.cos, np.sin))
    for part in parts:
        px -= np.bincount(part.event, part.px, len(jets))
        py -= np.bincount(part.event, part.py, len(jets))
    return make_met(np.hypot(px, py), np.arctan2(py, px))


def keep_mask(events: Events, keep: str) -> npt.NDArray[np.bool_]:
    """Which events to keep: `all`, those `selected` by the topology, or of these the `reconstructible` ones, in
    which at least one particle has all its objects within the cuts."""
    if keep == "all":
        return np.ones(len(events), dtype=bool)
    if keep == "selected":
        return events.selected
    return np.asarray(events.selected & events.keep(events.passes).present.any(axis=1))


# -- truth -------------------------------------------------------------------------------------------------


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


def slot_entries(record: Record, topology: Topology) -> Ints:
    """(B, S): the entry of the particle in each slot, -1 if the hard process has none. See `fill_slots`.

    Mothers are followed through copies of the resonance, which the shower makes when it recoils. Electrons and
    muons from taus of the hard process count as entries of it.
    """
    status = np.abs(record.status)
    is_hard = (status == RESONANCE) | (status == OUTGOING)
    is_hard |= from_taus(record.code, is_hard, lambda entries: record.mother[entries])
    hard = np.flatnonzero(is_hard)
    parent = record.mother[hard]
    while len(climbing := np.flatnonzero((parent >= 0) & ~is_hard[parent])):
        parent[climbing] = record.mother[parent[climbing]]
    return fill_slots(topology, hard, record.event[hard], record.code[hard], parent, len(record))


def true_neutrinos(record: Record, topology: Topology, slots: Ints) -> dict[str, npt.NDArray[np.float64]]:
    """Columns of the truth that objects do not show, in GeV; NaN if the hard process lacks the particle.

    `neutrino_px` and so on are the sum over the neutrinos of the hard process. If the topology solves for
    neutrinos, `tl1_neutrino_px` and so on are the one below tl1. Then, and if particles may be merged,
    `tl1_true_pt` is the pT of a root particle as it decays, and `tt_true_mass` the mass of a system of roots.
    """
    hard = np.flatnonzero((np.abs(record.status) == OUTGOING) & np.isin(np.abs(record.code), NEUTRINOS))
    columns = {f"neutrino_{name}": _added(record, hard, name) for name in ("px", "py", "pz")}
    codes, entries = codes_of(topology), {}
    particles = bool(topology.neutrinos or topology.merged)
    if particles:
        for particle in topology.particles:
            above = _ancestor(record, slots[:, list(particle.slots)], codes[particle.type])
            entries[particle.index] = above.max(axis=1)
    for neutrino in topology.neutrinos:
        particle, own = topology.particles[neutrino.particle], entries[neutrino.particle]
        below = _ancestor(record, hard, codes[particle.type])
        mine = hard[(below >= 0) & (below == own[record.event[hard]])]
        missing = np.bincount(record.event[mine], minlength=len(record)) == 0
        for name in ("px", "py", "pz"):
            columns[f"{particle.name}_neutrino_{name}"] = np.where(missing, np.nan, _added(record, mine, name))
    systems: dict[str, tuple[int, ...]] = {f"{root.name}_true_pt": (root.index,) for root in topology.roots}
    systems |= {f"{name}_true_mass": roots for name, roots in topology.systems.items()}
    for title, parts in systems.items() if particles else ():
        at = np.stack([entries[part] for part in parts], axis=1)
        px, py, pz, energy = (getattr(record, name)[at].sum(axis=1) for name in ("px", "py", "pz", "energy"))
        square = px**2 + py**2 if title.endswith("_pt") else energy**2 - px**2 - py**2 - pz**2
        columns[title] = np.where((at >= 0).all(axis=1), np.sqrt(np.maximum(square, 0)), np.nan)
    return columns


def _added(record: Record, entries: Ints, name: str) -> npt.NDArray[np.float64]:
    """(B,): the sum of a component over some entries of each event."""
    return np.bincount(record.event[entries], getattr(record, name)[entries], len(record)).astype(np.float64)


def _ancestor(record: Record, entries: Ints, codes: Sequence[int]) -> Ints:
    """The nearest ancestor of each entry with one of the codes, -1 for none."""
    is_one = is_one_of(record.code, codes)
    above = np.where(entries >= 0, record.mother[entries], -1)
    while ((above >= 0) & ~is_one[above]).any():
        above = np.where((above >= 0) & ~is_one[above], record.mother[above], above)
    return above


def match(events: Events, record: Record, slots: Ints, radii: Mapping[str, float]) -> Truth:
    """(B, S): the position of the object in each slot, -1 for none. See `pairton.events.matching.match_slots`.

    Objects that pass the selection of the topology are matched first. The others are matched only to the slots
    that are then still empty, but not to those of merged particles.
    """
    eta, phi = np.where(slots >= 0, record.eta[slots], np.nan), record.phi[slots]
    within = match_slots(events.topology, events.objects, eta, phi, events.passes, radii)
    outside = {kind: ~passes for kind, passes in events.passes.items()}
    left = np.where(within < 0, eta, np.nan)
    for particle in events.topology.particles:
        if particle.merged_slot >= 0:
            left[np.ix_(within[:, particle.merged_slot] >= 0, np.array(particle.span))] = np.nan
    return np.where(within < 0, match_slots(events.topology, events.objects, left, phi, outside, radii), within)


def _with_true_energies(events: Events, record: Record, slots: Ints, truth: Truth) -> dict[str, ak.Array]:
    """The objects with a field `true_energy`: the energy of the quarks or leptons they are matched to, or 0.

    slots   (B, S): entries of the quarks and leptons
    truth   (B, S): positions of their objects
    """
    objects = dict(events.objects)
    energies = np.where(slots >= 0, record.energy[slots], 0.0)
    for particle in events.topology.particles:
        if particle.merged_slot >= 0:
            energies[:, particle.merged_slot] = energies[:, list(particle.slots)].sum(axis=1)
    for kind in events.topology.object_kinds:
        counts = events.counts[kind]
        energy, first = np.zeros(counts.sum()), np.cumsum(counts) - counts
        for slot in (slot.index for slot in events.topology.slots if slot.kind == kind):
            (rows,) = np.nonzero(truth[:, slot] >= 0)
            energy[first[rows] + truth[rows, slot]] = energies[rows, slot]
        objects[kind] = ak.with_field(objects[kind], ak.unflatten(energy, counts), "true_energy")
    return objects
