"""ONNX files: one denoising step, or the whole reconstruction in one graph. Needs torch and onnx.

Opset 18 and IR version 8 or 9, all float32, weights inside the file: onnxruntime 1.17 and later run it. Every file
is run and compared with torch before it appears under its name.
"""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import replacing
from pairton._common.configuration import read_json
from pairton._version import __version__
from pairton.decoding import METHODS, decode
from pairton.decoding.candidates import step_table
from pairton.decoding.graph import MOST_JETS
from pairton.decoding.likelihood import MAX_ASSIGNMENTS, Prediction
from pairton.errors import ConfigError, MissingExtraError, ModelError, nearest
from pairton.models.engines import METADATA_KEY, WEIGHTS_KEY
from pairton.models.onnx_file import open_session
from pairton.topology import Topology

if TYPE_CHECKING:
    from torch import nn

    from pairton.models.storage import ModelInfo
    from pairton.network import Network

__all__ = ["OPSET", "default_max_jets", "export_model", "export_network"]

OPSET = 18
EXACT_JETS, CHAIN_JETS = 12, 16  # most jets of a whole reconstruction, where nothing else is said
TOLERANCE = 1e-5  # of logits, relative to the largest or 1
PROBABILITY_TOLERANCE = 1e-3  # sums of tens of logits, in single precision


def export_model(
    model: str | Path,
    output: str | Path,
    *,
    whole: bool = False,
    max_jets: int | None = None,
    decoding: str | None = None,
) -> dict[str, Any]:
    """Export a model by name or path; what its metadata say."""
    from pairton.models.storage import INFO, find_model, load_model

    try:
        network, info = load_model(model)
    except MissingExtraError:
        raise MissingExtraError("export", "torch") from None
    weights = read_json(find_model(model) / INFO)["weights_sha256"]
    options: dict[str, Any] = {"whole": whole, "max_jets": max_jets, "decoding": decoding}
    return export_network(network, info, output, weights=weights, **options)


def export_network(
    network: Network,
    info: ModelInfo,
    output: str | Path,
    *,
    whole: bool = False,
    max_jets: int | None = None,
    decoding: str | None = None,
    weights: str | None = None,
) -> dict[str, Any]:
    """Export a network with all that is known about it.

    whole      jets in, indices and probabilities out; else jets and tokens in, logits out
    max_jets   of a whole reconstruction: the most jets that an event may have
    decoding   of a whole reconstruction: exact, steps or one_shot; by default what the model was trained for
    weights    hash of the weights on disk, so that an old export beside new weights is noticed
    """
    _check_packages()
    if not whole and (max_jets is not None or decoding is not None):
        raise ConfigError("max_jets and decoding belong to a whole reconstruction: export with --whole")
    with replacing(output) as temporary:  # first of all, so that a folder that is missing costs no time
        payload, about = _graph(network.eval(), info, whole, max_jets, decoding)
        metadata = {**info.to_dict(), **about, "exported_by": f"pairton {__version__}"}
        if weights is not None:
            metadata[WEIGHTS_KEY] = weights
        temporary.write_bytes(_finish(payload, metadata))
    return metadata


def _graph(
    network: Network, info: ModelInfo, whole: bool, max_jets: int | None, decoding: str | None
) -> tuple[bytes, dict[str, Any]]:
    """The graph, and what is to be said of it."""
    topology = info.topology
    if not whole:
        return _export_step(network, topology), {"graph": "step"}
    method = _decoding(decoding or info.decoding)
    limit = _limit(topology, method, max_jets)
    temperatures = list(info.temperatures) if method == info.decoding and info.temperatures else None
    about = {
        "graph": "whole",
        "decoding": method,
        "max_jets": limit,
        "slots": [slot.name for slot in topology.slots],
        "particles": [particle.name for particle in topology.particles],
    }
    return _export_whole(network, topology, method, limit, temperatures), about


def default_max_jets(topology: Topology, method: str) -> int:
    """The most jets of a whole reconstruction: enough for most events, fewer where choices are too many.

    >>> from pairton.topology import load_topology
    >>> [default_max_jets(load_topology(name), "exact") for name in ("ttbar_allhad", "tth_allhad")]
    [12, 10]
    """
    n_slots = len(topology.slots)
    limit = max(EXACT_JETS if method == "exact" else CHAIN_JETS, n_slots)
    while limit > n_slots and not _fits(topology, method, limit):
        limit -= 1
    return limit


