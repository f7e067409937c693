"""Records of events: by asking a model, step by step, or from an answer that is there already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded, Outputs, Step, decode
from pairton.decoding.exact import Sums, sums_of
from pairton.decoding.graph import MASKED, adjacency, visible_tokens
from pairton.decoding.set_sums import log_sums
from pairton.errors import EventsError
from pairton.events import Events, Status
from pairton.events.domain import Domain, cut_domain
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import mass_of, polar
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.reconstruction.running import Assigner
from pairton.report.record import (
    Candidate,
    EventRecord,
    Frame,
    Item,
    Matrices,
    Shown,
    momenta_shown,
    shown_particles,
    verdicts,
)
from pairton.topology import Topology, collection_name
from pairton.topology.assignments import canonical, ranked
from pairton.topology.selection import Cuts

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["LISTED", "record_answer", "record_event"]

LISTED = 8  # candidates of a step that are shown
NEGLIGIBLE = 1e-3  # probability below which an assignment gets no frame of its own
TAG_CUT = 0.5
MAX_SYMMETRIES = 10_000  # equivalent truths that are compared with an answer

Ints = npt.NDArray[np.integer[Any]]
Order = list[tuple[str, int, bool]]  # kind, position in its collection, seen by the network


def record_event(
    events: Events,
    row: int,
    model: Model,
    settings: RunSettings = DEFAULT_SETTINGS,
    *,
    source: str = "",
    number: int | None = None,
) -> EventRecord:
    """Reconstruct event `row` and keep every step; `number` is what the event is called, by default its row."""
    one = _one(events, row)
    assigner = Assigner(model, settings)
    assigner.check(events.topology)
    topology, decoding = model.topology, str(assigner.settings.decoding)
    accepted = assigner.accept(assigner.with_evidence(one))
    seen = {kind: position[0][position[0] >= 0] for kind, position in accepted.position.items()}
    base = _Base.of(one, seen, row if number is None else number, source, topology)
    label = decoding.replace("_", "-")
    status = Status(int(accepted.status[0])).label
    base.domain = cut_domain(model.domain, assigner.settings.cuts, topology.kinds)
    if not accepted.answerable[0]:
        return base.record(label, model.name, status, (), None, ())
    nodes = accepted.batch(np.array([0]), tuple(accepted.nodes.counts[0].tolist()))
    temperatures, question = assigner.temperatures, assigner.settings.question
    answer = decode(
        model.predict,
        topology,
        nodes,
        decoding=decoding,
        temperatures=temperatures,
        record=True,
        question=question,
    )
    if not answer.answered[0]:  # the network gives something else than numbers
        return base.record(label, model.name, Status.BAD_OUTPUT.label, (), None, ())
    found, particles = base.ranked(answer.assignment[0])
    base.align(found)
    chances = {p.index: float(answer.particle_probability[0, particles[p.index]]) for p in topology.particles}
    final = shown_particles(topology, base.objects, found, truth=base.truth, probability=chances)
    if answer.exact[0] and decoding == "exact":
        temperature = 1.0 if temperatures is None else float(temperatures[0])
        outputs = model.predict(nodes, np.full_like(answer.steps[0].tokens, MASKED))
        frames = _exact_frames(base, outputs, sums_of(topology, nodes.layout, outputs, temperature, question))
    else:
        frames = _chain_frames(base, answer, decoding, final)
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
    """A record of an assignment (S,) of positions in `events.objects`, made before; there are no steps to show."""
    one = _one(events, row)
    seen = {kind: np.argsort(-np.asarray(array.pt[0]), kind="stable") for kind, array in one.objects.items()}
    base = _Base.of(one, seen, row if number is None else number, source, events.topology)
    moved, particles = base.ranked(base.places(np.asarray(assignment)))
    base.align(moved)
    chances = None
    if particle_probability is not None:
        chances = {k: float(value) for k, value in enumerate(np.asarray(particle_probability)[particles])}
    final = shown_particles(events.topology, base.objects, moved, truth=base.truth, probability=chances)
    frames: tuple[Frame, ...] = ()
    if final:
        tokens = adjacency(events.topology, moved[None], np.ones((1, len(base.objects)), dtype=bool))[0]
        frames = (Frame("The answer", "", final, tokens=_lists(tokens[0])),)
    probability = float(event_probability) if np.isfinite(event_probability) else None
    return base.record(decoding, model, Status(int(status)).label, final, probability, frames)


class _Base:
    """What every record of an event has: its objects, in the order of the network, and its truth."""

    def __init__(
        self, topology: Topology, objects: tuple[Item, ...], order: Order, name: str, source: str
    ) -> None:
        self.topology, self.objects, self.order = topology, objects, order
        self.name, self.source = name, source
        self.id = ""
        self.truth: Ints | None = None
        self.domain: Domain | None = None  # whose cuts an object must pass to be used

    @classmethod
    def of(cls, one: Events, seen: Mapping[str, Ints], number: int, source: str, topology: Topology) -> _Base:
        """Objects that the network sees first, kind by kind, then the others."""
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
        base.id = f"{source_id:x}:{event_id}"
        if one.truth is not None:
            base.truth = base.places(one.truth[0])
        return base

    def places(self, assignment: Ints) -> Ints:
        """Positions (S,) in the collections of the slots' kinds as places in `objects`; -1 for none."""
        at = {(kind, position): place for place, (kind, position, _) in enumerate(self.order)}
        kinds = [slot.kind for slot in self.topology.slots]
        return np.array([at.get((kind, int(k)), -1) for kind, k in zip(kinds, assignment, strict=True)])

    def ranked(self, assignment: Ints) -> tuple[Ints, Ints]:
        """An assignment (S,) with interchangeable particles by falling pT; and which particle each was (P,)."""
        pt = polar(momenta_shown(self.topology, self.objects, assignment[None]).p4)["pt"]
        slots, particles = ranked(self.topology, pt)
        return assignment[slots[0]], particles[0]

    def align(self, assignment: Ints) -> None:
        """Name the true particles like those of the answer that they are closest to: t1 and t2 are only names."""
        if self.truth is None or self.topology.n_symmetries > MAX_SYMMETRIES:
            return
        same = self.truth[self.topology.symmetries]  # (G, S)
        self.truth = same[(same == assignment).sum(axis=1).argmax()]

    def _why(self, status: str) -> str:
        """Why there is no answer."""
        if status == Status.BAD_OUTPUT.label:
            return "The network gives something else than numbers."
        if status == Status.BAD_OBJECT.label:
            return (
                "An object has an impossible momentum: a NaN, an infinity, pT of 0 or less, or an energy below it."
            )
        said = []
        for kind in self.topology.object_kinds:
            there = [item.used for item in self.objects if item.kind == kind]
            bounds = (self.domain or Domain())[kind]
            cuts = str(Cuts(bounds.pt, bounds.abs_eta)).replace("eta", "η")
            passing = f" ({cuts})" if cuts else ""
            said.append(f"{sum(there)} of {len(there)} {collection_name(kind)} can be used{passing}")
            said.append(f"{self.topology.name} needs {sum(slot.kind == kind for slot in self.topology.slots)}")
        return "; ".join(said) + "."

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
            true = shown_particles(self.topology, self.objects, self.truth)
            whole = len(answer) == len(self.topology.particles)
            if bool((self.truth >= 0).all()) and answer:
                right = whole and all(bool(shown.right) for shown in answer)
            elif not whole and probability is not None:  # which particles are absent is part of the answer
                right = _same_particles(true, answer)
        if not frames:
            frames = (Frame(f"No answer: {status.replace('_', ' ')}", self._why(status), ()),)
        truth = None if self.truth is None else tuple(int(k) for k in self.truth)
        base = self.name, self.id, self.source, self.topology, self.objects
        return EventRecord(*base, truth, true, decoding, model, status, answer, probability, right, frames)


