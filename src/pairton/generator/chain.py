"""The chain for one batch: Pythia's record -> detector -> jets -> b-tags -> truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.generator.card import Card
from pairton.generator.detector import detect
from pairton.generator.jets import find_jets
from pairton.generator.pythia import Source
from pairton.generator.record import Record
from pairton.generator.tagging import btags
from pairton.generator.truth import match, slot_entries
from pairton.topology import Topology

__all__ = ["KEEP", "Simulated", "keep_mask", "simulate"]

KEEP = ("all", "selected", "reconstructible")


@dataclass(frozen=True)
class Simulated:
    """Events of a batch."""

    jets: ak.Array  # B * var * {pt, eta, phi, energy, btag}
    truth: npt.NDArray[np.int64]  # (B, S)
    quarks: npt.NDArray[np.bool_]  # (B, S): the hard process has that quark
    weights: npt.NDArray[np.float64]  # (B,)


def simulate(
    record: Record,
    source: Source,
    topology: Topology,
    codes: Mapping[str, Sequence[int]],
    card: Card,
    rng: np.random.Generator,
) -> Simulated:
    """Detector, jets and truth of one batch."""
    inputs = detect(record.stable(source.charge), card, rng)
    jets = find_jets(inputs, len(record), card.jets)
    jets = ak.with_field(jets, btags(jets, record, card.btag, rng), "btag")
    slots = slot_entries(record, topology, codes)
    truth = match(jets, record, slots, card.matching.radius)
    return Simulated(jets, truth, slots >= 0, record.weights)


def keep_mask(simulated: Simulated, topology: Topology, keep: str) -> npt.NDArray[np.bool_]:
    """Which events to keep: `all`; `selected` by the topology's event cuts; of those, `reconstructible`
    ones, in which at least one particle has all its jets."""
    cuts = topology.selection
    mask = np.ones(len(simulated.truth), dtype=bool)
    if keep == "all":
        return mask
    mask &= ak.to_numpy(ak.num(simulated.jets, axis=1)) >= cuts.jets
    mask &= ak.to_numpy(ak.sum(simulated.jets.btag, axis=1)) >= cuts.btags
    if keep == "reconstructible":
        found = simulated.truth >= 0
        complete = [found[:, list(particle.slots)].all(axis=1) for particle in topology.particles]
        mask &= np.any(complete, axis=0)
    return mask
