"""Write a split of a labelled dataset (train, validation or test) to a file, as `pairton train` splits it.

python workflow/split.py FILES... --split test -o test.h5
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from pairton.errors import PairtonError
from pairton.events import SPLITS, Events
from pairton.formats import create, iterate

__all__ = ["rewrite", "split"]


def split(paths: Sequence[str], splits: Sequence[str], output: str) -> int:
    """Write the events of some splits, and return how many there are."""
    return rewrite(paths, output, lambda events: events[np.any([events.in_split(s) for s in splits], axis=0)])


def rewrite(paths: Sequence[str], output: str, change: Callable[[Events], Events]) -> int:
    """Write `change(events)` of each chunk, and return how many events were written."""
    stream = iterate(list(paths))
    first = next(stream)
    written = 0
    with create(output, first.topology) as writer:
        for events in chain([first], stream):
            changed = change(events)
            written += len(changed)
            writer.write(changed)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--split", action="append", required=True, choices=SPLITS, help="May be repeated.")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    try:
        print(f"{options.output}: {split(options.files, options.split, options.output)} events")
    except PairtonError as error:
        parser.exit(2, f"split: {error}\n")


if __name__ == "__main__":
    main()
