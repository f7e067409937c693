"""Compare the time of reading with that of h5py, and measure the memory of converting and the cost of small files.

    python benchmarks/reading.py [--events 1000000] [--files 2000]

1. `pairton.read` of events in SPANet's layout must take at most 3 times as long as h5py takes for the same arrays.
   Both take turns in one run. The file is compressed, as training files are; the result for an uncompressed file,
   from which h5py only copies bytes, is also given.
2. The peak memory of `pairton convert` on a file ten times larger must be at most 10% higher.
3. `pairton.read` of 2,000 files of two events must take at most 30 s of processor time, and per file at most a
   third more than 500 of them: the time per file must not grow with their number.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pairton import formats
from programs import run_command

WIDTH = 16
TARGETS = ("t1/q1", "t1/q2", "t1/b", "t2/q1", "t2/q2", "t2/b")
BLOCK = 100_000
MAX_RATIO, MAX_GROWTH = 3.0, 1.1
MAX_SECONDS = 30.0  # of processor time, for all small files
MAX_BEND = 4 / 3  # time per file of all small files and of a quarter of them
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
    return len(formats.read(path))


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


def small_files(folder: Path, n_files: int) -> dict[str, float]:
    """Processor time of reading files of two events, and the ratio to that of a quarter of them, per file."""
    paths = [folder / f"{k}.h5" for k in range(n_files)]
    write_file(paths[0], 2, {})
    for path in paths[1:]:
        shutil.copy(paths[0], path)

    def per_file(some: list[Path]) -> float:
        begun = time.process_time()
        assert len(formats.read(some)) == 2 * len(some)
        return (time.process_time() - begun) / len(some)

    quarter, all_files = per_file(paths[: n_files // 4]), per_file(paths)
    return {"files": n_files, "processor_s": all_files * n_files, "ratio": all_files / quarter}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=2000)
    chosen = parser.parse_args()
    results: dict[str, Any] = {"events": chosen.events}
    with tempfile.TemporaryDirectory() as folder:
        results["small files"] = small = small_files(Path(folder), chosen.files)
        path = Path(folder) / "events.h5"
        write_file(path, chosen.events, COMPRESSED)
        results["compressed"] = compare(path)
        tenth = Path(folder) / "tenth.h5"
        write_file(tenth, chosen.events // 10, COMPRESSED)
        for suffix in (".h5", ".root", ".parquet"):
            output = Path(folder) / f"out{suffix}"
            runs = (run_command("convert", str(each), str(output), "--force") for each in (tenth, path))
            one, ten = (run.peak_mib for run in runs)
            results[f"convert to {suffix}"] = {"MiB": one, "MiB of ten times more": ten, "ratio": ten / one}
        write_file(path, chosen.events, {})
        results["uncompressed"] = compare(path)
    for name, value in results.items():
        text = value if isinstance(value, int) else ", ".join(f"{k} {v:.2f}" for k, v in value.items())
        print(f"{name:20} {text}")
    growth = max(value["ratio"] for name, value in results.items() if name.startswith("convert"))
    met = {
        f"reading within {MAX_RATIO}x": results["compressed"]["ratio"] <= MAX_RATIO,
        f"memory within {MAX_GROWTH}x": growth <= MAX_GROWTH,
        f"small files within {MAX_SECONDS} s": small["processor_s"] <= MAX_SECONDS and small["ratio"] <= MAX_BEND,
    }
    for target, good in met.items():
        print(f"{target}: {'yes' if good else 'no'}", file=sys.stderr)
    sys.exit(0 if all(met.values()) else 1)


if __name__ == "__main__":
    main()
