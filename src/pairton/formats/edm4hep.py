"""EDM4hep in ROOT files of podio, as Delphes and the simulations of e+e- colliders write it; in GeV.

Jet.{energy, momentum.x, momentum.y, momentum.z}      collections of reconstructed particles
Electron_objIdx.index, Muon_…, Photon_…               positions of leptons and photons in ReconstructedParticles
ParticleIDs, _ParticleIDs_parameters                  of Delphes: the bits of the b-tag of each jet
Particle, _Particle_parents                           the generator record
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import awkward as ak
import numpy as np

from pairton.formats.base import Format, ReadOptions
from pairton.formats.column_files import Table
from pairton.formats.delphes import DelphesSource
from pairton.formats.flat_objects import Chunk, flat_fields
from pairton.formats.lepton_selection import OVERLAP_SETTINGS
from pairton.formats.root_files import RootFile, RootTree
from pairton.formats.truth import TRUTH_SETTINGS, GenRecord

__all__ = ["FORMATS", "Edm4hep"]

TREE = "events"
ALL = "ReconstructedParticles"
PARENTS = ("Particle.parents_begin", "Particle.parents_end", "_Particle_parents.index")
RECORD = ("Particle.PDG", "Particle.generatorStatus", "Particle.eta", "Particle.phi", "Particle.mother")
TAGS = ("ParticleIDs.parameters_begin", "ParticleIDs.parameters_end", "_ParticleIDs_parameters")
JETS_OF_TAGS = "_ParticleIDs_particle.index"
HARD = 23  # status of outgoing particles of the hard process in Pythia 8
FIELDS = ("pt", "eta", "phi", "energy", "mass", "charge")


class ParticleTable(Table):
    """A tree, with columns computed from those of EDM4hep: Jet.pt, Electron.pt, Jet.tag, Particle.mother."""

    def __init__(self, tree: RootTree) -> None:
        self.path, self.title, self.n_events, self._tree = tree.path, tree.title, tree.n_events, tree
        self._made: dict[str, tuple[tuple[str, ...], Callable[..., ak.Array]]] = {}
        known = set(tree.columns)
        for name in (name.removesuffix("momentum.x") for name in tree.columns if name.endswith(".momentum.x")):
            self._momenta(name, known)
        for kind in ("Electron", "Muon", "Photon"):
            index = f"{kind}_objIdx.index"
            for field in FIELDS if index in known else ():
                if (column := f"{ALL}.{field}") in known | self._made.keys():
                    self._made[f"{kind}.{field}"] = ((column, index), lambda values, at: values[at])
            if (isolation := f"{kind}_IsolationVar") in known:
                self._made[f"{kind}.IsolationVar"] = ((isolation,), lambda values: values)
        if known.issuperset(PARENTS):
            self._made["Particle.mother"] = (PARENTS, _first)
        if known.issuperset((*TAGS, JETS_OF_TAGS, "Jet.energy")):
            self._made["Jet.tag"] = ((*TAGS, JETS_OF_TAGS, "Jet.energy"), _tags)
        self.columns = (*tree.columns, *self._made)

    def _momenta(self, prefix: str, known: set[str]) -> None:
        x, y, z = (f"{prefix}momentum.{axis}" for axis in "xyz")
        if known.issuperset((y, z)):
            self._made[f"{prefix}pt"] = (x, y), np.hypot
            self._made[f"{prefix}phi"] = (x, y), lambda x, y: np.arctan2(y, x)
            self._made[f"{prefix}eta"] = (x, y, z), lambda x, y, z: np.arcsinh(z / np.hypot(x, y))

    @property
    def source_id(self) -> int:
        return self._tree.source_id

    def read(self, names: Iterable[str], start: int, stop: int) -> Mapping[str, ak.Array]:
        names = list(dict.fromkeys(names))
        self.require(names)
        raw = dict(self._tree.read(self._raw(names), start, stop))
        with np.errstate(divide="ignore", invalid="ignore"):
            return {name: self._value(name, raw) for name in names}

    def _raw(self, names: Iterable[str]) -> list[str]:
        """The columns of the file that some columns are computed from."""
        return [
            raw for name in names for raw in (self._raw(self._made[name][0]) if name in self._made else [name])
        ]

    def _value(self, name: str, raw: dict[str, ak.Array]) -> ak.Array:
        if name not in raw:
            needed, compute = self._made[name]
            raw[name] = compute(*(self._value(each, raw) for each in needed))
        return raw[name]

    def text(self, name: str) -> str | None:
        return self._tree.text(name)

    def close(self) -> None:
        self._tree.close()


def _first(begin: ak.Array, end: ak.Array, values: ak.Array, missing: int = -1) -> ak.Array:
    """The first value of each range of values; `missing` for empty ones."""
    there = begin < end
    found = ak.mask(values, ak.local_index(values) >= 0)[ak.mask(begin, there)]
    return ak.fill_none(found, missing)


def _tags(begin: ak.Array, end: ak.Array, values: ak.Array, at: ak.Array, jets: ak.Array) -> ak.Array:
    """The first parameter for each jet. Other particles have no parameters."""
    tagged = begin < end
    first, at, counts = values[begin[tagged]], at[tagged], ak.num(jets)
    begins = np.cumsum(counts) - counts
    flat = np.zeros(ak.sum(counts), dtype=np.int64)
    inside = (at >= 0) & (at < counts)
    flat[ak.to_numpy(ak.flatten((at + begins)[inside]))] = ak.to_numpy(ak.flatten(first[inside])).astype(np.int64)
    return ak.unflatten(flat, counts)


class Edm4hepSource(DelphesSource):
    field_names: ClassVar[dict[str, str]] = {"met": "pt"}
    tag, weight, number = "tag", "EventHeader.weight", "EventHeader.eventNumber"
    needs_tag = False

    def __init__(self, tree: RootTree, options: ReadOptions) -> None:
        super().__init__(ParticleTable(tree), options)

    def record_columns(self) -> Sequence[str]:
        return RECORD

    def record(self, rows: Chunk) -> GenRecord:
        entries = flat_fields(rows, {name.removeprefix("Particle."): (name,) for name in RECORD})
        part = entries.fields
        hard = part["generatorStatus"] == HARD
        return GenRecord.of(entries.counts, part["PDG"], part["mother"], part["eta"], part["phi"], hard)


class Edm4hep(Format):
    name = "edm4hep"
    description = "EDM4hep in ROOT files of podio: tree events with Jet.momentum.x, Particle.PDG, …"
    suffixes = (".root",)
    settings: ClassVar[dict[str, str]] = {
        "jets": "collection of jets; default: Jet",
        "electron_id": "conditions on fields of electrons, for example IsolationVar < 0.1; default: none",
        "muon_id": "conditions on fields of muons; default: none",
        "met": "collection of missing energy; default: MissingET",
        **OVERLAP_SETTINGS,
        **TRUTH_SETTINGS,
    }
    reads_variations = True

    def recognises(self, file: RootFile) -> bool:
        return any(name.endswith(".momentum.x") for name in file.columns(TREE))

    def open(self, file: RootFile, options: ReadOptions) -> Edm4hepSource:
        return Edm4hepSource(file.choose(options.tree, [TREE]), options)


FORMATS = (Edm4hep(),)
