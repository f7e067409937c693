"""Measures electrons and muons of the hard process. A lepton that is too near a jet becomes part of the jets."""

from __future__ import annotations

from dataclasses import dataclass

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.events.objects import make_objects
from pairton.generator.card import Leptons
from pairton.generator.detector import Momenta, Particles, lognormal
from pairton.generator.jets import directions, has_near
from pairton.generator.pythia import Record

__all__ = ["MeasuredLeptons", "find_leptons", "near_jets", "prompt"]

Bools = npt.NDArray[np.bool_]
ELECTRON, MUON, TAU = 11, 13, 15


@dataclass(frozen=True)
class MeasuredLeptons(Momenta):
    """Leptons ordered by event and falling pT."""

    charge: npt.NDArray[np.float64]
    flavour: npt.NDArray[np.int64]  # PDG code without sign

    def objects(self, n_events: int) -> ak.Array:
        counts = np.bincount(self.event, minlength=n_events)
        names = ("pt", "eta", "phi", "energy", "charge", "flavour")
        return make_objects(**{name: ak.unflatten(getattr(self, name), counts) for name in names})


def prompt(record: Record) -> Bools:
    """Which stable particles are electrons and muons of the hard process, also from decays of its taus."""
    stable = np.flatnonzero(record.status > 0)
    code = np.abs(record.code)
    is_prompt = np.zeros(len(stable), dtype=bool)
    climbing = np.flatnonzero((code[stable] == ELECTRON) | (code[stable] == MUON))
    at = stable[climbing]
    while len(climbing):  # follow mothers that are copies of the lepton, or taus, up to the hard process
        hard, up = np.abs(record.status[at]) == 23, record.mother[at]
        is_prompt[climbing[hard]] = True
        on = ~hard & (up >= 0) & np.isin(code[up], (ELECTRON, MUON, TAU))
        climbing, at = climbing[on], up[on]
    return is_prompt


def find_leptons(
    particles: Particles, candidates: Bools, settings: Leptons, rng: np.random.Generator
) -> tuple[MeasuredLeptons, Bools]:
    """Return the measured leptons, and which particles do not enter jets: measured leptons and lost muons."""
    at = np.flatnonzero(candidates)
    true = particles[at]
    flavour = np.abs(true.code)
    factor = lognormal(np.ones(len(at)), np.full(len(at), settings.resolution), rng.standard_normal(len(at)))
    px, py, pz, energy = (factor * part for part in (true.px, true.py, true.pz, true.energy))
    leptons = MeasuredLeptons(true.event, px, py, pz, energy, true.charge, flavour)
    covered = (np.abs(true.eta) < settings.abs_eta) & (factor * true.pt > settings.pt)
    kept = covered & (rng.random(len(at)) < settings.efficiency)
    removed = np.zeros(len(candidates), dtype=bool)
    removed[at[kept | (covered & (flavour == MUON))]] = True
    order = np.flatnonzero(kept)
    return leptons[order[np.lexsort((-(factor * true.pt)[order], true.event[order]))]], removed


def near_jets(leptons: MeasuredLeptons, jets: ak.Array, radius: float) -> Bools:
    """Which leptons have a jet within the radius."""
    return has_near((leptons.event, leptons.eta, leptons.phi), directions(jets), len(jets), radius)
