"""Records of events: the steps of a decoding, the exact answer and its alternatives, or an existing answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded, Outputs, Step, decode
from pairton.decoding.exact import Sums, sums_of
from pairton.decoding.graph import MASKED, adjacency, masked_tokens, visible_tokens
from pairton.decoding.set_sums import log_sums
from pairton.errors import EventsError
from pairton.events import Events, Status
from pairton.events.domain import as_cuts, used_cuts
from pairton.models.storage import by_fold
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.report.record import (
    Candidate,
    EventRecord,
    Frame,
    SeenEvent,
    Shown,
    as_lists,
    same_particles,
    verdicts,
)
from pairton.topology.assignments import canonical

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["LISTED", "record_answer", "record_event"]

LISTED = 8  # candidates that are shown per step
NEGLIGIBLE = 1e-3  # an alternative of lower probability has no frame

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
    assigner = Assigner(model, settings.for_events(model, events.topology, events.pile_up))
    assigner.check(events.topology)
    one = _one(events, row)
    networks = zip(assigner.members, by_fold(model, one.ids), strict=True)
    member = next(each for each, (_, in_fold) in networks if in_fold[0])  # has the network of the event's fold
    topology, decoding = model.topology, str(assigner.settings.decoding)
    tagged = assigner.with_evidence(one)
    accepted = assigner.accept(tagged)
    seen = {kind: position[0][position[0] >= 0] for kind, position in accepted.position.items()}
    base = SeenEvent.of(one, seen, row if number is None else number, source, topology)
    label = decoding.replace("_", "-")
    status = Status(int(assigner.status_of(accepted, assigner.count_tags(tagged, accepted))[0])).label
    base.cuts = as_cuts(used_cuts(assigner.settings.cuts, model.domain, topology.kinds))
    base.needs = assigner.settings.needs(model)
    if not accepted.answerable[0]:
        return base.record(label, model.name, status, (), None, ())
    nodes = accepted.batch(np.array([0]), tuple(accepted.nodes.counts[0].tolist()))
    temperatures, question = member.temperatures, assigner.settings.question
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
    final = base.shown(found, probability=chances)
    if answer.exact[0] and decoding == "exact":
        temperature = 1.0 if temperatures is None else float(temperatures[0])
        outputs = member.model.predict(nodes, masked_tokens(topology, 1, nodes.mask.shape[1]))
        sums = sums_of(topology, nodes.layout, outputs, temperature, question, nodes.overlaps)
        frames = exact_frames(base, outputs, sums)
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
    final = base.shown(moved, probability=chances)
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


# -- steps -------------------------------------------------------------------------------------------------


def chain_frames(base: SeenEvent, answer: Decoded, decoding: str, final: tuple[Shown, ...]) -> tuple[Frame, ...]:
    """One frame per step, and one for the answer."""
    topology = base.topology
    mask = np.ones((1, sum(item.used for item in base.objects)), dtype=bool)
    assignment = np.full(len(topology.slots), -1, dtype=np.int32)
    revealed = np.zeros(len(topology.particles), dtype=bool)
    frames = []
    for k, step in enumerate(answer.steps):
        known = visible_tokens(topology, assignment[None], revealed[None], mask)[0]
        candidates, others, rest = _step_candidates(base, step)
        first = decoding != "one_shot" or k == 0
        how = "The network sees what is known" if first else "The first output of the network is used again"
        frames.append(
            Frame(
                f"Step {k + 1} of {len(answer.steps)}: reveal {step.stage}",
                f"{how}; the candidate of highest gain is chosen.",
                base.shown(assignment, revealed=revealed),
                tokens=as_lists(known),
                logits=as_lists(step.edges[0]),
                candidates=candidates,
                others=others,
                others_probability=rest,
            )
        )
        assignment, revealed = step.assignment[0], step.revealed[0]
    known = visible_tokens(topology, assignment[None], revealed[None], mask)[0]
    note = "All particles are revealed. Probabilities are products over the steps."
    frames.append(Frame("The answer", note, final, tokens=as_lists(known)))
    return tuple(frames)


def _step_candidates(base: SeenEvent, step: Step) -> tuple[tuple[Candidate, ...], int, float]:
    """The leading candidates, the number of other possible ones, and the sum of their probabilities."""
    probability, possible = step.probability[0], int(step.possible[0])
    listed = []
    for k in range(min(LISTED, possible)):
        particles = tuple(
            _candidate(base, base.topology.types[name], [int(node) for node in nodes if node >= 0])
            for name, nodes in zip(step.types[0, k], step.nodes[0, k], strict=True)
        )
        listed.append(
            Candidate(particles, float(probability[k]), k == 0, _all_right(shown.right for shown in particles))
        )
    rest = max(0.0, 1.0 - float(probability[: len(listed)].sum()))
    return tuple(listed), possible - len(listed), rest


def _candidate(base: SeenEvent, type_name: str, nodes: list[int]) -> Shown:
    """One particle, labelled by its type."""
    topology = base.topology
    particle = topology.of_type(type_name)[0]
    alone = np.full(len(topology.slots), -1, dtype=np.int64)
    alone[list(particle.slots)] = nodes
    (shown,) = (s for s in base.shown(alone) if s.type == type_name)
    return replace(shown, label=type_name, probability=None)


def _all_right(known: Iterable[bool | None]) -> bool | None:
    """Whether all are right; None if that is not known."""
    each = list(known)
    return False if False in each else None if None in each else True


# -- the exact likelihood ----------------------------------------------------------------------------------


def exact_frames(base: SeenEvent, outputs: Outputs, sums: Sums) -> tuple[Frame, ...]:
    """The outputs of the network, then the answer, then the leading alternatives."""
    topology, count, each = base.topology, outputs["edges"].shape[-1], sums.tables.candidates
    answer, found = sums.answer(), sums.listed(LISTED)
    same = (found.assignment[0] == answer.assignment[0]).all(axis=1)
    chosen = int(same.argmax()) if same.any() else len(same) - 1
    found.assignment[0, chosen], found.score[0, chosen] = answer.assignment[0, 0], answer.score[0, 0]
    possible = np.isfinite(found.score[0])
    assignments = [base.ranked(each.astype(np.int64))[0] for each in found.assignment[0, possible]]
    chances = sums.probability(found)[0, possible]
    together = [
        _together([(each[f.name].objects, sums.present[f.name][:, 0]) for f in topology.forms_of(name)], count)
        for name in topology.types
    ]
    equal = {name: np.zeros((len(candidates.objects), 1)) for name, candidates in each.items()}
    numbers = np.exp(log_sums(sums.tables, equal, None, sums.overlaps))[:, 0].round()  # hypotheses per pattern
    whole = [pattern.complete for pattern in sums.tables.patterns]
    total, one, every = int(numbers[whole].sum()), "Assignment", "assignments"
    if sums.leaves_out:
        total, one, every = int(numbers[np.isfinite(sums.log_sums[:, 0])].sum()), "Hypothesis", "hypotheses"

    every_one = [
        Candidate(_highest(base, assignment), float(chances[k]), False, _event_verdict(base, assignment))
        for k, assignment in enumerate(assignments)
    ]

    def listed(chosen: int | None) -> tuple[Candidate, ...]:
        return tuple(replace(candidate, chosen=k == chosen) for k, candidate in enumerate(every_one))

    chance = sums.pattern_probability[0]
    complete = float(chance[whole].sum())  # 1 if the network knows complete events only
    known = ""
    if "patterns" in outputs:
        likely = int(chance.argmax())
        known = f" The event is complete with a probability of {100 * complete:.1f} %."
        if likely:
            name = sums.tables.patterns[likely].name
            known += f" The most probable pattern is {name} ({100 * chance[likely]:.1f} %)."
    unknown = np.full((len(topology.types), count, count), MASKED)
    common = Frame(
        "The output of the network",
        f"One pass, with nothing revealed. Each of the {total} {every} is scored by the sum of its gains.{known}",
        (),
        tokens=as_lists(unknown),
        marginals=as_lists(np.stack(together)),
        candidates=listed(None),
        others=total - len(assignments),
        others_probability=max(0.0, (1.0 if sums.leaves_out else complete) - float(chances.sum())),
    )
    frames = [replace(common, logits=as_lists(outputs["edges"][0]))]
    mask = np.ones((1, count), dtype=bool)
    for k in [chosen, *(k for k in range(len(assignments)) if k != chosen)]:
        if k != chosen and chances[k] < NEGLIGIBLE:
            continue
        assignment = assignments[k]
        particles = dict(enumerate(sums.particle_probability(assignment[None])[0].tolist()))
        shown = base.shown(assignment, probability=particles)
        note = "An alternative."
        if k == chosen:
            best = sums.question.answer == "event"
            note = (
                "The most probable of all." if best else "The answer with the most particles expected to be right."
            )
        note += "" if shown else " Nothing is present."
        note += f"{known} Below: the probability that two objects share a particle, summed over all {every}."
        title = f"{one} {k + 1}: {100 * chances[k]:.1f} %"
        tokens = as_lists(adjacency(topology, assignment[None], mask)[0][0])
        frames.append(
            replace(common, title=title, note=note, particles=shown, tokens=tokens, candidates=listed(k))
        )
    return tuple(frames)


def _together(forms: Sequence[tuple[Ints, npt.NDArray[Any]]], count: int) -> npt.NDArray[np.float64]:
    """(N, N): the probability that two objects share a particle; on the diagonal, that an object is in none.

    forms: the candidates (C, slots) of each form of a type, and their probabilities (C,)
    """
    pairs = np.zeros((count, count))
    for candidates, chance in forms:
        member = np.zeros((len(candidates), count + 1))  # the last column is for empty slots
        member[np.arange(len(candidates))[:, None], candidates.astype(np.intp)] = 1
        pairs += member[:, :-1].T @ (member[:, :-1] * chance[:, None])
    index = np.arange(count)
    pairs[index, index] = 1 - pairs[index, index]
    return np.asarray(np.clip(pairs, 0, 1))


def _highest(base: SeenEvent, assignment: Ints) -> tuple[Shown, ...]:
    """The present particles that are not inside another one."""
    shown = base.shown(assignment)
    names = {s.label for s in shown}
    parents = {p.name: base.topology.particles[p.parent].name for p in base.topology.particles if p.parent >= 0}
    return tuple(s for s in shown if parents.get(s.label) not in names)


def _event_verdict(base: SeenEvent, assignment: Ints) -> bool | None:
    if base.truth is not None and (assignment < 0).any():
        return same_particles(*(base.shown(each, compared=False) for each in (base.truth, assignment)))
    found = np.asarray(canonical(base.topology, assignment[None]))[0]
    return _all_right(verdicts(base.topology, found, base.truth))
