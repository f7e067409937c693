"""Decay trees as data: particles, types, slots, symmetries, stages and bins, from a few lines of YAML.

    name: ttbar_allhad
    event: [t, t]
    particles:
      t: [W, b]
      W: [q, q]

`event` lists the root particles, each particle its products; a name that is not itself a particle is a jet
slot; repeated names are interchangeable. A plain jet at the root (`event: [H, j, j]`) is a particle of one slot.
"""

from pairton.topology.reading import builtin_topologies, load_topology, parse_topology
from pairton.topology.tree import Particle, Selection, Slot, Stage, Topology, same_tree

__all__ = [
    "Particle",
    "Selection",
    "Slot",
    "Stage",
    "Topology",
    "builtin_topologies",
    "load_topology",
    "parse_topology",
    "same_tree",
]
