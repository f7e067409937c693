"""The training loop, on Lightning Fabric.

Random numbers depend only on the seed and the step, so a training that is interrupted and resumed gives exactly
the same weights as one that is not. They are drawn for the whole batch, so they do not depend on the number of
processes.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairton._common.parallel import handled
from pairton.errors import TrainingError
from pairton.models.storage import ModelInfo, read_info, save_model
from pairton.network import Network
from pairton.network.engine import load_network, predictor
from pairton.network.transfer import check_same_network, transferred
from pairton.topology import collection_name
from pairton.training.batch import Batch, BatchPlan, Drawn, Sampler, make_batch
from pairton.training.calibration import CALIBRATED, fit_temperatures
from pairton.training.data import PackedEvents
from pairton.training.logs import Logs
from pairton.training.losses import LOSSES
from pairton.training.measuring import domain_of, pattern_fractions
from pairton.training.optimising import learning_rate, make_optimiser, update_average
from pairton.training.recipes import Recipe, parse_recipe
from pairton.training.resume_state import STATE, load_state, save_state
from pairton.training.validation import averages, blocks, count_events, first_answers, validated

__all__ = ["Result", "Trainer"]

CALIBRATION_EVENTS = 5000  # largest number of validation events that temperatures are fitted on
FREE = {  # settings that may change when a training is resumed
    "data.memory_gib",
    *(f"run.{name}" for name in ("compile", "validate_every", "save_every", "log_every")),
    *(f"run.{name}" for name in ("accelerator", "devices", "nodes")),
}


@dataclass
class Result:
    """How a training ended."""

    step: int  # steps taken
    steps: int  # steps planned
    best: dict[str, float]  # validation efficiencies of the model that was kept
    leads: bool = True  # whether this process, of several, prints and writes
    fold: tuple[int, int] | None = None  # the fold that was trained last, and how many there are
    interrupted: bool = False  # by a signal, perhaps in the last step

    @property
    def finished(self) -> bool:
        return self.step >= self.steps and (self.fold is None or self.fold[0] == self.fold[1] - 1)


class Trainer:
    """Trains a recipe on packed events and writes to the folder `out`. Every process calls `run`, once.

    Raises TrainingError if the training cannot start or be resumed, before anything is written.
    """

    def __init__(
        self,
        recipe: Recipe,
        train: PackedEvents,
        validation: PackedEvents,
        out: Path,
        *,
        init: str | Path | None = None,
        progress: dict[str, Any] | None = None,
    ) -> None:
        """`progress` is that of the saved state in `out`, to resume from it."""
        self.recipe, self.train_events, self.validation_events, self.out = recipe, train, validation, out
        self.init, self.progress = init, progress
        balance = len(recipe.topology.trees) > 1 and not recipe.loss.settings["mixture"]
        self.plan = BatchPlan(train.counts, recipe.optimiser.batch, recipe.run.seed, balance)
        epochs = recipe.optimiser.epochs
        self.steps = recipe.optimiser.steps or math.ceil((epochs or 0) * self.plan.steps_per_epoch)
        self.training, self.validation = Sampler(recipe, train), Sampler(recipe, validation)
        if progress is not None:
            self._check_resume(progress)
        self.seen = self._seen()
        self.network = self._network()

    # -- one step ------------------------------------------------------------------------------------------

    def parts(self, drawn: Drawn, rank: int, world: int, device: torch.device | str) -> list[Batch]:
        """This process's share of the batch of a step, in parts over which gradients are accumulated."""
        rng = np.random.default_rng([self.recipe.run.seed, drawn.step, 1])
        answer = partial(first_answers, self.network) if self.recipe.network.tokens else None
        examples = self.training.draw(drawn.key, drawn.rows, rng, answer)
        own = np.array_split(np.arange(len(examples)), world)[rank]
        shares = [part for part in np.array_split(own, self.recipe.optimiser.accumulate) if len(part)]
        losses = self.training.losses[drawn.key]
        batches = [make_batch(examples[part], losses, device) for part in shares or [np.array([0])]]
        if not shares:  # there are fewer events than processes
            batches[0].weight = 0
        return batches

    def backward(self, fabric: Any, model: Any, drawn: Drawn) -> dict[str, float]:
        """Compute the gradient of a step. Return the loss and its terms, averaged over the whole batch.

        The last batch of a group may be small. Its gradient is scaled down, so that all events count the same.
        """
        terms = self.training.terms[drawn.key]
        share = len(drawn.rows) / self.recipe.optimiser.batch
        parts = self.parts(drawn, fabric.global_rank, fabric.world_size, fabric.device)
        counts = torch.tensor(
            [float(sum(part.counts[name] for part in parts)) for name in terms], device=fabric.device
        )
        counts = fabric.all_reduce(counts, reduce_op="sum").clamp(min=1)
        sums = torch.zeros(len(terms), device=fabric.device)
        for k, part in enumerate(parts):
            with fabric.no_backward_sync(model, enabled=k < len(parts) - 1):
                outputs = model(part.objects, None, part.tokens)
                losses = part.sums(model.module, outputs)
                # DDP averages over processes, but the loss is a sum over the whole batch
                total = sum(
                    share * weight * losses[name] / count * fabric.world_size
                    for (name, weight), count in zip(terms.items(), counts, strict=True)
                )
                for output in outputs.values():  # an output without a loss in this batch gets a gradient of zero
                    total = total + 0 * output.sum()
                fabric.backward(total)
            sums += torch.stack([losses[name].detach() for name in terms])
        values = (fabric.all_reduce(sums, reduce_op="sum") / counts).tolist()
        named = dict(zip(terms, values, strict=True))
        return {"loss": sum(terms[name] * value for name, value in named.items()), **named}

    # -- the loop ------------------------------------------------------------------------------------------

    def run(self, fabric: Any) -> Result:
        """Train to the end or until an interrupt, and keep the best model on validation events in `out`."""
        recipe, config = self.recipe, self.recipe.optimiser
        network = self.network
        averaged = copy.deepcopy(network).requires_grad_(False).to(fabric.device)
        optimiser = make_optimiser(network, config)
        first, best = 0, {}
        weights = {**recipe.loss.weights, **recipe.heads}
        compared = {name: weights[name] for name in validated(recipe)}
        forward = torch.compile(network, dynamic=True) if recipe.run.compile else network
        model, wrapped = fabric.setup(forward, optimiser)
        if self.progress is not None:
            load_state(self.out / STATE, network, averaged, optimiser)
            first, best = self.progress["step"], self.progress["best"]
        with self._logs(fabric, first) as log, interruptible() as interrupted:
            for step in range(first, self.steps):
                torch.manual_seed(_seed(recipe.run.seed, step, fabric.global_rank))  # dropout
                rate = learning_rate(config, step, self.steps)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                drawn = self.plan.draw(step)
                values = self.backward(fabric, model, drawn)
                norm = float(fabric.clip_gradients(model, wrapped, max_norm=config.clip, error_if_nonfinite=False))
                scaled = recipe.run.precision == "16-mixed"  # overflows are normal: they adjust the loss scale
                if not (math.isfinite(values["loss"]) and (scaled or math.isfinite(norm))):
                    raise self._not_finite(drawn, values["loss"], norm)
                wrapped.step()
                wrapped.zero_grad()
                update_average(averaged, network, config.ema, step)
                done = step + 1
                log(done, "training", {**values, "learning_rate": rate, "gradient": norm}, recipe.run.log_every)
                if done % recipe.run.validate_every == 0 or done == self.steps:
                    found = self.validate(fabric, averaged if config.ema else network)
                    log(done, "validation", found, 1)
                    if _better(found, best, compared):
                        best = found
                        self._keep(fabric, averaged if config.ema else network, best, done)
                stop = _any_process(fabric, interrupted())  # all processes stop together
                if done % recipe.run.save_every == 0 or done == self.steps or stop:
                    if fabric.is_global_zero:
                        progress = {"step": done, "best": best, "recipe": recipe.to_dict()}
                        progress |= {"data": self.train_events.fingerprint, "seen": self.seen}
                        save_state(self.out / STATE, network, averaged, optimiser, progress)
                    fabric.barrier()
                if stop and done < self.steps:
                    return Result(done, self.steps, best, fabric.is_global_zero, interrupted=True)
            if fabric.is_global_zero and recipe.decoding in CALIBRATED:
                self._calibrate()
            stop = _any_process(fabric, interrupted())
        return Result(self.steps, self.steps, best, fabric.is_global_zero, interrupted=stop)

    def validate(self, fabric: Any, network: Network) -> dict[str, float]:
        """Efficiencies and losses on validation events, which are shared among the processes."""
        own = blocks(self.validation_events, self.recipe.data.validation_events)
        counts = count_events(network, self.validation, own[fabric.global_rank :: fabric.world_size])
        total = torch.as_tensor(counts, dtype=torch.float32, device=fabric.device)
        return averages(self.recipe, fabric.all_reduce(total, reduce_op="sum").cpu().numpy())

    # -- details -------------------------------------------------------------------------------------------

    def _network(self) -> Network:
        recipe = self.recipe
        torch.manual_seed(recipe.run.seed)
        if self.init is None:
            return Network(recipe.topology, recipe.network, recipe.inputs, recipe.specs)
        network, _ = load_network(self.init)
        fresh = Network(recipe.topology, recipe.network, recipe.inputs, recipe.specs)
        check_same_network(network, fresh, str(self.init))
        fresh.load_state_dict(transferred(network, fresh))
        return fresh

    def _check_resume(self, progress: dict[str, Any]) -> None:
        if progress["data"] != self.train_events.fingerprint:
            raise TrainingError(
                f"{self.out / STATE} was trained on other events (fingerprint {progress['data']}, now "
                f"{self.train_events.fingerprint}): resume with the data it was started with"
            )
        was, now = parse_recipe(progress["recipe"]).to_dict(), self.recipe.to_dict()
        for section, settings in now.items():
            for name in {**settings, **was[section]}:  # a setting may have been removed from the recipe
                new, old = settings.get(name), was[section].get(name)
                if new != old and f"{section}.{name}" not in FREE:
                    raise TrainingError(
                        f"{section}.{name} is {new}, but {self.out / STATE} was started with {old}: resume with "
                        "the same recipe and seed"
                    )

    def _keep(self, fabric: Any, network: Network, metrics: dict[str, float], step: int) -> None:
        """Save the best model so far."""
        if not fabric.is_global_zero:
            return
        weights = {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}
        fold, fraction = self.train_events.fold, self.recipe.data.train_fraction
        info = ModelInfo(
            topology=self.recipe.topology,
            network=self.recipe.network.to_dict(),
            domain=domain_of(self.recipe, self.train_events),
            inputs=self.recipe.inputs,
            outputs=network.outputs,
            data={
                "fingerprint": self.train_events.fingerprint,
                "training_events": len(self.train_events),
                "validation_events": len(self.validation_events),
                "validation_fingerprint": self.validation_events.fingerprint,
                "sources": sorted(self.seen),
                **({"patterns": self.pattern_fractions} if self.recipe.network.patterns else {}),
                "train_fractions": {source: used for source, used in self.seen.items() if used > fraction},
                **({} if fold is None else {"fold": fold[0], "folds": fold[1]}),
            },
            metrics={**metrics, "step": float(step)},
            recipe=self.recipe.to_dict(),
            decoding=self.recipe.decoding,
            heads=self.recipe.specs,
        )
        save_model(self.out, weights, info)

    @cached_property
    def pattern_fractions(self) -> dict[str, dict[str, float]]:
        return pattern_fractions(self.recipe, self.train_events)

    def _seen(self) -> dict[str, float]:
        """`ModelInfo.seen` of the model in training, the events of the model we started from included."""
        if self.progress is not None:
            return dict(self.progress["seen"])
        known = {} if self.init is None else read_info(self.init).seen
        own, used = [f"{source:016x}" for source in self.train_events.sources], self.recipe.data.train_fraction
        return {source: max(used, known.get(source, used)) for source in sorted({*known, *own})}

    def _calibrate(self) -> None:
        """Fit the temperatures of the saved model, and store them in it."""
        network, info = load_network(self.out)
        which = blocks(self.validation_events, min(CALIBRATION_EVENTS, self.recipe.data.validation_events))
        given = predictor(network), self.recipe.topology, self.validation_events, which, info.decoding
        weights = {name: value.numpy() for name, value in network.state_dict().items()}
        save_model(self.out, weights, replace(info, temperatures=fit_temperatures(*given)))

    def _not_finite(self, drawn: Drawn, loss: float, norm: float) -> TrainingError:
        ids = self.train_events.groups[drawn.key].ids[drawn.rows[:3]].tolist()
        listed = ", ".join(f"{source}:{number}" for source, number in ids)
        kinds = map(collection_name, self.recipe.topology.trees[drawn.key.tree].kinds)
        objects = ", ".join(f"{n} {kind}" for n, kind in zip(drawn.key.layout, kinds, strict=True))
        state = self.out / STATE
        kept = f"the last good state is kept in {state}" if state.exists() else "no state was saved before it"
        return TrainingError(
            f"the loss is {loss:g} and the norm of its gradient {norm:g} at step {drawn.step}, a batch of "
            f"{len(drawn.rows)} events with {objects} (ids {listed}, ...): stopped, {kept}; "
            f"lower optimiser.learning_rate or look at these events"
        )

    @contextmanager
    def _logs(self, fabric: Any, first: int) -> Iterator[Callable[[int, str, dict[str, float], int], None]]:
        if not fabric.is_global_zero:
            yield lambda step, kind, values, every: None
            return
        with Logs(self.out, first, self.steps) as logs:

            def log(step: int, kind: str, values: dict[str, float], every: int) -> None:
                logs.advance(step)
                if step % every == 0 or step == self.steps:
                    logs.write(step, kind, values)

            yield log


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C, SIGTERM or SIGHUP was received. A second one ends the block."""
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if not asked.is_set():
            asked.set()
        elif callable(before[number]):
            before[number](number, frame)
        else:
            raise KeyboardInterrupt

    with handled(ask) as before:
        yield asked.is_set


def _better(found: dict[str, float], best: dict[str, float], weights: Mapping[str, float]) -> bool:
    """Whether `found` is better than `best`, both from `Trainer.validate`.

    They are compared by the weighted losses, since these fluctuate less than the number of right answers. Without
    a loss of the assignment, they are compared by the efficiency of events, or by the first that both have.
    """
    gains = {name: w * (found.get(name, math.nan) - best.get(name, math.nan)) for name, w in weights.items()}
    if any(math.isfinite(gain) for name, gain in gains.items() if name in LOSSES):
        return sum(gain for gain in gains.values() if math.isfinite(gain)) < 0
    for name in ["e_event", *(name for name in found if name.startswith("e_"))]:
        new, old = found.get(name, math.nan), best.get(name, math.nan)
        if math.isfinite(new) and math.isfinite(old):
            return new > old
    return not any(math.isfinite(value) for name, value in best.items() if name.startswith("e_"))


def _any_process(fabric: Any, answer: bool) -> bool:
    """Logical OR over all processes."""
    return bool(fabric.all_reduce(torch.tensor(float(answer), device=fabric.device), reduce_op="sum"))


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
