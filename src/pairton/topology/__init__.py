"""Decay trees as data: particles, types, slots, symmetries, stages and bins, from a few lines of YAML.

    name: ttbar_allhad
    event: [t, t]
    particles:
      t: [W, b]
      W: [q, q]

`event` lists the root particles; `particles` lists the decay products of each. A product that is not itself a
particle is a slot, to be filled with one measured object: a jet, unless `objects:` gives another kind
(`objects: {l: lepton}`). The network also sees the kinds in `context: [met]`, but no slot takes them. Repeated
names are interchangeable. A plain object at the root (`event: [H, j, j]`) is a particle with one slot.

A particle may also be merged into one object: `H: [[b, b], [J]]` with `objects: {J: fatjet}` is two jets, or one
large-radius jet. Each way to appear is a form of its type.
"""

from pairton.topology.kinds import JET, collection_name
from pairton.topology.reading import builtin_topologies, load_topology, parse_topology
from pairton.topology.selection import Cuts, Selection
from pairton.topology.tree import Form, Layout, Particle, Slot, Stage, Topology, same_tree

__all__ = [
    "JET",
    "Cuts",
    "Form",
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
