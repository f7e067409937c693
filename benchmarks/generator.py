"""Measure Pythia's share of the generator's time, and the gain from a second process.

    python benchmarks/generator.py --events 4000

Both are ratios within one run, in CPU time. Pythia's share includes its initialisation and `nextBatch`; the rest
is the detector, jets, tags and truth of this package. The gain includes the start-up of the second process.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pairton.generator import production
from pairton.generator.production import produce, run_chunk
from pairton.generator.pythia import PythiaRun
from pairton.generator.settings import make_settings

SHARE_EVENTS, CHUNK = 1000, 250


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


def cost(n_events: int, jobs: int) -> float:
    """CPU seconds per event, of all processes."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    settings = make_settings("ttbar_allhad", n_events, seed=2).with_sizes(CHUNK, CHUNK)
    with tempfile.TemporaryDirectory() as folder:
        before = sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, kinds))
        produce(settings, Path(folder) / "events.h5", jobs=jobs)
        return (sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, kinds)) - before) / n_events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=4000, help="events per measurement")
    n_events = parser.parse_args().events
    settings = make_settings("ttbar_allhad", SHARE_EVENTS, seed=1)
    run_chunk(settings, 0, 1)  # warm up: imports and first calls
    TimedRun.spent = 0.0
    with patch.object(production, "PythiaRun", TimedRun):
        start = time.process_time()
        run_chunk(settings, 0, SHARE_EVENTS)
        total = time.process_time() - start
    print(f"Pythia's share of CPU time: {TimedRun.spent / total:.0%}; {SHARE_EVENTS / total:.0f} events per CPU s")
    one, two = cost(n_events, 1), cost(n_events, 2)
    print(f"two processes make {2 * one / two:.2f} times as many events per second as one")


if __name__ == "__main__":
    main()
