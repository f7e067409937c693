"""The seeds of a row beside one another: the last weights, their average, what was kept, and all seeds together.

    python workflow/seeds.py cpu default

On the fully reconstructible validation events whose assignments are enumerated; for networks with the exact
likelihood. Together: log P of what the seeds kept is averaged, and normalised again. Temperatures are left out.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from pairton.decoding.likelihood import (
    MAX_ASSIGNMENTS,
    Enumeration,
    enumerate_assignments,
    index_of,
    log_normaliser,
    scores,
)

from pairton.errors import PairtonError
from pairton.events.nodes import Nodes
from pairton.formats import iterate
from pairton.network import Network
from pairton.network.engine import load_network, predictor
from pairton.topology.assignments import present
from pairton.training.data import PackedEvents, pack
from pairton.training.loop import make_optimiser
from pairton.training.recipes import Recipe, parse_recipe
from pairton.training.resume_state import STATE, load_state
from pairton.training.validation import asked
from plan import Plan, load_config

__all__ = ["compare", "networks_of"]

BLOCK = 64  # events whose assignments are listed at once
TOGETHER, KEPT = "together", "kept"

Floats = npt.NDArray[np.float64]


def networks_of(folder: Path) -> tuple[Recipe, dict[str, Network]]:
    """The recipe of a training, and its networks: kept, last, average."""
    kept, info = load_network(folder)
    recipe = parse_recipe(info.recipe)
    last = Network(recipe.topology, recipe.network, recipe.inputs)
    average = copy.deepcopy(last)
    load_state(folder / STATE, last, average, make_optimiser(last, recipe.optimiser))
    return recipe, {KEPT: kept, "last": last, "average": average}


def compare(networks: Mapping[str, Network], events: PackedEvents) -> dict[str, tuple[int, float, float]]:
    """Events, mean -log P(truth) and share that is right: of each network, and of those kept together."""
    sums = {name: np.zeros(3) for name in [*networks, TOGETHER]}
    for enumeration, nodes, truth in _blocks(next(iter(networks.values())), events):
        rows = index_of(enumeration, truth)
        chances = {name: _log_probabilities(network, enumeration, nodes) for name, network in networks.items()}
        together = np.mean([chance for name, chance in chances.items() if name.startswith(KEPT)], axis=0)
        chances[TOGETHER] = together - log_normaliser(together)[:, None]
        for name, chance in chances.items():
            right = chance.argmax(axis=1) == rows
            sums[name] += len(rows), -chance[np.arange(len(rows)), rows].sum(), right.sum()
    return {name: (int(n), loss / n, right / n) for name, (n, loss, right) in sums.items()}


def _blocks(network: Network, events: PackedEvents) -> Iterator[tuple[Enumeration, Nodes, npt.NDArray[np.int8]]]:
    for layout, group in events.groups.items():
        if network.topology.count_assignments(layout) > MAX_ASSIGNMENTS:
            continue
        (full,) = np.nonzero(present(network.topology, group.truth).all(axis=1))
        enumeration = enumerate_assignments(network.topology, layout)
        for rows in np.split(full, range(BLOCK, len(full), BLOCK)):
            yield enumeration, group.nodes(rows), np.array(group.truth[rows])


def _log_probabilities(network: Network, enumeration: Enumeration, nodes: Nodes) -> Floats:
    """(E, A)."""
    with asked(network):
        found = scores(enumeration, predictor(network)(nodes, None))
    return np.asarray(found - log_normaliser(found)[:, None])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("row")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = Plan(load_config(), options.target)
    trainings = plan.of_row(options.row)
    if not trainings:
        parser.exit(2, f"seeds: {options.target} has no row {options.row!r}\n")
    networks: dict[str, Network] = {}
    try:
        for each in trainings:
            recipe, found = networks_of(plan.model(each.name))
            networks |= {f"{kind} {each.seed}": network for kind, network in found.items()}
        samples = list(map(str, plan.train_samples(trainings[0].name)))
        with tempfile.TemporaryDirectory() as folder:
            fields = {kind: recipe.inputs.fields(kind) for kind in recipe.inputs.kinds}
            chunks = iterate(samples, topology=recipe.topology, fields=fields)
            how = recipe.topology, recipe.inputs
            _, events = pack(chunks, *how, folder=Path(folder), fractions=recipe.data.fractions)
            for name, (count, loss, right) in compare(networks, events).items():
                print(f"{name:10}  {count} events  -log P {loss:.4f}  e_event {right:.4f}")
    except PairtonError as error:
        parser.exit(2, f"seeds: {error}\n")


if __name__ == "__main__":
    main()
