"""SPANet's HDF5 layout: groups of padded columns with a MASK, and targets with the column of each product's
object.

INPUTS/<Jets>/{MASK, pt, eta, phi | sin_phi + cos_phi, mass | energy, btag}   (n, width)
INPUTS/<Leptons>/{MASK, pt, eta, phi, charge, ...}                            (n, width), or (n,) without a MASK
INPUTS/<Met>/{met | pt, phi}                                                  (n,)
TARGETS/<particle>/<product>                                                  (n,), -1 for none
CLASSIFICATIONS/EVENT/<name>, CLASSIFICATIONS/<particle>/PARTICLE/<name>, ... (n,), -1 for none; read with `keep`
REGRESSIONS/EVENT/<name>, REGRESSIONS/<particle>/PARTICLE/<name>, ...         (n,), NaN for none; read with `keep`

Leptons may be in the collection of jets, marked by the flags `etag` and `utag`. They keep their positions there,
and are used as leptons instead of jets.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, PairtonWarning
from pairton.events import Events
from pairton.events.vectors import mass_of
from pairton.formats.base import Format, ReadOptions, Source
from pairton.formats.column_source import Kinds
from pairton.formats.columns import Wanted, choose_columns
from pairton.formats.flat_objects import FlatObjects, Padded
from pairton.formats.hdf5_files import Hdf5File
from pairton.formats.hdf5_layout import KEPT, Hdf5Source, stored_rows
from pairton.formats.lepton_selection import STORED_SETTINGS
from pairton.formats.truth import clean_labels, small
from pairton.formats.writing import KEY, EventWriter, stored_fields
from pairton.topology import JET, Topology, collection_name
from pairton.topology.extras import labels_of
from pairton.topology.kinds import KINDS, LEPTONS

__all__ = ["FORMATS", "SpanetHdf5"]

WRITTEN = {JET: "Source"}  # kind -> group to write, if it is not the capitalised name of the kind
GROUPS = {
    JET: ("source", "jets", "jet", "momenta"),
    "met": ("met", "missingenergy", "missinget"),
}  # kind -> names of its group, the preferred one first
MASK = "MASK"
FLAGS = {"etag": ("electron", 11), "utag": ("muon", 13)}  # flag of leptons among the jets -> kind, PDG code
NEUTRINO = {f"neutrino_p{axis}": f"REGRESSIONS/EVENT/neutrino_p{axis}" for axis in "xyz"}


class SpanetHdf5(Format):
    name = "spanet_hdf5"
    description = "INPUTS/<Collection>/{MASK, pt, eta, phi, mass, btag}, TARGETS/<particle>/<product>"
    suffixes = (".h5", ".hdf5")
    names = ("weight", "group", "slot", "particle")
    prepared = True
    settings: ClassVar[dict[str, str]] = {
        **STORED_SETTINGS,
        "targets": "own (each target is a row of its own collection; default), or the collections that targets "
        "index as one list, for example Jets,Leptons",
        "neutrino_unit": "unit in GeV of REGRESSIONS/EVENT/neutrino_px, _py and _pz, which are then read as the "
        "columns neutrino_px, … of the truth; default: they are not read",
    }

    def recognises(self, file: Hdf5File) -> bool:
        return bool(_groups(file))

    def open(self, file: Hdf5File, options: ReadOptions) -> Source:
        return _Source(file, options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> EventWriter:
        return EventWriter(path, topology, metadata, "HDF5", layout, KEPT)


@dataclass(frozen=True)
class _Group:
    """The datasets of a kind of objects."""

    path: str
    mask: Any  # None: one object per event
    fields: Mapping[str, tuple[Any, ...]]  # field -> the datasets it is computed from
    flags: Mapping[str, Any] = field(default_factory=dict)  # etag, utag: flags of leptons among the jets

    @property
    def datasets(self) -> dict[str, Any]:
        parts = [*(data for parts in self.fields.values() for data in parts), *self.flags.values()]
        return {data.name: data for data in (*parts, self.mask) if data is not None}


class _Source(Hdf5Source):
    def _prepare(self, file: Hdf5File) -> None:
        topology = self.options.topology
        self._kinds = {kind: self._find_objects(file, kind) for kind in topology.kinds}
        used = {group.path.removeprefix("INPUTS/") for group in self._kinds.values()}
        self.others = [name for name in _groups(file) if name not in used]
        named = {name.lower().replace("_", "") for name in _groups(file)}
        flagged = {"lepton"} if JET in self._kinds and self._kinds[JET].flags else set()
        self.removing_jets(kind for kind in LEPTONS if {kind, f"{kind}s"} & named or kind in flagged)
        self._kinds |= {kind: self._find_objects(file, kind, Wanted(kind)) for kind in self.overlap_only}
        self.rejected: dict[str, Counter[str]] = {JET: Counter()}
        self._targets = self._find_targets(file)
        self.has_truth = bool(self._targets)
        self._neutrino = self._find_neutrino(file)
        for group in self._kinds.values():
            self.datasets |= group.datasets
        self.datasets |= self._targets | {data.name: data for data in self._neutrino.values()}
        self._joined = self._find_joined()

    def _find_objects(self, file: Hdf5File, kind: str, wanted: Wanted | None = None) -> _Group:
        name = f"INPUTS/{_group(file, kind, self.options)}"
        columns = sorted(file.names(name))
        if wanted is None:
            wanted = self.options.wanted(kind, self._stored.fields)
            wanted = replace(wanted, required=(*wanted.required, *self.leptons.fields(kind)))
        flags = self._find_flags(file, kind, name, wanted)
        if flags and kind != JET:
            wanted = replace(wanted, required=tuple(n for n in wanted.required if n != "flavour"))
        if kind == JET:
            given = wanted.given
            wanted = self._tags.wanted(wanted, lambda field: given.get(field, field) in columns)
        chosen = choose_columns(wanted, columns, f"{file.path}: {name}", last=("mass", "energy"))
        if kind == JET and MASK not in columns:
            listed = ", ".join(columns)
            raise FormatError(f"{file.path}: {name} has {listed}, but no {MASK}: add one that is true for jets")
        mask = file.dataset(f"{name}/{MASK}") if MASK in columns else None
        fields = {one: tuple(file.dataset(f"{name}/{part}") for part in parts) for one, parts in chosen.items()}
        group = _Group(name, mask, fields, flags)
        for path, data in group.datasets.items():
            if data.dtype.kind not in "biuf":
                raise FormatError(f"{file.path}: {path} must have numbers, but has values of type {data.dtype}")
        shapes = {path.removeprefix("/"): data.shape for path, data in group.datasets.items()}
        allowed = (2,) if kind == JET else (1,) if mask is None else (1, 2)
        if len({s[1:] for s in shapes.values()}) > 1 or any(len(s) not in allowed for s in shapes.values()):
            listed = ", ".join(f"{path} {shape}" for path, shape in shapes.items())
            need = "(events,), since there is no MASK," if allowed == (1,) else "(events, width),"
            raise FormatError(
                f"{file.path}: columns of {collection_name(kind)} must all have the shape {need} but have {listed}"
            )
        return group

    def _find_flags(self, file: Hdf5File, kind: str, name: str, wanted: Wanted) -> dict[str, Any]:
        """Flags of leptons in the collection of jets; none for jets if the flags are inputs of the model."""
        if kind not in (JET, *LEPTONS) or JET not in self.options.topology.kinds:
            return {}
        if name != f"INPUTS/{_group(file, JET, self.options)}":
            return {}
        found = [flag for flag in FLAGS if file.is_dataset(f"{name}/{flag}")]
        if kind == JET:
            found = [] if set(FLAGS) & set(wanted.required) else found
        else:
            found = [flag for flag in found if kind in ("lepton", FLAGS[flag][0])]
            if not found:
                raise FormatError(
                    f"{file.path}: {name} has jets and {collection_name(kind)}, but no {' or '.join(FLAGS)} to "
                    f"tell them apart: choose another group with --map {kind}=GROUP"
                )
        return {flag: file.dataset(f"{name}/{flag}") for flag in found}

    def _find_targets(self, file: Hdf5File) -> dict[str, Any]:
        found = file.datasets("TARGETS")
        names = _target_names(found, self.options, file.path) if found else None
        if names is None or not self.options.truth:
            return {}
        return {f"TARGETS/{name}": file.dataset(f"TARGETS/{name}") for name in names}

    def _find_joined(self) -> tuple[tuple[str, int], ...]:
        """Groups, with widths, that targets index as one list; empty if each target is a row of its own group."""
        file, setting = self.file, self.options.settings.get("targets")
        if not self._targets or file.text(KEY) is not None:  # Pairton writes rows of their own group
            return ()
        if setting is None:  # known from an event file of SPANet
            order = [_group(file, kind, self.options) for kind in self.options.topology.extras.joined]
        else:
            order = [] if setting == "own" else [name.strip() for name in setting.split(",")]
        if unknown := [name for name in order if name not in _groups(file)]:
            raise ConfigError(
                f"set targets={setting}: there is no group {unknown[0]}, but {', '.join(_groups(file))}: write "
                "own, or the groups in the order in which targets index them"
            )
        masks = [f"INPUTS/{name}/{MASK}" for name in order]  # also of groups without momenta
        shapes = [file.dataset(mask).shape if file.is_dataset(mask) else () for mask in masks]
        return tuple((name, (*shape, 1, 1)[1]) for name, shape in zip(order, shapes, strict=True))

    def _find_neutrino(self, file: Hdf5File) -> dict[str, Any]:
        """Column -> dataset of a component of the neutrino's momentum, if its unit is given."""
        setting = self.options.settings.get("neutrino_unit")
        if setting is None or not self.options.truth:
            return {}
        try:
            self._neutrino_unit = float(setting)
        except ValueError:
            self._neutrino_unit = 0.0
        if not 0 < self._neutrino_unit < np.inf:
            raise ConfigError(f"set neutrino_unit={setting}: give a number of GeV, for example 100")
        return {name: file.dataset(place) for name, place in NEUTRINO.items()}

    def read_truth(
        self, rows: range, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        targets = np.stack([small(self.file.read(data, rows.start, rows.stop)) for data in self._targets.values()])
        self._split_targets(targets)
        for kind in self.topology.object_kinds:  # targets are (S, n), which is fast to compare slot by slot
            padded = kinds[kind].padded
            if padded is not None and padded.holes:
                slots = [slot.index for slot in self.topology.slots if slot.kind == kind]
                targets[slots] = padded.positions(targets[slots].T).T
        return clean_labels(self.topology, targets.T, {kind: found.counts for kind, found in kinds.items()})

    def read_columns(self, rows: range) -> dict[str, Any]:
        columns = super().read_columns(rows)
        for name, data in self._neutrino.items():
            columns[name] = self.file.read(data, rows.start, rows.stop).astype(np.float64) * self._neutrino_unit
        return columns

    def _split_targets(self, targets: npt.NDArray[Any]) -> None:
        """Convert targets (S, n) that index several groups as one list to columns of their own group, in place."""
        first = 0
        for name, width in self._joined:
            for slot in self.options.topology.slots:
                if self._kinds[slot.kind].path == f"INPUTS/{name}":
                    column = targets[slot.index]
                    inside = (column >= first) & (column < first + width)
                    targets[slot.index] = np.where(inside, column - first, np.where(column == -1, -1, -2))
            first += width

    def read_kind(self, rows: range, kind: str) -> FlatObjects:
        group = self._kinds[kind]

        def padded(data: Any) -> npt.NDArray[Any]:
            values = self.file.read(data, rows.start, rows.stop)
            return values[:, None] if values.ndim == 1 else values

        mask = np.ones((len(rows), 1), dtype=bool) if group.mask is None else padded(group.mask).astype(bool)
        flags = {name: padded(data) > 0.5 for name, data in group.flags.items()}
        flagged = np.logical_or.reduce([*flags.values()]) if flags else np.zeros(1, dtype=bool)
        held = Padded(mask & flagged if flags and kind != JET else mask)
        found = FlatObjects.of_padded(held, group.fields, padded)
        if flags and kind == JET:
            is_lepton = held.take(flagged)
            self.rejected[JET]["are leptons"] += int(is_lepton.sum())
            found.keep(~is_lepton)
        elif flags:
            codes = [np.where(held.take(values), FLAGS[name][1], 0) for name, values in flags.items()]
            found.fields.setdefault("flavour", np.max(codes, axis=0))
        return found


def _groups(file: Hdf5File) -> list[str]:
    return [name for name in file.names("INPUTS") if file.is_group(f"INPUTS/{name}")]


def _group(file: Hdf5File, kind: str, options: ReadOptions) -> str:
    """The group of a kind: the one the user chose, or one with a known name, or for jets the only padded one."""
    groups = _groups(file)
    if not groups:
        raise FormatError(
            f"{file.path}: there is no group INPUTS/<Collection>; found {file.summary()}: SPANet's layout needs a "
            "group with MASK, pt, eta, phi, mass, btag"
        )
    asked = options.map.get(kind, options.tree if kind == JET else None)
    if asked is None and (stored := dict(options.topology.extras.groups).get(kind)) in groups:
        return str(stored)
    if asked is not None:
        if asked not in groups:
            how = "--set tree=NAME" if kind not in options.map else f"--map {kind}=GROUP"
            raise FormatError(
                f"{file.path}: INPUTS has no group {asked}, but {', '.join(groups)}: choose one with {how}"
            )
        return asked
    plain = {name.lower().replace("_", ""): name for name in reversed(groups)}
    for name in GROUPS.get(kind, (f"{kind}s", kind)):
        if name in plain:
            return plain[name]
    padded = [name for name in groups if file.is_dataset(f"INPUTS/{name}/{MASK}")] or groups
    if kind == JET and len(padded) == 1:
        return padded[0]
    if kind in LEPTONS and JET in options.topology.kinds:  # they may be among the jets
        jets = _group(file, JET, options)
        if any(file.is_dataset(f"INPUTS/{jets}/{flag}") for flag in FLAGS):
            return jets
    raise FormatError(
        f"{file.path}: {options.topology.name} needs {collection_name(kind)}, but INPUTS has {', '.join(groups)}: "
        f"if one of these groups has them, choose it with --map {kind}=GROUP"
    )


def _target_names(found: Sequence[str], options: ReadOptions, path: str) -> tuple[str, ...] | None:
    """The dataset below TARGETS of each slot; None if there are none, and no truth is read.

    Names are those of `--map` (`t.b=ht/b`, or `t=ht` for all products of a particle), or those of the topology,
    or, with a warning, those of particles with the same products.
    """
    topology = options.topology
    if topology.alternatives:  # an event has the targets of only one of the topologies
        return None
    labels = labels_of(topology, "spanet")

    def renamed(groups: Mapping[str, str]) -> tuple[str, ...]:
        """The labels with other names of the particles at the root."""
        slots = [(slot.name.partition(".")[0], label) for slot, label in zip(topology.slots, labels, strict=True)]
        return tuple(f"{groups[r]}/{label.partition('/')[2]}" if r in groups else label for r, label in slots)

    wanted = renamed({root.name: options.map[root.name] for root in topology.roots if root.name in options.map})
    wanted = tuple(options.map.get(slot.name) or name for slot, name in zip(topology.slots, wanted, strict=True))
    missing = [name for name in wanted if name not in found]
    if missing and wanted == labels and (groups := _groups_by_products(topology, found)):
        pairs = [(root.name, groups[root.name]) for root in topology.roots]
        if options.truth:
            warnings.warn(
                f"{', '.join(f'TARGETS/{group} is read as {root}' for root, group in pairs)}, because the decay "
                f"products agree: choose others with --map {','.join(f'{root}={group}' for root, group in pairs)}",
                PairtonWarning,
                stacklevel=4,
            )
        return renamed(groups)
    if not missing:
        return wanted
    problem = f"{path}: TARGETS lacks {', '.join(missing)} of {topology.name}; it has {', '.join(found)}"
    if options.truth:
        raise FormatError(
            f"{problem}: choose the topology of these events (--topology, or `topology:` in a recipe), or name "
            f"the targets with --map {topology.roots[0].name}=PARTICLE"
        )
    warnings.warn(f"{problem}: check that these events are of {topology.name}", PairtonWarning, stacklevel=4)
    return None


def _groups_by_products(topology: Topology, found: Sequence[str]) -> dict[str, str] | None:
    """Root particle -> group of targets with the same products; None if this is ambiguous."""
    in_file: dict[str, set[str]] = {}  # group -> products
    in_topology: dict[str, set[str]] = {}  # root particle -> products
    for name in found:
        in_file.setdefault(name.partition("/")[0], set()).add(name.partition("/")[2])
    for slot, label in zip(topology.slots, labels_of(topology, "spanet"), strict=True):
        in_topology.setdefault(slot.name.partition(".")[0], set()).add(label.partition("/")[2])
    types = {root.name: root.type for root in topology.roots}
    result: dict[str, str] = {}
    for root, products in in_topology.items():
        groups = sorted(name for name, others in in_file.items() if others == products)
        roots = [name for name, others in in_topology.items() if others == products]
        if len(groups) != len(roots) or len({types[name] for name in roots}) > 1:
            return None
        result[root] = groups[roots.index(root)]
    return result


def layout(events: Events) -> dict[str, Any]:
    """The datasets, with SPANet's names, and masses in place of energies."""
    columns: dict[str, Any] = {}
    groups = WRITTEN | dict(events.topology.extras.groups)
    for kind, counts in events.counts.items():
        place = f"INPUTS/{groups.get(kind, collection_name(kind).capitalize())}"
        flat = {name: np.asarray(ak.flatten(events.objects[kind][name])) for name in stored_fields(events, kind)}
        if KINDS[kind].transverse:
            columns |= {f"{place}/{'met' if name == 'pt' else name}": values for name, values in flat.items()}
            continue
        flat["mass"] = mass_of(flat["pt"], flat["eta"], flat.pop("energy"))
        mask = columns[f"{place}/{MASK}"] = np.arange(max(1, counts.max(initial=0))) < counts[:, None]
        for name, values in flat.items():
            dense = columns[f"{place}/{name}"] = np.zeros(mask.shape, dtype=np.float32)
            with np.errstate(over="ignore"):  # an overflow becomes inf, which makes a bad object
                dense[mask] = values
    if events.truth is not None:
        for name, target in zip(labels_of(events.topology, "spanet"), events.truth.T, strict=True):
            columns[f"TARGETS/{name}"] = target.astype(np.int64)
    return columns | stored_rows(events)


FORMATS = (SpanetHdf5(),)
