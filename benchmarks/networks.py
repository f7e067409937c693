"""Measure the rates of the paper's network and of others, in reconstruction and in training.

    python benchmarks/networks.py --events FILE [--threads N] [--recipes paper cpu ...] [--markdown F]

FILE has several thousand labelled all-hadronic events. Each network is trained for one step only: its rate does
not depend on its weights. Reconstruction is from events in memory to assignments, with the default decoding of the
model, by ONNX Runtime and by eager torch. All take turns in one run, and the median over rounds is given. The rate
of training is for one thread and in CPU time, with the preparation of batches and without validation: the
difference between a longer and a shorter training.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import pairton
from pairton.events import Events
from pairton.export import export_model
from pairton.models.model import Model
from pairton.network import Network
from pairton.training import Recipe, load_recipe, train
from programs import write_markdown

RECIPES = (
    "paper",
    "ablations/one_shot",
    "ablations/biased_transformer",
    "ablations/transformer",
    "iterative",
    "cpu",
)
ENGINES = ("onnx", "torch")
FEW, MORE = 3, 11  # steps of the two trainings


def short(recipe: Recipe, events: str, folder: Path, steps: int) -> float:
    """Train a recipe for some steps, and return the CPU time in seconds."""
    optimiser: Any = replace(recipe.optimiser, steps=steps, epochs=None, warm_up=0)
    run = replace(recipe.run, validate_every=steps, save_every=steps, devices=1, accelerator="cpu", seed=1)
    data = replace(recipe.data, validation_events=100)
    begun = time.process_time()
    train(replace(recipe, optimiser=optimiser, run=run, data=data), [events], folder)
    return time.process_time() - begun


def one_step(recipe: Recipe, events: str, folder: Path) -> Path:
    """Train a recipe for one step. Return the folder of the model, with its ONNX file."""
    short(recipe, events, folder, 1)
    if not (folder / "model.onnx").is_file():
        export_model(folder, folder / "model.onnx")
    return folder


def rate(model: Model, events: Events) -> float:
    begun = time.perf_counter()
    pairton.reconstruct(events, model)
    return len(events) / (time.perf_counter() - begun)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    events = pairton.read(options.events)[: options.count]
    rows: list[dict[str, Any]] = []
    models: list[dict[str, Model]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for k, name in enumerate(options.recipes):
            recipe = load_recipe(name)
            folder = one_step(recipe, options.events, Path(scratch) / str(k))
            models.append({e: pairton.load_model(folder, engine=e, threads=options.threads) for e in ENGINES})
            parameters = sum(
                p.numel() for p in Network(recipe.topology, recipe.network, recipe.inputs).parameters()
            )
            rows.append({"recipe": name, "decoding": models[-1]["onnx"].decoding, "parameters": parameters})
        for each in models:
            for model in each.values():
                rate(model, events[:256])  # warm up
        found: list[dict[str, list[float]]] = [{engine: [] for engine in ENGINES} for _ in models]
        for _ in range(options.rounds):
            for k, each in enumerate(models):
                for engine, model in each.items():
                    found[k][engine].append(rate(model, events))
    for row, rates in zip(rows, found, strict=True):
        row |= {engine: statistics.median(values) for engine, values in rates.items()}
    torch.set_num_threads(1)
    for row in rows:
        recipe = load_recipe(row["recipe"])
        with tempfile.TemporaryDirectory() as scratch:
            few, more = (short(recipe, options.events, Path(scratch) / str(n), n) for n in (FEW, MORE))
        seconds = (more - few) / (MORE - FEW)
        row |= {"batch": recipe.optimiser.batch, "seconds_per_step": seconds}
        row["training"] = recipe.optimiser.batch / seconds
    return rows


def table(rows: list[dict[str, Any]], options: argparse.Namespace, load: float) -> list[str]:
    head = ["recipe", "parameters", "decoding", *(f"{engine} [events/s]" for engine in ENGINES)]
    head += ["training [events/s]", "seconds per step"]
    cells = [head, ["---"] * len(head)]
    for row in rows:
        name = [f"`{row['recipe']}`", f"{row['parameters']:,}", row["decoding"]]
        rates = [f"{row[key]:.0f}" for key in (*ENGINES, "training")]
        cells.append([*name, *rates, f"{row['seconds_per_step']:.2f} (of {row['batch']})"])
    about = (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start; "
        f"{options.threads} threads, {options.count} events, median of {options.rounds} rounds; training: one."
    )
    return [about, "", *(f"| {' | '.join(line)} |" for line in cells)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", required=True, help="labelled all-hadronic events, several thousand")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--count", type=int, default=4096, help="events to reconstruct")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", type=Path, help="the page whose table to write")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    rows = measure(options)
    lines = table(rows, options, load)
    print("\n".join(lines))
    if options.markdown is not None:
        write_markdown(lines, options.markdown, "networks.py")


if __name__ == "__main__":
    main()
