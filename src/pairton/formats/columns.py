"""Find the columns of each field in a file, and make ragged arrays of objects from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, nearest
from pairton.events.domain import LEPTONS
from pairton.events.vectors import energy_of
from pairton.topology import JET, collection_name
from pairton.topology.selection import MASSLESS, TRANSVERSE

__all__ = [
    "FLAVOURS",
    "KNOWN_FIELDS",
    "Chosen",
    "Padded",
    "Wanted",
    "btag_option",
    "choose_columns",
    "column_names",
    "combined",
    "flat_fields",
    "jagged",
    "merged",
    "objects_from_flat",
    "row_ids",
    "shown",
    "tagged",
]

BLOCK = 32_768  # objects whose energies are computed at once, so that intermediate results stay in the cache
SHOWN = 20  # most columns listed in an error

FLAVOURS = {"electron": 11, "muon": 13}  # kinds that may be merged to leptons -> PDG code

# kind -> fields that are read if a file has them
KNOWN_FIELDS: Mapping[str, tuple[str, ...]] = {
    JET: ("btag",),
    "lepton": ("charge", "flavour", "pdgid"),
    "electron": ("charge",),
    "muon": ("charge",),
    "tau": ("charge",),
}
# field -> its possible names in files; each alternative lists the columns that the field is computed from
NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "phi": (("phi",), ("sin_phi", "cos_phi"), ("sinphi", "cosphi")),
    "energy": (("energy",), ("e",)),
    "mass": (("mass",), ("m",)),
    "btag": (("btag",), ("bTag",)),
    "flavour": (("flavour",), ("flavor",)),
    "pdgid": (("pdgid",), ("pdgId",)),
}
TRANSVERSE_PT = (("pt",), ("met",), ("",))  # pt of missing energy; "": a column with the name of the kind

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
Chosen = Mapping[str, tuple[str, ...]]  # field -> the columns that it is computed from


# -- which columns -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """Which fields to read for the objects of a kind."""

    kind: str
    required: tuple[str, ...] = ()  # fields beyond the four-momentum
    optional: tuple[str, ...] = ()  # fields that are read if the file has them
    given: Mapping[str, str] = field(default_factory=dict)  # field -> column, from `--map`

    def names(self, name: str) -> tuple[tuple[str, ...], ...]:
        """The possible names of a field in files."""
        if name == "pt" and self.kind in TRANSVERSE:
            return TRANSVERSE_PT
        return NAMES.get(name, ((name,),))

    def option(self, name: str) -> str:
        """The value of `--map` that names the column of a field."""
        return f"{name}=COLUMN" if self.kind == JET else f"{self.kind}.{name}=COLUMN"

    def fields(self, last: Sequence[str]) -> list[tuple[str, ...]]:
        """The needed fields; each entry lists alternatives, such as energy or mass."""
        if self.kind in TRANSVERSE:
            momentum: list[tuple[str, ...]] = [("pt",), ("phi",)]
        else:
            asked = tuple(name for name in last if name in self.given)
            momentum = [("pt",), ("eta",), ("phi",), asked or tuple(last)]
            if self.kind in MASSLESS and not asked:
                momentum.pop()
        return momentum + [(name,) for name in self.required]


def choose_columns(
    wanted: Wanted,
    available: Iterable[str],
    where: str,
    named: Callable[[str], str] = str,
    last: Sequence[str] = ("energy", "mass"),
) -> Chosen:
    """Find the columns of each field of a kind; FormatError lists the fields without one.

    available   columns of the file
    where       the file, and the part of it, for the error
    named       function from a field to its column in the file
    last        fields that complete the four-momentum, the preferred one first

    >>> choose_columns(Wanted("met"), ["met", "met_phi"], "a.root", lambda name: f"met_{name}" if name else "met")
    {'pt': ('met',), 'phi': ('met_phi',)}
    """
    columns = set(available)

    def default(name: str) -> list[tuple[str, ...]]:
        return [tuple(map(named, parts)) for parts in wanted.names(name)]

    def candidates(name: str) -> list[tuple[str, ...]]:
        return [(wanted.given[name],)] if name in wanted.given else default(name)

    def find(name: str) -> tuple[str, ...] | None:
        return next((parts for parts in candidates(name) if columns.issuperset(parts)), None)

    own_pt = next((parts[0] for parts in default("pt") if columns.issuperset(parts)), None)
    replaced = own_pt is not None and wanted.given.get("pt", own_pt) != own_pt
    if replaced and "energy" in last and wanted.given.keys().isdisjoint(last):  # the energy belongs to the old pt
        last = ("mass",)
        if find("energy") and not find("mass") and wanted.kind not in (*MASSLESS, *TRANSVERSE):
            raise FormatError(
                f"{where}: the energy of {collection_name(wanted.kind)} belongs to {own_pt}, not to "
                f"{wanted.given['pt']}: name their energy or mass too, with --map {wanted.option('energy')} or "
                f"{wanted.option('mass')}"
            )
    chosen: dict[str, tuple[str, ...]] = {}
    missing: list[tuple[str, ...]] = []
    needed = wanted.fields(last)
    for choice in needed:
        name = next((name for name in choice if find(name)), None)
        if name is None:
            missing.append(choice)
        else:
            chosen[name] = find(name) or ()
    if missing:
        first = candidates(missing[0][0])[0][0]
        fields = ", ".join(
            " or ".join(_field_text(name, candidates(name)[0]) for name in choice) for choice in missing
        )
        options = ",".join(wanted.option(choice[0]) for choice in missing)
        used = {column for parts in chosen.values() for column in parts}
        others = tuple(f"{kind}_" for kind in (JET, *LEPTONS, *TRANSVERSE) if kind != wanted.kind)
        similar = {column for column in columns - used if not column.startswith(others)}
        raise FormatError(
            f"{where}: no column for {fields} of {collection_name(wanted.kind)}; found "
            f"{shown(available, first if named('pt') != 'pt' else wanted.kind)}"
            f"{nearest(first, similar)}; name it with --map {options}"
        )
    more = list(wanted.optional)
    if not chosen.keys() & set(last) and wanted.kind not in TRANSVERSE:
        more = [next((name for name in last if find(name)), last[0]), *more]
    for name in more:
        if name not in chosen and (found := find(name)):
            chosen[name] = found
    return chosen


def _field_text(name: str, parts: tuple[str, ...]) -> str:
    """A field and the columns it is looked for in, for an error."""
    return name if parts == (name,) else f"{name} ({' + '.join(parts)})"


def combined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Compute a field from its columns: a single one, or the sine and cosine of an angle."""
    return parts[0] if len(parts) == 1 else np.arctan2(*parts)


