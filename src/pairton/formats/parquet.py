"""Flat Parquet files with the columns of `pairton.formats.flat`; one row group per batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pairton.formats.base import Format, ReadOptions, Source, Writer
from pairton.formats.flat import MAP_NAMES, SETTINGS, FlatSource, layout
from pairton.formats.parquet_files import ParquetTable
from pairton.formats.writing import EventWriter
from pairton.topology import Topology

__all__ = ["FORMAT", "Parquet"]


class Parquet(Format):
    name = "parquet"
    description = "lists jet_pt, jet_eta, jet_phi, jet_energy or jet_mass, jet_btag; lepton_pt, …"
    suffixes = (".parquet", ".pq")
    reads_variations = True
    names = MAP_NAMES
    settings: ClassVar[dict[str, str]] = SETTINGS

    def recognises(self, file: ParquetTable) -> bool:
        return True  # tried last; `open` reports missing columns

    def open(self, file: ParquetTable, options: ReadOptions) -> Source:
        return FlatSource(file, options)

    def create(self, path: Path, topology: Topology, metadata: Mapping[str, Any]) -> Writer:
        return EventWriter(path, topology, metadata, "Parquet", layout)


FORMAT = Parquet()
