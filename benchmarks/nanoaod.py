"""Compare reading NanoAOD with uproot alone on the same branches, and measure the peak memory of a large file.

    python benchmarks/nanoaod.py --megabytes 1000

A synthetic file of that size is written to a temporary folder, with 8 jets and 60 generator particles per event,
rounded and compressed as in real files, and with branches that are not read. The ratio is one of CPU times within
one run, in the same chunks. Peak memory is that of a new process that reads the file (Linux only).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import awkward as ak
import numpy as np
import numpy.typing as npt
import uproot

from pairton.formats import iterate, open_source
from pairton.formats.column_files import DEFAULT_CHUNK
from pairton.formats.experiment import ExperimentSource

__all__ = ["main"]

BTAG = "PNetB:0.245"
BATCH = 20_000  # events written at once
JETS, PARTICLES = 8, 60  # mean numbers per event; particles include the decay of a top pair
HARD = 1 << 7
DECAY = {
    "pdgId": [21, 21, 6, -6, 24, 5, -24, -5, 4, -3, 1, -2],
    "genPartIdxMother": [-1, -1, 0, 0, 2, 2, 3, 3, 4, 4, 6, 6],
    "status": [21, 21, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23],
}
OTHERS = 20  # further branches of jets


def rounded(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """float32 with ten bits of mantissa, as in NanoAOD."""
    bits = values.astype(np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def batch(n: int, first: int, rng: np.random.Generator) -> dict[str, Any]:
    """Random events that all contain the same decay."""
    n_jets = rng.poisson(JETS, n)
    total = int(n_jets.sum())
    jets = {
        "pt": 15 + rng.exponential(40, total),
        "eta": rng.normal(0, 1.5, total),
        "phi": rng.uniform(-np.pi, np.pi, total),
        "mass": rng.exponential(8, total),
        "btagPNetB": rng.random(total),
    } | {f"other{k}": rng.random(total) for k in range(OTHERS)}
    content = {f"Jet_{name}": ak.unflatten(rounded(values), n_jets) for name, values in jets.items()}
    content["Jet_jetId"] = ak.unflatten((rng.random(total) > 0.05).astype(np.uint8) * 6, n_jets)
    hard = len(DECAY["pdgId"])
    n_parts = hard + rng.poisson(PARTICLES - hard, n)
    at = np.arange(n_parts.sum()) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
    inside = at < hard
    soft = {"pdgId": rng.choice([21, 211, 22, 5], len(at)), "genPartIdxMother": at - 1, "status": at * 0 + 1}
    for name, kind in (("pdgId", np.int32), ("genPartIdxMother", np.int16), ("status", np.int32)):
        values = np.where(inside, np.array(DECAY[name])[np.minimum(at, hard - 1)], soft[name])
        content[f"GenPart_{name}"] = ak.unflatten(values.astype(kind), n_parts)
    content["GenPart_statusFlags"] = ak.unflatten(np.where(inside, HARD, 0).astype(np.uint16), n_parts)
    for name, values in (("eta", rng.normal(0, 1.5, len(at))), ("phi", rng.uniform(-np.pi, np.pi, len(at)))):
        content[f"GenPart_{name}"] = ak.unflatten(rounded(values), n_parts)
    return content | {
        "run": np.ones(n, dtype=np.uint32),
        "luminosityBlock": np.arange(first, first + n, dtype=np.uint32) // 1000,
        "event": np.arange(first, first + n, dtype=np.uint64),
        "genWeight": np.ones(n, dtype=np.float32),
        "LHEPdfWeight": rounded(rng.normal(1, 0.1, (n, 100))),
    }


def write(path: Path, megabytes: float) -> int:
    """Write a file of about that size, and return the number of events."""
    rng = np.random.default_rng(1)
    n = 0
    with uproot.recreate(path, compression=uproot.ZSTD(5)) as file:
        while not n or path.stat().st_size < megabytes * 1e6:
            content = batch(BATCH, n, rng)
            if not n:
                kinds = {
                    name: f"var * {column.layout.content.dtype}"
                    if isinstance(column, ak.Array)
                    else np.dtype((column.dtype, column.shape[1:]))
                    for name, column in content.items()
                }
                file.mktree("Events", kinds)
            file["Events"].extend(content)
            n += BATCH
    return n


def branches(path: Path) -> list[str]:
    """The branches that our reader reads."""
    with open_source(path, btag=BTAG) as source:
        assert isinstance(source, ExperimentSource)
        with patch.object(source.tree, "read", wraps=source.tree.read) as read:
            source.read(0, 1)
        return [name for call in read.call_args_list for name in call.args[0]]


def read_with_pairton(path: Path) -> float:
    start = time.process_time()
    for _ in iterate(str(path), btag=BTAG):
        pass
    return time.process_time() - start


def read_with_uproot(path: Path, names: list[str]) -> float:
    start = time.process_time()
    with uproot.open({str(path): "Events"}) as tree:
        for first in range(0, tree.num_entries, DEFAULT_CHUNK):
            tree.arrays(names, entry_start=first, entry_stop=first + DEFAULT_CHUNK, how=dict)
    return time.process_time() - start


def peak(path: Path) -> float:
    """Peak memory in MB of a new process that reads."""
    command = [sys.executable, __file__, "--child", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def child(path: str) -> None:
    for events in iterate(path, btag=BTAG):
        assert events.truth is not None
    # not ru_maxrss: for a child it includes the size of the process that started it
    status = Path("/proc/self/status").read_text()
    print(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100, help="size of the file [100]")
    parser.add_argument("--repeat", type=int, default=3, help="pairs of readings; the best of each counts [3]")
    parser.add_argument("--child", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.child:
        child(options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nano.root"
        n = write(path, options.megabytes)
        names = branches(path)
        pairs = [(read_with_pairton(path), read_with_uproot(path, names)) for _ in range(options.repeat)]
        pairton_time, uproot_time = (min(times) for times in zip(*pairs, strict=True))
        result = {
            "megabytes": round(path.stat().st_size / 1e6),
            "events": n,
            "branches": len(names),
            "seconds": round(pairton_time, 2),
            "seconds_uproot": round(uproot_time, 2),
            "ratio": round(pairton_time / uproot_time, 2),
            "peak_megabytes_reading": round(peak(path)),
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
