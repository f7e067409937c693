"""Vocabularies and mixtures: several topologies in one network, which scores particles and not topologies.

A vocabulary has the particles and kinds of objects of all its topologies, its `alternatives`; each root particle
is listed once. Types with the same name must have the same decay, so that the network has one output for them.

In a mixture, each event is of one of the topologies, and which one is part of the answer:

    name: ttbar_allhad_or_tth_allhad
    event: [t, t, H]
    particles: {t: [W, b], W: [q, q], H: [b, b]}
    alternatives:
      ttbar_allhad: [t, t]
      tth_allhad: [t, t, H]

It has each root particle as often as the topology that has the most of it. An answer for one of the topologies is
an answer for the mixture that leaves the other slots empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from operator import or_
from typing import Any, NamedTuple

from pairton.errors import ModelError, TopologyError, nearest
from pairton.topology.extras import Extras
from pairton.topology.kinds import collection_name
from pairton.topology.reading import parse_topology
from pairton.topology.selection import Cuts, Selection
from pairton.topology.tree import Topology, same_tree

__all__ = [
    "Part",
    "check_known",
    "check_mixture",
    "is_mixture",
    "mixture",
    "parts_of",
    "same_alternative",
    "vocabulary",
]


class Part(NamedTuple):
    """One topology of a mixture, and the indices of its particles and slots in the tree of the mixture."""

    topology: Topology
    roots: tuple[int, ...]
    slots: tuple[int, ...]
    particles: tuple[int, ...]


def vocabulary(topologies: Sequence[Topology], name: str | None = None) -> Topology:
    """Combine topologies to one that has the particles and kinds of all.

    Its selection accepts every event that one of them accepts, or more.

    >>> from pairton.topology import load_topology
    >>> both = vocabulary([load_topology("hh4b"), load_topology("ttbar_dilep")])
    >>> both.event, both.kinds, str(both.selection)
    (('H', 'tl'), ('jet', 'lepton', 'met'), '2+ jets, 1+ b-tags; jets pT > 25 GeV, |eta| < 2.5; \
leptons pT > 25 GeV, |eta| < 2.5')
    """
    return _union(topologies, name, {root: 1 for topology in topologies for root in topology.event})


def mixture(topologies: Sequence[Topology], name: str | None = None) -> Topology:
    """Combine topologies with the same kinds of objects to one in which each event is of one of them.

    >>> from pairton.topology import load_topology
    >>> both = mixture([load_topology("ttbar_allhad"), load_topology("tth_allhad")])
    >>> both.name, both.event
    ('ttbar_allhad_or_tth_allhad', ('t', 't', 'H'))
    """
    roots = reduce(or_, (Counter(topology.event) for topology in topologies))
    return check_mixture(_union(topologies, name, roots))


def is_mixture(topology: Topology) -> bool:
    """Whether an event can be of any of the alternatives, which have the same kinds of objects."""
    trees = topology.alternatives
    return bool(trees) and all(
        tree.kinds == topology.kinds and not Counter(tree.event) - Counter(topology.event) for tree in trees
    )


def check_mixture(topology: Topology) -> Topology:
    """Return a topology; TopologyError if it has alternatives between which an answer cannot choose."""
    if topology.alternatives and not is_mixture(topology):
        names = [f"{tree.name} ({', '.join(tree.kinds)})" for tree in topology.alternatives]
        raise TopologyError(
            f"an event can only be of one of several topologies with the same kinds of objects, but there are "
            f"{', '.join(names)}: choose one of them"
        )
    return topology


def _union(topologies: Sequence[Topology], name: str | None, roots: Mapping[str, int]) -> Topology:
    names = [topology.name for topology in topologies]
    if len(set(names)) < len(names) or not all(own.isidentifier() for own in names):
        raise TopologyError(f"topologies need different names of letters, digits and _: read {', '.join(names)}")
    decays: dict[str, tuple[str, ...]] = {}
    objects: dict[str, str] = {}
    merged = {name: whole for topology in topologies for name, whole in topology.merged}
    for topology in topologies:
        for item, value in (*topology.decays, *topology.objects):
            known: dict[str, Any] = objects if isinstance(value, str) else decays
            if known.setdefault(item, value) != value:
                one, other = (
                    f"an object of kind {v}" if isinstance(v, str) else f"[{', '.join(v)}]"
                    for v in (value, known[item])
                )
                raise TopologyError(
                    f"{item} decays to {one} in {topology.name}, but to {other} in another of the topologies: "
                    "rename one of the two"
                )
    filled = {kind for topology in topologies for kind in topology.object_kinds}
    context = {kind: None for topology in topologies for kind in topology.context if kind not in filled}
    union = Topology(
        name or "_or_".join(topology.name for topology in topologies),
        tuple(Counter(roots).elements()),
        tuple(decays.items()),
        _loosest(topologies),
        objects=tuple(objects.items()),
        merged=tuple(merged.items()),
        context=tuple(context),
        codes=tuple({item[0]: item for topology in topologies for item in topology.codes}.values()),
        invisible=tuple({item.type: item for topology in topologies for item in topology.invisible}.values()),
        alternatives=tuple(topologies),
        extras=Extras(groups=topologies[0].extras.groups, joined=topologies[0].extras.joined),
    )
    return parse_topology(union.to_dict(), union.name)  # with all checks


def _loosest(topologies: Sequence[Topology]) -> Selection:
    """A selection that accepts every event that one of those of the topologies accepts."""
    having = {kind: [t.selection for t in topologies if kind in t.kinds] for t in topologies for kind in t.kinds}
    cuts = {
        kind: Cuts(min(s.cuts(kind).pt for s in own), max(s.cuts(kind).abs_eta for s in own))
        for kind, own in having.items()
    }
    counts: dict[str, tuple[int, int | None]] = {}
    every = [topology.selection for topology in topologies]
    for kind in [kind for kind in every[0].counts if all(kind in s.counts for s in every)]:
        fewest, most = zip(*(s.counts[kind] for s in every), strict=True)
        counts[kind] = min(fewest), None if None in most else max(most)
    return Selection(cuts, counts, min(s.btags for s in every))


@lru_cache(maxsize=64)
def parts_of(topology: Topology) -> tuple[Part, ...]:
    """The topologies of a mixture. A topology that is not a mixture has one part: itself."""
    return tuple(_part(topology, tree) for tree in topology.trees)


def _part(topology: Topology, tree: Topology) -> Part:
    left = {root: [p for p in topology.roots if p.type == root] for root in tree.event}
    roots = [left[root].pop(0) for root in tree.event]
    return Part(
        tree,
        tuple(root.index for root in roots),
        tuple(slot for root in roots for slot in root.span),
        tuple(q.index for p in roots for q in topology.particles if p.index in topology.ancestry(q.index)),
    )


def same_alternative(topology: Topology, tree: Topology | None) -> Topology | None:
    """The topology of a vocabulary that has the same decay tree as another one; None if none has."""
    return next((own for own in topology.trees if tree is not None and same_tree(own, tree)), None)


def check_known(known: Topology, tree: Topology, model: str) -> None:
    """Raise ModelError unless a network for the particles and kinds of one topology can score those of another.

    >>> from pairton.topology import load_topology
    >>> check_known(load_topology("ttbar_allhad"), load_topology("tth_allhad"), "ttbar_allhad")
    Traceback (most recent call last):
    pairton.errors.ModelError: the model ttbar_allhad does not know H -> b b of tth_allhad (it knows W -> q q, \
t -> W b): train one with `pairton train ttbar_allhad --topology tth_allhad --init ttbar_allhad --data FILES`
    """
    theirs, ours = _decays(known), _decays(tree)
    resolved = _decays(replace(known, merged=()))
    unknown = [text for name, text in ours.items() if text not in (theirs.get(name), resolved.get(name))]
    remedy = f"train one with `pairton train ttbar_allhad --topology {tree.name} --init {model} --data FILES`"
    if unknown:
        name = unknown[0].split(" ")[0]
        hint = "" if name in theirs else nearest(name, theirs)
        raise ModelError(
            f"the model {model} does not know {', '.join(unknown)} of {tree.name} (it knows "
            f"{', '.join(theirs.values())}{hint}): {remedy}"
        )
    if strange := [kind for kind in tree.kinds if kind not in known.kinds]:
        raise ModelError(
            f"the model {model} has not seen the {', '.join(map(collection_name, strange))} of {tree.name} (it "
            f"takes {', '.join(map(collection_name, known.kinds))}): {remedy}"
        )


def _decays(topology: Topology) -> dict[str, str]:
    """Type -> its decay in words, with the kinds of its objects."""
    decays, kinds = dict(topology.decays), dict(topology.objects)

    def named(products: Sequence[str]) -> str:
        return " ".join(f"{p} ({kinds[p]})" if p in kinds else p for p in products)

    words = {name: f"{name} -> {named(decays.get(name, (name,)))}" for name in topology.types}
    return words | {name: f"{words[name]} or {named([whole])}" for name, whole in topology.merged}
