"""Weights of a trained network for a new one, of the same decay tree or of another that shares some particles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pairton.decoding.terms import triplet_types
from pairton.errors import TrainingError
from pairton.network.heads import EdgeHead

if TYPE_CHECKING:
    from torch import Tensor

    from pairton.network.network import Network
    from pairton.topology import Topology

__all__ = ["check_same_network", "transferred"]

MAY_DIFFER = ("dropout",)
OF_THE_TREE = ("triplets", "patterns", "heads")  # settings that may follow from the decay tree
NUMBERED = re.compile(r"(heads\.(edges|triplets)\.\w+)\.(\d+)\.(.+)")  # parts that exist once per type


def check_same_network(theirs: Network, mine: Network, name: str) -> None:
    """Raise TrainingError unless the blocks of two networks have the same settings and inputs.

    theirs: the network to start from, called `name` in the message; mine: the network of the recipe. Where the
    decay trees differ, only the inputs of objects that both have are compared.
    """
    same = theirs.topology.types == mine.topology.types
    left_out = MAY_DIFFER if same else MAY_DIFFER + OF_THE_TREE
    settings = [{k: v for k, v in n.config.to_dict().items() if k not in left_out} for n in (theirs, mine)]
    kinds = [kind for kind in mine.topology.kinds if kind in theirs.topology.kinds]
    for network, listed in zip((theirs, mine), settings, strict=True):
        listed["inputs"] = {kind: network.inputs.to_dict().get(kind) for kind in kinds}
    different = [key for key in settings[1] if settings[0][key] != settings[1][key]]
    if different:
        found = ", ".join(f"{key} {settings[0][key]} (recipe: {settings[1][key]})" for key in different)
        raise TrainingError(f"{name} is another network than the recipe's: it has {found}")


def transferred(theirs: Network, mine: Network) -> dict[str, Tensor]:
    """The weights with which `mine` starts: those of `theirs` where they mean the same, else its own.

    Blocks and the embeddings of objects are taken by name, the outputs of a type where both trees have it with the
    same decay. Parts of another shape, such as the patterns of another tree, start from new weights.
    """
    own: dict[str, Tensor] = dict(mine.state_dict())
    trees = theirs.topology, mine.topology
    numbers = {
        "edges": _positions(_with_edges(theirs), _with_edges(mine), trees),
        "triplets": _positions(list(triplet_types(trees[0])), list(triplet_types(trees[1])), trees),
    }
    for name, value in theirs.state_dict().items():
        target = _renumbered(name, numbers)
        if target in own and own[target].shape == value.shape and _means_the_same(target, theirs, mine):
            own[target] = value
    return own


def _means_the_same(name: str, theirs: Network, mine: Network) -> bool:
    """Whether a part that is counted by types, kinds or patterns counts the same ones in both networks."""
    if name.startswith(("heads.patterns.layers.2.", "embed_tokens.")):
        return theirs.topology.decays == mine.topology.decays and theirs.topology.event == mine.topology.event
    if name.startswith("kinds_to_pairs."):
        return theirs.topology.kinds == mine.topology.kinds
    return True


def _with_edges(network: Network) -> list[str]:
    head = network.heads["edges"]
    assert isinstance(head, EdgeHead)
    return [name for name, has_edges in zip(network.topology.types, head.types, strict=True) if has_edges]


def _positions(theirs: Sequence[str], mine: Sequence[str], trees: tuple[Topology, Topology]) -> dict[int, int]:
    """Number of a type in one network -> its number in the other, for types with the same decay in both trees."""
    old, new = (dict(tree.decays) for tree in trees)
    return {
        k: mine.index(name) for k, name in enumerate(theirs) if name in mine and old.get(name) == new.get(name)
    }


def _renumbered(name: str, numbers: Mapping[str, Mapping[int, int]]) -> str:
    """The name of the same part in the other network; empty where it has no such part."""
    if (found := NUMBERED.fullmatch(name)) is None:
        return name
    number = numbers[found[2]].get(int(found[3]))
    return "" if number is None else f"{found[1]}.{number}.{found[4]}"
