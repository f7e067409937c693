"""Records of events: by asking a model, step by step, or from an answer that is there already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded, Step, decode
from pairton.decoding.exact import most_probable, packed
from pairton.decoding.graph import MASKED, adjacency, visible_tokens
from pairton.decoding.likelihood import enumerate_assignments, marginals, scores
from pairton.errors import EventsError
from pairton.events import Events, Status
from pairton.events.objects import JET_FIELDS
from pairton.events.vectors import mass_of
from pairton.reconstruction.assigning import ONE_BY_ONE, Assigner
from pairton.reconstruction.reconstruction import MAX_JETS, prepare
from pairton.report.record import (
    Candidate,
    EventRecord,
    Frame,
    Jet,
    Matrices,
    Shown,
    shown_particles,
    verdicts,
)
from pairton.topology import Topology
from pairton.topology.assignments import canonical

if TYPE_CHECKING:
    from pairton.decoding.likelihood import Prediction
    from pairton.models.engines import Model

__all__ = ["LISTED", "record_answer", "record_event"]

LISTED = 8  # candidates of a step that are shown
NEGLIGIBLE = 1e-3  # probability below which an assignment gets no frame of its own
TAG_CUT = 0.5
MAX_SYMMETRIES = 10_000  # equivalent truths that are compared with an answer

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


def record_event(
    events: Events,
    row: int,
    model: Model,
    *,
    decoding: str | None = None,
    max_jets: int = MAX_JETS,
    jet_cuts: bool = True,
    source: str = "",
    number: int | None = None,
) -> EventRecord:
    """Reconstruct event `row` and keep every step; `number` is what the event is called, by default its row."""
    one = _one(events, row)
    how = Assigner(model, decoding)
    how.check(events.topology)
    topology, method, temperatures = how.topology, how.method, how.temperatures
    prepared = prepare(one, model.domain, max_jets=max_jets, jet_cuts=jet_cuts)
    count = int(prepared.counts[0])
    seen = prepared.position[0, :count]
    base = _Base.of(one, seen, row if number is None else number, source, topology)
    label = "steps, one particle at a time" if decoding == ONE_BY_ONE else method.replace("_", "-")
    status = Status(int(prepared.status[0])).label
    if not prepared.answerable[0]:
        return base.record(label, model.name, status, (), None, ())
    jets, mask = prepared.jets[:, :count], np.ones((1, count), dtype=bool)
    answer = decode(model.predict, topology, jets, mask, method=method, temperatures=temperatures, record=True)
    base.align(answer.assignment[0])
    chances = {p.index: float(answer.particle_probability[0, p.index]) for p in topology.particles}
    final = shown_particles(topology, base.jets, answer.assignment[0], truth=base.truth, probability=chances)
    if answer.exact[0] and method == "exact":
        temperature = 1.0 if temperatures is None else float(temperatures[0])
        prediction = model.predict(jets, mask, np.full_like(answer.steps[0].tokens, MASKED))
        frames = _exact_frames(base, prediction, count, temperature)
    else:
        frames = _chain_frames(base, answer, method, final)
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
    """A record of an assignment (S,) into `events.jets`, made before; there are no steps to show."""
    one = _one(events, row)
    pt = np.asarray(one.jets.pt[0])
    seen = np.argsort(-pt, kind="stable")
    base = _Base.of(one, seen, row if number is None else number, source, events.topology)
    place = np.append(np.argsort(seen), -1)  # the last serves -1
    moved = place[np.asarray(assignment)]
    base.align(moved)
    chances = None
    if particle_probability is not None:
        chances = {k: float(value) for k, value in enumerate(particle_probability)}
    final = shown_particles(events.topology, base.jets, moved, truth=base.truth, probability=chances)
    frames: tuple[Frame, ...] = ()
    if final:
        tokens = adjacency(events.topology, moved[None], np.ones((1, len(pt)), dtype=bool))[0]
        frames = (Frame("The answer", "", final, tokens=_lists(tokens[0])),)
    probability = float(event_probability) if np.isfinite(event_probability) else None
    return base.record(decoding, model, Status(int(status)).label, final, probability, frames)


class _Base:
    """What every record of an event has: its jets, in the order of the network, and its truth."""

    def __init__(
        self, topology: Topology, jets: tuple[Jet, ...], truth: Ints | None, name: str, id: str, source: str
    ) -> None:
        self.topology, self.jets, self.truth = topology, jets, truth
        self.name, self.id, self.source = name, id, source

    @classmethod
    def of(cls, one: Events, seen: Ints, number: int, source: str, topology: Topology) -> _Base:
        pt, eta, phi, energy, btag = (np.asarray(one.jets[name][0], np.float64) for name in JET_FIELDS)
        rest = np.setdiff1d(np.arange(len(pt)), seen)
        order = np.concatenate([seen, rest]).astype(np.intp)
        index = np.asarray(one.stored_index[0])
        mass = mass_of(pt, eta, energy)
        used = np.arange(len(order)) < len(seen)
        columns = [each[order].tolist() for each in (index, pt, eta, phi, mass, btag, btag > TAG_CUT)]
        jets = tuple(Jet(*fields) for fields in zip(*columns, used.tolist(), strict=True))
        truth = None
        if one.truth is not None:
            place = np.append(np.argsort(order), -1)  # the last serves -1
            truth = place[one.truth[0]]
        source_id, event_id = (int(part) for part in one.ids[0])
        return cls(topology, jets, truth, f"event {number}", f"{source_id:x}:{event_id}", source)

    def align(self, assignment: Ints) -> None:
        """Name the true particles like those of the answer that they are closest to: t1 and t2 are only names."""
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
        true: tuple[Shown, ...] = ()
        right: bool | None = None
        if self.truth is not None:
            true = shown_particles(self.topology, self.jets, self.truth)
            if bool((self.truth >= 0).all()) and answer:
                right = all(bool(shown.right) for shown in answer)
        if not frames:
            why = f"No answer: {status.replace('_', ' ')}"
            frames = (Frame(why, f"{self.topology.name} needs {len(self.topology.slots)} good jets.", ()),)
        truth = None if self.truth is None else tuple(int(k) for k in self.truth)
        base = self.name, self.id, self.source, self.topology, self.jets
        return EventRecord(*base, truth, true, decoding, model, status, answer, probability, right, frames)


def _one(events: Events, row: int) -> Events:
    if not 0 <= row < len(events):
        have = f"rows 0 to {len(events) - 1}" if len(events) else "none"
        raise EventsError(f"there is no event {row}: the events are {have}")
    return events[row : row + 1]


# -- the chain ---------------------------------------------------------------------------------------------


def _chain_frames(base: _Base, answer: Decoded, method: str, final: tuple[Shown, ...]) -> tuple[Frame, ...]:
    topology = base.topology
    mask = np.ones((1, answer.steps[0].tokens.shape[-1]), dtype=bool)
    assignment = np.full(len(topology.slots), -1, dtype=np.int32)
    revealed = np.zeros(len(topology.particles), dtype=bool)
    frames = []
    sums = bool(answer.exact[0])
    rule = "the particles of the most probable assignment left" if sums else "the candidate of highest gain"
    for k, step in enumerate(answer.steps):
        known = visible_tokens(topology, assignment[None], revealed[None], mask)[0]
        candidates, others, rest = _step_candidates(base, step)
        if sums:  # marginals: what is listed are not all, and they do not add up to one
            others, rest = 0, 0.0
        asked = (
            "The network sees what is known" if method != "one_shot" or k == 0 else "The first answer serves again"
        )
        frames.append(
            Frame(
                f"Step {k + 1} of {len(answer.steps)}: reveal {step.stage}",
                f"{asked}; {rule} {'are' if sums else 'is'} chosen.",
                shown_particles(topology, base.jets, assignment, revealed=revealed, truth=base.truth),
                tokens=_lists(known),
                logits=_lists(step.edges[0]),
                candidates=candidates,
                others=others,
                others_probability=rest,
            )
        )
        assignment, revealed = step.assignment[0], step.revealed[0]
    known = visible_tokens(topology, assignment[None], revealed[None], mask)[0]
    meaning = "sums over assignments" if sums else "those of the steps that led here"
    note = f"Everything is known. Probabilities are {meaning}."
    frames.append(Frame("The answer", note, final, tokens=_lists(known)))
    return tuple(frames)


def _step_candidates(base: _Base, step: Step) -> tuple[tuple[Candidate, ...], int, float]:
    """The leading candidates, the number of others that are possible, and their summed probability."""
    probability = step.probability[0]
    possible = int((step.jets[0] >= 0).any(axis=(1, 2)).sum())
    order = np.argsort(-probability, kind="stable")[: min(LISTED, possible)]
    chosen = int(step.choice[0])
    if chosen not in order:
        order[-1] = chosen
    listed = []
    for k in order:
        particles = tuple(
            _candidate(base, name, [int(jet) for jet in jets if jet >= 0])
            for name, jets in zip(step.types[k], step.jets[0, k], strict=True)
        )
        listed.append(
            Candidate(
                particles, float(probability[k]), int(k) == chosen, _all_right(shown.right for shown in particles)
            )
        )
    rest = max(0.0, 1.0 - float(probability[order].sum()))
    return tuple(listed), possible - len(order), rest


def _candidate(base: _Base, type_name: str, jets: list[int]) -> Shown:
    """One particle by itself, its name no more than its type."""
    topology = base.topology
    particle = topology.of_type(type_name)[0]
    alone = np.full(len(topology.slots), -1, dtype=np.int64)
    alone[list(particle.slots)] = jets
    (shown,) = (s for s in shown_particles(topology, base.jets, alone, truth=base.truth) if s.type == type_name)
    return Shown(type_name, type_name, shown.jets, shown.mass, None, shown.right)


def _all_right(known: Iterable[bool | None]) -> bool | None:
    """Whether all are right; None where that is open."""
    each = list(known)
    return False if False in each else None if None in each else True


# -- the exact likelihood ----------------------------------------------------------------------------------


def _exact_frames(base: _Base, prediction: Prediction, count: int, temperature: float) -> tuple[Frame, ...]:
    topology = base.topology
    enumeration = enumerate_assignments(topology, count)
    every = packed(prediction, np.arange(count)[None])
    _, _, _, best, chances = most_probable(enumeration, every, temperature, LISTED)
    each = marginals(enumeration, scores(enumeration, every) / np.float32(temperature))
    together = [_together(enumeration.candidates[name].jets, each[name][0], count) for name in topology.types]
    assignments = best[0].astype(np.int64)
    total = len(enumeration.assignments)

    every_one = [
        Candidate(_roots(base, assignment), float(chances[0, k]), False, _event_verdict(base, assignment))
        for k, assignment in enumerate(assignments)
    ]

    def listed(chosen: int | None) -> tuple[Candidate, ...]:
        return tuple(replace(candidate, chosen=k == chosen) for k, candidate in enumerate(every_one))

    rest = max(0.0, 1.0 - float(chances[0].sum()))
    unknown = np.full((len(topology.types), count, count), MASKED)
    same = Frame(
        "The network's answer",
        f"One pass, nothing revealed. Each of the {total} assignments gets the sum of its gains.",
        (),
        tokens=_lists(unknown),
        marginals=_lists(np.stack(together)),
        candidates=listed(None),
        others=total - len(assignments),
        others_probability=rest,
    )
    frames = [replace(same, logits=_lists(prediction.edges[0]))]
    mask = np.ones((1, count), dtype=bool)
    for k, assignment in enumerate(assignments):
        if k and chances[0, k] < NEGLIGIBLE:
            break
        shown = _with_marginals(base, assignment, each, enumeration.candidates)
        note = "The most probable of all." if k == 0 else "An alternative."
        note += " Below: the probability that two jets share a particle, summed over all assignments."
        title = f"Assignment {k + 1}: {100 * chances[0, k]:.1f} %"
        tokens = _lists(adjacency(topology, assignment[None], mask)[0][0])
        frames.append(replace(same, title=title, note=note, particles=shown, tokens=tokens, candidates=listed(k)))
    return tuple(frames)


def _together(candidates: Ints, chance: npt.NDArray[Any], count: int) -> npt.NDArray[np.float64]:
    """(N, N): probability that two jets share a particle of the type; on the diagonal, that a jet is in none."""
    member = np.zeros((len(candidates), count))
    member[np.arange(len(candidates))[:, None], candidates.astype(np.intp)] = 1
    pairs = member.T @ (member * chance[:, None])
    index = np.arange(count)
    pairs[index, index] = 1 - pairs[index, index]
    return np.asarray(np.clip(pairs, 0, 1))


def _with_marginals(base: _Base, assignment: Ints, each: dict[str, Any], candidates: Any) -> tuple[Shown, ...]:
    chances = {}
    for particle in base.topology.particles:
        where = candidates[particle.type].find(assignment[None, list(particle.slots)])[0]
        chances[particle.index] = float(each[particle.type][0, where])
    return shown_particles(base.topology, base.jets, assignment, truth=base.truth, probability=chances)


def _roots(base: _Base, assignment: Ints) -> tuple[Shown, ...]:
    shown = shown_particles(base.topology, base.jets, assignment, truth=base.truth)
    names = {root.name for root in base.topology.roots}
    return tuple(s for s in shown if s.label in names)


def _event_verdict(base: _Base, assignment: Ints) -> bool | None:
    found = np.asarray(canonical(base.topology, assignment[None]))[0]
    return _all_right(verdicts(base.topology, found, base.truth))


def _lists(matrices: npt.NDArray[Any]) -> Matrices:
    result: Matrices = np.asarray(matrices).tolist()
    return result
