"""The fast network without a runtime: numpy's matrix products, and loops compiled for this processor by numba."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton.checkpoints import read_weights
from pairton.errors import MissingExtraError, ModelError
from pairton.topology import parse_topology

if TYPE_CHECKING:
    from pairton.compiled.network import CompiledNetwork

__all__ = ["CompiledNetwork", "check_supported", "load_network"]

FORM = {
    "kind": "symmetric",
    "single_stream": False,
    "triangle_multiplication": True,
    "triangle_attention": False,
    "edges_from": "pair",
}


def check_supported(config: Mapping[str, Any], source: str) -> None:
    """Only the network that is fast, and only with the packages for it: one line for all else."""
    for name, value in FORM.items():
        if config.get(name) != value:
            raise ModelError(
                f"{source}: its network has {name}: {config.get(name)}, but the engine compiled needs {value}: "
                "use the engine onnx"
            )
    for module in ("numba", "threadpoolctl"):
        if find_spec(module) is None:
            raise MissingExtraError("fast", module)


def load_network(folder: Path) -> CompiledNetwork:
    """The network of a model's folder."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    from pairton.compiled.network import CompiledNetwork

    info = json.loads((folder / "model.json").read_text("utf-8"))
    try:
        weights = load(read_weights(folder))
        return CompiledNetwork(weights, info["network"], parse_topology(info["topology"], str(folder)))
    except (OSError, SafetensorError, KeyError) as error:
        raise ModelError(f"{folder}: its weights cannot be used ({error}): copy the model again") from None
