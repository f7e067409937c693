"""Measure how radiation settings, jet scale and tagging change the jets of ttbar events.

    python benchmarks/generator_radiation.py --events 8000

Prints one line of JSON for each setting of Pythia and each variant of the detector, with percentages of simulated
events, and jet counts of complete and of reconstructible events. All variants of a setting have the same events.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import numpy as np

from generator_comparison import summarise
from pairton.events import Events
from pairton.generator.card import Card, load_card
from pairton.generator.pythia import PythiaRun, load_processes
from pairton.generator.pythia_record import flatten
from pairton.generator.simulation import keep_mask, simulate
from pairton.topology import load_topology

__all__ = ["SETTINGS", "main", "variants"]

NO_CORRECTIONS = ("TimeShower:MEcorrections = off",)
MCATNLO_FINAL = (*NO_CORRECTIONS, "TimeShower:globalRecoil = on", "TimeShower:weightGluonToQuark = 1")
WIMPY = ("SpaceShower:pTmaxMatch = 1", "TimeShower:pTmaxMatch = 1", "SpaceShower:MEcorrections = off")
UNDAMPED = ("SpaceShower:pTdampMatch = 0",)
A14, MONASH = ("Tune:pp = 21",), ("Tune:pp = 14",)

# label -> seed and lines for Pythia, after those of processes.yaml
SETTINGS = {
    "A14": (11, A14),
    "A14, no corrections in decays": (12, (*A14, *NO_CORRECTIONS)),
    "A14, undamped": (15, (*A14, *UNDAMPED)),
    "Monash": (13, MONASH),
    "Monash, final state as for MC@NLO": (21, (*MONASH, *MCATNLO_FINAL)),
    "Monash, all as for MC@NLO": (14, (*MONASH, *WIMPY, *MCATNLO_FINAL)),
    "Monash, undamped, no corrections in decays": (16, (*MONASH, *UNDAMPED, *NO_CORRECTIONS)),
}


def variants(card: Card) -> dict[str, Card]:
    """Variants of the detector that may change the number of jets or tags."""
    hcal = replace(card.hcal, terms=card.hcal.terms * [1, 1, 0], significance=0.0, threshold=0.2)
    ecal = replace(card.ecal, significance=0.0, threshold=0.1)
    unscaled = replace(card.jets, scale=(0.0, 0.0))
    return {
        "atlas": card,
        "larger scale": replace(card, jets=replace(card.jets, scale=(3.48, -0.2))),
        "no scale": replace(card, jets=unscaled),
        "no noise, no scale": replace(card, jets=unscaled, hcal=hcal, ecal=ecal),
        "tags within 0.5": replace(card, btag=replace(card.btag, cone=0.5, hadron_pt=1.0)),
    }


def study(seed: int, lines: tuple[str, ...], n_events: int) -> dict[str, dict[str, Any]]:
    """The numbers of one setting, by variant of the detector."""
    processes, topology = load_processes(), load_topology("ttbar_allhad")
    cards = variants(load_card("atlas"))
    run = PythiaRun((*processes.lines(topology, False), *lines), seed)
    made: dict[str, list[Events]] = {name: [] for name in cards}
    for k, batch in enumerate(run.batches(n_events, 250)):
        record = flatten(batch)
        for name, card in cards.items():
            rng = np.random.default_rng((seed, k))
            made[name].append(simulate(record, run.charge, topology, card, rng))
    out = {}
    for name, parts in made.items():
        events = Events.concatenate(parts)
        shares = {
            "selected_percent": events.selected,
            "reconstructible_percent": keep_mask(events, "reconstructible"),
            "fully_reconstructible_percent": events.selected & events.complete,
        }
        percent = {key: round(100 * float(mask.mean()), 2) for key, mask in shares.items()}
        out[name] = {"simulated": len(events), **percent, **summarise(events)}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=8000)
    parser.add_argument("--only", choices=list(SETTINGS))
    options = parser.parse_args()
    for label, (seed, lines) in SETTINGS.items():
        if options.only in (None, label):
            for variant, numbers in study(seed, lines, options.events).items():
                print(json.dumps({"pythia": label, "detector": variant, **numbers}), flush=True)


if __name__ == "__main__":
    main()
