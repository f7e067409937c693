"""How other codes name the slots of a topology, where its file does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pairton.topology.tree import Particle, Topology

__all__ = ["hyper_labels", "spanet_labels"]


def hyper_labels(topology: Topology) -> tuple[str, ...]:
    """Numbers from 1, each particle's own jets before those of its children."""
    order: list[int] = []

    def visit(particle: Particle) -> None:
        order.extend(particle.own_slots)
        for child in particle.children:
            visit(topology.particles[child])

    for root in topology.roots:
        visit(root)
    return tuple(str(order.index(slot.index) + 1) for slot in topology.slots)


def spanet_labels(topology: Topology) -> tuple[str, ...]:
    """`root/product`, SPANet's two levels; a longer path where the product's name alone is not unique."""
    labels = []
    for slot in topology.slots:
        root, *path = slot.name.split(".")
        rivals = [s.name.split(".") for s in topology.slots if s.name.split(".")[0] == root]
        short = path[-1] if path else root
        unique = sum(rival[-1] == short for rival in rivals) == 1
        labels.append(f"{root}/{short if unique else '_'.join(path)}")
    return tuple(labels)
