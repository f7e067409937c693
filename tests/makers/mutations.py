"""Damaged files (mutants), read in a worker process with limits on memory and time, for test_mutations.py.

Mutants have flipped bits, a truncated end, a column of a wrong type, or a huge number instead of a small one. Each
must give an error of Pairton or a valid answer. Crashes inside libraries are counted separately.
"""

import shutil
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uproot

import pairton
from pairton._common.worker import Limits, Worker
from pairton.errors import InputError, PairtonError
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.models.model import load_model

SHARES = {"flip": 0.35, "truncate": 0.2, "type": 0.2, "huge": 0.25}
LIMITS = Limits(memory=2 * 2**30)
MOST = 200  # mutants of one worker
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
        order: Any = str(rng.choice(["little", "big"]))
        at = int(rng.integers(0, len(content) - width))
        if 0 < int.from_bytes(content[at : at + width], order) < 4096:
            new = int(rng.choice(np.array(HUGE, dtype=np.uint64))) % 2 ** (8 * width)
            content[at : at + width] = new.to_bytes(width, order)
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
    if source.suffix in (".h5", ".hdf5"):
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
        kept = {key: values for key, values in columns.items() if key not in {f"n{each}" for each in columns}}
        with uproot.recreate(target) as new:
            new.mktree(name, {key: _type(values) for key, values in kept.items()}).extend(kept)


def _type(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return np.dtype((column.dtype, column.shape[1:]))
    return str(column.type).split(" * ", 1)[1]


def mutate(source: Path, target: Path, kind: str, rng: np.random.Generator) -> None:
    if kind == "type" and source.suffix != ".onnx":
        wrong_type(source, target, rng)
        return
    content = bytearray(source.read_bytes())
    target.write_bytes({"truncate": truncate, "huge": huge}.get(kind, flip)(content, rng))


def use(path: Path, options: dict[str, Any]) -> None:
    """Run a model, or read events, whose arrays must fit together, labels refer to jets, and numbers be finite."""
    if path.suffix == ".onnx":
        load_model(path).predict(Nodes.full({"jet": np.ones((1, 6, 5), np.float32)}))
        return
    events = pairton.read(path, **options)
    n = len(events)
    assert ak.is_valid(events.jets)
    assert len(events.ids) == n
    if events.truth is not None:
        assert events.truth.shape[0] == n
        assert (events.truth < events.n_jets[:, None]).all()
        assert (events.truth >= -1).all()
    accepted = accept(events, Domain(), Inputs.default(events.topology))
    assert all(np.isfinite(values[accepted.answerable]).all() for values in accepted.nodes.values.values())


class Mutants:
    """Makes mutants and uses them, in a worker process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def outcome(self, source: str, kind: str, seed: int, options: dict[str, Any]) -> tuple[str, str]:
        """What came of a mutant (valid, error, traceback or memory), and the message of the error."""
        target = self.folder / f"mutant{Path(source).suffix}"
        target.unlink(missing_ok=True)
        mutate(Path(source), target, kind, np.random.default_rng(seed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                use(target, options)
        except PairtonError as error:
            return "traceback" if "\n" in str(error) else "error", str(error)[:500]
        except MemoryError:
            return "memory", ""
        except Exception:
            return "traceback", traceback.format_exc()[-1500:]
        return "valid", ""


def survey(files: dict[str, Path], options: dict[str, dict[str, Any]], n: int, seed: int) -> list[dict[str, Any]]:
    """For each file: the outcomes of n mutants counted, their kinds, and those neither valid nor an error."""
    worker, used, found = None, 0, []
    for name, path in files.items():
        kinds = np.random.default_rng(seed).choice(list(SHARES), n, p=list(SHARES.values())).tolist()
        counts: Counter[str] = Counter()
        odd = []
        for k, kind in enumerate(kinds):
            if worker is None or used == MOST:
                worker, used = Worker(Mutants, name="a mutant", limits=LIMITS), 0
            used += 1
            asked = str(path), kind, seed * 1_000_003 + k, options.get(name, {})
            try:
                outcome, message = worker.call("outcome", *asked)
            except InputError as error:
                worker, outcome, message = None, "crash", str(error)
            counts[outcome] += 1
            if outcome not in ("valid", "error"):
                odd.append({"mutant": k, "kind": kind, "outcome": outcome, "message": message})
        found.append({"format": name, "kinds": set(kinds), "outcomes": dict(counts), "odd": odd})
    return found
