"""The chain for one batch: Pythia's record -> detector -> jets -> b-tags -> truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, nearest
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.generator.card import Card
from pairton.generator.detector import detect
from pairton.generator.jet_finding import find_jets
from pairton.generator.pythia_record import Record
from pairton.generator.tagging import btags
from pairton.generator.truth import match, slot_entries
from pairton.topology import JET, Topology

__all__ = ["KEEP", "keep_mask", "simulate"]

KEEP = ("all", "selected", "reconstructible")


def simulate(
    record: Record,
    charge: Callable[[int], float],
    topology: Topology,
    codes: Mapping[str, Sequence[int]],
    card: Card,
    rng: np.random.Generator,
) -> Events:
    """Detector, jets and truth of one batch; the column `quarks` says whether the hard process was complete."""
    inputs = detect(record.stable(charge), card, rng)
    found = find_jets(inputs, len(record), card.jets)
    tags = btags(found, record, card.btag, rng)
    jets = make_jets(pt=found.pt, eta=found.eta, phi=found.phi, energy=found.energy, btag=tags)
    slots = slot_entries(record, topology, codes)
    truth = match(topology, {JET: jets}, record, slots, card.matching.radius)
    return Events(jets, topology, truth, columns={"quarks": (slots >= 0).all(axis=1)})


def keep_mask(events: Events, keep: str) -> npt.NDArray[np.bool_]:
    """Which events to keep: `all`; `selected` by the topology's cuts; of those, `reconstructible` ones, in
    which at least one particle has all its jets."""
    if keep not in KEEP:
        raise ConfigError(f"keep {keep!r}: choose one of {', '.join(KEEP)}{nearest(keep, KEEP)}")
    if keep == "all":
        return np.ones(len(events), dtype=bool)
    if keep == "selected":
        return events.selected
    return np.asarray(events.selected & events.present.any(axis=1))
