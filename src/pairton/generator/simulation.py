"""Simulates one batch: from Pythia's record to measured objects, tags and truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, nearest
from pairton.events import Events
from pairton.events.objects import make_jets, make_met
from pairton.generator.card import Card
from pairton.generator.detector import Momenta, detect, joined
from pairton.generator.jet_finding import find_jets
from pairton.generator.leptons import ELECTRON, MUON, find_leptons, near_jets, prompt
from pairton.generator.pythia_record import Record
from pairton.generator.tagging import tags
from pairton.generator.truth import match, neutrinos, slot_entries, true_energies
from pairton.topology import JET, Topology

__all__ = ["KEEP", "keep_mask", "measure", "simulate"]

KEEP = ("all", "selected", "reconstructible")


def simulate(
    record: Record,
    charge: Callable[[int], float],
    topology: Topology,
    card: Card,
    rng: np.random.Generator,
) -> Events:
    """Events with truth from a batch. The column `found` says whether the hard process has all slots."""
    slots = slot_entries(record, topology)
    columns = {"found": (slots >= 0).all(axis=1)} | (neutrinos(record) if "met" in topology.kinds else {})
    events = Events(measure(record, charge, card, rng), topology, columns=columns)
    truth = match(events, record, slots, card.matching.radius)
    return events.replace(truth=truth, objects=true_energies(events, record, slots, truth))


def measure(
    record: Record, charge: Callable[[int], float], card: Card, rng: np.random.Generator
) -> dict[str, ak.Array]:
    """The measured objects of a batch, by kind."""
    n = len(record)
    particles = record.stable(charge)
    leptons, removed = find_leptons(particles, prompt(record), card.leptons, rng)
    inputs = detect(particles[~removed], card, rng)
    found = find_jets(inputs, n, card.jets)
    while (near := near_jets(leptons, found, card.leptons.isolation)).any():
        inputs, leptons = joined([inputs, leptons[near]]), leptons[~near]
        found = find_jets(inputs, n, card.jets)
    jets = make_jets(
        pt=found.pt, eta=found.eta, phi=found.phi, energy=found.energy, **tags(found, record, card.btag, rng)
    )
    every = leptons.objects(n)
    kinds = {"electron": every[every.flavour == ELECTRON], "muon": every[every.flavour == MUON]}
    return {JET: jets, "lepton": every, **kinds, "met": _met([inputs, leptons], found)}


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
    if keep not in KEEP:
        raise ConfigError(f"keep {keep!r}: choose one of {', '.join(KEEP)}{nearest(keep, KEEP)}")
    if keep == "all":
        return np.ones(len(events), dtype=bool)
    if keep == "selected":
        return events.selected
    return np.asarray(events.selected & events.keep(events.passes).present.any(axis=1))
