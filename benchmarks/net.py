"""A net of answers: record what the package answers before a change of its structure, and compare after it.

    python benchmarks/net.py record DIR [--src SRC] [--data FOLDER] [--only TEXT]
    python benchmarks/net.py compare BEFORE AFTER
    python benchmarks/net.py rates SRC_BEFORE SRC_AFTER [--events FILE] [--rounds N]

`record` runs the commands of `cases` with the package in SRC (a `src` folder; by default the installed package) on
every file in FOLDER and on the sample of the package. Each case leaves one file in DIR: a result (Parquet), the
JSON of an evaluation, the columns of an output format, or the line of an error. `compare` requires equal integers,
texts and statuses, and floating-point numbers equal to 1e-6; it prints every difference and exits with 1 if there
is one. `rates` measures both versions by turns in one run, and exits with 1 if a ratio is below 0.95.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MODELS = ["ttbar_allhad", "ttbar_semilep", "ttbar_dilep", "tth_allhad", "tth_semilep", "iterative", "kinematic"]
DECODINGS = ["exact", "steps", "one_shot", "one_by_one", "beam"]
BASELINES = ["chi2", "min_mass", "random", "kinematic"]
SAMPLE = "sample:ttbar_allhad"
LARGE = 2_000_000  # bytes; slow cases leave out larger files
TOLERANCE = 1e-6
LEAST_RATIO = 0.95

# Prints events per second of processor time, the median over repetitions: other programs disturb it less than
# wall-clock time.
RATE = """
import sys, time, statistics, pairton
path, model, decoding = sys.argv[1:]
events = pairton.read(path)
run = lambda: pairton.reconstruct(events, model, decoding=decoding, threads=1)
run()
seconds = []
for _ in range(3):
    start = time.process_time()
    run()
    seconds.append(time.process_time() - start)
print(len(events) / statistics.median(seconds))
"""


def cases(files: list[str]) -> Iterator[tuple[str, list[str], str]]:
    """Yield name, arguments of `pairton`, and suffix of the output for each case."""
    for path, model in itertools.product(files, MODELS):
        if model == "kinematic" and (path == SAMPLE or Path(path).stat().st_size > LARGE):
            continue
        yield f"{Path(path).stem}-{model}", ["reconstruct", path, "--model", model], ".parquet"
    for model, decoding in itertools.product(["ttbar_allhad", "iterative"], DECODINGS):
        yield (
            f"sample-{model}-{decoding}",
            ["reconstruct", SAMPLE, "--model", model, "--decoding", decoding],
            ".parquet",
        )
    for name, option in (
        ("answer-particles", ["--answer", "particles"]),
        ("allow-absent", ["--answer", "event,absent"]),
        ("prior-incomplete=0", ["--prior", "incomplete=0"]),
        ("jets-pt>30", ["--jets", "pt>30"]),
    ):
        yield f"sample--{name}", ["reconstruct", SAMPLE, *option], ".parquet"
    for path in files:
        yield f"{Path(path).stem}-inspect", ["inspect", path], ".txt"
        if path == SAMPLE or Path(path).stat().st_size <= LARGE:
            baselines = [word for name in BASELINES for word in ("--baseline", name)]
            yield f"{Path(path).stem}-evaluate", ["evaluate", path, *baselines], ".json"
    for suffix in (".root", ".h5", ".parquet"):
        yield f"sample-columns{suffix}", ["reconstruct", SAMPLE], suffix
        yield f"sample-events{suffix}", ["convert", SAMPLE], suffix


def columns(path: Path) -> dict[str, str]:
    """Name and type of every column of an output file, read without Pairton."""
    if path.suffix == ".parquet":
        return {field.name: str(field.type) for field in pq.read_schema(path)}
    if path.suffix == ".root":
        import uproot

        with uproot.open(path) as file:
            return {
                f"{tree}/{name}": branch.typename for tree in file.keys(cycle=False)
                if hasattr(file[tree], "items") for name, branch in file[tree].items()
            }  # fmt: skip
    import h5py

    found: dict[str, str] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: str(getattr(item, "dtype", "group"))}))
    return found


def record(folder: Path, src: Path | None, data: Path, only: str) -> None:
    """Run every case whose name contains `only`, and write its answer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [
        SAMPLE,
        *(str(path) for path in sorted(data.rglob("*")) if path.suffix in (".h5", ".root", ".parquet")),
    ]
    environment = os.environ | ({"PYTHONPATH": str(src.resolve())} if src else {}) | {"COLUMNS": "200"}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, arguments, suffix) in enumerate(cases(files)):
            if only not in name:
                continue
            output = Path(scratch) / f"{number}{suffix}"
            option = {".json": ["--json", str(output)], ".txt": []}.get(suffix, ["-o", str(output)])
            if arguments[0] == "convert":
                option = [str(output)]
            run = subprocess.run(
                [sys.executable, "-m", "pairton", *arguments, *option],
                env=environment,
                capture_output=True,
                text=True,
            )
            print(f"{run.returncode} {name}", flush=True)
            if run.returncode != 0:
                lines = [line for line in run.stderr.splitlines() if line.strip()]
                (folder / f"{name}.error").write_text("\n".join(lines) + "\n")
            elif "-columns" in name or "-events" in name:
                (folder / f"{name}.columns").write_text(json.dumps(columns(output), indent=1, sort_keys=True))
            elif suffix == ".txt":
                (folder / f"{name}.txt").write_text(run.stdout)
            else:
                shutil.move(output, folder / f"{name}{suffix}")