def _one(events: Events, row: int) -> Events:
    if not 0 <= row < len(events):
        have = f"rows 0 to {len(events) - 1}" if len(events) else "none"
        raise EventsError(f"there is no event {row}: the events are {have}")
    return events[row : row + 1]


# -- the chain ---------------------------------------------------------------------------------------------


def _chain_frames(base: _Base, answer: Decoded, decoding: str, final: tuple[Shown, ...]) -> tuple[Frame, ...]:
    topology = base.topology
    mask = np.ones((1, answer.steps[0].tokens.shape[-1]), dtype=bool)
    assignment = np.full(len(topology.slots), -1, dtype=np.int32)
    revealed = np.zeros(len(topology.particles), dtype=bool)
    frames = []
    for k, step in enumerate(answer.steps):
        known = visible_tokens(topology, assignment[None], revealed[None], mask)[0]
        candidates, others, rest = _step_candidates(base, step)
        first = decoding != "one_shot" or k == 0
        asked = "The network sees what is known" if first else "The first answer serves again"
        frames.append(
            Frame(
                f"Step {k + 1} of {len(answer.steps)}: reveal {step.stage}",
                f"{asked}; the candidate of highest gain is chosen.",
                shown_particles(topology, base.objects, assignment, revealed=revealed, truth=base.truth),
                tokens=_lists(known),
                logits=_lists(step.edges[0]),
                candidates=candidates,
                others=others,
                others_probability=rest,
            )
        )
        assignment, revealed = step.assignment[0], step.revealed[0]
    known = visible_tokens(topology, assignment[None], revealed[None], mask)[0]
    note = "Everything is known. Probabilities are those of the steps that led here."
    frames.append(Frame("The answer", note, final, tokens=_lists(known)))
    return tuple(frames)


