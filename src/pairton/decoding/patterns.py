"""Patterns: which particles of a topology may be present in an event, and the chain of sums over their objects.

A particle is present if all its products are. Below an absent particle, others may be present: for a top the
options are t (with its W), W alone, and nothing. A pattern is one option for each root particle, in any order for
interchangeable ones: t + t, t + W, t, W + W, W and nothing for two hadronic tops. A mixture has the patterns of
each of its topologies: two tops are one pattern of ttbar and, with a missing H, another one of ttH.

The highest present particles have disjoint objects and interact in no other way. So a sum over all hypotheses of a
pattern is a product of its particles, where multiplying means to join disjoint sets of objects: `Spec`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import combinations_with_replacement, product
from typing import NamedTuple

from pairton.topology import Topology
from pairton.topology.mixtures import parts_of

__all__ = ["Pattern", "Plan", "Spec", "plan_of"]


class Spec(NamedTuple):
    """A factor of the sums: the particles of a type, or left times right; with degree > 1, a power of the left."""

    type: str
    left: Spec | None = None
    right: Spec | None = None
    degree: int = 1


class Pattern(NamedTuple):
    """Which particles are present: the highest of each branch, with the slots they are given."""

    name: str
    entry: int  # its place among the factors; -1 if nothing is present
    placed: tuple[tuple[str, int], ...]  # type and first slot, in the order in which the product is taken apart
    complete: bool
    part: int = 0  # which topology of a mixture it is a pattern of

    @property
    def key(self) -> str:
        """Its name without spaces and signs, as in the columns of a result: t_W, in a mixture ttbar_allhad_t_W."""
        return self.name.replace(" + ", "_").replace(": ", "_").replace(".", "_")

    def needs(self, topology: Topology) -> tuple[int, ...]:
        """How many objects of each kind its particles have.

        >>> from pairton.topology import load_topology
        >>> semilep = load_topology("ttbar_semilep")
        >>> {pattern.key: pattern.needs(semilep) for pattern in plan_of(semilep).patterns[:2]}
        {'t_tl': (4, 1, 0), 't': (3, 0, 0)}
        """
        taken = Counter(
            topology.slots[slot].kind
            for name, first in self.placed
            for slot in range(first, first + len(topology.of_type(name)[0].slots))
        )
        return tuple(taken[kind] for kind in topology.kinds)


class _Option(NamedTuple):
    paths: tuple[str, ...]  # of the highest present particles, by type
    spec: Spec | None  # None: nothing is present
    placed: tuple[tuple[str, int], ...]


class Plan:
    """The patterns of a topology, the complete one first, and the factors that they need, each once.

    Those of a mixture are its topologies' patterns, one topology after the other.
    """

    def __init__(self, topology: Topology, complete_only: bool) -> None:
        self._topology, self._complete_only = topology, complete_only
        self.specs: dict[Spec, int] = {}  # factors before products
        patterns: list[Pattern] = []
        for number, part in enumerate(parts_of(topology)):
            roots = [topology.particles[index] for index in part.roots]
            options = self._choices([(root.type, root.slots[0], root.type) for root in roots])
            names = [tuple(path.split(".")[-1] for path in option.paths) for option in options]
            if len(set(names)) < len(names):  # one type in several places
                names = [option.paths for option in options]
            prefix = f"{part.name}: " if topology.alternatives else ""
            patterns += [
                Pattern(f"{prefix}{' + '.join(name) or 'nothing'}", self.number(o.spec), o.placed, k == 0, number)
                for k, (name, o) in enumerate(zip(names, options, strict=True))
            ]
        self.patterns = tuple(patterns)

    def number(self, spec: Spec | None) -> int:
        """The place of a factor; a new one gets the next."""
        if spec is None:
            return -1
        self.number(spec.left)
        self.number(spec.right)
        return self.specs.setdefault(spec, len(self.specs))

    def _options(self, type_name: str, path: str) -> list[_Option]:
        """The particle itself, or any choice of what is below it that does not make it present."""
        itself = _Option((path,), Spec(type_name), ((type_name, 0),))
        if self._complete_only:
            return [itself]
        particle = self._topology.of_type(type_name)[0]
        below = [self._topology.particles[child] for child in particle.children]
        offset = particle.slots[0]
        choices = self._choices([(p.type, p.slots[0] - offset, f"{path}.{p.type}") for p in below])
        return [itself, *(choices if particle.own_slots else choices[1:])]  # the first one: all children present

    def _choices(self, products: Sequence[tuple[str, int, str]]) -> list[_Option]:
        """One option for every product (type, first slot, path), in any order for interchangeable ones."""
        groups = []
        for name, path in {name: path for name, _, path in products}.items():
            slots = [slot for other, slot, _ in products if other == name]
            chosen = combinations_with_replacement(self._options(name, path), len(slots))
            groups.append([_interchangeable(options, slots) for options in chosen])
        return [_together(parts) for parts in product(*groups)]


@lru_cache(maxsize=64)
def plan_of(topology: Topology, complete_only: bool = False) -> Plan:
    """The plan of a topology; made once and kept.

    >>> from pairton.topology import load_topology
    >>> [pattern.name for pattern in plan_of(load_topology("ttbar_allhad")).patterns]
    ['t + t', 't + W', 't', 'W + W', 'W', 'nothing']
    """
    return Plan(topology, complete_only)


def _together(parts: Sequence[_Option]) -> _Option:
    paths = tuple(path for part in parts for path in part.paths)
    placed = tuple(place for part in parts for place in part.placed)
    return _Option(paths, reduce(_times, [part.spec for part in parts], None), placed)


def _interchangeable(options: Sequence[_Option], slots: Sequence[int]) -> _Option:
    """Options of interchangeable products with these first slots; equal options are side by side."""
    moved = [
        option._replace(placed=tuple((name, slot + first) for name, first in option.placed))
        for option, slot in zip(options, slots, strict=True)
    ]
    powers = [_power(option.spec, degree) for option, degree in Counter(options).items()]
    return _together(moved)._replace(spec=reduce(_times, powers, None))


def _times(left: Spec | None, right: Spec | None) -> Spec | None:
    return Spec("", left, right) if left and right else left or right


def _power(base: Spec | None, degree: int) -> Spec | None:
    return Spec("", base, _power(base, degree - 1), degree) if base and degree > 1 else base
