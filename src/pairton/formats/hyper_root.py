"""HyPER's ROOT layout: tree `Delphes` of jagged columns, with the number of its product on each jet.

jet_pt, jet_eta, jet_phi, jet_e, jet_m, jet_bTag   lists
jet_truthmatch                                     0 for none, 1, 2, ... as `labels("hyper")` of the topology
"""

from __future__ import annotations

from pairton.formats.base import Format, ReadOptions, Source
from pairton.formats.flat import FlatSource
from pairton.formats.root_files import RootTree, list_trees, open_root, open_tree

__all__ = ["FORMAT", "HyperRoot"]

TREE = "Delphes"
LABELS = "jet_truthmatch"
OWN = ("jet_pt", "jet_e", "jet_bTag")  # columns that tell this layout from other trees of that name


class HyperRoot(Format):
    name = "hyper_root"
    description = "tree Delphes of lists jet_pt, jet_eta, jet_phi, jet_e, jet_bTag, jet_truthmatch"
    suffixes = (".root",)
    reads_variations = True

    def recognises(self, path: str) -> bool:
        directory = open_root(path)
        try:
            return TREE in list_trees(directory) and all(name in RootTree(path, directory, TREE) for name in OWN)
        finally:
            directory.close()

    def open(self, path: str, options: ReadOptions) -> Source:
        table = open_tree(path, options.tree, (TREE,))
        try:
            return FlatSource(table, options, labels=LABELS)
        except BaseException:
            table.close()
            raise


FORMAT = HyperRoot()
