"""An event to be shown: its objects in the order of the network, and its truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.events import Events
from pairton.events.domain import Domain
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import mass_of, polar
from pairton.report.reasons import why_no_answer
from pairton.report.record import (
    EventRecord,
    Frame,
    Item,
    Shown,
    momenta_shown,
    same_particles,
    shown_particles,
)
from pairton.topology import Topology
from pairton.topology.assignments import ranked

__all__ = ["SeenEvent"]

TAG_CUT = 0.5  # a jet above it is b-tagged
MAX_SYMMETRIES = 10_000  # largest number of equivalent truths that are compared with an answer

Ints = npt.NDArray[np.integer[Any]]
Order = list[tuple[str, int, bool]]  # kind, position in its collection, seen by the network


class SeenEvent:
    """The parts of a record that do not depend on the answer: objects, truth, names."""

    def __init__(
        self, topology: Topology, objects: tuple[Item, ...], order: Order, name: str, source: str
    ) -> None:
        self.topology, self.objects, self.order = topology, objects, order
        self.name, self.source = name, source
        self.id = ""
        self.truth: Ints | None = None
        self.domain = Domain()  # cuts that an object must pass to be used
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
        source_id, event_id = (int(part) for part in one.ids[0])
        base.id = f"{source_id:016x}:{event_id}"
        if one.truth is not None:
            base.truth = base.places(one.truth[0])
        return base

    def places(self, assignment: Ints) -> Ints:
        """(S,): the places in `objects` of an assignment of positions in collections (S,); -1 for none."""
        at = {(kind, position): place for place, (kind, position, _) in enumerate(self.order)}
        kinds = [slot.kind for slot in self.topology.slots]
        return np.array([at.get((kind, int(k)), -1) for kind, k in zip(kinds, assignment, strict=True)])

    def ranked(self, assignment: Ints) -> tuple[Ints, Ints]:
        """An assignment (S,) with interchangeable particles by falling pT, and the previous index of each (P,)."""
        pt = polar(momenta_shown(self.topology, self.objects, assignment[None]).p4)["pt"]
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
            true = shown_particles(self.topology, self.objects, self.truth)
            whole = len(answer) == len(self.topology.particles)
            if bool((self.truth >= 0).all()) and answer:
                right = whole and all(bool(shown.right) for shown in answer)
            elif not whole and probability is not None:  # which particles are absent is part of the answer
                right = same_particles(true, answer)
        if not frames:
            why = why_no_answer(self.topology, self.objects, status, self.domain, self.needs)
            frames = (Frame(f"No answer: {status.replace('_', ' ')}", why, ()),)
        truth = None if self.truth is None else tuple(int(k) for k in self.truth)
        base = self.name, self.id, self.source, self.topology, self.objects
        return EventRecord(*base, truth, true, decoding, model, status, answer, probability, right, frames)
