"""Saves the state of a training, to resume from: one safetensors file with a JSON text in its header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from pairton._common.atomic import replacing
from pairton.errors import OutputError, TrainingError

__all__ = ["STATE", "load_state", "read_progress", "save_state"]

STATE = "state.safetensors"


def save_state(
    path: Path, network: nn.Module, averaged: nn.Module | None, optimiser: torch.optim.Optimizer, progress: Any
) -> None:
    """Save weights, averaged weights, moments of the optimiser, and `progress` (plain data)."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    if averaged is not None:
        tensors |= {f"averaged.{name}": value for name, value in averaged.state_dict().items()}
    for name, parameter in network.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser.{name}.{key}"] = value
    # safetensors refuses tensors that are views or share memory
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(save(tensors, metadata={"progress": json.dumps(progress)}))
    except (OutputError, SafetensorError) as error:
        kept = "the last complete state is kept" if path.exists() else "there is no earlier state"
        raise OutputError(f"{error}; {kept}: free space, then use --resume") from error


def read_progress(path: Path) -> dict[str, Any]:
    """Return the `progress` in a saved state."""
    try:
        with safe_open(path, framework="pt") as file:
            progress = json.loads(file.metadata()["progress"])
        if not isinstance(progress, dict):
            raise TypeError("not a mapping")
    except (OSError, SafetensorError, TypeError, KeyError, ValueError, RecursionError) as error:
        raise TrainingError(
            f"{path}: no state to resume from ({' '.join(str(error).split())[:120]}): start without --resume"
        ) from None
    return progress


def load_state(
    path: Path, network: nn.Module, averaged: nn.Module | None, optimiser: torch.optim.Optimizer
) -> dict[str, Any]:
    """Restore a saved state, and return its `progress`."""
    progress = read_progress(path)
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        tensors = {name: file.get_tensor(name) for name in names}
    try:
        network.load_state_dict(_part(tensors, "network."))
        if averaged is not None:
            averaged.load_state_dict(_part(tensors, "averaged."))
    except RuntimeError:
        raise TrainingError(
            f"{path}: the state is of another network: resume with the recipe it was started with"
        ) from None
    moments = _part(tensors, "optimiser.")
    for name, parameter in network.named_parameters():
        own = {key.rpartition(".")[2]: value for key, value in moments.items() if key.rpartition(".")[0] == name}
        if own:
            optimiser.state[parameter] = {
                key: value if key == "step" else value.to(parameter.device) for key, value in own.items()
            }
    return progress


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
