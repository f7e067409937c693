"""Converts a torch module to an ONNX file."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from pairton._version import __version__
from pairton.models.engines.onnx_engine import METADATA_KEY
from pairton.topology import collection_name

if TYPE_CHECKING:
    from torch import nn

__all__ = ["OPSET", "finished", "trace"]

OPSET = 18


def trace(
    graph: nn.Module,
    inputs: dict[str, npt.NDArray[Any]],
    outputs: Mapping[str, tuple[str, ...]],
    named: Mapping[str, Mapping[int, str]] | None = None,
) -> bytes:
    """Export a graph by tracing, which takes seconds; the newer exporter (dynamo) takes a minute.

    inputs   arrays to trace with, by name
    outputs  name -> its axes after the axis of events
    named    names of the axes of variable length, for inputs and outputs that differ from those of a step
    """
    import torch

    axes = {name: {0: "events", 1: collection_name(name.removesuffix("_mask"))} for name in inputs}
    axes["tokens"] = {0: "events", 2: "nodes", 3: "nodes"}
    for name, each in outputs.items():
        axes[name] = {0: "events"} | {k: "nodes" for k, axis in enumerate(each, start=1) if axis == "node"}
    axes |= {name: dict(varying) for name, varying in (named or {}).items()}
    stream = io.BytesIO()
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # on shapes, which may vary
        torch.onnx.export(
            graph,
            tuple(torch.from_numpy(array) for array in inputs.values()),
            stream,  # type: ignore[arg-type]
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: axes[name] for name in (*inputs, *outputs)},
        )
    return stream.getvalue()


def finished(payload: bytes, metadata: dict[str, Any]) -> bytes:
    """Add metadata to a file, and remove the paths of source files that the exporter writes into every node."""
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
