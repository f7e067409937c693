"""Compare leptons and missing energy of a generated l+jets sample with the truth, by numbers and a picture.

Use: `python benchmarks/generator_leptons.py semilep.h5 --plot leptons.png`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton import formats
from pairton.evaluation.neutrino_metric import TRUE_MOMENTUM
from pairton.events import Events
from pairton.events.vectors import polar
from pairton.reconstruction.momenta import missing_momentum, pick, slot_momenta

__all__ = ["main", "observables"]

Floats = npt.NDArray[np.float64]
SMEARED, TRUE = "measured missing energy", "true neutrino"
MEASURED, TRUE_ENERGY = "measured", "with the true energy"


def observables(events: Events) -> dict[str, dict[str, Floats]]:
    """Label of an axis -> label of a curve -> one value per selected event with a matched lepton."""
    events = events.select()
    assert events.truth is not None
    (leptonic,) = events.topology.of_type("tl")
    (lepton_slot,) = (k for k in leptonic.slots if events.topology.slots[k].kind == "lepton")
    slots = slot_momenta(events, events.truth)  # (n, slots, 4): px, py, pz, E
    has_lepton = events.truth[:, lepton_slot] >= 0
    lepton = slots[has_lepton, lepton_slot]
    energies = _true_energies(events, events.truth)  # (n, slots)
    scaled = slots * (energies / slots[..., 3])[..., None]  # the direction stays as measured
    matched = events.present[:, leptonic.index]
    visible, expected = (p4[matched][:, list(leptonic.slots)].sum(axis=1) for p4 in (slots, scaled))
    true = np.stack([np.asarray(events.columns[name], np.float64) for name in TRUE_MOMENTUM], axis=1)[has_lepton]
    met = missing_momentum(events)[has_lepton]  # (n, 2)
    smeared = np.concatenate([met, true[:, 2:]], axis=1)  # measured px and py, true pz
    difference = met - true[:, :2]
    return {
        "lepton pT [GeV]": {
            MEASURED: np.hypot(*lepton.T[:2]),
            TRUE_ENERGY: np.hypot(*scaled[has_lepton, lepton_slot].T[:2]),
        },
        "missing energy [GeV]": {SMEARED: np.hypot(*met.T), TRUE: np.hypot(*true[:, :2].T)},
        "missing energy less neutrino [GeV]": {"x": difference[:, 0], "y": difference[:, 1]},
        "mass of lepton and neutrino [GeV]": {SMEARED: _mass(lepton, smeared), TRUE: _mass(lepton, true)},
        "mass of lepton and its b jet [GeV]": {
            MEASURED: polar(visible)["mass"],
            TRUE_ENERGY: polar(expected)["mass"],
        },
    }


def _true_energies(events: Events, truth: npt.NDArray[np.integer]) -> Floats:
    """(n, slots): the energy of the quark or lepton that the object in each slot is matched to; NaN for none."""
    columns = [
        pick(
            np.asarray(ak.flatten(events.objects[slot.kind]["true_energy"]), np.float64),
            events,
            slot.kind,
            truth[:, slot.index],
        )
        for slot in events.topology.slots
    ]
    return np.where(truth >= 0, np.stack(columns, axis=1), np.nan)


def _mass(lepton: Floats, neutrino: Floats) -> Floats:
    energy = np.linalg.norm(neutrino, axis=1, keepdims=True)
    return polar(lepton + np.concatenate([neutrino, energy], axis=1))["mass"]


def _plot(samples: dict[str, dict[str, Floats]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(samples), figsize=(4 * len(samples), 3.4), layout="constrained")
    for axis, (label, curves) in zip(axes, samples.items(), strict=True):
        low, high = np.percentile(np.concatenate(list(curves.values())), [0.5, 99])
        for name, values in curves.items():
            axis.hist(values, bins=np.linspace(low, high, 36), density=True, histtype="step", label=name)
        axis.set(xlabel=label, ylabel="density")
        if len(curves) > 1:
            axis.set_ylim(top=1.35 * axis.get_ylim()[1])  # room for the legend
            axis.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python benchmarks/generator_leptons.py", description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--plot", type=Path, help="write a picture")
    options = parser.parse_args(arguments)
    found = observables(formats.read(options.file, topology="ttbar_semilep"))
    for label, curves in found.items():
        for name, values in curves.items():
            low, median, high = np.percentile(values, [15.865, 50, 84.135])
            numbers = {"median": round(float(median), 1), "half_width": round(float(high - low) / 2, 1)}
            print(f"{label:40} {name:24} {json.dumps(numbers)}")
    if options.plot is not None:
        _plot(found, options.plot)


if __name__ == "__main__":
    main()
