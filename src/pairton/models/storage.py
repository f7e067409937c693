"""Models on disk: weights as safetensors, everything else as one JSON beside them. Loading never unpickles.

model.safetensors    the weights
model.json           network, topology, input domain, data fingerprint, code version, metrics, format_version
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import replacing
from pairton._common.configuration import configure, read_json, sensible
from pairton._version import __version__
from pairton.errors import MissingExtraError, ModelError, PairtonError, PairtonWarning, nearest, shown
from pairton.events.domain import Domain
from pairton.topology import Topology, parse_topology

if TYPE_CHECKING:
    from pairton.network import Network

__all__ = [
    "FORMAT_VERSION",
    "ModelInfo",
    "builtin_model",
    "builtin_models",
    "check_version",
    "find_model",
    "load_model",
    "read_info",
    "read_weights",
    "save_model",
]

FORMAT_VERSION = 1
WEIGHTS, INFO = "model.safetensors", "model.json"


@dataclass(frozen=True)
class ModelInfo:
    """All about a model but its weights."""

    topology: Topology
    network: Mapping[str, Any]  # settings of `pairton.network.NetworkConfig`
    domain: Domain
    data: Mapping[str, Any] = field(default_factory=dict)  # fingerprint and counts of the training events
    metrics: Mapping[str, float] = field(default_factory=dict)  # on validation events
    recipe: Mapping[str, Any] = field(default_factory=dict)
    decoding: str = "exact"  # exact, exact_steps, steps or one_shot: what it was trained for
    temperatures: tuple[float, ...] = ()  # of that decoding; none: 1
    code_version: str = __version__
    format_version: int = FORMAT_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no NaN."""
        raw = {item.name: getattr(self, item.name) for item in fields(self)}
        raw["topology"] = self.topology.to_dict()
        raw["domain"] = self.domain.to_dict()
        raw["metrics"] = {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}
        return raw


def builtin_models() -> dict[str, Path]:
    """The models that come with Pairton: name -> folder."""
    folder = Path(str(resources.files("pairton.models")))
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return {entry.name: entry for entry in entries if (entry / INFO).is_file()}


def builtin_model(name: str | Path) -> Path | None:
    """The folder of a model that comes with Pairton, if that is its name; a folder of that name is `./NAME`."""
    found = builtin_models().get(str(name))
    if found is not None and (Path(name) / INFO).is_file():
        warnings.warn(
            f"{name} is a model that comes with Pairton, and a folder here: the former is taken; write ./{name} "
            "for the latter",
            PairtonWarning,
            stacklevel=2,
        )
    return found


def find_model(model: str | Path) -> Path:
    """The folder of a model: one that comes with Pairton, a folder, or one of the two files in it."""
    if (built_in := builtin_model(model)) is not None:
        return built_in
    path = Path(model)
    if path.suffix in (".safetensors", ".json") and path.is_file():
        path = path.parent
    if (path / INFO).is_file():
        return path
    names = builtin_models()
    raise ModelError(
        f"{model}: no model is there: give a folder with {WEIGHTS} and {INFO}, or one of "
        f"{', '.join(names) or 'the models that come with Pairton (none here)'}{nearest(str(model), names)}"
    )


def save_model(folder: str | Path, weights: Mapping[str, npt.NDArray[Any]], info: ModelInfo) -> None:
    """Write both files; each appears when complete, and the JSON names the weights it belongs to."""
    from safetensors.numpy import save

    folder = Path(folder)
    payload = save({name: np.ascontiguousarray(array) for name, array in weights.items()})
    raw = {**info.to_dict(), "weights_sha256": hashlib.sha256(payload).hexdigest()}
    with replacing(folder / WEIGHTS) as first, replacing(folder / INFO) as second:
        first.write_bytes(payload)
        second.write_text(json.dumps(raw, indent=1) + "\n")


def read_info(model: str | Path) -> ModelInfo:
    """All about a model but its weights; needs no torch."""
    path = find_model(model) / INFO
    raw = read_json(path, ModelError)
    check_version(raw, str(path))
    with sensible(str(path), ModelError):
        domain = Domain.from_dict(raw["domain"], str(path))
        metrics = {name: math.nan if value is None else float(value) for name, value in raw["metrics"].items()}
        known = {item.name for item in fields(ModelInfo)} - {"topology", "domain", "metrics", "temperatures"}
        rest = {name: raw[name] for name in known if name in raw}
        temperatures = tuple(map(float, raw.get("temperatures") or ()))
        topology = parse_topology(raw["topology"], str(path))
        return ModelInfo(topology=topology, domain=domain, metrics=metrics, temperatures=temperatures, **rest)


def check_version(raw: Mapping[str, Any], source: str) -> None:
    """Refuse what a later Pairton has written."""
    version = raw.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ModelError(
            f"{source}: format_version is {shown(version)}, but Pairton {__version__} reads 1 to "
            f"{FORMAT_VERSION}: update Pairton"
        )


def read_weights(folder: Path) -> bytes:
    """The file of weights, if it is the one that the JSON beside it belongs to."""
    path = folder / WEIGHTS
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}): copy the model again") from None
    if hashlib.sha256(payload).hexdigest() != read_json(folder / INFO, ModelError).get("weights_sha256"):
        raise ModelError(f"{path}: not the weights that {INFO} belongs to: copy both files of the model again")
    return payload


def load_model(model: str | Path) -> tuple[Network, ModelInfo]:
    """A network with its weights, in evaluation mode, and all about it."""
    try:
        import torch
        from safetensors.torch import load

        from pairton.network import Network, NetworkConfig
    except ImportError:
        raise MissingExtraError("train", "torch") from None
    folder = find_model(model)
    info = read_info(folder)
    payload = read_weights(folder)
    config = configure(NetworkConfig, info.network, f"{folder / INFO}: network")
    try:
        weights = load(payload)
        with torch.device("meta"):  # takes no memory, however large the config says the network is
            Network(info.topology, config).load_state_dict(weights, assign=True)
        network = Network(info.topology, config)
        network.load_state_dict(weights)
    except PairtonError:
        raise
    except Exception as error:  # safetensors and torch have their own
        reason = " ".join(str(error).split())
        raise ModelError(f"{folder / WEIGHTS}: the weights do not fit the network ({reason[:200]})") from None
    return network.eval(), info
