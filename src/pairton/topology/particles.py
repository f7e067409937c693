"""The particles and slots of a decay tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pairton.topology.kinds import JET

__all__ = ["Particle", "Slot", "below", "grow_tree"]


@dataclass(frozen=True)
class Slot:
    """One decay product to be filled with an object of its kind."""

    index: int
    name: str  # "t1.W.q1"
    particle: int  # index of the particle that decays directly to it
    kind: str = JET


@dataclass(frozen=True)
class Particle:
    """A short-lived particle to reconstruct."""

    index: int
    name: str  # "t1.W"
    type: str  # "W"
    parent: int  # index, -1 at the root
    children: tuple[int, ...]  # indices of the particles it decays to
    own_slots: tuple[int, ...]  # indices of the slots it decays to directly
    slots: tuple[int, ...]  # indices of all slots below it, at any depth


def _numbered(names: Sequence[str]) -> list[str]:
    """Number the names that occur more than once: [q, q, b] -> [q1, q2, b]."""
    return [
        f"{name}{list(names[: k + 1]).count(name)}" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]


def grow_tree(
    event: tuple[str, ...], decays: Mapping[str, tuple[str, ...]], kinds: Mapping[str, str]
) -> tuple[tuple[Particle, ...], tuple[Slot, ...]]:
    """Build all particles and slots of a decay tree, depth first, parents before their children.

    event: the types at the root; decays: type -> its products; kinds: product -> kind, if it is not a jet.
    """
    particles: list[Particle | None] = []
    slots: list[Slot] = []

    def grow(type_name: str, name: str, parent: int) -> int:
        index = len(particles)
        particles.append(None)  # filled below; reserves the parent's place before its children
        first = len(slots)
        children, own = [], []
        if type_name in decays:
            for product_name, label in zip(decays[type_name], _numbered(decays[type_name]), strict=True):
                if product_name in decays:
                    children.append(grow(product_name, f"{name}.{label}", index))
                else:
                    own.append(len(slots))
                    slots.append(Slot(len(slots), f"{name}.{label}", index, kinds.get(product_name, JET)))
        else:  # a plain object at the root
            own.append(len(slots))
            slots.append(Slot(len(slots), name, index, kinds.get(type_name, JET)))
        particles[index] = Particle(
            index, name, type_name, parent, tuple(children), tuple(own), tuple(range(first, len(slots)))
        )
        return index

    for type_name, name in zip(event, _numbered(event), strict=True):
        grow(type_name, name, -1)
    return tuple(p for p in particles if p is not None), tuple(slots)


def below(name: str, decays: Mapping[str, tuple[str, ...]]) -> dict[str, None]:
    """A name, and the names of all its products at any depth."""
    names = {name: None}
    for product in decays.get(name, ()):
        names |= below(product, decays)
    return names
