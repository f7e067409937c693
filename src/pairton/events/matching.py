"""Truth: find the particles of the hard process that belong to the slots of a topology, and match them to objects.

An entry is a particle in a generator record. Arrays are flat over the entries of all events, so that no code loops
over events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.topology import JET, Topology
from pairton.topology.kinds import KINDS
from pairton.topology.pdg import codes_of, pdg_codes, unknown_names

__all__ = [
    "codes_of",
    "fill_slots",
    "from_taus",
    "is_one_of",
    "match",
    "match_slots",
    "nearest",
    "pdg_codes",
    "unknown_names",
]

Ints = npt.NDArray[np.int64]

LEPTONS, TAU = (11, 13), 15
BLOCK = 1024  # events compared at once, so that their distances stay in the processor's cache
FULL_TURN = np.float32(2 * np.pi)
FAR = 1e6  # eta of padding, which nothing matches


def fill_slots(topology: Topology, entry: Ints, event: Ints, code: Ints, parent: Ints, n_events: int) -> Ints:
    """(n_events, S): the entry of each slot's particle, -1 if the hard process has none.

    The flat arrays list the hard process by rising `entry`: the event, the PDG code and the parent of each, which
    is the entry of the resonance it comes from, -1 at the root.

    Resonances that the decay does not name are skipped: the lepton of `tl: [b, l]` comes from a W. If several
    entries could be a particle, the one whose decay resembles it most is taken: in [t, tl], the top whose W decays
    to quarks is `t`. Otherwise particles come before antiparticles, so that the first of two equal tops is the
    quark. An entry fills only one slot. If it could fill two, the name with fewer PDG codes gets it: in [b, j], a
    b quark is the b.

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
        """The mother of the entries `at`: the nearest ancestor that is a `name` or one of its products."""
        stop = np.logical_or.reduce([is_a[other] for other in products] + ([is_a[name]] if name else []))
        mother = up[at]
        while len(climbing := np.flatnonzero((mother >= 0) & ~stop[mother])):
            mother[climbing] = up[mother[climbing]]
        return mother

    @cache
    def likeness(name: str) -> npt.NDArray[np.float64]:
        """For each entry, how well it fits a `name`: one point for itself, one for each product below it."""
        found = is_a[name].astype(np.float64)
        for product in dict.fromkeys(decays.get(name, ())):
            at = np.flatnonzero(is_a[product])
            mother = above(name, decays[name], at)
            below = np.bincount(mother[mother >= 0], likeness(product)[at][mother >= 0], len(entry))
            most = decays[name].count(product) * likeness(product).max(initial=0.0)
            found += is_a[name] * np.minimum(below, most)
        return found

    def fill(target: Ints, columns: Sequence[int], name: str, mother: str, mothers: Ints | None) -> None:
        """Write the entries of a name, below one mother per event, to columns of `target`."""
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
                own = [slot for slot in particle.own_slots if topology.slots[slot].product == name]
                fill(slots, own, name, particle.type, mothers)
    return np.where(slots >= 0, entry[slots], -1) if len(entry) else slots


def _rank(event: Ints, n_events: int) -> Ints:
    """The rank of each entry in its event; entries are ordered by event."""
    count = np.bincount(event, minlength=n_events)
    return np.asarray(np.arange(len(event)) - (np.cumsum(count) - count)[event])