def _fits(topology: Topology, method: str, n_jets: int) -> bool:
    """Whether all choices for that many jets can be tabulated."""
    if method == "exact":
        return topology.count_assignments(n_jets) <= MAX_ASSIGNMENTS
    return all(step_table(topology, stage, n_jets) is not None for stage in topology.stages)


def _check_packages() -> None:
    for module in ("torch", "onnx"):
        try:
            __import__(module)
        except ImportError:
            raise MissingExtraError("export", module) from None


def _decoding(method: str) -> str:
    if method == "beam":
        raise ModelError(
            "a beam keeps a varying set of hypotheses, which a graph cannot: export steps, one_shot or exact, "
            "or run the beam from Python"
        )
    if method == "exact_steps":
        raise ModelError(
            "exact_steps asks the network again for every stage and is not exported as one graph: export exact, "
            "steps or one_shot with --decoding, or run it from Python"
        )
    if method not in METHODS:
        allowed = [name for name in METHODS if name not in ("beam", "exact_steps")]
        raise ConfigError(f"no decoding {method!r}: choose one of {', '.join(allowed)}{nearest(method, allowed)}")
    return method


def _limit(topology: Topology, method: str, wanted: int | None) -> int:
    limit = default_max_jets(topology, method) if wanted is None else wanted
    if not len(topology.slots) <= limit <= MOST_JETS:
        raise ConfigError(
            f"max_jets is {limit}, but must be from {len(topology.slots)} (slots of {topology.name}) to "
            f"{MOST_JETS}"
        )
    count = topology.count_assignments(limit)
    if method == "exact" and count > MAX_ASSIGNMENTS:
        raise ModelError(
            f"{limit} jets have {count} assignments in {topology.name}, more than the {MAX_ASSIGNMENTS} that are "
            "enumerated: lower --max-jets, or export --decoding steps"
        )
    return limit


# -- graphs ------------------------------------------------------------------------------------------------


def _export_step(network: Network, topology: Topology) -> bytes:
    from torch import nn

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *inputs: Any) -> Any:
            found = self.network(*inputs)
            return found.edges if found.triplets is None else (found.edges, found.triplets)

    n_jets = len(topology.slots) + 1
    jets, jet_mask = _some_events(topology, n_jets)
    inputs = {"jets": jets, "jet_mask": jet_mask}
    if network.config.tokens:
        inputs["tokens"] = _some_tokens(topology, len(jets), n_jets)
    outputs = ["edges", *(["triplets"] if network.config.triplets != "none" else [])]
    payload = _trace(Step().eval(), inputs, outputs)
    _check_step(payload, network, topology)
    return payload


def _export_whole(
    network: Network, topology: Topology, method: str, limit: int, temperatures: list[float] | None
) -> bytes:
    from pairton.export.chain_graph import ChainGraph
    from pairton.export.exact_graph import ExactGraph

    graph: nn.Module
    if method == "exact":
        graph = ExactGraph(network, topology, limit, temperatures[0] if temperatures else 1.0)
    else:
        heat = temperatures or [1.0] * len(topology.stages)
        refresh = method == "steps" and network.config.tokens
        graph = ChainGraph(network, topology, limit, heat, refresh)
    jets, jet_mask = _some_events(topology, min(limit, len(topology.slots) + 1))
    inputs = {"jets": jets, "jet_mask": jet_mask}
    payload = _trace(graph.eval(), inputs, ["indices", "event_probability", "particle_probability"])
    _check_whole(payload, network, topology, method, limit, temperatures)
    return payload


def _trace(graph: nn.Module, inputs: dict[str, npt.NDArray[Any]], outputs: list[str]) -> bytes:
    """By the exporter that traces: seconds, where the one that analyses takes a minute."""
    import torch

    axes = {"jets": {0: "events", 1: "jets"}, "jet_mask": {0: "events", 1: "jets"}}
    axes["tokens"] = {0: "events", 2: "jets", 3: "jets"}
    named = {
        "edges": {0: "events", 2: "jets", 3: "jets"},
        "triplets": {0: "events", 2: "jets", 3: "jets", 4: "jets"},
        "indices": {0: "events"},
        "event_probability": {0: "events"},
        "particle_probability": {0: "events"},
    }
    stream = io.BytesIO()
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # shapes are traced on purpose
        torch.onnx.export(
            graph,
            tuple(torch.from_numpy(array) for array in inputs.values()),
            stream,  # type: ignore[arg-type]
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_axes={name: axes[name] for name in inputs} | {name: named[name] for name in outputs},
        )
    return stream.getvalue()


