"""Whole reconstruction in one ONNX graph: tables cut to the jets of the event, or padded to the maximum.

The same file does both: an event with n jets is given as it is, or with masked jets behind it. Beside them the
Python decoder on the same network. Numbers are ratios within this run.

    python benchmarks/export_whole.py MODEL [--max-jets 12] [--events 256]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pairton.decoding import decode
from pairton.export import _some_events, export_model
from pairton.models.engines import load_model


def seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """The best of a few."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--max-jets", type=int, default=12)
    parser.add_argument("--events", type=int, default=256)
    options = parser.parse_args()
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        whole, step = Path(folder) / "whole.onnx", Path(folder) / "step.onnx"
        export_model(options.model, whole, whole=True, decoding="exact", max_jets=options.max_jets)
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
        for n_jets in range(len(model.topology.slots), options.max_jets + 1):
            jets, jet_mask = _some_events(model.topology, n_jets, options.events)
            jet_mask[:] = True
            behind = ((0, 0), (0, options.max_jets - n_jets))
            padded = {"jets": np.pad(jets, (*behind, (0, 0))), "jet_mask": np.pad(jet_mask, behind)}
            cut = {"jets": jets, "jet_mask": jet_mask}
            np.testing.assert_array_equal(session.run(None, cut)[0], session.run(None, padded)[0])
            times = [
                seconds(lambda feeds=cut: session.run(None, feeds)),  # type: ignore[misc]
                seconds(lambda feeds=padded: session.run(None, feeds), repeats=1),  # type: ignore[misc]
                seconds(lambda feeds=cut: decode(model.predict, model.topology, *feeds.values(), method="exact")),  # type: ignore[misc]
            ]
            rate = options.events / times[0]
            print(f"| {n_jets} | {rate:.0f} | {times[1] / times[0]:.1f} | {times[2] / times[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
