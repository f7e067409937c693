"""What the file of a topology says to others: labels in other codes, lines for Pythia, bins of results."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

if TYPE_CHECKING:
    from pairton.topology.tree import Topology

__all__ = ["Extras", "bin_index", "bin_names", "labels_of"]

Namespace = Literal["hyper", "spanet"]
Edge = Annotated[int, Meta(ge=0, lt=1000)]
EDGES = "a list of the smallest number of objects of each bin, as in [4, 5, 6, 7]"
LINES = 'a list of lines for Pythia, for example ["HiggsSM:ffbar2HZ = on"]'


class Extras(Struct, frozen=True, omit_defaults=True, dict=True):
    """Keys of the file that the decay tree itself does not need."""

    labels: dict[Namespace, tuple[str | int, ...]] = {}  # names of the slots in HyPER and SPANet
    process: Annotated[tuple[str, ...], Meta(description=LINES)] = ()
    bins: Annotated[tuple[Edge, ...], Meta(description=EDGES)] = ()  # lower edges of the bins of results
    groups: dict[str, str] = {}  # kind -> its group in SPANet's files
    joined: tuple[str, ...] = ()  # kinds that SPANet's targets index as one list


def bin_names(topology: Topology) -> tuple[str, ...]:
    """Names of the bins of results, in the number of objects of the main kind: 6, 7, 8+.

    By default n, n + 1, and n + 2 or more, where n is the number of slots of that kind.
    """
    edges = _edges(topology)
    each = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(edges)]
    return (*each, f"{edges[-1]}+")


def bin_index(topology: Topology, counts: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The bin for each number of objects of the main kind; -1 below the lowest bin."""
    return np.searchsorted(_edges(topology), counts, side="right") - 1


def _edges(topology: Topology) -> tuple[int, ...]:
    n = topology.slots_per_kind[topology.kinds.index(topology.main_kind)]
    return topology.extras.bins or (n, n + 1, n + 2)


def labels_of(topology: Topology, namespace: Namespace) -> tuple[str, ...]:
    """The names of the slots in another code, in the order of `slots`.

    HyPER has numbers from 1, where a particle's own jets come before those of its children. SPANet has
    `root/product`, with the whole path as product where its last name is not unique.

    >>> from pairton.topology import load_topology
    >>> labels_of(load_topology("ttbar_allhad"), "hyper")
    ('2', '3', '1', '5', '6', '4')
    >>> labels_of(load_topology("ttbar_allhad"), "spanet")
    ('t1/q1', 't1/q2', 't1/b', 't2/q1', 't2/q2', 't2/b')
    """
    if namespace in topology.extras.labels:
        return tuple(map(str, topology.extras.labels[namespace]))
    if namespace == "spanet":
        return _spanet_labels(topology)
    order = [slot for particle in topology.particles for slot in particle.own_slots]
    return tuple(str(order.index(slot.index) + 1) for slot in topology.slots)


def _spanet_labels(topology: Topology) -> tuple[str, ...]:
    labels = []
    for slot in topology.slots:
        root, *path = slot.name.split(".")
        same_root = [s.name.split(".") for s in topology.slots if s.name.split(".")[0] == root]
        short = path[-1] if path else root
        unique = sum(other[-1] == short for other in same_root) == 1
        labels.append(f"{root}/{short if unique else '_'.join(path)}")
    return tuple(labels)
