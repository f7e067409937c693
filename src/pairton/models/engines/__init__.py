"""Engines, which run networks: each is a module of this folder with an `open_engine`, and a line in `ENGINES`.

An engine opens its session when it is first used, once per process, and pickles as its path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pairton.decoding import Outputs
from pairton.errors import ConfigError, nearest
from pairton.events.nodes import Nodes
from pairton.models.storage import ModelInfo
from pairton.topology import Topology

__all__ = ["ENGINES", "Engine", "Opened", "Request", "Tokens", "opener"]

ENGINES = {"onnx": "pairton.models.engines.onnx_engine", "torch": "pairton.models.engines.torch_engine"}

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


class Opened(NamedTuple):
    """A network with an engine that runs it."""

    name: str
    info: ModelInfo
    engine: Engine


def opener(engine: str) -> Callable[[Request], Opened]:
    """The function that opens models with an engine; ConfigError if there is no such engine."""
    if engine not in ENGINES:
        raise ConfigError(f"no engine {engine!r}: choose one of {', '.join(ENGINES)}{nearest(engine, ENGINES)}")
    found: Callable[[Request], Opened] = import_module(ENGINES[engine]).open_engine
    return found
