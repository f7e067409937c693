"""From generators of a symmetry group to a tree of interchangeable elements.

SPANet's event files give the symmetries of an event as permutations that generate a group. Pairton derives them
from a tree instead: the members of a class may be exchanged, and each member is one element, another class, or a
bundle of elements that move together. `arrange` finds the tree whose symmetry group the permutations generate, or
raises an error if there is none.

    [[q1, q2]]              q1 and q2 are a class
    [[[a, b], [c, d]]]      a and b are exchanged only together with c and d: a class of the bundles (a, c), (b, d)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import factorial, prod

from pairton.errors import TopologyError

__all__ = ["MOST_ELEMENTS", "Bundle", "Class", "Node", "Permutation", "arrange", "closure", "leaves", "order_of"]

MOST_ELEMENTS = 50_000  # permutations in a group; eight interchangeable particles have 40,320

Permutation = tuple[int, ...]  # where each element goes


@dataclass(frozen=True)
class Class:
    """Members that may be exchanged. The first leaf of one corresponds to the first of another, and so on."""

    members: tuple[Node, ...]


@dataclass(frozen=True)
class Bundle:
    """Different elements that move together."""

    parts: tuple[Node, ...]


Node = int | Class | Bundle


def leaves(node: Node) -> tuple[int, ...]:
    """The elements in a node, in order.

    >>> leaves(Class((Bundle((0, 2)), Bundle((1, 3)))))
    (0, 2, 1, 3)
    """
    if isinstance(node, int):
        return (node,)
    inner = node.members if isinstance(node, Class) else node.parts
    return tuple(leaf for part in inner for leaf in leaves(part))


def order_of(node: Node) -> int:
    """Number of permutations in the symmetry group of a node.

    >>> order_of(Class((Class((0, 1)), Class((2, 3)))))  # two pairs: each in two orders, and the pairs exchanged
    8
    """
    if isinstance(node, int):
        return 1
    if isinstance(node, Bundle):
        return prod(map(order_of, node.parts))
    return factorial(len(node.members)) * prod(map(order_of, node.members))


def closure(generators: Iterable[Permutation], size: int, source: str = "permutations") -> set[Permutation]:
    """The group that permutations of `size` elements generate; `source` is named in errors.

    >>> len(closure([(1, 0, 2), (0, 2, 1)], 3))
    6
    """
    moves = list(generators)
    identity = tuple(range(size))
    group, new = {identity}, [identity]
    while new:
        found = {tuple(move[k] for k in element) for element in new for move in moves} - group
        group |= found
        new = list(found)
        if len(group) > MOST_ELEMENTS:
            raise TopologyError(
                f"{source} generates more than {MOST_ELEMENTS} permutations, which is the limit: list fewer"
            )
    return group


def arrange(generators: Iterable[Permutation], size: int, source: str = "permutations") -> tuple[Node, ...]:
    """The top nodes of the tree of `size` elements whose symmetry group the generators generate.

    Nodes are in the order of their smallest elements; `source` is named in errors. Raises TopologyError if no tree
    has this group, for example for a cyclic exchange of three elements.

    >>> arrange([(1, 0, 2)], 3)
    (Class(members=(0, 1)), 2)
    >>> arrange([(1, 0, 3, 2)], 4)
    (Class(members=(Bundle(parts=(0, 2)), Bundle(parts=(1, 3)))),)
    """
    group = closure(generators, size, source)
    nodes: list[Node] = list(range(size))
    while True:
        actions = {action for element in group if (action := _action(element, nodes)) != tuple(range(len(nodes)))}
        if not actions:
            break
        fewest = min(sum(k != to for k, to in enumerate(action)) for action in actions)
        smallest = [a for a in actions if sum(k != to for k, to in enumerate(a)) == fewest]
        joined = _classes(smallest, nodes, group) if fewest == 2 else _bundles(smallest, nodes, actions)
        if joined is None:
            raise _no_tree(source)
        nodes = joined
    result = tuple(sorted(nodes, key=lambda node: min(leaves(node))))
    if prod(map(order_of, result)) != len(group):
        raise _no_tree(source)
    return result


def _no_tree(source: str) -> TopologyError:
    return TopologyError(
        f"{source}: these permutations are not the symmetries of a decay tree: list particles that may be "
        "exchanged, [[t1, t2]], or pairs that are exchanged together, [[[t1, t2], [h1, h2]]]; a cyclic exchange "
        "of three, for example, is not possible"
    )


def _action(element: Permutation, nodes: Sequence[Node]) -> Permutation:
    """Where a permutation takes each node."""
    of_leaf = {leaf: k for k, node in enumerate(nodes) for leaf in leaves(node)}
    return tuple(of_leaf[element[leaves(node)[0]]] for node in nodes)


def _moved(node: Node, element: Permutation) -> Node:
    """The node with every leaf replaced by the one it is moved to."""
    if isinstance(node, int):
        return element[node]
    if isinstance(node, Class):
        return Class(tuple(_moved(member, element) for member in node.members))
    return Bundle(tuple(_moved(part, element) for part in node.parts))


def _classes(swaps: Sequence[Permutation], nodes: Sequence[Node], group: set[Permutation]) -> list[Node]:
    """Join nodes that are exchanged in pairs to classes."""
    together = {k: {k} for k in range(len(nodes))}
    for swap in swaps:
        one, two = (k for k, to in enumerate(swap) if k != to)
        if two not in together[one]:
            merged = together[one] | together[two]
            together |= dict.fromkeys(merged, merged)
    joined: list[Node] = []
    for k, node in enumerate(nodes):
        if k != min(together[k]):
            continue
        if len(together[k]) == 1:
            joined.append(node)
            continue
        members = [node]  # the others are images of the first, so that their leaves correspond
        for other in sorted(together[k] - {k}):
            goal = frozenset(leaves(nodes[other]))
            element = min(g for g in group if frozenset(g[leaf] for leaf in leaves(node)) == goal)
            members.append(_moved(node, element))
        joined.append(Class(tuple(members)))
    return joined


def _bundles(
    smallest: Sequence[Permutation], nodes: Sequence[Node], actions: set[Permutation]
) -> list[Node] | None:
    """Join nodes that move together to bundles; None if that is not possible."""
    for action in sorted(smallest):
        pairs = [(k, to) for k, to in enumerate(action) if k < to]
        if any(action[to] != k for k, to in pairs) or 2 * len(pairs) != sum(
            k != to for k, to in enumerate(action)
        ):
            continue  # a cycle of three or more
        for turned in product((False, True), repeat=len(pairs) - 1):
            one = tuple(pair[turn] for pair, turn in zip(pairs, (False, *turned), strict=True))
            images = {one} | {tuple(other[k] for k in one) for other in actions}
            sets = {frozenset(image) for image in images}
            if all(a == b or not a & b for a, b in combinations(sets, 2)):
                chosen = {frozenset(image): image for image in sorted(images, reverse=True)}
                inside = frozenset[int]().union(*sets)
                rest = [node for k, node in enumerate(nodes) if k not in inside]
                return rest + [Bundle(tuple(nodes[k] for k in image)) for image in sorted(chosen.values())]
    return None
