"""The measured objects of a batch of events, in the form that kinematic fits need.

Shapes: B events, N nodes, C candidates, V measured leaves of a decay, F = C B fits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.events.inputs import EVIDENCE, MOMENTUM, Inputs
from pairton.events.nodes import Nodes
from pairton.kinematics.decays import Decay
from pairton.kinematics.fit_settings import EVIDENCE_TAGS, NO_TAGS, FitSettings, TagRates
from pairton.kinematics.objective import Problem
from pairton.kinematics.transfer_functions import response
from pairton.topology import JET, Topology
from pairton.topology.kinds import KINDS

__all__ = ["Observed", "inputs_of", "observe"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]

CHARM_SHARE = 0.25  # of jets from a hadronic W: half of its decays have one charm quark
TAG_CUT = 0.5  # a jet above it is b-tagged


@dataclass(frozen=True)
class Observed:
    """The objects of events of one layout."""

    direction: Floats  # (N, 3, B): unit vectors
    energy: Floats  # (N, B)
    abs_eta: Floats  # (N, B)
    met: Floats  # (2, B)
    met_sigma: Floats  # (B,)
    log_b: Floats  # (N, B): added to log L if a jet fills the slot of a b quark, from its tag and pT
    log_other: Floats  # (N, B): the same if it fills the slot of another quark

    def take(self, events: slice) -> Observed:
        """Some of the events."""
        return Observed(*(getattr(self, field.name)[..., events] for field in fields(self)))

    def problem(
        self, decay: Decay, settings: FitSettings, objects: Ints, shared: tuple[int, float] | None = None
    ) -> Problem:
        """The fits of candidates, with objects (C, V), the same in all events, or (C, V, B).

        shared: number of neutrinos that share the missing energy, and uncertainty of the share of one, GeV.
        """
        nodes = np.moveaxis(objects if objects.ndim == 3 else objects[:, :, None], 1, 0).astype(
            np.intp
        )  # (V, C, ?)
        events = np.arange(self.energy.shape[1])
        fits = (nodes.shape[0], -1)

        def gather(values: Floats) -> Floats:
            return values[nodes, events].reshape(fits)

        direction = np.stack([gather(self.direction[:, axis]) for axis in range(3)], axis=1)
        abs_eta = gather(self.abs_eta)
        met, sigma = self.met, self.met_sigma
        if shared is not None:
            met, sigma = met / shared[0], np.full_like(sigma, shared[1])
        candidates = nodes.shape[1]
        return Problem(
            decay,
            direction,
            gather(self.energy),
            response([getattr(settings.transfer, name) for name in decay.transfer], abs_eta),
            np.tile(met, (1, candidates)),
            np.tile(sigma, candidates),
            settings.neutrino_eta if shared or len(decay.neutrinos) > 1 else 0.0,
        )

    def tag_terms(self, objects: Ints, b_slots: list[bool]) -> Floats:
        """(C, B): the terms of tags and pT in the log likelihood of candidates (C, V) or (C, V, B)."""
        events = np.arange(self.energy.shape[1])
        total = np.zeros((len(objects), len(events)))
        for v, is_b in enumerate(b_slots):
            nodes = objects[:, v].reshape(len(objects), -1).astype(np.intp)  # (C, 1 or B)
            total += (self.log_b if is_b else self.log_other)[nodes, events]
        return total


def inputs_of(topology: Topology, settings: FitSettings) -> Inputs:
    """The inputs of a kinematic fit: momenta, and the tags of jets."""
    tags = [] if settings.tags == NO_TAGS else list(EVIDENCE) if settings.tags == EVIDENCE_TAGS else ["btag"]
    return Inputs.parse({kind: tags if kind == JET else [] for kind in topology.kinds}, topology)


def observe(nodes: Nodes, inputs: Inputs, settings: FitSettings) -> Observed:
    """The objects of a batch of one layout, without padding."""
    values = {kind: array.astype(np.float64) for kind, array in nodes.values.items()}  # (B, n, columns)
    parts = [array[:, :, : len(MOMENTUM)] for kind, array in values.items() if not KINDS[kind].transverse]
    pt, eta, phi, energy = np.concatenate(parts, axis=1).transpose(2, 1, 0)  # (N, B) each
    flat = [array for kind, array in values.items() if KINDS[kind].transverse]
    met, sigma = np.zeros((2, len(nodes))), np.ones(len(nodes))
    if flat and flat[0].shape[1]:
        met_pt, _, met_phi, _ = flat[0][:, 0, : len(MOMENTUM)].T
        met = np.stack([met_pt * np.cos(met_phi), met_pt * np.sin(met_phi)])
        sigma = np.sqrt(settings.transfer.met.b**2 * pt.sum(axis=0) + settings.transfer.met.c**2)
    log_b, log_other = np.zeros_like(energy), np.zeros_like(energy)
    start = 0
    for kind, array in values.items():
        if kind == JET and settings.tags != NO_TAGS:
            at = slice(start, start + array.shape[1])
            log_b[at], log_other[at] = _tags(array, inputs.columns(JET), settings.tags)
        if kind == JET and settings.other_jets:
            at = slice(start, start + array.shape[1])
            gain = settings.other_jets * np.log(pt[at]) + np.log(
                np.cosh(eta[at])
            )  # - log density of E as another jet
            log_b[at] += gain
            log_other[at] += gain
        start += 0 if KINDS[kind].transverse else array.shape[1]
    direction = np.stack([np.cos(phi), np.sin(phi), np.sinh(eta)], axis=1) / np.cosh(eta)[:, None]
    return Observed(direction, energy, np.abs(eta), met, sigma, log_b, log_other)


def _tags(jets: Floats, columns: tuple[str, ...], tags: TagRates | str) -> tuple[Floats, Floats]:
    """(n, B) each: log likelihood ratios of a jet's tag to that of a light jet, in slots of b and other quarks."""
    if isinstance(tags, TagRates):
        tagged = jets[:, :, columns.index("btag")].T > TAG_CUT
        with np.errstate(divide="ignore"):
            passed = np.log(tags.efficiency * tags.rejection)
            failed = np.log1p(-tags.efficiency) - np.log1p(-1 / tags.rejection)
        return np.where(tagged, passed, failed), np.zeros(tagged.shape)
    b, c = (jets[:, :, columns.index(name)].T for name in EVIDENCE)
    return b, np.log1p(CHARM_SHARE * np.expm1(c))
