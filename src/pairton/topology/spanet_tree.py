"""Convert an event file of SPANet to a topology with the same slots and the same symmetry group.

SPANet's trees have two levels, and a separate list of permutations. Trees of Pairton have any number of levels,
and repeated names are interchangeable:

    t1: [q1, q2, b], t2: [q1, q2, b]                   event: [t, t], t: [W, b], W: [q, q]
    EVENT: [[t1, t2]], t1: [[q1, q2]], t2: [[q1, q2]]

If a particle has interchangeable products and others of the same kind, the interchangeable ones are put below a
new particle, such as a W for two quarks. Particles that are exchanged only together are put below one new
particle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pairton.errors import TopologyError
from pairton.topology.interchange import Bundle, Class, Node, arrange, closure, leaves
from pairton.topology.selection import JET
from pairton.topology.spanet_event import WHOLE, Product, SpanetEvent

__all__ = ["tree_of"]

QUARKS = frozenset(("q", "j", "jet", "u", "d", "qu", "qd", "wq", "wj", "light"))  # usual names of products of a W


def tree_of(event: SpanetEvent, source: str) -> dict[str, Any]:
    """Plain data of the topology, for `pairton.topology.parse_topology`; `source` is named in errors."""
    return _Builder(event, source).topology()


EMPTY: Mapping[int, list[str]] = MappingProxyType({})

Place = tuple[int, int]  # index of a particle in the event file, and of one of its products


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
        nodes = arrange(event.generators[WHOLE], len(self.names), f"{self.source}: PERMUTATIONS: {WHOLE}")
        for node in nodes:
            for one, other in _exchanged(node):
                self._check_alike(self.names[one], self.names[other])
        found = [self._particles(node) for node in nodes]
        places = [place for _, order in found for place in order]
        labels = [f"{self.names[p]}/{event.particles[self.names[p]][k].name}" for p, k in places]
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

    def _check_alike(self, first: str, second: str) -> None:
        """Raise TopologyError unless two interchangeable particles have the same decay."""
        event = self.event
        kinds = [[product.kind for product in event.particles[name]] for name in (first, second)]
        groups = [
            closure(event.generators[name], len(event.particles[name]), self.source) for name in (first, second)
        ]
        if kinds[0] != kinds[1] or groups[0] != groups[1]:
            raise TopologyError(
                f"{self.source}: PERMUTATIONS: {WHOLE} exchanges {first} and {second}, but their products or the "
                "permutations of their products differ: make both equal, in the same order"
            )

    # -- particles -----------------------------------------------------------------------------------------

    def _particles(self, node: Node, alike: Mapping[int, list[str]] = EMPTY) -> tuple[list[str], list[Place]]:
        """Types for a node of particles, and the slots below them, in the order of the topology.

        alike: index of a particle -> the names of all particles that share its type
        """
        if isinstance(node, int):
            members = alike.get(node, [self.names[node]])
            name = self._type(_stem(members) if len(members) > 1 else members[0], set(members))
            return [name], self._grow(node, name)
        if isinstance(node, Bundle):
            parts = [self._particles(part, alike) for part in node.parts]
            return [n for names, _ in parts for n in names], [place for _, order in parts for place in order]
        first = node.members[0]
        moves = [dict(zip(leaves(first), leaves(member), strict=True)) for member in node.members]
        alike = {
            k: [n for move in moves for n in alike.get(move[k], [self.names[move[k]]])] for k in leaves(first)
        }
        entries, order = self._particles(first, alike)
        name = entries[0]
        if not isinstance(first, int):  # particles that are exchanged together get a common parent
            name = self._type("_".join(dict.fromkeys(entries)), set())
            self.decays[name] = entries
        return [name] * len(moves), [(move[p], k) for move in moves for p, k in order]

    def _type(self, wanted: str, members: set[str]) -> str:
        """A free name for the type of the particles `members`."""
        taken = (set(self.names) - members) | set(self.decays)
        while wanted in taken:
            wanted += "_"
        return wanted

    def _grow(self, number: int, name: str) -> list[Place]:
        """Add the decay of a particle under the name of its type; return its slots in the topology's order."""
        particle = self.names[number]
        products = self.event.particles[particle]
        where = f"{self.source}: PERMUTATIONS: {particle}"
        nodes = arrange(self.event.generators[particle], len(products), where)
        self.decays[name], order = self._products(nodes, products, name)
        return [(number, k) for k in order]

    # -- products ------------------------------------------------------------------------------------------

    def _products(
        self, nodes: Sequence[Node], products: tuple[Product, ...], name: str
    ) -> tuple[list[str], list[int]]:
        """Names of the products of a type, new particles first, and the indices of all products below it."""
        own = _own_nodes(nodes, products)
        entries: list[str] = []
        order: list[int] = []
        for node in nodes:
            if node not in own:
                below, numbers = self._wrapped(node, products, name)
                entries, order = entries + below, order + numbers
        for node in own:
            numbers = list(leaves(node))
            entries += [self._slot(products, numbers)] * len(numbers)
            order += numbers
        return entries, order

    def _slot(self, products: tuple[Product, ...], same: list[int]) -> str:
        """A free name for one product or for interchangeable ones."""
        kind = products[same[0]].kind
        name = _stem([products[k].name for k in same]) if len(same) > 1 else products[same[0]].name
        particles = {*self.names, *map(_bare, self.names), *self.decays}
        while name in particles or self.kinds.get(name, kind) != kind:
            name += f"_{kind}"
        self.kinds[name] = kind
        return name

    def _wrapped(self, node: Node, products: tuple[Product, ...], parent: str) -> tuple[list[str], list[int]]:
        """A new particle for one product, for interchangeable ones, or for several that move together."""
        members = node.members if isinstance(node, Class) and not _is_flat(node) else (node,)
        first = members[0]
        inner = first.parts if isinstance(first, Bundle) else (first,)
        stem = _stem([products[k].name for k in leaves(first)])
        is_w = _is_flat(first) and len(leaves(first)) == 2 and products[leaves(first)[0]].kind == JET
        name = "W" if is_w and stem.lower() in QUARKS else f"{parent}_{stem}"
        taken = {*self.names, *map(_bare, self.names), *self.kinds}
        moves = [dict(zip(leaves(first), leaves(member), strict=True)) for member in members]
        if len(moves) > 1:  # corresponding products get the same name
            same = {k: _stem([products[move[k]].name for move in moves]) for k in leaves(first)}
            products = tuple(
                replace(product, name=same.get(k, product.name)) for k, product in enumerate(products)
            )
        below, order = self._products(inner, products, f"{parent}_{stem}")
        while name in taken or self.decays.get(name, below) != below:
            name = f"{parent}_{stem}" if name == "W" else f"{name}_"
        self.decays[name] = below
        return [name] * len(moves), [move[k] for move in moves for k in order]


