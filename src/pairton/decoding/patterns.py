"""Patterns: which particles of a topology are present in an event, and how to sum over their objects.

A particle is present if all its products are. Below an absent particle, others may be present: for a top the
options are t (with its W), W alone, and nothing. A pattern is one option per root particle, regardless of order
for interchangeable ones: two hadronic tops have t + t, t + W, t, W + W, W and nothing. A mixture has the patterns
of each of its topologies: two tops are one pattern of ttbar and, with a missing H, another one of ttH.

The highest present particles must have disjoint objects, and are otherwise independent. So the sum over all
hypotheses of a pattern is a product of factors, one per particle, in which only disjoint sets of objects are
multiplied. `Spec` describes such a product.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import combinations_with_replacement, product
from math import comb, factorial, inf, perm, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, nearest, shown
from pairton.events.nodes import MOST_OBJECTS
from pairton.topology import Layout, Topology
from pairton.topology.vocabulary import parts_of

__all__ = [
    "ANSWERS",
    "LEAST",
    "MAX_SUMS",
    "Allowed",
    "Pattern",
    "Plan",
    "Question",
    "Spec",
    "allowed_nodes",
    "count_sums",
    "exact_limit",
    "largest_count",
    "plan_of",
]

MOST_LISTED = 1000
MAX_SUMS = 6_000_000  # four tops in 16 jets need 4.3 million: 10 ms per event with marginals, 100 MB of tables
ANSWERS = {
    "event": "the most probable hypothesis: most events right as a whole",
    "particles": "the candidates with the largest sum of probabilities: most particles right",
}
LEAST = 0.5  # a candidate of lower probability is more likely absent than present
Allowed = tuple[tuple[int, ...], ...]  # for each slot the nodes that it may take
COMPLETE, INCOMPLETE = "complete", "incomplete"  # groups in a prior: patterns with every particle, all others


class Spec(NamedTuple):
    """A factor of the sums: the particles of one form, or left times right; a power of left if degree > 1."""

    form: str
    left: Spec | None = None
    right: Spec | None = None
    degree: int = 1


class Pattern(NamedTuple):
    """Which particles are present, and how: the highest form of each branch, and the slots that it fills."""

    name: str
    entry: int  # index of its factor in `Plan.specs`; -1 if nothing is present
    placed: tuple[tuple[str, int], ...]  # form and first slot, in the order of the factors of the product
    complete: bool
    part: int = 0  # index of its topology in a mixture

    @property
    def key(self) -> str:
        """Its name in the columns of a result: t_W for t + W, or ttbar_allhad_t_W in a mixture."""
        return re.sub(r"\W+", "_", self.name)

    def filled(self, topology: Topology) -> list[int]:
        """The slots that its particles fill."""
        return [first + k for name, first in self.placed for k in topology.forms[name].filled]

    def needs(self, topology: Topology) -> tuple[int, ...]:
        """How many objects of each kind its particles need.

        >>> from pairton.topology import load_topology
        >>> semilep = load_topology("ttbar_semilep")
        >>> {pattern.key: pattern.needs(semilep) for pattern in plan_of(semilep).patterns[:2]}
        {'t_tl': (4, 1, 0), 't': (3, 0, 0)}
        """
        taken = Counter(topology.slots[slot].kind for slot in self.filled(topology))
        return tuple(taken[kind] for kind in topology.kinds)


class _Option(NamedTuple):
    paths: tuple[str, ...]  # paths of types, such as t.W, to the highest present particles
    spec: Spec | None  # None: nothing is present
    placed: tuple[tuple[str, int], ...]
    complete: bool  # whether all of these products are present


class Plan:
    """The patterns of a topology, the first of them complete, and the factors that they need, each once.

    A mixture has the patterns of each of its topologies, one topology after the other.
    """

    def __init__(self, topology: Topology, complete_only: bool) -> None:
        self._topology, self._complete_only = topology, complete_only
        self.specs: dict[Spec, int] = {}  # factors before products
        patterns: list[Pattern] = []
        for number, part in enumerate(parts_of(topology)):
            roots = [topology.particles[index] for index in part.roots]
            options = self._choices([(root.type, root.span[0], root.type) for root in roots])
            names = [tuple(path.split(".")[-1] for path in option.paths) for option in options]
            if len(set(names)) < len(names):  # one type in several places
                names = [option.paths for option in options]
            prefix = f"{part.topology.name}: " if topology.alternatives else ""
            patterns += [
                Pattern(f"{prefix}{' + '.join(name) or 'nothing'}", self.number(spec), placed, complete, number)
                for name, (_, spec, placed, complete) in zip(names, options, strict=True)
            ]
        self.patterns = tuple(patterns)
        self.complete = [k for k, pattern in enumerate(patterns) if pattern.complete]

    def number(self, spec: Spec | None) -> int:
        """The index of a factor, which is added if it is new."""
        if spec is None:
            return -1
        self.number(spec.left)
        self.number(spec.right)
        return self.specs.setdefault(spec, len(self.specs))

    def _options(self, type_name: str, path: str) -> list[_Option]:
        """The particle in each form, and every combination of particles below it that does not make it present."""
        above = path.removesuffix(type_name)
        itself = [
            _Option((f"{above}{form.name}",), Spec(form.name), ((form.name, 0),), True)
            for form in self._topology.forms_of(type_name)
        ]
        if self._complete_only:
            return itself
        particle = self._topology.of_type(type_name)[0]
        below = [self._topology.particles[child] for child in particle.children]
        offset = particle.span[0]
        choices = self._choices([(p.type, p.span[0] - offset, f"{path}.{p.type}") for p in below])
        rest = [o._replace(complete=False) for o in choices if particle.own_slots or not o.complete]
        return [*itself, *rest]

    def _choices(self, products: Sequence[tuple[str, int, str]]) -> list[_Option]:
        """All choices of one option per product (type, first slot, path), regardless of order for equal types."""
        groups = []
        for name, path in {name: path for name, _, path in products}.items():
            slots = [slot for other, slot, _ in products if other == name]
            chosen = combinations_with_replacement(self._options(name, path), len(slots))
            groups.append([_interchangeable(options, slots) for options in chosen])
        return [_together(parts) for parts in product(*groups)]


@lru_cache(maxsize=64)
def plan_of(topology: Topology, complete_only: bool = False) -> Plan:
    """The plan of a topology; made once and cached.

    >>> from pairton.topology import load_topology
    >>> [pattern.name for pattern in plan_of(load_topology("ttbar_allhad")).patterns]
    ['t + t', 't + W', 't', 'W + W', 'W', 'nothing']
    """
    return Plan(topology, complete_only)


def _together(parts: Sequence[_Option]) -> _Option:
    paths = tuple(path for part in parts for path in part.paths)
    placed = tuple(place for part in parts for place in part.placed)
    spec = reduce(_times, [part.spec for part in parts], None)
    return _Option(paths, spec, placed, all(part.complete for part in parts))


def _interchangeable(options: Sequence[_Option], slots: Sequence[int]) -> _Option:
    """Options of interchangeable products with these first slots; equal options are adjacent."""
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


# -- which objects, and how many sums ----------------------------------------------------------------------


def allowed_nodes(topology: Topology, counts: int | Mapping[str, int] | Sequence[int]) -> Allowed:
    """For each slot the nodes that it may take: those of its kind.

    >>> from pairton.topology import load_topology
    >>> allowed_nodes(load_topology("hh4b"), 5)[0]
    (0, 1, 2, 3, 4)
    """
    layout = topology.layout(counts)
    return tuple(tuple(topology.nodes(slot.kind, layout)) for slot in topology.slots)


def exact_limit(topology: Topology, complete_only: bool = False) -> int:
    """The largest number of objects per kind for which the sums of an event stay within `MAX_SUMS`.

    >>> from pairton.topology import load_topology
    >>> [exact_limit(load_topology(name)) for name in ("ttbar_allhad", "tth_allhad", "tttt_allhad")]
    [28, 19, 16]
    """
    return largest_count(
        topology, lambda layout: count_sums(topology, allowed_nodes(topology, layout), complete_only)
    )


def largest_count(topology: Topology, sums: Callable[[Layout], int]) -> int:
    """The largest number of objects per kind for which `sums` of a layout stays within `MAX_SUMS`."""
    kinds = topology.object_kinds
    layouts = {n: topology.layout(dict.fromkeys(kinds, n)) for n in range(1, MOST_OBJECTS // len(kinds) + 1)}
    return max((count for count, layout in layouts.items() if sums(layout) <= MAX_SUMS), default=0)


def count_sums(topology: Topology, allowed: Allowed, complete_only: bool = False) -> int:
    """How many terms the sums over sets have per event: a measure of their cost.

    It is an upper bound if two slots share some of their allowed nodes, but not all.

    >>> from pairton.topology import load_topology
    >>> tttt = load_topology("tttt_allhad")
    >>> [count_sums(tttt, allowed_nodes(tttt, n)) for n in (12, 14)]
    [108251, 753935]
    """
    plan = plan_of(topology, complete_only)
    contents: list[Counter[tuple[int, ...]]] = []  # per factor: number of objects by allowed nodes
    total = 0
    for spec in plan.specs:
        if spec.form:
            form = topology.forms[spec.form]
            span = topology.of_type(form.type)[0].span
            filled = {span[k] for k in form.filled}
            contents.append(Counter(allowed[slot] for slot in filled))
            alike = [  # numbers of interchangeable products in the same form
                Counter(tuple(slot in filled for slot in slots) for slots in group if filled & {*slots})
                for group in topology.sibling_groups
                if {slot for slots in group for slot in slots} <= {*span}
            ]
            orders = prod(factorial(count) for counts in alike for count in counts.values())
            total += prod(perm(len(nodes), count) for nodes, count in contents[-1].items()) // orders
        else:
            left, right = (contents[plan.number(side)] for side in (spec.left, spec.right))
            contents.append(left + right)
            pairs = (comb(len(n), left[n]) * comb(max(len(n) - left[n], 0), right[n]) for n in contents[-1])
            total += prod(pairs) // spec.degree
    return total


# -- settings of the exact decoding -------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Which answer is wanted, and under which prior.

    answer         a name in `ANSWERS`
    allow_absent   whether the answer may leave out particles that are more likely absent than present
    prior          factors on the prior probabilities of patterns, by the pattern's `key`; `complete` stands for
                   the complete pattern, `incomplete` for all others, the name of a topology in a mixture for all
                   patterns of that topology; if several factors apply to one pattern, they multiply
    best           how many hypotheses to list, the most probable first

    >>> from pairton.topology import load_topology
    >>> question = Question(prior={"nothing": 5, "incomplete": 2})
    >>> np.exp(question.log_prior(load_topology("hh4b"))).round().tolist()  # H + H, H, nothing
    [1.0, 2.0, 10.0]
    """

    answer: str = "event"
    allow_absent: bool = False
    prior: Mapping[str, float] = field(default_factory=dict)
    best: int = 0

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            known = ", ".join(ANSWERS)
            raise ConfigError(
                f"no answer {shown(self.answer)}: choose one of {known}{nearest(str(self.answer), ANSWERS)}"
            )
        if not 0 <= self.best <= MOST_LISTED:
            raise ConfigError(f"best is {self.best}, but must be from 0 to {MOST_LISTED}")
        for name, factor in self.prior.items():
            try:
                allowed = 0 <= float(factor) < inf
            except (TypeError, ValueError):
                allowed = False
            if not allowed:
                raise ConfigError(
                    f"the prior of {shown(name)} is {shown(factor)}: give a factor of 0 or more, 1 for no change"
                )

    @property
    def is_default(self) -> bool:
        return self == Question()

    def log_prior(self, topology: Topology) -> npt.NDArray[np.float64]:
        """(patterns,): the logarithm of each pattern's factor; -inf where the pattern is excluded."""
        patterns = plan_of(topology).patterns
        keys = [pattern.key for pattern in patterns]
        groups = {COMPLETE: [p.key for p in patterns if p.complete]}
        groups[INCOMPLETE] = [p.key for p in patterns if not p.complete]
        if topology.alternatives:
            for number, part in enumerate(parts_of(topology)):
                groups[part.topology.name] = [p.key for p in patterns if p.part == number]
        groups |= {key: [key] for key in keys}
        factors = np.ones(len(keys))
        for name, factor in self.prior.items():
            if name not in groups:
                raise ConfigError(
                    f"no pattern {shown(name)} of {topology.name}: choose from {', '.join([*groups][2:])}, "
                    f"{COMPLETE}, {INCOMPLETE}{nearest(str(name), groups)}"
                )
            factors[[keys.index(key) for key in groups[name]]] *= float(factor)
        if not factors.any():
            raise ConfigError("the prior excludes every pattern: give a factor above 0 to one of them")
        with np.errstate(divide="ignore"):
            return np.log(factors)

    def needs(self, topology: Topology) -> tuple[tuple[int, ...], ...]:
        """How many objects of each kind each pattern needs; patterns excluded by the prior are left out.

        >>> from pairton.topology import load_topology
        >>> Question(prior={"nothing": 0}).needs(load_topology("hh4b"))
        ((4,), (2,))
        """
        patterns = zip(plan_of(topology).patterns, self.log_prior(topology), strict=True)
        return tuple(pattern.needs(topology) for pattern, log_prior in patterns if np.isfinite(log_prior))
