"""The objects of a kind as flat arrays over all events, and the ragged arrays that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError
from pairton.events.vectors import energy_of
from pairton.formats.columns import Chosen, combined
from pairton.topology import JET, collection_name

__all__ = ["Chunk", "FlatObjects", "Padded", "flat_fields", "merged"]

MASSES = ("msoftdrop",)  # further fields in units of momenta
BLOCK = 32_768  # objects whose energies are computed at once, so that intermediate results stay in the cache

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer[Any]]
Flat = npt.NDArray[Any]


class Padded:
    """Objects in padded columns, given by a mask (n, width), which may have holes.

    >>> rows = Padded(np.array([[True, False, True], [False, False, False]]))
    >>> rows.counts.tolist(), rows.take(np.array([[5, 6, 7], [8, 9, 9]])).tolist(), rows.index.tolist()
    ([2, 0], [5, 7], [0, 2])
    >>> rows.positions(np.array([[2, 1], [-1, 0]])).tolist()
    [[1, -2], [-1, -2]]
    """

    def __init__(self, mask: Bools) -> None:
        self.mask = np.ascontiguousarray(mask)
        self.counts = np.asarray(np.sum(mask, axis=1, dtype=np.int64))
        self._at = np.flatnonzero(self.mask)

    def take(self, columns: Flat) -> Flat:
        """The values of the objects in padded columns (n, width), as a flat array."""
        return np.asarray(np.take(columns, self._at, mode="clip"))  # "clip" skips the check of each index

    @cached_property
    def holes(self) -> bool:
        """Whether padding comes before an object in some event."""
        flat, width = self.mask.reshape(-1), max(1, self.mask.shape[1])
        begins = flat[1:] > flat[:-1]  # an object after padding is after a hole, except in the first column
        return bool(np.count_nonzero(begins) > np.count_nonzero(begins[width - 1 :: width]))

    @cached_property
    def index(self) -> Ints | None:
        """The column of each object; None if it is the position of the object in the event."""
        return self._at % self.mask.shape[1] if self.holes else None

    def positions(self, columns: Ints) -> Ints:
        """Convert columns (n, S) to positions among the objects; -1 stays, and columns without object give -2."""
        width = self.mask.shape[1]
        if not self.holes:
            return columns
        inside = (columns >= 0) & (columns < width)
        at = np.where(inside, columns, 0)
        rank = np.cumsum(self.mask, axis=1) - 1
        held = inside & np.take_along_axis(self.mask, at, axis=1)
        return np.where(held, np.take_along_axis(rank, at, axis=1), np.where(columns == -1, -1, -2))


@dataclass
class FlatObjects:
    """The objects of a kind in some events.

    >>> one = np.ones(3)
    >>> leptons = FlatObjects(np.array([2, 0, 1]), {"pt": one, "eta": 0 * one, "phi": one, "charge": -one})
    >>> leptons.ragged().energy.tolist()
    [[1.0, 1.0], [], [1.0]]
    """

    counts: npt.NDArray[np.int64]  # (n,): objects per event
    fields: dict[str, Flat]  # field -> (J,), with momenta as in the file
    padded: Padded | None = None  # where they are in padded columns
    usable: Bools | None = None  # (J,): whether they pass their identification; None: all do

    @classmethod
    def of_padded(
        cls, padded: Padded, chosen: Mapping[str, Sequence[Any]], read: Callable[[Any], Flat]
    ) -> FlatObjects:
        """chosen: field -> what it is computed from; read: function from that to a padded column (n, width)."""
        fields = {
            name: combined(name, [padded.take(read(part)) for part in parts]) for name, parts in chosen.items()
        }
        return cls(padded.counts, fields, padded)

    def __len__(self) -> int:
        return len(self.fields["pt"])

    @cached_property
    def event(self) -> npt.NDArray[np.intp]:
        """(J,): the event of each object."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def passing(self) -> Bools:
        """(J,): whether each object is usable."""
        return np.ones(len(self), dtype=bool) if self.usable is None else self.usable

    def keep(self, passes: Bools) -> None:
        """Mark objects that do not pass as not usable."""
        self.usable = self.passing & passes

    def near(self, others: FlatObjects, used: Bools, radius: float) -> Bools:
        """(J,): whether one of the others that are `used` is within a distance in eta and phi."""
        event, eta, phi = (values[used] for values in (others.event, others.fields["eta"], others.fields["phi"]))
        eta, phi = np.append(eta, np.nan).astype(np.float64), np.append(phi, np.nan).astype(np.float64)
        n_others = np.bincount(event, minlength=len(self.counts))
        first = np.cumsum(n_others) - n_others
        own_eta, own_phi = (np.asarray(self.fields[name], np.float64) for name in ("eta", "phi"))
        near = np.zeros(len(own_eta), dtype=bool)
        for k in range(int(n_others.max(initial=0))):  # over the few leptons of an event
            at = np.where(k < n_others, first + k, -1)[self.event]
            d_phi = own_phi - phi[at]
            d_phi -= 2 * np.pi * np.round(d_phi / (2 * np.pi))
            near |= np.hypot(own_eta - eta[at], d_phi) < radius
        return near

    def ragged(self, scale: float = 1.0) -> ak.Array:
        """Momentum4D records with GeV; momenta are divided by `scale`.

        Objects without eta are transverse; those without energy and mass are massless.
        """
        found = dict(self.fields)
        pt, phi, eta = found.pop("pt"), found.pop("phi"), found.pop("eta", None)
        energy, mass = found.pop("energy", None), found.pop("mass", None)
        if scale != 1.0:
            pt = pt / scale
            energy = None if energy is None else energy / scale
            mass = None if mass is None else mass / scale
            found |= {name: found[name] / scale for name in MASSES if name in found}
        eta = np.zeros(len(pt), dtype=np.float32) if eta is None else eta
        if energy is None:
            mass = np.zeros(len(pt), dtype=np.float32) if mass is None else mass
            energy = np.empty(len(pt), dtype=np.float64)
            for start in range(0, len(pt), BLOCK):
                part = slice(start, start + BLOCK)
                energy[part] = energy_of(pt[part], eta[part], mass[part])
        momentum = {"pt": pt, "eta": eta, "phi": phi}
        content = {name: _array(values, np.float32) for name, values in momentum.items()}
        content["energy"] = _array(energy, np.float64)
        content |= {name: _array(values, np.float32) for name, values in found.items()}
        if self.padded is not None and self.padded.index is not None:
            content["index"] = _array(self.padded.index, np.int32)
        if self.usable is not None:
            content["usable"] = _array(self.usable, np.bool_)
        offsets = np.zeros(len(self.counts) + 1, dtype=np.int64)
        np.cumsum(self.counts, out=offsets[1:])
        record = ak.contents.RecordArray(
            [ak.contents.NumpyArray(values) for values in content.values()],
            list(content),
            length=int(offsets[-1]),
            parameters={"__record__": "Momentum4D"},
        )
        return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), record))


