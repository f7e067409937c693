"""Particles that nothing measures: where a neutrino is below a decay tree, and which masses it has to give.

invisible: {tl: {W: [l, nu]}}   # below tl, a W that the tree does not name decays to its l and a neutrino
invisible: {Wl: [l, nu]}        # the particle Wl of the tree itself decays so
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pairton.errors import TopologyError, shown
from pairton.topology.pdg import properties_of
from pairton.topology.selection import TRANSVERSE

if TYPE_CHECKING:
    from pairton.topology.tree import Topology

__all__ = ["MOST_NEUTRINOS", "Invisible", "Neutrino", "neutrinos_of", "parse_invisible"]

MOST_NEUTRINOS = 2  # per event, that missing energy and masses determine

EXAMPLE = "invisible maps a particle to the decay of a resonance, for example {tl: {W: [l, nu]}}"


@dataclass(frozen=True)
class Invisible:
    """What a topology says of one type: its `resonance` decays to the objects `seen` and one that nothing sees."""

    type: str  # tl
    name: str  # nu
    resonance: str  # W; the type itself, where the tree names the resonance
    seen: tuple[str, ...]  # products of the type: l

    def to_raw(self) -> Any:
        """As in a topology's file."""
        products = [*self.seen, self.name]
        return products if self.resonance == self.type else {self.resonance: products}


@dataclass(frozen=True)
class Neutrino:
    """One neutrino of the decay tree."""

    name: str  # "tl.nu"
    particle: int  # that it is below
    lepton: tuple[int, ...]  # slots that have the mass of the resonance, together with it
    mass: float  # of the resonance, GeV
    mother: int  # the particle whose mass is known too; -1: none
    others: tuple[int, ...]  # slots of the mother beside the lepton
    mother_mass: float  # GeV; NaN without a mother


def parse_invisible(raw: object, decays: Mapping[str, tuple[str, ...]], source: str) -> tuple[Invisible, ...]:
    """From what YAML or JSON gave."""
    if not isinstance(raw, Mapping):
        raise TopologyError(f"{source}: read {shown(raw)}, but {EXAMPLE}")
    found = []
    for type_name, given in raw.items():
        if type_name not in decays:
            known = ", ".join(decays)
            raise TopologyError(f"{source}: invisible names {shown(type_name)}, but the particles are {known}")
        below = given if isinstance(given, Mapping) else {type_name: given}
        for resonance, products in below.items():
            if not isinstance(products, list) or not all(isinstance(name, str) for name in products):
                raise TopologyError(f"{source}: read {shown(given)} for {type_name}, but {EXAMPLE}")
            seen = tuple(name for name in products if name in decays[type_name] and name not in decays)
            unseen = [name for name in products if name not in seen]
            if len(unseen) != 1 or not seen or not unseen[0].isidentifier() or unseen[0] in decays:
                raise TopologyError(
                    f"{source}: read {shown(given)} for {type_name}, but a resonance decays to objects of "
                    f"{type_name}: [{', '.join(decays[type_name])}] and to one name more, for example [l, nu]"
                )
            found.append(Invisible(type_name, unseen[0], str(resonance), seen))
        if len(below) != 1:
            raise TopologyError(f"{source}: invisible gives {type_name} {len(below)} resonances, but allows one")
    return tuple(found)


def neutrinos_of(topology: Topology) -> tuple[Neutrino, ...]:
    """The neutrinos of a topology, in the order of its particles; errors say what cannot be solved."""
    found = []
    decays = dict(topology.decays)
    for entry in topology.invisible:
        known = properties_of(topology, entry.resonance)
        if known is None:
            raise TopologyError(
                f"invisible: the mass of {entry.resonance} is not known: give it one PDG code under `codes:`, or "
                "leave out invisible"
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
    shared = Counter(neutrino.mother for neutrino in found)  # one mass is not enough for two neutrinos
    found = [
        n if shared[n.mother] < 2 else replace(n, mother=-1, others=(), mother_mass=float("nan")) for n in found
    ]
    if found and not TRANSVERSE & set(topology.kinds):
        raise TopologyError("invisible needs the missing energy: add `context: [met]`, or leave out invisible")
    if len(found) > MOST_NEUTRINOS:
        raise TopologyError(
            f"invisible makes {len(found)} neutrinos, but at most {MOST_NEUTRINOS} can be solved for: leave it out"
        )
    return tuple(sorted(found, key=lambda neutrino: neutrino.particle))
