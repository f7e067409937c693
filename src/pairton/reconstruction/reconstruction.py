"""The main job, in memory: jets in, particles with four-momenta and probabilities out, one row an event.

The same answer always: jets are put in a canonical order before the network and indices are mapped back; batches
are cut from fixed windows of global rows, by jet count, whatever the chunks in which a file is read.

Shapes: n events, S slots, P particles, N jets, J jets of all events together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError, nearest
from pairton.events import Events, Status
from pairton.events.acceptance import MAX_JETS, Prepared, prepare
from pairton.events.domain import Domain
from pairton.events.objects import make_jets, mev_median
from pairton.events.vectors import cartesian, polar
from pairton.reconstruction.assigning import Assign, Assigner, assign_prepared, decoding_of
from pairton.topology import Topology

if TYPE_CHECKING:
    from pairton.models.engines import Model
    from pairton.report.event_display import Display

__all__ = [
    "MAX_JETS",
    "WINDOW",
    "Prepared",
    "Reconstruction",
    "how_made",
    "momenta",
    "prepare",
    "reconstruct",
    "run",
    "slot_momenta",
    "stored_assignment",
    "windows",
]

WINDOW = 4096  # rows of the input that are batched together

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer[Any]]


# -- the result --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reconstruction:
    """One row for every event. Particles by their type: `reco.t.mass`, `reco.W[:, 0].jets.pt`, `reco["t"]`.

    An event without an answer has slots -1, probabilities and momenta NaN, no jets, and a status that says why.
    """

    events: Events
    assignment: npt.NDArray[np.int32]  # (n, S): positions in `events.jets`, -1 for none
    status: npt.NDArray[np.uint8]  # (n,): see `pairton.events.events.Status`
    event_probability: npt.NDArray[np.float64]  # (n,)
    particle_probability: npt.NDArray[np.float64]  # (n, P)
    jets_used: npt.NDArray[np.int64]  # (n,)
    variations: Mapping[str, Reconstruction] = field(default_factory=dict)  # with the varied jets of the events
    how: Mapping[str, Any] = field(default_factory=dict, repr=False)  # model and options, to replay an event

    @property
    def topology(self) -> Topology:
        return self.events.topology

    def __len__(self) -> int:
        return len(self.assignment)

    def __repr__(self) -> str:
        counts = np.bincount(self.status, minlength=len(Status))
        said = ", ".join(f"{counts[state]} {state.label}" for state in Status if counts[state]) or "none"
        return f"<Reconstruction of {len(self)} {self.topology.name} events: {said}>"

    @cached_property
    def jet_index(self) -> npt.NDArray[np.int32]:
        """(n, S): the number of each jet in the input file, -1 for none."""
        return stored_assignment(self.events, self.assignment)

    @cached_property
    def momenta(self) -> dict[str, npt.NDArray[np.float64]]:
        """pt, eta, phi, mass of every particle, (n, P) each."""
        return momenta(self.events, self.assignment)

    def jet(self, slot: str) -> ak.Array:
        """(n,): the jet in a slot, such as `t1.b`, as a four-vector with `btag` and `index`; None for none."""
        column = self.topology.slot_index(slot)
        at = self.assignment[:, column]
        picked = ak.mask(self.events.jets, at >= 0)[ak.from_regular(np.maximum(at, 0)[:, None])]
        return ak.with_field(ak.firsts(picked), ak.mask(ak.Array(self.jet_index[:, column]), at >= 0), "index")

    def to_columns(self) -> dict[str, Any]:
        """The columns that `save` and `pairton reconstruct` write; `pandas.DataFrame` takes them."""
        from pairton.reconstruction.writers import result_columns

        return result_columns(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what `pairton reconstruct` writes: .parquet, .root or .h5."""
        from pairton.reconstruction.streaming import result_settings
        from pairton.reconstruction.writers import create_result

        said = {}
        if self.how:
            options = {name: value for name, value in self.how.items() if name != "model"}
            said = result_settings(self.how["model"], [], **options)
        with create_result(os.fspath(path), self.topology, said) as writer:
            writer.write(self)

    def made(self, how: Mapping[str, Any]) -> Reconstruction:
        """The same, with how it was made; its variations too."""
        return replace(
            self, how=how, variations={name: other.made(how) for name, other in self.variations.items()}
        )

    def display(self, row: int) -> Display:
        """One event to look at, step by step: in a notebook by itself, else `.save("event.html")`."""
        from pairton.report.event_display import display_row

        return display_row(self, row)

    def __getattr__(self, name: str) -> ak.Array:
        if name.startswith("_") or "events" not in self.__dict__:  # as pickle and copy ask, before there are any
            raise AttributeError(name)
        if name not in self.topology.types:
            raise AttributeError(f"no attribute {name!r}: particle types are {', '.join(self.topology.types)}")
        return self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.topology.types]

    def __getitem__(self, type_name: str) -> ak.Array:
        """(n, particles of the type): Momentum4D records with `probability` and `jets`."""
        particles = self.topology.of_type(type_name)
        if not particles:
            types = self.topology.types
            raise EventsError(f"no type {type_name!r}: there are {', '.join(types)}{nearest(type_name, types)}")
        columns = [p.index for p in particles]
        fields = {name: ak.from_regular(values[:, columns]) for name, values in self.momenta.items()}
        fields["probability"] = ak.from_regular(self.particle_probability[:, columns])
        fields["jets"] = self._jets([p.slots for p in particles])
        return ak.zip(fields, with_name="Momentum4D", depth_limit=2)

    def _jets(self, slots: Sequence[tuple[int, ...]]) -> ak.Array:
        """(n, particles, their jets); empty lists where there is no answer."""
        at = self.assignment[:, np.array(slots)]  # (n, particles, slots)
        starts = np.cumsum(self.events.n_jets) - self.events.n_jets
        there = (at >= 0).all(axis=2)
        flat = (starts[:, None, None] + at)[there].ravel()
        jets = ak.with_field(self.events.jets, self.events.stored_index, "index")
        chosen = ak.unflatten(ak.flatten(jets)[flat], np.where(there, at.shape[2], 0).ravel())
        return ak.unflatten(chosen, np.full(len(at), at.shape[1]))


