"""The decays that a kinematic fit describes: measured products, neutrinos, and resonances with their masses.

The leaves of a decay are its measured products and its neutrinos. They follow from the topology, its `invisible`
section and the PDG codes of its names: `tl: [b, l]` with the code of the top and `invisible: {tl: {W: [l, nu]}}`
has the resonances W = l + nu and t = b + l + nu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pairton.errors import TopologyError
from pairton.kinematics.fit_settings import FitSettings, Mass
from pairton.topology import Particle, Topology
from pairton.topology.pdg import codes_of

__all__ = ["Decay", "Resonance", "decay_of", "is_b", "roots_are_independent", "transfer_names"]

CHARGED_LEPTONS = frozenset({11, 13, 15})
B_QUARK = 5


@dataclass(frozen=True)
class Resonance:
    """A particle whose mass constrains the fit: its leaves, and its expected mass."""

    name: str
    leaves: tuple[int, ...]  # indices of leaves: the measured ones come first, then the neutrinos
    mass: Mass
    free: int = -1  # index in `Decay.free`; -1: the mass is fixed


@dataclass(frozen=True)
class Decay:
    """The particles that are fitted together: one root particle, or several that are not independent.

    The parameters of a fit are the energies of the measured leaves, three numbers per neutrino (the squared mass
    of the neutrino and its lepton, eta, phi), and the free masses.
    """

    slots: tuple[int, ...]  # slots of the topology: the measured leaves
    masses: tuple[float, ...]  # of the measured leaves, GeV
    transfer: tuple[str, ...]  # names of their transfer functions: b, light or lepton
    neutrinos: tuple[int, ...]  # indices in `Topology.neutrinos`
    partners: tuple[int, ...]  # leaf of the charged lepton of each neutrino
    resonances: tuple[Resonance, ...]
    free: tuple[tuple[int | str, Mass], ...]  # masses that the fit varies, with their entries in the settings
    leaves_of: tuple[tuple[int, tuple[int, ...]], ...]  # particle of the topology, and its leaves

    @property
    def n_visible(self) -> int:
        return len(self.slots)

    @property
    def first_free(self) -> int:
        """Index of the first free mass among the parameters."""
        return len(self.slots) + 3 * len(self.neutrinos)

    @property
    def n_parameters(self) -> int:
        return self.first_free + len(self.free)


def _slot_codes(topology: Topology) -> list[set[int]]:
    """The PDG codes of each slot."""
    codes = codes_of(topology)
    return [set(codes.get(slot.product, ())) for slot in topology.slots]


def is_b(topology: Topology) -> list[bool]:
    """Whether each slot is for b quarks only.

    >>> from pairton.topology import load_topology
    >>> is_b(load_topology("ttbar_semilep"))
    [False, False, True, True, False]
    """
    return [codes == {B_QUARK} for codes in _slot_codes(topology)]


def transfer_names(topology: Topology) -> list[str]:
    """The name of the transfer function of each slot.

    >>> from pairton.topology import load_topology
    >>> transfer_names(load_topology("ttbar_semilep"))
    ['light', 'light', 'b', 'b', 'lepton']
    """
    every = zip(_slot_codes(topology), is_b(topology), strict=True)
    return ["lepton" if codes & CHARGED_LEPTONS else "b" if b else "light" for codes, b in every]


def roots_are_independent(topology: Topology, settings: FitSettings) -> bool:
    """Whether the likelihood is a product over root particles: no shared free mass, at most one neutrino."""
    each = [decay_of(topology, [root], settings) for root in topology.roots]
    free = [entry for decay in each for entry, _ in decay.free]
    return len(topology.neutrinos) <= 1 and len(set(free)) == len(free)


def decay_of(topology: Topology, roots: Sequence[Particle], settings: FitSettings) -> Decay:
    """The decay of some root particles, to be fitted together.

    >>> from pairton.kinematics.fit_settings import load_settings
    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_semilep")
    >>> decay = decay_of(ttbar, ttbar.roots[1:], load_settings())
    >>> [(resonance.name, resonance.leaves) for resonance in decay.resonances]
    [('tl', (0, 1, 2)), ('tl.W', (1, 2))]
    """
    codes = _slot_codes(topology)
    _check_neutrinos(topology, codes)
    slots = tuple(slot for root in roots for slot in root.slots)
    inside = [p for p in topology.particles if set(p.slots) <= set(slots)]
    own = {p.index for p in inside}
    neutrinos = tuple(k for k, neutrino in enumerate(topology.neutrinos) if neutrino.particle in own)
    partners = tuple(slots.index(topology.neutrinos[k].lepton[0]) for k in neutrinos)
    found: list[tuple[str, tuple[int, ...], int | str, Mass]] = []
    leaves_of = []
    for particle in inside:
        below = [k for k in neutrinos if particle.index in topology.ancestry(topology.neutrinos[k].particle)]
        leaves = tuple(slots.index(slot) for slot in particle.slots)
        leaves += tuple(len(slots) + neutrinos.index(k) for k in below)
        leaves_of.append((particle.index, leaves))
        names = [(particle.name, particle.type, leaves)] if particle.type in dict(topology.decays) else []
        for entry in topology.invisible:  # a resonance that the tree does not name
            if entry.type == particle.type != entry.resonance:
                (k,) = (k for k in below if topology.neutrinos[k].particle == particle.index)
                pair = partners[neutrinos.index(k)], len(slots) + neutrinos.index(k)
                names.append((f"{particle.name}.{entry.resonance}", entry.resonance, pair))
        for name, type_name, own_leaves in names:
            key, mass = settings.mass_of(topology, type_name)
            if mass is not None:
                found.append((name, own_leaves, key, mass))
    free = {key: mass for _, _, key, mass in found if mass.free}
    order = list(free)
    transfer = transfer_names(topology)
    kinds = [transfer[slot] for slot in slots]
    return Decay(
        slots,
        tuple(settings.jet_mass if kind == "b" else 0.0 for kind in kinds),
        tuple(kinds),
        neutrinos,
        partners,
        tuple(Resonance(n, leaves, m, order.index(key) if m.free else -1) for n, leaves, key, m in found),
        tuple(free.items()),
        tuple(leaves_of),
    )


def _check_neutrinos(topology: Topology, codes: Sequence[set[int]]) -> None:
    """Raise TopologyError if a lepton lacks its neutrino in `invisible`, or a neutrino has no single lepton."""
    known = {neutrino.particle for neutrino in topology.neutrinos}
    for particle in topology.particles:
        leptons = [slot for slot in particle.own_slots if codes[slot] & CHARGED_LEPTONS]
        if len(leptons) % 2 and particle.type in dict(topology.decays) and particle.index not in known:
            raise TopologyError(
                f"{particle.type} of {topology.name} has a lepton but no neutrino, which a kinematic fit needs: "
                f"add it to the topology, as in `invisible: {{{particle.type}: {{W: [l, nu]}}}}`"
            )
    for neutrino in topology.neutrinos:
        if len(neutrino.lepton) != 1:
            raise TopologyError(
                f"{neutrino.name} of {topology.name} comes with {len(neutrino.lepton)} objects, but a kinematic "
                "fit needs one lepton per neutrino: change `invisible`"
            )
