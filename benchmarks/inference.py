"""Compare the rate of reconstruction with plain eager torch and with SPANet, and check that answers are the same.

    python benchmarks/inference.py [--events FILE] [--spanet PYTHON] [--markdown F]

Rates are from events in memory to assignments with probabilities, on the sample of the package, repeated. All
methods take turns in one run. Rates are medians over rounds, and ratios are taken within a round. The command
fails if the answers differ from those of the plain loop.

plain      eager torch, batches of 256 in file order, padded to the longest event of the batch, the same decoder
--spanet   the Python of an environment with SPANet (workflow/peers/spanet/README.md): forward pass and decoding
           with random weights on the same events, with the best of its layouts and batch sizes
--events   a file with at least 20,000 complete events, on which fast and plain answers are compared
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pairton
from pairton.decoding import decode
from pairton.decoding.terms import Outputs
from pairton.evaluation.scores import matches
from pairton.events import Events
from pairton.events.nodes import Nodes
from pairton.models.engines import Engine
from pairton.models.model import Model
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.run_settings import RunSettings
from programs import run_command, write_input, write_markdown

SAMPLE = "sample:ttbar_allhad"
PLAIN_BATCH = 256
SPANET_BATCHES = ["64", "256", "1024"]
SAME = 0.999  # least share of equal answers
STARTS = 3  # of a program: the best counts
SPANET = Path(__file__).parents[1] / "workflow" / "peers" / "spanet" / "rate.py"

Run = Callable[[Events], npt.NDArray[np.int32]]  # from events to assignments (n, S)


@dataclass
class Way:
    """One way from events to answers, and its rates: one per round."""

    name: str  # the model and its decoding
    engine: str
    run: Run
    passes: float = 1.0  # of the network, per event
    rates: list[float] = field(default_factory=list)  # events per second
    processor_rates: list[float] = field(default_factory=list)  # events per second of CPU time


@dataclass(frozen=True)
class Counting:
    """An engine that counts the events it is run on."""

    engine: Engine
    seen: list[int]
    at_once: int = 1

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8] | None) -> Outputs:
        self.seen.append(len(nodes))
        return self.engine(nodes, tokens)


def make_ways(name: str, sample: Events, threads: int) -> list[Way]:
    """The default decoding, the same weights in steps, the model iterative, and last plain torch."""
    model, iterative = (pairton.load_model(each, threads=threads) for each in (name, "iterative"))
    ways = []
    for each, decoding in ((model, None), (model, "steps"), (iterative, None)):
        counting = Counting(each.engine, [])
        pairton.reconstruct(sample[:64], replace(each, engine=counting), decoding=decoding)
        strict = f"strict {len(each.topology.stages)} steps"
        title = f"{each.name}, {strict if decoding else f'{each.decoding} (its default)'}"
        ways.append(Way(title, "onnx", _runner(each, decoding), sum(counting.seen) / 64))
    return [*ways, Way(f"{ways[0].name}, plain", "torch, eager", plain(name, threads))]


def _runner(model: Model, decoding: str | None) -> Run:
    return lambda events: pairton.reconstruct(events, model, decoding=decoding).assignment


def plain(name: str, threads: int) -> Run:
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


def spanet_rates(python: Path, events: Path, threads: int, batches: list[str]) -> dict[str, Any]:
    """The rate of SPANet with random weights, in its own environment."""
    command = [str(python), str(SPANET), str(events), "--threads", str(threads), "--rounds", "2"]
    done = subprocess.run([*command, "--networks", "ttbar", "--batches", *batches], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def measure(ways: list[Way], events: Events, sample: Events, options: argparse.Namespace) -> Way | None:
    """Measure the rates of all ways in turn; also SPANet's, if asked for."""
    for way in ways:
        way.run(sample)  # warm up: compiles, enumerates, allocates
    spanet = Way("SPANet, random weights", "torch, eager", ways[0].run)
    batches = SPANET_BATCHES
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "sample.h5"
        write_input(source, len(sample))
        for _ in range(options.rounds):
            for way in ways:
                begun, before = time.perf_counter(), time.process_time()
                way.run(events)
                way.rates.append(len(events) / (time.perf_counter() - begun))
                way.processor_rates.append(len(events) / (time.process_time() - before))
            if options.spanet:
                found = spanet_rates(options.spanet, source, options.threads, batches)
                batches = [str(found["batch"])]  # the best one
                spanet.rates.append(found["events_per_second"])
                spanet.processor_rates.append(found["networks"]["ttbar"]["events_per_cpu_second"])
    return spanet if options.spanet else None


