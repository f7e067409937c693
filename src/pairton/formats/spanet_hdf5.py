"""SPANet's HDF5 layout: padded columns with a MASK, and the column of each product as a target.

INPUTS/<Collection>/{MASK, pt, eta, phi | sin_phi + cos_phi, mass | energy, btag}   (n, width)
TARGETS/<particle>/<product>                                                        (n,), -1 missing
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import FormatError, PairtonWarning
from pairton.events import Events
from pairton.events.vectors import mass_of
from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.common import check_map, clean_labels, report_labels, small, unit_scale
from pairton.formats.hdf5_files import Hdf5File, open_hdf5
from pairton.formats.hdf5_layout import Growing, Hdf5Source, Hdf5Writer, Sidecar, stored_topology
from pairton.formats.jet_columns import Padded, btag_option, jets_from_flat, tagged
from pairton.topology import Topology

__all__ = ["FORMAT", "SpanetHdf5"]

COLLECTION = "Source"  # what we write, and prefer to read
JET_NAMES = ("pt", "eta", "phi", "energy", "mass", "btag")
# our field -> alternatives, each the datasets it is made of
FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "pt": (("pt",),),
    "eta": (("eta",),),
    "phi": (("phi",), ("sin_phi", "cos_phi"), ("sinphi", "cosphi")),
    "energy or mass": (("mass",), ("energy",), ("e",)),
    "btag": (("btag",),),
}


class SpanetHdf5(Format):
    name = "spanet_hdf5"
    description = "INPUTS/<Collection>/{MASK, pt, eta, phi, mass, btag}, TARGETS/<particle>/<product>"
    suffixes = (".h5", ".hdf5")

    def recognises(self, path: str) -> bool:
        with open_hdf5(path) as file:
            return any(file.is_group(f"INPUTS/{name}") for name in file.names("INPUTS"))

    def open(self, path: str, options: ReadOptions) -> Source:
        return _Source(path, options)

    def stored_topology(self, path: str) -> Topology | None:
        return stored_topology(path)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return _Writer(path, topology, metadata)


class _Source(Hdf5Source):
    def _prepare(self, file: Hdf5File) -> None:
        group = f"INPUTS/{_collection(file, self.options.tree)}"
        tag, self._cut = btag_option(self.options.btag)
        check_map(self.options.map, [*JET_NAMES, "weight"])
        names = dict(self.options.map) | ({"btag": tag} if tag else {})
        chosen = _choose(file, group, names)
        self._columns = {
            field: [file.dataset(f"{group}/{name}") for name in made_of] for field, made_of in chosen.items()
        }
        self._mask = file.dataset(f"{group}/MASK")
        everything = {f"{group}/MASK": self._mask}
        for field, made_of in chosen.items():
            everything |= {f"{group}/{n}": d for n, d in zip(made_of, self._columns[field], strict=True)}
        _check_widths(file.path, everything)
        self._targets = self._find_targets(file)
        self._sidecar = Sidecar(file, self.options)
        self.n_events = file.same_length(everything | self._targets | self._sidecar.lengths())
        self.has_truth = bool(self._targets)
        self.metadata = self._sidecar.stored.metadata

    def _find_targets(self, file: Hdf5File) -> dict[str, Any]:
        found = file.datasets("TARGETS")
        if not found:
            return {}
        topology = self.options.topology
        wanted = topology.labels("spanet")
        missing = [name for name in wanted if name not in found]
        if missing:
            said = f"{file.path}: TARGETS lacks {', '.join(missing)} of {topology.name}; it has {', '.join(found)}"
            if self.options.truth:
                raise FormatError(
                    f"{said}: give the topology of these events (--topology; in a recipe `topology:`)"
                )
            warnings.warn(f"{said}: are these events of {topology.name}?", PairtonWarning, stacklevel=2)
        if not self.options.truth:
            return {}
        return {f"TARGETS/{name}": file.dataset(f"TARGETS/{name}") for name in wanted}

    def read(self, start: int, stop: int) -> Events:
        file, options = self._file, self.options
        rows = Padded(file.read(self._mask, start, stop).astype(bool, copy=False))
        flat = {
            field: [rows.take(file.read(data, start, stop)) for data in made_of]
            for field, made_of in self._columns.items()
        }
        columns = {field: values[0] for field, values in flat.items()}
        if len(flat["phi"]) == 2:
            columns["phi"] = np.arctan2(*flat["phi"])
        columns["btag"] = tagged(columns["btag"], self._cut)
        scale = unit_scale(columns["pt"], options.units, self.path)
        jets = jets_from_flat(rows.counts, index=rows.index, scale=scale, **columns)
        truth = None
        if self._targets:
            targets = [small(file.read(data, start, stop)) for data in self._targets.values()]
            positions = rows.positions(np.stack(targets).T)  # (n, S), a slot contiguous: quick to compare
            truth, counts = clean_labels(options.topology, positions, rows.counts)
            report_labels(counts, options.bad_labels, options.strict, self.path, start)
        sidecar = self._sidecar
        return Events(
            jets,
            options.topology,
            truth,
            sidecar.weights(start, stop),
            sidecar.ids(start, stop),
            sidecar.columns(start, stop),
            self.metadata,
        )


def _collection(file: Hdf5File, asked: str | None) -> str:
    """The collection of jets: the one asked for, else the only one, else `Source`."""
    inputs = [name for name in file.names("INPUTS") if file.is_group(f"INPUTS/{name}")]
    if not inputs:
        found = ", ".join(file.names()) or "nothing"
        raise FormatError(
            f"{file.path}: there is no group INPUTS/<Collection>; found {found}: SPANet's layout needs one with "
            "MASK, pt, eta, phi, mass, btag"
        )
    if asked is not None:
        if asked not in inputs:
            raise FormatError(f"{file.path}: INPUTS has no {asked}, but {', '.join(inputs)}: choose with --tree")
        return asked
    padded = [name for name in inputs if file.is_dataset(f"INPUTS/{name}/MASK")] or inputs
    if len(padded) == 1:
        return padded[0]
    if COLLECTION in padded:
        return COLLECTION
    raise FormatError(f"{file.path}: INPUTS has {', '.join(padded)}: choose the jets with --tree NAME")


def _choose(file: Hdf5File, group: str, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The datasets that each field is made of; an error names all that are missing."""
    there = set(file.names(group))
    chosen: dict[str, tuple[str, ...]] = {}
    missing = [] if "MASK" in there else ["MASK"]
    for field, alternatives in FIELDS.items():
        mapped = [(names[part],) for part in field.split(" or ") if part in names]
        found = next((parts for parts in mapped or alternatives if there.issuperset(parts)), None)
        if found is None:
            missing.append(" or ".join(" + ".join(parts) for parts in mapped or alternatives))
            continue
        if field == "energy or mass":
            is_mass = found[0] == names.get("mass", "mass") and "energy" not in names
            field = "mass" if is_mass else "energy"
        chosen[field] = found
    if missing:
        raise FormatError(
            f"{file.path}: {group} lacks {', '.join(missing)}; it has {', '.join(sorted(there)) or 'nothing'}: "
            "name other columns with --map"
        )
    return chosen


