"""Check that memory stays flat and the rate steady when `reconstruct` processes a million events.

    python benchmarks/soak.py [--events 1000000] [--csv soak.csv] [--plot docs/images/soak.png]
    python benchmarks/soak.py --read    # judge and plot the CSV of a run, also of one that is not finished

The input is the sample of the package, repeated, in a temporary file. After every window, the resident memory and
the CPU time are recorded. The first 131,072 events fill memory that is kept: libraries, the arena of ONNX Runtime,
two chunks of the reader, two row groups of the writer. After them:

flat      the peak memory of the last third of the windows is at most 5% above that of the first third, and a
straight
          line through all windows rises by at most 5% in a million events
steady    events per second of CPU time in the last third are within 10% of those in the first third

CPU time is used because other programs may run on the same machine. Since they still affect caches and clock
rates, a small matrix product is timed after each window, and the rate is also given relative to it. The rate is
steady if it is steady by either measure.
"""

from __future__ import annotations

import argparse
import csv
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairton import formats
from pairton.events import Events
from pairton.formats.files import sample_file
from pairton.models.engines import ENGINES, Model, load_model
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.streaming import reconstruct_files
from pairton.reconstruction.writers import ROWS

BLOCK = 50_000  # events written at a time
WARM = 2 * ROWS  # events after which memory should not grow
MAX_GROWTH, MAX_DRIFT = 1.05, 0.10
FIELDS = ("events", "seconds", "processor_seconds", "reference_seconds", "resident_mib")
FACTOR = np.random.default_rng(0).normal(size=(384, 384)).astype(np.float32)
ROOT = Path(__file__).parent.parent


def write_input(path: Path, n_events: int) -> None:
    """Write the sample repeatedly, with new ids."""
    sample = formats.read(str(sample_file()))
    block = Events.concatenate([sample] * -(-BLOCK // len(sample)))
    with formats.create(path, sample.topology) as writer:
        for start in range(0, n_events, len(block)):
            part = block[: n_events - start]
            ids = np.stack([np.ones(len(part)), np.arange(start, start + len(part))], axis=1)
            writer.write(Events(part.jets, part.topology, part.truth, None, ids.astype(np.uint64)))


def resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def reference() -> float:
    """CPU seconds of a fixed piece of work."""
    begun = time.process_time()
    for _ in range(4):
        FACTOR @ FACTOR
    return time.process_time() - begun


def soak(n_events: int, log: Path, model: Model) -> list[dict[str, float]]:
    """Reconstruct, and record time and memory after each window."""
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, log.open("w", newline="") as stream:
        source = Path(folder) / "events.h5"
        write_input(source, n_events)
        table = csv.DictWriter(stream, FIELDS)
        table.writeheader()
        begun, before = time.monotonic(), time.process_time()

        def watch(windows: Iterator[Reconstruction]) -> Iterator[Reconstruction]:
            done, compared = 0, 0.0
            for reco in windows:
                yield reco
                done += len(reco)
                times = time.monotonic() - begun, time.process_time() - before - compared
                compared += (own := reference())
                rows.append(dict(zip(FIELDS, (done, *times, own, resident()), strict=True)))
                table.writerow({name: round(value, 6) for name, value in rows[-1].items()})
                stream.flush()

        reconstruct_files(source, Path(folder) / "out.parquet", model, progress=watch)
    return rows


@dataclass(frozen=True)
class Verdict:
    """The result of a run, from the windows after the first ones."""

    peaks: float  # peak memory of the last third, relative to the first third
    line: float  # straight line through the memory: its value after a million events, relative to its start
    drift: float  # relative change of the rate, last third to first third
    relative_drift: float  # the same, with the rate relative to the reference

    @property
    def flat(self) -> bool:
        return max(self.peaks, self.line) <= MAX_GROWTH

    @property
    def steady(self) -> bool:
        return min(abs(self.drift), abs(self.relative_drift)) <= MAX_DRIFT


def judge(columns: dict[str, Any]) -> Verdict:
    warm = columns["events"] >= WARM
    if warm.sum() < 12:
        sys.exit(f"{columns['events'][-1]:.0f} events are too few to judge: use at least {2 * WARM}")
    events, memory = columns["events"][warm], columns["resident_mib"][warm]
    # per window, without the first, which includes the start of the program
    costs = np.diff(columns["processor_seconds"])[warm[1:]] / np.diff(columns["events"])[warm[1:]]
    relative = costs / columns["reference_seconds"][1:][warm[1:]]
    third = len(memory) // 3

    def drift(cost: Any, mean: Any) -> float:
        return float(mean(cost[:third]) / mean(cost[-third:]) - 1)

    slope, start = np.polyfit(events / 1e6, memory, 1)
    return Verdict(
        peaks=float(memory[-third:].max() / memory[:third].max()),
        line=float(1 + slope / start),
        drift=drift(costs, np.mean),
        relative_drift=drift(relative, np.median),  # a reference of some milliseconds has outliers
    )


def plot(columns: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    events = columns["events"] / 1e6
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 4.5), layout="constrained")
    above.plot(events, columns["resident_mib"])
    above.set(ylabel="resident memory [MiB]", ylim=(0, None))
    step = max(1, len(events) // 50)
    rate = (columns["events"][step:] - columns["events"][:-step]) / (
        columns["processor_seconds"][step:] - columns["processor_seconds"][:-step]
    )
    below.plot(events[step:], rate)
    below.set(ylabel="events per second\nof processor time", ylim=(0, None), xlabel="million events")
    for axes in (above, below):
        axes.axvspan(0, min(WARM / 1e6, events[-1]), color="0.9")  # not judged
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--csv", type=Path, default=Path("soak.csv"))
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "images" / "soak.png")
    parser.add_argument("--model", default="default")
    parser.add_argument("--engine", choices=ENGINES, default="onnx")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--read", action="store_true", help="Judge and plot an existing --csv.")
    arguments = parser.parse_args()
    if arguments.read:
        with arguments.csv.open() as stream:
            rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(stream)]
    else:
        model = load_model(arguments.model, engine=arguments.engine, threads=arguments.threads)
        rows = soak(arguments.events, arguments.csv, model)
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in FIELDS}
    plot(columns, arguments.plot)
    last = rows[-1]
    rate = last["events"] / last["processor_seconds"]
    print(
        f"{last['events']:.0f} events in {last['seconds']:.0f} s, {last['processor_seconds']:.0f} s of processor "
        f"time ({rate:.0f} events/s); memory at most {columns['resident_mib'].max():.0f} MiB"
    )
    found = judge(columns)
    print(
        f"memory {'flat' if found.flat else 'GROWS'}: highest, last third against first third, {found.peaks:.3f}; "
        f"by a straight line, in a million events, {found.line:.3f} (limit {MAX_GROWTH})"
    )
    print(
        f"rate {'steady' if found.steady else 'DRIFTS'}: last third against first third, {found.drift:+.1%}; "
        f"against a fixed piece of work, {found.relative_drift:+.1%} (limit {MAX_DRIFT:.0%})"
    )
    sys.exit(0 if found.flat and found.steady else 1)


if __name__ == "__main__":
    main()
