"""Decay trees as data: particles, types, slots, symmetries, stages and bins, from a few lines of YAML.

    name: ttbar_allhad
    event: [t, t]
    particles:
      t: [W, b]
      W: [q, q]

`event` lists the root particles, each particle its products. A name that is not itself a particle is a slot, to
be filled with a jet, or with an object of the kind that `objects:` gives it (`objects: {l: lepton}`). Kinds in
`context: [met]` are seen by the network, and no slot takes them. Repeated names are interchangeable. A plain
object at the root (`event: [H, j, j]`) is a particle of one slot.
"""

from pairton.topology.reading import builtin_topologies, load_topology, parse_topology
from pairton.topology.selection import JET, Cuts, Selection, collection_name
from pairton.topology.tree import Layout, Particle, Slot, Stage, Topology, same_tree

__all__ = [
    "JET",
    "Cuts",
    "Layout",
    "Particle",
    "Selection",
    "Slot",
    "Stage",
    "Topology",
    "builtin_topologies",
    "collection_name",
    "load_topology",
    "parse_topology",
    "same_tree",
]
