"""What the outputs of a network for a vocabulary say about one topology, its own or one it never saw.

Edges and triplets belong to types, so those of the topology's types are taken. The score of a pattern is a sum
over what is present: for each type, from the numbers n of present and m of absent particles,

    a n + b [n > 0] + c m + d [m > 0]  (and one more for each that is merged into one object),

and for each kind, from the number k of objects that the pattern uses, e k / 4 + f (k / 4)^2. The network has the
coefficients for each event as its output `presence`. All terms are linear in n and m beyond 1, so that they extend
to more particles than there were in the training.

Shapes: B events, F coefficients, P patterns of the topology.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import Pattern, plan_of
from pairton.decoding.terms import Outputs, triplet_types
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.topology import Layout, Topology
from pairton.topology.assignments import MERGED, states
from pairton.topology.vocabulary import parts_of

__all__ = ["PRESENCE", "View", "presence_names", "presence_terms", "view_of"]

PRESENCE, PATTERNS = "presence", "patterns"  # outputs
Predict = Callable[[Nodes, Any], Outputs]
OBJECTS = 4.0  # unit of numbers of objects
OF_TYPE, OF_KIND = ("present", "some present", "absent", "some absent"), ("used", "used squared")


def presence_names(known: Topology) -> list[str]:
    """(F,): the names of the coefficients of a vocabulary.

    >>> from pairton.topology import load_topology
    >>> presence_names(load_topology("hh4b"))
    ['H present', 'H some present', 'H absent', 'H some absent', 'jet used', 'jet used squared']
    """
    of_types = [f"{name} {term}" for name in known.types for term in OF_TYPE]
    of_types += [f"{name} merged" for name, _ in known.merged]
    return of_types + [f"{kind} {term}" for kind in known.object_kinds for term in OF_KIND]


def presence_terms(known: Topology, tree: Topology) -> npt.NDArray[np.float32]:
    """(F, P): what multiplies each coefficient in the score of each pattern of a topology.

    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> presence_terms(hh4b, hh4b).T.tolist()  # H + H, H, nothing
    [[2.0, 1.0, 0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 0.5, 0.25], [0.0, 0.0, 2.0, 1.0, 0.0, 0.0]]
    """
    columns = []
    for pattern in plan_of(tree).patterns:
        whole = Counter(particle.type for particle in parts_of(tree)[pattern.part].topology.particles)
        there, merged, inside = _present(tree, pattern)
        used = dict(zip(tree.kinds, pattern.needs(tree), strict=True))
        terms: list[float] = []
        for name in known.types:
            present, absent = there[name], whole[name] - there[name] - inside[name]
            terms += [present, present > 0, absent, absent > 0]
        terms += [merged[name] for name, _ in known.merged]
        for kind in known.object_kinds:
            share = used.get(kind, 0) / OBJECTS
            terms += [share, share * share]
        columns.append(terms)
    return np.array(columns, dtype=np.float32).T


def _present(tree: Topology, pattern: Pattern) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """How many particles of each type a pattern has, how many are merged, and how many merged ones hold."""
    filled = np.full((1, len(tree.slots)), -1)
    filled[:, pattern.filled(tree)] = 0
    state = states(tree, filled)[0]
    held = [p for p in tree.particles if any(state[k] == MERGED for k in list(tree.ancestry(p.index))[1:])]
    merged = Counter(p.type for p in tree.particles if state[p.index] == MERGED)
    return Counter(p.type for p in tree.particles if state[p.index]), merged, Counter(p.type for p in held)


class View:
    """The outputs for one topology, from those of a network for a vocabulary; arrays of numpy or torch."""

    def __init__(self, known: Topology, tree: Topology) -> None:
        self.known, self.tree = known, tree
        triplets = list(triplet_types(known))
        self.types = [known.type_index(name) for name in tree.types]
        self.triplets = [triplets.index(name) for name in triplet_types(tree)]
        self.kinds = [kind for kind in known.kinds if kind in tree.kinds]  # in the order of the network

    @cached_property
    def terms(self) -> npt.NDArray[np.float32]:
        return presence_terms(self.known, self.tree)

    def axes(self, outputs: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """The axes of the outputs of `outputs`, from those of the network's."""
        found = {name: axes for name, axes in outputs.items() if name != "triplets" or self.triplets}
        if found.pop(PRESENCE, None):
            found[PATTERNS] = ("pattern",)
        return found

    def around(self, predict: Predict) -> Predict:
        """A function from nodes of the topology to its outputs, from that of the network."""

        def answer(nodes: Nodes, tokens: Any = None) -> Outputs:
            return self.outputs(predict(nodes, tokens), self.order(nodes.layout))

        return answer

    def nodes(self, nodes: Nodes, inputs: Inputs) -> Nodes:
        """The input of a graph, which takes all kinds of the network: those that the topology lacks are empty."""
        n = len(nodes)
        values, masks = {}, {}
        for kind in self.known.kinds:
            none = np.zeros((n, 0, len(inputs.columns(kind))), dtype=np.float32)
            values[kind] = nodes.values.get(kind, none)
            masks[kind] = nodes.masks.get(kind, np.zeros((n, 0), dtype=bool))
        return Nodes(values, masks, nodes.rows)

    def outputs(self, outputs: Any, order: Any = None) -> dict[str, Any]:
        """Outputs by name, for the topology's types and nodes, in its order; `presence` gives patterns."""
        found = dict(outputs)
        for name, own, every in (
            ("edges", self.types, len(self.known.types)),
            ("triplets", self.triplets, len(triplet_types(self.known))),
        ):
            if name not in found:
                continue
            if not own:
                del found[name]
                continue
            if own != list(range(every)):
                found[name] = found[name][:, own]
            if order is not None:
                for axis in range(2, found[name].ndim):
                    found[name] = found[name][(slice(None),) * axis + (order,)]
        if PRESENCE in found:
            presence = found.pop(PRESENCE)
            numpy = isinstance(presence, np.ndarray)
            found[PATTERNS] = presence @ (self.terms if numpy else presence.new_tensor(self.terms))
        return found

    def order(self, layout: Layout) -> list[int] | None:
        """The place in the network's output of each node of the topology; None if the order is the same."""
        if self.kinds == list(self.tree.kinds):
            return None
        counts = dict(zip(self.tree.kinds, layout, strict=True))
        starts = dict(
            zip(self.kinds, np.cumsum([0, *(counts[kind] for kind in self.kinds)]).tolist(), strict=False)
        )
        return [starts[kind] + k for kind in self.tree.kinds for k in range(counts[kind])]


@lru_cache(maxsize=64)
def view_of(known: Topology, tree: Topology) -> View:
    """The view of a vocabulary on a topology; made once and cached."""
    return View(known, tree)
