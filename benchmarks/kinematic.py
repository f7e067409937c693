"""Rate of the kinematic fit by the number of jets, in events per second of the processor, that is of one core.

    python benchmarks/kinematic.py FILE [--topology ttbar_semilep] [--events 1000]

"several" and "klfitter" are choices of `starts`. The last columns are ratios within the run: how many times
longer several starts take than one, and than the mass chi-square of `--baseline chi2` on the same events.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

import pairton
from pairton.evaluation.baselines import MassChiSquare
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.events.tags import ensure_evidence
from pairton.kinematics.fit_settings import load_settings
from pairton.kinematics.fitting import KinematicFit


def seconds(work: Callable[[Any], Any], given: Any) -> float:
    """Of the processor."""
    before = time.process_time()
    work(given)
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--topology", default="ttbar_semilep")
    parser.add_argument("--events", type=int, default=1000)
    given = parser.parse_args()
    events = ensure_evidence(next(pairton.iterate(given.file, topology=given.topology, chunk=given.events)))
    topology = events.topology
    several = KinematicFit(topology, load_settings())
    klfitter = KinematicFit(topology, replace(load_settings(), starts="klfitter"))
    chi_square = MassChiSquare().fit(events)
    accepted = accept(events, Domain.of_selection(topology), several.inputs)
    main_kind = topology.kinds.index(topology.main_kind)
    print("jets  events  several/s  klfitter/s  several : klfitter  several : chi2")
    layouts = [(layout, rows) for layout, rows in accepted.by_layout(accepted.answerable)]
    for layout, rows in sorted(layouts, key=lambda each: each[0][main_kind]):
        nodes, chosen = accepted.batch(rows, layout), events[rows]
        used = chosen.keep(chosen.passes)
        several.answer(accepted.batch(rows[:1], layout))  # tables are made once
        chi_square.assign(used[:1])
        one, other = seconds(several.answer, nodes), seconds(klfitter.answer, nodes)
        chi2 = seconds(chi_square.assign, used)
        numbers = f"{len(rows) / one:9.0f}  {len(rows) / other:10.0f}  {one / other:18.1f}  {one / chi2:14.1f}"
        print(f"{layout[main_kind]:4}  {len(rows):6}  {numbers}", flush=True)


if __name__ == "__main__":
    main()
