"""A soak: a million events through `reconstruct`: is memory flat, and the rate steady?

    python benchmarks/soak.py [--events 1000000] [--csv soak.csv] [--plot docs/images/soak.png]

The input is the sample in the package, repeated, in a temporary file. After every window the resident memory and
the processor time are noted. Flat: the last tenth of the windows has at most 5% more memory than the second tenth
(the first one still loads libraries). Steady: events per second of processor time, last half against first half,
within 10%. Processor time is used because other programs may run on the same machine.
"""

from __future__ import annotations

import argparse
import csv
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pairton import formats
from pairton.engines import load_model
from pairton.events import Events
from pairton.formats.files import sample_file
from pairton.reconstruction import Reconstruction
from pairton.streaming import reconstruct_files

BLOCK = 50_000  # events written at a time
MAX_GROWTH, MAX_DRIFT = 1.05, 0.10
FIELDS = ("events", "seconds", "processor_seconds", "resident_mib")


def write_input(path: Path, n_events: int) -> None:
    """The sample again and again, with new ids."""
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


def soak(n_events: int, log: Path, model: str, threads: int) -> list[dict[str, float]]:
    """Reconstruct and note what is used after each window."""
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, log.open("w", newline="") as stream:
        source = Path(folder) / "events.h5"
        write_input(source, n_events)
        table = csv.DictWriter(stream, FIELDS)
        table.writeheader()
        begun, before = time.monotonic(), time.process_time()

        def watch(windows: Iterator[Reconstruction]) -> Iterator[Reconstruction]:
            done = 0
            for reco in windows:
                yield reco
                done += len(reco)
                times = time.monotonic() - begun, time.process_time() - before
                rows.append(dict(zip(FIELDS, (done, *times, resident()), strict=True)))
                table.writerow(rows[-1])
                stream.flush()

        loaded = load_model(model, threads=threads)
        reconstruct_files(source, Path(folder) / "out.parquet", loaded, progress=watch)
    return rows


def judge(rows: list[dict[str, float]]) -> tuple[float, float]:
    """Growth of memory, and relative change of the rate."""
    memory = np.array([row["resident_mib"] for row in rows])
    tenth = max(1, len(rows) // 10)
    growth = float(memory[-tenth:].mean() / memory[tenth : 2 * tenth].mean())
    done = np.array([[row["events"], row["processor_seconds"]] for row in rows])
    middle = len(rows) // 2
    first, last = done[middle] - done[tenth], done[-1] - done[middle]
    return growth, float((last[0] / last[1]) / (first[0] / first[1]) - 1)


def plot(rows: list[dict[str, float]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in FIELDS}
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 4.5), layout="constrained")
    above.plot(columns["events"] / 1e6, columns["resident_mib"])
    above.set(ylabel="resident memory [MiB]", ylim=(0, None))
    step = max(1, len(rows) // 50)
    rate = (columns["events"][step:] - columns["events"][:-step]) / (
        columns["processor_seconds"][step:] - columns["processor_seconds"][:-step]
    )
    below.plot(columns["events"][step:] / 1e6, rate)
    below.set(ylabel="events per second\nof processor time", ylim=(0, None), xlabel="million events")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--csv", type=Path, default=Path("soak.csv"))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--model", default="default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--read", action="store_true", help="Judge and plot an existing --csv.")
    arguments = parser.parse_args()
    if arguments.read:
        with arguments.csv.open() as stream:
            rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(stream)]
    else:
        rows = soak(arguments.events, arguments.csv, arguments.model, arguments.threads)
    if arguments.plot is not None:
        plot(rows, arguments.plot)
    growth, drift = judge(rows)
    last = rows[-1]
    rate = last["events"] / last["processor_seconds"]
    print(
        f"{last['events']:.0f} events in {last['seconds']:.0f} s, {last['processor_seconds']:.0f} s of processor "
        f"time ({rate:.0f} events/s); memory at most {max(row['resident_mib'] for row in rows):.0f} MiB, "
        f"last against second tenth {growth:.3f}; rate, second half against first {drift:+.1%}"
    )
    sys.exit(0 if growth <= MAX_GROWTH and abs(drift) <= MAX_DRIFT else 1)


if __name__ == "__main__":
    main()
