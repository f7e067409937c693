"""From columns to ragged jets, without a copy more than needed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError
from pairton.events.vectors import energy_of

__all__ = ["Padded", "btag_option", "jagged", "jets_from_flat", "row_ids", "tagged"]

BLOCK = 32_768  # jets whose energies are computed at once: intermediate results stay in the cache

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


def jets_from_flat(
    counts: Ints,
    *,
    pt: Floats,
    eta: Floats,
    phi: Floats,
    btag: npt.NDArray[Any],
    energy: Floats | None = None,
    mass: Floats | None = None,
    index: Ints | None = None,
    scale: float = 1.0,
) -> ak.Array:
    """Jets of all events one after the other, `counts` of them in each; momenta are divided by `scale`.

    >>> one = np.ones(3)
    >>> jets_from_flat(np.array([2, 0, 1]), pt=one, eta=one, phi=one, btag=one, energy=2 * one).energy.tolist()
    [[2.0, 2.0], [], [2.0]]
    """
    if scale != 1.0:
        pt = pt / scale
        energy = None if energy is None else energy / scale
        mass = None if mass is None else mass / scale
    if energy is None:
        assert mass is not None
        energy = np.empty(len(pt), dtype=np.float64)
        for start in range(0, len(pt), BLOCK):
            part = slice(start, start + BLOCK)
            energy[part] = energy_of(pt[part], eta[part], mass[part])
    fields: dict[str, npt.NDArray[Any]] = {
        "pt": _array(pt, np.float32),
        "eta": _array(eta, np.float32),
        "phi": _array(phi, np.float32),
        "energy": _array(energy, np.float64),
        "btag": _array(btag, np.float32),
    }
    if index is not None:
        fields["index"] = _array(index, np.int32)
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    record = ak.contents.RecordArray(
        [ak.contents.NumpyArray(values) for values in fields.values()],
        list(fields),
        length=int(offsets[-1]),
        parameters={"__record__": "Momentum4D"},
    )
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), record))


def _array(values: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes inf: a bad jet, not a crash
        return np.ascontiguousarray(values, dtype=dtype)


class Padded:
    """A mask (n, width) of the jets in padded columns, which may have holes.

    >>> rows = Padded(np.array([[True, False, True], [False, False, False]]))
    >>> rows.counts.tolist(), rows.take(np.array([[5, 6, 7], [8, 9, 9]])).tolist(), rows.index.tolist()
    ([2, 0], [5, 7], [0, 2])
    >>> rows.positions(np.array([[2, 1], [-1, 0]])).tolist()
    [[1, -2], [-1, -2]]
    """

    def __init__(self, mask: npt.NDArray[np.bool_]) -> None:
        self.mask = np.ascontiguousarray(mask)
        self.counts = np.asarray(np.sum(mask, axis=1, dtype=np.int64))
        self._at = np.flatnonzero(self.mask)

    def take(self, columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The jets of padded columns, one after the other."""
        return np.asarray(np.take(columns, self._at, mode="clip"))  # all are inside: no need to check each

    @cached_property
    def holes(self) -> bool:
        flat, width = self.mask.reshape(-1), max(1, self.mask.shape[1])
        begins = flat[1:] > flat[:-1]  # a jet after none; only in the first column is that no hole
        return bool(np.count_nonzero(begins) > np.count_nonzero(begins[width - 1 :: width]))

    @cached_property
    def index(self) -> Ints | None:
        """The column of each jet, where that is not its position."""
        return self._at % self.mask.shape[1] if self.holes else None

    def positions(self, columns: Ints) -> Ints:
        """Columns (n, S) to positions among the jets; -1 stays, one that holds no jet becomes out of range."""
        width = self.mask.shape[1]
        if not self.holes:
            return columns
        inside = (columns >= 0) & (columns < width)
        at = np.where(inside, columns, 0)
        rank = np.cumsum(self.mask, axis=1) - 1
        held = inside & np.take_along_axis(self.mask, at, axis=1)
        return np.where(held, np.take_along_axis(rank, at, axis=1), np.where(columns == -1, -1, -2))


def jagged(array: ak.Array, name: str, path: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Lengths and numbers of a column of lists; an error where it is something else."""
    if array.ndim != 2 or ak.fields(array):
        raise FormatError(
            f"{path}: column {name} has the type {array.type}, but a list of numbers per event is needed"
        )
    counts = np.asarray(ak.num(array, axis=1), dtype=np.int64)
    values = ak.flatten(array)
    if "unknown" in str(values.type):  # only empty lists: no type to infer
        return counts, np.zeros(0)
    try:
        return counts, ak.to_numpy(values, allow_missing=False)
    except ValueError:
        raise FormatError(f"{path}: column {name} has missing values or no numbers ({array.type})") from None


def row_ids(source: int, start: int, stop: int) -> npt.NDArray[np.uint64]:
    """(n, 2): the fingerprint of the file and the row."""
    ids = np.empty((stop - start, 2), dtype=np.uint64)
    ids[:, 0] = source
    ids[:, 1] = np.arange(start, stop, dtype=np.uint64)
    return ids


def btag_option(option: str | None) -> tuple[str | None, float | None]:
    """Column and cut of `--btag COLUMN:CUT`, `--btag COLUMN` or `--btag CUT`.

    >>> btag_option("score:0.7"), btag_option("0.7"), btag_option(None)
    (('score', 0.7), (None, 0.7), (None, None))
    """
    if option is None:
        return None, None
    name, _, cut = option.rpartition(":")
    try:
        return name or None, float(cut)
    except ValueError:
        if name:
            raise ConfigError(f"btag {option!r}: after the colon a number is needed, as in score:0.7") from None
        return option, None


def tagged(btag: npt.NDArray[Any], cut: float | None) -> npt.NDArray[Any]:
    """1 for a score above the cut, 0 else; as it is without a cut. A NaN stays one."""
    return btag if cut is None else np.where(np.isnan(btag), np.nan, btag > cut)
