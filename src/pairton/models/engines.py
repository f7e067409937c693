"""Engines that run a network behind one call, and models: an engine with all that belongs to it.

ONNX Runtime is the default and needs no torch. An engine opens its session when it is first used, once in each
process, and pickles as its path.

Shapes: B events, N jets, T types, K types of three slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import note_input
from pairton._common.configuration import parse_json, read_json
from pairton._common.parallel import cores
from pairton.decoding.likelihood import Prediction, triplet_types
from pairton.errors import ConfigError, MissingExtraError, ModelError, nearest, shown
from pairton.events.domain import Domain
from pairton.models.onnx_file import OnnxFile, open_session, read_onnx
from pairton.models.storage import builtin_model, builtin_models, check_version
from pairton.topology import Topology, parse_topology

__all__ = [
    "DEFAULT",
    "ENGINES",
    "METADATA_KEY",
    "WEIGHTS_KEY",
    "Engine",
    "Model",
    "OnnxEngine",
    "TorchEngine",
    "load_model",
    "model_for",
]

ENGINES = ("onnx", "torch")
DEFAULT = "ttbar_allhad"  # the model meant by "default"
METADATA_KEY = "pairton"  # of the JSON in an ONNX file
WEIGHTS_KEY = "weights_sha256"  # in that JSON and in model.json
ONNX, WEIGHTS, INFO = "model.onnx", "model.safetensors", "model.json"

Jets = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Tokens = npt.NDArray[np.uint8]


class Engine(Protocol):
    """Anything that predicts; tokens may be ignored."""

    @property
    def at_once(self) -> int:
        """How many threads should call it."""

    def __call__(self, jets: Jets, jet_mask: Bools, tokens: Tokens | None) -> Prediction: ...


@dataclass(frozen=True)
class OnnxEngine:
    """One denoising step by ONNX Runtime, on the CPU.

    Threads share batches, not operators: those are too short to be worth a meeting of threads.
    """

    path: Path
    threads: int | None = None  # that call it; None: one for each core

    @property
    def at_once(self) -> int:
        return self.threads or cores()

    @cached_property
    def session(self) -> Any:
        written = self.path.stat().st_mtime_ns if self.path.exists() else 0
        return _session(self, written)

    @cached_property
    def inputs(self) -> frozenset[str]:
        return frozenset(item.name for item in self.session.get_inputs())

    def __call__(self, jets: Jets, jet_mask: Bools, tokens: Tokens | None) -> Prediction:
        feeds = {"jets": np.ascontiguousarray(jets, dtype=np.float32), "jet_mask": np.ascontiguousarray(jet_mask)}
        if "tokens" in self.inputs:
            assert tokens is not None
            feeds["tokens"] = np.ascontiguousarray(tokens, dtype=np.uint8)
        try:
            found = self.session.run(None, feeds)
        except Exception as error:  # as when it is opened: many classes without a common base
            reason = " ".join(str(error).split())
            raise ModelError(
                f"{self.path}: ONNX Runtime failed ({reason[:200]}): export the model again"
            ) from None
        return Prediction(found[0], found[1] if len(found) > 1 else None)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "threads": self.threads}


@lru_cache(maxsize=4)
def _session(engine: OnnxEngine, written: int) -> Any:
    """One session for all copies of an engine in a process: a worker unpickles one with every task."""
    return open_session(read_onnx(engine.path), engine.path)


@dataclass(frozen=True)
class TorchEngine:
    """One denoising step by torch, from a model's folder."""

    path: Path
    threads: int | None = None  # None: as torch is set
    device: str = "cpu"
    at_once = 1  # torch has threads of its own

    @cached_property
    def network(self) -> Any:
        from pairton.models.storage import load_model as load_network

        network, _ = load_network(self.path)
        import torch

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return network.to(self.device)

    def __call__(self, jets: Jets, jet_mask: Bools, tokens: Tokens | None) -> Prediction:
        network = self.network
        import torch

        takes_tokens = tokens is not None and network.config.tokens
        with torch.inference_mode():
            found = network(
                torch.as_tensor(np.ascontiguousarray(jets, dtype=np.float32), device=self.device),
                None if jet_mask.all() else torch.as_tensor(jet_mask, device=self.device),
                torch.as_tensor(tokens, device=self.device) if takes_tokens else None,
            )
        triplets = None if found.triplets is None else found.triplets.float().cpu().numpy()
        return Prediction(found.edges.float().cpu().numpy(), triplets)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "threads": self.threads, "device": self.device}


@dataclass(frozen=True)
class Model:
    """A network that can be asked, and all that is known about it."""

    name: str
    topology: Topology
    domain: Domain
    decoding: str  # exact, exact_steps, steps or one_shot: what it was trained for
    temperatures: tuple[float, ...] | None  # of that decoding; None for 1
    takes_tokens: bool
    engine: Engine
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def at_once(self) -> int:
        """How many threads should call `predict`."""
        return self.engine.at_once

    def predict(self, jets: Jets, jet_mask: Bools, tokens: Tokens | None = None) -> Prediction:
        """Logits for jets (B, N, 5), of which `jet_mask` (B, N) are real; tokens (B, T, N, N), None: masked."""
        batch, n_jets = jet_mask.shape
        shape = (batch, len(self.topology.types), n_jets, n_jets)
        if not batch or not n_jets:
            return Prediction(np.zeros(shape, dtype=np.float32))
        if tokens is None and self.takes_tokens:
            tokens = np.full(shape, 2, dtype=np.uint8)
        found = self.engine(jets, jet_mask, tokens)
        triplets = (batch, len(triplet_types(self.topology)), n_jets, n_jets, n_jets)
        for name, array, wanted in (("edges", found.edges, shape), ("triplets", found.triplets, triplets)):
            if array is not None and (np.shape(array) != wanted or array.dtype != np.float32):
                raise ModelError(
                    f"model {self.name}: gives {name} of the shape {np.shape(array)}, but {self.topology.name} "
                    f"needs {wanted} in float32: export or train it again"
                )
        return found