def stored_assignment(events: Events, assignment: Ints) -> npt.NDArray[np.int32]:
    """Positions in `events.jets` (n, S) as the numbers that the jets have in the input file, -1 for none."""
    if "index" not in ak.fields(events.jets):
        return np.asarray(assignment, dtype=np.int32)
    flat = np.asarray(ak.flatten(events.stored_index), dtype=np.int32)
    return np.where(assignment >= 0, _pick(flat, events, assignment), -1).astype(np.int32)


def _pick(flat: npt.NDArray[Any], events: Events, assignment: Ints) -> npt.NDArray[Any]:
    """Values (J, ...) of the jets of an assignment (n, S); anything where there is none."""
    if not len(flat):
        return np.zeros((*assignment.shape, *flat.shape[1:]), dtype=flat.dtype)
    starts = np.cumsum(events.n_jets) - events.n_jets
    return np.asarray(flat[np.where(assignment >= 0, starts[:, None] + assignment, 0)])


def slot_momenta(events: Events, assignment: Ints) -> npt.NDArray[np.float64]:
    """(n, S, 4): px, py, pz and energy of the jet in each slot; NaN where there is none."""
    p4 = cartesian(*(np.asarray(ak.flatten(events.jets[name])) for name in ("pt", "eta", "phi", "energy")))
    return np.where(assignment[:, :, None] >= 0, _pick(p4, events, assignment), np.nan)


def momenta(events: Events, assignment: Ints) -> dict[str, npt.NDArray[np.float64]]:
    """pt, eta, phi, mass of the summed jets of each particle, (n, P) each; NaN where one is missing."""
    slots = slot_momenta(events, assignment)
    particles = [slots[:, list(particle.slots)].sum(axis=1) for particle in events.topology.particles]
    return polar(np.stack(particles, axis=1))


# -- the job -----------------------------------------------------------------------------------------------


