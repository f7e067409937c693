"""Time the whole reconstruction in one ONNX graph, with events as they are, or padded to the largest jet count.

The same file is run on events with n jets, with and without masked jets after them, and compared with the Python
decoder on the same network. Numbers are ratios within this run.

    python benchmarks/export_whole.py MODEL [--max-objects 12] [--events 256]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import decode
from pairton.events.nodes import Nodes
from pairton.export import export_model
from pairton.models.model import load_model


def seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of a call, the best of a few."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def random_jets(events: int, n_jets: int) -> npt.NDArray[np.float32]:
    """(B, N, 5): jets with realistic distributions."""
    rng = np.random.default_rng(n_jets)
    pt, phi = 25 + rng.exponential(50, (events, n_jets)), rng.uniform(-np.pi, np.pi, (events, n_jets))
    eta, tag = rng.normal(0, 1, pt.shape), rng.random(pt.shape) < 0.3
    energy = np.hypot(pt * np.cosh(eta), rng.uniform(3, 15, pt.shape))
    return np.stack([pt, eta, phi, energy, tag], axis=2).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--max-objects", type=int, default=12)
    parser.add_argument("--events", type=int, default=256)
    options = parser.parse_args()
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        whole, step = Path(folder) / "whole.onnx", Path(folder) / "step.onnx"
        export_model(options.model, whole, "whole", decoding="exact", max_objects=options.max_objects)
        export_model(options.model, step)
        setup = onnxruntime.SessionOptions()
        setup.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(whole, setup, providers=["CPUExecutionProvider"])
        model = load_model(step, threads=1)
        size = whole.stat().st_size / 1e6
        print(f"file {size:.1f} MB, {options.events} events, one thread\n")
        print(
            "| jets | cut, events/s | padded / cut, time | Python decoder / cut, time |\n| --- | --- | --- | --- |"
        )
        for n_jets in range(len(model.topology.slots), options.max_objects + 1):
            jets, mask = random_jets(options.events, n_jets), np.ones((options.events, n_jets), dtype=bool)
            behind = ((0, 0), (0, options.max_objects - n_jets))
            padded = {"jet": np.pad(jets, (*behind, (0, 0))), "jet_mask": np.pad(mask, behind)}
            cut = {"jet": jets, "jet_mask": mask}
            nodes = Nodes.full({"jet": jets})
            np.testing.assert_array_equal(session.run(None, cut)[0], session.run(None, padded)[0])
            times = [
                seconds(lambda feeds=cut: session.run(None, feeds)),  # type: ignore[misc]
                seconds(lambda feeds=padded: session.run(None, feeds), repeats=1),  # type: ignore[misc]
                seconds(lambda nodes=nodes: decode(model.predict, model.topology, nodes)),  # type: ignore[misc]
            ]
            rate = options.events / times[0]
            print(f"| {n_jets} | {rate:.0f} | {times[1] / times[0]:.1f} | {times[2] / times[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