def _finish(payload: bytes, metadata: dict[str, Any]) -> bytes:
    """With metadata, and without the paths of source files that the exporter leaves in every node."""
    import onnx

    model = onnx.load_model_from_string(payload)
    model.producer_name, model.producer_version, model.doc_string = "pairton", __version__, ""
    for node in model.graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    del model.metadata_props[:]
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, json.dumps(metadata)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


# -- checks against torch ----------------------------------------------------------------------------------


def _some_events(topology: Topology, n_jets: int, events: int = 16) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Jets with the spread of real ones; the last event has one jet fewer, where it can."""
    rng = np.random.default_rng(n_jets)
    shape = (events, n_jets)
    pt, eta, phi = 25 + rng.exponential(50, shape), rng.normal(0, 1, shape), rng.uniform(-np.pi, np.pi, shape)
    energy = np.hypot(pt * np.cosh(eta), rng.uniform(3, 15, shape))
    jets = np.stack([pt, eta, phi, energy, rng.random(shape) < 0.3], axis=2).astype(np.float32)
    jet_mask = np.ones(shape, dtype=bool)
    if n_jets > len(topology.slots):
        jet_mask[-1, -1] = False
    return jets, jet_mask


def _some_tokens(topology: Topology, events: int, n_jets: int) -> npt.NDArray[np.uint8]:
    tokens = np.random.default_rng(1).integers(0, 3, (events, len(topology.types), n_jets, n_jets))
    return np.maximum(tokens, tokens.swapaxes(2, 3)).astype(np.uint8)


def _ask(network: Network, *inputs: Any) -> Prediction:
    import torch

    with torch.inference_mode():
        found = network(*(None if array is None else torch.from_numpy(array) for array in inputs))
    return Prediction(found.edges.numpy(), None if found.triplets is None else found.triplets.numpy())


def _check_step(payload: bytes, network: Network, topology: Topology) -> None:
    session = open_session(payload, "the exported graph")
    for n_jets in (len(topology.slots), len(topology.slots) + 3):
        jets, jet_mask = _some_events(topology, n_jets, events=5)
        tokens = _some_tokens(topology, 5, n_jets) if network.config.tokens else None
        feeds = {"jets": jets, "jet_mask": jet_mask} | ({} if tokens is None else {"tokens": tokens})
        wanted = [array for array in _ask(network, jets, jet_mask, tokens) if array is not None]
        for ours, theirs in zip(session.run(None, feeds), wanted, strict=True):
            away = float(np.abs(ours - theirs).max())
            if not away <= TOLERANCE * max(1.0, float(np.abs(theirs).max())):
                raise ModelError(
                    f"the exported logits differ from torch by {away:.1e} at {n_jets} jets: nothing was written"
                )


def _check_whole(
    payload: bytes,
    network: Network,
    topology: Topology,
    method: str,
    limit: int,
    temperatures: list[float] | None,
) -> None:
    session = open_session(payload, "the exported graph")

    def predict(jets: Any, jet_mask: Any, tokens: Any) -> Prediction:
        return _ask(network, jets, jet_mask, tokens if network.config.tokens else None)

    for n_jets in sorted({len(topology.slots), min(len(topology.slots) + 2, limit), limit}):
        jets, jet_mask = _some_events(topology, n_jets)
        wanted = decode(predict, topology, jets, jet_mask, method=method, temperatures=temperatures)
        indices, event, particles = session.run(None, {"jets": jets, "jet_mask": jet_mask})
        away = max(
            float(np.abs(event - wanted.event_probability).max()),
            float(np.abs(particles - wanted.particle_probability).max()),
        )
        if not np.array_equal(indices, wanted.assignment) or not away <= PROBABILITY_TOLERANCE:
            raise ModelError(
                f"the exported graph and the decoder disagree at {n_jets} jets (probabilities by {away:.1e}): "
                "nothing was written"
            )
