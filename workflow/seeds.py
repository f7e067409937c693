"""The seeds of a row beside one another: the last weights, their average, what was kept, and all seeds together.

    python workflow/seeds.py cpu default

On the fully reconstructible validation events; for networks with the exact likelihood. Together: log P of what the
seeds kept is averaged, and normalised again. Temperatures are left out.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pairton.decoding.candidate_scores import candidate_scores
from pairton.decoding.set_sums import best, log_normaliser, log_scores, log_sums
from pairton.decoding.set_tables import SetTables, allowed_nodes, hypotheses, set_tables
from pairton.errors import PairtonError
from pairton.events.nodes import Nodes
from pairton.formats import iterate
from pairton.network import Network
from pairton.network.engine import load_network, predictor
from pairton.topology.assignments import canonical, present
from pairton.training.data import PackedEvents, pack
from pairton.training.loop import make_optimiser
from pairton.training.recipes import Recipe, parse_recipe
from pairton.training.resume_state import STATE, load_state
from pairton.training.validation import asked
from plan import Plan, load_config

__all__ = ["compare", "networks_of"]

BLOCK = 256  # events at once
TOGETHER, KEPT, TERMS = "together", "kept", "terms of patterns"

Floats = npt.NDArray[Any]


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
    for tables, nodes, truth in _blocks(next(iter(networks.values())), events):
        answers = {name: _answer(network, tables, nodes) for name, network in networks.items()}
        kept = [answer for name, answer in answers.items() if name.startswith(KEPT)]
        # the mean of log P is that of the scores, but for a constant
        answers[TOGETHER] = {name: np.mean([answer[name] for answer in kept], axis=0) for name in kept[0]}
        for name, answer in answers.items():
            sums[name] += len(truth), *_scored(tables, answer, truth)
    return {name: (int(n), loss / n, right / n) for name, (n, loss, right) in sums.items()}


def _blocks(network: Network, events: PackedEvents) -> Iterator[tuple[SetTables, Nodes, npt.NDArray[np.int8]]]:
    topology = network.topology
    for layout, group in events.groups.items():
        (full,) = np.nonzero(present(topology, group.truth).all(axis=1))
        tables = set_tables(topology, allowed_nodes(topology, layout), not network.config.patterns)
        for rows in np.split(full, range(BLOCK, len(full), BLOCK)):
            yield tables, group.nodes(rows), np.array(group.truth[rows])


def _answer(network: Network, tables: SetTables, nodes: Nodes) -> dict[str, Floats]:
    """Scores of the candidates of each type (C, E), and if the network has them terms of patterns (P, E)."""
    with asked(network):
        outputs = predictor(network)(nodes, None)
    terms = {TERMS: outputs["patterns"].T} if network.config.patterns else {}
    return {**candidate_scores(tables, outputs), **terms}


def _scored(tables: SetTables, answer: Mapping[str, Floats], truth: npt.NDArray[np.int8]) -> tuple[float, float]:
    """The sum of -log P(truth), and how many events are right."""
    terms, true = answer.get(TERMS), hypotheses(tables, truth)
    chance = log_scores(tables, answer, true, terms) - log_normaliser(log_sums(tables, answer, terms))
    found = best(tables, answer, terms, patterns=[0]).assignment[0, :, 0]
    right = (found == canonical(tables.topology, truth)).all(axis=1)
    return -float(chance.sum()), float(right.sum())


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
            _, events = pack(chunks, *how, folder=Path(folder), config=recipe.data, max_objects=recipe.max_objects)
            for name, (count, loss, right) in compare(networks, events).items():
                print(f"{name:10}  {count} events  -log P {loss:.4f}  e_event {right:.4f}")
    except PairtonError as error:
        parser.exit(2, f"seeds: {error}\n")


if __name__ == "__main__":
    main()