def is_one_of(code: npt.NDArray[Any], wanted: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Whether PDG codes are among the wanted ones, up to the sign.

    >>> is_one_of(np.array([5, -5, 6, 2212]), [5, 25]).tolist()
    [True, True, False, False]
    """
    table = np.zeros(max(wanted, default=0) + 2, dtype=bool)  # the last element is for all larger codes
    table[list(wanted)] = True
    return np.asarray(table[np.minimum(np.abs(code), len(table) - 1)])


def from_taus(
    code: npt.NDArray[Any], hard: npt.NDArray[np.bool_], mother: Callable[[Ints], Ints]
) -> npt.NDArray[np.bool_]:
    """Which entries are electrons or muons from a tau of the hard process, also if the tau radiated first.

    `hard` marks the hard process; `mother` returns the mothers of entries, -1 for none.

    >>> code, up = np.array([24, -15, -15, -11, 511, 13]), np.array([-1, 0, 1, 2, -1, 4])
    >>> from_taus(code, np.array([True, True, False, False, False, False]), lambda at: up[at]).tolist()
    [False, False, False, True, False, False]
    """
    found = np.zeros(len(code), dtype=bool)
    lepton = ancestor = np.flatnonzero(is_one_of(code, LEPTONS) & ~hard)
    while len(lepton):
        up = mother(ancestor)
        is_tau = (up >= 0) & (up < ancestor)  # mothers come first
        is_tau[is_tau] = np.abs(code[up[is_tau]]) == TAU
        lepton, ancestor = lepton[is_tau], up[is_tau]
        found[lepton[hard[ancestor]]] = True
        lepton, ancestor = lepton[~hard[ancestor]], ancestor[~hard[ancestor]]
    return found


def match_slots(
    topology: Topology,
    objects: Mapping[str, ak.Array],
    eta: npt.NDArray[Any],
    phi: npt.NDArray[Any],
    passes: Mapping[str, ak.Array] | None = None,
    radii: Mapping[str, float] | None = None,
) -> npt.NDArray[np.int32]:
    """(B, S): the position of each slot's object among those of its kind, -1 for none; see `match`.

    `eta` and `phi` (B, S) are directions of particles of the hard process, NaN for none. `passes` limits the
    objects. `radii` replaces the match radius of kinds.

    A particle that may be merged is so if one object is the nearest of its kind to all its quarks, and to no other
    ones. Its other slots are then empty.
    """
    matched = np.full(eta.shape, -1, dtype=np.int32)
    large: dict[str, npt.NDArray[np.int32]] = {}  # kind -> (B, S): nearest object of those that may be particles
    for kind in topology.object_kinds:
        slots = [slot.index for slot in topology.slots if slot.kind == kind and not slot.merged]
        used = None if passes is None else passes[kind]
        radius = (radii or {}).get(kind, KINDS[kind].match_radius)
        matched[:, slots] = match(objects[kind], eta[:, slots], phi[:, slots], radius, used)
        if any(slot.kind == kind and slot.merged for slot in topology.slots):
            large[kind] = match(objects[kind], eta, phi, radius, used, shared=True)
    for particle in topology.particles if large else ():  # parents first: the highest one is merged
        if particle.merged_slot >= 0:
            claim = large[topology.slots[particle.merged_slot].kind]
            first, inside = claim[:, particle.slots[:1]], list(particle.slots)
            others = [slot.index for slot in topology.slots if slot.index not in particle.span]
            whole = (first[:, 0] >= 0) & (claim[:, inside] == first).all(axis=1)
            whole &= ~(claim[:, others] == first).any(axis=1)
            for above in list(topology.ancestry(particle.index))[1:]:
                if (slot := topology.particles[above].merged_slot) >= 0:
                    whole &= matched[:, slot] < 0
            matched[whole, particle.span[0] : particle.span[-1] + 1] = -1
            matched[whole, particle.merged_slot] = first[whole, 0]
    return matched


def match(
    jets: ak.Array,
    eta: npt.NDArray[Any],
    phi: npt.NDArray[Any],
    radius: float = KINDS[JET].match_radius,
    passes: ak.Array | None = None,
    shared: bool = False,
) -> npt.NDArray[np.int32]:
    """(B, S): the position of the jet of each quark, -1 for none.

    `eta` and `phi` (B, S) are directions of the quarks, NaN for none. A quark is matched to the nearest jet that
    passes, if it is within the radius. A jet that is nearest to two quarks is matched to neither, unless `shared`.

    >>> jets = ak.Array({"eta": [[0.0, 1.0, 2.0]], "phi": [[0.0, 0.0, 3.1]]})
    >>> match(jets, np.array([[0.1, 1.1, 0.9, 2.0]]), np.array([[0.1, 0.0, 0.0, -3.1]])).tolist()
    [[0, -1, -1, 2]]
    """
    counts = np.asarray(ak.num(jets.eta, axis=1), dtype=np.int64)
    passing = np.ones(counts.sum(), dtype=bool) if passes is None else np.asarray(ak.flatten(passes), dtype=bool)
    kept = np.flatnonzero(passing)
    first = np.concatenate([[0], np.cumsum(counts)])  # first jet of each event among all jets
    bounds = np.concatenate([[0], np.cumsum(passing)])[first]  # and among those that pass
    flat_eta, flat_phi = (np.asarray(ak.flatten(jets[name]), np.float32)[kept] for name in ("eta", "phi"))
    matched = np.full(eta.shape, -1, dtype=np.int32)
    for start in range(0, len(counts), BLOCK):
        stop = min(start + BLOCK, len(counts))
        jets_here = slice(bounds[start], bounds[stop])
        claim = nearest(
            np.diff(bounds[start : stop + 1]),
            flat_eta[jets_here],
            flat_phi[jets_here],
            eta[start:stop],
            phi[start:stop],
            radius,
        )
        twice = (claim[:, :, None] == claim[:, None, :]).sum(axis=2) > 1
        row, slot = np.nonzero((claim >= 0) & (shared | ~twice))
        at = start + row
        matched[at, slot] = kept[bounds[at] + claim[row, slot]] - first[at]
    return matched


def nearest(
    counts: Ints,
    jet_eta: npt.NDArray[np.float32],
    jet_phi: npt.NDArray[np.float32],
    eta: npt.NDArray[Any],
    phi: npt.NDArray[Any],
    radius: float,
) -> npt.NDArray[np.intp]:
    """(b, S): the jet nearest to each quark within the radius, -1 for none.

    counts        (b,): jets per event; `jet_eta` and `jet_phi` are flat
    eta, phi      (b, S): of the quarks; those with a NaN have no jet
    """
    mask = np.arange(max(counts.max(initial=0), 1)) < counts[:, None]  # (b, N)
    etas = np.full(mask.shape, -FAR, dtype=np.float32)
    phis = np.zeros(mask.shape, dtype=np.float32)
    etas[mask], phis[mask] = jet_eta, jet_phi
    quark_eta = np.where(np.isfinite(eta), eta, FAR).astype(np.float32)
    quark_phi = np.where(np.isfinite(phi), phi, 0).astype(np.float32)
    d_phi = quark_phi[:, :, None] - phis[:, None, :]  # (b, S, N)
    np.abs(d_phi, out=d_phi)
    other = FULL_TURN - d_phi
    np.minimum(d_phi, np.abs(other, out=other), out=d_phi)  # for phi in -pi to pi, 0 to 2 pi, or both
    square = np.subtract(quark_eta[:, :, None], etas[:, None, :], out=other)
    square *= square
    d_phi *= d_phi
    square += d_phi
    nearest = square.argmin(axis=2)
    distance = np.take_along_axis(square, nearest[:, :, None], axis=2)[:, :, 0]
    return np.where(distance < radius**2, nearest, -1)