def _step_candidates(base: _Base, step: Step) -> tuple[tuple[Candidate, ...], int, float]:
    """The leading candidates, the number of others that are possible, and their summed probability."""
    probability = step.probability[0]
    possible = int((step.nodes[0] >= 0).any(axis=(1, 2)).sum())
    order = np.argsort(-probability, kind="stable")[: min(LISTED, possible)]
    chosen = int(step.choice[0])
    if chosen not in order:
        order[-1] = chosen
    listed = []
    for k in order:
        particles = tuple(
            _candidate(base, name, [int(node) for node in nodes if node >= 0])
            for name, nodes in zip(step.types[k], step.nodes[0, k], strict=True)
        )
        listed.append(
            Candidate(
                particles, float(probability[k]), int(k) == chosen, _all_right(shown.right for shown in particles)
            )
        )
    rest = max(0.0, 1.0 - float(probability[order].sum()))
    return tuple(listed), possible - len(order), rest


def _candidate(base: _Base, type_name: str, nodes: list[int]) -> Shown:
    """One particle by itself, its name no more than its type."""
    topology = base.topology
    particle = topology.of_type(type_name)[0]
    alone = np.full(len(topology.slots), -1, dtype=np.int64)
    alone[list(particle.slots)] = nodes
    (shown,) = (s for s in shown_particles(topology, base.objects, alone, truth=base.truth) if s.type == type_name)
    return replace(shown, label=type_name, probability=None)


def _all_right(known: Iterable[bool | None]) -> bool | None:
    """Whether all are right; None where that is open."""
    each = list(known)
    return False if False in each else None if None in each else True


# -- the exact likelihood ----------------------------------------------------------------------------------


