"""Initial weights of a network from a trained one, for the same decay tree or one that shares some particles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from pairton.decoding.terms import triplet_types
from pairton.decoding.views import PRESENCE, presence_names, presence_terms
from pairton.errors import TrainingError
from pairton.network.heads import EdgeHead

if TYPE_CHECKING:
    from torch import Tensor

    from pairton.network.network import Network
    from pairton.topology import Topology

__all__ = ["check_same_network", "transferred"]

MAY_DIFFER = ("dropout", "patterns")
OF_THE_TREE = ("triplets", "heads")  # settings that may depend on the decay tree
# names of weights that exist once per type; other numbers, as in `single.1`, are layers
NUMBERED = re.compile(r"(heads\.(edges|triplets)\.(?:layers|sides|outs|objects|mix|score))\.(\d+)\.(.+)")


def check_same_network(trained: Network, new: Network, name: str) -> None:
    """Raise TrainingError unless the blocks of two networks have the same settings and inputs.

    trained: the network to start from, called `name` in the message; new: the network of the recipe. If their
    decay trees differ, only the inputs of objects that both have are compared.
    """
    same = trained.topology.types == new.topology.types
    left_out = MAY_DIFFER if same else MAY_DIFFER + OF_THE_TREE
    settings = [{k: v for k, v in n.config.to_dict().items() if k not in left_out} for n in (trained, new)]
    kinds = [kind for kind in new.topology.kinds if kind in trained.topology.kinds]
    for network, listed in zip((trained, new), settings, strict=True):
        listed["inputs"] = {kind: network.inputs.to_dict().get(kind) for kind in kinds}
    different = [key for key in settings[1] if settings[0][key] != settings[1][key]]
    if different:
        found = ", ".join(f"{key} {settings[0][key]} (recipe: {settings[1][key]})" for key in different)
        raise TrainingError(f"{name} is another network than the recipe's: it has {found}")


def transferred(trained: Network, new: Network) -> dict[str, Tensor]:
    """Return the weights that `new` starts from: those of `trained` if they have the same meaning, else its own.

    Weights of blocks and of the embeddings of objects are matched by name. Those of the outputs of a type are
    taken if the type has the same decay in both trees. Scores of patterns start from scores of what is present.
    Weights of another shape, such as those of patterns of another tree, stay new.
    """
    weights: dict[str, Tensor] = dict(new.state_dict())
    trees = trained.topology, new.topology
    numbers = {
        "edges": _positions(_with_edges(trained), _with_edges(new), trees),
        "triplets": _positions(list(triplet_types(trees[0])), list(triplet_types(trees[1])), trees),
    }
    for name, value in trained.state_dict().items():
        target = _renumbered(name, numbers)
        if target in weights and weights[target].shape == value.shape and _same_meaning(target, trained, new):
            weights[target] = value
    return weights | _of_presence(trained, new)


def _of_presence(trained: Network, new: Network) -> dict[str, Tensor]:
    """Weights of the scores of patterns, or of what is present, if the trained network scores what is present."""
    target = next((name for name in (PRESENCE, "patterns") if name in new.heads), "")
    if PRESENCE not in trained.heads or not target:
        return {}
    if target == PRESENCE:
        names = presence_names(trained.topology)
        rows = [[float(name == own) for name in names] for own in presence_names(new.topology)]
        change = torch.tensor(rows)
    else:
        change = torch.from_numpy(presence_terms(trained.topology, new.topology).T)
    old, weights = trained.heads[PRESENCE].state_dict(), {}
    for part in ("weight", "bias"):
        weights[f"heads.{target}.layers.0.{part}"] = old[f"layers.0.{part}"]
        weights[f"heads.{target}.layers.2.{part}"] = change @ old[f"layers.2.{part}"]
    return weights


def _same_meaning(name: str, trained: Network, new: Network) -> bool:
    """Whether the types, kinds or patterns that a weight is indexed by are the same in both networks."""
    if name.startswith(("heads.patterns.layers.2.", "embed_tokens.")):
        return trained.topology.decays == new.topology.decays and trained.topology.event == new.topology.event
    if name.startswith("kinds_to_pairs."):
        return trained.topology.kinds == new.topology.kinds
    return True


def _with_edges(network: Network) -> list[str]:
    head = network.heads["edges"]
    assert isinstance(head, EdgeHead)
    return [name for name, has_edges in zip(network.topology.types, head.types, strict=True) if has_edges]


def _positions(
    old_types: Sequence[str], new_types: Sequence[str], trees: tuple[Topology, Topology]
) -> dict[int, int]:
    """Number of a type in one network -> its number in the other, for types with the same decay in both trees."""
    old, new = (dict(tree.decays) for tree in trees)
    return {
        k: new_types.index(name)
        for k, name in enumerate(old_types)
        if name in new_types and old.get(name) == new.get(name)
    }


def _renumbered(name: str, numbers: Mapping[str, Mapping[int, int]]) -> str:
    """The name of the same weight in the other network; empty if it has none."""
    if (found := NUMBERED.fullmatch(name)) is None:
        return name
    number = numbers[found[2]].get(int(found[3]))
    return "" if number is None else f"{found[1]}.{number}.{found[4]}"
