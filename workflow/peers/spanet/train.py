"""Train SPANet on events in its layout for a given time: python train.py --data train.h5 --minutes 60 --out spanet

The time is CPU time of this process per thread, without reading and validation. Step, loss, optimiser and schedule
are SPANet's, but the schedule depends on the time instead of epochs. As in SPANet, the weights with the best
validation efficiency are kept.
"""

from __future__ import annotations

import argparse
import math
import platform
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import EVENT, HERE, by_jet_count, check_events, fail, make_model, take, use_threads, write
from spanet import JetReconstructionModel, Options
from spanet.dataset.types import Batch, Source

WARM_UP = 0.03  # share of the time over which the learning rate rises
RESOLUTION = 10_000  # steps of the schedule over the whole time
VALIDATION_BATCH = 512


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="events in SPANet's layout, with truth")
    parser.add_argument("--minutes", type=float, required=True, help="CPU minutes per thread")
    parser.add_argument("--out", type=Path, required=True, help="folder for weights, options and history")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--options", type=Path, default=HERE / "options.json", help="SPANet's options")
    parser.add_argument("--event", type=Path, default=HERE / EVENT, help="SPANet's event file: inputs and targets")
    parser.add_argument("--batch", type=int, help="instead of the options' batch_size")
    parser.add_argument("--validations", type=int, default=20, help="number of validations")
    parser.add_argument(
        "--augment", action="store_true", help="rotate in phi and reflect in eta at random; SPANet does not"
    )
    parser.add_argument("--full-events", action="store_true", help="no partly reconstructible events")
    parser.add_argument("--resume", action="store_true", help="continue from the last validation in --out")
    return parser.parse_args()


class Augmentation:
    """A random rotation in phi and reflection in eta for each event."""

    def __init__(self, model: JetReconstructionModel) -> None:
        features = model.event_info.input_features.values()
        self.columns = [{feature.name: k for k, feature in enumerate(each)} for each in features]

    def __call__(self, batch: Batch) -> Batch:
        n = len(batch.sources[0].data)
        turn = 2 * math.pi * torch.rand(n, 1)
        side = 2 * torch.randint(2, (n, 1)) - 1
        sources = []
        for column, (data, mask) in zip(self.columns, batch.sources, strict=True):
            data = data.clone()
            if "phi" in column:
                phi = column["phi"]
                data[..., phi] = torch.remainder(data[..., phi] + turn, 2 * math.pi) - math.pi
            if "sin_phi" in column:
                k, j = column["sin_phi"], column["cos_phi"]
                sin, cos = data[..., k].clone(), data[..., j].clone()
                data[..., k] = sin * torch.cos(turn) + cos * torch.sin(turn)
                data[..., j] = cos * torch.cos(turn) - sin * torch.sin(turn)
            if "eta" in column:
                data[..., column["eta"]] *= side
            sources.append(Source(data, mask))
        return batch._replace(sources=tuple(sources))


def efficiency(model: JetReconstructionModel) -> float:
    """Share of fully reconstructible validation events with every particle right, by SPANet's evaluator.

    Its `validation_accuracy` cannot be used: in 2.1.1 it depends on the order of q1 and q2.
    """
    model.eval()
    right = 0.0
    for rows in by_jet_count(model.validation_dataset, VALIDATION_BATCH, None):
        batch = take(model.validation_dataset, rows)
        truth = [[part.numpy() for part in column] for column in zip(*batch.assignment_targets, strict=True)]
        ordered = model.evaluator.sort_outputs(model.predict_assignments(batch.sources), *truth)
        right += len(rows) * float(model.evaluator.event_purity(*ordered))
    model.train()
    return right / len(model.validation_dataset)


