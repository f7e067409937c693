"""Conversion of models from format version 1, written by Pairton 0.1: only jets with a b-tag, unnamed outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pairton.errors import ModelError

__all__ = ["upgrade_info", "upgrade_weights"]

Tensor = TypeVar("Tensor")

# prefixes of the names of weights: old -> new
RENAMED = {
    "embed_jets.": "embed.jet.",
    "jets_to_pairs.": "nodes_to_pairs.",
    "edge_head.": "heads.edges.",
    "potential.": "heads.triplets.",
    "hyperedge.": "heads.triplets.",
}


def upgrade_info(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The content of a model.json of version 1, in version 2."""
    if raw.get("decoding") == "exact_steps":
        raise ModelError(
            f"{source}: made for the decoding exact_steps, which no longer exists: train the model again"
        )
    new = dict(raw)
    new["domain"] = _domain(raw["domain"])
    new["network"] = _network(raw["network"])
    new["inputs"] = {"jet": ["btag"]}
    new["outputs"] = {"edges": ["type", "node", "node"]}
    if raw["network"].get("triplets", "none") != "none":
        new["outputs"]["triplets"] = ["triplet_type", "node", "node", "node"]
    if isinstance(raw.get("recipe"), Mapping) and isinstance(raw["recipe"].get("network"), Mapping):
        new["recipe"] = {**raw["recipe"], "network": _network(raw["recipe"]["network"])}
    new["format_version"] = 2
    return new


def upgrade_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of version 1 under their names in version 2."""
    result = {}
    for name, value in weights.items():
        old = next((start for start in RENAMED if name.startswith(start)), "")
        result[RENAMED.get(old, "") + name.removeprefix(old)] = value
    return result


def _network(raw: Mapping[str, Any]) -> dict[str, Any]:
    named = {"architecture" if name == "kind" else name: value for name, value in raw.items()}
    return {**named, "triplets": "object_sum"} if named.get("triplets") == "hyperedge" else named


def _domain(raw: Mapping[str, Any]) -> dict[str, Any]:
    binary = ["btag"] if raw["btag"] == "binary" else []
    shared = {name: raw[name] for name in ("pt", "abs_eta", "radius")}
    return {"jet": {**shared, "count": raw["jets"], "binary": binary}}
