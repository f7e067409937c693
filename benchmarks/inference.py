"""Compare the rate of reconstruction with plain eager torch and with SPANet, and check that answers are the same.

    python benchmarks/inference.py [--json F] [--markdown F] [--plot PNG] [--spanet PYTHON] [--events FILE]
                                   [--end-to-end] [--before SRC]

Rates are from events in memory to assignments with probabilities, on the sample of the package, repeated. All
methods take turns in one run. Rates are medians over rounds, and ratios are taken within a round. If a criterion
is not met, the exit code is 1. Criteria that need other options are not judged, nor are ratios if other programs
used more than a fifth of the cores.

plain      eager torch, batches of 256 in file order, padded to the longest event of the batch, the same decoder
--spanet   the Python of an environment with SPANet (workflow/peers/spanet/README.md): forward pass and decoding
with
           random weights on the same events, with the best of its layouts and batch sizes
--events   a file with at least 20,000 complete events, on which fast and plain answers are compared
--end-to-end   measure 200,000 events from file to file, in one process and in several
--before   the `src` folder of an earlier Pairton, whose rate and answers on the same events are compared
--plot     also measure and draw the cost against jet count and batch size, and the share of the peak of matrix
           products
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pairton
from inference_costs import draw, flops, matmul_peak, measure_costs
from inference_process import best_start, earlier_rate, end_to_end, seconds_of_import, spanet_rate
from inference_report import FILE_EVENTS, Way, file_table, judge, rate_table, share_of_cores, write_markdown
from pairton.decoding import decode
from pairton.decoding.terms import Outputs
from pairton.errors import PairtonError
from pairton.evaluation.metrics import matches
from pairton.events import Events
from pairton.events.nodes import Nodes
from pairton.models.engines import Engine, Model
from pairton.reconstruction.running import Assigner, RunSettings
from soak import write_input

PLAIN_BATCH = 256
SPANET_BATCHES = [64, 256, 1024]


@dataclass(frozen=True)
class Counting:
    """An engine that counts the events it is run on."""

    engine: Engine
    seen: list[int]
    at_once: int = 1

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8] | None) -> Outputs:
        self.seen.append(len(nodes))
        return self.engine(nodes, tokens)


# -- ways --------------------------------------------------------------------------------------------------


def make_ways(name: str, models: dict[str, Model], sample: Events, threads: int) -> list[Way]:
    """The default decoding with every engine, the same weights in steps, the model iterative, and plain torch."""
    tasks = [(models, None), (models, "steps"), (load_engines("iterative", list(models), threads), None)]
    ways = []
    for loaded, decoding in tasks:
        for engine, model in loaded.items():
            way = Way(_title(model, decoding), engine, _runner(model, decoding))
            counting = Counting(model.engine, [])
            pairton.reconstruct(sample[:64], replace(model, engine=counting), decoding=decoding)
            way.passes = sum(counting.seen) / 64
            ways.append(way)
    return [*ways, Way(f"{_title(models['onnx'], None)}, plain", "torch, eager", plain(name, threads))]


def load_engines(name: str, engines: list[str], threads: int) -> dict[str, Model]:
    """The model with each engine that can run it here."""
    found = {}
    for engine in engines:
        try:
            found[engine] = pairton.load_model(name, engine=engine, threads=threads)
        except PairtonError as error:
            print(f"left out {name} with {engine}: {error}")
    return found


def _title(model: Model, decoding: str | None) -> str:
    if decoding is None:
        return f"{model.name}, {model.decoding} (its default)"
    return f"{model.name}, strict {len(model.topology.stages)} steps"


def _runner(model: Model, decoding: str | None) -> Callable[[Events], npt.NDArray[np.int32]]:
    return lambda events: pairton.reconstruct(events, model, decoding=decoding).assignment


def plain(name: str, threads: int) -> Callable[[Events], npt.NDArray[np.int32]]:
    """A straightforward implementation, without any optimisation."""
    eager = pairton.load_model(name, engine="torch", threads=threads)

    def run(events: Events) -> npt.NDArray[np.int32]:
        accepted = Assigner(eager, RunSettings()).accept(events)
        assignment = np.full((len(events), len(eager.topology.slots)), -1, dtype=np.int32)
        (rows,) = np.nonzero(accepted.answerable)
        for start in range(0, len(rows), PLAIN_BATCH):
            batch = rows[start : start + PLAIN_BATCH]
            nodes = accepted.nodes[batch]
            layout = tuple(nodes.counts.max(axis=0).tolist())  # of the longest event
            widths = dict(zip(nodes.masks, layout, strict=True))
            padded = Nodes(
                {kind: values[:, : widths[kind]] for kind, values in nodes.values.items()},
                {kind: mask[:, : widths[kind]] for kind, mask in nodes.masks.items()},
            )
            how: dict[str, Any] = {"decoding": eager.decoding, "temperatures": eager.temperatures}
            found = decode(eager.predict, eager.topology, padded, **how)
            assignment[batch] = accepted.to_positions(found.assignment, batch, layout)
        return assignment

    return run


# -- measurements ------------------------------------------------------------------------------------------


def measure(way: Way, events: Events) -> tuple[float, float]:
    """Events per second of wall-clock time, and of CPU time."""
    begun, before = time.perf_counter(), time.process_time()
    way.run(events)
    return len(events) / (time.perf_counter() - begun), len(events) / (time.process_time() - before)


def compare_rates(ways: list[Way], events: Events, sample: Events, options: argparse.Namespace) -> Any:
    """Measure all ways in turn, with SPANet if asked for. Return SPANet's first report."""
    for way in ways:
        way.run(sample)  # warm up: compiles, enumerates, allocates
    spanet = Way("SPANet, random weights", "torch, eager", lambda _: np.empty(0, np.int32))
    report: dict[str, Any] = {}
    earlier = Way(f"{ways[0].name}, before", "onnx", ways[0].run)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "sample.h5"
        write_input(source, len(sample))
        for turn in range(options.rounds):
            for way in ways:
                rate, processor_rate = measure(way, events)
                way.rates.append(rate)
                way.processor_rates.append(processor_rate)
            if options.before:
                target = Path(folder) / "assignment.npy"
                before = earlier_rate(options.before, options.model, len(events), options.threads, target)
                earlier.rates.append(before["events_per_second"])
                earlier.processor_rates.append(before["events_per_processor_second"])
                if not turn:
                    same = (np.load(target) == ways[0].run(events)).all(axis=1)
                    print(f"the same assignment as before: {same.mean():.3%} of {len(events)} events", flush=True)
            if options.spanet:
                batches = SPANET_BATCHES if not turn else [report["batch"]]
                found = spanet_rate(options.spanet, source, options.threads, batches, rounds=2)
                report = report or found
                spanet.rates.append(found["events_per_second"])
                spanet.processor_rates.append(found["networks"]["ttbar"]["events_per_cpu_second"])
    if options.before:
        ways.insert(-1, earlier)
    if options.spanet:
        ways.append(spanet)
    return report