class Training:
    """A training, with the state that --resume needs."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.options = Options.load(str(args.options))
        if args.full_events:
            self.options.partial_events = False
        self.options.batch_size = args.batch or self.options.batch_size
        self.model = model = make_model(self.options, args.data, args.event)
        model.training_dataset.limit_dataset_to_partial_events()  # events without a complete top add nothing
        model.validation_dataset.limit_dataset_to_full_events()
        model.total_steps, model.warmup_steps = RESOLUTION, round(WARM_UP * RESOLUTION)
        (self.optimiser,), (schedule,) = model.configure_optimizers()
        self.schedule = schedule["scheduler"].lr_lambdas[0]
        self.augment = Augmentation(model) if args.augment else lambda batch: batch
        self.rng = np.random.default_rng(args.seed)
        self.budget = 60 * args.minutes * args.threads
        self.spent, self.steps, self.events, self.best = 0.0, 0, 0, -1.0
        self.history: list[dict[str, float]] = []

    def run(self, until: float) -> float:
        """Train until that much time is spent. Return the mean loss."""
        losses: list[torch.Tensor] = []
        before, start = self.spent, time.process_time()
        while self.spent < until:
            for rows in by_jet_count(self.model.training_dataset, self.options.batch_size, self.rng):
                losses.append(self.step(self.augment(take(self.model.training_dataset, rows))))
                self.events += len(rows)
                self.spent = before + time.process_time() - start
                if self.spent >= until:
                    break
        return float(torch.stack(losses).mean()) if losses else math.nan

    def step(self, batch: Batch) -> torch.Tensor:
        share = self.schedule(RESOLUTION * min(1.0, self.spent / self.budget))
        for group in self.optimiser.param_groups:
            group["lr"] = self.options.learning_rate * share
        self.optimiser.zero_grad()
        loss = self.model.training_step(batch, self.steps)
        loss.backward()
        if self.options.gradient_clip > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.gradient_clip)
        self.optimiser.step()
        self.steps += 1
        return loss.detach()

    def state(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("spent", "steps", "events", "best", "history", "budget")}
        return {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "own": own}

    def restore(self, state: dict[str, Any], seed: int) -> None:
        if state["own"]["budget"] != self.budget:
            fail("--resume needs the --minutes and --threads that the training was started with")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        for name, value in state["own"].items():
            setattr(self, name, value)
        torch.manual_seed(seed + self.steps)
        self.rng = np.random.default_rng([seed, self.steps])


def summary(args: argparse.Namespace, training: Training) -> dict[str, Any]:
    model = training.model
    return {
        "spanet": version("spanet"),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "data": args.data.name,
        "seed": args.seed,
        "threads": args.threads,
        "minutes": args.minutes,
        "augment": args.augment,
        "partial_events": bool(training.options.partial_events),
        "batch": training.options.batch_size,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "training_events": len(model.training_dataset),
        "complete": int(
            torch.stack([mask for _, mask in model.training_dataset.assignments.values()]).all(0).sum()
        ),
        "validation_events": len(model.validation_dataset),
        "event_passes": training.events,
        "steps": training.steps,
        "cpu_minutes": training.spent / 60,
        "best_validation_efficiency": training.best,
        "history": training.history,
    }


def main() -> None:
    args = arguments()
    if args.minutes <= 0 or args.validations < 1:
        fail("--minutes and --validations must be positive")
    check_events(args.data, args.event)
    resumed = args.resume and (args.out / "state.pt").is_file()
    if not args.resume and args.out.is_dir() and any(args.out.iterdir()):
        fail(f"{args.out}: is not empty; name another folder, or continue with --resume")
    use_threads(args.threads)
    training = Training(args)
    if not len(training.model.training_dataset) or not len(training.model.validation_dataset):
        fail(f"{args.data}: no event left to train on, or none fully reconstructible to validate on")
    if resumed:
        training.restore(torch.load(args.out / "state.pt", weights_only=True), args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(args.event, args.out / EVENT)
    training.options.save(str(args.out / "options.json"))
    for look in range(len(training.history) + 1, args.validations + 1):
        loss = training.run(training.budget * look / args.validations)
        found = efficiency(training.model)
        training.history.append(
            {"cpu_minutes": training.spent / 60, "steps": training.steps, "loss": loss, "efficiency": found}
        )
        if found >= training.best:
            training.best = found
            write(args.out / "weights.pt", training.model.state_dict())
        write(args.out / "state.pt", training.state())
        write(args.out / "training.json", summary(args, training))
        print(
            f"{training.spent / 60:8.2f} CPU min  {training.steps:7d} steps  {training.events:9d} event passes  "
            f"loss {loss:.4f}  validation e_event {found:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
