"""Truth: particles of a hard process, put in the slots of a topology and matched to jets.

Flat arrays over the entries of all events: a few per event, so that nothing loops over events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.topology import Topology
from pairton.topology.pdg import codes_of, pdg_codes, unknown_names

__all__ = [
    "RADIUS",
    "codes_of",
    "fill_slots",
    "from_taus",
    "is_one_of",
    "match",
    "match_slots",
    "pdg_codes",
    "unknown_names",
]

Ints = npt.NDArray[np.int64]

RADIUS = 0.4  # of the matching, in delta R
LEPTONS, TAU = (11, 13), 15
BLOCK = 1024  # events compared at once: their distances stay in the cache
TURN = np.float32(2 * np.pi)
FAR = 1e6  # eta of what is not there


def fill_slots(topology: Topology, entry: Ints, event: Ints, code: Ints, parent: Ints, n_events: int) -> Ints:
    """(n_events, S) entry of the particle of each slot, -1 where the hard process has none.

    The arrays list the hard process, by rising entry: the number of each, and in `parent` that of the resonance it
    comes from, -1 at the root. Products are looked for through resonances that the decay does not name: the lepton
    of `tl: [b, l]` comes from a W. Of several entries for a name, those are taken that decay most like it: in
    [t, tl] the top whose W gives quarks is `t`. Then particles come before antiparticles: the first of two equal
    tops is the quark. An entry fills one slot; of two names that allow it the one with fewer codes has the first
    choice, so that in [b, j] the b is that of the hard process.

    >>> from pairton.topology import load_topology
    >>> entry, event, code = np.arange(10, 16), np.zeros(6, dtype=int), np.array([25, 25, 5, -5, -5, 5])
    >>> fill_slots(load_topology("hh4b"), entry, event, code, np.array([-1, -1, 10, 10, 11, 11]), 1).tolist()
    [[12, 13, 15, 14]]
    """
    codes, decays = codes_of(topology), dict(topology.decays)
    particles = np.full((n_events, len(topology.particles)), -1, dtype=np.int64)  # positions in `entry`
    slots = np.full((n_events, len(topology.slots)), -1, dtype=np.int64)
    used = np.zeros(len(entry), dtype=bool)
    up = np.minimum(np.searchsorted(entry, parent), max(len(entry) - 1, 0))
    up = np.where((parent >= 0) & (parent < entry) & (entry[up] == parent), up, -1)  # mothers come first
    is_a = {name: is_one_of(code, codes[name]) for name in {*topology.event, *decays, *sum(decays.values(), ())}}

    def above(name: str, products: Sequence[str], at: Ints) -> Ints:
        """The mother of some entries among its products: the next one up that is a `name` or another product."""
        stop = np.logical_or.reduce([is_a[other] for other in products] + ([is_a[name]] if name else []))
        mother = up[at]
        while len(climbing := np.flatnonzero((mother >= 0) & ~stop[mother])):
            mother[climbing] = up[mother[climbing]]
        return mother

    @cache
    def likeness(name: str) -> npt.NDArray[np.float64]:
        """Of each entry: itself and how many of the products of a `name` are found below it."""
        found = is_a[name].astype(np.float64)
        for product in dict.fromkeys(decays.get(name, ())):
            at = np.flatnonzero(is_a[product])
            mother = above(name, decays[name], at)
            below = np.bincount(mother[mother >= 0], likeness(product)[at][mother >= 0], len(entry))
            most = decays[name].count(product) * likeness(product).max(initial=0.0)
            found += is_a[name] * np.minimum(below, most)
        return found

    def fill(target: Ints, columns: Sequence[int], name: str, mother: str, mothers: Ints | None) -> None:
        """Entries of one name below one mother per event, in order, into as many columns."""
        products = decays[mother] if mother else topology.event
        at = np.flatnonzero(is_a[name] & ~used)
        higher = above(mother, products, at)
        at = at[higher < 0 if mothers is None else (higher >= 0) & (higher == mothers[event[at]])]
        others = [likeness(other)[at] for other in dict.fromkeys(products) if other != name]
        gain = likeness(name)[at] - np.max(others, axis=0, initial=0.0) if others else likeness(name)[at]
        at = at[np.lexsort((code[at] < 0, -gain, event[at]))]
        at = at[_rank(event[at], n_events) < len(columns)]
        at = at[np.lexsort((code[at] < 0, event[at]))]
        target[event[at], np.asarray(columns)[_rank(event[at], n_events)]] = at
        used[at] = True

    def specific_first(names: Sequence[str]) -> list[str]:
        return sorted(dict.fromkeys(names), key=lambda name: len(codes[name]))

    for name in specific_first(topology.event):
        fill(particles, [p.index for p in topology.roots if p.type == name], name, "", None)
    for particle in topology.particles:  # parents come first
        mothers = particles[:, particle.index]
        if particle.type not in decays:  # a plain object at the root
            slots[:, particle.own_slots[0]] = mothers
            continue
        products = decays[particle.type]
        for name in specific_first(products):
            if name in decays:
                children = [c for c in particle.children if topology.particles[c].type == name]
                fill(particles, children, name, particle.type, mothers)
            else:
                leaves = [product for product in products if product not in decays]
                own = [s for s, leaf in zip(particle.own_slots, leaves, strict=True) if leaf == name]
                fill(slots, own, name, particle.type, mothers)
    return np.where(slots >= 0, entry[slots], -1) if len(entry) else slots


def _rank(event: Ints, n_events: int) -> Ints:
    """The place of each entry in its event; entries are ordered by event."""
    count = np.bincount(event, minlength=n_events)
    return np.asarray(np.arange(len(event)) - (np.cumsum(count) - count)[event])


def is_one_of(code: npt.NDArray[Any], wanted: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Whether codes, or those of their antiparticles, are among a few small ones.

    >>> is_one_of(np.array([5, -5, 6, 2212]), [5, 25]).tolist()
    [True, True, False, False]
    """
    table = np.zeros(max(wanted, default=0) + 2, dtype=bool)  # the last one is for all larger codes
    table[list(wanted)] = True
    return np.asarray(table[np.minimum(np.abs(code), len(table) - 1)])