def numbers_differ(before: Any, after: Any) -> bool:
    """Whether arrays differ: integers and texts at all, floats by more than the tolerance; NaN equals NaN."""
    before, after = np.asarray(before), np.asarray(after)
    if before.shape != after.shape or before.dtype.kind != after.dtype.kind:
        return True
    if before.dtype.kind == "f":
        scale = np.maximum(1.0, np.nan_to_num(np.abs(before)))  # momenta in GeV: relative
        return not bool(
            np.all((np.abs(before - after) <= TOLERANCE * scale) | (np.isnan(before) & np.isnan(after)))
        )
    return not bool(np.array_equal(before, after))


def table_differences(before: pa.Table, after: pa.Table) -> Iterator[str]:
    """Yield one line per column that differs between two results."""
    for name in before.column_names:
        if name not in after.column_names:
            yield f"column {name} is gone"
            continue
        left, right = (table[name].combine_chunks() for table in (before, after))
        while pa.types.is_list(left.type) or pa.types.is_large_list(left.type):
            if not pa.types.is_nested(right.type):
                break
            if numbers_differ(left.value_lengths().to_numpy(False), right.value_lengths().to_numpy(False)):
                break
            left, right = left.flatten(), right.flatten()
        if left.type != right.type or numbers_differ(left.to_numpy(False), right.to_numpy(False)):
            yield f"column {name} differs"
    yield from (f"column {name} is new" for name in after.column_names if name not in before.column_names)


def json_differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield one line per entry that differs between two evaluations."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            if key in before and key in after:
                yield from json_differences(before[key], after[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is {'gone' if key in before else 'new'}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from json_differences(left, right, f"{where}[{index}]")
    elif isinstance(before, float) and isinstance(after, float):
        if numbers_differ(before, after):
            yield f"{where}: {before} became {after}"
    elif before != after:
        yield f"{where}: {before} became {after}"


def differences(before: Path, after: Path) -> Iterator[str]:
    """Yield one line per difference between two files of the same case."""
    if before.suffix == ".parquet":
        yield from table_differences(pq.read_table(before), pq.read_table(after))
    elif before.suffix in (".json", ".columns"):
        yield from json_differences(json.loads(before.read_text()), json.loads(after.read_text()))
    elif re.sub(r"\s+", " ", before.read_text()) != re.sub(r"\s+", " ", after.read_text()):
        yield "text differs"


def compare(before: Path, after: Path) -> int:
    """Print every difference between two recordings, and return their number."""
    names = sorted({path.name for folder in (before, after) for path in folder.iterdir()})
    total = 0
    for name in names:
        if not ((before / name).exists() and (after / name).exists()):
            lines = ["only before" if (before / name).exists() else "only after"]
        else:
            lines = list(differences(before / name, after / name))
        for line in lines:
            print(f"{name}: {line}")
        total += len(lines)
    print(f"{len(names)} cases, {total} differences")
    return total


def rates(before: Path, after: Path, events: str, rounds: int) -> bool:
    """Print the rates of both versions, by turns, and return whether every ratio is high enough."""
    fast_enough = True
    for model, decoding in [("ttbar_allhad", "exact"), ("iterative", "steps"), ("iterative", "one_shot")]:
        ratios = []
        for _ in range(rounds):
            pair = [
                float(
                    subprocess.run(
                        [sys.executable, "-W", "ignore", "-c", RATE, events, model, decoding],
                        env=os.environ | {"PYTHONPATH": str(src.resolve())},
                        check=True,
                        capture_output=True,
                        text=True,
                    ).stdout
                )
                for src in (before, after)
            ]  # fmt: skip
            ratios.append(pair[1] / pair[0])
        ratio = statistics.median(ratios)
        fast_enough &= ratio >= LEAST_RATIO
        print(f"{model} {decoding}: {pair[0]:.0f} events/s before, {pair[1]:.0f} after; ratio {ratio:.3f}")
    return fast_enough


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("record")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--src", type=Path)
    verb.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    verb.add_argument("--only", default="")
    verb = verbs.add_parser("compare")
    verb.add_argument("before", type=Path)
    verb.add_argument("after", type=Path)
    verb = verbs.add_parser("rates")
    verb.add_argument("before", type=Path)
    verb.add_argument("after", type=Path)
    verb.add_argument("--events", default=SAMPLE)
    verb.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.verb == "record":
        record(options.folder, options.src, options.data, options.only)
        return 0
    if options.verb == "compare":
        return int(compare(options.before, options.after) > 0)
    return int(not rates(options.before, options.after, options.events, options.rounds))


if __name__ == "__main__":
    sys.exit(main())
