"""Measure the rate of SPANet with random weights, as JSON: python rate.py x.h5 [--threads 2]

The rate is from arrays in memory to assignments, with SPANet's own forward pass and decoding. There are three
networks: `ttbar`, of its all-hadronic example (options.json), `default`, of its default options, and `small`
(small.json). There are two layouts: `stored`, as in SPANet, has the order and the padding of the file; `sorted`
orders events by jet count and cuts the padding, which is faster. Each rate is the best of several rounds. The main
result, `events_per_second`, is for the first network, with its best layout and batch size.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from common import HERE, all_events, by_jet_count, check_events, fail, make_model, take, use_threads
from spanet import JetReconstructionModel, Options
from spanet.dataset.types import Source

Batches = list[tuple[Source, ...]]

NETWORKS = {"ttbar": "options.json", "default": None, "small": "small.json"}  # None: the package's own


def batches(model: JetReconstructionModel, layout: str, size: int) -> Batches:
    dataset = all_events(model)
    if layout == "stored":
        return [dataset[start : start + size].sources for start in range(0, len(dataset), size)]
    cut = [take(dataset, rows).sources for rows in by_jet_count(dataset, size, None)]
    return [tuple(Source(s.data.contiguous(), s.mask.contiguous()) for s in sources) for sources in cut]


def seconds(model: JetReconstructionModel, events: Batches, decode: bool = True) -> tuple[float, float]:
    """Wall-clock time and CPU time. On a busy machine, they tell how far the first can be trusted."""
    start, work = time.perf_counter(), time.process_time()
    with torch.no_grad():
        for sources in events:
            model.predict_assignments(sources) if decode else model(sources)
    return time.perf_counter() - start, time.process_time() - work


def measure(options: Options, args: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    model = make_model(options, args.events).eval()
    rates: list[dict[str, Any]] = []
    best: dict[str, Any] = {"events_per_second": 0.0}
    for layout in ("stored", "sorted"):
        for size in args.batches:
            events = batches(model, layout, size)
            count = sum(len(sources[0].mask) for sources in events)
            model.predict_assignments(events[0])
            took, work = min(seconds(model, events) for _ in range(args.rounds))
            rates.append(
                {
                    "layout": layout,
                    "batch": size,
                    "events_per_second": count / took,
                    "events_per_cpu_second": count / work,
                }
            )
            if rates[-1]["events_per_second"] > best["events_per_second"]:
                forward, _ = min(seconds(model, events, decode=False) for _ in range(args.rounds))
                best = {**rates[-1], "forward_events_per_second": count / forward}
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    stored = max(rate["events_per_second"] for rate in rates if rate["layout"] == "stored")
    return {"parameters": parameters, **best, "stored_events_per_second": stored, "rates": rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("events", type=Path, help="from `pairton convert sample:ttbar_allhad x.h5`")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    args = parser.parse_args()
    if min(*args.batches, args.rounds, 1) < 1:
        fail("--batches and --rounds must be positive")
    check_events(args.events)
    use_threads(args.threads)
    networks = {}
    for name in args.networks:
        file = NETWORKS[name]
        options = Options.load(str(HERE / file)) if file else Options()
        options.partial_events = True
        networks[name] = measure(options, args)
    first = networks[args.networks[0]]
    result = {
        "spanet": version("spanet"),
        "torch": torch.__version__,
        "threads": args.threads,
        "events_per_second": first["events_per_second"],
        "batch": first["batch"],
        "layout": first["layout"],
        "parameters": first["parameters"],
        "networks": networks,
    }
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
