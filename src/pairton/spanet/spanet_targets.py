"""Targets in SPANet's HDF5 layout: the dataset of each slot."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from pairton.errors import FormatError, PairtonWarning
from pairton.formats.base import ReadOptions
from pairton.topology import Topology
from pairton.topology.extras import labels_of

__all__ = ["target_names"]


def target_names(found: Sequence[str], options: ReadOptions, path: str) -> tuple[str, ...] | None:
    """The dataset below TARGETS of each slot.

    Names are those of `--map` (`t.b=ht/b`, or `t=ht` for all products of a particle), or those of the topology,
    or, with a warning, those of particles with the same products. If targets are missing, the result is None with
    a warning if no truth is read, and otherwise an error. A mixture has no targets of its own (None).
    """
    topology = options.topology
    if topology.alternatives:  # an event has the targets of only one of the topologies
        return None
    labels = labels_of(topology, "spanet")
    given = {root.name: options.map[root.name] for root in topology.roots if root.name in options.map}
    wanted = tuple(
        options.map.get(slot.name) or _renamed(label, given.get(slot.name.partition(".")[0]))
        for slot, label in zip(topology.slots, labels, strict=True)
    )
    missing = [name for name in wanted if name not in found]
    if missing and wanted == labels and (groups := _groups_by_products(topology, found)):
        pairs = [(root.name, groups[root.name]) for root in topology.roots]
        if options.truth:
            warnings.warn(
                f"{', '.join(f'TARGETS/{group} is read as {root}' for root, group in pairs)}, because the decay "
                f"products agree: choose others with --map {','.join(f'{root}={group}' for root, group in pairs)}",
                PairtonWarning,
                stacklevel=4,
            )
        return tuple(
            _renamed(label, groups[slot.name.partition(".")[0]])
            for slot, label in zip(topology.slots, labels, strict=True)
        )
    if not missing:
        return wanted
    problem = f"{path}: TARGETS lacks {', '.join(missing)} of {topology.name}; it has {', '.join(found)}"
    if options.truth:
        raise FormatError(
            f"{problem}: choose the topology of these events (--topology, or `topology:` in a recipe), or name "
            f"the targets with --map {topology.roots[0].name}=PARTICLE"
        )
    warnings.warn(f"{problem}: check that these events are of {topology.name}", PairtonWarning, stacklevel=4)
    return None


def _renamed(label: str, particle: str | None) -> str:
    """The label with another name of the particle, if one is given."""
    return label if particle is None else f"{particle}/{label.partition('/')[2]}"


def _groups_by_products(topology: Topology, found: Sequence[str]) -> dict[str, str] | None:
    """Root particle -> group of targets with the same products; None if this is ambiguous.

    >>> from pairton.topology import load_topology
    >>> _groups_by_products(load_topology("hh4b"), ["h1/b1", "h1/b2", "h2/b1", "h2/b2"])
    {'H1': 'h1', 'H2': 'h2'}
    """
    in_file: dict[str, set[str]] = {}  # group -> products
    for name in found:
        particle, _, product = name.partition("/")
        in_file.setdefault(particle, set()).add(product)
    in_topology: dict[str, set[str]] = {}  # root particle -> products
    for slot, label in zip(topology.slots, labels_of(topology, "spanet"), strict=True):
        in_topology.setdefault(slot.name.partition(".")[0], set()).add(label.partition("/")[2])
    types = {root.name: root.type for root in topology.roots}
    pairs: dict[str, str] = {}
    for root, products in in_topology.items():
        groups = sorted(name for name, set_ in in_file.items() if set_ == products)
        roots = [name for name, set_ in in_topology.items() if set_ == products]
        if len(groups) != len(roots) or len({types[name] for name in roots}) > 1:
            return None
        pairs[root] = groups[roots.index(root)]
    return pairs
