"""What large jets add: particles found, resolved or merged in one sum, and resolved alone, by their true pT.

    python benchmarks/boosted.py MODEL RESOLVED_MODEL --both FILE ... --resolved FILE ...

Both lists of files have the same events, in the same order: `pairton generate NAME_boosted --seed N --keep all`
and `pairton generate NAME --process NAME_boosted --seed N --keep all`. Both models use the same small jets.
A particle is found if all its jets are right, or the large jet that it is in.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

import pairton
from pairton.topology import JET, Topology

EDGES = (0, 200, 300, 400, 600, 1000, 3000)  # GeV
CUTS = "pt>25,abs_eta<2.5"

Ints = npt.NDArray[np.integer[Any]]


def described(topology: Topology, assignment: Ints) -> list[tuple[list[int], Ints]]:
    """Each root particle: which of its slots hold small jets, and its objects (E, slots), equal ones sorted."""
    found = []
    for root in topology.roots:
        slots = [slot for slot in topology.slots if slot.name.split(".")[0] == root.name]
        objects = assignment[:, [slot.index for slot in slots]].copy()
        twins: dict[str, list[int]] = {}
        for at, slot in enumerate(slots):  # q1 and q2 of a W, b1 and b2 of a Higgs boson
            twins.setdefault(slot.name.rstrip("0123456789"), []).append(at)
        for places in twins.values():
            objects[:, places] = np.sort(objects[:, places], axis=1)
        found.append(([at for at, slot in enumerate(slots) if slot.kind == JET], objects))
    return found


def right(topology: Topology, truth: Ints, answer: Ints) -> npt.NDArray[np.bool_]:
    """(E, roots): whether a root particle, if its truth is known, is one of those of the answer."""
    answers = [objects for _, objects in described(topology, answer)]
    columns = []
    for small, true in described(topology, truth):
        merged = [at for at in range(true.shape[1]) if at not in small]
        known = (true[:, small] >= 0).all(axis=1) | (true[:, merged] >= 0).any(axis=1)
        columns.append(known & np.any([(objects == true).all(axis=1) for objects in answers], axis=0))
    return np.stack(columns, axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs=2)
    parser.add_argument("--both", nargs="+", required=True)
    parser.add_argument("--resolved", nargs="+", required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    def answers(model: str, paths: Iterable[str]) -> tuple[pairton.Events, Ints]:
        loaded = pairton.load_model(model, threads=1)
        events = pairton.read(list(paths), topology=loaded.topology)
        return events, pairton.reconstruct(events, loaded, jets=CUTS).assignment

    both, merged_answer = answers(options.models[0], options.both)
    alone, resolved_answer = answers(options.models[1], options.resolved)
    assert np.array_equal(both.ids, alone.ids), "the files must have the same events"
    assert both.truth is not None
    assert alone.truth is not None
    name = both.topology.roots[0].type
    roots = range(1, len(both.topology.roots) + 1)
    pt = np.stack([np.asarray(both.columns[f"{name}{k}_true_pt"]) for k in roots], axis=1)
    # the answer of the first model, as far as it is resolved, in the slots of the second topology
    names = [slot.name for slot in both.topology.slots]
    resolved_part = merged_answer[:, [names.index(slot.name) for slot in alone.topology.slots]]
    first = right(both.topology, both.truth, merged_answer) | right(alone.topology, alone.truth, resolved_part)
    second = right(alone.topology, alone.truth, resolved_answer)
    print("| pT [GeV] | particles | resolved or merged | resolved alone | difference |")
    print("| --- | --- | --- | --- | --- |")
    for low, high in pairwise(EDGES):
        here = (pt >= low) & (pt < high)
        n, one, other = int(here.sum()), first[here] * 1.0, second[here] * 1.0
        cells = [f"{v.mean():.3f} ± {v.std() / np.sqrt(max(n, 1)):.3f}" for v in (one, other, one - other)]
        print(f"| {low} to {high} | {n:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
