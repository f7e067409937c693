"""Measure Pythia's share of the generator's time, and the gain from a second process.

    python benchmarks/generator.py --events 4000

Both numbers are ratios within one run, in CPU time of one core. Pythia's share includes its initialisation and
`nextBatch`; the rest is the detector, jets, tags and truth of this package. The gain of two jobs is measured in
two ways: by wall-clock time between the first and the last chunks, which needs two idle cores; and, for a busy
machine, by the CPU time per event in one process and in two at once (including the start-up of the workers).
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pairton.generator import production
from pairton.generator.production import Counts, produce, run_chunk
from pairton.generator.pythia import PythiaRun
from pairton.generator.settings import make_settings

__all__ = ["main"]


class TimedRun(PythiaRun):
    """Adds up the CPU time spent in Pythia."""

    spent = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        start = time.process_time()
        super().__init__(*arguments, **options)
        TimedRun.spent += time.process_time() - start

    def batches(self, n_events: int, size: int) -> Iterator[Any]:
        source = super().batches(n_events, size)
        while True:
            start = time.process_time()
            batch = next(source, None)
            TimedRun.spent += time.process_time() - start
            if batch is None:
                return
            yield batch


def pythia_share(n_events: int) -> dict[str, float]:
    """Pythia's share of the CPU time of one chunk, and events per second."""
    settings = make_settings("ttbar_allhad", n_events, seed=1)
    run_chunk(settings, 0, 1)  # warm up: imports and first calls
    TimedRun.spent = 0.0
    with patch.object(production, "PythiaRun", TimedRun):
        start = time.process_time()
        run_chunk(settings, 0, n_events)
        total = time.process_time() - start
    return {"pythia_share": TimedRun.spent / total, "events_per_cpu_second": n_events / total}


def _processor_time() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def measure(n_events: int, jobs: int, chunk: int = 250) -> tuple[float, float]:
    """Events per second of wall-clock time between the first chunks and the last, and CPU time per event."""
    settings = make_settings("ttbar_allhad", n_events, seed=2).with_sizes(chunk, chunk)
    done: list[float] = []

    def progress(new: bool, counts: Counts) -> None:
        done.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        start = _processor_time()
        produce(settings, Path(folder) / "events.h5", jobs=jobs, progress=progress)
        spent = _processor_time() - start
    return chunk * (len(done) - jobs) / (done[-1] - done[jobs - 1]), spent / n_events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=4000, help="events per measurement")
    n_events = parser.parse_args().events
    result = pythia_share(min(n_events, 1000))
    one, cost_of_one = measure(n_events, 1)
    two, cost_of_two = measure(n_events, 2)
    result |= {
        "events_per_second_1_job": one,
        "events_per_second_2_jobs": two,
        "gain_of_2_jobs_wall_clock": two / one,
        "gain_of_2_jobs_processor_time": 2 * cost_of_one / cost_of_two,
    }
    print(json.dumps({name: round(value, 3) for name, value in result.items()}, indent=1))


if __name__ == "__main__":
    main()
