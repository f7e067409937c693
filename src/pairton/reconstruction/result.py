"""The result of a reconstruction: one row per event, particles by type, four-momenta and probabilities.

Shapes: n events, S slots, P particles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded
from pairton.errors import ConfigError, EventsError, nearest
from pairton.events import Events, Status
from pairton.events.head_specs import HeadSpec
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import polar
from pairton.reconstruction.momenta import (
    Momenta,
    particle_momenta,
    signed_codes,
    with_sign,
)
from pairton.reconstruction.result_columns import (
    MODEL_FOLD,
    N_BTAGS,
    head_shape,
    output_columns,
    pattern_columns,
    place_sizes,
    result_columns,
    stored_assignment,
    topology_columns,
)
from pairton.topology import Particle, Topology, collection_name
from pairton.topology.assignments import present, ranked
from pairton.topology.vocabulary import is_mixture

if TYPE_CHECKING:
    from pairton.models.model import Model
    from pairton.reconstruction.run_settings import RunSettings
    from pairton.report.page import Display

__all__ = [
    "Reconstruction",
    "by_falling_pt",
    "check_columns",
    "momenta",
    "own_columns",
]

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Reconstruction:
    """The result of `pairton.reconstruct`, with one row per event.

    Particles are attributes, by type: `reco.t.mass`, `reco.W[:, 0].objects.pt`, or `reco["t"]`.

    If an event has no answer, its slots are -1, its probabilities and momenta are NaN, its particles have no
    objects, and its status gives the reason. If an answer leaves a particle out, the same holds for that particle
    only.

    Attributes:
        events: The `Events` that were reconstructed.
        assignment: (n, slots): the position of each slot's object in `events.objects[kind]`, -1 for none.
        status: (n,): numbers of `pairton.Status`.
        event_probability: (n,): probability that the whole answer is right.
        particle_probability: (n, particles): probability that each particle is right.
        exact: (n,): whether probabilities come from sums over all assignments.
        used: Kind -> (n,): number of objects that were used.
        outputs: Name -> (n, ...): further columns, such as `complete_probability`.
        variations: Name -> the `Reconstruction` of varied objects.
        model: The model that was used.
        settings: The settings of the run.

    Examples:
        >>> import pairton
        >>> reco = pairton.reconstruct(pairton.read("sample:ttbar_allhad")[:100])
        >>> reco
        <Reconstruction of 100 ttbar_allhad events: 100 ok>
        >>> str(reco.t.mass.type)
        '100 * var * float64'
        >>> reco.assignment.shape, reco.object("t1.b").pt.ndim
        ((100, 6), 1)
    """

    events: Events
    assignment: npt.NDArray[np.int32]  # (n, S): positions in `events.objects[kind]`, -1 for none
    status: npt.NDArray[np.uint8]  # (n,): see `pairton.events.Status`
    event_probability: npt.NDArray[np.float64]  # (n,)
    particle_probability: npt.NDArray[np.float64]  # (n, P)
    exact: npt.NDArray[np.bool_]  # (n,): whether probabilities are from sums over all assignments
    used: Mapping[str, npt.NDArray[np.int64]]  # kind -> (n,): number of objects that were used
    outputs: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # name -> (n, ...): further columns
    variations: Mapping[str, Reconstruction] = field(default_factory=dict)  # results for varied objects, by name
    model: Model | None = field(default=None, repr=False)  # the model that was used
    settings: RunSettings | None = field(default=None, repr=False)
    solved: Momenta | None = field(default=None, repr=False)  # momenta, if already computed

    @property
    def topology(self) -> Topology:
        return self.events.topology

    def __len__(self) -> int:
        return len(self.assignment)

    def __repr__(self) -> str:
        counts = np.bincount(self.status, minlength=len(Status))
        summary = ", ".join(f"{counts[state]} {state.label}" for state in Status if counts[state]) or "none"
        return f"<Reconstruction of {len(self)} {self.topology.name} events: {summary}>"

    @cached_property
    def index(self) -> npt.NDArray[np.int32]:
        """(n, S): the index of each object in its collection of the input file, -1 for none."""
        return stored_assignment(self.events, self.assignment)

    @cached_property
    def particles(self) -> Momenta:
        """Four-momenta of all particles with and without neutrinos, and all solutions for the neutrinos."""
        return particle_momenta(self.events, self.assignment) if self.solved is None else self.solved

    @cached_property
    def momenta(self) -> dict[str, npt.NDArray[np.float64]]:
        """pt, eta, phi and mass of every particle, including its neutrinos; (n, P) each."""
        return polar(self.particles.p4)

    @cached_property
    def pdgid(self) -> npt.NDArray[np.int32]:
        """(n, P): the PDG code of each particle, negative for antiparticles; 0 if no lepton charge decides."""
        return signed_codes(self.events, self.assignment)

    def object(self, slot: str) -> ak.Array:
        """The object in a slot: one four-vector per event, None where the slot is empty.

        Args:
            slot: The name of a slot, such as "t1.b".

        Returns:
            An array of n records with the fields of the object, and `index`, its index in the input.

        Raises:
            TopologyError: The topology has no such slot.

        Examples:
            >>> import pairton
            >>> reco = pairton.reconstruct(pairton.read("sample:ttbar_allhad")[:3])
            >>> len(reco.object("t1.b").pt)
            3
        """
        column = self.topology.slot_index(slot)
        at = self.assignment[:, column]
        objects = self.events.objects[self.topology.slots[column].kind]
        picked = ak.mask(objects, at >= 0)[ak.from_regular(np.maximum(at, 0)[:, None])]
        return ak.with_field(ak.firsts(picked), ak.mask(ak.Array(self.index[:, column]), at >= 0), "index")

    def to_columns(self) -> dict[str, Any]:
        """The columns that `save` and `pairton reconstruct` write, by name, as for `pandas.DataFrame`.

        Returns:
            A mapping of names to arrays of n entries; docs/reconstruct.md describes the columns.

        Raises:
            ConfigError: A column kept from the input has the name of a result.

        Examples:
            >>> import pairton
            >>> reco = pairton.reconstruct(pairton.read("sample:ttbar_allhad")[:3])
            >>> reco.to_columns()["status"].tolist()
            ['ok', 'ok', 'ok']
        """
        return result_columns(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the same file as `pairton reconstruct`.

        Args:
            path: The file; its suffix selects Parquet, ROOT or HDF5 (.parquet, .root, .h5).

        Raises:
            ConfigError: The suffix is unknown.
            OutputError: The file cannot be written.

        Examples:
            >>> import pairton, tempfile
            >>> reco = pairton.reconstruct(pairton.read("sample:ttbar_allhad")[:3])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     reco.save(f"{folder}/reco.parquet")
        """
        from pairton.reconstruction.writers import save_result

        save_result(self, path)

    def made_by(self, model: Model, settings: RunSettings) -> Reconstruction:
        """A copy, with copies of its variations, that holds the model and settings it was made with."""
        varied = {name: other.made_by(model, settings) for name, other in self.variations.items()}
        return replace(self, model=model, settings=settings, variations=varied)

    def display(self, row: int) -> Display:
        """A picture of one event and of the steps of its reconstruction.

        Args:
            row: The row of the event.

        Returns:
            A `Display`, which a notebook shows; `.save("event.html")` writes a page or a picture.

        Raises:
            PairtonError: There is no such row, or the reconstruction was made without a model.

        Examples:
            >>> import pairton
            >>> reco = pairton.reconstruct(pairton.read("sample:ttbar_allhad")[:3])
            >>> type(reco.display(0)).__name__
            'Display'
        """
        from pairton.report.page import display_row

        return display_row(self, row)

    def __getattr__(self, name: str) -> ak.Array:
        if (
            name.startswith("_") or "events" not in self.__dict__
        ):  # asked by pickle and copy before there are events
            raise AttributeError(name)
        if name not in (known := self._names):
            raise AttributeError(f"no attribute {name!r}: particle types are {', '.join(known)}")
        return self[name]

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.topology.types, *self.topology.systems)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._names]

    def __getitem__(self, type_name: str) -> ak.Array:
        """(n, particles of the type): Momentum4D records with `probability` and `objects`.

        Objects have a `kind`, in whose collection `index` counts; `jets` are those that are jets, `leptons` those
        that are leptons, and so on for the kinds that the particles of the type have. The momentum of a type with
        a neutrino includes the neutrino; `neutrino` and `visible` are Momentum4D records of the two parts. `pdgid`
        exists if the charge of a lepton distinguishes the particle from its antiparticle. `tt`, the sum of both
        tops, has one record per event.
        """
        if type_name in self.topology.systems:
            return ak.zip(polar(self.particles.systems[type_name]), with_name="Momentum4D")
        particles = self.topology.of_type(type_name)
        if not particles:
            known = self._names
            raise EventsError(f"no type {type_name!r}: there are {', '.join(known)}{nearest(type_name, known)}")
        columns = [p.index for p in particles]
        fields = {name: ak.from_regular(values[:, columns]) for name, values in self.momenta.items()}
        unseen = [k for k, neutrino in enumerate(self.topology.neutrinos) if neutrino.particle in columns]
        if unseen:
            fields["neutrino"] = _records(self.particles.neutrinos.used[:, unseen])
            fields["visible"] = _records(self.particles.visible[:, columns])
        if set(columns) & set(with_sign(self.topology)):
            fields["pdgid"] = ak.from_regular(self.pdgid[:, columns])
        fields["probability"] = ak.from_regular(self.particle_probability[:, columns])
        fields["objects"] = objects = self._objects(particles)
        kinds = dict.fromkeys(self.topology.slots[slot].kind for p in particles for slot in p.span)
        for kind in kinds:
            fields[collection_name(kind)] = objects if len(kinds) == 1 else objects[objects.kind == kind]
        return ak.zip(fields, with_name="Momentum4D", depth_limit=2)

    def _objects(self, particles: Sequence[Particle]) -> ak.Array:
        """(n, particles, their objects); the lists of absent particles are empty."""
        slots = [particle.span for particle in particles]
        columns = [slot for group in slots for slot in group]
        kinds = [self.topology.slots[slot].kind for slot in columns]
        at = self.assignment[:, columns]
        shared = None  # fields of all kinds that the particles have
        picked = []
        for k, kind in enumerate(kinds):
            objects = ak.with_field(self.events.objects[kind], self.events.stored_index[kind], "index")
            names = ak.fields(objects)
            shared = names if shared is None else [name for name in shared if name in names]
            starts = np.cumsum(self.events.counts[kind]) - self.events.counts[kind]
            picked.append((ak.flatten(objects), starts + np.maximum(at[:, k], 0)))
        there = present(self.topology, self.assignment)[:, [particle.index for particle in particles]]
        filled = np.repeat(there, [len(group) for group in slots], axis=1) & (at >= 0)  # (n, columns)
        flat = [
            ak.with_name(objects[shared][where[filled[:, k]]], "Momentum4D")
            for k, (objects, where) in enumerate(picked)
        ]
        # a stable sort by event puts the objects of each event together, in the order of columns
        event = np.concatenate([np.flatnonzero(filled[:, k]) for k in range(len(columns))])
        order = np.argsort(event, kind="stable")
        ordered = ak.concatenate(flat)[order]
        column = np.repeat(np.arange(len(columns)), filled.sum(axis=0))[order]
        ordered = ak.with_field(ordered, ak.Array(kinds)[column], "kind")
        sizes = np.stack([filled[:, [columns.index(s) for s in group]].sum(axis=1) for group in slots], axis=1)
        return ak.unflatten(ak.unflatten(ordered, sizes.ravel()), np.full(len(at), len(slots)))


