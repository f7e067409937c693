"""The record of an event for displays: its objects, every step of its reconstruction, and the truth if known.

A record is plain data; pages, pictures and notebooks draw the same one. Objects are identified by their place in
`EventRecord.objects`: those that the network sees come first, kind by kind and by falling pT. `Item.index` is the
index in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.configuration import as_plain
from pairton.decoding.terms import gain_terms
from pairton.evaluation.plots import COLOURS
from pairton.evaluation.scores import matches
from pairton.events import Events, Status
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import cartesian, energy_of, mass_of, polar
from pairton.reconstruction.momenta import Momenta, momenta_of
from pairton.topology import JET, Topology, collection_name
from pairton.topology.assignments import present, ranked
from pairton.topology.kinds import KINDS, counted
from pairton.topology.selection import Cuts

__all__ = [
    "Candidate",
    "EventRecord",
    "Frame",
    "Item",
    "SeenEvent",
    "Shown",
    "kind_shapes",
    "type_colours",
]

DECIMALS = 4  # in the JSON
TAG_CUT = 0.5  # a jet above it is b-tagged
MAX_SYMMETRIES = 10_000  # largest number of equivalent truths that are compared with an answer
SHAPES = ("triangle", "diamond", "square", "pentagon")  # of kinds other than jets
ARROW = "arrow"  # of kinds that have only a transverse direction

Matrices = list[list[list[float]]]  # (T, N, N)
Ints = npt.NDArray[np.integer[Any]]
Order = list[tuple[str, int, bool]]  # kind, position in its collection, seen by the network


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

    @property
    def slot_names(self) -> list[str]:
        """The names of slots without the numbers of interchangeable objects: t1.W.q for t1.W.q2."""
        return [re.sub(r"(?<=\.)([^.]*?)\d+$", r"\1", slot.name) for slot in self.topology.slots]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, including colours; numbers are rounded."""
        topology, colours = self.topology, type_colours(self.topology)
        types = [
            {
                "name": name,
                "colour": colours[name],
                "matrix": topology.height(name) > 0 or len(edge_pairs(topology, name)) > 0,
            }
            for name in topology.types
        ]
        transverse = [kind for kind in topology.kinds if KINDS[kind].transverse]
        names = {"topology": topology.name, "types": types, "transverse": transverse}
        names["short"] = [item.short for item in self.objects]
        plain: dict[str, Any] = as_plain(vars(self) | names, DECIMALS)
        return plain


def type_colours(topology: Topology) -> dict[str, str]:
    """The colour of each type, in the order of `topology.types`; colours repeat after six."""
    return {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(topology.types)}


def kind_shapes(topology: Topology) -> dict[str, str]:
    """The shape of each kind: circles for jets, an arrow for missing energy, one of four shapes for others."""
    others = [kind for kind in topology.kinds if kind != JET and not KINDS[kind].transverse]
    shapes = {kind: SHAPES[k % len(SHAPES)] for k, kind in enumerate(others)} | {JET: "circle"}
    return {kind: shapes.get(kind, ARROW) for kind in topology.kinds}


def edge_pairs(topology: Topology, type_name: str, n_objects: int | None = None) -> list[tuple[int, int]]:
    """The pairs of objects of a particle that are joined by its type, but not by a child; as places among them.

    n_objects: how many the particle has, if some of it may be merged

    >>> from pairton.topology import load_topology
    >>> edge_pairs(load_topology("ttbar_allhad"), "t")
    [(0, 2), (1, 2)]
    """
    particle = topology.of_type(type_name)[0]
    form = next(form for form in topology.forms_of(type_name) if n_objects in (None, len(form.filled)))
    filled = [particle.span[k] for k in form.filled]
    pairs, _ = gain_terms(topology, particle, form)
    return [(filled.index(i), filled.index(j)) for i, j in pairs]


def particle_label(topology: Topology, index: int, revealed: npt.NDArray[np.bool_] | None = None) -> str:
    """The name of a particle; only its type while its parent, such as the top of a W, is unknown."""
    particle = topology.particles[index]
    if particle.parent >= 0 and revealed is not None and not revealed[particle.parent]:
        return particle.type
    return particle.name


