"""Throughput of `reconstruct` in one and in two processes, by turns in one run.

    python benchmarks/scaling.py [--events 32768] [--rounds 3]

The input is the sample in the package, repeated. Start-up (processes, imports, the model) is measured with two
windows of events and taken off. Processor time is given beside the clock: on a machine that others use, it is the
steadier one.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from pairton.engines import load_model
from pairton.partitions import reconstruct_parts
from pairton.reconstruction import WINDOW
from soak import write_input


def used() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, kinds))


def timed(source: Path, folder: Path, jobs: int) -> tuple[float, float]:
    """Seconds of the clock and of processors."""
    begun, before = time.monotonic(), used()
    reconstruct_parts(source, folder, load_model(threads=1), jobs=jobs, rows=WINDOW)
    return time.monotonic() - begun, used() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=8 * WINDOW)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    rates: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many, few = folder / "many.h5", folder / "few.h5"
        write_input(many, arguments.events + 2 * WINDOW)
        write_input(few, 2 * WINDOW)  # a window for each process
        for turn in range(arguments.rounds):
            for jobs in (1, 2):
                long = timed(many, folder / f"many-{jobs}-{turn}", jobs)
                short = timed(few, folder / f"few-{jobs}-{turn}", jobs)
                clock, processor = (a - b for a, b in zip(long, short, strict=True))
                rates[jobs].append((arguments.events / clock, arguments.events / processor))
    print("| processes | events/s of the clock | events/s of a processor |\n|---|---|---|")
    for jobs, found in rates.items():
        clock, processor = np.median(found, axis=0)
        print(f"| {jobs} | {clock:.0f} | {processor:.0f} |")


if __name__ == "__main__":
    main()
