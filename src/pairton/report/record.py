"""The record of an event for displays: its objects, every step of its reconstruction, and the truth if known.

A record is plain data; pages, pictures and notebooks draw the same one. Objects are identified by their place in
`EventRecord.objects`: those that the network sees come first, kind by kind and by falling pT. `Item.index` is the
index in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.plain import as_plain
from pairton.events.vectors import cartesian, energy_of, polar
from pairton.reconstruction.momenta import Momenta, momenta_of
from pairton.topology import JET, Topology
from pairton.topology.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Candidate", "EventRecord", "Frame", "Item", "Shown"]

DECIMALS = 4  # in the JSON

Matrices = list[list[list[float]]]  # (T, N, N)


@dataclass(frozen=True)
class Item:
    """A measured object; `used` if the network sees it."""

    index: int
    pt: float
    eta: float
    phi: float
    mass: float
    btag: float | None  # None: objects of this kind have no b-tag
    tagged: bool
    used: bool
    kind: str

    @property
    def short(self) -> str:
        """A short name: the index of a jet, `l0` for the first lepton, `met` for missing energy."""
        if KINDS[self.kind].transverse:  # there is only one
            return self.kind
        return str(self.index) if self.kind == JET else f"{self.kind[0]}{self.index}"


@dataclass(frozen=True)
class Shown:
    """A particle and its objects; `right` is None if the truth does not decide."""

    type: str
    label: str
    objects: tuple[int, ...]
    mass: float | None = None
    probability: float | None = None
    right: bool | None = None
    neutrino: bool = False  # whether the mass includes a neutrino


@dataclass(frozen=True)
class Candidate:
    """One choice of a step: a particle, several at once, or the whole event."""

    particles: tuple[Shown, ...]
    probability: float
    chosen: bool
    right: bool | None = None


@dataclass(frozen=True)
class Frame:
    """One state of the display. Matrices are (T, N, N), for the objects that the network sees."""

    title: str
    note: str
    particles: tuple[Shown, ...]  # known before the choice of this step
    tokens: Matrices | None = None
    logits: Matrices | None = None
    marginals: Matrices | None = None
    candidates: tuple[Candidate, ...] = ()
    others: int = 0  # number of candidates that are not listed
    others_probability: float = 0.0


@dataclass(frozen=True)
class EventRecord:
    """Everything that is shown of one event."""

    name: str
    id: str  # permanent id: source and number
    source: str
    topology: Topology
    objects: tuple[Item, ...]
    truth: tuple[int, ...] | None  # (S,): an object, or -1 for none
    true_particles: tuple[Shown, ...]  # particles whose products are all labelled
    decoding: str
    model: str
    status: str
    answer: tuple[Shown, ...]
    event_probability: float | None
    right: bool | None
    frames: tuple[Frame, ...]

    @property
    def n_used(self) -> int:
        return sum(item.used for item in self.objects)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, including colours; numbers are rounded."""
        from pairton.report.palette import kind_shapes, type_colours

        topology, colours = self.topology, type_colours(self.topology)
        shapes = {
            "topology": topology.name,
            "types": [{"name": t, "colour": colours[t], "height": topology.height(t)} for t in topology.types],
            "kinds": [
                {"name": kind, "shape": shape, "transverse": KINDS[kind].transverse}
                for kind, shape in kind_shapes(topology).items()
            ],
            "slots": [_short(slot.name) for slot in topology.slots],
            "edges": {name: edge_pairs(topology, name) for name in topology.types},
        }
        plain: dict[str, Any] = as_plain(vars(self) | shapes, DECIMALS)
        return plain


def edge_pairs(topology: Topology, type_name: str) -> list[tuple[int, int]]:
    """The pairs of objects of a particle that are joined by its type, but not by a child; as places among them.

    >>> from pairton.topology import load_topology
    >>> edge_pairs(load_topology("ttbar_allhad"), "t")
    [(0, 2), (1, 2)]
    """
    from pairton.decoding.terms import gain_terms

    particle = topology.of_type(type_name)[0]
    pairs, _ = gain_terms(topology, particle)
    return [(i - particle.slots[0], j - particle.slots[0]) for i, j in pairs]