def compare(fast: Way, reference: Way, file: str, limit: int) -> tuple[int, float, float]:
    """On complete events: their number, the share of equal answers, and the difference in event efficiency."""
    events = pairton.read(file)
    events = events[np.nonzero(events.complete)[0][:limit]]
    topology, truth = events.topology, events.truth
    assert truth is not None
    one, other = fast.run(events), reference.run(events)
    same = matches(topology, other, one).all(axis=1)
    right, expected = (matches(topology, truth, answer).all(axis=1) for answer in (one, other))
    return len(events), float(same.mean()), float(right.mean() - expected.mean())


def rate_table(ways: list[Way], reference: Way, spanet: Way | None) -> list[str]:
    def times(way: Way, other: Way | None) -> str:
        if other is None:
            return ""
        found = [a / b for a, b in zip(way.rates, other.rates, strict=True)]
        return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"

    lines = [
        "| decoding | engine | passes | events/s | per CPU second | times plain | times SPANet |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for way in ways:
        rates = (f"{statistics.median(each):.0f}" for each in (way.rates, way.processor_rates))
        cells = way.name, way.engine, f"{way.passes:.3g}", *rates, times(way, reference), times(way, spanet)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def start_up(threads: int) -> tuple[str, str]:
    """Time and memory of the first result, and the time of `import pairton`, in new processes."""
    runs = [run_command("reconstruct", SAMPLE, "--threads", str(threads)) for _ in range(STARTS)]
    seconds = []
    for _ in range(STARTS):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", "import pairton"], check=True)
        seconds.append(time.monotonic() - begun)
    best = min(runs)
    first = f"{best.seconds:.2f} s ({best.processor_seconds:.2f} s of CPU time), {best.peak_mib:.0f} MiB"
    return first, f"{min(seconds):.2f} s"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="write the tables here, or between the marks of this page")
    parser.add_argument("--spanet", type=Path, metavar="PYTHON", help="of an environment with SPANet")
    parser.add_argument("--events", default=SAMPLE, metavar="FILE", help="to compare answers on")
    parser.add_argument("--limit", type=int, default=30_000, help="largest number of these events")
    parser.add_argument("--model", default="default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--count", type=int, default=8192, help="events per round: the sample, repeated")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    sample = pairton.read(SAMPLE)
    events = Events.concatenate([sample] * -(-options.count // len(sample)))[: options.count]
    sample = events[: len(sample)]
    ways = make_ways(options.model, sample, options.threads)
    fast, reference = ways[0], ways[-1]
    spanet = measure(ways, events, sample, options)
    n, same, difference = compare(fast, reference, options.events, options.limit)
    first, imported = start_up(options.threads)
    lines = [
        f"{processor()}, {os.cpu_count()} cores, load {load:.1f} at the start; {options.threads} threads; "
        f"{len(events)} events, {options.rounds} rounds. Ratios: median (lowest to highest) over rounds.",
        "",
        *rate_table([*ways, *([spanet] if spanet else [])], reference, spanet),
        "",
        "| | measured |",
        "| --- | --- |",
        f"| the assignment of the plain loop, in {n} complete events | {same:.3%} |",
        f"| event efficiency minus that of the plain loop, on the same events | {difference:+.5f} |",
        f"| first result from a cold start; peak memory of the sample | {first} |",
        f"| `import pairton` | {imported} |",
    ]
    print("\n".join(lines), flush=True)
    if options.markdown:
        write_markdown(lines, options.markdown, "inference.py")
    if same < SAME:
        sys.exit(f"only {same:.3%} of the answers are those of the plain loop: at least {SAME:.1%} must be")


if __name__ == "__main__":
    main()