def no_loss(ways: list[Way], reference: Way, file: str, limit: int) -> list[dict[str, Any]]:
    """Compare the fast answers with the plain ones, on the same complete events."""
    events = pairton.read(file)
    events = events[np.nonzero(events.complete)[0][:limit]]
    topology, truth = events.topology, events.truth
    assert truth is not None
    wanted = reference.run(events)
    right = matches(topology, truth, wanted).all(axis=1)
    rows = []
    for way in ways:
        answer = way.run(events)
        good = matches(topology, truth, answer).all(axis=1)
        rows.append(
            {
                "engine": way.engine,
                "events": len(events),
                "same_assignment": float(matches(topology, wanted, answer).all(axis=1).mean()),
                "e_event": float(good.mean()),
                "difference_of_e_event": float(good.mean() - right.mean()),
                "right_only_here": int((good & ~right).sum()),
                "right_only_plain": int((right & ~good).sum()),
            }
        )
    return rows


def machine() -> dict[str, Any]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor()
    packages = ["pairton", "numpy", "onnxruntime", "torch"]
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all numbers here")
    parser.add_argument("--markdown", type=Path, help="write the tables here, or between the marks of this page")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="measure costs and draw them")
    parser.add_argument("--spanet", type=Path, metavar="PYTHON", help="of an environment with SPANet")
    parser.add_argument("--before", type=Path, metavar="SRC", help="of an earlier Pairton, to compare with")
    parser.add_argument("--events", default="sample:ttbar_allhad", metavar="FILE", help="to compare answers on")
    parser.add_argument("--limit", type=int, default=30_000, help="largest number of these events")
    parser.add_argument("--end-to-end", action="store_true", help=f"{FILE_EVENTS} events from file to file")
    parser.add_argument("--file-events", type=int, default=FILE_EVENTS, help="fewer: a trial, not judged")
    parser.add_argument("--model", default="default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--count", type=int, default=8192, help="events per round: the sample, repeated")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    result: dict[str, Any] = {
        "command": [Path(word).name for word in sys.argv],
        "threads": options.threads,
        "machine": machine(),
    }
    sample = pairton.read("sample:ttbar_allhad")
    events = Events.concatenate([sample] * -(-options.count // len(sample)))[: options.count]
    sample = events[: len(sample)]
    engines = ["onnx"]
    models = load_engines(options.model, engines, options.threads)
    ways = make_ways(options.model, models, sample, options.threads)
    fast, reference = ways[: len(models)], ways[-1]
    report = compare_rates(ways, events, sample, options)
    spanet = ways[-1] if report else None

    model, peak = models["onnx"], matmul_peak()
    work = [
        flops(model.info.network, model.topology, int(n)) or 0.0
        for n in Assigner(model, RunSettings()).accept(sample).nodes.mask.sum(axis=1)
    ]
    best = max(fast, key=lambda way: statistics.median(way.rates))
    reached = statistics.median(best.rates) * float(np.mean(work)) / peak
    loss = no_loss(fast, reference, options.events, options.limit)
    start = {engine: best_start(engine, options.threads, 3) for engine in models}
    seconds = seconds_of_import(3)
    files: list[dict[str, Any]] = []
    if options.end_to_end:
        with tempfile.TemporaryDirectory() as folder:
            calls = {way.engine: partial(measure, way, events) for way in fast}
            files = end_to_end(calls, options.file_events, options.threads, Path(folder))
        files = [{**row, "events": options.file_events} for row in files]

    share = share_of_cores([way for way in ways if way is not spanet], options.threads)
    criteria = judge(share, fast, reference, spanet, loss, files, start, seconds)
    about = result["machine"]
    lines = [
        f"{about['processor']}, {about['cores']} cores, load {about['load']:.1f} at the start; {options.threads} "
        f"threads, which got {share:.0%} of their cores; {len(events)} events, {options.rounds} rounds. Ratios: "
        "median (lowest to highest) over rounds.",
        "",
        *rate_table(ways, reference, spanet),
        "",
        *([] if spanet else ["SPANet was left out: no --spanet.", ""]),
        f"The peak of numpy's float32 matrix products is {peak / 1e9:.0f} GFLOP/s. A pass takes "
        f"{np.mean(work) / 1e6:.1f} MFLOP per event, so {best.engine} reaches {reached:.0%} of it, all included.",
        "Peak memory of `pairton reconstruct` on the sample: "
        + ", ".join(f"{engine} {run.peak_mib:.0f} MiB" for engine, run in start.items())
        + ".",
        "",
        *([*file_table(files), ""] if files else []),
        "| criterion | measured | |",
        "| --- | --- | --- |",
        *(f"| {c.text} | {c.measured} | {c.verdict} |" for c in criteria),
    ]
    print("\n".join(lines), flush=True)
    result |= {
        "ways": [vars(way) | {"run": None} for way in ways],
        "spanet": report,
        "peak_flops": peak,
        "share_of_peak": reached,
        "share_of_cores": share,
        "no_loss": loss,
        "cold_start": {engine: run._asdict() for engine, run in start.items()},
        "import_seconds": seconds,
        "end_to_end": files,
        "criteria": [vars(c) for c in criteria],
    }
    if options.plot:
        result["costs"] = measure_costs(models, sample, peak, max(1, options.rounds - 2))
        draw(result["costs"], options.plot)
    result["machine"]["load_at_the_end"] = os.getloadavg()[0]
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        if options.plot:
            where = os.path.relpath(options.plot, options.markdown.parent)
            lines += ["", f"![cost against jets and batch size, and the share of the peak]({where})"]
        write_markdown(lines, options.markdown)
    sys.exit(any(c.met is False for c in criteria))


if __name__ == "__main__":
    main()
