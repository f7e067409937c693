"""Neutrinos: where they are in a decay tree, and which masses constrain their momenta.

invisible: {tl: {W: [l, nu]}}   # below tl, a W that the tree does not name decays to the l of tl and a neutrino
invisible: {Wl: [l, nu]}        # the particle Wl, which the tree does name, decays to an l and a neutrino
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pairton._common.configuration import check_keys
from pairton.errors import TopologyError, shown
from pairton.topology.kinds import KINDS
from pairton.topology.pdg import properties_of

if TYPE_CHECKING:
    from pairton.topology.tree import Topology

__all__ = ["MOST_NEUTRINOS", "Invisible", "Neutrino", "neutrinos_of", "parse_invisible"]

MOST_NEUTRINOS = 2  # per event; missing energy and masses do not determine more


@dataclass(frozen=True)
class Invisible:
    """The neutrino of one type of particle: a resonance decays to the objects `seen` and the neutrino."""

    type: str  # tl
    name: str  # of the neutrino: nu
    resonance: str  # W; equal to `type` if the tree names the resonance
    seen: tuple[str, ...]  # measured products of the resonance: l

    def to_raw(self) -> Any:
        """Plain data as in the file of a topology."""
        products = [*self.seen, self.name]
        return products if self.resonance == self.type else {self.resonance: products}


@dataclass(frozen=True)
class Neutrino:
    """One neutrino of the decay tree."""

    name: str  # "tl.nu"
    particle: int  # index of the particle above it
    lepton: tuple[int, ...]  # slots that, with the neutrino, have the mass of the resonance
    mass: float  # of the resonance, GeV
    mother: int  # index of the particle above the resonance, if its mass is known; else -1
    others: tuple[int, ...]  # slots of the mother other than the lepton
    mother_mass: float  # GeV; NaN without a mother


def parse_invisible(
    raw: Mapping[str, tuple[str, ...] | Mapping[str, tuple[str, ...]]], decays: Mapping[str, tuple[str, ...]]
) -> tuple[Invisible, ...]:
    """Check the key `invisible` of a topology."""
    entries = []
    for type_name, decay in check_keys(raw, "invisible", decays, error=TopologyError).items():
        resonances = decay if isinstance(decay, Mapping) else {type_name: decay}
        if len(resonances) != 1:
            raise TopologyError(f"invisible gives {type_name} {len(resonances)} resonances: give exactly one")
        ((resonance, products),) = resonances.items()
        seen = tuple(name for name in products if name in decays[type_name] and name not in decays)
        unseen = [name for name in products if name not in seen]
        if len(unseen) != 1 or not seen or unseen[0] in decays:
            raise TopologyError(
                f"invisible reads {shown(list(products))} for {type_name}, but must list objects out of "
                f"[{', '.join(decays[type_name])}] and one new name for the neutrino, as in {{tl: {{W: [l, nu]}}}}"
            )
        entries.append(Invisible(type_name, unseen[0], resonance, seen))
    return tuple(entries)


def neutrinos_of(topology: Topology) -> tuple[Neutrino, ...]:
    """The neutrinos of a topology, in the order of its particles.

    Raises TopologyError if their momenta cannot be computed: unknown masses, no missing energy, too many of them.
    """
    found = []
    decays = dict(topology.decays)
    for entry in topology.invisible:
        known = properties_of(topology, entry.resonance)
        if known is None:
            raise TopologyError(
                f"invisible: the mass of {entry.resonance} is not known: give it one PDG code under `codes:`, or "
                "remove invisible"
            )
        leaves = [product for product in decays[entry.type] if product not in decays]
        for particle in topology.of_type(entry.type):
            pairs = zip(particle.own_slots, leaves, strict=True)
            lepton = tuple(slot for slot, leaf in pairs if leaf in entry.seen)
            mother = particle.index if entry.resonance != entry.type else particle.parent
            above = properties_of(topology, topology.particles[mother].type) if mother >= 0 else None
            mother = mother if above is not None else -1
            others = [slot for slot in topology.particles[mother].slots if slot not in lepton] if above else []
            mass = above.mass if above is not None else float("nan")
            name = f"{particle.name}.{entry.name}"
            found.append(Neutrino(name, particle.index, lepton, known.mass, mother, tuple(others), mass))
    shared = Counter(neutrino.mother for neutrino in found)  # one mother mass cannot constrain two neutrinos
    found = [
        n if shared[n.mother] < 2 else replace(n, mother=-1, others=(), mother_mass=float("nan")) for n in found
    ]
    if found and not any(KINDS[kind].transverse for kind in topology.kinds):
        raise TopologyError("invisible needs the missing energy: add `context: [met]`, or remove invisible")
    if len(found) > MOST_NEUTRINOS:
        raise TopologyError(
            f"invisible gives {len(found)} neutrinos per event, but at most {MOST_NEUTRINOS} can be computed: "
            "remove invisible"
        )
    return tuple(sorted(found, key=lambda neutrino: neutrino.particle))