def from_taus(
    code: npt.NDArray[Any], hard: npt.NDArray[np.bool_], mother: Callable[[Ints], Ints]
) -> npt.NDArray[np.bool_]:
    """Entries of a record that are electrons or muons from a tau of the hard process, perhaps after it radiated.

    Each counts as the lepton of what the tau comes from. `mother` gives the entries above some, -1 for none.

    >>> code, up = np.array([24, -15, -15, -11, 511, 13]), np.array([-1, 0, 1, 2, -1, 4])
    >>> from_taus(code, np.array([True, True, False, False, False, False]), lambda at: up[at]).tolist()
    [False, False, False, True, False, False]
    """
    found = np.zeros(len(code), dtype=bool)
    lepton = here = np.flatnonzero(is_one_of(code, LEPTONS) & ~hard)
    while len(lepton):
        up = mother(here)
        on = (up >= 0) & (up < here)  # mothers come first
        on[on] = np.abs(code[up[on]]) == TAU
        lepton, here = lepton[on], up[on]
        found[lepton[hard[here]]] = True
        lepton, here = lepton[~hard[here]], here[~hard[here]]
    return found


def match_slots(
    topology: Topology,
    objects: Mapping[str, ak.Array],
    eta: npt.NDArray[Any],
    phi: npt.NDArray[Any],
    radius: float = RADIUS,
    passes: Mapping[str, ak.Array] | None = None,
) -> npt.NDArray[np.int32]:
    """(B, S) position of the object of each slot, of those of its kind that pass; -1 without one.

    `eta` and `phi` (B, S) are those of the particles of the hard process, NaN where there is none; see `match`.
    """
    matched = np.full(eta.shape, -1, dtype=np.int32)
    for kind in topology.object_kinds:
        slots = [slot.index for slot in topology.slots if slot.kind == kind]
        used = None if passes is None else passes[kind]
        matched[:, slots] = match(objects[kind], eta[:, slots], phi[:, slots], radius, used)
    return matched


