"""Measurements of whole programs: start-up, file to file, memory, and SPANet. Used by inference.py."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from soak import write_input

__all__ = ["Run", "best_start", "earlier_rate", "end_to_end", "run_command", "seconds_of_import", "spanet_rate"]

ROOT = Path(__file__).parent.parent
SAMPLE = "sample:ttbar_allhad"
PART_ROWS = 4096  # small parts, so that all processes end at about the same time

# VmHWM is that of the new program; ru_maxrss would include the size of this one, from which it was forked.
COMMAND = """
from pathlib import Path
from pairton.cli import main
try:
    main()
except SystemExit as end:
    if end.code:
        raise
print(next(line.split()[1] for line in Path("/proc/self/status").open() if line.startswith("VmHWM")))
"""

# Uses only what every version has. The first run is a warm-up.
EARLIER = """
import sys, time
import numpy as np
import pairton
name, count, threads, target = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
sample = pairton.read("sample:ttbar_allhad")
events = pairton.Events.concatenate([sample] * -(-count // len(sample)))[:count]
model = pairton.load_model(name, threads=threads)
pairton.reconstruct(events[: len(sample)], model)
begun, before = time.perf_counter(), time.process_time()
reco = pairton.reconstruct(events, model)
clock, processor = time.perf_counter() - begun, time.process_time() - before
np.save(target, reco.assignment)
print(clock, processor)
"""


class Run(NamedTuple):
    """The cost of a whole program."""

    seconds: float
    processor_seconds: float
    peak_mib: float  # of the first process only


def run_command(*arguments: str) -> Run:
    """Run `pairton` with these arguments in a new process."""
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True)
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"pairton {' '.join(arguments)}: {done.stderr.strip()}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(seconds, used, int(done.stdout.split()[-1]) / 1024)


def earlier_rate(src: Path, model: str, count: int, threads: int, target: Path) -> dict[str, float]:
    """Rates of the Pairton in another folder, in a new process. Its assignments are written to `target`."""
    command = [sys.executable, "-c", EARLIER, model, str(count), str(threads), str(target)]
    environment = {**os.environ, "PYTHONPATH": str(src)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{src}: {done.stderr.strip()[-500:]}")
    clock, processor = map(float, done.stdout.split()[-2:])
    return {"events_per_second": count / clock, "events_per_processor_second": count / processor}


def best_start(engine: str, threads: int, rounds: int) -> Run:
    """Reconstruct the sample in a new process, the best of some."""
    arguments = ("reconstruct", SAMPLE, "--engine", engine, "--threads", str(threads))
    return min(run_command(*arguments) for _ in range(rounds))


def seconds_of_import(rounds: int) -> float:
    """Seconds of `import pairton` in a new interpreter, the best of some."""

    def once() -> float:
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", "import pairton"], check=True)
        return time.monotonic() - begun

    return min(once() for _ in range(rounds))


def end_to_end(
    engines: Mapping[str, Callable[[], tuple[float, float]]], count: int, threads: int, folder: Path
) -> list[dict[str, Any]]:
    """Rates from an HDF5 file to a Parquet file, and in memory just before and after, per engine and way.

    engines   name -> a call that measures the rates in memory, by wall-clock time and by CPU time
    """
    source = folder / "events.h5"
    write_input(source, count)
    rows: list[dict[str, Any]] = []
    for engine, in_memory in engines.items():
        rates = [in_memory()[0]]
        for way, options in {
            f"one process, {threads} threads": ["--threads", str(threads)],
            f"{threads} processes, 1 thread": ["--jobs", str(threads), "--part-rows", str(PART_ROWS)],
        }.items():
            suffix = "" if "--jobs" in options else ".parquet"
            target = folder / f"{engine}-{len(rows)}{suffix}"
            run = run_command("reconstruct", str(source), "-o", str(target), "--engine", engine, *options)
            rates.append(in_memory()[0])
            rate = count / run.seconds
            rows.append(
                {
                    "engine": engine,
                    "way": way,
                    "judged": "--jobs" not in options,
                    "events_per_second": rate,
                    "events_per_processor_second": count / run.processor_seconds,
                    "in_memory_events_per_second": sum(rates[-2:]) / 2,
                    "ratio": rate / (sum(rates[-2:]) / 2),
                    "peak_mib": run.peak_mib,
                }
            )
    return rows


def spanet_rate(python: Path, events: Path, threads: int, batches: list[int], rounds: int) -> dict[str, Any]:
    """The rate of SPANet with random weights, in its own environment: see workflow/peers/spanet."""
    script = ROOT / "workflow" / "peers" / "spanet" / "rate.py"
    command = [str(python), str(script), str(events), "--threads", str(threads), "--rounds", str(rounds)]
    command += ["--networks", "ttbar", "--batches", *map(str, batches)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found