def reconstruct(
    events: Events | ak.Array | str | os.PathLike[str],
    model: Model | str | None = None,
    *,
    decoding: str | None = None,
    beam: int | None = None,
    max_jets: int = MAX_JETS,
    jet_cuts: bool = True,
    variations: Mapping[str, ak.Array] | None = None,
    threads: int | None = None,
    engine: str = "onnx",
) -> Reconstruction:
    """Assign the jets of events, of a file, or of an awkward array with pt, eta, phi, btag and energy or mass.

    model      a loaded model, or the name or path of one; by default the one for the topology of the events
    decoding   exact, exact_steps, steps, one_shot, beam or one_by_one; by default what the model was trained for
    max_jets   events with more use those of highest pT, and have the status `truncated`
    jet_cuts   leave out jets outside the model's domain (pT floor, |eta|)
    variations the same jets calibrated otherwise, by name: their results are `.variations[name]`
    """
    if model is None or isinstance(model, str):
        from pairton.models.engines import load_model, model_for

        name = model or (model_for(events.topology) if isinstance(events, Events) else "default")
        loaded = load_model(name, engine=engine, threads=threads)
    else:
        loaded = model
    if isinstance(events, str | os.PathLike):
        from pairton.formats import as_for, read

        events = read(os.fspath(events), truth=False, **as_for(loaded.topology, {}))
    if not isinstance(events, Events):
        events = _as_events(events, loaded.topology)
    if variations is not None:
        varied = {name: _as_events(jets, loaded.topology).jets for name, jets in variations.items()}
        events = events.with_jets(events.jets, varied)
    assign = Assigner(loaded, decoding, beam)
    assign.check(events.topology)
    parts = [
        run(window, assign, loaded.domain, max_jets=max_jets, jet_cuts=jet_cuts) for window in windows([events])
    ]
    return _joined(events, parts).made(how_made(loaded, decoding, beam, max_jets, jet_cuts))


def how_made(
    model: Model, decoding: str | None, beam: int | None, max_jets: int, jet_cuts: bool
) -> Mapping[str, Any]:
    """What a reconstruction must know to replay an event and to say how it was made."""
    how = {"model": model, "decoding": decoding_of(model, decoding, beam), "beam": beam}
    return how | {"max_jets": max_jets, "jet_cuts": jet_cuts}


def _joined(events: Events, parts: Sequence[Reconstruction]) -> Reconstruction:
    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    return Reconstruction(
        events,
        column("assignment"),
        column("status"),
        column("event_probability"),
        column("particle_probability"),
        column("jets_used"),
        {k: _joined(events.varied(k), [part.variations[k] for part in parts]) for k in events.variations},
    )


def run(
    window: Events, assign: Assign, domain: Domain | None, *, max_jets: int = MAX_JETS, jet_cuts: bool = True
) -> Reconstruction:
    """Reconstruct the events of one window, and their variations."""
    prepared = prepare(window, domain, max_jets=max_jets, jet_cuts=jet_cuts)
    answer = assign_prepared(prepared, window.topology, assign)
    return Reconstruction(
        window,
        np.asarray(answer.assignment, dtype=np.int32),
        prepared.status,
        np.asarray(answer.event_probability, dtype=np.float64),
        np.asarray(answer.particle_probability, dtype=np.float64),
        prepared.counts,
        {
            k: run(window.varied(k), assign, domain, max_jets=max_jets, jet_cuts=jet_cuts)
            for k in window.variations
        },
    )


def windows(chunks: Sequence[Events] | Iterator[Events], size: int = WINDOW) -> Iterator[Events]:
    """The same events cut at multiples of `size` rows, however they come; one empty window if there are none."""
    waiting: list[Events] = []
    held = 0
    some = False
    for chunk in chunks:
        start = 0
        while held + len(chunk) - start >= size:
            stop = start + size - held
            yield Events.concatenate([*waiting, chunk[start:stop]])
            some, waiting, held, start = True, [], 0, stop
        if start < len(chunk) or not (waiting or some):  # keep the first even if empty: it has the columns
            waiting.append(chunk[start:])
            held += len(chunk) - start
    if held or not some:
        yield Events.concatenate(waiting)


def _as_events(jets: Any, topology: Topology) -> Events:
    array = ak.Array(jets)
    given = set(ak.fields(array))
    mass = "mass" if "mass" in given else "m"
    energy = "energy" if "energy" in given else "E"
    last = {"energy": array[energy]} if energy in given else {"mass": array[mass]} if mass in given else {}
    missing = [name for name in ("pt", "eta", "phi", "btag") if name not in given] + ["energy or mass"] * (
        not last
    )
    if missing:
        raise EventsError(
            f"jets lack {', '.join(missing)}: found {', '.join(sorted(given)) or 'no fields'}; build them with "
            "pairton.make_jets"
        )
    if (median := mev_median(np.asarray(ak.flatten(array["pt"], axis=None)))) is not None:
        raise EventsError(
            f"the median jet pT is {median:.0f}, which looks like MeV: divide pT, energy and mass by 1000 "
            "(or, if it is right, give pairton.Events)"
        )
    more = {name: array[name] for name in ("index", "usable") if name in given}
    return Events(
        make_jets(**{name: array[name] for name in ("pt", "eta", "phi", "btag")}, **last, **more), topology
    )