def verdicts(
    topology: Topology,
    assignment: Ints,
    truth: Ints | None,
) -> list[bool | None]:
    """Whether each particle of an assignment (S,) is right; None if the truth does not decide.

    A particle is wrong if all true particles of its type are known and it is none of them.
    """
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


# -- an event without its answer ---------------------------------------------------------------------------


class SeenEvent:
    """The parts of a record that do not depend on the answer: objects, truth, names."""

    def __init__(
        self, topology: Topology, objects: tuple[Item, ...], order: Order, name: str, source: str
    ) -> None:
        self.topology, self.objects, self.order = topology, objects, order
        self.name, self.source = name, source
        self.ids = np.zeros((1, 2), dtype=np.uint64)
        self.truth: Ints | None = None
        self.cuts: Mapping[str, Cuts] = {}  # cuts that an object must pass to be used
        self.needs: tuple[tuple[int, ...], ...] = ()  # as for `why_no_answer`

    @classmethod
    def of(cls, one: Events, seen: Mapping[str, Ints], number: int, source: str, topology: Topology) -> SeenEvent:
        """From one event; the objects that the network sees come first, kind by kind, then the others."""
        order: Order = [(kind, int(k), True) for kind, positions in seen.items() for k in positions]
        for kind, positions in seen.items():
            rest = np.setdiff1d(np.arange(one.counts[kind][0]), positions)
            order += [(kind, int(k), False) for k in rest]
        objects = []
        for kind, k, used in order:
            values = one.objects[kind][0, k]
            pt, eta, phi, energy = (float(values[name]) for name in MOMENTUM)
            btag = float(values.btag) if "btag" in ak.fields(values) else None
            index, mass = int(one.stored_index[kind][0, k]), float(mass_of(pt, eta, energy))
            objects.append(Item(index, pt, eta, phi, mass, btag, (btag or 0.0) > TAG_CUT, used, kind))
        base = cls(topology, tuple(objects), order, f"event {number}", source)
        base.ids = one.ids
        if one.truth is not None:
            base.truth = base.places(one.truth[0])
        return base

    def places(self, assignment: Ints) -> Ints:
        """(S,): the places in `objects` of an assignment of positions in collections (S,); -1 for none."""
        at = {(kind, position): place for place, (kind, position, _) in enumerate(self.order)}
        kinds = [slot.kind for slot in self.topology.slots]
        return np.array([at.get((kind, int(k)), -1) for kind, k in zip(kinds, assignment, strict=True)])

    def momenta(self, assignment: Ints) -> Momenta:
        """The momenta of the particles of an assignment (S,), with neutrinos if there is missing energy."""
        pt, eta, phi, mass = np.array([(item.pt, item.eta, item.phi, item.mass) for item in self.objects]).T
        p4 = cartesian(pt, eta, phi, energy_of(pt, eta, mass))
        filled = assignment >= 0
        slots = np.where(filled[:, None], p4[np.where(filled, assignment, 0)], np.nan)
        missing = [p4[k, :2] for k, item in enumerate(self.objects) if KINDS[item.kind].transverse and item.used]
        met = missing[0] if missing else np.full(2, np.nan)
        return momenta_of(self.topology, slots[None], met[None], self.ids)

    def shown(
        self,
        assignment: Ints,
        *,
        revealed: npt.NDArray[np.bool_] | None = None,
        compared: bool = True,
        probability: Mapping[int, float] | None = None,
    ) -> tuple[Shown, ...]:
        """The particles present in an assignment (S,), children before parents; `compared` with the truth."""
        topology = self.topology
        is_present = present(topology, assignment[None])[0]
        if revealed is not None:
            is_present &= revealed
        verdict = verdicts(topology, assignment, self.truth if compared else None)
        momenta = self.momenta(assignment)
        masses, visible = polar(momenta.p4[0])["mass"], polar(momenta.visible[0])["mass"]
        above = {index for neutrino in topology.neutrinos for index in topology.ancestry(neutrino.particle)}
        found = []
        for name in topology.types:
            for particle in topology.of_type(name):
                if is_present[particle.index]:
                    chosen = tuple(int(assignment[slot]) for slot in particle.span if assignment[slot] >= 0)
                    chance = None if probability is None else probability.get(particle.index)
                    label = particle_label(topology, particle.index, revealed)
                    solved = particle.index in above and bool(np.isfinite(masses[particle.index]))
                    mass = float((masses if solved else visible)[particle.index])
                    found.append(Shown(name, label, chosen, mass, chance, verdict[particle.index], solved))
        return tuple(found)

    def ranked(self, assignment: Ints) -> tuple[Ints, Ints]:
        """An assignment (S,) with interchangeable particles by falling pT, and the previous index of each (P,)."""
        pt = polar(self.momenta(assignment).p4)["pt"]
        slots, particles = ranked(self.topology, pt)
        return assignment[slots[0]], particles[0]

    def align(self, assignment: Ints) -> None:
        """Choose among equivalent truths the one closest to the answer, since t1 and t2 are only names."""
        if self.truth is None or self.topology.n_symmetries > MAX_SYMMETRIES:
            return
        same = self.truth[self.topology.symmetries]  # (G, S)
        self.truth = same[(same == assignment).sum(axis=1).argmax()]

    def record(
        self,
        decoding: str,
        model: str,
        status: str,
        answer: tuple[Shown, ...],
        probability: float | None,
        frames: tuple[Frame, ...],
    ) -> EventRecord:
        """The record of the event, with an answer; without frames, one says why there is no answer."""
        true: tuple[Shown, ...] = ()
        right: bool | None = None
        if self.truth is not None:
            true = self.shown(self.truth, compared=False)
            whole = len(answer) == len(self.topology.particles)
            if bool((self.truth >= 0).all()) and answer:
                right = whole and all(bool(shown.right) for shown in answer)
            elif not whole and probability is not None:  # which particles are absent is part of the answer
                right = same_particles(true, answer)
        if not frames:
            why = why_no_answer(self.topology, self.objects, status, self.cuts, self.needs)
            frames = (Frame(f"No answer: {status.replace('_', ' ')}", why, ()),)
        truth = None if self.truth is None else tuple(int(k) for k in self.truth)
        source_id, event_id = (int(part) for part in self.ids[0])
        base = self.name, f"{source_id:016x}:{event_id}", self.source, self.topology, self.objects
        return EventRecord(*base, truth, true, decoding, model, status, answer, probability, right, frames)