def shown(columns: Iterable[str], like: str = "") -> str:
    """A list of columns for an error, shortened; those that begin with the first word of `like` come first.

    >>> shown(["b", "jet_pt", "jet_eta"], "jet_phi")
    'jet_pt, jet_eta, b'
    """
    begin = re.split("[_.:]", like)[0]
    names = sorted(columns, key=lambda name: (not name.startswith(begin), begin.lower() not in name.lower()))
    more = len(names) - SHOWN
    return (", ".join(names[:SHOWN]) or "none") + (f" and {more} more" if more > 0 else "")


# -- objects -----------------------------------------------------------------------------------------------


def objects_from_flat(
    counts: Ints, fields: Mapping[str, npt.NDArray[Any]], *, index: Ints | None = None, scale: float = 1.0
) -> ak.Array:
    """Make ragged objects from flat arrays over all events.

    counts: number of objects per event; index: their positions in the file; scale: momenta are divided by it.
    Objects without eta are transverse; those without energy and mass are massless.

    >>> one = np.ones(3)
    >>> leptons = {"pt": one, "eta": 0 * one, "phi": one, "charge": -one}
    >>> objects_from_flat(np.array([2, 0, 1]), leptons).energy.tolist()
    [[1.0, 1.0], [], [1.0]]
    """
    found = dict(fields)
    pt, phi, eta = found.pop("pt"), found.pop("phi"), found.pop("eta", None)
    energy, mass = found.pop("energy", None), found.pop("mass", None)
    if scale != 1.0:
        pt = pt / scale
        energy = None if energy is None else energy / scale
        mass = None if mass is None else mass / scale
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
    if index is not None:
        content["index"] = _array(index, np.int32)
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    record = ak.contents.RecordArray(
        [ak.contents.NumpyArray(values) for values in content.values()],
        list(content),
        length=int(offsets[-1]),
        parameters={"__record__": "Momentum4D"},
    )
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), record))


