"""Step by step with the exact likelihood: what is revealed restricts the sum, and the network is asked again.

At each stage the network sees what was revealed, and its scores are normalised over the assignments that contain
it. Of the most probable of these the particles of the stage are revealed; where it may take one or another, that
of highest marginal. Let p_k be the marginal of what stage k reveals. Then

    P(assignment) = p_1 p_2 ... p_K,     each p_k exact, and conditional on all that was revealed before it.

Any other assignment has the product up to the step that it contradicts, times its own share at that step: all of
them add up to one, and a particle's probability is the sum over the assignments that contain it. A network that
ignores what is revealed has one distribution; by the chain rule the answer, and all probabilities, are then those
of its arg max.

Shapes: B events of one jet count, A assignments, J choices of a stage, M particles it reveals, W choices of the
stage in one assignment, X assignments that contain a choice. Weights are (A, B), contiguous along events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.candidates import kind_of
from pairton.decoding.chain import Predict, Step
from pairton.decoding.exact import packed
from pairton.decoding.graph import visible_tokens
from pairton.decoding.likelihood import Enumeration, enumerate_assignments, scores
from pairton.decoding.state import Reveal, State
from pairton.topology import Stage, Topology

__all__ = ["StageChoices", "join_steps", "run_exact_steps", "stage_choices"]

BLOCK = 4_000_000  # weights held at a time
LISTED = 20  # choices of each type, or of a joint stage, in the record of a step

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating[Any]]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class StageChoices:
    """All that a stage may reveal of `n_jets` jets."""

    groups: tuple[tuple[str, ...], ...]  # types of the M particles; several where any of them may be next
    group: Index  # (J,)
    particles: Index  # (J, M): candidates of these types
    held: Index  # (A, W): choices that an assignment contains
    containing: Index  # (J, X): assignments that contain a choice, A behind them


@lru_cache(maxsize=256)
def stage_choices(topology: Topology, stage: Stage, n_jets: int) -> StageChoices:
    """The choices of a stage, whatever is revealed already.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> stage_choices(ttbar, ttbar.stages[0], 7).containing.shape  # a W of 21 pairs, in 60 assignments each
    (21, 60)
    >>> stage_choices(ttbar, ttbar.stages[2], 7).particles.shape  # both tops: the whole assignment
    (630, 2)
    """
    enumeration = enumerate_assignments(topology, n_jets)
    groups = tuple(dict.fromkeys((n,) for n in stage.types)) if stage.any else (tuple(sorted(stage.types)),)
    particles: list[Index] = []
    group, held = [], []
    for k, names in enumerate(groups):
        ways = _ways(enumeration, names)  # (A, W, M)
        flat = ways.reshape(-1, len(names)).astype(np.intp)
        sizes = [len(enumeration.candidates[name].jets) for name in names]
        _, first, which = np.unique(np.ravel_multi_index(flat.T, sizes), return_index=True, return_inverse=True)
        held.append(sum(map(len, particles)) + which.reshape(ways.shape[:2]))
        particles.append(flat[first])
        group.append(np.full(len(first), k))
    table = np.concatenate(held, axis=1)
    every = np.concatenate(particles)
    return StageChoices(groups, np.concatenate(group), every, table, _containing(table, len(every)))


def _ways(enumeration: Enumeration, names: tuple[str, ...]) -> npt.NDArray[np.int32]:
    """(A, W, M): every choice of particles of these types that an assignment contains."""
    pools = []
    for name in dict.fromkeys(names):
        member = np.sort(enumeration.members[name], axis=1)
        pools.append([member[:, list(rows)] for rows in combinations(range(member.shape[1]), names.count(name))])
    return np.stack([np.concatenate(choice, axis=1) for choice in product(*pools)], axis=1)


def _containing(held: Index, n_choices: int) -> Index:
    """(J, X) from (A, W): the assignments that contain a choice, A behind them."""
    order = np.argsort(held, axis=None, kind="stable")
    count = np.bincount(held.ravel(), minlength=n_choices)
    rank = np.arange(held.size) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((n_choices, int(count.max())), len(held))
    table[held.ravel()[order], rank] = order // held.shape[1]
    return table


@lru_cache(maxsize=256)
def _children(topology: Topology, name: str, n_jets: int) -> tuple[tuple[str, Index], ...]:
    """Type of each child of a type, and which candidate of it each candidate has, (C,)."""
    candidates = enumerate_assignments(topology, n_jets).candidates
    jets = candidates[name].jets
    below = kind_of(topology, name).children
    return tuple((child, candidates[child].find(jets[:, list(places)])) for child, places in below)


# -- the steps ---------------------------------------------------------------------------------------------


def run_exact_steps(
    predict: Predict,
    topology: Topology,
    jets: npt.NDArray[np.float32],
    jet_mask: Bools,
    *,
    temperatures: Sequence[float],
    record: bool = False,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], npt.NDArray[np.float64], list[Step]]:
    """Assignment (B, S), probability of the event (B,) and of particles (B, P), for events of one jet count."""
    n_jets = int(jet_mask[0].sum())
    size = max(8, BLOCK // len(enumerate_assignments(topology, n_jets).assignments))
    parts, recorded = [], []
    for start in range(0, len(jets), size):
        rows = slice(start, start + size)
        *answer, steps = _run_block(predict, topology, jets[rows], jet_mask[rows], temperatures, record)
        parts.append(answer)
        recorded.append(steps)
    assignment, event, particles = (np.concatenate(column) for column in zip(*parts, strict=True))
    return assignment, event, particles, [join_steps(steps) for steps in zip(*recorded, strict=True)]


def _run_block(
    predict: Predict,
    topology: Topology,
    jets: npt.NDArray[np.float32],
    jet_mask: Bools,
    temperatures: Sequence[float],
    record: bool,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], npt.NDArray[np.float64], list[Step]]:
    n_jets, n_events = int(jet_mask[0].sum()), len(jets)
    order = np.argsort(~jet_mask, axis=1, kind="stable")[:, :n_jets]
    enumeration = enumerate_assignments(topology, n_jets)
    state = State.empty(topology, jet_mask)
    known = {n: np.zeros((n_events, len(c.jets)), dtype=bool) for n, c in enumeration.candidates.items()}
    shape = (len(enumeration.assignments), n_events)
    allowed = np.ones(shape, dtype=bool)
    elsewhere = np.zeros(shape, dtype=np.float32)  # probability of what the steps have left behind
    reached = np.ones(n_events)  # of what they have revealed
    best = np.zeros(n_events, dtype=np.intp)
    events = np.arange(n_events)
    steps: list[Step] = []
    for stage, temperature in zip(topology.stages, temperatures, strict=True):
        tokens = visible_tokens(topology, *state.place(), jet_mask)
        prediction = predict(jets, jet_mask, tokens)
        local = prediction if n_jets == jet_mask.shape[1] else packed(prediction, order)
        value = scores(enumeration, local).T / np.float32(temperature)
        value[~allowed] = -np.inf
        top = value.max(axis=0)
        best = value.argmax(axis=0)
        weight = np.exp(value - top)
        share = weight / weight.sum(axis=0, dtype=np.float64).astype(np.float32)
        choices = stage_choices(topology, stage, n_jets)
        held = choices.held[best]  # (B, W)
        chance = _chances(choices, share, held)
        chance[~_possible(topology, n_jets, choices, known, held)] = -1
        which = chance.argmax(axis=1)
        choice, probability = held[events, which], np.minimum(chance[events, which], 1)
        inside = _inside(choices, choice, len(share))
        elsewhere += np.where(inside, np.float32(0), share * reached.astype(np.float32))
        allowed &= inside
        reached = reached * probability
        listed = _listed(topology, n_jets, choices, share, known, choice) if record else None
        _reveal(enumeration, state, known, choices, choice, order)
        if listed is not None:
            shown = _shown(enumeration, choices, listed, order)
            chances = np.where(listed >= 0, _chances(choices, share, np.maximum(listed, 0)), 0)
            place = (listed == choice[:, None]).argmax(axis=1)
            steps.append(Step(stage, tokens, prediction.edges, *shown, chances, place, *state.place()))
    elsewhere[best, events] = reached
    particles = np.zeros((n_events, len(topology.particles)))
    for name, member in enumeration.members.items():
        single = stage_choices(topology, Stage((name,)), n_jets)  # a choice is a candidate
        particles[:, [p.index for p in topology.of_type(name)]] = _chances(
            single, elsewhere, member[best].astype(np.intp)
        )
    # an order-preserving map keeps the canonical order
    answer = np.take_along_axis(order, enumeration.assignments[best].astype(np.intp), axis=1)
    return answer.astype(np.int32), reached, particles, steps


def _chances(choices: StageChoices, share: Floats, wanted: Index) -> npt.NDArray[np.float64]:
    """(B, W): summed share (A, B) of the assignments that contain each wanted choice (B, W)."""
    padded = np.concatenate([share, np.zeros((1, share.shape[1]), dtype=share.dtype)])
    events = np.arange(share.shape[1])[:, None]
    columns = [padded[choices.containing[column], events].sum(axis=1, dtype=np.float64) for column in wanted.T]
    return np.stack(columns, axis=1)


def _inside(choices: StageChoices, choice: Index, n_assignments: int) -> Bools:
    """(A, B): assignments that contain the choice (B,) of each event."""
    inside = np.zeros((n_assignments + 1, len(choice)), dtype=bool)
    inside[choices.containing[choice], np.arange(len(choice))[:, None]] = True
    return inside[:-1]


def _possible(
    topology: Topology, n_jets: int, choices: StageChoices, known: dict[str, Bools], wanted: Index
) -> Bools:
    """(B, W): choices of particles that are not yet known, but all of whose children are."""
    events = np.arange(len(wanted))[:, None]
    result = np.zeros(wanted.shape, dtype=bool)
    for k, names in enumerate(choices.groups):
        mine = choices.group[wanted] == k
        fine = mine.copy()
        for m, name in enumerate(names):
            candidate = np.where(mine, choices.particles[wanted, m], 0)
            fine &= ~known[name][events, candidate]
            for child, which in _children(topology, name, n_jets):
                fine &= known[child][events, which[candidate]]
        result |= fine
    return result


def _reveal(
    enumeration: Enumeration,
    state: State,
    known: dict[str, Bools],
    choices: StageChoices,
    choice: Index,
    order: Index,
) -> None:
    """Add what was chosen (B,) to the state, and to the candidates that are known."""
    reveals = []
    for k, names in enumerate(choices.groups):
        (rows,) = np.nonzero(choices.group[choice] == k)
        for m, name in enumerate(names if len(rows) else ()):
            candidate = choices.particles[choice[rows], m]
            kind = kind_of(enumeration.topology, name)
            local = enumeration.candidates[name].jets[candidate].astype(np.intp)
            jets = np.take_along_axis(order[rows], local, axis=1)
            children = []
            for child, places in kind.children:
                same = (state.found[child].jets[rows] == jets[:, None, list(places)]).all(axis=2)  # (R, K)
                children.append((child, same.argmax(axis=1)))
            reveals.append(Reveal(name, rows, jets, jets[:, list(kind.own)], children))
            known[name][rows, candidate] = True
    state.reveal(reveals, np.ones(len(choice)))


# -- the record --------------------------------------------------------------------------------------------


def _listed(
    topology: Topology,
    n_jets: int,
    choices: StageChoices,
    share: Floats,
    known: dict[str, Bools],
    choice: Index,
) -> Index:
    """(B, LISTED for each group): the most probable choices, -1 behind them; the chosen one is among them."""
    every = np.broadcast_to(np.arange(len(choices.group)), (share.shape[1], len(choices.group)))
    padded = np.concatenate([share, np.zeros((1, share.shape[1]), dtype=share.dtype)])
    chance = padded[choices.containing].sum(axis=1).T  # (B, J)
    chance = np.where(_possible(topology, n_jets, choices, known, every), chance, -1)
    groups = []
    for k in range(len(choices.groups)):
        (mine,) = np.nonzero(choices.group == k)
        best = mine[np.argsort(-chance[:, mine], axis=1, kind="stable")[:, :LISTED]]
        best = np.where(np.take_along_axis(chance, best, axis=1) >= 0, best, -1)
        best = np.pad(best, ((0, 0), (0, LISTED - best.shape[1])), constant_values=-1)
        missing = np.isin(choice, mine) & ~(best == choice[:, None]).any(axis=1)
        best[missing, -1] = choice[missing]
        groups.append(best)
    return np.concatenate(groups, axis=1)


def _shown(
    enumeration: Enumeration, choices: StageChoices, listed: Index, order: Index
) -> tuple[tuple[tuple[str, ...], ...], npt.NDArray[np.int16]]:
    """Types of the choices listed, and their jets (B, LISTED for each, M, slots), -1 where there is none."""
    groups = choices.groups
    types = tuple(names for names in groups for _ in range(LISTED))
    width = max(enumeration.candidates[name].jets.shape[1] for names in groups for name in names)
    jets = np.full((*listed.shape, len(groups[0]), width), -1, dtype=np.int16)
    for k, names in enumerate(groups):
        columns = slice(k * LISTED, (k + 1) * LISTED)
        mine = listed[:, columns]
        here = np.where(mine >= 0, mine, np.argmax(choices.group == k))  # any of the group, where there is none
        for m, name in enumerate(names):
            local = enumeration.candidates[name].jets[choices.particles[here, m]].astype(np.intp)  # (B, C, slots)
            found = np.take_along_axis(order[:, None], local, axis=2)
            jets[:, columns, m, : local.shape[2]] = np.where(mine[:, :, None] >= 0, found, -1)
    return types, jets


def join_steps(parts: Sequence[Step], rows: Index | None = None) -> Step:
    """The record of a step of several batches; `rows`, of all their events, is the order to bring them in."""
    order = slice(None) if rows is None else np.argsort(rows, kind="stable")

    def column(name: str) -> npt.NDArray[Any]:
        return np.asarray(np.concatenate([getattr(part, name) for part in parts])[order])

    arrays = {name: column(name) for name in _ARRAYS}
    return Step(stage=parts[0].stage, types=parts[0].types, **arrays)


_ARRAYS = ("tokens", "edges", "jets", "probability", "choice", "assignment", "revealed")
