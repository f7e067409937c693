"""The reverse process: from the logits of a network to jets in slots, with probabilities.

It takes any callable `predict(jets, jet_mask, tokens) -> Prediction` and any topology, works on whole batches, and
knows nothing of torch or ONNX.

Shapes: B events, N jets, T types, S slots, P particles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pairton.decoding.beam import run_beam
from pairton.decoding.chain import Predict, Step, run_chain
from pairton.decoding.exact import enumerable, most_probable, packed, rows_of
from pairton.decoding.exact_steps import join_steps, run_exact_steps
from pairton.decoding.graph import MASKED
from pairton.decoding.likelihood import Prediction, enumerate_assignments
from pairton.decoding.state import State
from pairton.errors import ConfigError, ModelError, nearest
from pairton.topology import Topology
from pairton.topology.assignments import canonical

__all__ = ["BEAM", "METHODS", "Decoded", "Predict", "Prediction", "Step", "decode"]

METHODS = ("exact", "exact_steps", "steps", "one_shot", "beam")
BEAM = 8  # hypotheses of a beam, where nothing else is said
LISTED = 20  # assignments in the record of an exact decoding

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Decoded:
    """One row for every event. An event with fewer jets than slots has assignment -1 and probabilities NaN."""

    assignment: npt.NDArray[np.int32]  # (B, S): canonical order of interchangeable products
    particle_probability: npt.NDArray[np.float64]  # (B, P)
    event_probability: npt.NDArray[np.float64]  # (B,): of the assignment; of the chain for steps and one_shot
    exact: Bools  # (B,): all assignments were enumerated; False where the chain took over, or was asked for
    steps: list[Step]  # with record=True, of the events that have an answer
    answered: Bools  # (B,): enough jets


def decode(
    predict: Predict,
    topology: Topology,
    jets: npt.NDArray[np.float32],
    jet_mask: Bools,
    *,
    method: str = "exact",
    beam: int | None = None,
    temperatures: Sequence[float] | None = None,
    edge_weight: float = 1.0,
    record: bool = False,
) -> Decoded:
    """Assign jets (B, N, 5), of which `jet_mask` (B, N) says which are there, to the slots of the topology.

    method         exact        arg max over all assignments, with marginals; events with too many of them: steps
                   exact_steps  stage by stage, the network sees what was revealed, and the sum is restricted to it
                   steps        stage by stage by gains, the network sees what was revealed
                   one_shot     stage by stage by gains, from the first answer of the network
                   beam         steps with the `beam` best hypotheses, merged where they agree; of width 1: steps
    temperatures   gains are divided by them: one for each stage, or for exact one alone
    edge_weight    of the logits between new jets of one particle, as in the pair of a W; not for exact ones
    record         keep every step: what the network saw and said, the candidates, the choice; not for a beam

    With steps and one_shot the event's probability is that of the chain, a particle's that of the steps that
    revealed it and its children; with the others both are sums over the assignments that contain it. With
    exact_steps it is a product of exact conditional probabilities, see `pairton.decoding.exact_steps`.

    >>> from pairton.topology import load_topology
    >>> logits = np.zeros((1, 1, 4, 4), dtype=np.float32)
    >>> logits[0, 0, [0, 2, 1, 3], [2, 0, 3, 1]] = 5  # jets 0 and 2, 1 and 3 are pairs
    >>> event = np.zeros((1, 4, 5), dtype=np.float32), np.ones((1, 4), dtype=bool)
    >>> answer = decode(lambda jets, jet_mask, tokens: Prediction(logits), load_topology("hh4b"), *event)
    >>> answer.assignment.tolist(), answer.event_probability.round(3).tolist()
    ([[0, 2, 1, 3]], [1.0])
    """
    width = _check(method, beam, edge_weight, record)
    heat = _temperatures(topology, method, temperatures)
    answered = jet_mask.sum(axis=1) >= len(topology.slots)
    result = Decoded(
        np.full((len(jets), len(topology.slots)), -1, dtype=np.int32),
        np.full((len(jets), len(topology.particles)), np.nan),
        np.full(len(jets), np.nan),
        np.zeros(len(jets), dtype=bool),
        [],
        answered,
    )
    (rows,) = np.nonzero(answered)
    predict = _numbers(predict)
    if method in ("exact", "exact_steps"):
        run = _exact if method == "exact" else _exact_steps
        rows = run(predict, topology, jets, jet_mask, rows, heat, record, result)
        heat = [1.0] * len(topology.stages)
    if not len(rows):
        return result
    if width > 1:
        state = run_beam(
            predict, topology, jets[rows], jet_mask[rows], width=width, temperatures=heat, edge_weight=edge_weight
        )
    else:
        refresh = method != "one_shot"
        state, steps = run_chain(
            predict,
            topology,
            jets[rows],
            jet_mask[rows],
            temperatures=heat,
            edge_weight=edge_weight,
            refresh=refresh,
            record=record,
        )
        result.steps.extend(steps)
    _enter(result, rows, state)
    return result


def _numbers(predict: Predict) -> Predict:
    """The same, but NaN is refused: every decoding would take it for an answer."""

    def checked(jets: npt.NDArray[np.float32], jet_mask: Bools, tokens: npt.NDArray[np.uint8]) -> Prediction:
        prediction = predict(jets, jet_mask, tokens)
        triplets = prediction.triplets
        if np.isfinite(prediction.edges).all() and (triplets is None or not np.isnan(triplets).any()):
            return prediction  # nearly always, without a look at the padding
        pairs = jet_mask[:, :, None] & jet_mask[:, None, :]  # of jets; anything may stand in the padding
        unknown = ((~np.isfinite(prediction.edges)).any(axis=1) & pairs).any(axis=(1, 2))
        if triplets is not None:
            threes = pairs[:, :, :, None] & jet_mask[:, None, None, :]
            unknown |= (np.isnan(triplets).any(axis=1) & threes).any(axis=(1, 2, 3))
        wrong = int(unknown.sum())
        if wrong:
            raise ModelError(
                f"the network gives no number for {wrong} of {len(jets)} events: check that jets are in GeV, and "
                "copy or train the model again"
            )
        return prediction

    return checked


def _check(method: str, beam: int | None, edge_weight: float, record: bool) -> int:
    """The width of the beam, 1 for none."""
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise ConfigError(f"no decoding {method!r}: choose one of {known}{nearest(method, METHODS)}")
    if method != "beam":
        if beam is not None:
            raise ConfigError(f"a beam of {beam} is for the decoding 'beam', not {method!r}: leave one out")
        if method in ("exact", "exact_steps") and edge_weight != 1:
            raise ConfigError(f"edge_weight is {edge_weight:g}, but {method} decoding has none: set it to 1")
        return 1
    width = BEAM if beam is None else beam
    if width < 1:
        raise ConfigError(f"a beam of {width} keeps no hypothesis: give 1 or more")
    if width > 1 and record:
        raise ConfigError(f"a beam of {width} has no single chain to record: use steps")
    return width


def _temperatures(topology: Topology, method: str, given: Sequence[float] | None) -> list[float]:
    wanted = 1 if method == "exact" else len(topology.stages)
    values = [1.0] * wanted if given is None else [float(value) for value in given]
    if len(values) != wanted or not all(value > 0 and np.isfinite(value) for value in values):
        stages = "one" if method == "exact" else f"one for each stage ({', '.join(map(str, topology.stages))})"
        raise ConfigError(f"temperatures are {values}, but {method} decoding takes {stages}, greater than 0")
    return values


def _exact(
    predict: Predict,
    topology: Topology,
    jets: npt.NDArray[np.float32],
    jet_mask: Bools,
    rows: npt.NDArray[np.intp],
    temperatures: Sequence[float],
    record: bool,
    result: Decoded,
) -> npt.NDArray[np.intp]:
    """Fill in the events whose assignments can be enumerated; the rows of those that remain."""
    rows, rest, counts = _enumerable_rows(topology, jet_mask, rows)
    if not len(rows):
        return rest
    n_jets = jet_mask.shape[1]
    tokens = np.full((len(rows), len(topology.types), n_jets, n_jets), MASKED, dtype=np.uint8)
    prediction = predict(jets[rows], jet_mask[rows], tokens)
    best_few = np.full((len(rows), LISTED, len(topology.slots)), -1, dtype=np.int16)
    chances = np.zeros((len(rows), LISTED))
    for n in np.unique(counts[rows]):
        (same,) = np.nonzero(counts[rows] == n)
        order = np.argsort(~jet_mask[rows[same]], axis=1, kind="stable")[:, :n]
        part = rows_of(prediction, same)
        if n < n_jets:
            part = packed(part, order)
        answer = most_probable(
            enumerate_assignments(topology, int(n)), part, temperatures[0], LISTED if record else 0
        )
        assignment, event_probability, particle_probability, few, chance = answer
        # an order-preserving map keeps the canonical order
        result.assignment[rows[same]] = np.take_along_axis(order, assignment.astype(np.intp), axis=1)
        result.event_probability[rows[same]] = event_probability
        result.particle_probability[rows[same]] = particle_probability
        if record:
            best_few[same, : few.shape[1]] = np.take_along_axis(order[:, None, :], few.astype(np.intp), axis=2)
            chances[same, : few.shape[1]] = chance
    result.exact[rows] = True
    if record:
        types = (tuple(root.type for root in topology.roots),) * LISTED
        width = max(len(root.slots) for root in topology.roots)
        shown = np.full((len(rows), LISTED, len(topology.roots), width), -1, dtype=np.int16)
        for k, root in enumerate(topology.roots):
            shown[:, :, k, : len(root.slots)] = best_few[:, :, list(root.slots)]
        everything = np.ones((len(rows), len(topology.particles)), dtype=bool)
        result.steps.append(
            Step(
                None,
                tokens,
                prediction.edges,
                types,
                shown,
                chances,
                np.zeros(len(rows), dtype=np.intp),
                result.assignment[rows],
                everything,
            )
        )
    return rest


def _exact_steps(
    predict: Predict,
    topology: Topology,
    jets: npt.NDArray[np.float32],
    jet_mask: Bools,
    rows: npt.NDArray[np.intp],
    temperatures: Sequence[float],
    record: bool,
    result: Decoded,
) -> npt.NDArray[np.intp]:
    """Fill in the events whose assignments can be enumerated; the rows of those that remain."""
    rows, rest, counts = _enumerable_rows(topology, jet_mask, rows)
    done, recorded = [], []
    for n in np.unique(counts[rows]):
        same = rows[counts[rows] == n]
        assignment, event_probability, particle_probability, steps = run_exact_steps(
            predict, topology, jets[same], jet_mask[same], temperatures=temperatures, record=record
        )
        result.assignment[same] = assignment
        result.event_probability[same] = event_probability
        result.particle_probability[same] = particle_probability
        done.append(same)
        recorded.append(steps)
    result.exact[rows] = True
    if record and done:
        order = np.concatenate(done)
        result.steps.extend(join_steps(steps, order) for steps in zip(*recorded, strict=True))
    return rest


def _enumerable_rows(
    topology: Topology, jet_mask: Bools, rows: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of these rows those whose assignments can be enumerated and the others; and the jets of every event."""
    counts = np.asarray(jet_mask.sum(axis=1), dtype=np.intp)
    listed = {int(n): enumerable(topology, int(n)) for n in np.unique(counts[rows])}
    chosen = np.array([listed[int(n)] for n in counts[rows]], dtype=bool)
    return rows[chosen], rows[~chosen], counts


def _enter(result: Decoded, rows: npt.NDArray[np.intp], state: State) -> None:
    """Write complete states into the rows of the result."""
    topology = state.topology
    assignment = np.asarray(canonical(topology, state.place()[0]))
    result.assignment[rows] = assignment
    result.event_probability[rows] = np.exp(state.log_probability)
    for particle in topology.particles:
        same = state.found[particle.type]
        here = assignment[:, list(particle.slots)]
        which = (same.jets == here[:, None]).all(axis=2).argmax(axis=1)
        result.particle_probability[rows, particle.index] = same.probability[np.arange(len(rows)), which]