def _check_widths(path: str, columns: Mapping[str, Any]) -> None:
    shapes = {name: data.shape for name, data in columns.items()}
    widths = {shape[1:] for shape in shapes.values()}
    if len(widths) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise FormatError(f"{path}: columns of jets must all have the shape (events, width), but have {said}")


class _Writer(Hdf5Writer):
    def _begin_layout(self, file: Any, first: Events) -> None:
        width = (max(1, int(first.n_jets.max(initial=0))),)
        group = file.create_group(f"INPUTS/{COLLECTION}")
        self._mask = Growing(group, "MASK", bool, width)
        self._jets = {
            name: Growing(group, name, np.float32, width) for name in ("pt", "eta", "phi", "mass", "btag")
        }
        labels = self.topology.labels("spanet") if first.truth is not None else ()
        self._targets = [Growing(file, f"TARGETS/{name}", np.int64) for name in labels]

    def _append_layout(self, events: Events) -> None:
        n_jets = events.n_jets
        mask = np.arange(max(1, int(n_jets.max(initial=0)))) < n_jets[:, None]
        self._mask.append(mask)
        jets = {name: np.asarray(ak.flatten(events.jets[name])) for name in ("pt", "eta", "phi", "btag", "energy")}
        jets["mass"] = mass_of(jets["pt"], jets["eta"], jets.pop("energy"))
        for name, values in jets.items():
            dense = np.zeros(mask.shape, dtype=np.float32)
            dense[mask] = values
            self._jets[name].append(dense)
        if events.truth is not None:
            for slot, target in enumerate(self._targets):
                target.append(events.truth[:, slot].astype(np.int64))


FORMAT = SpanetHdf5()
