"""Fits temperatures, so that the probability of an answer matches how often such answers are right.

The decodings `steps` and `one_shot` have one temperature per stage. Gains are sums of correlated logits, and
several choices of a step may be right (either W of a pair of tops may come first), so the softmax of a step is not
a probability by itself. All temperatures are fitted together to the product over the stages. The decoding `exact`
has one temperature, which maximises the likelihood of the truth in validation events. It corrects the
overconfidence of a network that has overfitted its training events.

Answers do not depend on temperatures. The network therefore runs once per event, and its outputs are scored at
each temperature of a grid.

Shapes: B events, G temperatures, K stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pairton.decoding import Predict, decode
from pairton.decoding.graph import MASKED
from pairton.decoding.patterns import allowed_nodes
from pairton.decoding.set_sums import log_normaliser, log_scores, log_sums
from pairton.decoding.set_tables import hypotheses, set_tables
from pairton.decoding.terms import candidate_scores
from pairton.decoding.views import view_of
from pairton.evaluation.scores import matches
from pairton.events.nodes import Nodes
from pairton.topology import Topology
from pairton.topology.assignments import present
from pairton.training.data import PackedEvents
from pairton.training.validation import Block, Replayed

__all__ = ["CALIBRATED", "fit_temperatures"]

CALIBRATED = ("steps", "one_shot", "exact")  # decodings with temperatures
GRID = np.geomspace(1 / 16, 16, 25)
EXACT_GRID = np.geomspace(1 / 2, 2, 29)  # narrower: a network trained on the likelihood is nearly calibrated
MIN_EVENTS = 50  # with fewer events, nothing is fitted
SWEEPS = 10  # largest number of passes over the stages

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def fit_temperatures(
    predict: Predict, topology: Topology, events: PackedEvents, which: Sequence[Block], decoding: str
) -> tuple[float, ...]:
    """Return one temperature per stage, or a single one for `exact`; 1 where there are too few events to fit.

    For stages, the temperatures maximise the likelihood of which answers are right, over complete events: in other
    events the truth is not fully known. Events count with their weights.
    """
    if decoding == "exact":
        return (_fit_exact(predict, topology, events, which),)
    chances, rights = [np.zeros((len(GRID), len(topology.stages), 0))], [np.zeros(0, dtype=bool)]
    weights = [np.zeros(0)]
    for nodes, truth, weight in _complete(topology, events, which):
        chance, right = _chains(predict, topology, nodes, truth, decoding)
        chances.append(chance)
        rights.append(right)
        weights.append(weight)
    right = np.concatenate(rights)
    if len(right) < MIN_EVENTS or right.all() or not right.any():
        return (1.0,) * len(topology.stages)
    return _fit(np.concatenate(chances, axis=2), right, np.concatenate(weights))


def _complete(
    topology: Topology, events: PackedEvents, which: Sequence[Block]
) -> Iterator[tuple[Nodes, npt.NDArray[np.int8], Floats]]:
    """Yield nodes, truth and weights of the complete events of each block that has any."""
    for key, rows in which:
        group = events.groups[key]
        truth = np.array(group.truth[rows])
        complete = np.asarray(present(topology, truth).all(axis=1))
        if complete.any():
            weights = events.weights(key, rows)[complete].astype(np.float64)
            yield group.nodes(rows)[complete], truth[complete], weights


def _fit_exact(predict: Predict, topology: Topology, events: PackedEvents, which: Sequence[Block]) -> float:
    """The temperature that maximises the likelihood of the truth."""
    likelihood, n_events = np.zeros(len(EXACT_GRID)), 0
    for key, rows in which:
        group, tree = events.groups[key], topology.trees[key.tree]
        of_tree = view_of(topology, tree).around(predict)
        found, has_truth = _truths(of_tree, tree, group.nodes(rows), np.array(group.truth[rows]))
        likelihood += found @ events.weights(key, rows)[has_truth]
        n_events += found.shape[1]
    return 1.0 if n_events < MIN_EVENTS else _between(EXACT_GRID, likelihood, int(likelihood.argmax()))


def _truths(
    predict: Predict, topology: Topology, nodes: Nodes, truth: npt.NDArray[np.int8]
) -> tuple[Floats, Bools]:
    """The log likelihood of the truth at each temperature, for the events whose truth is a hypothesis."""
    n_events, n_nodes = nodes.mask.shape
    outputs = predict(nodes, np.full((n_events, len(topology.types), n_nodes, n_nodes), MASKED, dtype=np.uint8))
    complete_only = "patterns" not in outputs
    tables = set_tables(topology, allowed_nodes(topology, nodes.layout), complete_only)
    chosen = hypotheses(tables, truth, overlaps=nodes.overlaps)
    scores, terms = candidate_scores(tables, outputs), None if complete_only else outputs["patterns"].T
    true = log_scores(tables, scores, chosen, terms)
    result = []
    for temperature in EXACT_GRID:
        scaled = {name: values / np.float32(temperature) for name, values in scores.items()}
        cooler = None if terms is None else terms / np.float32(temperature)
        sums = log_sums(tables, scaled, cooler, nodes.overlaps)
        result.append(true / temperature - log_normaliser(sums))
    has_truth = np.asarray(chosen.pattern >= 0)
    return np.stack(result)[:, has_truth], has_truth


def _chains(
    predict: Predict, topology: Topology, nodes: Nodes, truth: npt.NDArray[np.int8], decoding: str
) -> tuple[Floats, Bools]:
    """The log probability of each stage at each temperature (G, K, B), and which answers are right (B,)."""
    replayed = Replayed(predict)
    ends = np.cumsum([1 if stage.any else len(stage.types) for stage in topology.stages])  # particles revealed
    result = np.zeros((len(GRID), len(topology.stages), len(nodes)))
    for g, temperature in enumerate(GRID):
        replayed.rewind()
        same = [float(temperature)] * len(topology.stages)
        answer = decode(replayed, topology, nodes, decoding=decoding, temperatures=same, record=True)
        for step in answer.steps:  # a stage may have several
            stage = int(np.searchsorted(ends, step.revealed.sum(axis=1).max()))
            result[g, stage] += np.log(step.probability[:, 0].clip(min=1e-300))
    return result, np.asarray(matches(topology, answer.assignment, truth).all(axis=1))


def _fit(chance: Floats, right: Bools, weight: Floats) -> tuple[float, ...]:
    """The best temperatures, from log probabilities (G, K, B): one stage after the other, until none changes."""
    n_stages = chance.shape[1]
    at = np.full(n_stages, len(GRID) // 2)  # where the temperature is 1
    for _ in range(SWEEPS):
        before = at.copy()
        for k in range(n_stages):
            at[k] = _likelihoods(chance, right, weight, at, k).argmax()
        if (at == before).all():
            break
    return tuple(_between(GRID, _likelihoods(chance, right, weight, at, k), int(at[k])) for k in range(n_stages))


def _likelihoods(chance: Floats, right: Bools, weight: Floats, at: npt.NDArray[np.intp], k: int) -> Floats:
    """(G,): log likelihood of which answers are right, at each temperature of stage k and fixed other stages."""
    others = sum((chance[at[j], j] for j in range(len(at)) if j != k), start=np.zeros(len(right)))
    total = chance[:, k] + others
    wrong = np.log1p(-np.exp(total).clip(max=1 - 1e-12))
    return np.asarray((weight * np.where(right, total, wrong)).sum(axis=1))


def _between(grid: Floats, likelihood: Floats, k: int) -> float:
    """The temperature at the maximum of a parabola through the best point of the grid, k, and its neighbours."""
    k = int(np.clip(k, 1, len(grid) - 2))
    below, here, above = likelihood[k - 1 : k + 2]
    curvature = below - 2 * here + above
    shift = float(np.clip((below - above) / (2 * curvature), -1, 1)) if curvature < 0 else 0.0
    return float(round(grid[k] * (grid[1] / grid[0]) ** shift, 4))
