"""Measures electrons and muons of the hard process. A lepton that is too near a jet becomes part of the jets."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.events.matching import nearest
from pairton.events.objects import make_objects
from pairton.generator.card import Leptons
from pairton.generator.detector import Momenta, Particles, lognormal
from pairton.generator.pythia_record import Record
from pairton.generator.tagging import padded

__all__ = ["Found", "find_leptons", "near_jets", "prompt"]

Bools = npt.NDArray[np.bool_]
ELECTRON, MUON, TAU = 11, 13, 15


@dataclass(frozen=True)
class Found(Momenta):
    """Measured leptons, ordered by event and falling pT."""

    charge: npt.NDArray[np.float64]
    flavour: npt.NDArray[np.int64]  # PDG code without sign

    def __getitem__(self, where: npt.NDArray[Any]) -> Found:
        return Found(*(getattr(self, column.name)[where] for column in fields(self)))

    @property
    def pt(self) -> npt.NDArray[np.float64]:
        return np.hypot(self.px, self.py)

    def objects(self, n_events: int) -> ak.Array:
        columns = {
            "pt": self.pt,
            "eta": np.arcsinh(self.pz / self.pt),
            "phi": np.arctan2(self.py, self.px),
            "energy": self.energy,
            "charge": self.charge,
            "flavour": self.flavour,
        }
        counts = np.bincount(self.event, minlength=n_events)
        return make_objects(**{name: ak.unflatten(values, counts) for name, values in columns.items()})


def prompt(record: Record) -> Bools:
    """Which stable particles are electrons and muons of the hard process, also from decays of its taus."""
    stable = np.flatnonzero(record.status > 0)
    code = np.abs(record.code)
    at = np.where((code[stable] == ELECTRON) | (code[stable] == MUON), stable, -1)
    found = np.zeros(len(stable), dtype=bool)
    climbing = np.flatnonzero(at >= 0)
    while len(climbing):  # follow mothers that are copies of the lepton, or taus, up to the hard process
        here = at[climbing]
        hard = np.abs(record.status[here]) == 23
        found[climbing[hard]] = True
        up = record.mother[here]
        on = ~hard & (up >= 0) & np.isin(code[up], (ELECTRON, MUON, TAU))
        at[climbing] = up
        climbing = climbing[on]
    return found


def find_leptons(
    particles: Particles, candidates: Bools, settings: Leptons, rng: np.random.Generator
) -> tuple[Found, Bools]:
    """Return the measured leptons, and which particles do not enter jets: measured leptons and lost muons."""
    at = np.flatnonzero(candidates)
    leptons = particles[at]
    pt = np.hypot(leptons.px, leptons.py)
    factor = lognormal(np.ones(len(at)), np.full(len(at), settings.resolution), rng.standard_normal(len(at)))
    covered = np.abs(np.arcsinh(leptons.pz / np.maximum(pt, 1e-9))) < settings.abs_eta
    covered &= factor * pt > settings.pt
    kept = covered & (rng.random(len(at)) < settings.efficiency)
    flavour = np.abs(leptons.code)
    removed = np.zeros(len(particles.code), dtype=bool)
    removed[at[kept | (covered & (flavour == MUON))]] = True
    order = np.flatnonzero(kept)
    order = order[np.lexsort((-(factor * pt)[order], leptons.event[order]))]
    px, py, pz, energy = (factor * part for part in (leptons.px, leptons.py, leptons.pz, leptons.energy))
    return Found(leptons.event, px, py, pz, energy, leptons.charge, flavour)[order], removed


def near_jets(leptons: Found, jets: ak.Array, radius: float) -> Bools:
    """Which leptons have a jet within the radius."""
    counts = ak.to_numpy(ak.num(jets, axis=1))
    n_leptons = np.bincount(leptons.event, minlength=len(jets))
    own = np.arcsinh(leptons.pz / leptons.pt), np.arctan2(leptons.py, leptons.px)
    lepton_eta, lepton_phi = (padded(values, n_leptons) for values in own)
    eta, phi = (ak.to_numpy(ak.flatten(jets[name])) for name in ("eta", "phi"))
    near = nearest(counts, eta, phi, lepton_eta, lepton_phi, radius) >= 0
    return np.asarray(near[np.isfinite(lepton_eta)])