def _records(p4: npt.NDArray[np.float64]) -> ak.Array:
    """(n, k) Momentum4D records of p4 (n, k, 4)."""
    parts = {name: ak.from_regular(values) for name, values in polar(p4).items()}
    return ak.zip(parts, with_name="Momentum4D")


def momenta(events: Events, assignment: Ints) -> dict[str, npt.NDArray[np.float64]]:
    """pt, eta, phi and mass of each particle with its neutrinos, (n, P) each; NaN if an object is missing."""
    return polar(particle_momenta(events, assignment).p4)


def by_falling_pt(events: Events, found: Decoded) -> tuple[Decoded, Momenta, tuple[Ints, Ints]]:
    """Sort interchangeable particles by falling pT, in answers that hold positions in `events.objects`.

    Returns the answers, the momenta of their particles, and the previous slot (n, S) and particle (n, P) of each.
    """
    known = particle_momenta(events, found.assignment)
    slots, particles = ranked(events.topology, polar(known.p4)["pt"])
    best = found.best
    if best is not None:
        each = [particle_momenta(events, best[:, k]).p4 for k in range(best.shape[1])]
        orders = [ranked(events.topology, polar(p4)["pt"])[0] for p4 in each]
        best = np.take_along_axis(best, np.stack(orders, axis=1), axis=2)
    ordered = replace(
        found,
        assignment=np.take_along_axis(found.assignment, slots, axis=1),
        best=best,
        particle_probability=np.take_along_axis(found.particle_probability, particles, axis=1),
    )
    return ordered, known.exchanged(particles), (slots, particles)


