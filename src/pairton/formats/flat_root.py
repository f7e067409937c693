"""Flat ROOT files: a TTree or RNTuple of jagged columns; written as a TTree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.flat import MAP_NAMES, SETTINGS, FlatSource, layout
from pairton.formats.root_files import RootFile
from pairton.formats.writing import EventWriter
from pairton.topology import Topology

__all__ = ["FORMAT", "FlatRoot"]

PREFERRED = ("events", "Events", "tree")


class FlatRoot(Format):
    name = "flat_root"
    description = (
        "a TTree or RNTuple of lists jet_pt, jet_eta, jet_phi, jet_energy or jet_mass, jet_btag; lepton_pt, …"
    )
    suffixes = (".root",)
    reads_variations = True
    names = MAP_NAMES
    settings: ClassVar[dict[str, str]] = SETTINGS

    def recognises(self, file: RootFile) -> bool:
        return True  # tried last; `open` reports missing columns

    def open(self, file: RootFile, options: ReadOptions) -> Source:
        return FlatSource(file.choose(options.tree, PREFERRED), options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return EventWriter(path, topology, metadata, "ROOT", layout)


FORMAT = FlatRoot()
