"""What the workflow simulates, trains and evaluates, as a shell script.

    python workflow/plan.py long | nice sh -e                     all of a target, one after the other
    python workflow/plan.py long --only paper-1 | nice sh -e      one training, evaluation or sample: a job of many

What is complete is not made again, and what was interrupted goes on: the same line starts it and resumes it. Needs
PyYAML alone.

    <results>/data/SAMPLE.h5                          events
    <results>/TARGET/recipes/NAME-SEED.yaml           a recipe that changes another one
    <results>/TARGET/models/NAME-SEED/                what `pairton train --out` makes
    <results>/TARGET/answers/NAME-SEED/               what `pairton reconstruct --resume` makes of the test events
    <results>/TARGET/evaluations/NAME.json            what `pairton evaluate --json` makes
    <results>/TARGET/peers/EVALUATION/                answers of other methods
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["HERE", "RECIPES", "Plan", "Study", "Training", "load_config"]

HERE = Path(__file__).resolve().parent
RECIPES = HERE.parent / "src" / "pairton" / "recipes"
CHECKS = 8  # validations and states of a training whose steps are given
WARM_UP = 20  # part of such a training
FOLDERS = ("recipes", "models", "answers", "evaluations", "peers")


def load_config(path: str | Path | None = None) -> dict[str, Any]:
    found = yaml.safe_load(Path(path or HERE / "config.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@dataclass(frozen=True)
class Training:
    """One training: a row of a table, with a seed."""

    row: str
    seed: int
    base: Path  # the recipe it uses, or changes
    label: str
    steps: int | None = None
    change: Mapping[str, Any] = field(default_factory=dict)
    samples: tuple[str, ...] = ()  # it learns from

    @property
    def name(self) -> str:
        return f"{self.row}-{self.seed}"

    def recipe(self, folder: Path) -> str:
        """The recipe as YAML, to be put in a folder; settings that depend on the steps follow them."""
        changes: dict[str, Any] = {}
        if self.steps is not None:
            every = math.ceil(self.steps / CHECKS)
            changes["optimiser"] = {"steps": self.steps, "warm_up": max(1, self.steps // WARM_UP)}
            changes["run"] = {"validate_every": every, "save_every": every}
        for section, settings in self.change.items():
            changes[section] = _changed(changes.get(section, {}), settings)
        return yaml.safe_dump({"base": _relative(self.base, folder), **changes}, sort_keys=False)


@dataclass(frozen=True)
class Study:
    """Trainings that are compared on the same events."""

    name: str
    title: str
    rows: Sequence[str]
    against: str | None = None  # compare each with this one; otherwise with the one before it
    published: bool = False  # the paper has these rows, and claims this order
    cells: bool = False  # show each efficiency by number of jets too, beside the first table of the paper


class Plan:
    """Everything of one target."""

    def __init__(self, config: Mapping[str, Any], target: str) -> None:
        if target not in config["targets"]:
            raise SystemExit(f"no target {target!r}: choose one of {', '.join(config['targets'])}")
        self.config, self.target = config, target
        self.settings: Mapping[str, Any] = config["targets"][target]
        self.pairton, self.python = str(config["pairton"]), str(config["python"])
        self.results = Path(config["results"])
        self.folder = self.results / target
        self.trainings = {each.name: each for each in self._trainings()}
        self.studies = {name: Study(name, **raw) for name, raw in self.settings.get("studies", {}).items()}
        self.evaluations: Mapping[str, Any] = self.settings.get("evaluations", {})

    def _trainings(self) -> Iterator[Training]:
        for row, raw in self.settings.get("trainings", {}).items():
            changes: dict[str, Any] = {}
            short = self.settings.get("short", {}) if "steps" in raw else {}
            for each in self.settings.get("every", {}), short, raw.get("change", {}):  # the later wins
                for section, values in each.items():
                    changes[section] = _changed(changes.get(section, {}), values)
            own, label = HERE / raw["recipe"], raw.get("label", row)
            base = own if own.is_file() else RECIPES / f"{raw['recipe']}.yaml"
            samples = (self.settings["train"], *raw.get("more", ()))
            for seed in raw.get("seeds", [1]):
                yield Training(row, seed, base, label, raw.get("steps"), changes, samples)

    def peers(self, name: str) -> list[str]:
        """The other methods of an evaluation: those that give answers in a file, and those that were asked for."""
        asked = self.config.get("peers") or []
        wanted = self.evaluations.get(name, {}).get("peers") or []
        return [each for each in wanted if each in asked or "train" not in self.config["known_peers"][each]]

    @property
    def evaluated(self) -> list[str]:
        """Evaluations and studies that `pairton evaluate` is called for."""
        return [*self.evaluations, *self.studies]

    @property
    def answered(self) -> set[str]:
        """Trainings whose answers to the test events are compared."""
        return {each for name in self.evaluated if name in self.studies for each in self.compared(name)}

    def of_row(self, row: str) -> list[Training]:
        """All seeds of a row."""
        return [each for each in self.trainings.values() if each.row == row]

    def label(self, name: str) -> str:
        """What a method of an evaluation is called on the page: a training, a file of answers, a model."""
        stem, _, decoding = re.sub(r"\.(h5|root|parquet)$", "", name).partition(":")
        if decoding:
            return f"{self.label(stem)}, {decoding.replace('_', ' ')}"
        if stem in self.trainings:
            return self.trainings[stem].label
        if stem in self.config.get("known_peers", {}):
            return str(self.config["known_peers"][stem]["label"])
        return str(self.config.get("labels", {}).get(stem, stem))

    # -- files ---------------------------------------------------------------------------------------------

    def sample(self, name: str) -> Path:
        return self.results / "data" / f"{name}.h5"

    @property
    def samples(self) -> list[str]:
        """All events of the target: to test on, to train on, more to train on."""
        of_target = [self.settings[kind] for kind in ("test", "train") if kind in self.settings]
        of_trainings = [sample for each in self.trainings.values() for sample in each.samples]
        of_evaluations = [raw["test"] for raw in self.evaluations.values() if "test" in raw]
        learn = (raw["train"] for name, raw in self.evaluations.items() if "train" in raw and self.learning(name))
        return list(dict.fromkeys((*of_target, *of_trainings, *of_evaluations, *learn)))

    def learning(self, name: str) -> list[str]:
        """The other methods of an evaluation that are trained."""
        return [each for each in self.peers(name) if "train" in self.config["known_peers"][each]]

    def train_samples(self, training: str) -> list[Path]:
        return [self.sample(name) for name in self.trainings[training].samples]

    def test_sample(self, name: str = "") -> Path:
        """The events of an evaluation, by default those of the target."""
        return self.sample(self.evaluations.get(name, {}).get("test") or self.settings["test"])

    def model(self, training: str) -> Path:
        return self.folder / "models" / training

    def answers(self, training: str) -> Path:
        return self.folder / "answers" / training

    def evaluation(self, name: str) -> Path:
        return self.folder / "evaluations" / f"{name}.json"

    def peer(self, evaluation: str, name: str) -> Path:
        """The answers of another method."""
        file = str(self.config["known_peers"][name].get("answers", f"{name}.h5"))
        return self.folder / "peers" / evaluation / file

    @property
    def page(self) -> Path:
        """The folder of results.md."""
        return self.folder / "page"

    def recipe(self, training: str) -> Path:
        """A file of our own where something is changed, the recipe itself elsewhere."""
        each = self.trainings[training]
        if each.steps is None and not each.change:
            return Path(_relative(each.base, Path.cwd()))
        return self.folder / "recipes" / f"{training}.yaml"

    # -- commands ------------------------------------------------------------------------------------------

    def sample_command(self, name: str) -> str:
        raw = self.config["samples"][name]
        output = self.sample(name)
        if "files" in raw:
            files = self.config[raw["files"]] or f"FILES_OF_{raw['files'].upper()}"
            split = " ".join(f"--split {each}" for each in raw["split"])
            return f"{self.python} {_here('split.py')} {files} {split} -o {output}"
        own = raw["topology"].endswith(".yaml")
        topology = _here(raw["topology"]) if own else raw["topology"]
        command = f"{self.pairton} generate {topology} -n {raw['events']} --seed {raw['seed']}"
        return f"{command} {raw['options']} -o {output}".replace("  ", " ")

    def train_command(self, training: str) -> str:
        each = self.trainings[training]
        recipe, out = self.recipe(training), self.model(training)
        data = " ".join(f"--data {path}" for path in self.train_samples(training))
        return f"{self.pairton} train {recipe} {data} --out {out} --seed {each.seed}"

    def answer_command(self, training: str) -> str:
        return (
            f"{self.pairton} reconstruct {self.test_sample()} --model {self.model(training)}"
            f" -o {self.answers(training)} --resume"
        )

    def compared(self, name: str) -> list[str]:
        """The trainings that an evaluation or a study needs."""
        if name in self.studies:
            return [each.name for row in self.studies[name].rows for each in self.of_row(row)]
        rows = [row for row in self.evaluations[name]["models"] if self.of_row(row)]
        return [self.of_row(row)[0].name for row in rows]

    def evaluation_command(self, name: str) -> str:
        parts = [f"{self.pairton} evaluate {self.test_sample(name)}"]
        if name in self.studies:
            parts += [f"--assignments {self.answers(training)}" for training in self.compared(name)]
        else:
            raw = self.evaluations[name]
            for row in raw["models"]:
                trained = self.of_row(row)
                parts.append(f"--model {self.model(trained[0].name) if trained else row}")
            parts += [raw["options"]] if raw.get("options") else []
            for peer in self.peers(name):
                path = self.peer(name, peer)
                given = f"--assignments {path}"
                parts.append(given if peer in self.learning(name) else f"$(test ! -e {path} || echo {given})")
        return " ".join([*parts, f"--json {self.evaluation(name)}"])

    def peer_commands(self, evaluation: str, name: str) -> list[str]:
        """Train another method and predict with it, or write the events in its layout."""
        raw, asked = self.config["known_peers"][name], self.evaluations[evaluation]
        output = self.peer(evaluation, name)
        known = {
            "python": raw.get("python", self.python),
            "pairton": self.pairton,
            "here": _here(""),
            "train": self.sample(asked.get("train") or self.settings.get("train", "")),
            "test": self.test_sample(evaluation),
            "event": asked.get("event", "event.yaml"),
            "minutes": raw.get("minutes"),
            "more": asked.get("more", {}).get(name, ""),
            "folder": output.parent / name,
            "output": output,
        }
        return [raw[step].format(**known).rstrip() for step in ("train", "predict", "layout") if step in raw]

    def page_command(self) -> str:
        return f"{self.python} {_here('results.py')} {self.target} --results {self.results} --page {self.page}"

    # -- all of them, in an order that works ----------------------------------------------------------------

    def script(self) -> Iterator[tuple[str, str]]:
        """Name and command of every job; each does nothing if its output is complete."""
        folders = [self.results / "data", *(self.folder / each for each in FOLDERS)]
        folders += [self.folder / "peers" / name for name in self.evaluations if self.peers(name)]
        yield (
            "folders",
            f"mkdir -p {' '.join(map(str, folders))}",
        )
        for sample in self.samples:
            more = " --resume" if "seed" in self.config["samples"][sample] else ""
            yield sample, _unless(self.sample(sample), f"{self.sample_command(sample)}{more}")
        for name, training in self.trainings.items():
            recipe, model = self.recipe(name), self.model(name)
            if recipe.is_relative_to(self.folder):
                text = training.recipe(recipe.parent)
                yield name, f"cat > {recipe} <<'END'\n{text}END"
            resume = f"$(test ! -e {model}/state.safetensors || echo --resume)"
            yield name, _unless(f"{model}.done", f"{self.train_command(name)} {resume}; touch {model}.done")
            if name in self.answered:
                yield name, self.answer_command(name)
        for name in self.evaluations:
            for peer in self.peers(name):
                yield from ((f"{name}/{peer}", command) for command in self.peer_commands(name, peer))
        for name in self.evaluated:
            yield name, self.evaluation_command(name)
        yield "page", self.page_command()


def _changed(settings: Any, change: Any) -> Any:
    """A section of a recipe, changed; what is no section, such as `stages`, is replaced."""
    return {**settings, **change} if isinstance(change, Mapping) else change


def _unless(made: Path | str, command: str) -> str:
    """Under `sh -e` a failure ends the script; after `||` or before `&&` it would not."""
    return f"if ! test -e {made}; then {command}; fi"


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder.resolve())


def _here(name: str) -> str:
    return _relative(HERE / name, Path.cwd())


def main() -> None:
    parser = argparse.ArgumentParser(description="The commands of a target of the workflow, as a shell script.")
    parser.add_argument("target")
    parser.add_argument("--only", metavar="NAME", action="append", help="Of one sample, training or evaluation.")
    parser.add_argument("--config", help="Another config.yaml.")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="Of config.yaml.")
    options = parser.parse_args()
    changed = {key: yaml.safe_load(value) for key, _, value in (entry.partition("=") for entry in options.set)}
    plan = Plan(load_config(options.config) | changed, options.target)
    for name, command in plan.script():
        if options.only is None or name in ("folders", *options.only):
            print(command)


if __name__ == "__main__":
    main()
