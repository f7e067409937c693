"""Engines, which run networks, and models: an engine with everything needed to use it.

The default engine is ONNX Runtime, which does not need torch. An engine opens its session when it is first used,
once per process, and pickles as its path.

Shapes: B events, N nodes, T types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import note_input
from pairton._common.configuration import parse_json, read_json
from pairton._common.parallel import cores
from pairton.decoding import Decoded, Outputs
from pairton.decoding.graph import MASKED
from pairton.decoding.patterns import plan_of
from pairton.decoding.terms import triplet_types
from pairton.errors import ConfigError, MissingExtraError, ModelError, nearest
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.models.folds import FoldsEngine, fold_folder, joined_info, read_folds
from pairton.models.kinematic_model import KinematicEngine, is_kinematic, kinematic_info
from pairton.models.onnx_file import OnnxFile, read_onnx
from pairton.models.sessions import Session, open_session
from pairton.models.storage import (
    FOLDS,
    INFO,
    ONNX,
    WEIGHTS,
    WEIGHTS_KEY,
    ModelInfo,
    builtin_models,
    find_model,
    parse_info,
    read_info,
)
from pairton.topology import Topology, load_topology, same_tree

__all__ = ["DEFAULT", "ENGINES", "METADATA_KEY", "Engine", "Model", "OnnxEngine", "load_model", "model_for"]

ENGINES = {"onnx": "", "torch": "pairton.network.engine:TorchEngine"}  # name -> module and class, unless here
DEFAULT = "ttbar_allhad"  # the model called "default"
METADATA_KEY = "pairton"  # key of the JSON in the metadata of an ONNX file

Tokens = npt.NDArray[np.uint8]


class Engine(Protocol):
    """Anything that returns outputs by name for nodes; it may ignore tokens."""

    @property
    def at_once(self) -> int:
        """The number of threads that should call it."""

    def __call__(self, nodes: Nodes, tokens: Tokens | None) -> Outputs: ...


@dataclass(frozen=True)
class OnnxEngine:
    """Runs a network with ONNX Runtime, on the CPU.

    Each call uses one thread. Several threads work on different batches, since operators are too short to share.
    """

    path: Path
    threads: int | None = None  # threads that call it; None: one per core
    isolate: Any = False  # whether it runs in a worker process, or `Limits` for that
    library: ClassVar[str] = "onnxruntime"

    @property
    def at_once(self) -> int:
        return self.threads or cores()

    @cached_property
    def session(self) -> Session:
        written = self.path.stat().st_mtime_ns if self.path.exists() else 0
        return _session(self, written)

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
        return {"path": self.path, "threads": self.threads, "isolate": self.isolate}


@lru_cache(maxsize=16)
def _session(engine: OnnxEngine, written: int) -> Session:
    """The session of an engine; all copies in a process share it, as a worker unpickles one with every task."""
    return open_session(read_onnx(engine.path), engine.isolate)


@dataclass(frozen=True)
class Model:
    """A network with its weights, its topology, and everything else needed to use it."""

    name: str
    info: ModelInfo
    engine: Engine
    folds: tuple[Model, ...] = ()  # one model per fold of events, if it was trained in folds

    @property
    def topology(self) -> Topology:
        return self.info.topology

    @property
    def domain(self) -> Domain:
        return self.info.domain

    @property
    def inputs(self) -> Inputs:
        return self.info.inputs

    @property
    def decoding(self) -> str:
        """The decoding that the model was trained for."""
        return self.info.decoding

    @property
    def temperatures(self) -> tuple[float, ...] | None:
        """The temperatures that were fitted for this decoding; None if all are 1."""
        return self.info.temperatures or None

    @property
    def answer(self) -> Callable[[Nodes], tuple[Decoded, Outputs]] | None:
        """For an engine that answers itself: from a batch to answers, and outputs that describe events."""
        return getattr(self.engine, "answer", None)

    @property
    def at_once(self) -> int:
        """The number of threads that should call `predict`."""
        return self.engine.at_once

    def predict(self, nodes: Nodes, tokens: Tokens | None = None) -> Outputs:
        """Run the network on a batch of events.

        Args:
            nodes: The objects of the events.
            tokens: What is already known, (B, T, N, N); None masks everything.

        Returns:
            Outputs by name, such as `edges` (B, T, N, N).

        Raises:
            ModelError: The network fails, or its outputs do not have the declared shapes.

        Examples:
            >>> model = load_model("ttbar_allhad")
            >>> jets = np.ones((1, 6, len(model.inputs.columns("jet"))), dtype=np.float32)
            >>> model.predict(Nodes.full({"jet": jets}))["edges"].shape
            (1, 2, 6, 6)
        """
        batch, n_nodes = nodes.mask.shape
        sizes = {"type": len(self.topology.types), "triplet_type": len(triplet_types(self.topology))}
        sizes |= {"node": n_nodes, "pattern": len(plan_of(self.topology).patterns)}
        known = {name: axes for name, axes in self.info.outputs.items() if set(axes) <= set(sizes)}
        shapes = {name: (batch, *(sizes[axis] for axis in axes)) for name, axes in known.items()}
        if not batch or not n_nodes:
            return {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()}
        if tokens is None and self.info.takes_tokens:
            tokens = np.full((batch, sizes["type"], n_nodes, n_nodes), MASKED, dtype=np.uint8)
        outputs = self.engine(nodes, tokens)
        for name, shape in shapes.items():
            if name not in outputs or outputs[name].shape != shape or outputs[name].dtype != np.float32:
                found = "none" if name not in outputs else f"{outputs[name].shape} in {outputs[name].dtype}"
                raise ModelError(
                    f"the network of {self.name} must have the output {name} of the shape {shape} in float32, but "
                    f"has {found}: export or train the model again"
                )
        return outputs


def model_for(topology: Topology) -> str:
    """The built-in model for a topology: the one of the same name, or one with the same decay tree.

    Raises ModelError if there is no built-in model for that decay tree.

    >>> model_for(load_topology("ttbar_semilep"))
    'ttbar_semilep'
    """
    folders = builtin_models()
    if topology.name in folders:
        return topology.name
    for name in (DEFAULT, *folders):
        if same_tree(read_info(folders[name]).topology, topology):
            return name
    raise ModelError(
        f"there is no built-in model for the topology {topology.name}: train one with `pairton train`, give "
        f"another with --model (`pairton list models` has the built-in ones: {', '.join(folders)}), or use "
        "--model kinematic, a fit without a network"
    )


def load_model(
    name: str | Path = "default",
    *,
    engine: str = "onnx",
    threads: int | None = None,
    topology: str | Path | Topology | None = None,
    isolate: Any = False,
) -> Model:
    """Load a model.

    Args:
        name: A built-in model (`pairton list models` has them), or a path: the folder of a model, or its .onnx or
            .safetensors file. "kinematic", or a YAML file with its settings, is a kinematic fit.
        engine: What runs the network: "onnx", or "torch" if it is installed.
        threads: How many threads work on batches in parallel; by default one per core.
        topology: For an ONNX file exported by SPANet, its event file; for a kinematic fit, the topology to fit (by
            default ttbar_allhad). Other models contain their topology.
        isolate: True to run ONNX Runtime in a worker process with limited memory and time, for a model that you do
            not trust. Built-in models and the engine torch, which runs code of Pairton only, ignore it.

    Returns:
        A `Model`, for `pairton.reconstruct` and `pairton.evaluate`. It pickles as its path.

    Raises:
        ModelError: The model cannot be found, read, or run by that engine.
        ConfigError: The engine is unknown, or `threads` is below 1.

    Examples:
        >>> import pairton
        >>> pairton.load_model("iterative").inputs.fields("jet")
        ('btag',)
    """
    if engine not in ENGINES:
        raise ConfigError(f"no engine {engine!r}: choose one of {', '.join(ENGINES)}{nearest(engine, ENGINES)}")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}, but must be at least 1")
    if is_kinematic(name):
        if engine != "onnx":
            raise ConfigError(f"a kinematic fit has no network that {engine} could run: leave the engine out")
        return _kinematic_model(name, threads, topology)
    path = find_model(DEFAULT if str(name) == "default" else name)
    for file in (path, path / ONNX, path / WEIGHTS, path / INFO, path / FOLDS):
        note_input(file)
    if (path / FOLDS).is_file():
        folders = [fold_folder(path, k) for k in range(read_folds(path))]
        members = tuple(load_model(folder, engine=engine, threads=threads, isolate=isolate) for folder in folders)
        info = joined_info(path, [member.info for member in members])
        return Model(path.name, info, FoldsEngine(path, members[0].at_once), members)
    if engine == "onnx":
        if path.is_dir() and not (path / ONNX).is_file():
            raise ModelError(
                f"{path}: has no {ONNX} for the default engine: run `pairton export {path} -o {path / ONNX}`, or "
                "choose --engine torch"
            )
        return _onnx_model(path, threads, topology, path not in builtin_models().values() and isolate)
    if path.suffix == ".onnx":
        if path.name != ONNX or not (path.parent / WEIGHTS).is_file():
            raise ModelError(f"{path}: {engine} cannot run an ONNX file: give the model's folder, or use onnx")
        path = path.parent
    if not (path / WEIGHTS).is_file():
        raise ModelError(f"{path}: has no {WEIGHTS}, which {engine} needs: use the engine onnx")
    module, _, attribute = ENGINES[engine].partition(":")
    try:
        made = getattr(import_module(module), attribute)(path, threads)
    except ImportError:
        raise MissingExtraError("train", "torch") from None
    return Model(path.name, read_info(path), made)


def _kinematic_model(name: str | Path, threads: int | None, topology: str | Path | Topology | None) -> Model:
    """A kinematic fit for a topology."""
    made = KinematicEngine.load(name, load_topology(DEFAULT if topology is None else topology), threads)
    note_input(made.path)
    return Model(Path(name).stem, kinematic_info(made), made)


def _spanet_model(
    file: OnnxFile, threads: int | None, topology: str | Path | Topology | None, isolate: Any
) -> Model:
    """A SPANet network with its event file."""
    from pairton.spanet.spanet_event import load_spanet_event
    from pairton.spanet.spanet_onnx import SpanetEngine, spanet_info

    event = None if topology is None or isinstance(topology, Topology) else load_spanet_event(topology)
    if event is None or isinstance(topology, Topology) or topology is None:
        raise ModelError(f"{file.path}: a SPANet network, which needs its event file: add --topology event.yaml")
    tree = load_topology(topology)
    info = spanet_info(file, event, tree)
    engine = SpanetEngine(file.path, event, tree, info.inputs, threads, isolate)
    outputs = {**info.outputs, **{n: ("class",) * spec.is_class for n, spec in engine.heads.items()}}
    return Model(file.path.stem, replace(info, heads=engine.heads, outputs=outputs), engine)


def _onnx_model(path: Path, threads: int | None, topology: str | Path | Topology | None, isolate: Any) -> Model:
    """A model from an ONNX file, or from the one in a folder."""
    from pairton.spanet.spanet_onnx import is_spanet

    file = read_onnx(path / ONNX if path.is_dir() else path)
    if METADATA_KEY not in file.metadata and is_spanet(file):
        return _spanet_model(file, threads, topology, isolate)
    if METADATA_KEY not in file.metadata:
        raise ModelError(
            f"{file.path}: an ONNX file, but not of Pairton or SPANet: make one with `pairton export`"
        )
    raw = parse_json(file.metadata[METADATA_KEY], str(file.path), ModelError)
    if not isinstance(raw, dict):
        raise ModelError(f"{file.path}: its metadata are damaged: export it again")
    if raw.get("graph") == "spanet":
        return _spanet_model(file, threads, topology, isolate)
    if raw.get("graph", "step") != "step":
        raise ModelError(
            f"{file.path}: a whole reconstruction, which Pairton does not run: export the network alone"
        )
    if raw.get("format_version") == 1:
        raise ModelError(
            f"{file.path}: made by an older Pairton: run `pairton export {file.path.parent} -o {file.path}`"
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
    return Model(name, info, OnnxEngine(file.path, threads, isolate))
