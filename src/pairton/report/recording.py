"""Records of events: reconstructed step by step with a model, or from an existing answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import decode
from pairton.decoding.exact import sums_of
from pairton.decoding.graph import MASKED, adjacency
from pairton.errors import EventsError
from pairton.events import Events, Status
from pairton.events.domain import cut_domain
from pairton.events.mixed_events import events_for
from pairton.models.folds import by_fold
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.report.frames import chain_frames, exact_frames
from pairton.report.record import EventRecord, Frame, as_lists, shown_particles
from pairton.report.seen_event import SeenEvent

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["record_answer", "record_event"]

Ints = npt.NDArray[np.integer[Any]]


def record_event(
    events: Events,
    row: int,
    model: Model,
    settings: RunSettings = DEFAULT_SETTINGS,
    *,
    source: str = "",
    number: int | None = None,
) -> EventRecord:
    """Reconstruct the event in a row, and record every step; `number` is shown as its name, by default the row."""
    one, asked = events_for(model.topology, _one(events, row))
    assigner = Assigner(model, settings.for_events(model, events.topology, events.pile_up))
    assigner.check(events.topology)
    networks = zip(assigner.members, by_fold(model, one.ids), strict=True)
    member = next(each for each, (_, in_fold) in networks if in_fold[0])  # has the network of the event's fold
    topology, decoding = model.topology, str(assigner.settings.decoding)
    tagged = assigner.with_evidence(one)
    accepted = assigner.accept(tagged)
    seen = {kind: position[0][position[0] >= 0] for kind, position in accepted.position.items()}
    base = SeenEvent.of(one, seen, row if number is None else number, source, topology)
    label = decoding.replace("_", "-")
    status = Status(int(assigner.status_of(accepted, assigner.count_tags(tagged, accepted))[0])).label
    base.domain = cut_domain(model.domain, assigner.settings.cuts, topology.kinds)
    base.needs = assigner.settings.needs(model)
    if not accepted.answerable[0]:
        return base.record(label, model.name, status, (), None, ())
    nodes = accepted.batch(np.array([0]), tuple(accepted.nodes.counts[0].tolist()))
    temperatures, question = member.temperatures, replace(assigner.settings.question, topology=asked)
    if (own := getattr(member.model, "answer", None)) is not None:
        answer, _ = own(nodes)
    else:
        answer = decode(
            member.model.predict,
            topology,
            nodes,
            decoding=decoding,
            temperatures=temperatures,
            record=True,
            question=question,
        )
    if not answer.answered[0]:  # the outputs are not finite
        return base.record(label, model.name, Status.BAD_OUTPUT.label, (), None, ())
    found, particles = base.ranked(answer.assignment[0])
    base.align(found)
    chances = {p.index: float(answer.particle_probability[0, particles[p.index]]) for p in topology.particles}
    final = shown_particles(topology, base.objects, found, truth=base.truth, probability=chances)
    if answer.exact[0] and decoding == "exact":
        temperature = 1.0 if temperatures is None else float(temperatures[0])
        outputs = member.model.predict(nodes, np.full_like(answer.steps[0].tokens, MASKED))
        frames = exact_frames(base, outputs, sums_of(topology, nodes.layout, outputs, temperature, question))
    else:
        frames = chain_frames(base, answer, decoding, final)
    return base.record(label, model.name, status, final, float(answer.event_probability[0]), frames)


def record_answer(
    events: Events,
    row: int,
    assignment: Ints,
    *,
    event_probability: float = float("nan"),
    particle_probability: npt.NDArray[Any] | None = None,
    status: int = Status.OK,
    decoding: str = "",
    model: str = "",
    source: str = "",
    number: int | None = None,
) -> EventRecord:
    """A record of an existing answer, without steps; `assignment` (S,) has positions in `events.objects`."""
    one = _one(events, row)
    seen = {kind: np.argsort(-np.asarray(array.pt[0]), kind="stable") for kind, array in one.objects.items()}
    base = SeenEvent.of(one, seen, row if number is None else number, source, events.topology)
    moved, particles = base.ranked(base.places(np.asarray(assignment)))
    base.align(moved)
    chances = None
    if particle_probability is not None:
        chances = {k: float(value) for k, value in enumerate(np.asarray(particle_probability)[particles])}
    final = shown_particles(events.topology, base.objects, moved, truth=base.truth, probability=chances)
    frames: tuple[Frame, ...] = ()
    if final:
        tokens = adjacency(events.topology, moved[None], np.ones((1, len(base.objects)), dtype=bool))[0]
        frames = (Frame("The answer", "", final, tokens=as_lists(tokens[0])),)
    probability = float(event_probability) if np.isfinite(event_probability) else None
    return base.record(decoding, model, Status(int(status)).label, final, probability, frames)


def _one(events: Events, row: int) -> Events:
    if not 0 <= row < len(events):
        raise EventsError(
            f"there is no event {row}: "
            + (f"choose a row from 0 to {len(events) - 1}" if len(events) else "there are no events")
        )
    return events[row : row + 1]