def _exact_frames(base: _Base, outputs: Outputs, sums: Sums) -> tuple[Frame, ...]:
    """What the network says, then the answer, then the leading alternatives."""
    topology, count = base.topology, outputs["edges"].shape[-1]
    answer, found = sums.answer(), sums.listed(LISTED)
    same = (found.assignment[0] == answer.assignment[0]).all(axis=1)
    chosen = int(same.argmax()) if same.any() else len(same) - 1
    found.assignment[0, chosen], found.score[0, chosen] = answer.assignment[0, 0], answer.score[0, 0]
    there = np.isfinite(found.score[0])
    assignments = [base.ranked(each.astype(np.int64))[0] for each in found.assignment[0, there]]
    chances = sums.probability(found)[0, there]
    together = [
        _together(known.objects, sums.present[name][:, 0], count) for name, known in sums.tables.candidates.items()
    ]
    equal = {name: np.zeros((len(known.objects), 1)) for name, known in sums.tables.candidates.items()}
    numbers = np.exp(log_sums(sums.tables, equal))[:, 0].round()  # of hypotheses of each pattern
    total, one, every = int(numbers[0]), "Assignment", "assignments"
    if sums.leaves_out:
        total, one, every = int(numbers[np.isfinite(sums.log_sums[:, 0])].sum()), "Hypothesis", "hypotheses"

    every_one = [
        Candidate(_highest(base, assignment), float(chances[k]), False, _event_verdict(base, assignment))
        for k, assignment in enumerate(assignments)
    ]

    def listed(chosen: int | None) -> tuple[Candidate, ...]:
        return tuple(replace(candidate, chosen=k == chosen) for k, candidate in enumerate(every_one))

    chance = sums.pattern_probability[0]
    complete = float(chance[0])  # 1 where the network knows complete events only
    known = ""
    if "patterns" in outputs:
        likely = int(chance.argmax())
        known = f" The event is complete with a probability of {100 * complete:.1f} %."
        if likely:
            known += f" Most probably there is {sums.tables.patterns[likely].name} ({100 * chance[likely]:.1f} %)."
    unknown = np.full((len(topology.types), count, count), MASKED)
    common = Frame(
        "The network's answer",
        f"One pass, nothing revealed. Each of the {total} {every} gets the sum of its gains.{known}",
        (),
        tokens=_lists(unknown),
        marginals=_lists(np.stack(together)),
        candidates=listed(None),
        others=total - len(assignments),
        others_probability=max(0.0, (1.0 if sums.leaves_out else complete) - float(chances.sum())),
    )
    frames = [replace(common, logits=_lists(outputs["edges"][0]))]
    mask = np.ones((1, count), dtype=bool)
    for k in [chosen, *(k for k in range(len(assignments)) if k != chosen)]:
        if k != chosen and chances[k] < NEGLIGIBLE:
            continue
        assignment = assignments[k]
        particles = dict(enumerate(sums.particle_probability(assignment[None])[0].tolist()))
        shown = shown_particles(topology, base.objects, assignment, truth=base.truth, probability=particles)
        note = "An alternative."
        if k == chosen:
            best = sums.question.answer == "event"
            note = "The most probable of all." if best else "The answer: the most particles are expected right."
        note += "" if shown else " Nothing is present."
        note += f"{known} Below: the probability that two objects share a particle, summed over all {every}."
        title = f"{one} {k + 1}: {100 * chances[k]:.1f} %"
        tokens = _lists(adjacency(topology, assignment[None], mask)[0][0])
        frames.append(
            replace(common, title=title, note=note, particles=shown, tokens=tokens, candidates=listed(k))
        )
    return tuple(frames)


def _together(candidates: Ints, chance: npt.NDArray[Any], count: int) -> npt.NDArray[np.float64]:
    """(N, N): probability that two objects share a particle of the type; on the diagonal, that one is in none."""
    member = np.zeros((len(candidates), count))
    member[np.arange(len(candidates))[:, None], candidates.astype(np.intp)] = 1
    pairs = member.T @ (member * chance[:, None])
    index = np.arange(count)
    pairs[index, index] = 1 - pairs[index, index]
    return np.asarray(np.clip(pairs, 0, 1))


def _highest(base: _Base, assignment: Ints) -> tuple[Shown, ...]:
    """The present particles that are in no other one."""
    shown = shown_particles(base.topology, base.objects, assignment, truth=base.truth)
    names = {s.label for s in shown}
    parents = {p.name: base.topology.particles[p.parent].name for p in base.topology.particles if p.parent >= 0}
    return tuple(s for s in shown if parents.get(s.label) not in names)


def _event_verdict(base: _Base, assignment: Ints) -> bool | None:
    if base.truth is not None and (assignment < 0).any():
        return _same_particles(
            *(shown_particles(base.topology, base.objects, each) for each in (base.truth, assignment))
        )
    found = np.asarray(canonical(base.topology, assignment[None]))[0]
    return _all_right(verdicts(base.topology, found, base.truth))


def _same_particles(one: Iterable[Shown], other: Iterable[Shown]) -> bool:
    """Whether two lists have the same particles with the same objects."""
    first, second = ({(shown.type, frozenset(shown.objects)) for shown in each} for each in (one, other))
    return first == second


def _lists(matrices: npt.NDArray[Any]) -> Matrices:
    result: Matrices = np.asarray(matrices).tolist()
    return result
