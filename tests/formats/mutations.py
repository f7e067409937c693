"""Reads damaged files (mutants), each in its own process with limits on memory and time, for test_mutations.py.

Mutants have flipped bits, a truncated end, a column of a wrong type, or a huge number instead of a small one. Each
must give an error of Pairton or valid events. Crashes inside libraries, and processes that reached a limit, are
listed separately. Processes are forked from one that has imported everything, so a mutant takes some hundredths of
a second. The time limit is on CPU time, so that it does not depend on other programs; a deadlock is ended by the
wall clock.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, deque
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uproot

import pairton
from pairton.errors import PairtonError
from pairton.events import Events
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.formats import get_format

KINDS = ("flip", "truncate", "type", "huge")
SHARES = (0.35, 0.2, 0.2, 0.25)
MEMORY = 2 * 2**30  # bytes beyond those of the imported libraries
SECONDS, CLOCK = 30, 600  # of CPU time, and of wall-clock time
CODES = {0: "valid", 10: "error", 11: "traceback", 12: "memory"}
HUGE = (2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1)


def flip(content: bytearray, rng: np.random.Generator) -> bytearray:
    for at in rng.integers(0, 8 * len(content), rng.integers(1, 9)):
        content[at // 8] ^= 1 << int(at % 8)
    return content


def truncate(content: bytearray, rng: np.random.Generator) -> bytearray:
    return content[: int(rng.integers(0, len(content)))]


def huge(content: bytearray, rng: np.random.Generator) -> bytearray:
    """Replace a small number of two to eight bytes, in either byte order, by a huge one."""
    for _ in range(1000):
        width = int(rng.choice([2, 4, 8]))
        order = str(rng.choice(["little", "big"]))
        at = int(rng.integers(0, len(content) - width))
        value = int.from_bytes(content[at : at + width], "little" if order == "little" else "big")
        if 0 < value < 4096:
            new = int(rng.choice(np.array(HUGE, dtype=np.uint64))) % 2 ** (8 * width)
            content[at : at + width] = new.to_bytes(width, "little" if order == "little" else "big")
            break
    return content


def odd_column(length: int, rng: np.random.Generator) -> Any:
    """A column that cannot be one of jets: text, impossible numbers, other shapes or lengths."""
    choice = int(rng.integers(0, 7))
    return (
        np.array(["jet"] * length, dtype="S3"),
        np.full(length, 1e300),
        np.full((length, 3, 2), 7, dtype=np.int16),
        np.full(length, -(2**62)),
        np.full(max(0, length - 1), np.nan),
        np.full(length, True),
        np.full((length, 1000), np.inf, dtype=np.float32),
    )[choice]


def wrong_type(source: Path, target: Path, rng: np.random.Generator) -> None:
    if source.suffix == ".h5":
        shutil.copy(source, target)
        with h5py.File(target, "r+") as file:
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
            name = names[int(rng.integers(0, len(names)))]
            column = odd_column(len(file[name]), rng)
            del file[name]
            file[name] = column
    elif source.suffix == ".parquet":
        table = pq.read_table(source)
        at = int(rng.integers(0, table.num_columns))
        column = odd_column(table.num_rows, rng)
        values: Any = pa.array(column.tolist() + [None] * (table.num_rows - len(column)))
        pq.write_table(table.set_column(at, table.column_names[at], values), target)
    else:
        with uproot.open(source) as file:
            trees = {name: file[name] for name in file.keys(cycle=False) if hasattr(file[name], "arrays")}
            name, tree = next(iter(trees.items()))
            columns = tree.arrays(how=dict)
        chosen = sorted(columns)[int(rng.integers(0, len(columns)))]
        length = len(columns[chosen])
        column = odd_column(length, rng)
        if column.dtype.kind == "S" or len(column) != length:
            column = np.full(length, 2**14, dtype=np.int16)
        columns[chosen] = column
        counters = {f"n{key}" for key in columns}
        with uproot.recreate(target) as new:
            types = {
                k: v.dtype if isinstance(v, np.ndarray) and v.ndim == 1 else _type(v) for k, v in columns.items()
            }
            kept = {k: v for k, v in columns.items() if k not in counters}
            new.mktree(name, {k: types[k] for k in kept}).extend(kept)


def _type(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return np.dtype((column.dtype, column.shape[1:]))
    return str(column.type).split(" * ", 1)[1]


def mutate(source: Path, target: Path, kind: str, rng: np.random.Generator) -> None:
    if kind == "type":
        wrong_type(source, target, rng)
        return
    content = bytearray(source.read_bytes())
    target.write_bytes({"flip": flip, "truncate": truncate, "huge": huge}[kind](content, rng))


def check(events: Events) -> None:
    """Check that events are valid: arrays fit together, labels refer to jets, and numbers are finite."""
    n = len(events)
    assert ak.is_valid(events.jets)
    assert len(events.ids) == n
    if events.truth is not None:
        assert events.truth.shape[0] == n
        assert (events.truth < events.n_jets[:, None]).all()
        assert (events.truth >= -1).all()
    accepted = accept(events, Domain(), Inputs.default(events.topology))
    assert all(np.isfinite(values[accepted.answerable]).all() for values in accepted.nodes.values.values())


def child(source: Path, target: Path, kind: str, seed: int, options: dict[str, Any], report: int) -> int:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    warnings.simplefilter("ignore")
    mutate(source, target, kind, np.random.default_rng(seed))
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    spent = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (spent + SECONDS, spent + SECONDS + 5))  # SIGXCPU, then SIGKILL
    signal.alarm(CLOCK)
    try:
        check(pairton.read(target, **options))
    except PairtonError as error:
        os.write(report, str(error)[:500].encode("utf-8", "backslashreplace"))
        return 10 if "\n" not in str(error) else 11
    except MemoryError:
        return 12
    except BaseException:
        os.write(report, traceback.format_exc()[-1500:].encode())
        return 11
    return 0


def _import_for_reading(source: Path, options: dict[str, Any]) -> None:
    """Import once what reading needs, instead of in every child. A child reads, because reading starts threads."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            check(pairton.read(source, **options))
            wrong_type(source, source.with_name(f".{source.name}"), np.random.default_rng(0))
            source.with_name(f".{source.name}").unlink()
            os.write(writer, " ".join(sys.modules).encode()[:60_000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        names = stream.read().split()
    os.waitpid(process, 0)
    for name in names[:-1]:  # the last name may be cut off
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def begin(source: Path, target: Path, kind: str, seed: int, options: dict[str, Any]) -> tuple[int, int]:
    """Start a process that makes and reads one mutant. Return its id, and the pipe of its report."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        code = 13
        try:
            code = child(source, target, kind, seed, options, writer)
        finally:
            os._exit(code)
    os.close(writer)
    return process, reader


def end(process: int, reader: int) -> tuple[str, str]:
    """The outcome of a mutant, and its error message."""
    with os.fdopen(reader, "rb") as stream:
        message = stream.read().decode("utf-8", "replace")
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "time" if number in (signal.SIGALRM, signal.SIGXCPU) else "crash", signal.Signals(number).name
    return CODES.get(os.WEXITSTATUS(status), "no mutant"), message


def survey(name: str, source: Path, n: int, seed: int, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Count the outcomes of n mutants of a file, and list those that are neither valid nor an error."""
    jobs = os.cpu_count() or 1  # mutants at a time
    get_format(name)  # imported here, not in every child
    _import_for_reading(source, options)
    counts: Counter[str] = Counter()
    odd: list[dict[str, Any]] = []
    kinds = [str(kind) for kind in np.random.default_rng(seed).choice(KINDS, n, p=SHARES)]
    waiting = deque(enumerate(kinds))
    running: deque[tuple[int, str, int, int]] = deque()
    while waiting or running:
        while waiting and len(running) < jobs:
            k, kind = waiting.popleft()
            target = folder / f"mutant{k % jobs}{source.suffix}"  # its last reader has ended
            target.unlink(missing_ok=True)
            running.append((k, kind, *begin(source, target, kind, seed * 1_000_003 + k, options)))
        k, kind, *process = running.popleft()
        outcome, message = end(*process)
        counts[outcome] += 1
        if outcome not in ("valid", "error"):
            odd.append({"mutant": k, "kind": kind, "outcome": outcome, "message": message})
    return {"format": name, "mutants": n, "kinds": dict(Counter(kinds)), "outcomes": dict(counts), "odd": odd}


def main() -> None:
    """From JSON on the input (files, options by format, mutants, seed) to JSON on the output."""
    asked = json.loads(sys.stdin.read())
    with tempfile.TemporaryDirectory() as folder:
        found = [
            survey(name, Path(path), asked["n"], asked["seed"], asked["options"].get(name, {}), Path(folder))
            for name, path in asked["files"].items()
        ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