def _short(name: str) -> str:
    """The name of a slot without the number of interchangeable objects: t1.W.q for t1.W.q2."""
    path, _, last = name.rpartition(".")
    return f"{path}.{last.rstrip('0123456789')}" if path else name


def particle_label(topology: Topology, index: int, revealed: npt.NDArray[np.bool_] | None = None) -> str:
    """The name of a particle; only its type while its parent, such as the top of a W, is unknown."""
    particle = topology.particles[index]
    if particle.parent >= 0 and revealed is not None and not revealed[particle.parent]:
        return particle.type
    return particle.name


def momenta_shown(
    topology: Topology, objects: Sequence[Item], assignments: npt.NDArray[np.integer[Any]]
) -> Momenta:
    """The momenta of the particles of assignments (k, S), with neutrinos if there is missing energy."""
    pt, eta, phi, mass = np.array([(item.pt, item.eta, item.phi, item.mass) for item in objects]).T
    p4 = cartesian(pt, eta, phi, energy_of(pt, eta, mass))
    filled = assignments >= 0
    slots = np.where(filled[..., None], p4[np.where(filled, assignments, 0)], np.nan)
    missing = [p4[k, :2] for k, item in enumerate(objects) if KINDS[item.kind].transverse and item.used]
    met = missing[0] if missing else np.full(2, np.nan)
    return momenta_of(topology, slots, np.tile(met, (len(assignments), 1)))


def shown_particles(
    topology: Topology,
    objects: Sequence[Item],
    assignment: npt.NDArray[np.integer[Any]],
    *,
    revealed: npt.NDArray[np.bool_] | None = None,
    truth: npt.NDArray[np.integer[Any]] | None = None,
    probability: Mapping[int, float] | None = None,
) -> tuple[Shown, ...]:
    """The particles present in an assignment (S,), children before parents, compared with the truth."""
    from pairton.topology.assignments import present

    is_present = present(topology, assignment[None])[0]
    if revealed is not None:
        is_present &= revealed
    verdict = verdicts(topology, assignment, truth)
    momenta = momenta_shown(topology, objects, assignment[None])
    masses, visible = polar(momenta.p4[0])["mass"], polar(momenta.visible[0])["mass"]
    above = {index for neutrino in topology.neutrinos for index in topology.ancestry(neutrino.particle)}
    found = []
    for name in topology.types:
        for particle in topology.of_type(name):
            if is_present[particle.index]:
                chosen = tuple(int(assignment[slot]) for slot in particle.slots)
                chance = None if probability is None else probability.get(particle.index)
                label = particle_label(topology, particle.index, revealed)
                solved = particle.index in above and bool(np.isfinite(masses[particle.index]))
                mass = float((masses if solved else visible)[particle.index])
                found.append(Shown(name, label, chosen, mass, chance, verdict[particle.index], solved))
    return tuple(found)


def verdicts(
    topology: Topology,
    assignment: npt.NDArray[np.integer[Any]],
    truth: npt.NDArray[np.integer[Any]] | None,
) -> list[bool | None]:
    """Whether each particle of an assignment (S,) is right; None if the truth does not decide.

    A particle is wrong if all true particles of its type are known and it is none of them.
    """
    from pairton.evaluation.metrics import matches
    from pairton.topology.assignments import present

    if truth is None:
        return [None] * len(topology.particles)
    right = matches(topology, assignment[None], truth[None])[0]
    known = present(topology, truth[None])[0]
    all_known = {name: all(known[p.index] for p in topology.of_type(name)) for name in topology.types}
    return [True if right[p.index] else False if all_known[p.type] else None for p in topology.particles]


def same_particles(one: Iterable[Shown], other: Iterable[Shown]) -> bool:
    """Whether two lists have the same particles with the same objects."""
    first, second = ({(shown.type, frozenset(shown.objects)) for shown in each} for each in (one, other))
    return first == second


def as_lists(matrices: npt.NDArray[Any]) -> Matrices:
    """Matrices as nested lists, for JSON."""
    result: Matrices = np.asarray(matrices).tolist()
    return result
