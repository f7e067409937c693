"""Compare the time of reading with that of h5py, and measure the memory of converting.

    python benchmarks/reading.py [--events 1000000] [--json]

1. `pairton.read` of events in SPANet's layout must take at most 3 times as long as h5py takes for the same arrays.
   Both take turns in one run. The file is compressed, as training files are; the result for an uncompressed file,
   from which h5py only copies bytes, is also given.
2. The peak memory of `pairton convert` on a file ten times larger must be at most 10% higher.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from inference_process import run_command

WIDTH = 16
TARGETS = ("t1/q1", "t1/q2", "t1/b", "t2/q1", "t2/q2", "t2/b")
BLOCK = 100_000
MAX_RATIO, MAX_GROWTH = 3.0, 1.1
COMPRESSED = {"compression": "gzip", "compression_opts": 4}


def write_file(path: Path, n_events: int, storage: dict[str, Any]) -> None:
    """Write jets with realistic distributions in SPANet's layout."""
    rng = np.random.default_rng(1)
    rows_at_once = min(4096, n_events)
    if storage:
        storage = {**storage, "chunks": (rows_at_once, WIDTH)}
    with h5py.File(path, "w") as file:
        group = file.create_group("INPUTS/Source")
        group.create_dataset("MASK", (n_events, WIDTH), bool, **storage)
        for name in ("pt", "eta", "phi", "mass", "btag"):
            group.create_dataset(name, (n_events, WIDTH), np.float32, **storage)
        rows = {**storage, "chunks": (rows_at_once,)} if storage else {}
        for name in TARGETS:
            file.create_dataset(f"TARGETS/{name}", (n_events,), np.int64, **rows)
        for start in range(0, n_events, BLOCK):
            n = min(BLOCK, n_events - start)
            part = slice(start, start + n)
            mask = np.arange(WIDTH) < rng.integers(6, 12, n)[:, None]
            columns = {
                "pt": 25 + rng.exponential(40, mask.shape),
                "eta": rng.uniform(-2.5, 2.5, mask.shape),
                "phi": rng.uniform(-np.pi, np.pi, mask.shape),
                "mass": rng.exponential(8, mask.shape),
                "btag": rng.random(mask.shape) < 0.3,
            }
            group["MASK"][part] = mask
            for name, values in columns.items():
                group[name][part] = np.where(mask, values, 0)
            labels = rng.permuted(np.tile(np.arange(6), (n, 1)), axis=1)
            labels[rng.random(labels.shape) < 0.1] = -1
            for slot, name in enumerate(TARGETS):
                file[f"TARGETS/{name}"][part] = labels[:, slot]


def bare(path: Path) -> int:
    """Read the same arrays with h5py."""
    arrays: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[:]

    with h5py.File(path) as file:
        file.visititems(visit)
    return len(arrays["INPUTS/Source/MASK"])


def pairton_read(path: Path) -> int:
    from pairton.formats import read

    return len(read(path))


def seconds(call: Callable[[], int]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def compare(path: Path, repeats: int = 3) -> dict[str, float]:
    """The best times of some turns, so that other load on the machine affects both."""
    pairton_read(path)  # warm up: imports, and the file in the page cache
    turns = [(seconds(lambda: bare(path)), seconds(lambda: pairton_read(path))) for _ in range(repeats)]
    h5py_time, pairton_time = (min(times) for times in zip(*turns, strict=True))
    return {"h5py_s": h5py_time, "pairton_s": pairton_time, "ratio": pairton_time / h5py_time}


def peak_memory(path: Path, output: Path) -> float:
    """Peak memory in MB of `pairton convert` (Linux)."""
    return run_command("convert", str(path), str(output), "--force").peak_mib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    results: dict[str, Any] = {"events": chosen.events}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.h5"
        write_file(path, chosen.events, COMPRESSED)
        results["compressed"] = compare(path)
        small = Path(folder) / "small.h5"
        write_file(small, chosen.events // 10, COMPRESSED)
        for suffix in (".h5", ".root", ".parquet"):
            output = Path(folder) / f"out{suffix}"
            one, ten = peak_memory(small, output), peak_memory(path, output)
            results[f"convert to {suffix}"] = {"MB": one, "MB of ten times more": ten, "ratio": ten / one}
        write_file(path, chosen.events, {})
        results["uncompressed"] = compare(path)
    if chosen.json:
        print(json.dumps(results))
    else:
        for name, value in results.items():
            text = value if isinstance(value, int) else ", ".join(f"{k} {v:.2f}" for k, v in value.items())
            print(f"{name:20} {text}")
    growth = max(value["ratio"] for name, value in results.items() if name.startswith("convert"))
    good = results["compressed"]["ratio"] <= MAX_RATIO and growth <= MAX_GROWTH
    print(
        f"reading within {MAX_RATIO}x and memory within {MAX_GROWTH}x: {'yes' if good else 'no'}", file=sys.stderr
    )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