@lru_cache
def own_columns(topology: Topology) -> frozenset[str]:
    """The names of all columns that results of a topology, or of a mixture, can have besides those of heads."""
    names = {N_BTAGS, MODEL_FOLD}
    for tree in (*topology.trees, *[topology] * is_mixture(topology)):
        none = ak.Array(np.zeros((0, 0)))
        objects = {kind: ak.zip(dict.fromkeys(MOMENTUM, none)) for kind in tree.kinds}
        events, found = Events(objects, tree, weights=()), Decoded.empty(tree, 0)
        more = {**topology_columns(tree, found), **pattern_columns(tree, found)}
        answer = found.assignment, np.zeros(0, np.uint8), found.event_probability, found.particle_probability
        reco = Reconstruction(events, *answer, found.exact, events.counts, more)
        names |= reco.to_columns().keys()
    return frozenset(names)


def check_columns(
    topology: Topology, heads: Mapping[str, HeadSpec], outputs: Mapping[str, tuple[str, ...]], source: str
) -> None:
    """Raise ConfigError if a head would replace a column of the results, or one of another head.

    outputs: the axes of the outputs that describe events, besides the declared heads
    """
    taken = dict.fromkeys(own_columns(topology), "results")
    order = np.zeros((0, len(topology.slots)), np.intp), np.zeros((0, len(topology.particles)), np.intp)
    sizes = place_sizes(topology)
    shapes = {name: tuple(sizes.get(axis, 1) for axis in axes) for name, axes in outputs.items()}
    shapes |= {name: head_shape(spec, topology) for name, spec in heads.items()}
    for name, shape in shapes.items():
        for column in output_columns(topology, heads, outputs, {name: np.zeros((0, *shape))}, order):
            if column in taken:
                raise ConfigError(
                    f"{source}heads.{name}: {taken[column]} already have a column {column}: rename the head"
                )
            taken[column] = f"the results of heads.{name}"
