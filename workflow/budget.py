"""Measures how many steps of each training fit into a given time on one core, to choose the steps in config.yaml.

    python workflow/budget.py cpu --data events.h5 [--only transformer]

It measures CPU time, on which other programs have little effect. The time per step is the difference between a
longer and a shorter training, so that start-up and validation cancel.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairton.training import Recipe, load_recipe, train
from plan import Plan, load_config

__all__ = ["seconds_per_step"]

FEW, MORE = 3, 11  # steps


def seconds_per_step(recipe: Recipe, data: str) -> float:
    """CPU seconds of one step on one thread."""
    _seconds(recipe, data, 1)  # warm up
    few = _seconds(recipe, data, FEW)
    return (_seconds(recipe, data, MORE) - few) / (MORE - FEW)


def _seconds(recipe: Recipe, data: str, steps: int) -> float:
    optimiser: Any = replace(recipe.optimiser, steps=steps, epochs=None, warm_up=0)
    run = replace(recipe.run, validate_every=steps, save_every=steps, devices=1, accelerator="cpu", seed=1)
    short = replace(recipe, optimiser=optimiser, run=run, data=replace(recipe.data, validation_events=100))
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        if not train(short, [data], Path(folder) / "model").finished:
            raise SystemExit("budget: interrupted")
        return time.process_time() - begun


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--data", required=True, help="labelled events, several thousand")
    parser.add_argument("--only", metavar="NAME", action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = Plan(load_config(), options.target)
    rows = {each.row: each for each in plan.trainings.values() if each.steps is not None}
    for name, training in rows.items():
        if options.only is None or name in options.only:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "recipe.yaml"
                path.write_text(training.recipe(path.parent))
                each = seconds_per_step(load_recipe(path), options.data)
            minutes = training.minutes or float(plan.settings["minutes"])
            steps = 60 * minutes / each
            print(f"{name:20} {each:6.3f} s per step: {steps:.0f} steps in {minutes:g} minutes", flush=True)


if __name__ == "__main__":
    main()
