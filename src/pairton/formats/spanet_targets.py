"""Targets in SPANet's HDF5 layout: which dataset is which slot, and which collection its numbers count."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, FormatError, PairtonWarning
from pairton.formats.base import ReadOptions
from pairton.topology import Topology

__all__ = ["counted_through", "target_names"]

SURE = 100  # labelled events of which one has the first object of its collection


def target_names(found: Sequence[str], options: ReadOptions, path: str) -> tuple[str, ...] | None:
    """The dataset below TARGETS of each slot; None, with a warning, if they do not fit and no truth is asked for.

    A mixture has no truth of its own.
    Names are those of `--map` (`t.b=ht/b`, or `t=ht` for all products of a particle), else the topology's, else
    those of particles that decay alike, which is said.
    """
    topology = options.topology
    if topology.alternatives:  # its events have the targets of one topology or the other
        return None
    named = topology.labels("spanet")
    given = {root.name: options.map[root.name] for root in topology.roots if root.name in options.map}
    wanted = tuple(
        options.map.get(slot.name) or _below(given.get(slot.name.partition(".")[0]), label)
        for slot, label in zip(topology.slots, named, strict=True)
    )
    missing = [name for name in wanted if name not in found]
    if missing and wanted == named and (alike := _alike(topology, found)):
        pairs = [(root.name, alike[root.name]) for root in topology.roots]
        if options.truth:
            warnings.warn(
                f"{', '.join(f'TARGETS/{theirs} is read as {ours}' for ours, theirs in pairs)}, by their decay "
                f"products: choose others with --map {','.join(f'{ours}={theirs}' for ours, theirs in pairs)}",
                PairtonWarning,
                stacklevel=4,
            )
        return tuple(
            _below(alike[slot.name.partition(".")[0]], label)
            for slot, label in zip(topology.slots, named, strict=True)
        )
    if not missing:
        return wanted
    said = f"{path}: TARGETS lacks {', '.join(missing)} of {topology.name}; it has {', '.join(found)}"
    if options.truth:
        raise FormatError(
            f"{said}: give the topology of these events (--topology; in a recipe `topology:`), or name targets "
            f"with --map {topology.roots[0].name}=PARTICLE"
        )
    warnings.warn(f"{said}: are these events of {topology.name}?", PairtonWarning, stacklevel=4)
    return None


def _below(particle: str | None, label: str) -> str:
    """The label with another name of the particle."""
    return label if particle is None else f"{particle}/{label.partition('/')[2]}"


def _alike(topology: Topology, found: Sequence[str]) -> dict[str, str] | None:
    """Root particle -> group of targets, if there is just one way to pair those with the same products.

    >>> from pairton.topology import load_topology
    >>> _alike(load_topology("hh4b"), ["h1/b1", "h1/b2", "h2/b1", "h2/b2"])
    {'H1': 'h1', 'H2': 'h2'}
    """
    theirs: dict[str, set[str]] = {}
    for name in found:
        particle, _, product = name.partition("/")
        theirs.setdefault(particle, set()).add(product)
    ours: dict[str, set[str]] = {}
    for slot, label in zip(topology.slots, topology.labels("spanet"), strict=True):
        ours.setdefault(slot.name.partition(".")[0], set()).add(label.partition("/")[2])
    types = {root.name: root.type for root in topology.roots}
    pairs: dict[str, str] = {}
    for root, products in ours.items():
        same = sorted(name for name, set_ in theirs.items() if set_ == products)
        rivals = [name for name, set_ in ours.items() if set_ == products]
        if len(same) != len(rivals) or len({types[name] for name in rivals}) > 1:
            return None
        pairs[root] = same[rivals.index(root)]
    return pairs


def counted_through(
    setting: str | None,
    groups: Mapping[str, str],
    widths: Mapping[str, int],
    targets: Mapping[str, npt.NDArray[np.int32]],
    topology: Topology,
) -> tuple[str, ...]:
    """Groups through which targets count, one after the other; none where each counts its own collection.

    setting   of `--set targets`: own, or groups in order; None: seen from the numbers
    groups    kind -> group
    widths    group -> its columns
    targets   slot -> numbers of some events
    """
    if setting is not None:
        order = () if setting == "own" else tuple(name.strip() for name in setting.split(","))
        if unknown := [name for name in order if name not in widths]:
            raise ConfigError(
                f"set targets={setting}: there is no group {unknown[0]}, but {', '.join(widths)}: give own, or "
                "the groups in the order in which targets count through them"
            )
        return order
    used = list(dict.fromkeys(groups[kind] for kind in topology.object_kinds))
    if len(used) != 2:
        return ()
    for first, second in (used, used[::-1]):
        numbers = {
            group: np.concatenate([targets[s.name] for s in topology.slots if groups[s.kind] == group])
            for group in used
        }
        labels = {group: values[values >= 0] for group, values in numbers.items()}
        behind = labels[second]
        if len(behind) < SURE and not (len(behind) and behind.min() >= widths[second]):
            continue
        if behind.min() >= widths[first] and labels[first].max(initial=0) < widths[first]:
            warnings.warn(
                f"targets count through {first} and {second} together, as it seems: give --set targets={first},"
                f"{second}, or targets=own if each counts its own",
                PairtonWarning,
                stacklevel=4,
            )
            return first, second
    return ()
