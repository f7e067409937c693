"""Identify electrons and muons, and remove jets that overlap with them, in the same way for all formats.

No object is taken out of a collection. Leptons that fail the identification, and jets near identified leptons,
stay in their places and are marked as not usable.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, InputError, PairtonWarning
from pairton.events.domain import LEPTONS
from pairton.formats.column_files import Table
from pairton.formats.columns import flat_fields
from pairton.formats.identification import NONE, Identification
from pairton.topology import JET, Topology, collection_name

__all__ = [
    "LEPTONS",
    "SETTINGS",
    "Flavour",
    "IdentifiedLeptons",
    "OneChoice",
    "Overlap",
    "StoredLeptons",
    "stored_settings",
]

Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, ak.Array]

RADIUS, LEAST_PT = 0.4, 15.0
SETTINGS: Mapping[str, str] = {  # keys of `--set` that all formats with leptons share
    "overlap": "jets within this delta R of an identified lepton are not used; none: use all jets; default: 0.4",
    "lepton_pt": "smallest pT in GeV of leptons that remove jets; default: 15",
}


def stored_settings() -> dict[str, str]:
    """Settings of formats with one collection per kind of lepton and without a default identification."""
    return {
        f"{kind}_id": f"conditions on fields of {collection_name(kind)}, for example isolation < 0.1; default: "
        "none"
        for kind in LEPTONS
    } | dict(SETTINGS)


@dataclass(frozen=True)
class Overlap:
    """The removal of jets near leptons."""

    radius: float = RADIUS  # delta R; 0: all jets are used
    pt: float = LEAST_PT  # smallest pT of the lepton, GeV
    default: bool = True  # whether the user did not choose it

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Overlap:
        given = settings.get("overlap", str(RADIUS))
        radius = 0.0 if given.lower() == NONE else _number("overlap", given, 2 * np.pi)
        pt = _number("lepton_pt", settings.get("lepton_pt", str(LEAST_PT)))
        return cls(radius, pt, "overlap" not in settings)

    def metadata(self) -> dict[str, Any]:
        if not self.radius:
            return {"overlap": NONE}
        return {"overlap": self.radius, "lepton_pt": self.pt}

    def beside(self, jets: ak.Array, leptons: ak.Array) -> ak.Array:
        """Whether each jet has a lepton within the radius; leptons are records of eta and phi.

        >>> jets = ak.Array({"eta": [[0.0, 1.0], [0.0]], "phi": [[3.1, 0.0], [3.1]]})
        >>> Overlap().beside(jets, ak.Array({"eta": [[0.1], []], "phi": [[-3.1], []]})).tolist()
        [[True, False], [False]]
        """
        counts = np.asarray(ak.num(jets.eta, axis=1))
        eta, phi = (np.asarray(ak.flatten(jets[name]), np.float64) for name in ("eta", "phi"))
        near = np.zeros(len(eta), dtype=bool)
        n_leptons = np.asarray(ak.num(leptons.eta, axis=1))
        first = np.cumsum(n_leptons) - n_leptons
        lepton_eta, lepton_phi = (
            np.append(np.asarray(ak.flatten(leptons[name]), np.float64), np.nan) for name in ("eta", "phi")
        )
        for k in range(int(n_leptons.max(initial=0))):  # over the few leptons of an event
            at = np.repeat(np.where(k < n_leptons, first + k, -1), counts)
            d_phi = phi - lepton_phi[at]
            d_phi -= 2 * np.pi * np.round(d_phi / (2 * np.pi))
            near |= np.hypot(eta - lepton_eta[at], d_phi) < self.radius
        return ak.unflatten(near, counts)

    def warn(self, which: str) -> None:
        """Warn that jets are removed by default."""
        if self.default:
            warnings.warn(
                f"by default, jets within delta R = {self.radius:g} of {which} above {self.pt:g} GeV are not "
                "used: "
                "use them with --set overlap=none",
                PairtonWarning,
                stacklevel=2,
            )


def _number(key: str, text: str, most: float = inf) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < most:
        example = "0.4, or none" if key == "overlap" else "15"
        raise ConfigError(f"set {key}={text}: give a number such as {example}")
    return value


# -- Delphes, NanoAOD and PHYSLITE -------------------------------------------------------------------------


@dataclass(frozen=True)
class Flavour:
    """Electrons or muons of an experiment."""

    kind: str
    collection: str  # prefix of their columns
    defaults: tuple[str, ...] = (NONE,)  # identifications; the first one whose fields are in the file is used
    bits: Mapping[str, int] = field(default_factory=dict)  # field -> mask of the bits that hold its value


class IdentifiedLeptons:
    """Electrons and muons in a file of an experiment, whether or not the topology uses them."""

    def __init__(
        self,
        tree: Table,
        settings: Mapping[str, str],
        flavours: Iterable[Flavour],
        named: Callable[[str, str], str],
        used: Collection[str],
        scale: float = 1.0,
    ) -> None:
        """Choose the identifications.

        named   function from a collection and a field to the column
        used    collections of the topology's leptons; leptons of other collections only remove jets
        scale   divides momenta to get GeV
        """
        self._path, self._named, self._used, self._scale = tree.path, named, used, scale
        self.overlap = Overlap.parse(settings)
        self.needed = bool(used)
        self._flavours: dict[str, tuple[Flavour, Identification]] = {}
        for flavour in flavours:
            exists = named(flavour.collection, "pt") in tree
            chosen = self._choose(tree, flavour, settings) if exists or f"{flavour.kind}_id" in settings else None
            if chosen is not None:
                self._flavours[flavour.collection] = flavour, chosen
        keys = [f"{flavour.kind}_id" for flavour, _ in self._flavours.values()]
        self._defaults = [key for key in (*keys, "overlap") if key not in settings]  # not chosen by the user
        self._warned = not self._defaults
        if self._identifies and not self._warned:
            self._warned = True
            self._warn()

    @property
    def _identifies(self) -> bool:
        """Whether leptons of the topology are identified; not if `--map` names columns of another collection."""
        return any(collection in self._used for collection in self._flavours)

    def _choose(self, tree: Table, flavour: Flavour, settings: Mapping[str, str]) -> Identification | None:
        """The identification that the user chose, or the first default that the file has the fields for."""
        key = f"{flavour.kind}_id"
        if key in settings:
            chosen = Identification.parse(settings[key], key)
            tree.require(self._columns(flavour, chosen), hint=f" (needed by --set {key}={settings[key]})")
            return chosen
        choices = [Identification.parse(text, key) for text in flavour.defaults]
        for choice in choices:
            if all(name in tree for name in self._columns(flavour, choice)):
                return choice
        known = " or ".join(f"`{choice}`" for choice in choices)
        kind = collection_name(flavour.kind)
        missing = f"{tree.path}: {kind} cannot be identified, because the file lacks the fields of {known}"
        if self.needed:
            raise FormatError(f"{missing}: give --set {key}=CONDITIONS, or --set {key}=none to use all {kind}")
        if self.overlap.radius:
            warnings.warn(
                f"{missing}, so jets near them are used: give --set {key}=CONDITIONS, or --set overlap=none",
                PairtonWarning,
                stacklevel=5,
            )
        return None

    def _columns(self, flavour: Flavour, identification: Identification) -> list[str]:
        names = dict.fromkeys(["pt", "eta", "phi", *identification.fields])
        return [self._named(flavour.collection, name) for name in names]

    def _warn(self) -> None:
        """Warn of the identification and overlap removal, if some of it is a default."""
        which = [
            f"{collection_name(f.kind)} ({'all in the file' if not chosen.conditions else chosen})"
            for f, chosen in self._flavours.values()
            if f.collection in self._used
        ]
        overlap = (
            f", and jets within delta R = {self.overlap.radius:g} of a lepton above {self.overlap.pt:g} GeV are "
            "not used"
        )
        default = "by default, " if len(self._defaults) > len(self._flavours) else ""  # the user chose nothing
        warnings.warn(
            f"{default}leptons are {' and '.join(which)}{overlap if self.overlap.radius else ''}: change this "
            f"with {', '.join(f'--set {key}=…' for key in self._defaults)}",
            PairtonWarning,
            stacklevel=6,
        )

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return [name for flavour, chosen in self._flavours.values() for name in self._columns(flavour, chosen)]

    @property
    def metadata(self) -> dict[str, Any]:
        if not self._flavours:
            return {}
        if self.needed and not self._identifies:
            return self.overlap.metadata()
        chosen = {f"{flavour.kind}_id": str(chosen) for flavour, chosen in self._flavours.values()}
        return chosen | self.overlap.metadata()

    def identified(self, found: Columns, collection: str) -> ak.Array | None:
        """Whether each object of a collection passes; None if the collection has no identification."""
        return self._read(found, collection)[1] if collection in self._flavours else None

    def _read(self, found: Columns, collection: str) -> tuple[ak.Array, ak.Array]:
        """Leptons (pt, eta, phi, in units of the file), and whether they pass the identification."""
        flavour, chosen = self._flavours[collection]
        names = dict.fromkeys(["pt", "eta", "phi", *chosen.fields])
        columns = {name: (self._named(collection, name),) for name in names}
        counts, flat = flat_fields(found, columns, self._path, flavour.kind)
        flat |= {name: flat[name] & bits for name, bits in flavour.bits.items() if name in flat}
        good = chosen.passes(flat, len(flat["pt"]))
        leptons = ak.zip({name: ak.unflatten(flat[name], counts) for name in ("pt", "eta", "phi")})
        return leptons, ak.unflatten(good, counts)

    def selected(self, found: Columns, kind: str) -> list[ak.Array]:
        """Identified electrons, or muons: pt in GeV, eta, phi."""
        names = [collection for collection, (flavour, _) in self._flavours.items() if flavour.kind == kind]
        chosen = [leptons[good] for leptons, good in (self._read(found, collection) for collection in names)]
        return [ak.with_field(leptons, leptons.pt / self._scale, "pt") for leptons in chosen]

    def keep_apart(self, found: Columns, jets: ak.Array, usable: ak.Array | None) -> ak.Array | None:
        """Whether each jet is usable and not near an identified lepton."""
        if not self.overlap.radius:
            return usable
        for collection in self._flavours:
            leptons, good = self._read(found, collection)
            near = self.overlap.beside(jets, leptons[good & (leptons.pt > self.overlap.pt * self._scale)])
            if not ak.any(near):
                continue
            before = ak.ones_like(near) if usable is None else usable
            if not self._warned and ak.any(before & near):
                self._warned = True
                self.overlap.warn("an identified electron or muon")
            usable = before & ~near
        return usable


class OneChoice:
    """Checks that all files of a run have the same identification of leptons and the same missing energy."""

    def __init__(self) -> None:
        self._first: tuple[str, Mapping[str, str]] | None = None

    def check(self, path: str, chosen: Mapping[str, str]) -> None:
        """Raise InputError if the choices for a file (setting -> value) differ from those for the first one."""
        first, before = self._first = self._first or (path, chosen)
        for key in before.keys() & chosen.keys():
            if before[key] != chosen[key]:
                raise InputError(
                    f"{path} is read with {key}={chosen[key]}, but {first} with {before[key]}: choose one for all "
                    f"files with --set {key}=…, or run on them separately"
                )


# -- flat tables and files for training --------------------------------------------------------------------


class StoredLeptons:
    """Leptons in flat tables and in files for training. All are used, unless a setting gives conditions."""

    def __init__(self, settings: Mapping[str, str], topology: Topology, selected: bool = False) -> None:
        """`selected`: whether the objects were selected already, as in a file that Pairton wrote."""
        self.overlap = Overlap.parse({"overlap": NONE, **settings} if selected else settings)
        self._selected = selected and "overlap" not in settings
        self._kinds = topology.kinds
        self._chosen = {
            kind: Identification.parse(settings[key], key) for kind in LEPTONS if (key := f"{kind}_id") in settings
        }
        for kind in self._chosen:
            if kind not in topology.kinds:
                kinds = ", ".join(topology.kinds)
                raise ConfigError(
                    f"set {kind}_id=…: {topology.name} has the kinds {kinds}, but no {collection_name(kind)}: "
                    "remove the setting"
                )
        self._warned = False

    def fields(self, kind: str) -> tuple[str, ...]:
        """Fields that the identification of a kind needs, beyond the momentum."""
        names = self._chosen[kind].fields if kind in self._chosen else ()
        return tuple(name for name in names if name not in ("pt", "eta", "phi"))

    def beside(self, available: Sequence[str]) -> list[str]:
        """Kinds of leptons that only remove jets: they are in the file, but not in the topology."""
        if not self.overlap.radius or JET not in self._kinds:
            return []
        return [kind for kind in LEPTONS if kind in available and kind not in self._kinds]

    @property
    def metadata(self) -> dict[str, Any]:
        if not any(kind in LEPTONS for kind in self._kinds):
            return {}
        overlap = {} if self._selected else self.overlap.metadata()
        return {f"{kind}_id": str(chosen) for kind, chosen in self._chosen.items()} | overlap

    def identified(self, kind: str, flat: Mapping[str, npt.NDArray[Any]]) -> dict[str, Bools]:
        """Kind -> whether each object passes, given its fields as in the file; empty without conditions."""
        return {kind: self._chosen[kind].passes(flat, len(flat["pt"]))} if kind in self._chosen else {}

    def mark(
        self, objects: Mapping[str, ak.Array], others: Mapping[str, ak.Array], identified: Mapping[str, Bools]
    ) -> dict[str, ak.Array]:
        """Add the field `usable` to leptons and jets.

        others       kind -> leptons that only remove jets
        identified   kind -> whether each lepton passes, from `identified`
        """
        marked = dict(objects)
        for kind, good in identified.items():
            counts = np.asarray(ak.num(objects[kind], axis=1))
            marked[kind] = ak.with_field(objects[kind], ak.unflatten(good, counts), "usable")
        if not self.overlap.radius or JET not in marked:
            return marked
        for kind, leptons in [*marked.items(), *others.items()]:
            if kind not in LEPTONS:
                continue
            hard = leptons.pt > self.overlap.pt
            hard = hard & leptons.usable if "usable" in ak.fields(leptons) else hard
            near = self.overlap.beside(marked[JET], leptons[hard])
            before = marked[JET].usable if "usable" in ak.fields(marked[JET]) else ak.ones_like(near)
            if not ak.any(before & near):
                continue
            if not self._warned:
                self._warned = True
                self.overlap.warn(f"a {kind}")
            marked[JET] = ak.with_field(marked[JET], before & ~near, "usable")
        return marked