def _array(values: Flat, dtype: type[np.generic]) -> Flat:
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes inf, which makes a bad object
        return np.ascontiguousarray(values, dtype=dtype)


def merged(parts: Sequence[FlatObjects]) -> FlatObjects:
    """Join collections event by event; fields are kept if all have them.

    >>> electrons = FlatObjects(np.array([1, 2]), {"pt": np.array([9, 8, 7])})
    >>> both = merged([electrons, FlatObjects(np.array([1, 0]), {"pt": np.array([5])})])
    >>> both.counts.tolist(), both.fields["pt"].tolist()
    ([2, 2], [9, 5, 8, 7])
    """
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([part.event for part in parts]), kind="stable")
    shared = [name for name in parts[0].fields if all(name in part.fields for part in parts)]
    joined = FlatObjects(
        np.sum([part.counts for part in parts], axis=0),
        {name: np.concatenate([part.fields[name] for part in parts])[order] for name in shared},
    )
    if any(part.usable is not None for part in parts):
        joined.usable = np.concatenate([part.passing for part in parts])[order]
    return joined


class Chunk(Mapping[str, ak.Array]):
    """Rows [start, stop) of some columns of a table; each column is flattened once."""

    def __init__(self, data: Mapping[str, ak.Array], path: str, start: int, stop: int) -> None:
        self.path, self.start, self.stop = path, start, stop
        self._data = data
        self._flat: dict[str, tuple[npt.NDArray[np.int64], Flat]] = {}

    def __getitem__(self, name: str) -> ak.Array:
        return self._data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def jagged(self, name: str, single: bool = False) -> tuple[npt.NDArray[np.int64], Flat]:
        """Lengths and flat values of a column of lists; `single` also allows one number per event."""
        if name not in self._flat:
            self._flat[name] = _jagged(self._data[name], name, self.path, single)
        return self._flat[name]

    def flat(self, name: str, like: Ints) -> Flat:
        """The flat values of a column that has one for each jet."""
        return flat_fields(self, {name: (name,)}, like=like).fields[name]


def _jagged(array: ak.Array, name: str, path: str, single: bool) -> tuple[npt.NDArray[np.int64], Flat]:
    if single and array.ndim == 1 and not ak.fields(array):
        array = ak.unflatten(array, 1) if len(array) else ak.Array(np.zeros((0, 1)))
    if array.ndim != 2 or ak.fields(array):
        raise FormatError(
            f"{path}: column {name} has the type {array.type}, but must have one list of numbers per event"
        )
    if bool(ak.any(ak.is_none(array))):
        raise FormatError(
            f"{path}: column {name} has missing lists (null), but must have one list per event: write empty lists "
            "for events without objects"
        )
    counts = np.asarray(ak.num(array, axis=1), dtype=np.int64)
    values = ak.flatten(array)
    if "unknown" in str(values.type):  # only empty lists: no type to infer
        return counts, np.zeros(0)
    try:
        return counts, ak.to_numpy(values, allow_missing=False)
    except ValueError:
        raise FormatError(
            f"{path}: column {name} has the type {array.type}, but must have numbers without missing values"
        ) from None


def flat_fields(chunk: Chunk, chosen: Chosen, kind: str = JET, like: Ints | None = None) -> FlatObjects:
    """The fields of objects; FormatError if columns differ in length.

    like: the number of objects per event, if it is known from other columns.
    """
    flat: dict[str, Flat] = {}
    counts = None if like is None else np.asarray(like, dtype=np.int64)
    for field_name, parts in chosen.items():
        values = []
        for name in parts:
            lengths, numbers = chunk.jagged(name, single=kind != JET)
            counts = lengths if counts is None else counts
            if not np.array_equal(counts, lengths):
                row = int(np.nonzero(counts != lengths)[0][0])
                raise FormatError(
                    f"{chunk.path}: columns of unequal length: in the same event, {name} has {lengths[row]} "
                    f"{collection_name(kind)}, but others have {counts[row]}: write the file again, or choose "
                    "other columns with --map"
                )
            values.append(numbers)
        flat[field_name] = combined(field_name, values)
    assert counts is not None
    return FlatObjects(counts, flat)
