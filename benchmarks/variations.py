"""Processor time of a reconstruction with systematic variations of jets, relative to one without.

    python benchmarks/variations.py NANOAOD.root --variations 20 --model ttbar_semilep

The jets of the file get further columns, each with the pT of jets changed by up to 2 %: in all events, or in a
share of them. Each time is that of the whole command, in a process of its own, with one thread; the table has the
median of several runs.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import awkward as ak
import numpy as np
import uproot

PREFIXES = ("Jet_", "Electron_", "Muon_", "PuppiMET_")
EVENT = ("run", "luminosityBlock", "event")


def write_varied(source: Path, target: Path, count: int, share: float, copies: int) -> None:
    """Write the file as Parquet, `copies` times, with the columns Jet_pt_v0, Jet_pt_v1, ..."""
    with uproot.open(source) as file:
        tree = file["Events"]
        content = {n: tree[n].array() for n in list(tree.keys()) if n.startswith(PREFIXES) or n in EVENT}
    content = {name: ak.concatenate([array] * copies) for name, array in content.items()}
    rng = np.random.default_rng(1)
    pt = content["Jet_pt"]
    for k in range(count):
        moved = rng.random(len(pt)) < share
        factor = np.where(moved, rng.uniform(0.98, 1.02, len(pt)), 1.0)
        content[f"Jet_pt_v{k}"] = ak.values_astype(pt * factor, np.float32)
    ak.to_parquet(ak.zip(content, depth_limit=1), target)


def seconds(*arguments: str) -> float:
    """Processor time of `pairton` with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "pairton", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--variations", type=int, default=20)
    parser.add_argument("--model", default="ttbar_semilep")
    parser.add_argument("--btag", default="pnet_2022")
    parser.add_argument("--copies", type=int, default=1, help="how often the events are repeated")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("share of events that change | nominal / s | with variations / s | ratio")
    for share in (1.0, 0.1):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "nano.parquet"
            write_varied(options.file, path, options.variations, share, options.copies)
            command = ["reconstruct", str(path), "-o", str(Path(folder) / "out.parquet"), "--force"]
            command += ["--model", options.model, "--btag", options.btag, "--threads", "1"]
            times = [
                (seconds(*command), seconds(*command, "--variation", "nanoaod")) for _ in range(options.rounds)
            ]
        nominal, varied = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{share:27.0%} | {nominal:11.1f} | {varied:19.1f} | {varied / nominal:.2f}")


if __name__ == "__main__":
    main()
