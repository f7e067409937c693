"""The time per event against its number of jets and the batch size, and the share of the machine's peak.

Operations of matrix products are counted from the network's settings. Used by inference.py.

Shapes: B events, N jets, M = N (N + 1) / 2 pairs, P pair width.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.parallel import in_parallel
from pairton.decoding.terms import triplet_types
from pairton.events import Events
from pairton.events.inputs import MOMENTUM
from pairton.events.nodes import Nodes
from pairton.models.engines import Model
from pairton.reconstruction.running import BATCH, Assigner, RunSettings
from pairton.topology import Topology

__all__ = ["draw", "flops", "matmul_peak", "measure_costs"]

F32 = npt.NDArray[np.float32]

N_JETS = range(6, 17)
SIZES = tuple(2**k for k in range(11))
JETS_OF_SIZES = 7  # jets per event when batch sizes are compared


def matmul_peak(rounds: int = 8, size: int = 1536) -> float:
    """FLOP/s of a large float32 matrix product of numpy, the best of several."""
    one = np.random.default_rng(0).random((size, size), dtype=np.float32)
    out = one @ one
    return 2 * size**3 / min(_seconds(lambda: np.matmul(one, one, out=out)) for _ in range(rounds))


def flops(config: Mapping[str, Any], topology: Topology, n_jets: int) -> float | None:
    """Operations of the matrix products of a pass for one event, with heads and triangles; None for other
    networks.

    >>> from pairton.topology import load_topology
    >>> small = {"architecture": "symmetric", "blocks": 1, "pair_width": 2, "transition": 2, "gates": False,
    ...          "triplets": "none", "single_stream": False, "triangle_attention": False}
    >>> flops(small, load_topology("ttbar_allhad"), 1)  # twice 8 + 4 + 4 + 8 + 8, and heads
    96.0
    """
    if config["architecture"] != "symmetric" or config["single_stream"] or config["triangle_attention"]:
        return None
    width, gates = int(config["pair_width"]), bool(config.get("gates", True))
    hidden = width * int(config["transition"])
    triangle = width * (5 if gates else 2) * width + 2 * n_jets * width + width * width
    transition = width * (1 + gates) * hidden + hidden * width
    heads = width * width + len(topology.types) * (width * width + width)
    kinds = triplet_types(topology) if config["triplets"] == "potential" else {}
    heads += sum((1 if symmetric else 2) * width * width for symmetric in kinds.values())
    pairs, triplets = n_jets * (n_jets + 1) // 2, n_jets * (n_jets - 1) * (n_jets - 2) // 2
    multiplications = pairs * (int(config["blocks"]) * (triangle + transition) + heads)
    return 2.0 * (multiplications + len(kinds) * triplets * width)


def measure_costs(models: Mapping[str, Model], sample: Events, peak: float, rounds: int) -> dict[str, Any]:
    """Rows for jet counts and for batch sizes; engines take turns."""
    model = next(iter(models.values()))
    fields = (*MOMENTUM, *(taken.field for taken in model.info.inputs["jet"]))
    sample = Assigner(model, RunSettings()).with_evidence(sample)
    jets: list[dict[str, Any]] = []
    for n_jets in N_JETS:
        count = 4 * BATCH if n_jets < 10 else 2 * BATCH
        crowd = _crowd(sample, fields, n_jets, count)
        network = {name: _network(model) for name, model in models.items()}
        whole = {name: _whole(model) for name, model in models.items()}
        only = _by_turns(network, crowd, BATCH, models, rounds)
        both = _by_turns(whole, crowd, BATCH, models, rounds)
        for name, model in models.items():
            work = flops(model.info.network, model.topology, n_jets)
            row: dict[str, Any] = {"engine": name, "n_jets": n_jets}
            row["microseconds"] = 1e6 * both[name] / count
            row["network_microseconds"] = 1e6 * only[name] / count
            row["mflop"] = None if work is None else work / 1e6
            row["share_of_peak"] = None if work is None else work * count / only[name] / peak
            jets.append(row)
    sizes: list[dict[str, Any]] = []
    for size in SIZES:
        count = max(2 * size, 2 * BATCH)
        crowd = _crowd(sample, fields, JETS_OF_SIZES, count)
        found = _by_turns({name: _whole(model) for name, model in models.items()}, crowd, size, models, rounds)
        sizes += [{"engine": name, "batch": size, "events_per_second": count / found[name]} for name in models]
    return {"n_jets": jets, "batch": sizes}


Call = Callable[[Nodes], Any]


def _network(model: Model) -> Call:
    return lambda nodes: model.predict(nodes)


def _whole(model: Model) -> Call:
    return Assigner(model, RunSettings(max_objects=max(N_JETS))).assign


def _by_turns(
    calls: Mapping[str, Call], jets: F32, size: int, models: Mapping[str, Model], rounds: int
) -> dict[str, float]:
    """Seconds of each call for all events in batches of that size: the best of some rounds, after a warm-up."""
    batches = [jets[start : start + size] for start in range(0, len(jets), size)]
    best = dict.fromkeys(calls, np.inf)
    for turn in range(rounds + 1):
        for name, call in calls.items():

            def answer(batch: F32, call: Call = call) -> None:
                call(Nodes.full({"jet": batch}))

            at_once = models[name].engine.at_once
            spent = _seconds(lambda work=answer, at_once=at_once: in_parallel(work, batches, at_once))  # type: ignore[misc]
            if turn:
                best[name] = min(best[name], spent)
    return best


def _crowd(sample: Events, fields: Sequence[str], n_jets: int, count: int) -> F32:
    """(B, N, F): events of n_jets successive jets of the sample, whatever their event, by falling pT."""
    columns = [np.asarray(ak.flatten(sample.jets[name]), np.float32) for name in fields]
    flat = np.stack(columns, axis=1)
    chosen = flat[np.arange(count * n_jets).reshape(count, n_jets) % len(flat)]
    return np.take_along_axis(chosen, np.argsort(-chosen[:, :, 0], axis=1)[:, :, None], axis=1)


def _seconds(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def draw(costs: Mapping[str, Any], target: Path) -> None:
    """Draw the time against jets, the rate against the batch size, and the share of the peak against jets."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from pairton.report.style import COLOURS, MARKERS, styled

    with styled():
        figure, (cost, rate, share) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
        for k, engine in enumerate(dict.fromkeys(row["engine"] for row in costs["n_jets"])):
            jets, sizes = ([r for r in costs[key] if r["engine"] == engine] for key in ("n_jets", "batch"))
            look = {"color": COLOURS[k], "marker": MARKERS[k]}
            counts = [row["n_jets"] for row in jets]
            cost.plot(counts, _column(jets, "microseconds"), label=f"{engine}, with decoding", **look)
            network = _column(jets, "network_microseconds")
            cost.plot(counts, network, label=f"{engine}, network", ls=":", mfc="white", **look)
            rate.plot(_column(sizes, "batch"), _column(sizes, "events_per_second"), label=engine, **look)
            if jets[0]["share_of_peak"] is not None:
                share.plot(counts, 100 * np.array(_column(jets, "share_of_peak")), label=engine, **look)
        cost.set(xlabel="jets", ylabel="microseconds per event", yscale="log")
        cost.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        cost.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
        rate.set(xlabel="events in a batch", ylabel=f"events/s with {JETS_OF_SIZES} jets", ylim=(0, None))
        rate.set_xscale("log", base=2)
        rate.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        rate.axvline(BATCH, color="0.6", lw=1, zorder=0)
        share.set(xlabel="jets", ylabel="share of the peak of products [%]", ylim=(0, None))
        for axes in (cost, rate, share):
            axes.legend(loc="best", frameon=False, fontsize=9.5)
        figure.savefig(target, dpi=110)
        plt.close(figure)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]
