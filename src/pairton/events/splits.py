"""Training, validation and test splits, and folds, from hashes of permanent event ids.

Shapes: n events. An id is two integers: the source (run and luminosity block, or a fingerprint of the file) and
the number of the event in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["DEFAULT_FRACTIONS", "MOST_FOLDS", "fold_of", "uniform"]

DEFAULT_FRACTIONS = (0.9, 0.05, 0.05)  # of training, validation and test events
MOST_FOLDS = 100
FOLD_SEED = 1  # differs from the default seed of splits, so that folds and splits are independent
BITS = 53  # used bits of a hash: the precision of a float


def _hashed(words: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """(n,): a hash of 53 bits per row (n, words): splitmix64, chained over the words."""
    state = np.full(len(words), (seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64, dtype=np.uint64)
    for word in words.T:
        state = state + word + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state >> np.uint64(64 - BITS)


def uniform(ids: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.float64]:
    """(n,): a pseudo-random number in [0, 1) per id (n, 2)."""
    return np.asarray(_hashed(ids, seed).astype(np.float64) / 2**BITS)


def fold_of(ids: npt.NDArray[np.uint64], folds: int) -> npt.NDArray[np.intp]:
    """(n,): the fold of each event, from 0 to `folds` - 1, from a hash of the event number.

    The source is not used, so an event that is copied to another file with its number stays in its fold.
    `docs/cpp/fold.hpp` has the same function in C++.

    >>> fold_of(np.array([[7, 1], [7, 2], [8, 2], [8, 3]], dtype=np.uint64), 2).tolist()
    [0, 0, 0, 1]
    """
    return ((_hashed(ids[:, 1:], FOLD_SEED) * np.uint64(folds)) >> np.uint64(BITS)).astype(np.intp)
