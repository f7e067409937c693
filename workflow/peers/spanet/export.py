"""Export a SPANet network to ONNX, with SPANet's own exporter: python export.py MODEL events.h5 net.onnx

MODEL is a folder with options.json, event.yaml and weights.pt, as `train.py` writes them; without weights.pt, the
weights are random. The events give the statistics of the inputs, and one event for tracing. The other options are
those of `python -m spanet.export`, which itself works only on a folder of PyTorch Lightning.
"""

from __future__ import annotations

import argparse
import os
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from common import all_events, fail, load_model, make_model
from spanet import JetReconstructionModel, Options
from spanet.dataset.types import Source
from spanet.export import WrappedModel, onnx_specification

REFERENCE = 100  # events
OPSET = 14  # SPANet uses 13, to which current torch cannot export attention


def reference(model: JetReconstructionModel) -> dict[str, np.ndarray]:
    """SPANet's probabilities and assignments for the first events, with the padding of the file."""
    sources = all_events(model)[:REFERENCE].sources
    particles = model.event_info.product_particles
    with torch.no_grad():
        outputs = model(sources)
        choice = model.predict_assignments(sources)
    found = {}
    for k, name in enumerate(particles):
        found[f"{name}_log_probability"] = outputs.assignments[k].numpy()
        found[f"{name}_choice"] = np.asarray(choice[k])
    found |= {f"regression/{name}": value.numpy() for name, value in outputs.regressions.items()}
    return found | {f"class/{name}": value.softmax(1).numpy() for name, value in outputs.classifications.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder with options.json, event.yaml and perhaps weights.pt")
    parser.add_argument("events", type=Path, help="events in SPANet's layout, as event.yaml says")
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of random weights")
    parser.add_argument("--reference", type=Path, help="write SPANet's outputs for the first 100 events: .npz")
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
            dynamo=False,  # the exporter that SPANet 2.1 was written for
        )
    os.replace(part, args.output)
    if args.reference is not None:
        np.savez(args.reference, **reference(model))
    print(f"{args.output}: spanet {version('spanet')}, torch {torch.__version__}: {', '.join(outputs)}")


if __name__ == "__main__":
    main()
