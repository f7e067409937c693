"""Reads what a target made: evaluations, facts about its trainings, and the plan that made them.

They come from the folder of results, or from the small summary of a target that is kept with the code
(page/targets.py).
"""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from page.writing import wrapped
from plan import HERE, Plan

__all__ = ["Evaluation", "Results", "Trained"]

VALIDATED = ("validation", "e_event")  # kind and name in metrics.csv

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """One file of `pairton evaluate --json`."""

    name: str
    raw: Json = field(repr=False)

    @property
    def methods(self) -> Mapping[str, Json]:
        found: Mapping[str, Json] = self.raw["methods"]
        return found

    @property
    def bins(self) -> list[str]:
        """The multiplicity bins, without the inclusive one."""
        (cells, *_) = next(iter(self.methods.values()))["efficiency"].values()
        return [cell for cell in cells if cell != "inclusive"]

    def difference(self, first: str, second: str) -> Json | None:
        """First minus second on the same events, for the event and each type, by bin; None if not compared."""
        for each in self.raw["differences"]:
            if (each["first"], each["second"]) == (first, second):
                found: Json = each["efficiency"]
                return found
            if (each["first"], each["second"]) == (second, first):
                return {
                    what: {cell: _opposite(value) for cell, value in cells.items()}
                    for what, cells in each["efficiency"].items()
                }
        return None


def _opposite(value: Json) -> Json:
    if value["value"] is None:
        return value
    return {**value, "value": -value["value"], "low": -value["high"], "high": -value["low"]}


class Trained(NamedTuple):
    """Facts about a training, as far as they are known."""

    events: int | None = None  # it learned from
    steps: int | None = None
    parameters: int | None = None
    learning: Sequence[tuple[int, float]] = ()  # step and event efficiency of every validation


class Results:
    """A plan, and those of its results that exist. `kept`: from a summary, instead of the folder of results."""

    def __init__(self, plan: Plan, log: Callable[[str], None], kept: Json | None = None) -> None:
        self.plan, self.log, self.kept = plan, log, kept
        self.published: Json = yaml.safe_load((HERE / "published.yaml").read_text(encoding="utf-8"))

    @cached_property
    def evaluations(self) -> Mapping[str, Evaluation]:
        if self.kept is not None:
            return {name: Evaluation(name, raw) for name, raw in self.kept["evaluations"].items()}
        folder = self.plan.folder / "evaluations"
        return {
            path.stem: Evaluation(path.stem, json.loads(path.read_text(encoding="utf-8")))
            for path in sorted(folder.glob("*.json"))
        }

    def evaluation(self, name: str) -> Evaluation | None:
        """An evaluation; None, with a line in the log, if it does not exist."""
        found = self.evaluations.get(name)
        if found is None:
            self.log(f"no {self.plan.evaluation(name)}: left out")
        return found

    def symbol(self, what: str) -> str:
        return str(self.published["symbols"].get(what, what))

    def trained(self, training: str) -> Trained:
        """What is known about a training; nothing if it does not exist."""
        if self.kept is not None:
            return Trained(**self.kept["trainings"].get(training, {}))
        folder = self.plan.model(training)
        events = steps = None
        if (path := folder / "model.json").is_file():
            model = json.loads(path.read_text(encoding="utf-8"))
            events = model.get("data", {}).get("training_events")
            steps = model.get("recipe", {}).get("optimiser", {}).get("steps")
        return Trained(events, steps, _parameters(folder / "model.safetensors"), _learning(folder / "metrics.csv"))

    def command(self, evaluation: Evaluation) -> str:
        """The command of an evaluation, as a block, without paths of the machine."""
        return self.shown(str(evaluation.raw.get("command", "")))

    def shown(self, *commands: str) -> str:
        """Commands as a block. Files of the workflow are shown in results/, whatever the folder is called."""
        split = [[self._place(word) for word in shlex.split(command)] for command in commands]
        return wrapped([shlex.join(words) for words in split])

    def _place(self, word: str) -> str:
        kinds = "models|answers|evaluations|recipes|peers"
        ours = re.search(rf"(^|/)(data/[^/]+\.h5|{self.plan.target}/({kinds})/.+)$", word)
        if ours is not None:
            return f"results/{ours[2]}"
        if (recipe := re.search(r"/pairton/recipes/(.+)\.yaml$", word)) is not None:
            return recipe[1]
        if (recipe := re.search(r"(^|/)(workflow/.+\.yaml)$", word)) is not None:
            return recipe[2]
        return Path(word).name if Path(word).is_absolute() else word


def _parameters(weights: Path) -> int | None:
    """The number of parameters, from the header of a file of weights; None if it does not exist."""
    if not weights.is_file():
        return None
    with weights.open("rb") as file:
        header: Json = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(int(math.prod(entry["shape"])) for name, entry in header.items() if name != "__metadata__")


def _learning(metrics: Path) -> list[tuple[int, float]]:
    """Step and event efficiency of every validation, from metrics.csv; empty if it does not exist."""
    if not metrics.is_file():
        return []
    with metrics.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["kind"], row["name"]) == VALIDATED]
    return [(int(row["step"]), float(row["value"])) for row in rows]
