"""m(tt) and pT of the tops in dileptonic events: the ellipses against smeared measurements, on the same events.

    python benchmarks/dilepton.py ttbar_dilep_test.h5

The events are those of `pairton generate` with all true objects found, and the true assignment. A resolution is
half the width of the central 68 % of (found - true) / true, a bias its median, and a tail the share beyond 0.5.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt

import pairton
from pairton.events.neutrinos import two_neutrinos
from pairton.kinematics.fit_settings import load_settings
from pairton.kinematics.smearing import DRAWS, smeared_neutrinos
from pairton.reconstruction.momenta import missing_momentum, slot_momenta

W, TOP = 80.37, 172.5


def row(name: str, found: npt.NDArray[np.float64], true: npt.NDArray[np.float64]) -> None:
    """A line of the table, for values (n,) or (n, 2)."""
    off = ((found - true) / true).ravel()
    off = off[np.isfinite(off)]
    low, middle, high = np.quantile(off, [0.16, 0.5, 0.84])
    draws = np.random.default_rng(1).choice(off, (100, len(off)))
    spread = (np.quantile(draws, 0.84, axis=1) - np.quantile(draws, 0.16, axis=1)).std() / 2
    tail, n = np.mean(np.abs(off) > 0.5), len(off)
    print(f"| {name} | {n} | {middle:+.3f} | {(high - low) / 2:.3f} ± {spread:.3f} | {tail:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--events", type=int, help="use only the first ones")
    parser.add_argument("--draws", type=int, default=DRAWS)
    arguments = parser.parse_args()
    events = pairton.read(arguments.file)[: arguments.events]
    truth = events.truth
    assert truth is not None
    known = np.asarray(events.selected & (truth >= 0).all(axis=1))
    events, truth = events[known], truth[known]
    slots, columns = slot_momenta(events, truth), events.columns
    at = {kind: [events.topology.slot_index(f"tl{k}.{kind}") for k in (1, 2)] for kind in "lb"}
    leptons, bs, met = slots[:, at["l"]], slots[:, at["b"]], missing_momentum(events)
    begin = time.process_time()
    ellipses = two_neutrinos(leptons, bs, met, W, TOP)
    middle = time.process_time()
    how = events.ids, load_settings().transfer, arguments.draws
    smeared = smeared_neutrinos(leptons, bs, met, W, TOP, *how)
    end = time.process_time()
    solved = np.asarray(np.isfinite(smeared).all(axis=(1, 2)))
    meet = np.asarray(ellipses.n_real > 0)
    print(f"{len(events)} events; in {meet.mean():.3f} the ellipses meet, in {solved.mean():.3f} those of a draw")
    each = [1e3 * seconds / len(events) for seconds in (middle - begin, end - middle)]
    print(
        "processor time per event: {:.2f} ms for ellipses, {:.2f} ms for {} draws".format(*each, arguments.draws)
    )
    smeared = np.where(solved[:, None, None], smeared, ellipses.p4[:, 0])
    true_mass = columns["tt_true_mass"]
    true_pt = np.stack([columns[f"tl{k}_true_pt"] for k in (1, 2)], axis=1)
    print("| quantity, events, method | entries | bias | resolution | tail |\n| --- | --- | --- | --- | --- |")
    for where, chosen in (("all", np.ones_like(meet)), ("meet", meet), ("do not meet", ~meet)):
        for name, neutrinos in (("ellipses", ellipses.p4[:, 0]), ("smeared", smeared)):
            tops = (leptons + bs + neutrinos)[chosen]
            pair = tops.sum(axis=1)
            mass = np.sqrt(pair[:, 3] ** 2 - (pair[:, :3] ** 2).sum(axis=1))
            row(f"m(tt), {where}, {name}", mass, true_mass[chosen])
            row(f"pT(t), {where}, {name}", np.hypot(*np.moveaxis(tops[..., :2], -1, 0)), true_pt[chosen])


if __name__ == "__main__":
    main()
