"""Exports models to ONNX: the network alone, or the whole reconstruction in one graph. Needs torch and onnx.

Files have opset 18 and IR version 8 or 9, are all float32 and contain their weights; onnxruntime 1.17 and later
run them. Every file is run and compared with torch before it is written.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import replacing
from pairton._common.configuration import read_json
from pairton._version import __version__
from pairton.decoding import DECODINGS, Decoded, Question, decode, get_decoding
from pairton.decoding.patterns import plan_of
from pairton.decoding.question import LEAST
from pairton.decoding.set_tables import exact_limit
from pairton.errors import ConfigError, MissingExtraError, ModelError
from pairton.events.nodes import MOST_OBJECTS, Nodes
from pairton.export.tracing import OPSET, finished, trace
from pairton.models.folds import fold_folder, read_folds
from pairton.models.sessions import open_runtime
from pairton.models.storage import FOLDS, INFO, WEIGHTS_KEY, find_model
from pairton.topology import Layout, Topology, collection_name
from pairton.topology.kinds import KINDS

if TYPE_CHECKING:
    from pairton.models.storage import ModelInfo
    from pairton.network import Network

__all__ = [
    "OPSET",
    "PROBABILITY_TOLERANCE",
    "check_packages",
    "checked_limit",
    "default_max_objects",
    "export_model",
    "export_network",
    "fold_files",
    "layout_of",
    "some_events",
    "used_objects",
]

DEFAULT_QUESTION = Question()
MOST = 12  # default of the largest number of objects of the main kind, for a whole reconstruction
TOLERANCE = 1e-4  # of logits, relative to the largest or 1: rounding reached 1.1e-5 in a trained network
PROBABILITY_TOLERANCE = 1e-3  # larger, since scores are sums of tens of logits in single precision


def export_model(
    model: str | Path,
    output: str | Path,
    *,
    whole: bool = False,
    max_objects: int | None = None,
    decoding: str | None = None,
    question: Question = DEFAULT_QUESTION,
) -> dict[str, Any]:
    """Export a model by name or path, and return the metadata of the file. See `fold_files` for models with folds.

    The arguments are those of `export_network`.
    """
    try:
        from pairton.network.engine import load_network
    except ImportError:
        raise MissingExtraError("export", "torch") from None
    network, info = load_network(model)
    weights = read_json(find_model(model) / INFO, ModelError)[WEIGHTS_KEY]
    info = replace(info, weights_sha256=weights)  # so that an export of other weights is noticed
    settings: dict[str, Any] = {"max_objects": max_objects, "decoding": decoding, "question": question}
    return export_network(network, info, output, whole=whole, **settings)


def fold_files(model: str | Path, output: str | Path) -> list[tuple[Path, Path]]:
    """The models to export and the files to write. With folds, `net.onnx` becomes `net_fold0.onnx`, ….

    >>> fold_files("ttbar_allhad", "net.onnx")[0][1]
    PosixPath('net.onnx')
    """
    path, output = find_model(model), Path(output)
    if not (path / FOLDS).is_file():
        return [(Path(model), output)]
    numbers = range(read_folds(path))
    return [(fold_folder(path, k), output.with_name(f"{output.stem}_fold{k}{output.suffix}")) for k in numbers]


def export_network(
    network: Network,
    info: ModelInfo,
    output: str | Path,
    *,
    whole: bool = False,
    max_objects: int | None = None,
    decoding: str | None = None,
    question: Question = DEFAULT_QUESTION,
) -> dict[str, Any]:
    """Export a network with the information of its model, and return the metadata of the file.

    whole         export the whole reconstruction, from objects to indices and probabilities, not the network alone
    max_objects   with `whole`: the largest number of objects of the main kind in an event
    decoding      with `whole`: the decoding; None for the model's default
    question      with `whole`: which answer, whether it may leave out particles, and a prior
    """
    check_packages()
    if not whole and (max_objects is not None or decoding is not None or not question.is_default):
        raise ConfigError(
            "max_objects, decoding, answer, allow_absent and prior are only for a whole reconstruction: export "
            "with --whole"
        )
    if (question.allow_absent or question.prior) and "patterns" not in network.outputs:
        raise ModelError(
            "the model knows complete events only: --allow-absent and --prior need one that was trained with "
            "network.patterns"
        )
    with replacing(output) as temporary:  # first, so that a missing folder is noticed before the work
        payload, about = _graph(network.eval(), info, whole, max_objects, decoding, question)
        metadata = {**info.to_dict(), **about, "exported_by": f"pairton {__version__}"}
        temporary.write_bytes(finished(payload, metadata))
    return metadata


def _graph(
    network: Network,
    info: ModelInfo,
    whole: bool,
    max_objects: int | None,
    decoding: str | None,
    question: Question,
) -> tuple[bytes, dict[str, Any]]:
    """The graph, and its metadata."""
    topology = info.topology
    if not whole:
        return _export_step(network, topology), {"graph": "step"}
    chosen = decoding or info.decoding
    if not get_decoding(chosen).exportable:
        allowed = ", ".join(entry.name for entry in DECODINGS.values() if entry.exportable)
        raise ModelError(f"the decoding {chosen} cannot be exported as one graph: choose one of {allowed}")
    limit = checked_limit(topology, max_objects, complete_only="patterns" not in network.outputs)
    temperatures = list(info.temperatures) if chosen == info.decoding and info.temperatures else None
    about = {
        "graph": "whole",
        "decoding": chosen,
        "max_objects": limit,
        "objects": used_objects(topology, limit),
        "slots": [slot.name for slot in topology.slots],
        "particles": [particle.name for particle in topology.particles],
        **{name: value for name, value in asdict(question).items() if name != "topology"},
    }
    if "patterns" in network.outputs:
        about["patterns"] = [pattern.key for pattern in plan_of(topology).patterns]
    if topology.alternatives:
        about["topologies"] = [name for name, _ in topology.alternatives]
    return _export_whole(network, topology, chosen, limit, temperatures, question), about


def default_max_objects(topology: Topology) -> int:
    """The default of the largest number of objects of the main kind, within the limit of the exact sums.

    >>> from pairton.topology import load_topology
    >>> [default_max_objects(load_topology(name)) for name in ("ttbar_allhad", "tttt_allhad")]
    [12, 12]
    """
    return max(min(MOST, exact_limit(topology)), max(topology.slots_per_kind))


def layout_of(topology: Topology, main: int) -> Layout:
    """The layout with `main` objects of the main kind; other kinds have one object per slot, and at least one."""
    needed = zip(topology.kinds, topology.slots_per_kind, strict=True)
    return tuple(main if kind == topology.main_kind else max(1, slots) for kind, slots in needed)


def used_objects(topology: Topology, main: int) -> dict[str, int]:
    """Kind -> how many objects of an event a graph uses; further ones are left out.

    >>> from pairton.topology import load_topology
    >>> used_objects(load_topology("ttbar_semilep"), 12)
    {'jet': 12, 'lepton': 1, 'met': 1}
    """
    return dict(zip(topology.kinds, layout_of(topology, main), strict=True))


def check_packages() -> None:
    for module in ("torch", "onnx"):
        try:
            __import__(module)
        except ImportError:
            raise MissingExtraError("export", module) from None


def checked_limit(topology: Topology, wanted: int | None, complete_only: bool = False) -> int:
    limit = default_max_objects(topology) if wanted is None else wanted
    fewest = max(topology.slots_per_kind)
    if not fewest <= limit <= MOST_OBJECTS:
        raise ConfigError(
            f"max_objects is {limit}, but must be from {fewest} (slots of {topology.name}) to {MOST_OBJECTS}"
        )
    most = exact_limit(topology, complete_only)
    if limit > most:
        raise ModelError(
            f"{limit} {collection_name(topology.main_kind)} of {topology.name} need too many sums: lower "
            f"--max-objects to {most}, or export without --whole"
        )
    return limit


# -- graphs ------------------------------------------------------------------------------------------------


def _export_step(network: Network, topology: Topology) -> bytes:
    from pairton.export.step_graph import StepGraph

    layout = tuple(n + 1 for n in topology.slots_per_kind)
    nodes = some_events(network, layout)
    inputs = _inputs(nodes)
    if network.config.tokens:
        inputs["tokens"] = _some_tokens(topology, len(nodes), sum(layout))
    payload = trace(StepGraph(network).eval(), inputs, network.outputs)
    _check_step(payload, network, topology)
    return payload


def _export_whole(
    network: Network,
    topology: Topology,
    decoding: str,
    limit: int,
    temperatures: list[float] | None,
    question: Question,
) -> bytes:
    from pairton.export.exact_graph import ExactGraph, output_names
    from pairton.network.engine import predictor

    temperature = temperatures[0] if temperatures else 1.0
    graph = ExactGraph(network, topology, layout_of(topology, limit), temperature, question)
    nodes = some_events(network, layout_of(topology, min(limit, max(topology.slots_per_kind) + 1)))
    payload = trace(graph.eval(), _inputs(nodes), dict.fromkeys(output_names(network), ()))
    session, predict = open_runtime(payload, "the exported graph"), predictor(network)
    fewest = max(topology.slots_per_kind)
    for main in sorted({fewest, min(fewest + 2, limit), limit}):
        nodes = some_events(network, layout_of(topology, main))
        if "patterns" in network.outputs:  # events with fewer objects than slots have an answer too
            for k in range(min(4, main)):
                nodes.masks[topology.main_kind][k, main - 1 - k :] = False
        wanted = decode(predict, topology, nodes, decoding=decoding, temperatures=temperatures, question=question)
        _check_whole(session, topology, nodes, wanted, question)
    return payload


def _inputs(nodes: Nodes) -> dict[str, npt.NDArray[Any]]:
    """The inputs of an exported file by name: `<kind>` and `<kind>_mask`."""
    named: dict[str, npt.NDArray[Any]] = {}
    for kind, values in nodes.values.items():
        named |= {kind: values, f"{kind}_mask": nodes.masks[kind]}
    return named


# -- checks against torch ----------------------------------------------------------------------------------


def some_events(network: Network, layout: Layout, events: int = 16) -> Nodes:
    """Realistic random objects. The last object of each kind is padding in the last event, if possible."""
    rng = np.random.default_rng(sum(layout))
    values, masks = {}, {}
    needed = zip(network.topology.kinds, layout, network.topology.slots_per_kind, strict=True)
    for kind, count, slots in needed:
        shape = (events, count)
        pt, phi = 25 + rng.exponential(50, shape), rng.uniform(-np.pi, np.pi, shape)
        eta = rng.normal(0, 1, shape) * (not KINDS[kind].transverse)
        energy = np.hypot(pt * np.cosh(eta), rng.uniform(3, 15, shape))
        further = [rng.random(shape) < 0.3 for _ in network.inputs[kind]]
        values[kind] = np.stack([pt, eta, phi, energy, *further], axis=2).astype(np.float32)
        masks[kind] = np.ones(shape, dtype=bool)
        masks[kind][-1, -1] = count <= slots
    return Nodes(values, masks)


def _some_tokens(topology: Topology, events: int, n_nodes: int) -> npt.NDArray[np.uint8]:
    tokens = np.random.default_rng(1).integers(0, 3, (events, len(topology.types), n_nodes, n_nodes))
    return np.maximum(tokens, tokens.swapaxes(2, 3)).astype(np.uint8)


def _check_step(payload: bytes, network: Network, topology: Topology) -> None:
    from pairton.network.engine import predictor

    session = open_runtime(payload, "the exported graph")
    names = [item.name for item in session.get_outputs()]
    for more in (0, 3):
        layout = tuple(max(1, n) + more for n in topology.slots_per_kind)
        nodes = some_events(network, layout, events=5)
        tokens = _some_tokens(topology, 5, sum(layout)) if network.config.tokens else None
        feeds = _inputs(nodes) | ({} if tokens is None else {"tokens": tokens})
        wanted = predictor(network)(nodes, tokens)
        for name, ours in zip(names, session.run(None, feeds), strict=True):
            away = float(np.abs(ours - wanted[name]).max())
            if not away <= TOLERANCE * max(1.0, float(np.abs(wanted[name]).max())):
                raise ModelError(
                    f"the exported {name} differ from torch by {away:.1e}, layout {layout}: nothing was written"
                )


def _check_whole(session: Any, topology: Topology, nodes: Nodes, wanted: Decoded, question: Question) -> None:
    """Raise ModelError unless the graph and the decoder have the same answers and probabilities."""
    found = dict(
        zip([item.name for item in session.get_outputs()], session.run(None, _inputs(nodes)), strict=True)
    )
    offsets = topology.offsets(nodes.layout)
    positions = np.where(wanted.assignment >= 0, wanted.assignment - offsets, -1)
    same = (found["indices"] == positions).all(axis=1)
    pairs = [(found[name], getattr(wanted, name)) for name in ("event_probability", "particle_probability")]
    pairs = [(one[same], other[same]) for one, other in pairs]
    for name in ("pattern_probability", "topology_probability"):
        if name in found:
            pairs.append((found[name], getattr(wanted, name)))
    if question.answer == "particles":  # two answers may be equally good, up to rounding
        cost = LEAST * (question.allow_absent | ~nodes.can_fill(topology))
        worth = (
            np.nansum(part - cost[:, None], axis=1)
            for part in (found["particle_probability"], wanted.particle_probability)
        )
        pairs.append((next(worth), next(worth)))
    else:
        pairs.append((same, np.ones_like(same)))
    away = max(float(np.nanmax(np.abs(one.astype(float) - other), initial=0)) for one, other in pairs)
    missing = any((np.isnan(one.astype(float)) != np.isnan(other)).any() for one, other in pairs)
    if missing or not away <= PROBABILITY_TOLERANCE:
        raise ModelError(
            f"the exported graph and the decoder disagree with {nodes.layout} objects (by {away:.1e}): nothing "
            "was written"
        )