def match(
    jets: ak.Array,
    eta: npt.NDArray[Any],
    phi: npt.NDArray[Any],
    radius: float = RADIUS,
    passes: ak.Array | None = None,
) -> npt.NDArray[np.int32]:
    """(B, S) position of the jet of each quark, -1 without one; `eta` and `phi` (B, S) are NaN where none is.

    A quark takes the nearest jet within the radius, of those that pass; a jet claimed by two quarks is matched to
    neither.

    >>> jets = ak.Array({"eta": [[0.0, 1.0, 2.0]], "phi": [[0.0, 0.0, 3.1]]})
    >>> match(jets, np.array([[0.1, 1.1, 0.9, 2.0]]), np.array([[0.1, 0.0, 0.0, -3.1]])).tolist()
    [[0, -1, -1, 2]]
    """
    counts = np.asarray(ak.num(jets.eta, axis=1), dtype=np.int64)
    there = np.ones(counts.sum(), dtype=bool) if passes is None else np.asarray(ak.flatten(passes), dtype=bool)
    kept = np.flatnonzero(there)
    first = np.concatenate([[0], np.cumsum(counts)])  # of each event among all jets
    bounds = np.concatenate([[0], np.cumsum(there)])[first]  # the same among those kept
    flat_eta, flat_phi = (np.asarray(ak.flatten(jets[name]), np.float32)[kept] for name in ("eta", "phi"))
    matched = np.full(eta.shape, -1, dtype=np.int32)
    for start in range(0, len(counts), BLOCK):
        stop = min(start + BLOCK, len(counts))
        jets_here = slice(bounds[start], bounds[stop])
        claim = _nearest(
            np.diff(bounds[start : stop + 1]),
            flat_eta[jets_here],
            flat_phi[jets_here],
            eta[start:stop],
            phi[start:stop],
            radius,
        )
        shared = (claim[:, :, None] == claim[:, None, :]).sum(axis=2) > 1
        row, slot = np.nonzero((claim >= 0) & ~shared)
        at = start + row
        matched[at, slot] = kept[bounds[at] + claim[row, slot]] - first[at]
    return matched


def _nearest(
    counts: Ints,
    jet_eta: npt.NDArray[np.float32],
    jet_phi: npt.NDArray[np.float32],
    eta: npt.NDArray[Any],
    phi: npt.NDArray[Any],
    radius: float,
) -> npt.NDArray[np.intp]:
    """(b, S) the jet nearest to each quark within the radius, -1 for none."""
    there = np.arange(max(counts.max(initial=0), 1)) < counts[:, None]  # (b, N)
    etas = np.full(there.shape, -FAR, dtype=np.float32)
    phis = np.zeros(there.shape, dtype=np.float32)
    etas[there], phis[there] = jet_eta, jet_phi
    quark_eta = np.where(np.isfinite(eta), eta, FAR).astype(np.float32)
    quark_phi = np.where(np.isfinite(phi), phi, 0).astype(np.float32)
    d_phi = quark_phi[:, :, None] - phis[:, None, :]  # (b, S, N)
    np.abs(d_phi, out=d_phi)
    other = TURN - d_phi
    np.minimum(d_phi, np.abs(other, out=other), out=d_phi)  # right for phi in -pi to pi, in 0 to 2 pi, and mixed
    square = np.subtract(quark_eta[:, :, None], etas[:, None, :], out=other)
    square *= square
    d_phi *= d_phi
    square += d_phi
    nearest = square.argmin(axis=2)
    distance = np.take_along_axis(square, nearest[:, :, None], axis=2)[:, :, 0]
    return np.where(distance < radius**2, nearest, -1)
