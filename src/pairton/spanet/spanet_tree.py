"""Convert an event file of SPANet to a topology with the same slots and the same symmetries.

SPANet's trees have two levels, and a separate list of permutations. Trees of Pairton have any number of levels,
and repeated names are interchangeable:

    t1: [q1, q2, b], t2: [q1, q2, b]                   event: [t, t], t: [W, b], W: [q, q]
    EVENT: [[t1, t2]], t1: [[q1, q2]], t2: [[q1, q2]]

If a particle has interchangeable products and others of the same kind, the interchangeable ones are put below a
new particle, such as a W for two quarks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairton.errors import TopologyError
from pairton.spanet.spanet_event import WHOLE, Product, SpanetEvent, parse_spanet_event
from pairton.topology.kinds import JET

__all__ = ["tree_of"]

QUARKS = frozenset(("q", "j", "jet", "u", "d", "qu", "qd", "wq", "wj", "light"))  # usual names of products of a W


def tree_of(raw: Mapping[str, Any], name: str, source: str) -> dict[str, Any]:
    """Plain data of the topology of an event file, for `parse_topology`; `source` is named in errors."""
    return _Builder(parse_spanet_event(raw, name, source), source).topology()


Class = tuple[int, ...]  # positions of interchangeable particles or products


@dataclass
class _Builder:
    event: SpanetEvent
    source: str
    decays: dict[str, list[str]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)  # name of a slot -> kind

    @property
    def names(self) -> list[str]:
        return list(self.event.particles)

    def topology(self) -> dict[str, Any]:
        event = self.event
        found = [self._particles(same) for same in event.classes[WHOLE]]
        labels = [label for _, below in found for label in below]
        used = {product.kind for products in event.particles.values() for product in products}
        context = [group.kind for group in event.inputs if group.kind not in used and group.has_momentum]
        objects = {name: kind for name, kind in self.kinds.items() if kind != JET}
        raw = {
            "name": event.name,
            "event": [name for entries, _ in found for name in entries],
            "particles": self.decays,
            "objects": objects,
            "context": context,
            "labels": {"spanet": labels},
            "groups": {group.kind: group.name for group in event.inputs if group.kind in {*used, *context}},
            "joined": [group.kind for group in event.inputs if group.form != "GLOBAL"] if event.joined else [],
        }
        return {key: value for key, value in raw.items() if value}

    def _particles(self, same: Class) -> tuple[list[str], list[str]]:
        """Types of interchangeable particles, and the labels of the slots below them, in the topology's order."""
        event, members = self.event, [self.names[k] for k in same]
        products = event.particles[members[0]]
        for name in members[1:]:
            alike = [product.kind for product in event.particles[name]] == [product.kind for product in products]
            if not alike or event.classes[name] != event.classes[members[0]]:
                raise TopologyError(
                    f"{self.source}: PERMUTATIONS: {WHOLE} exchanges {members[0]} and {name}, but their products "
                    "or the permutations of their products differ: make both equal, in the same order"
                )
        name = _stem(members)
        while name in (set(self.names) - set(members)) | set(self.decays):
            name += "_"
        self.decays[name], order = self._products(event.classes[members[0]], products, name)
        return [name] * len(members), [f"{p}/{event.particles[p][k].name}" for p in members for k in order]

    def _products(
        self, classes: tuple[Class, ...], products: tuple[Product, ...], parent: str
    ) -> tuple[list[str], list[int]]:
        """Names of the products of a type, new particles first, and the positions of all products below it."""
        own = _own_classes(classes, products)
        entries = [self._wrapped(same, products, parent) for same in classes if same not in own]
        entries += [name for same in own for name in [self._slot(products, same)] * len(same)]
        return entries, [k for same in (*(c for c in classes if c not in own), *own) for k in same]

    def _slot(self, products: tuple[Product, ...], same: Class) -> str:
        """A free name for one product or for interchangeable ones."""
        kind = products[same[0]].kind
        name = _stem([products[k].name for k in same])
        particles = {*self.names, *map(_bare, self.names), *self.decays}
        while name in particles or self.kinds.get(name, kind) != kind:
            name += f"_{kind}"
        self.kinds[name] = kind
        return name

    def _wrapped(self, same: Class, products: tuple[Product, ...], parent: str) -> str:
        """A new particle for one product, or for interchangeable ones."""
        stem = _stem([products[k].name for k in same])
        is_w = len(same) == 2 and products[same[0]].kind == JET and stem.lower() in QUARKS
        name = "W" if is_w else f"{parent}_{stem}"
        taken = {*self.names, *map(_bare, self.names), *self.kinds}
        below = [self._slot(products, same)] * len(same)
        while name in taken or self.decays.get(name, below) != below:
            name = f"{parent}_{stem}" if name == "W" else f"{name}_"
        self.decays[name] = below
        return name


def _own_classes(classes: tuple[Class, ...], products: tuple[Product, ...]) -> list[Class]:
    """Classes whose slots stay directly below the particle: one per kind, since only the kind tells them apart."""
    own: list[Class] = []
    for kind in dict.fromkeys(products[same[0]].kind for same in classes):
        same_kind = [same for same in classes if products[same[0]].kind == kind]
        single = [same for same in same_kind if len(same) == 1]
        if len(same_kind) == 1 or single:
            own.append(single[-1] if single else same_kind[0])
    return own


def _bare(name: str) -> str:
    """A name without the number at its end."""
    return name.rstrip("0123456789").rstrip("_") or name


def _stem(names: list[str]) -> str:
    """The common name without numbers (t for t1, t2); if there is none, or a single name, the first.

    >>> _stem(["q1", "q2"]), _stem(["top", "antitop"]), _stem(["b"])
    ('q', 'top', 'b')
    """
    stems = {_bare(name) for name in names}
    return stems.pop() if len(stems) == 1 and len(names) > 1 else names[0]
