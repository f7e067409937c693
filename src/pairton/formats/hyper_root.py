"""HyPER's ROOT layout: a tree `Delphes` of jagged columns, with the label of the decay product for each jet.

jet_pt, jet_eta, jet_phi, jet_e, jet_m, jet_bTag   one list per event
jet_truthmatch                                     0 for none, or 1, 2, ... as in `labels("hyper")` of the topology
"""

from __future__ import annotations

from typing import ClassVar

from pairton.formats.base import Format, ReadOptions, Source
from pairton.formats.flat import MAP_NAMES, FlatSource
from pairton.formats.lepton_selection import SETTINGS
from pairton.formats.root_files import RootFile

__all__ = ["FORMAT", "HyperRoot"]

TREE = "Delphes"
LABELS = "jet_truthmatch"
OWN = ("jet_pt", "jet_e", "jet_bTag")  # columns that distinguish this layout from files of Delphes


class HyperRoot(Format):
    name = "hyper_root"
    description = "tree Delphes of lists jet_pt, jet_eta, jet_phi, jet_e, jet_bTag, jet_truthmatch"
    suffixes = (".root",)
    reads_variations = True
    names = MAP_NAMES
    jets_only = True
    prepared = True
    settings: ClassVar[dict[str, str]] = dict(SETTINGS)

    def recognises(self, file: RootFile) -> bool:
        return set(OWN).issubset(file.columns(TREE))

    def open(self, file: RootFile, options: ReadOptions) -> Source:
        return FlatSource(file.choose(options.tree, (TREE,)), options, labels=LABELS)


FORMAT = HyperRoot()
