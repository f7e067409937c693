"""Find the columns of each field in a file, and make ragged arrays of objects from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import FormatError, nearest
from pairton.topology import JET, collection_name
from pairton.topology.kinds import KINDS

__all__ = [
    "FLAVOURS",
    "Chosen",
    "Wanted",
    "choose_columns",
    "column_names",
    "combined",
    "shown",
]

SHOWN = 20  # most columns listed in an error

FLAVOURS = {name: kind.code for name, kind in KINDS.items() if kind.code}  # leptons with a name -> PDG code

# field -> its possible names in files; each alternative lists the columns that the field is computed from
NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "phi": (("phi",), ("sin_phi", "cos_phi"), ("sinphi", "cosphi")),
    "energy": (("energy",), ("e",)),
    "mass": (("mass",), ("m",)),
    "btag": (("btag",), ("bTag",)),
    "flavour": (("flavour",), ("flavor",)),
    "pdgid": (("pdgid",), ("pdgId",)),
    "tau21": (("tau21",), ("tau2", "tau1"), ("Tau2_wta", "Tau1_wta")),
    "tau32": (("tau32",), ("tau3", "tau2"), ("Tau3_wta", "Tau2_wta")),
}
RATIOS = ("tau21", "tau32")
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
        if name == "pt" and KINDS[self.kind].transverse:
            return TRANSVERSE_PT
        return NAMES.get(name, ((name,),))

    def option(self, name: str) -> str:
        """The value of `--map` that names the column of a field."""
        return f"{name}=COLUMN" if self.kind == JET else f"{self.kind}.{name}=COLUMN"

    def fields(self, last: Sequence[str]) -> list[tuple[str, ...]]:
        """The needed fields; each entry lists alternatives, such as energy or mass."""
        if KINDS[self.kind].transverse:
            momentum: list[tuple[str, ...]] = [("pt",), ("phi",)]
        else:
            asked = tuple(name for name in last if name in self.given)
            momentum = [("pt",), ("eta",), ("phi",), asked or tuple(last)]
            if KINDS[self.kind].massless and not asked:
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
        if find("energy") and not find("mass") and not KINDS[wanted.kind].massless:
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
        others = tuple(f"{kind}_" for kind in KINDS if kind != wanted.kind)
        similar = {column for column in columns - used if not column.startswith(others)}
        raise FormatError(
            f"{where}: no column for {fields} of {collection_name(wanted.kind)}; found "
            f"{shown(available, first if named('pt') != 'pt' else wanted.kind)}"
            f"{nearest(first, similar)}; name it with --map {options}"
        )
    more = list(wanted.optional)
    if not chosen.keys() & set(last) and not KINDS[wanted.kind].transverse:
        more = [next((name for name in last if find(name)), last[0]), *more]
    for name in more:
        if name not in chosen and (found := find(name)):
            chosen[name] = found
    return chosen


def _field_text(name: str, parts: tuple[str, ...]) -> str:
    """A field and the columns it is looked for in, for an error."""
    return name if parts == (name,) else f"{name} ({' + '.join(parts)})"


def combined(name: str, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Compute a field from its columns: a single one, the sine and cosine of an angle, or a ratio.

    >>> combined("tau21", [np.array([0.2, 0.1]), np.array([0.4, 0.0])]).tolist()
    [0.5, 0.0]
    """
    if len(parts) == 1:
        return parts[0]
    if name not in RATIOS:
        return np.asarray(np.arctan2(*parts))
    above, below = (np.asarray(part, dtype=np.float64) for part in parts)
    return np.asarray(np.divide(above, below, out=np.zeros(len(above)), where=below > 0))


def shown(columns: Iterable[str], like: str = "") -> str:
    """A list of columns for an error, shortened; those that begin with the first word of `like` come first.

    >>> shown(["b", "jet_pt", "jet_eta"], "jet_phi")
    'jet_pt, jet_eta, b'
    """
    begin = re.split("[_.:]", like)[0]
    names = sorted(columns, key=lambda name: (not name.startswith(begin), begin.lower() not in name.lower()))
    more = len(names) - SHOWN
    return (", ".join(names[:SHOWN]) or "none") + (f" and {more} more" if more > 0 else "")


def column_names(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Names of columns, with patterns (`HLT_*`) replaced by the columns that they match.

    A pattern that matches nothing is kept, for the error.

    >>> column_names(["run", "HLT_*", "x*"], ["HLT_a", "HLT_b", "run"])
    ['run', 'HLT_a', 'HLT_b', 'x*']
    """
    found: list[str] = []
    for name in names:
        found += [each for each in columns if fnmatchcase(each, name)] * bool(set(name) & set("*?")) or [name]
    return list(dict.fromkeys(found))
