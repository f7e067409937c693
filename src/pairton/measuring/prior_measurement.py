"""Fits the mixture of data without labels: how much more frequent each pattern is than in the training.

Shapes: n events, K patterns, G groups of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.decoding.set_tables import true_pattern
from pairton.errors import ConfigError, EventsError, ModelError
from pairton.events import Status
from pairton.measuring import rounded_yaml
from pairton.models.model import Model
from pairton.reconstruction.run import Run
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, knows_missing
from pairton.topology import Topology

__all__ = [
    "GROUPS",
    "PriorMeasurement",
    "fitted_fractions",
    "measure_prior",
    "prior_text",
    "training_fractions",
]

GROUPS = ("patterns", "nothing", "topology")
ROUNDS, PRECISE = (
    2000,
    1e-7,
)  # expectation maximisation: most rounds, and the largest change of a fraction at the end
LEAST = 100  # events of a fit

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class PriorMeasurement:
    """The fractions of groups of patterns in data and in the training, (G,) each."""

    model: str
    events: int
    names: tuple[str, ...]  # of the groups
    fraction: Floats  # in the data
    error: Floats  # of the fractions, from bootstrap samples of the events and of the reference
    training: Floats  # after the selection of the data
    factors: Mapping[str, float]  # the argument `prior` of `pairton.reconstruct`


def measure_prior(
    data: Any,
    model: Model | str | Path | None = None,
    *,
    reference: Any = None,
    of: str = "patterns",
    bootstraps: int = 50,
    seed: int = 1,
    **options: Any,
) -> PriorMeasurement:
    """Fit the fractions of patterns in data, of which no labels are needed, by expectation maximisation.

    The events of a pattern must look as in the training; only their number may differ.

    data         events or files, as for `pairton.reconstruct`; those with the status ok are used
    model        a model that was trained with `network.patterns`
    reference    simulated events of any mixture, with labels and the selection of the data: they tell what the
                 mixture of the training is after this selection. Without them, the data must have the selection
                 of the training. For topologies, a mapping from their names to files
    of           what is fitted: `patterns`, each; `nothing`, against all others; or `topology`, each of a mixture
    bootstraps   samples for the errors, with random numbers from `seed`
    options      options of `pairton.iterate`

    Raises ModelError if the mixture of the training is unknown, EventsError if there are too few events.
    """
    if of not in GROUPS:
        raise ConfigError(f"of is {of!r}: choose one of {', '.join(GROUPS)}")
    own, chance, weight, _ = _answers(data, model, False, options)
    group, names = _groups(own.topology, of)
    together = np.eye(len(names))[group]  # (K, G)
    chance = chance @ together
    if reference is None:
        known = _of_training(own, own.topology) @ together
    else:
        expected, simulated, true = _labelled(reference, own, of, options)
        expected, true = expected @ together, true if of == "topology" else group[true]

    def fitted(draw: Callable[[int], Any], start: Floats | None = None) -> tuple[Floats, Floats]:
        """Fractions of data, and of the training; `draw` makes weights of n events."""
        training = known if reference is None else training_fractions(expected, true, simulated * draw(len(true)))
        return fitted_fractions(chance, training, weight * draw(len(weight)), start), training

    fraction, training = fitted(np.ones)
    rng = np.random.default_rng(seed)
    others = [fitted(lambda n: rng.poisson(1, n), fraction)[0] for _ in range(bootstraps)]
    factor = np.divide(fraction, training, where=training > 0, out=np.ones_like(training))
    factors = dict(zip(names, factor.tolist(), strict=True))
    if of == "nothing":
        keys = [pattern.key for pattern, k in zip(plan_of(own.topology).patterns, group, strict=True) if k]
        factors = dict.fromkeys(keys, float(factor[1] / factor[0]))
    error = np.std(others, axis=0) if others else np.full(len(names), np.nan)
    return PriorMeasurement(own.name, len(weight), names, fraction, error, training, factors)


def fitted_fractions(chance: Floats, training: Floats, weight: Floats, start: Floats | None = None) -> Floats:
    """(G,): the most likely fractions of data, from probabilities (n, G) that hold for those of the training (G,).

    In each round, a new fraction is the mean probability of the events (weights (n,)) under the last ones.

    >>> chance = np.array([[0.9, 0.1]] * 9 + [[0.1, 0.9]] * 1)
    >>> fitted_fractions(chance, np.array([0.5, 0.5]), np.ones(10)).round(3).tolist()
    [1.0, 0.0]
    """
    inverse = np.divide(1, training, where=training > 0, out=np.zeros_like(training))
    fraction = np.where(training > 0, training if start is None else np.maximum(start, 1e-6), 0)
    for _ in range(ROUNDS):
        new = np.maximum(_means(chance, fraction * inverse, weight), 0)
        new /= new.sum()
        change, fraction = np.abs(new - fraction).max(), new
        if change < PRECISE:
            break
    return fraction


def training_fractions(chance: Floats, true: Index, weight: Floats) -> Floats:
    """(K,): the fractions of the training after the selection of labelled events, whatever their own mixture.

    The factors of their mixture are those for which the mean probability of each pattern is its true fraction
    (iterative scaling). Then the mean of P(pattern) / sum(factor P(pattern)) is proportional to the fraction.

    >>> chance = np.array([[0.9, 0.1]] * 20 + [[0.1, 0.9]] * 10)
    >>> true = np.array([0] * 18 + [1] * 2 + [0] * 1 + [1] * 9)  # calibrated, 19 and 11
    >>> training_fractions(chance, true, np.ones(30)).round(3).tolist()
    [0.633, 0.367]
    """
    fraction = np.bincount(true, weight, chance.shape[1]) / weight.sum()
    factor = np.ones(len(fraction))
    for _ in range(ROUNDS):
        mean = _means(chance, factor, weight)
        factor = factor * np.divide(fraction, mean, where=fraction > 0, out=np.zeros_like(factor))
        factor /= factor.max()
        if np.abs(fraction - mean)[fraction > 0].max() < PRECISE:
            break
    training = (weight / (chance @ factor)) @ chance
    return np.asarray(training / training.sum())


def _means(chance: Floats, factor: Floats, weight: Floats) -> Floats:
    """(G,): the mean probabilities of events under a prior."""
    scaled = chance * factor
    return np.asarray((weight / scaled.sum(axis=1)) @ scaled / weight.sum())


def prior_text(found: PriorMeasurement) -> str:
    """The measurement as YAML, which `--prior` reads."""
    listed = zip(found.names, found.fraction.tolist(), found.error.tolist(), found.training.tolist(), strict=True)
    about = {name: {"data": share, "error": error, "training": known} for name, share, error, known in listed}
    return rounded_yaml(
        {"model": found.model, "events": found.events, "prior": {**found.factors}, "fractions": about}, 4
    )


def _answers(
    data: Any, model: Model | str | Path | None, labelled: bool, options: Mapping[str, Any]
) -> tuple[Model, Floats, Floats, Index]:
    """The model, and of its accepted events probabilities of patterns (n, K), weights and true patterns (n,)."""
    with Run(data, model, DEFAULT_SETTINGS, **{**options, "truth": labelled}) as run:
        own = run.model
        if not knows_missing(own, own.decoding):
            raise ModelError(
                f"{own.name} knows complete events only: a prior needs a model trained with network.patterns"
            )
        keys = [f"pattern_{pattern.key}" for pattern in plan_of(own.topology).patterns]
        chances, weights, patterns = [], [], [np.zeros(0, dtype=np.intp)]
        for result in run.reconstruct():
            rows = result.status == Status.OK
            columns = [np.asarray(result.outputs[key], dtype=np.float64)[rows] for key in keys]
            chances.append(np.stack(columns, axis=1))
            weights.append(result.events.each_weight[rows])
            if labelled:
                if result.events.truth is None or own.topology.alternatives:
                    raise EventsError(
                        f"the events of --reference have no labels of {own.topology.name}: give simulation"
                    )
                patterns.append(true_pattern(own.topology, result.events.truth)[rows])
    chance, weight = np.concatenate(chances), np.concatenate(weights)
    if len(chance) < LEAST or not weight.sum() > 0:
        raise EventsError(
            f"only {len(chance)} events have an answer of {own.name}: a prior needs at least {LEAST}"
        )
    return own, chance, weight, np.concatenate(patterns)


def _labelled(reference: Any, model: Model, of: str, options: Mapping[str, Any]) -> tuple[Floats, Floats, Index]:
    """Of the reference: probabilities of patterns (n, K), weights, and true patterns or topologies (n,)."""
    if of != "topology":
        return _answers(reference, model, True, options)[1:]
    trees = [tree.name for tree in model.topology.trees]
    if not isinstance(reference, Mapping) or {*reference} != {*trees}:
        raise ConfigError(f"--reference needs a file of each topology, as in --reference {trees[0]}=FILE")
    how = {**options, "topology": model.topology}
    parts = [_answers(reference[name], model, False, how)[1:3] for name in trees]
    true = np.repeat(np.arange(len(trees)), [len(weight) for _, weight in parts])
    return np.concatenate([each for each, _ in parts]), np.concatenate([each for _, each in parts]), true


def _of_training(model: Model, topology: Topology) -> Floats:
    """(K,): the fractions of patterns that the model was trained with."""
    stored, settings = model.info.data.get("patterns", {}), model.info.recipe.get("data", {})
    problem = ""
    if settings.get("draw_acceptance"):
        problem = "was trained with many selections (data.draw_acceptance)"
    elif any(tree.name not in stored for tree in topology.trees):
        problem = f"does not store the fractions of the patterns of {topology.name} in its training"
    if problem:
        raise ModelError(
            f"{model.name} {problem}: give --reference, simulated events with labels and the selection of the data"
        )
    shares = [stored[tree.name][pattern.key] for tree in topology.trees for pattern in plan_of(tree).patterns]
    return np.asarray(np.array(shares) / sum(shares), dtype=np.float64)


def _groups(topology: Topology, of: str) -> tuple[Index, tuple[str, ...]]:
    """(K,): the group of each pattern, and the names of the groups."""
    patterns = plan_of(topology).patterns
    if of == "topology":
        if not topology.alternatives:
            raise ConfigError(f"{topology.name} is one topology: fit {GROUPS[0]} or {GROUPS[1]}")
        return np.array([pattern.part for pattern in patterns]), tuple(tree.name for tree in topology.trees)
    if of == "nothing":
        return np.array([int(pattern.entry < 0) for pattern in patterns]), ("something", "nothing")
    return np.arange(len(patterns)), tuple(pattern.key for pattern in patterns)
