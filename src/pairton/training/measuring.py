"""Measures on training events what a recipe does not fix: means and deviations, classes of heads, the domain."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.decoding.set_tables import true_pattern
from pairton.errors import PairtonWarning
from pairton.events.domain import Domain
from pairton.events.inputs import MOMENTUM, Input, Inputs, Transform
from pairton.topology import JET
from pairton.topology.kinds import KINDS, collection_name
from pairton.training.data import PackedEvents
from pairton.training.recipes import Recipe

__all__ = ["domain_of", "measured", "pattern_fractions"]

PT, ETA = MOMENTUM.index("pt"), MOMENTUM.index("eta")
MANY_OBJECTS = 5000  # among so many objects, some are close to the cuts


def measured(recipe: Recipe, events: PackedEvents, known: Inputs | None = None) -> Recipe:
    """Return the recipe with the means, deviations and classes of the training events.

    The means and deviations of inputs are taken from `known`, those of trained weights, where it has them.
    """
    groups = list(events.groups.values())

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([np.asarray(group.columns[name]) for group in groups])

    specs = {
        name: spec.resolved(
            name, {key: column(key) for key in spec.columns}, max(events.largest[key] for key in spec.columns)
        )
        for name, spec in recipe.specs.items()
    }
    _check_cuts(recipe, events)
    return replace(recipe, specs=specs, given_inputs=_inputs(recipe.inputs, events, known))


def _check_cuts(recipe: Recipe, events: PackedEvents) -> None:
    """Warn if the files were cut harder than the recipe: the domain would have objects that were never seen."""
    for kind in recipe.topology.kinds:
        cuts = recipe.topology.selection.cuts(kind)
        name = collection_name(kind)
        groups = [objects for objects in _of_kind(events, kind) if objects.size]
        if sum(objects.shape[0] * objects.shape[1] for objects in groups) < MANY_OBJECTS:
            continue
        softest = min(float(objects[..., PT].min()) for objects in groups)
        widest = max(float(np.abs(objects[..., ETA]).max()) for objects in groups)
        if softest > 1.1 * cuts.pt > 0:
            found, allowed, setting = f"above {softest:.4g} GeV", f"from {cuts.pt:g} GeV", "pt"
        elif widest < 0.8 * cuts.abs_eta < np.inf and not KINDS[kind].transverse:  # few are at large |eta|
            found, allowed, setting = f"within |eta| {widest:.3g}", f"to |eta| {cuts.abs_eta:g}", "abs_eta"
        else:
            continue
        warnings.warn(
            f"all {name} of the training events are {found}, but the recipe selects {name} {allowed}: the model "
            f"would accept {name} that it has never seen; set selection.{name}.{setting} to the cut of the files",
            PairtonWarning,
            stacklevel=3,
        )


def _inputs(inputs: Inputs, events: PackedEvents, known: Inputs | None) -> Inputs:
    by_kind = []
    for kind in inputs.kinds:
        place = {name: k for k, name in enumerate(inputs.columns(kind))}
        trained = known[kind] if known is not None and kind in known.kinds else ()
        items = []
        for item in inputs[kind]:
            values = (np.asarray(objects[..., place[item.field]]) for objects in _of_kind(events, kind))
            items.append((_known(item, trained) or _measured(item, values)) if item.measures else item)
        by_kind.append((kind, tuple(items)))
    return Inputs(tuple(by_kind))


def _known(item: Input, trained: tuple[Input, ...]) -> Input | None:
    """The same input with its mean and deviation, if it was trained with them."""
    wanted = item.field, _transform(item)
    found = [other for other in trained if (other.field, other.transform) == wanted]
    return found[0] if found and (found[0].offset, found[0].scale) != (0.0, 1.0) else None


def _transform(item: Input) -> Transform:
    """The transform that precedes the normalisation."""
    return "log" if item.transform.startswith("log") else "none"


def _measured(item: Input, parts: Iterable[npt.NDArray[Any]]) -> Input:
    values = np.concatenate([part.ravel() for part in parts]).astype(np.float64)
    transform = _transform(item)
    values = np.log1p(np.maximum(values, 0)) if transform == "log" else values  # as the network computes it
    spread = float(values.std()) if len(values) else 0.0
    return Input(item.field, transform, float(values.mean()) if len(values) else 0.0, spread or 1.0)


def domain_of(recipe: Recipe, events: PackedEvents) -> Domain:
    """The domain of the training events: cuts of the selection, and numbers of objects found in the events."""
    kinds = {}
    for kind in recipe.topology.kinds:
        columns = recipe.inputs.columns(kind)
        counts = [objects.shape[1] for objects in _of_kind(events, kind)]
        objects = np.concatenate([some[:1000].reshape(-1, len(columns)) for some in _of_kind(events, kind)])
        binary = [name for name in recipe.inputs.fields(kind) if _is_binary(objects[:, columns.index(name)])]
        kinds[kind] = replace(
            Domain.of_selection(recipe.topology)[kind],
            count=(min(counts), max(counts)),
            radius=recipe.data.jet_radius if kind == JET else None,
            binary=tuple(binary),
        )
    return Domain(kinds)


def pattern_fractions(recipe: Recipe, events: PackedEvents) -> dict[str, dict[str, float]]:
    """Topology -> pattern -> its share of the weight of all training events, which a prior is relative to."""
    trees = recipe.topology.trees
    total = {tree.name: np.zeros(len(plan_of(tree).patterns)) for tree in trees}
    for key, group in events.groups.items():
        tree = trees[key.tree]
        pattern = true_pattern(tree, np.asarray(group.truth))
        total[tree.name] += np.bincount(pattern, group.weights, len(total[tree.name]))
    everything = sum(map(np.sum, total.values()))
    return {
        tree.name: {
            pattern.key: float(weight / everything)
            for pattern, weight in zip(plan_of(tree).patterns, total[tree.name], strict=True)
        }
        for tree in trees
    }


def _is_binary(values: npt.NDArray[Any]) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _of_kind(events: PackedEvents, kind: str) -> list[npt.NDArray[np.float32]]:
    """The objects of a kind, of each group that has it."""
    return [group.objects[kind] for group in events.groups.values() if kind in group.objects]
