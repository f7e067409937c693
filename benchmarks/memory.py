"""Measure the peak memory of `pairton reconstruct` against the number of jets per event and of threads.

    python benchmarks/memory.py [--jets 6 12 20 28 32] [--threads 1 2] [--suffix .parquet]

Every file has 50,000 events with that many jets, which the reader holds in memory. In most of them the jets are
too soft to be used, so that a run takes seconds. The others fill the largest batches of the network and of the
sums, and a few events with fewer hard jets make every table necessary. All jets are used (`--max-objects`), up to
the limit of the exact sums.

The limit is 400 MiB plus 100 MiB per thread. The command fails if it is exceeded.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import awkward as ak
import numpy as np

from inference_process import run_command
from pairton import formats
from pairton.events import Events
from pairton.events.objects import make_jets

EVENTS = 50_000
HARD = 260  # events whose jets are used: more than two threads process at a time
LEAST = 6  # least number of jets
BASE, PER_THREAD = 400, 100  # MiB


def write_events(path: Path, n_jets: int) -> None:
    """Write events with jets in random directions, most of them soft."""
    rng = np.random.default_rng(n_jets)
    pt = rng.uniform(1, 20, (EVENTS, n_jets))
    pt[:HARD] = rng.uniform(30, 200, (HARD, n_jets))
    for fewer in range(LEAST, n_jets):
        pt[HARD + fewer, :fewer] = rng.uniform(30, 200, fewer)
    eta, phi = rng.uniform(-2.4, 2.4, pt.shape), rng.uniform(-np.pi, np.pi, pt.shape)
    columns = {
        "pt": pt,
        "eta": eta,
        "phi": phi,
        "mass": np.full(pt.shape, 5.0),
        "btag": rng.random(pt.shape) < 0.2,
    }
    jets = make_jets(**{name: ak.from_regular(ak.Array(values)) for name, values in columns.items()})
    with formats.create(path, (events := Events(jets)).topology) as writer:
        writer.write(events)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jets", type=int, nargs="+", default=[6, 8, 12, 16, 20, 24, 28, 32])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--suffix", default=".parquet")
    parser.add_argument("--decoding", default="exact")
    parser.add_argument("--model", default="default")
    options = parser.parse_args()
    print(f"| jets | {' | '.join(f'{n} threads: MiB (bound)' for n in options.threads)} |")
    print("|---" * (1 + len(options.threads)) + "|")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for n_jets in options.jets:
            source = Path(folder) / f"events{options.suffix}"
            write_events(source, n_jets)
            cells = []
            for threads in options.threads:
                how = ["--max-objects", str(n_jets), "--decoding", options.decoding, "--model", options.model]
                how += ["--threads", str(threads), "--force", "-o", str(source.with_name("out.parquet"))]
                run, bound = run_command("reconstruct", str(source), *how), BASE + PER_THREAD * threads
                worst = max(worst, run.peak_mib / bound)
                cells.append(f"{run.peak_mib:.0f} ({bound})")
            print(f"| {n_jets} | {' | '.join(cells)} |", flush=True)
            source.unlink()
    if worst > 1:
        sys.exit(f"memory is {worst:.2f} times the limit")


if __name__ == "__main__":
    main()
