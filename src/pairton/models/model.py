"""Models: an engine, which runs a network or a fit, with everything needed to use it.

Shapes: B events, N nodes, T types.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairton._common.atomic import note_input
from pairton.decoding import Decoded, Outputs
from pairton.decoding.graph import MASKED
from pairton.decoding.patterns import plan_of
from pairton.decoding.terms import triplet_types
from pairton.decoding.views import PRESENCE, presence_names, view_of
from pairton.errors import ConfigError, ModelError, nearest
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.models.engines import ENGINES, Engine, Request, Tokens
from pairton.models.kinematic_model import KinematicEngine, is_kinematic, kinematic_info
from pairton.models.storage import (
    FOLDS,
    INFO,
    ONNX,
    WEIGHTS,
    ModelInfo,
    builtin_models,
    find_model,
    fold_folder,
    joined_info,
    read_folds,
    read_info,
)
from pairton.topology import Topology, load_topology, same_tree
from pairton.topology.vocabulary import check_known

__all__ = ["DEFAULT", "Model", "load_model", "model_for"]

DEFAULT = "ttbar_allhad"  # the model called "default"


@dataclass(frozen=True)
class TreeEngine:
    """Runs a network of particles for events of one topology."""

    engine: Engine
    inputs: Inputs  # of the network
    known: Topology  # its vocabulary
    tree: Topology

    @property
    def at_once(self) -> int:
        return self.engine.at_once

    def __getattr__(self, name: str) -> Any:
        """What else is known of the engine, such as its path."""
        if name == "engine":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.engine, name)

    def __call__(self, nodes: Nodes, tokens: Tokens | None) -> Outputs:
        view = view_of(self.known, self.tree)
        return view.outputs(self.engine(view.nodes(nodes, self.inputs), tokens), view.order(nodes.layout))


@dataclass(frozen=True)
class Model:
    """A network with its weights, its topology, and everything else needed to use it."""

    name: str
    info: ModelInfo
    engine: Engine  # with folds, that of the first one
    folds: tuple[Model, ...] = ()  # one model per fold of events, if it was trained in folds
    network: Model | None = None  # of particles, if this is its model for one topology: see `for_topology`

    @property
    def topology(self) -> Topology:
        return self.info.topology

    def for_topology(self, tree: Topology) -> Model:
        """The model for events of a topology, which a network of particles answers even if it never saw it.

        A network without the output `presence` is for its own topology alone, and stays as it is. ModelError if
        the network does not know a particle or a kind of object.
        """
        network = self.network or self
        if PRESENCE not in network.info.outputs:
            return self
        info = network.info.for_topology(tree, network.name)
        engine = TreeEngine(network.engine, network.inputs, network.topology, info.topology)
        return Model(network.name, info, engine, tuple(each.for_topology(tree) for each in network.folds), network)

    @property
    def zero_shot(self) -> bool:
        """Whether the network knows the particles of the topology, but was not trained on such events."""
        if self.network is None:
            return False
        trained = [*self.network.topology.trees, self.network.info.mixture]
        return not any(tree is not None and same_tree(tree, self.topology) for tree in trained)

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
        if self.folds:
            raise ModelError(f"{self.name}: its network depends on the fold of the event: use `by_fold`")
        batch, n_nodes = nodes.mask.shape
        sizes = {"type": len(self.topology.types), "triplet_type": len(triplet_types(self.topology))}
        sizes |= {"node": n_nodes, "pattern": len(plan_of(self.topology).patterns)}
        sizes[PRESENCE] = len(presence_names(self.topology))
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
    """The built-in model for a topology: that of the same name or decay tree, or one that knows its particles.

    Raises ModelError if there is no built-in model for that decay tree.

    >>> model_for(load_topology("ttbar_semilep"))
    'ttbar_semilep'
    """
    folders = builtin_models()
    if topology.name in folders:
        return topology.name
    infos = {name: read_info(folders[name]) for name in (DEFAULT, *folders)}
    for name, info in infos.items():
        if same_tree(info.topology, topology):
            return name
    for name, info in infos.items():
        if PRESENCE in info.outputs:
            with suppress(ModelError):
                check_known(info.topology, topology, name)
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
        engine: What runs the network: "onnx", or "torch" if it is installed; with a device, "torch:cuda" or
            "onnx:cuda".
        threads: How many threads work on batches in parallel; by default one per core.
        topology: The topology to answer for, of a model that was trained on several. For an ONNX file exported by
            SPANet, its event file; for a kinematic fit, the topology to fit (by default ttbar_allhad). Other
            models contain their topology.
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
    library, _, device = engine.partition(":")
    if library not in ENGINES:
        raise ConfigError(f"no engine {library!r}: choose one of {', '.join(ENGINES)}{nearest(library, ENGINES)}")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}, but must be at least 1")
    if is_kinematic(name):
        if library != "onnx":
            raise ConfigError(f"a kinematic fit has no network that {engine} could run: leave the engine out")
        fit = KinematicEngine.load(name, load_topology(DEFAULT if topology is None else topology), threads)
        note_input(fit.path)
        return Model(Path(name).stem, kinematic_info(fit), fit)
    path = find_model(DEFAULT if str(name) == "default" else name)
    for file in (path, path / ONNX, path / WEIGHTS, path / INFO, path / FOLDS):
        note_input(file)

    def opened(path: Path) -> Model:
        return Model(*ENGINES[library](Request(path, threads, topology, isolate, device or "cpu")))

    if (path / FOLDS).is_file():
        members = tuple(opened(fold_folder(path, k)) for k in range(read_folds(path)))
        info = joined_info(path, [member.info for member in members])
        model = Model(path.name, info, members[0].engine, members)
    else:
        model = opened(path)
    if topology is not None:
        return model.for_topology(load_topology(topology))
    tree = model.info.mixture or model.topology
    return model if tree.alternatives and tree is model.topology else model.for_topology(tree)
