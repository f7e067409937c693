"""`pairton export --like spanet`: writes an ONNX file with the inputs and outputs of SPANet's own exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import replacing
from pairton._version import __version__
from pairton.errors import ConfigError, MissingExtraError, ModelError
from pairton.events.nodes import Nodes
from pairton.export import (
    PROBABILITY_TOLERANCE,
    check_packages,
    checked_limit,
    layout_of,
    some_events,
    used_objects,
)
from pairton.export.tracing import finished, trace
from pairton.models.sessions import open_runtime
from pairton.spanet.spanet_event import InputGroup, load_spanet_event
from pairton.spanet.spanet_onnx import features_of
from pairton.topology import Topology, load_topology, same_tree

__all__ = ["export_like_spanet"]

GRAPH = "spanet"  # name in the metadata


def export_like_spanet(
    model: str | Path, output: str | Path, *, topology: str | Path | None = None, max_objects: int | None = None
) -> dict[str, Any]:
    """Export a model by name or path, and return the metadata of the file.

    topology     an event file of SPANet that defines the inputs: groups, features and their order; as in SPANet's
    own
                 exports, the caller takes logarithms. Without it, inputs have default names and no preprocessing
    max_objects  largest number of objects of the main kind; others are ignored
    """
    check_packages()
    try:
        from pairton.export.spanet_graph import SpanetGraph, default_groups, spanet_outputs
        from pairton.network.engine import load_network
    except ImportError:
        raise MissingExtraError("export", "torch") from None
    network, info = load_network(model)
    if network.config.tokens:
        raise ModelError(
            f"{model}: a network with tokens answers step by step and has no such distributions: use a model "
            "without tokens, such as one of the recipe cpu"
        )
    event = None if topology is None else load_spanet_event(topology)
    if topology is not None and event is None:
        raise ConfigError(f"--topology {topology}: not an event file of SPANet, which --like spanet needs")
    tree = info.topology
    if topology is not None:
        tree = load_topology(topology)
        if not same_tree(tree, info.topology):
            raise ModelError(
                f"the model is for {info.topology.name}, but the event file for another decay tree: give the "
                "event file that the model was trained with"
            )
    if tree.alternatives:
        raise ModelError(
            f"{tree.name} has several topologies, which SPANet's outputs have no place for: use --whole"
        )
    groups = default_groups(tree, info.inputs) if event is None else event.inputs
    limit = checked_limit(tree, max_objects)
    temperature = info.temperatures[0] if info.decoding == "exact" and info.temperatures else 1.0
    graph = SpanetGraph(network, tree, layout_of(tree, limit), temperature, groups, event).eval()
    outputs = spanet_outputs(tree, info.heads)
    varying = {
        f"{g.name}_{part}": {0: "batch_size", 1: f"num_{g.name}"} for g in groups for part in ("data", "mask")
    }
    several = [group.name for group in groups if group.form != "GLOBAL" and group.kind in tree.kinds]
    every = "_and_".join(f"num_{name}" for name in several)
    for name, axes in outputs.items():
        varying[name] = {0: "batch_size"} | {k: every for k, axis in enumerate(axes, 1) if axis == "object"}
    about = {
        "graph": GRAPH,
        "max_objects": limit,
        "objects": used_objects(tree, limit),
        "features": {group.name: [feature.name for feature in group.features] for group in groups},
        "logarithms": {group.name: [f.name for f in group.features if f.log] for group in groups},
    }
    with replacing(output) as temporary:
        first = some_events(network, layout_of(tree, min(limit, max(tree.slots_per_kind) + 1)))
        payload = trace(graph, _tensors(first, groups, tree, info), outputs, varying)
        _check(payload, graph, network, groups, tree, info, limit)
        metadata = {**info.to_dict(), **about, "exported_by": f"pairton {__version__}"}
        temporary.write_bytes(finished(payload, metadata))
    return metadata


def _tensors(
    nodes: Nodes, groups: tuple[InputGroup, ...], topology: Topology, info: Any
) -> dict[str, npt.NDArray[Any]]:
    """The inputs of the graph for some events; zeros for groups that the model does not use."""
    named: dict[str, npt.NDArray[Any]] = {}
    for group in groups:
        if group.kind in topology.kinds:
            mask = nodes.masks[group.kind]
            columns = info.inputs.columns(group.kind)
            data = features_of(group, columns, nodes.values[group.kind], mask)
        else:
            mask = np.ones((len(nodes.mask), 1), dtype=bool)
            data = np.zeros((len(mask), 1, len(group.features)), dtype=np.float32)
        named |= {f"{group.name}_data": data, f"{group.name}_mask": mask}
    return named


def _check(
    payload: bytes,
    graph: Any,
    network: Any,
    groups: tuple[InputGroup, ...],
    topology: Topology,
    info: Any,
    limit: int,
) -> None:
    """Raise ModelError unless the file and torch agree, also for numbers of objects that were not traced."""
    import torch

    session = open_runtime(payload, "the exported graph")
    fewest = max(topology.slots_per_kind)
    for main in sorted({fewest, min(fewest + 2, limit), limit, limit + 1}):
        tensors = _tensors(some_events(network, layout_of(topology, main), events=4), groups, topology, info)
        with torch.inference_mode():
            wanted = graph(*(torch.from_numpy(array) for array in tensors.values()))
        for found, expected in zip(session.run(None, tensors), wanted, strict=True):
            away = float(np.abs(found - expected.numpy()).max(initial=0) / max(1.0, float(expected.abs().max())))
            if found.shape != tuple(expected.shape) or not away <= PROBABILITY_TOLERANCE:
                raise ModelError(f"the exported graph differs from torch by {away:.1e}: nothing was written")
