"""Default names of a topology's slots in other codes, for topologies whose file has no `labels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pairton.topology.tree import Particle, Topology

__all__ = ["hyper_labels", "spanet_labels"]


def hyper_labels(topology: Topology) -> tuple[str, ...]:
    """Labels of HyPER: numbers from 1, where a particle's own jets come before those of its children."""
    order: list[int] = []

    def visit(particle: Particle) -> None:
        order.extend(particle.own_slots)
        for child in particle.children:
            visit(topology.particles[child])

    for root in topology.roots:
        visit(root)
    return tuple(str(order.index(slot.index) + 1) for slot in topology.slots)


def spanet_labels(topology: Topology) -> tuple[str, ...]:
    """Labels of SPANet: `root/product`, with the whole path as product where its last name is not unique."""
    labels = []
    for slot in topology.slots:
        root, *path = slot.name.split(".")
        same_root = [s.name.split(".") for s in topology.slots if s.name.split(".")[0] == root]
        short = path[-1] if path else root
        unique = sum(other[-1] == short for other in same_root) == 1
        labels.append(f"{root}/{short if unique else '_'.join(path)}")
    return tuple(labels)
