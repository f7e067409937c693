"""Exports models to ONNX: the network alone, or the whole reconstruction in one graph. Needs torch and onnx.

Files have opset 18 and IR version 8 or 9, are all float32 and contain their weights; onnxruntime 1.17 and later
run them. Every file is run and compared with torch before it is written. The kinds of files are in
`pairton.export.targets`.
"""

from __future__ import annotations

import inspect
import io
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.atomic import replacing
from pairton._common.configuration import read_json
from pairton._version import __version__
from pairton.errors import ConfigError, MissingExtraError, ModelError
from pairton.models.engines import METADATA_KEY
from pairton.models.onnx_file import open_runtime
from pairton.models.storage import FOLDS, INFO, ONNX, WEIGHTS_KEY, find_model, fold_folder, read_folds
from pairton.topology import collection_name

if TYPE_CHECKING:
    from pairton.export.targets import Target
    from pairton.models.storage import ModelInfo
    from pairton.network import Network

__all__ = ["export_model", "export_network", "fold_files"]

OPSET = 18
CHECKPOINT = ".ckpt"  # of Lightning


def export_model(model: str | Path, output: str | Path, target: str = "step", **options: Any) -> dict[str, Any]:
    """Export a model by name or path, and return the metadata of the file. See `fold_files` for models with folds.

    A Lightning checkpoint of the paper's authors (.ckpt) is imported: its weights are written beside `output`, so
    that the folder is a model. The other arguments are those of `export_network`.
    """
    _check_packages()
    from pairton.network.authors_weights import import_checkpoint
    from pairton.network.engine import load_network

    if Path(model).suffix == CHECKPOINT:
        if Path(output).name != ONNX:
            raise ConfigError(f"{model} becomes a model folder: give -o FOLDER/{ONNX}")
        model = import_checkpoint(model, Path(output).parent)
    network, info = load_network(model)
    weights = read_json(find_model(model) / INFO, ModelError)[WEIGHTS_KEY]
    info = replace(info, weights_sha256=weights)  # so that an export of other weights is noticed
    return export_network(network, info, output, target, **options)


def fold_files(model: str | Path, output: str | Path) -> list[tuple[Path, Path]]:
    """The models to export and the files to write. With folds, `net.onnx` becomes `net_fold0.onnx`, ….

    >>> fold_files("ttbar_allhad", "net.onnx")[0][1]
    PosixPath('net.onnx')
    """
    path, output = Path(model) if Path(model).suffix == CHECKPOINT else find_model(model), Path(output)
    if not (path / FOLDS).is_file():
        return [(Path(model), output)]
    numbers = range(read_folds(path))
    return [(fold_folder(path, k), output.with_name(f"{output.stem}_fold{k}{output.suffix}")) for k in numbers]


def export_network(
    network: Network, info: ModelInfo, output: str | Path, target: str = "step", **options: Any
) -> dict[str, Any]:
    """Export a network with the information of its model, and return the metadata of the file.

    target     step: the network alone; whole: the whole reconstruction; spanet: inputs and outputs as SPANet's
    options    of the target: see its class in `pairton.export.targets`
    """
    _check_packages()
    from pairton.export.targets import TARGETS, get_target

    kind = get_target(target)
    for name in options:
        having = [other for other, each in TARGETS.items() if name in inspect.signature(each).parameters]
        if target not in having:
            others = " and ".join(having) or "none"
            raise ConfigError(f"{name} is not an option of the export target {target}, but of {others}")
    with replacing(output) as temporary:  # first, so that a missing folder is noticed before the work
        chosen = kind(network.eval(), info, **options)
        payload = _traced(chosen)
        session = open_runtime(payload, "the exported graph")
        names = [item.name for item in session.get_outputs()]
        for nodes in chosen.cases:
            found = dict(zip(names, session.run(None, chosen.inputs(nodes)), strict=True))
            away = chosen.difference(found, nodes)
            if not away <= chosen.tolerance:
                raise ModelError(
                    f"the exported graph differs from torch by {away:.1e} with {nodes.layout} objects: nothing "
                    "was written"
                )
        metadata = {**chosen.info.to_dict(), **chosen.about, "exported_by": f"pairton {__version__}"}
        temporary.write_bytes(_finished(payload, metadata))
    return metadata


def _check_packages() -> None:
    for module in ("torch", "onnx"):
        try:
            __import__(module)
        except ImportError:
            raise MissingExtraError("export", module) from None


def _traced(target: Target) -> bytes:
    """The graph as a file, by tracing, which takes seconds; the newer exporter (dynamo) takes a minute."""
    import torch

    inputs = target.inputs(target.cases[0])
    axes = {name: {0: "events", 1: collection_name(name.removesuffix("_mask"))} for name in inputs}
    axes["tokens"] = {0: "events", 2: "nodes", 3: "nodes"}
    for name, each in target.outputs.items():
        axes[name] = {0: "events"} | {k: "nodes" for k, axis in enumerate(each, start=1) if axis == "node"}
    axes |= {name: dict(varying) for name, varying in (target.varying or {}).items()}
    stream = io.BytesIO()
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # on shapes, which may vary
        torch.onnx.export(
            target.graph.eval(),
            tuple(torch.from_numpy(array) for array in inputs.values()),
            stream,  # type: ignore[arg-type]
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(target.outputs),
            dynamic_axes={name: axes[name] for name in (*inputs, *target.outputs)},
        )
    return stream.getvalue()


def _finished(payload: bytes, metadata: dict[str, Any]) -> bytes:
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
