"""Truth: particles of a hard process, put in the slots of a topology and matched to jets.

Flat arrays over the entries of all events: a few per event, so that nothing loops over events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt
import yaml

from pairton.topology import Topology

__all__ = ["RADIUS", "fill_slots", "match", "pdg_codes", "unknown_names"]

Ints = npt.NDArray[np.int64]
Codes = Mapping[str, Sequence[int]]

RADIUS = 0.4  # of the matching, in delta R
BLOCK = 8192  # events compared at once: some ten MB of distances


@cache
def pdg_codes() -> Codes:
    """PDG codes, without sign, of the names that a topology may use.

    >>> pdg_codes()["H"]
    [25]
    """
    text = (resources.files("pairton") / "pdg.yaml").read_text("utf-8")
    codes: dict[str, list[int]] = yaml.safe_load(text)
    return codes


def unknown_names(topology: Topology, codes: Codes | None = None) -> list[str]:
    """Names of the topology that stand for no PDG code: with any, a record cannot be searched."""
    names = {*topology.event, *(name for _, products in topology.decays for name in products)}
    return sorted(names - set(pdg_codes() if codes is None else codes))


def fill_slots(
    topology: Topology, event: Ints, code: Ints, parent: Ints, n_events: int, codes: Codes | None = None
) -> Ints:
    """(n_events, S) entry of the particle of each slot, -1 where the hard process has none.

    Entries are those of the hard process, ordered by event; `parent` is the entry of the resonance that each
    comes from, -1 at the root. Particles come before antiparticles: the first of two tops is the quark.

    >>> from pairton.topology import load_topology
    >>> event, code = np.zeros(6, dtype=int), np.array([25, 25, 5, -5, -5, 5])
    >>> fill_slots(load_topology("hh4b"), event, code, np.array([-1, -1, 0, 0, 1, 1]), 1).tolist()
    [[2, 3, 5, 4]]
    """
    codes = pdg_codes() if codes is None else codes
    particles = np.full((n_events, len(topology.particles)), -1, dtype=np.int64)
    slots = np.full((n_events, len(topology.slots)), -1, dtype=np.int64)
    decays = dict(topology.decays)

    def fill(target: Ints, columns: Sequence[int], name: str, mothers: Ints | None) -> None:
        """Entries of one name below one mother per event, in order, into as many columns."""
        below = parent < 0 if mothers is None else (parent >= 0) & (parent == mothers[event])
        found = np.flatnonzero(below & np.isin(np.abs(code), codes[name]))
        found = found[np.lexsort((found, code[found] < 0, event[found]))]
        row = event[found]
        rank = np.arange(len(found)) - np.searchsorted(row, row)
        fits = rank < len(columns)
        target[row[fits], np.asarray(columns)[rank[fits]]] = found[fits]

    for name in dict.fromkeys(topology.event):
        fill(particles, [p.index for p in topology.roots if p.type == name], name, None)
    for particle in topology.particles:  # parents come first
        mothers = particles[:, particle.index]
        if particle.type not in decays:  # a plain jet at the root
            slots[:, particle.own_slots[0]] = mothers
            continue
        products = decays[particle.type]
        for name in dict.fromkeys(products):
            if name in decays:
                children = [c for c in particle.children if topology.particles[c].type == name]
                fill(particles, children, name, mothers)
            else:
                jets = [product for product in products if product not in decays]
                own = [s for s, jet in zip(particle.own_slots, jets, strict=True) if jet == name]
                fill(slots, own, name, mothers)
    return slots


def match(
    jets: ak.Array, eta: npt.NDArray[Any], phi: npt.NDArray[Any], radius: float = RADIUS
) -> npt.NDArray[np.int32]:
    """(B, S) position of the jet of each quark, -1 without one; `eta` and `phi` (B, S) are NaN where none is.

    A quark takes the nearest jet within the radius; a jet claimed by two quarks is matched to neither.

    >>> jets = ak.Array({"eta": [[0.0, 1.0, 2.0]], "phi": [[0.0, 0.0, 3.1]]})
    >>> match(jets, np.array([[0.1, 1.1, 0.9, 2.0]]), np.array([[0.1, 0.0, 0.0, -3.1]])).tolist()
    [[0, -1, -1, 2]]
    """
    matched = np.full(eta.shape, -1, dtype=np.int32)
    counts = np.asarray(ak.num(jets.eta, axis=1))
    flat_eta, flat_phi = (np.asarray(ak.flatten(jets[name]), dtype=np.float32) for name in ("eta", "phi"))
    first = np.concatenate([[0], np.cumsum(counts)])
    for start in range(0, len(counts), BLOCK):
        rows = slice(start, start + BLOCK)
        there = np.arange(counts[rows].max(initial=0)) < counts[rows, None]  # (b, N)
        if not there.any():
            continue
        stop = first[min(start + BLOCK, len(counts))]
        jet_eta, jet_phi = (np.full(there.shape, np.nan, dtype=np.float32) for _ in range(2))
        jet_eta[there], jet_phi[there] = flat_eta[first[start] : stop], flat_phi[first[start] : stop]
        d_eta = eta[rows, :, None].astype(np.float32) - jet_eta[:, None, :]
        d_phi = phi[rows, :, None].astype(np.float32) - jet_phi[:, None, :]
        d_phi -= 2 * np.pi * np.round(d_phi / (2 * np.pi))
        distance = np.nan_to_num(np.hypot(d_eta, d_phi), nan=np.inf, posinf=np.inf)  # (b, S, N)
        claim = np.where(distance.min(axis=2) < radius, distance.argmin(axis=2), -1)
        shared = (claim[:, :, None] == claim[:, None, :]).sum(axis=2) > 1
        matched[rows] = np.where(shared, -1, claim)
    return matched
