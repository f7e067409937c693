"""Reads what the pages show: evaluations, facts about trainings, and the plan that made them.

They come from the folder of results of a target, or from small summaries that are kept with the code: of models
and of targets, with the part of their evaluations that pages need, in the form of `pairton evaluate --json`.
"""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pairton._common.atomic import replacing
from plan import HERE, Plan

__all__ = [
    "EVENT",
    "INCLUSIVE",
    "SUMMARIES",
    "TARGETS",
    "Evaluation",
    "Results",
    "Trained",
    "keep_model",
    "keep_target",
    "kept_models",
    "kept_targets",
    "typed_command",
]

SUMMARIES = HERE / "summaries"  # of models; those of targets are in its folder TARGETS
TARGETS = "targets"
SHIPPED = HERE / "shipped.yaml"
EVENT, INCLUSIVE = "event", "inclusive"
VALIDATED = ("validation", "e_event")  # kind and name in metrics.csv
DIGITS = 5
UNSHOWN = ("--threads", "--json", "--report", "--jobs")  # options that do not change the numbers

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """One file of `pairton evaluate --json`, or its summary."""

    name: str
    raw: Json = field(repr=False)
    words: Json = field(default_factory=dict, repr=False)  # title, labels of methods, ... for the page

    @property
    def title(self) -> str:
        return str(self.words.get("title", self.name))

    def label(self, method: str) -> str:
        return str(self.words.get("labels", {}).get(method, method))

    @property
    def methods(self) -> Mapping[str, Json]:
        found: Mapping[str, Json] = self.raw["methods"]
        return found

    @property
    def first(self) -> str:
        return next(iter(self.methods))

    @property
    def bins(self) -> list[str]:
        """The multiplicity bins, without the inclusive one."""
        return [where for where in self.methods[self.first]["efficiency"][EVENT] if where != INCLUSIVE]

    def difference(self, first: str, second: str) -> Json | None:
        """First minus second in event efficiency, on the same events; None if not compared."""
        for each in self.raw["differences"]:
            found: Json = each["efficiency"][EVENT][INCLUSIVE]
            if (each["first"], each["second"]) == (first, second):
                return found
            if (each["first"], each["second"]) == (second, first):
                if found["value"] is None:
                    return found
                return {"value": -found["value"], "low": -found["high"], "high": -found["low"]}
        return None


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
            found = dict(self.kept["evaluations"])
        else:
            paths = sorted((self.plan.folder / "evaluations").glob("*.json"))
            found = {path.stem: _read(path) for path in paths}
        return {name: Evaluation(name, raw, self._words(name, raw)) for name, raw in found.items()}

    def _words(self, name: str, raw: Json) -> Json:
        labels = {method: self.plan.label(method) for method in raw["methods"]}
        return {"title": name, **self.plan.evaluations.get(name, {}), "labels": labels}

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
        model = _read(folder / "model.json") if (folder / "model.json").is_file() else {}
        return Trained(
            model.get("data", {}).get("training_events"),
            model.get("recipe", {}).get("optimiser", {}).get("steps"),
            _parameters(folder / "model.safetensors"),
            _learning(folder / "metrics.csv"),
        )

    def shown(self, *commands: str) -> list[str]:
        """Commands without places of this machine; files of the workflow are shown in results/."""
        return [shlex.join(map(self._place, shlex.split(command))) for command in commands]

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


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


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


# -- summaries ---------------------------------------------------------------------------------------------


def summarise(raw: Json) -> dict[str, Any]:
    """The part of a file of `pairton evaluate --json` that pages need, in the same form."""
    return {
        "command": typed_command(str(raw.get("command", ""))),
        **{name: raw.get(name) for name in ("pairton_version", "topology", "events", "complete")},
        "methods": {name: _method(method) for name, method in raw["methods"].items()},
        "differences": [
            {
                **{which: each[which] for which in ("first", "second")},
                "efficiency": {EVENT: {INCLUSIVE: _numbers(each["efficiency"][EVENT][INCLUSIVE], "value")}},
            }
            for each in raw["differences"]
        ],
    }


def _method(method: Json) -> dict[str, Any]:
    found: dict[str, Any] = {
        "efficiency": {
            what: {where: _numbers(value, "value") for where, value in cells.items()}
            for what, cells in method["efficiency"].items()
        }
    }
    if (known := method.get("calibration_all", {}).get(EVENT)) is not None:
        bins = [_numbers(each, "probability", "value", "total") for each in known["bins"]]
        found["calibration_all"] = {EVENT: _numbers(known, "probability", "right") | {"bins": bins}}
    return found | ({"flow": method["flow"]} if "flow" in method else {})


def _numbers(found: Json, *names: str) -> dict[str, Any]:
    """Some numbers and their interval, rounded."""
    values = {name: found.get(name) for name in (*names, "low", "high")}
    return {name: round(value, DIGITS) for name, value in values.items() if value is not None}


def typed_command(typed: str) -> str:
    """A command without paths of the machine, and without options that do not change the numbers.

    >>> typed_command("pairton evaluate /somewhere/test.h5 --threads 1 --baseline chi2 --json /tmp/x.json")
    'pairton evaluate test.h5 --baseline chi2'
    """
    words = shlex.split(typed)
    for option in UNSHOWN:
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    return shlex.join(Path(word).name if word.startswith("/") else word for word in words)


def keep_model(name: str, evaluation: Path, folder: Path = SUMMARIES) -> Path:
    """Write the summary of an evaluation under the name of a model."""
    if name not in (words := yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))):
        raise SystemExit(f"results: no model {name!r} in {SHIPPED.name}: it has {', '.join(words)}")
    return _write(folder / f"{name}.json", summarise(_read(evaluation)))


def keep_target(results: Results, folder: Path = SUMMARIES) -> Path:
    """Write the summary of a target, from its folder of results."""
    names = {name: results.evaluation(name) for name in results.plan.evaluated}
    evaluations = {name: summarise(found.raw) for name, found in names.items() if found is not None}
    if not evaluations:
        raise SystemExit(f"results: {results.plan.folder} has no evaluation to keep")
    known = {name: results.trained(name)._asdict() for name in results.plan.trainings}
    trainings = {name: each for name, each in known.items() if any(each.values())}
    path = folder / TARGETS / f"{results.plan.target}.json"
    return _write(path, {"evaluations": evaluations, "trainings": trainings})


def _write(path: Path, values: Json) -> Path:
    """Write JSON, a line for each key, so that a change is seen in a diff."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
        temporary.write_text(f"{{{lines}}}\n", encoding="utf-8")
    return path


def kept_models(folder: Path = SUMMARIES) -> tuple[list[Evaluation], list[str]]:
    """The existing summaries of models, in the order of shipped.yaml, and the names of models without one."""
    words = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    existing = [name for name in words if (folder / f"{name}.json").is_file()]
    found = [Evaluation(name, _read(folder / f"{name}.json"), words[name]) for name in existing]
    return found, [name for name in words if name not in existing]


def kept_targets(folder: Path = SUMMARIES) -> Iterator[tuple[str, Json]]:
    """Name and summary of every target that has one."""
    for path in sorted((folder / TARGETS).glob("*.json")):
        yield path.stem, _read(path)