def _array(values: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes inf, which makes a bad object
        return np.ascontiguousarray(values, dtype=dtype)


class Padded:
    """Objects in padded columns, given by a mask (n, width), which may have holes.

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


def column_names(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Names of columns, with patterns (`HLT_*`) replaced by the columns that they match.

    A pattern that matches nothing is kept, for the error.

    >>> column_names(["run", "HLT_*", "x*"], ["HLT_a", "HLT_b", "run"])
    ['run', 'HLT_a', 'HLT_b', 'x*']
    """
    found = [match for name in names for match in (_matches(name, columns) if set(name) & set("*?") else [name])]
    return list(dict.fromkeys(found))


def _matches(pattern: str, columns: Iterable[str]) -> list[str]:
    rule = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."))
    return [name for name in columns if rule.fullmatch(name)] or [pattern]


def jagged(
    array: ak.Array, name: str, path: str, single: bool = False
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Lengths and flat values of a column of lists; `single` also allows one number per event."""
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


def flat_fields(
    data: Mapping[str, ak.Array], chosen: Chosen, path: str, kind: str = JET, like: Ints | None = None
) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
    """The number of objects per event, and their fields as flat arrays; FormatError if columns differ in length.

    like: the number of objects per event, if it is known from other columns.
    """
    flat: dict[str, npt.NDArray[Any]] = {}
    counts = None if like is None else np.asarray(like, dtype=np.int64)
    for field_name, parts in chosen.items():
        values = []
        for name in parts:
            lengths, numbers = jagged(data[name], name, path, single=kind != JET)
            counts = lengths if counts is None else counts
            if not np.array_equal(counts, lengths):
                row = int(np.nonzero(counts != lengths)[0][0])
                raise FormatError(
                    f"{path}: columns of unequal length: in the same event, {name} has {lengths[row]} "
                    f"{collection_name(kind)}, but others have {counts[row]}: write the file again, or choose "
                    "other columns with --map"
                )
            values.append(numbers)
        flat[field_name] = combined(values)
    assert counts is not None
    return counts, flat


def merged(
    parts: Sequence[tuple[npt.NDArray[np.int64], Mapping[str, npt.NDArray[Any]]]],
) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
    """Join collections, given as in `flat_fields`, event by event; fields are kept if all have them.

    >>> electrons, muons = (np.array([1, 2]), np.array([9, 8, 7])), (np.array([1, 0]), np.array([5]))
    >>> counts, fields = merged([(counts, {"pt": pt}) for counts, pt in (electrons, muons)])
    >>> counts.tolist(), fields["pt"].tolist()
    ([2, 2], [9, 5, 8, 7])
    """
    if len(parts) == 1:
        return parts[0][0], dict(parts[0][1])
    event = np.concatenate([np.repeat(np.arange(len(counts)), counts) for counts, _ in parts])
    order = np.argsort(event, kind="stable")
    shared = [name for name in parts[0][1] if all(name in flat for _, flat in parts)]
    counts = np.sum([counts for counts, _ in parts], axis=0)
    return counts, {name: np.concatenate([flat[name] for _, flat in parts])[order] for name in shared}


def row_ids(source: int, start: int, stop: int) -> npt.NDArray[np.uint64]:
    """(n, 2): ids from the fingerprint of the file and the row."""
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
        value = float(cut)
        if not np.isfinite(value):
            raise ConfigError(f"btag {option!r}: the cut must be a number, as in 0.7 or score:0.7")
        return name or None, value
    except ValueError:
        if name:
            raise ConfigError(f"btag {option!r}: write a number after the colon, as in score:0.7") from None
        return option, None


def tagged(btag: npt.NDArray[Any], cut: float | None) -> npt.NDArray[Any]:
    """1 for scores above the cut, else 0; NaN stays NaN. Without a cut, the scores are unchanged."""
    return btag if cut is None else np.where(np.isnan(btag), np.nan, btag > cut)