def _own_nodes(nodes: Sequence[Node], products: tuple[Product, ...]) -> list[Node]:
    """Nodes whose slots stay directly below the particle: one per kind, since only the kind tells them apart."""
    flat = [node for node in nodes if isinstance(node, int) or _is_flat(node)]
    own: list[Node] = []
    for kind in dict.fromkeys(products[leaves(node)[0]].kind for node in flat):
        same_kind = [node for node in flat if products[leaves(node)[0]].kind == kind]
        single = [node for node in same_kind if isinstance(node, int)]
        if len(same_kind) == 1 or single:
            own.append(single[-1] if single else same_kind[0])
    return own


def _is_flat(node: Node) -> bool:
    """Whether a node is a class of single elements."""
    return isinstance(node, Class) and all(isinstance(member, int) for member in node.members)


def _exchanged(node: Node) -> list[tuple[int, int]]:
    """Pairs of corresponding elements of the members of a class, at any depth."""
    if isinstance(node, int):
        return []
    if isinstance(node, Bundle):
        return [pair for part in node.parts for pair in _exchanged(part)]
    first = leaves(node.members[0])
    pairs = [pair for member in node.members for pair in zip(first, leaves(member), strict=True)]
    return [(one, other) for one, other in pairs if one != other] + _exchanged(node.members[0])


def _bare(name: str) -> str:
    """A name without the number at its end."""
    return name.rstrip("0123456789").rstrip("_") or name


def _stem(names: list[str]) -> str:
    """The common name without numbers (t for t1, t2); if there is none, the first name.

    >>> _stem(["q1", "q2"]), _stem(["top", "antitop"]), _stem(["b"])
    ('q', 'top', 'b')
    """
    stems = {_bare(name) for name in names}
    return stems.pop() if len(stems) == 1 else names[0]
