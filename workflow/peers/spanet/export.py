"""SPANet's network as an ONNX file, by SPANet's own exporter: python export.py MODEL events.h5 net.onnx

MODEL is a folder with options.json and event.yaml, and with weights.pt, as `train.py` writes them; without
weights.pt the weights are random. The file of events gives statistics of the inputs and one event for tracing. The
other options are those of `python -m spanet.export`, which itself needs a folder of PyTorch Lightning.
"""

from __future__ import annotations

import argparse
import os
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
from common import fail, load_model, make_model
from spanet import Options
from spanet.dataset.types import Source
from spanet.export import WrappedModel, onnx_specification

OPSET = 13  # as in SPANet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder with options.json, event.yaml and perhaps weights.pt")
    parser.add_argument("events", type=Path, help="events in SPANet's layout, as event.yaml says")
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of random weights")
    for name in ("input-log-transform", "output-log-transform", "output-embeddings"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    if (args.model / "weights.pt").is_file():
        model = load_model(args.model, args.events)
    elif (args.model / "options.json").is_file():
        torch.manual_seed(args.seed)
        options = Options.load(str(args.model / "options.json"))
        model = make_model(options, args.events, args.model / "event.yaml")
    else:
        fail(f"{args.model}: no options.json in it")
    wrapped = WrappedModel(
        model.eval(), args.input_log_transform, args.output_log_transform, args.output_embeddings
    ).eval()
    inputs, outputs, axes = onnx_specification(model, args.output_log_transform, args.output_embeddings)
    sources = [Source(source.data[:1], source.mask[:1]) for source in model.training_dataset[:1].sources]
    part = args.output.with_name(f".{args.output.name}.part")
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            wrapped,
            (sources,),
            str(part),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,  # the exporter that there was when SPANet 2.1 was made
        )
    os.replace(part, args.output)
    print(f"{args.output}: spanet {version('spanet')}, torch {torch.__version__}: {', '.join(outputs)}")


if __name__ == "__main__":
    main()