def model_for(topology: Topology) -> str:
    """The model to take for events where none was named: that of their name, else the default."""
    return topology.name if topology.name in builtin_models() else "default"


def load_model(name: str | Path = "default", *, engine: str = "onnx", threads: int | None = None) -> Model:
    """A model by the name of one that comes with Pairton, or by a path: its folder, .onnx or .safetensors.

    A folder without `model.onnx` is run by torch, whatever the engine asked for.
    """
    if engine not in ENGINES:
        raise ConfigError(f"no engine {engine!r}: choose one of {', '.join(ENGINES)}{nearest(engine, ENGINES)}")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}, but must be at least 1")
    path = _find(DEFAULT if str(name) == "default" else name)
    for file in (path, path / ONNX, path / WEIGHTS, path / INFO):
        note_input(file)
    if path.suffix == ".onnx":
        if engine != "onnx" and (path.parent / WEIGHTS).is_file() and path.name == ONNX:
            path = path.parent
        elif engine != "onnx":
            raise ModelError(
                f"{path}: an ONNX file cannot be run by the engine {engine}: give the model's folder, or use onnx"
            )
        else:
            return _from_onnx(read_onnx(path), threads)
    if engine == "onnx" and (path / ONNX).is_file():
        loaded = _from_onnx(read_onnx(path / ONNX), threads)
        _check_weights(path, loaded.metadata)
        return loaded
    if not (path / WEIGHTS).is_file():
        raise ModelError(f"{path}: has no {WEIGHTS}, which torch needs: use the engine onnx")
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("train", "torch") from None
    return _from_folder(path, threads, TorchEngine)


def _find(name: str | Path) -> Path:
    """The folder or ONNX file that is meant."""
    if (built_in := builtin_model(name)) is not None:
        return built_in
    path = Path(name)
    if path.is_file() and path.suffix == ".onnx":
        return path
    if path.is_file() and path.name in (WEIGHTS, INFO):
        return path.parent
    if path.is_dir() and ((path / ONNX).is_file() or (path / INFO).is_file()):
        return path
    builtin = builtin_models()
    known = ", ".join(builtin) or "none in this installation"
    if path.exists():
        raise ModelError(
            f"{path}: not a model: give an .onnx file, or a folder with {ONNX} or {WEIGHTS} and {INFO}"
        )
    raise ModelError(f"no model {str(name)!r}: neither built in ({known}) nor a path{nearest(str(name), builtin)}")


def _from_onnx(file: OnnxFile, threads: int | None) -> Model:
    if METADATA_KEY not in file.metadata:
        raise ModelError(f"{file.path}: an ONNX file, but not of Pairton: make one with `pairton export`")
    raw = parse_json(file.metadata[METADATA_KEY], str(file.path), ModelError)
    if not isinstance(raw, dict):
        raise ModelError(f"{file.path}: what it says of the model is no mapping: export it again")
    if raw.get("graph", "step") != "step":
        raise ModelError(f"{file.path}: a whole reconstruction, which is run by itself: export without --whole")
    name = file.path.parent.name if file.path.name == ONNX else file.path.stem
    return _model(name, raw, "tokens" in file.inputs, OnnxEngine(file.path, threads), str(file.path))


def _check_weights(folder: Path, metadata: Mapping[str, Any]) -> None:
    """An ONNX file in a model's folder was exported from the weights beside it."""
    if WEIGHTS_KEY not in metadata or not (folder / INFO).is_file():
        return
    beside = read_json(folder / INFO, ModelError).get(WEIGHTS_KEY)
    if beside is not None and beside != metadata[WEIGHTS_KEY]:
        raise ModelError(
            f"{folder / ONNX}: exported from other weights than those beside it: run `pairton export {folder} -o "
            f"{folder / ONNX}`"
        )


def _from_folder(path: Path, threads: int | None, engine: type[TorchEngine]) -> Model:
    raw = read_json(path / INFO, ModelError)
    if not isinstance(raw.get("network"), dict):
        raise ModelError(f"{path / INFO}: says nothing of the model's network: copy the model again")
    takes_tokens = bool(raw["network"].get("tokens", True))
    return _model(path.name, raw, takes_tokens, engine(path, threads), str(path / INFO))


def _model(name: str, raw: dict[str, Any], takes_tokens: bool, engine: Engine, source: str) -> Model:
    for key in ("topology", "domain"):
        if key not in raw:
            raise ModelError(f"{source}: says nothing of the model's {key}: export it again")
    if "format_version" in raw:  # an ONNX file that someone else made need not have one
        check_version(raw, source)
    try:
        temperatures = tuple(float(value) for value in raw.get("temperatures") or ())
    except (TypeError, ValueError, OverflowError):
        read = shown(raw["temperatures"])
        raise ModelError(f"{source}: temperatures reads {read}, not a list of numbers") from None
    topology = parse_topology(raw["topology"], source)
    decoding = str(raw.get("decoding") or ("steps" if takes_tokens else "exact"))
    stages = 1 if decoding == "exact" else len(topology.stages)
    if len(temperatures) not in (0, stages):
        raise ModelError(f"{source}: has {len(temperatures)} temperatures, but {decoding} takes {stages}")
    return Model(
        name,
        topology,
        Domain.from_dict(raw["domain"], source),
        decoding,
        temperatures or None,
        takes_tokens,
        engine,
        raw,
    )
