"""PDG codes for the names in a topology, masses and charges, and the neutrinos that follow from masses.

invisible: {tl: {W: [l, nu]}}   # below tl, a W that the tree does not name decays to the l of tl and a neutrino
invisible: {Wl: [l, nu]}        # the particle Wl, which the tree does name, decays to an l and a neutrino
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pairton._common.configuration import check_keys, read_yaml
from pairton.errors import TopologyError, shown
from pairton.topology.kinds import KINDS

if TYPE_CHECKING:
    from pairton.topology.tree import Topology

__all__ = [
    "Invisible",
    "Neutrino",
    "codes_of",
    "neutrinos_of",
    "pdg_codes",
    "properties_of",
    "systems_of",
    "unknown_names",
]

Codes = Mapping[str, Sequence[int]]
Products = tuple[str, ...]
MOST_NEUTRINOS = 2  # per event; missing energy and masses do not determine more


class Properties(NamedTuple):
    """Mass (GeV) and charge of the particle with a positive PDG code."""

    code: int
    mass: float
    charge: float


@cache
def _table(name: str) -> Mapping[Any, Any]:
    table: Mapping[Any, Any] = read_yaml(Path(__file__).parent / name)
    return table


def pdg_codes() -> Codes:
    """Default PDG codes, without sign, for the names in topologies."""
    return _table("pdg.yaml")


def codes_of(topology: Topology) -> Codes:
    """PDG codes for the names in a topology: its own `codes`, and the defaults for all other names."""
    return {**pdg_codes(), **dict(topology.codes)}


def properties_of(topology: Topology, name: str) -> Properties | None:
    """Mass and charge for a name; None unless the name stands for exactly one code, and a known one."""
    codes = codes_of(topology).get(name, ())
    row = _table("pdg_properties.yaml").get(codes[0]) if len(codes) == 1 else None
    return row and Properties(codes[0], float(row["mass"]), float(row["charge"]))


def systems_of(topology: Topology) -> dict[str, tuple[int, ...]]:
    """Systems of two or more root particles with the same PDG code: name of the system, as tt -> their indices."""
    names = {code[0]: name for name, code in reversed([*pdg_codes().items()]) if len(code) == 1}
    found: dict[int, list[int]] = {}
    for root in topology.roots:
        if (known := properties_of(topology, root.type)) and known.code in names:
            found.setdefault(known.code, []).append(root.index)
    systems = {names[code] * len(same): tuple(same) for code, same in found.items() if len(same) > 1}
    return {name: same for name, same in systems.items() if name not in topology.types}


def unknown_names(topology: Topology) -> list[str]:
    """Names of the topology without a PDG code. They cannot be found in a generator record."""
    names = {*topology.event, *(name for _, products in topology.decays for name in products)}
    return sorted(names - set(codes_of(topology)))


# -- neutrinos ---------------------------------------------------------------------------------------------


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
    mother: int = -1  # index of the particle above the resonance, if its mass is known
    others: tuple[int, ...] = ()  # slots of the mother other than the lepton
    mother_mass: float = nan  # GeV


def parse_invisible(
    raw: Mapping[str, Products | Mapping[str, Products]], decays: Mapping[str, Products]
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
    for entry in topology.invisible:
        known = properties_of(topology, entry.resonance)
        if known is None:
            raise TopologyError(
                f"invisible: the mass of {entry.resonance} is not known: give it one PDG code under `codes:`"
            )
        for particle in topology.of_type(entry.type):
            products = topology.products(particle)
            lepton = tuple(slot for name, _, slots, _ in products if name in entry.seen for slot in slots)
            mother = particle.index if entry.resonance != entry.type else particle.parent
            above = properties_of(topology, topology.particles[mother].type) if mother >= 0 else None
            neutrino = Neutrino(f"{particle.name}.{entry.name}", particle.index, lepton, known.mass)
            if above is not None:
                others = tuple(slot for slot in topology.particles[mother].slots if slot not in lepton)
                neutrino = replace(neutrino, mother=mother, others=others, mother_mass=above.mass)
            found.append(neutrino)
    shared = Counter(n.mother for n in found)  # one mother mass cannot constrain two neutrinos
    found = [n if shared[n.mother] < 2 else Neutrino(n.name, n.particle, n.lepton, n.mass) for n in found]
    if found and not any(KINDS[kind].transverse for kind in topology.kinds):
        raise TopologyError("invisible needs the missing energy: add `context: [met]`, or remove invisible")
    if len(found) > MOST_NEUTRINOS:
        raise TopologyError(
            f"invisible gives {len(found)} neutrinos, but at most {MOST_NEUTRINOS} can be computed"
        )
    return tuple(sorted(found, key=lambda neutrino: neutrino.particle))
