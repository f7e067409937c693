"""Mixtures: several topologies in one network, where each event is of one of them.

    name: ttbar_allhad_or_tth_allhad
    event: [t, t, H]
    particles: {t: [W, b], W: [q, q], H: [b, b]}
    alternatives:
      ttbar_allhad: [t, t]
      tth_allhad: [t, t, H]

The tree of a mixture has the root particles of all its topologies: each type as often as the topology that has the
most of it. An assignment for one of the topologies is an assignment for the mixture that leaves the other slots
empty. Types with the same name must have the same decay, so that the network has one output for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from operator import or_
from typing import Any, NamedTuple

from msgspec.structs import replace as replace_fields

from pairton.errors import ConfigError, TopologyError
from pairton.topology.extras import Extras
from pairton.topology.reading import parse_topology
from pairton.topology.selection import Cuts, Selection
from pairton.topology.tree import Topology, below, same_tree

__all__ = ["TOPOLOGY", "Part", "find_part", "mixture", "parts_of", "stored_part"]

TOPOLOGY = "topology"  # column of events of a mixture: the index of their topology in it


class Part(NamedTuple):
    """One topology of a mixture, and the indices of its particles and slots in the tree of the mixture."""

    name: str
    topology: Topology
    roots: tuple[int, ...]
    slots: tuple[int, ...]
    particles: tuple[int, ...]


def mixture(topologies: Sequence[Topology], name: str | None = None) -> Topology:
    """Combine topologies to one that selects every event that one of them selects, or more.

    >>> from pairton.topology import load_topology
    >>> both = mixture([load_topology("ttbar_allhad"), load_topology("tth_allhad")])
    >>> both.name, both.event, str(both.selection)
    ('ttbar_allhad_or_tth_allhad', ('t', 't', 'H'), '6+ jets, 2+ b-tags; jets pT > 25 GeV, |eta| < 2.5')
    """
    decays: dict[str, tuple[str, ...]] = {}
    objects: dict[str, str] = {}
    for topology in topologies:
        _check_kinds(topology, topologies[0])
        for item, value in (*topology.decays, *topology.objects):
            known: dict[str, Any] = objects if isinstance(value, str) else decays
            if known.setdefault(item, value) != value:
                one, other = (
                    f"an object of kind {v}" if isinstance(v, str) else f"[{', '.join(v)}]"
                    for v in (value, known[item])
                )
                raise TopologyError(
                    f"{item} decays to {one} in {topology.name}, but to {other} in another topology of the "
                    "mixture: rename one of the two"
                )
    most: Counter[str] = reduce(or_, (Counter(topology.event) for topology in topologies))
    mixed = Topology(
        name or "_or_".join(topology.name for topology in topologies),
        tuple(most.elements()),
        tuple(decays.items()),
        _loosest([topology.selection for topology in topologies]),
        objects=tuple(objects.items()),
        context=topologies[0].context,
        codes=tuple({item[0]: item for topology in topologies for item in topology.codes}.values()),
        invisible=tuple({item.type: item for topology in topologies for item in topology.invisible}.values()),
        alternatives=tuple((topology.name, topology.event) for topology in topologies),
        extras=Extras(groups=topologies[0].extras.groups, joined=topologies[0].extras.joined),
    )
    return parse_topology(mixed.to_dict(), mixed.name)  # with all checks


def _loosest(selections: Sequence[Selection]) -> Selection:
    """A selection that accepts every event that one of the given selections accepts."""
    first = selections[0]
    cuts = {
        kind: Cuts(min(s.cuts(kind).pt for s in selections), max(s.cuts(kind).abs_eta for s in selections))
        for kind in first.objects
    }
    counts: dict[str, tuple[int, int | None]] = {}
    for kind in [kind for kind in first.counts if all(kind in s.counts for s in selections)]:
        fewest, most = zip(*(s.counts[kind] for s in selections), strict=True)
        counts[kind] = min(fewest), None if None in most else max(most)
    return Selection(cuts, counts, min(s.btags for s in selections))


@lru_cache(maxsize=64)
def parts_of(topology: Topology) -> tuple[Part, ...]:
    """The topologies of a mixture. A topology that is not a mixture has one part: itself."""
    parts = topology.alternatives or [(topology.name, topology.event)]
    return tuple(_part(topology, name, event) for name, event in parts)


def find_part(topology: Topology, wanted: Topology | None) -> Part | None:
    """The part of a mixture with the same decay tree as a topology; None if no part has it."""
    return next((part for part in parts_of(topology) if wanted and same_tree(part.topology, wanted)), None)


def stored_part(topology: Topology, stored: Topology | None, model: str) -> Topology | None:
    """The part of a mixture that a file stores, with which a model reads labelled events; None without a mixture.

    ConfigError, which names the model, if the file stores no part.
    """
    if not topology.alternatives:
        return None
    if (part := find_part(topology, stored)) is None:
        names = ", ".join(part.name for part in parts_of(topology))
        raise ConfigError(f"{model} is for {names}: give the topology of these events with --topology")
    return part.topology


def _check_kinds(one: Topology, other: Topology) -> None:
    if one.kinds != other.kinds:
        raise TopologyError(
            f"{one.name} has the kinds {', '.join(one.kinds)}, but {other.name} has {', '.join(other.kinds)}: the "
            "topologies of a mixture need the same kinds of objects"
        )


def _part(topology: Topology, name: str, event: tuple[str, ...]) -> Part:
    """The part of a topology that has the root particles `event`: of a mixture, a topology of its own."""
    left = {root: [p for p in topology.roots if p.type == root] for root in event}
    roots = [left[root].pop(0) for root in event]
    alone = topology
    if topology.alternatives:
        reached = {product for root in event for product in below(root, dict(topology.decays))}
        parts: dict[str, Any] = {
            key: tuple(item for item in getattr(topology, key) if item[0] in reached)
            for key in ("decays", "objects", "codes")
        }
        parts["invisible"] = tuple(item for item in topology.invisible if item.type in reached)
        parts["extras"] = replace_fields(topology.extras, labels={}, bins=())
        alone = replace(topology, name=name, event=event, given_stages=(), alternatives=(), **parts)
        _check_kinds(alone, topology)
    return Part(
        name,
        alone,
        tuple(root.index for root in roots),
        tuple(slot for root in roots for slot in root.slots),
        tuple(q.index for p in roots for q in topology.particles if p.index in topology.ancestry(q.index)),
    )
