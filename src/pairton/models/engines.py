"""Engines, which run networks: `ENGINES` has the functions that open a model with one of them, by name.

An engine opens its session when it is first used, once per process, and pickles as its path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pairton._common.configuration import parse_json, read_json
from pairton._common.parallel import cores
from pairton.decoding import Outputs
from pairton.errors import MissingExtraError, ModelError
from pairton.events.nodes import Nodes
from pairton.models.onnx_file import Session, open_session, read_onnx
from pairton.models.storage import (
    INFO,
    ONNX,
    WEIGHTS,
    WEIGHTS_KEY,
    ModelInfo,
    builtin_models,
    parse_info,
    read_info,
)
from pairton.topology import Topology

__all__ = ["ENGINES", "METADATA_KEY", "Engine", "OnnxEngine", "Opened", "Request", "Tokens"]

METADATA_KEY = "pairton"  # key of the JSON in the metadata of an ONNX file
SPANET = "pairton.spanet.spanet_onnx"  # opens the ONNX files of SPANet

Tokens = npt.NDArray[np.uint8]


class Engine(Protocol):
    """Anything that returns outputs by name for nodes; it may ignore tokens."""

    @property
    def at_once(self) -> int:
        """The number of threads that should call it."""

    def __call__(self, nodes: Nodes, tokens: Tokens | None) -> Outputs: ...


@dataclass(frozen=True)
class Request:
    """What a user asks of an engine."""

    path: Path  # the folder of a model, or an ONNX file
    threads: int | None = None  # that work on batches in parallel; None: one per core
    topology: str | Path | Topology | None = None  # of a network that does not contain it
    isolate: Any = False  # whether to run it in a worker process, or `Limits` for that
    device: str = "cpu"  # or a GPU: cuda, for torch also cuda:1 and others


class Opened(NamedTuple):
    """A network with an engine that runs it."""

    name: str
    info: ModelInfo
    engine: Engine


@dataclass(frozen=True)
class OnnxEngine:
    """Runs a network with ONNX Runtime, which needs no torch.

    Each call uses one thread. Several threads work on different batches, since operators are too short to share.
    """

    path: Path
    threads: int | None = None  # threads that call it; None: one per core
    isolate: Any = False  # whether it runs in a worker process, or `Limits` for that
    device: str = "cpu"
    library: ClassVar[str] = "onnxruntime"

    @property
    def at_once(self) -> int:
        return self.threads or cores()

    @cached_property
    def session(self) -> Session:
        return _session(self, self.path.stat().st_mtime_ns if self.path.exists() else 0)

    def __call__(self, nodes: Nodes, tokens: Tokens | None) -> Outputs:
        feeds: dict[str, npt.NDArray[Any]] = {}
        for kind, values in nodes.values.items():
            feeds[kind] = np.ascontiguousarray(values, dtype=np.float32)
            feeds[f"{kind}_mask"] = np.ascontiguousarray(nodes.masks[kind])
        if "tokens" in self.session.inputs:
            if tokens is None:
                raise ModelError(
                    f"{self.path}: the graph takes tokens, but its metadata say that it does not: export it again"
                )
            feeds["tokens"] = np.ascontiguousarray(tokens, dtype=np.uint8)
        return self.session.run(feeds)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("path", "threads", "isolate", "device")}


@lru_cache(maxsize=16)
def _session(engine: OnnxEngine, written: int) -> Session:
    """The session of an engine; all copies in a process share it, as a worker unpickles one with every task."""
    return open_session(read_onnx(engine.path), engine.isolate, device=engine.device)


def open_onnx(request: Request) -> Opened:
    """A model from an ONNX file, or from the one in a folder; built-in ones are never isolated."""
    path = request.path
    if path.is_dir() and not (path / ONNX).is_file():
        raise ModelError(
            f"{path}: has no {ONNX} for the default engine: run `pairton export {path} -o {path / ONNX}`, or "
            "choose --engine torch"
        )
    file = read_onnx(path / ONNX if path.is_dir() else path)
    text = file.metadata.get(METADATA_KEY)
    if text is None and not import_module(SPANET).is_spanet(file):
        raise ModelError(
            f"{file.path}: an ONNX file, but not of Pairton or SPANet: make one with `pairton export`"
        )
    raw = {"graph": "spanet"} if text is None else parse_json(text, str(file.path), ModelError)
    if not isinstance(raw, dict):
        raise ModelError(f"{file.path}: its metadata are damaged: export it again")
    if raw.get("graph") == "spanet":
        return import_module(SPANET).open_spanet(file, request)  # type: ignore[no-any-return]
    if raw.get("graph", "step") != "step":
        raise ModelError(
            f"{file.path}: a whole reconstruction, which Pairton does not run: export the network alone"
        )
    info = parse_info(raw, str(file.path))
    beside = file.path.parent / INFO
    wanted = read_json(beside, ModelError).get(WEIGHTS_KEY) if path.is_dir() and beside.is_file() else None
    if wanted is not None and info.weights_sha256 not in (None, wanted):
        raise ModelError(
            f"{file.path}: exported from other weights than those in this folder: run `pairton export {path} -o "
            f"{file.path}`"
        )
    name = file.path.parent.name if file.path.name == ONNX else file.path.stem
    isolate = request.isolate if path not in builtin_models().values() else False
    return Opened(name, info, OnnxEngine(file.path, request.threads, isolate, request.device))


def open_torch(request: Request) -> Opened:
    """A model from its folder. It runs code of Pairton only, so that it is never isolated."""
    path = request.path
    if path.suffix == ".onnx":
        if path.name != ONNX or not (path.parent / WEIGHTS).is_file():
            raise ModelError(f"{path}: torch cannot run an ONNX file: give the model's folder, or use onnx")
        path = path.parent
    if not (path / WEIGHTS).is_file():
        raise ModelError(f"{path}: has no {WEIGHTS}, which torch needs: use the engine onnx")
    try:
        engine = import_module("pairton.network.engine").TorchEngine(path, request.threads, request.device)
    except ImportError:
        raise MissingExtraError("train", "torch") from None
    return Opened(path.name, read_info(path), engine)


ENGINES: dict[str, Callable[[Request], Opened]] = {"onnx": open_onnx, "torch": open_torch}
