"""Compare the rate of `reconstruct` in one and in two processes.

    python benchmarks/scaling.py [--events 32768] [--rounds 3]
    python benchmarks/scaling.py --shares
    python benchmarks/scaling.py --flops

The input is the sample of the package, repeated. One and two processes take turns. The time of start-up
(processes, imports, the model) is measured with two windows of events and subtracted. Rates are given in
wall-clock time and in CPU time, which is steadier on a machine that others use. `--shares` gives instead the
shares of the CPU time of one process, and the size of events on disk; `--flops` gives the operations of the
network's matrix products (by torch).
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pairton import formats
from pairton.decoding import decode
from pairton.events.nodes import Nodes
from pairton.models.model import Model, load_model
from pairton.reconstruction import running
from pairton.reconstruction.assigner import WINDOW
from pairton.reconstruction.running import reconstruct_files
from programs import write_input


def used() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, kinds))


def timed(source: Path, folder: Path, jobs: int, model: Model) -> tuple[float, float]:
    """Wall-clock time and CPU time in seconds."""
    begun, before = time.monotonic(), used()
    reconstruct_files(source, folder, model, jobs=jobs, rows=WINDOW)
    return time.monotonic() - begun, used() - before


def shares(n_events: int, model: Model) -> None:
    """Print the CPU time of the network, decoding, reading, and the rest (preparing, momenta, writing)."""
    spent = {"network": 0.0, "decoding": 0.0}

    def clocked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            before = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                spent[name] += time.thread_time() - before

        return call

    vars(running)["decode"] = clocked("decoding", decode)
    type.__setattr__(Model, "predict", clocked("network", Model.predict))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.h5"
        write_input(source, n_events)
        before = time.process_time()
        n_jets = formats.read(source, truth=False).n_jets
        spent["reading"] = time.process_time() - before
        for name in ("warm", "out"):
            spent |= {"network": 0.0, "decoding": 0.0}
            before = time.process_time()
            reconstruct_files(source, Path(folder) / f"{name}.parquet", model)
            total = time.process_time() - before
        sizes = [path.stat().st_size / n_events for path in (source, Path(folder) / "out.parquet")]
    spent["decoding"] -= spent["network"]  # which it calls
    spent["rest"] = total - sum(spent.values())
    print(f"{n_events / total:.0f} events per second of processor time")
    print("| | share | microseconds per event |\n|---|---|---|")
    for name, seconds in spent.items():
        print(f"| {name} | {seconds / total:.1%} | {1e6 * seconds / n_events:.1f} |")
    print(f"{n_jets.mean():.1f} jets per event; bytes per event: {sizes[0]:.0f} read, {sizes[1]:.0f} written")


def flops() -> None:
    """Print the operations per event; an addition and a multiplication count as two."""
    from torch.utils.flop_counter import FlopCounterMode

    model = load_model(engine="torch", threads=1)
    least, most = model.domain["jet"].count
    print("| jets | MFLOP of the network per event |\n|---|---|")
    for n_jets in range(least, min(most, least + 4) + 1):
        rng = np.random.default_rng(0)
        jets = rng.uniform(30, 200, (1, n_jets, 5)).astype(np.float32)
        with FlopCounterMode(display=False) as counter:
            model.predict(Nodes.full({"jet": jets}))
        print(f"| {n_jets} | {counter.get_total_flops() / 1e6:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=8 * WINDOW)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shares", action="store_true")
    parser.add_argument("--flops", action="store_true")
    arguments = parser.parse_args()
    if arguments.flops:
        flops()
        return
    model = load_model(threads=1)
    if arguments.shares:
        shares(arguments.events, model)
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    rates: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many, few = folder / "many.h5", folder / "few.h5"
        write_input(many, arguments.events + 2 * WINDOW)
        write_input(few, 2 * WINDOW)  # a window for each process
        for turn in range(arguments.rounds):
            for jobs in (1, 2):
                long = timed(many, folder / f"many-{jobs}-{turn}", jobs, model)
                short = timed(few, folder / f"few-{jobs}-{turn}", jobs, model)
                clock, processor = (a - b for a, b in zip(long, short, strict=True))
                rates[jobs].append((arguments.events / clock, arguments.events / processor))
    print("| processes | events per second | events per second of processor time |\n|---|---|---|")
    for jobs, found in rates.items():
        clock, processor = np.median(found, axis=0)
        print(f"| {jobs} | {clock:.0f} | {processor:.0f} |")


if __name__ == "__main__":
    main()
