"""NanoAOD stored as Parquet: columns have the names of the branches, `Jet_pt`, `nJet`, `GenPart_pdgId`, …"""

from __future__ import annotations

from typing import Any

from pairton.formats.base import ReadOptions
from pairton.formats.nanoaod import NanoAOD, NanoAODSource
from pairton.formats.stored import KEY

__all__ = ["FORMAT", "NanoAODParquet"]


class NanoAODParquet(NanoAOD):
    name = "nanoaod_parquet"
    description = "CMS NanoAOD as Parquet: Jet_pt, Jet_eta, … with nJet or luminosityBlock"
    suffixes = (".parquet", ".pq")

    def recognises(self, file: Any) -> bool:
        is_nano = "nJet" in file or "luminosityBlock" in file  # files of Pairton may have the latter too
        return is_nano and file.text(KEY) is None and any(name.endswith("Jet_pt") for name in file.columns)

    def open(self, file: Any, options: ReadOptions) -> NanoAODSource:
        return NanoAODSource(file, options)


FORMAT = NanoAODParquet()
