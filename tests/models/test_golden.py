"""Each shipped model gives the outputs that are recorded beside it, in `golden.safetensors`.

    python tests/models/test_golden.py MODEL ...

records inputs and outputs again, for a new model: tensors named as in the ONNX file, of a few simulated events.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pairton.models
from pairton.events.nodes import Nodes
from pairton.models.engines import OnnxEngine
from pairton.models.model import load_model

FOLDER = Path(pairton.models.__file__).parent
MODELS = sorted(path.parent.name for path in FOLDER.glob("*/model.onnx"))
EVENTS = 3


def golden(name):
    """Inputs, tokens or None, and outputs."""
    found = load_file(FOLDER / name / "golden.safetensors")
    masks = {key.removesuffix("_mask"): found.pop(key) for key in list(found) if key.endswith("_mask")}
    return Nodes({kind: found.pop(kind) for kind in masks}, masks), found.pop("tokens", None), found


@pytest.mark.parametrize("name", MODELS)
def test_onnx_runtime_alone_gives_the_golden_outputs(name):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(FOLDER / name / "model.onnx", providers=["CPUExecutionProvider"])
    recorded = load_file(FOLDER / name / "golden.safetensors")
    inputs = {item.name: recorded.pop(item.name) for item in session.get_inputs()}
    names = [item.name for item in session.get_outputs()]
    assert set(names) == set(recorded)
    for key, output in zip(names, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(output, recorded[key], rtol=1e-4, atol=1e-4, err_msg=key)


@pytest.mark.parametrize("engine", ["onnx", "torch"])
@pytest.mark.parametrize("name", MODELS)
def test_engines_give_the_golden_outputs(name, engine):
    nodes, tokens, outputs = golden(name)
    found = load_model(name, engine=engine, threads=1).engine(nodes, tokens)
    assert set(found) == set(outputs)
    for key, output in outputs.items():
        np.testing.assert_allclose(found[key], output, rtol=1e-4, atol=1e-4, err_msg=key)


def record(name):
    from pairton import reconstruct
    from pairton.generator.production import run_chunk
    from pairton.generator.settings import make_settings

    model, seen, run = load_model(name, threads=1), [], OnnxEngine.__call__
    tree = max(model.topology.trees, key=lambda tree: len(tree.kinds))  # of a network of particles
    events, _ = run_chunk(make_settings(tree.name, 100, keep="selected"), 0, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnnxEngine, "__call__", lambda self, *given: (seen.append(given), run(self, *given))[1])
        reconstruct(events, model)
    # the most objects among batches that are large enough, in the last step; in the first event one jet fewer
    batches = [(nodes, tokens) for nodes, tokens, *_ in reversed(seen) if len(nodes) >= EVENTS]
    nodes, tokens = max(batches, key=lambda given: given[0].layout)
    nodes = nodes[:EVENTS]
    masks = {kind: mask.copy() for kind, mask in nodes.masks.items()}
    masks["jet"][0, -1] = False
    inputs = {kind: np.array(values) for kind, values in nodes.values.items()}
    inputs["jet"][0, -1] = 0
    given = {} if not model.info.takes_tokens else {"tokens": tokens[:EVENTS]}
    outputs = model.engine(Nodes(inputs, masks), given.get("tokens"))
    tensors = inputs | {f"{kind}_mask": mask for kind, mask in masks.items()} | given | outputs
    save_file(
        {key: np.ascontiguousarray(one) for key, one in tensors.items()}, FOLDER / name / "golden.safetensors"
    )


if __name__ == "__main__":
    for each in sys.argv[1:]:
        record(each)
