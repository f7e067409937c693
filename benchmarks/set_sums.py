"""Measure the time of the exact sums over all hypotheses against the number of jets.

    python benchmarks/set_sums.py [--events 64] [--rounds 3] [--largest 16]

Scores are random. Times are microseconds of CPU time per event, the best of some rounds. "complete" is for
networks without the output `patterns`, which only allow for complete events; "all" is for networks that allow for
missing particles. "sums" is the number of terms per event. "probabilities" is the time of the normaliser and of
the probability of every candidate, "answer" that of the best hypothesis. The last column is the ratio of the times
for both, all to complete.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pairton.decoding.patterns import MAX_SUMS, allowed_nodes, count_sums
from pairton.decoding.set_sums import best, log_sums, marginals
from pairton.decoding.set_tables import SetTables, set_tables
from pairton.topology import load_topology

FEW = 500_000  # with more sums per event, fewer events and rounds are used

COLUMNS = (
    "topology",
    "jets",
    "assignments",
    "hypotheses",
    "sums, complete",
    "sums, all",
    "probabilities, complete",
    "answer, complete",
    "probabilities, all",
    "answer, all",
    "all / complete",
)


def fastest(work: Callable[[], Any], events: int, rounds: int) -> float:
    """CPU time per event in microseconds."""
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


def hypotheses(tables: SetTables) -> int:
    """The number of hypotheses: the sum with every score 0."""
    equal = {name: np.zeros((len(known.objects), 1)) for name, known in tables.candidates.items()}
    return round(float(np.exp(log_sums(tables, equal)).sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--largest", type=int, default=16)
    settings = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for name in ("ttbar_allhad", "tth_allhad", "tttt_allhad"):
        topology = load_topology(name)
        for n_jets in range(len(topology.slots), settings.largest + 1, 2):
            allowed = allowed_nodes(topology, n_jets)
            sums = [count_sums(topology, allowed, complete_only) for complete_only in (True, False)]
            if sums[1] > MAX_SUMS:
                break
            rounds = settings.rounds if sums[1] < FEW else 1
            events = settings.events if sums[1] < FEW else min(settings.events, 16)
            cost: list[float] = []
            for complete_only in (True, False):
                tables = set_tables(topology, allowed, complete_only)
                scores = drawn(tables, events)
                patterns = [0] if complete_only else None  # the best of all patterns: --answer event,absent
                cost.append(fastest(lambda: marginals(tables, scores), events, rounds))  # noqa: B023
                cost.append(fastest(lambda: best(tables, scores, patterns=patterns), events, rounds))  # noqa: B023
            counts = [topology.count_assignments(n_jets), hypotheses(tables), *sums]
            cells = [name, str(n_jets), *(f"{count:,}" for count in counts)]
            cells += [f"{value:.0f}" for value in cost] + [f"{sum(cost[2:]) / sum(cost[:2]):.1f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
