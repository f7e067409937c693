"""Cost of the exact sums over all hypotheses against the number of jets, per event and on one core.

    python benchmarks/set_sums.py [--events 128] [--rounds 5] [--largest 16]

Random scores; microseconds of the processor per event, the best of some rounds. "complete" sums over complete
hypotheses alone, "all" over all of them, "marginals" adds the probability of every candidate, "best" finds the
best hypothesis of every pattern. The last column is a ratio within the run: "marginals" to "all".
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pairton.decoding.set_sums import best, log_sums, marginals
from pairton.decoding.set_tables import MAX_SUMS, SetTables, allowed_nodes, count_sums, set_tables
from pairton.topology import load_topology


def fastest(work: Callable[[], Any], events: int, rounds: int) -> float:
    """Microseconds of the processor per event."""
    times = []
    for _ in range(rounds + 1):  # the first one makes lazy tables
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return 1e6 * min(times[1:]) / events


def drawn(tables: SetTables, events: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {
        name: rng.normal(scale=3, size=(len(known.objects), events)).astype(np.float32)
        for name, known in tables.candidates.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=16)
    settings = parser.parse_args()
    print("| topology | jets | assignments | sums | tables/s | complete | all | marginals | best | ratio |")
    print(f"|{'---|' * 10}")
    for name in ("ttbar_allhad", "tth_allhad", "tttt_allhad"):
        topology = load_topology(name)
        for n_jets in range(min(len(topology.slots), 12), settings.largest + 1, 2):
            allowed = allowed_nodes(topology, n_jets)
            sums = count_sums(topology, allowed)
            if sums > MAX_SUMS:
                break
            rounds = settings.rounds if sums < 500_000 else 1
            events = settings.events if sums < 500_000 else min(settings.events, 32)
            begun = time.process_time()
            tables = set_tables(topology, allowed)
            build = time.process_time() - begun
            scores = drawn(tables, events)
            complete = set_tables(topology, allowed, complete_only=True)
            cost = [
                fastest(lambda: log_sums(complete, scores), events, rounds),  # noqa: B023
                fastest(lambda: log_sums(tables, scores), events, rounds),  # noqa: B023
                fastest(lambda: marginals(tables, scores), events, rounds),  # noqa: B023
                fastest(lambda: best(tables, scores), events, rounds),  # noqa: B023
            ]
            print(
                f"| {name} | {n_jets} | {topology.count_assignments(n_jets)} | {sums} | {build:.2f} |",
                " | ".join(f"{value:.1f}" for value in cost),
                f"| {cost[2] / cost[1]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
