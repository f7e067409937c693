"""Split a file in SPANet's layout by event, for training and test: python prepare.py FILE --events N TRAIN TEST

The first N events go to TRAIN, the others to TEST. Every group of inputs that has `phi` also gets `sin_phi` and
`cos_phi`, which SPANet's semileptonic example uses instead.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import h5py
import numpy as np
from common import fail


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    found: dict[str, h5py.Dataset] = {}
    file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    return found


def copy(source: dict[str, h5py.Dataset], rows: slice, output: Path) -> None:
    """Write some events to a file, under a temporary name until it is complete."""
    part = output.with_name(f".{output.name}.part")
    with h5py.File(part, "w") as file:
        for name, data in source.items():
            values = data[rows]
            file[name] = values
            if name.startswith("INPUTS/") and name.endswith("/phi"):
                group = name.removesuffix("/phi")
                file[f"{group}/sin_phi"], file[f"{group}/cos_phi"] = np.sin(values), np.cos(values)
    os.replace(part, output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--events", type=int, required=True, help="number of events for training")
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    args = parser.parse_args()
    if not args.file.is_file():
        fail(f"{args.file}: no such file; check the name and the folder")
    with h5py.File(args.file) as file:
        source = datasets(file)
        lengths = {len(data) for data in source.values()}
        if len(lengths) != 1 or not 0 < args.events < max(lengths):
            fail(f"--events {args.events}: {args.file} has {', '.join(map(str, sorted(lengths)))} events")
        copy(source, slice(0, args.events), args.train)
        copy(source, slice(args.events, None), args.test)
    print(f"{args.train}: {args.events} events; {args.test}: {lengths.pop() - args.events} events")


if __name__ == "__main__":
    main()
