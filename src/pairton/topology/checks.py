"""Checks of a topology beyond its syntax."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pairton.errors import TopologyError, nearest
from pairton.topology.invisible import neutrinos_of
from pairton.topology.kinds import JET, collection_name

if TYPE_CHECKING:
    from pairton.topology.tree import Stage, Topology

__all__ = ["check_topology"]


def check_topology(topology: Topology) -> None:
    """Raise TopologyError if a topology is inconsistent."""
    _check_products(topology)
    _check_names(topology)
    _check_stages(topology)
    _check_bins(topology)
    neutrinos_of(topology)  # raises if the neutrinos cannot be computed
    for namespace, names in topology.extras.labels.items():
        _check_labels(topology, namespace, [str(name) for name in names])
    if topology.alternatives:
        _check_alternatives(topology)


def _check_alternatives(topology: Topology) -> None:
    names = [name for name, _ in topology.alternatives]
    if len(names) < 2 or len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
        raise TopologyError(
            f"read the mixture {', '.join(names)}, but a mixture needs two or more topologies with different "
            "names, made of letters, digits and _"
        )
    counts = [Counter(roots) for _, roots in topology.alternatives]
    most = {root: max(count[root] for count in counts) for count in counts for root in count}
    if most != Counter(topology.event):
        raise TopologyError(
            f"read event [{', '.join(topology.event)}], but the alternatives need "
            f"[{', '.join(Counter(most).elements())}]: list each particle as often as the alternative that has "
            "the most of it"
        )


def _check_products(topology: Topology) -> None:
    """Different products directly below one particle must differ in kind.

    The adjacency matrices only say which objects share a particle, so nothing else can tell them apart.
    """
    decays = dict(topology.decays)
    kinds = dict(topology.objects)
    for name, products in decays.items():
        below: dict[str, list[str]] = {}
        for product in dict.fromkeys(products):
            if product not in decays:
                below.setdefault(kinds.get(product, JET), []).append(product)
        for kind, names in below.items():
            if len(names) > 1:
                raise TopologyError(
                    f"{name}: [{', '.join(products)}] has the {collection_name(kind)} {' and '.join(names)} "
                    "directly below one particle, where they cannot be told apart: give them the same name, or "
                    "put some of them below a particle of their own, as in t: [W, b], W: [q, q]"
                )
    for kind in topology.context:
        if kind in topology.object_kinds:
            raise TopologyError(
                f"context lists {kind}, but slots take objects of this kind: remove it from context"
            )
    if len(set(topology.context)) != len(topology.context):
        raise TopologyError(f"context lists a kind twice: {', '.join(topology.context)}: list each kind once")


def _check_names(topology: Topology) -> None:
    """Numbered names (q1) may collide with given ones, and so may column names, which have _ for dots."""
    for names in ([p.name for p in topology.particles], [slot.name for slot in topology.slots]):
        counts = Counter(name.replace(".", "_") for name in names)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise TopologyError(
                f"{twice[0]} would be the name of two things: repeated names get numbers (q1, q2), and the parts "
                "of a name are joined by _: rename one of them"
            )


def _check_bins(topology: Topology) -> None:
    edges = topology.extras.bins
    if any(high <= low for low, high in pairwise(edges)):
        raise TopologyError(f"bins reads {list(edges)}, but must be in increasing order, as in [4, 5, 6]")


def _check_stages(topology: Topology) -> None:
    for stage in topology.given_stages:
        for name in stage.types:
            if name not in topology.types:
                known = ", ".join(topology.types)
                raise TopologyError(
                    f"stages lists {name!r}, but the particles are {known}{nearest(name, topology.types)}"
                )
    if not topology.given_stages:
        return
    read = ", ".join(f"[{stage}]" for stage in topology.given_stages)
    reached = topology.levels[-1]
    if not reached.size or not reached.all():
        need = ", ".join(f"{len(topology.of_type(name))} x {name}" for name in topology.types)
        raise TopologyError(
            f"stages reads {read}, but must reveal {need}, children before parents: complete or reorder the list"
        )
    for stage, level in zip(topology.given_stages, topology.levels, strict=False):
        for state in level:
            if not topology.revealable(stage, frozenset(np.flatnonzero(state).tolist())):
                raise TopologyError(_dead_end(topology, read, stage, np.flatnonzero(state).tolist()))


def _dead_end(topology: Topology, read: str, stage: Stage, done: list[int]) -> str:
    revealed = ", ".join(topology.particles[index].name for index in done)
    return (
        f"stages reads {read}, but stage [{stage}] has nothing to reveal if {revealed} came first: "
        "reveal all particles of a type before the particles that may contain them"
    )


def _check_labels(topology: Topology, namespace: str, names: list[str]) -> None:
    if len(names) != len(topology.slots) or len(set(names)) != len(names):
        order = ", ".join(slot.name for slot in topology.slots)
        raise TopologyError(
            f"labels.{namespace} has {len(set(names))} different labels for {len(topology.slots)} slots:"
            f" give one per slot, in the order {order}"
        )
    if namespace == "hyper" and not all(re.fullmatch(r"([1-9]\d*-)?[1-9]\d*", name) for name in names):
        raise TopologyError(
            f"labels.hyper reads {', '.join(names)}, but must be numbers from 1, or pairs: "
            "2-1 means label 1 of the leptons"
        )