def why_no_answer(
    topology: Topology,
    objects: Sequence[Item],
    status: str,
    cuts: Mapping[str, Cuts],
    needs: Sequence[tuple[int, ...]],
) -> str:
    """Why an event has no answer, as a sentence for the event display.

    objects   objects of the event
    status    label of the status of the event
    cuts      cuts that an object must pass to be used
    needs     numbers of objects of each kind that the possible answers need; empty: one object per slot

    >>> from pairton.topology import load_topology
    >>> why_no_answer(load_topology("hh4b"), [], "too_few_objects", {}, [])
    '0 of 0 jets can be used; an answer needs 4 jets.'
    """
    if status == Status.BAD_OUTPUT.label:
        return "The network gives values that are not finite numbers."
    if status == Status.BAD_OBJECT.label:
        return "An object has an impossible momentum: NaN, infinite, pT of 0 or less, or an energy below it."
    sentences = []
    for kind in topology.object_kinds:
        used = [item.used for item in objects if item.kind == kind]
        limits = str(cuts.get(kind, Cuts())).replace("eta", "η")
        passing = f" ({limits})" if limits else ""
        sentences.append(f"{sum(used)} of {len(used)} {collection_name(kind)} can be used{passing}")
    return f"{'; '.join(sentences)}; an answer needs {_least(topology, needs)}."


def _least(topology: Topology, needs: Sequence[tuple[int, ...]]) -> str:
    """The smallest numbers of objects with which there is an answer, as text."""
    least = min(needs, key=sum, default=topology.slots_per_kind)
    if not sum(least):
        return f"at least 1 {' or '.join(topology.object_kinds)}"
    parts = [counted(n, kind) for kind, n in zip(topology.kinds, least, strict=True) if n]
    return "at least " * bool(needs) + " and ".join(parts)
