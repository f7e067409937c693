"""Loads networks from model folders, and runs them with torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load

from pairton._common.configuration import configure
from pairton.decoding import Outputs
from pairton.errors import ConfigError, ModelError, PairtonError
from pairton.events.nodes import Nodes
from pairton.models.storage import INFO, WEIGHTS, ModelInfo, find_model, read_info, read_weights
from pairton.network.config import NetworkConfig
from pairton.network.network import Network, TreeNetwork

__all__ = ["TorchEngine", "load_network", "predictor"]


def load_network(model: str | Path) -> tuple[Network, ModelInfo]:
    """Load a network in evaluation mode, and the information stored with it."""
    folder = find_model(model)
    info = read_info(folder)
    config = configure(NetworkConfig, info.network, f"{folder / INFO}: network")
    payload = read_weights(folder)
    try:
        weights = load(payload)
        with torch.device("meta"):  # checks the weights first without allocating what the config asks for
            Network(info.topology, config, info.inputs, info.heads).load_state_dict(weights, assign=True)
        network = Network(info.topology, config, info.inputs, info.heads)
        network.load_state_dict(weights)
    except PairtonError:
        raise
    except Exception as error:  # safetensors and torch raise exceptions of their own
        reason = " ".join(str(error).split())
        raise ModelError(f"{folder / WEIGHTS}: the weights do not fit the network ({reason[:200]})") from None
    return network.eval(), info


def predictor(network: Network | TreeNetwork) -> Callable[[Nodes, npt.NDArray[np.uint8] | None], Outputs]:
    """Wrap a network as a function of numpy arrays, as decodings call it."""

    @torch.inference_mode()
    def predict(nodes: Nodes, tokens: npt.NDArray[np.uint8] | None = None) -> Outputs:
        device = next(network.parameters()).device

        def tensor(array: npt.NDArray[Any]) -> torch.Tensor:
            return torch.as_tensor(np.ascontiguousarray(array), device=device)

        outputs = network(
            {kind: tensor(values) for kind, values in nodes.values.items()},
            None if nodes.mask.all() else {kind: tensor(mask) for kind, mask in nodes.masks.items()},
            tensor(tokens) if tokens is not None and network.config.tokens else None,
        )
        return {name: output.float().cpu().numpy() for name, output in outputs.items()}

    return predict


@dataclass(frozen=True)
class TorchEngine:
    """Runs the network of a model folder with torch."""

    path: Path
    threads: int | None = None  # None: torch's own setting
    device: str = "cpu"
    at_once = 1  # batches at a time; torch uses several threads by itself
    library: ClassVar[str] = "torch"

    @cached_property
    def network(self) -> Network:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            return load_network(self.path)[0].to(self.device)
        except (RuntimeError, AssertionError) as error:  # as torch says that it has no such device
            raise ConfigError(
                f"torch cannot use the device {self.device!r} ({str(error).splitlines()[0]})"
            ) from None

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8] | None) -> Outputs:
        return predictor(self.network)(nodes, tokens)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "threads": self.threads, "device": self.device}
