"""Compare the rate of training with that of a plain implementation: python benchmarks/training.py [--json F]

plain    eager network, batches in file order, padded to the longest event of the batch
packed   the training loop: batches of one jet count without padding; with --compile also through torch.compile

It also measures the share of a step for preparing its batch, the time by sub-layer, and the share of the machine's
peak of matrix products that a step reaches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pairton.events.nodes import Nodes
from pairton.network import Network
from pairton.network.layers import Attention, Transition
from pairton.network.trunks.pairformer import TriangleAttention, TriangleMultiplication
from pairton.network.trunks.symmetric import SymmetricTriangleAttention, SymmetricTriangleMultiplication
from pairton.training import Recipe, load_recipe
from pairton.training.batch import make_batch
from pairton.training.data import Group, Key, PackedEvents
from pairton.training.loop import Trainer
from pairton.training.losses import LOSSES, Examples
from pairton.training.optimising import make_optimiser

# shares of jet counts beyond the number of slots, as in all-hadronic ttbar events
MIX = (0.43, 0.33, 0.155, 0.055, 0.02, 0.007, 0.003)
SUB_LAYERS = (
    SymmetricTriangleMultiplication,
    SymmetricTriangleAttention,
    TriangleMultiplication,
    TriangleAttention,
    Attention,
    Transition,
)


def make_events(recipe: Recipe, count: int) -> PackedEvents:
    """Random jets and labels: only their shapes matter."""
    rng = np.random.default_rng(0)
    n_slots = len(recipe.topology.slots)
    groups: dict[Key, Group] = {}
    for more, share in enumerate(MIX):
        shape = (max(1, round(share * count)), n_slots + more)
        pt, eta, phi = rng.uniform(30, 200, shape), rng.normal(size=shape), rng.uniform(-3, 3, shape)
        columns = [pt, eta, phi, pt * np.cosh(eta) + 5, rng.integers(0, 2, shape)]
        truth = np.argsort(rng.random(shape), axis=1)[:, :n_slots].astype(np.int8)
        jets = np.stack(columns, -1).astype(np.float32)
        groups[Key(0, (shape[1],))] = Group(
            {"jet": jets}, truth, np.zeros((shape[0], 2), np.uint64), np.ones(shape[0], np.float32)
        )
    return PackedEvents(groups)


class Plain:
    """A plain training: batches in file order, padded to the longest event, with the cheapest loss, on edges."""

    def __init__(self, recipe: Recipe, events: PackedEvents, network: Network) -> None:
        self.recipe, self.events, self.network = recipe, events, network
        self.optimiser = make_optimiser(network, recipe.optimiser)
        order = [(n, row) for (_, (n,)), group in events.groups.items() for row in range(len(group))]
        self.order = [order[k] for k in np.random.default_rng(1).permutation(len(order))]

    def step(self, step: int) -> int:
        size = self.recipe.optimiser.batch
        start = step * size % (len(self.order) - size)
        chosen = self.order[start : start + size]
        longest = max(n for n, _ in chosen)
        jets = np.zeros((size, longest, 5), dtype=np.float32)
        mask = np.zeros((size, longest), dtype=bool)
        truth = np.zeros((size, len(self.recipe.topology.slots)), dtype=np.int8)
        for k, (n, row) in enumerate(chosen):
            group = self.events.groups[Key(0, (n,))]
            jets[k, :n], mask[k, :n], truth[k] = group.objects["jet"][row], True, group.truth[row]
        nodes, name = Nodes({"jet": jets}, {"jet": mask}), "masked_edges"
        batch = make_batch(Examples(self.recipe, nodes, truth), {name: LOSSES[name]})
        outputs = self.network(batch.objects, {"jet": torch.as_tensor(mask)}, None)
        loss = batch.sums(self.network, outputs)[name] / size
        for output in outputs.values():
            loss = loss + 0 * output.sum()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return size


class Packed:
    """A step of the training loop."""

    def __init__(self, recipe: Recipe, events: PackedEvents, network: Network, compiled: bool) -> None:
        from lightning.fabric import Fabric

        self.fabric = Fabric(accelerator="cpu", devices=1)
        self.trainer = Trainer(recipe, events, events, Path())
        self.optimiser = make_optimiser(network, recipe.optimiser)
        forward: Any = torch.compile(network, dynamic=True) if compiled else network
        self.model, self.wrapped = self.fabric.setup(forward, self.optimiser)

    def step(self, step: int) -> int:
        drawn = self.trainer.plan.draw(step)
        self.trainer.backward(self.fabric, self.model, drawn)
        self.fabric.clip_gradients(self.model, self.wrapped, max_norm=1.0)
        self.wrapped.step()
        self.wrapped.zero_grad()
        return len(drawn.rows)

    def loading(self, step: int) -> int:
        drawn = self.trainer.plan.draw(step)
        self.trainer.parts(drawn, 0, 1, "cpu")
        return len(drawn.rows)


def timed(run: Callable[[int], int], step: int) -> tuple[float, int]:
    start = time.perf_counter()
    events = run(step)
    return time.perf_counter() - start, events


def rate(samples: list[tuple[float, int]]) -> float:
    """Events per second over all batches. They differ in jet count, so a median would pick one of the counts."""
    return sum(events for _, events in samples) / sum(seconds for seconds, _ in samples)


def by_sub_layer(network: Network, run: Callable[[], Any]) -> dict[str, float]:
    """Share of the forward time of each kind of sub-layer."""
    spent: defaultdict[str, float] = defaultdict(float)
    started: dict[nn.Module, float] = {}
    handles = []
    watched: list[nn.Module] = [module for module in network.modules() if isinstance(module, SUB_LAYERS)]
    for module in [*watched, network.readout, *network.heads.values()]:
        handles.append(module.register_forward_pre_hook(lambda m, _: started.update({m: time.perf_counter()})))

        def stop(m: nn.Module, *_: Any) -> None:
            spent[type(m).__name__] += time.perf_counter() - started[m]

        handles.append(module.register_forward_hook(stop))
    start = time.perf_counter()
    for _ in range(3):
        run()
    total = time.perf_counter() - start
    for handle in handles:
        handle.remove()
    shares = {name: seconds / total for name, seconds in sorted(spent.items(), key=lambda item: -item[1])}
    return shares | {"features, embeddings, residuals": 1 - sum(shares.values())}


def peak() -> float:
    """FLOP/s of a large matrix product, the best of several."""
    a = torch.randn(1024, 1024)
    a @ a
    return max(2 * 1024**3 / timed(lambda _: len(a @ a), 0)[0] for _ in range(10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="cpu")
    parser.add_argument("--steps", type=int, default=24, help="timed steps of each kind")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--compile", action="store_true", help="also time torch.compile: minutes of compiling")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = load_recipe(options.recipe)
    events = make_events(recipe, 20_000)

    def network() -> Network:
        torch.manual_seed(0)
        return Network(recipe.topology, recipe.network, recipe.inputs)

    plain, packed = Plain(recipe, events, network()), Packed(recipe, events, network(), False)
    ways: dict[str, Callable[[int], int]] = {"plain": plain.step, "packed": packed.step, "loading": packed.loading}
    if options.compile:
        ways["compiled"] = Packed(recipe, events, network(), True).step
    for run in ways.values():
        for step in range(3):
            run(step)
    samples: dict[str, list[tuple[float, int]]] = {name: [] for name in ways}
    for step in range(options.steps):  # in turn, so that other load on the machine affects all of them
        for name, run in ways.items():
            samples[name].append(timed(run, step))
    rates = {name: rate(found) for name, found in samples.items()}

    usual = (len(recipe.topology.slots) + 1,)
    step = next(step for step in range(50) if packed.trainer.plan.draw(step).key.layout == usual)
    with FlopCounterMode(display=False) as counter:
        packed.step(step)
    seconds = statistics.median(timed(packed.step, step)[0] for _ in range(5))
    model = network()
    jets = torch.as_tensor(next(iter(events.groups.values())).objects["jet"][:256])
    result: dict[str, Any] = {
        "threads": options.threads,
        "events_per_second": {name: round(value) for name, value in rates.items() if name != "loading"},
        "ratio_to_plain": {name: rates[name] / rates["plain"] for name in rates if name in ("packed", "compiled")},
        "loading_share_of_step": rates["packed"] / rates["loading"],
        "peak_gflops": peak() / 1e9,
        "share_of_peak": counter.get_total_flops() / seconds / peak(),
        "forward_by_sub_layer": by_sub_layer(model, lambda: model({"jet": jets})),
    }
    print(f"{Path(options.recipe).stem}, {options.threads} threads, {options.steps} steps of each kind")
    for name, value in result["events_per_second"].items():
        print(f"  {name:10} {value:7d} events/s   {rates[name] / rates['plain']:5.2f} x plain")
    print(f"  preparing a batch takes {result['loading_share_of_step']:.1%} of a step")
    print(f"  a step reaches {result['share_of_peak']:.1%} of {result['peak_gflops']:.0f} GFLOP/s, the peak")
    print("  forward time by sub-layer")
    for name, share in result["forward_by_sub_layer"].items():
        print(f"    {name:34} {share:6.1%}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
