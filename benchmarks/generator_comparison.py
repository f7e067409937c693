"""Describe generated samples by numbers and a picture: shares kept, masses of matched particles, jet counts.

Use: `python benchmarks/generator_comparison.py events.h5 --plot events.png`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton import formats
from pairton.events import Events
from pairton.reconstruction.result import momenta
from pairton.topology.extras import bin_index, bin_names

Floats = npt.NDArray[np.float64]


def masses(events: Events, type_name: str) -> Floats:
    """Invariant masses of the matched jets of all present particles of a type."""
    assert events.truth is not None
    columns = [particle.index for particle in events.topology.of_type(type_name)]
    return np.asarray(momenta(events, events.truth)["mass"].T[columns][events.present.T[columns]])


def _mix(events: Events, chosen: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Percentages of the multiplicity bins."""
    index = bin_index(events.topology, events.n_jets[chosen])
    return {
        name: round(100 * float(np.mean(index == k)), 1) if len(index) else 0.0
        for k, name in enumerate(bin_names(events.topology))
    }


def summarise(events: Events) -> dict[str, Any]:
    """Numbers of the selected events; percentages of simulated events are included if the file has counts."""
    counts = events.metadata.get("generator", {}).get("counts")
    events = events.select()
    full = events.complete
    some = np.asarray(events.present.any(axis=1))
    out: dict[str, Any] = {"selected": len(events), "complete": int(full.sum())}
    if counts:
        out["simulated"] = counts["simulated"]
        for name, mask in {"selected": events.selected, "reconstructible": some, "complete": full}.items():
            out[f"{name}_percent"] = round(100 * int(mask.sum()) / counts["simulated"], 2)
    out["jets_percent_fully_reconstructible"] = _mix(events, full)
    out["jets_percent_reconstructible"] = _mix(events, some)
    for name in events.topology.types:
        low, median, high = np.percentile(masses(events, name), [15.865, 50, 84.135])
        out[f"mass_{name}"] = {"median": round(float(median), 1), "half_width": round(float(high - low) / 2, 1)}
    return out


def observables(events: Events) -> dict[str, Floats]:
    """One number per event, selected or not, from the jets that pass the cuts of the selection."""
    events = events.keep(events.passes)
    assert events.truth is not None
    jets = events.jets
    columns = {
        "jets": events.n_jets,
        "btags": ak.sum(jets.btag, axis=1),
        "log_ht": np.log1p(ak.sum(jets.pt, axis=1)),
        "mean_abs_eta": ak.fill_none(ak.mean(np.abs(jets.eta), axis=1), 0.0),
        "mean_mass_over_pt": ak.fill_none(ak.mean(jets.mass / jets.pt, axis=1), 0.0),
        "matched": (events.truth >= 0).sum(axis=1),
        "selected": events.selected,
        "reconstructible": events.present.mean(axis=1),
    }
    return {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}


def _plot(samples: dict[str, Events], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    types = next(iter(samples.values())).topology.types
    figure, axes = plt.subplots(1, len(types) + 2, figsize=(4 * (len(types) + 2), 3.4), layout="constrained")
    for label, sample in samples.items():
        events = sample.select()
        for axis, name in zip(axes, types, strict=False):
            values = masses(events, name)
            middle = np.median(values)
            bins = np.linspace(0.4 * middle, 1.8 * middle, 57)
            axis.hist(values, bins=bins, density=True, histtype="step", label=label)
            axis.set_xlabel(f"mass of matched {name} jets [GeV]")
        full = events[events.complete]
        edges = np.arange(len(events.topology.slots), len(events.topology.slots) + 8) - 0.5
        axes[-2].hist(full.n_jets, bins=edges, density=True, histtype="step", label=label)
        axes[-2].set_xlabel("jets, fully reconstructible events")
        pt = np.asarray(ak.flatten(events.jets.pt))
        axes[-1].hist(pt, bins=np.geomspace(25, 500, 50), density=True, histtype="step", label=label)
        axes[-1].set(xlabel="pT of jets [GeV]", xscale="log", yscale="log")
        axes[-1].set_xticks([30, 50, 100, 200, 400], ["30", "50", "100", "200", "400"], minor=False)
        axes[-1].set_xticks([], minor=True)
    for axis in axes:
        axis.set_ylabel("density")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python benchmarks/generator_comparison.py", description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--plot", type=Path, help="picture of all files together")
    parser.add_argument("--means", action="store_true", help="mean and spread of observables, over all events")
    options = parser.parse_args(arguments)
    samples = {Path(name).stem: formats.read(name) for name in options.files}
    if options.means:
        for events in samples.values():
            spread = {
                k: [round(float(v.mean()), 5), round(float(v.std()), 5)] for k, v in observables(events).items()
            }
            print(json.dumps({"n_events": len(events), "observables": spread}, indent=1))
        return
    print(json.dumps({label: summarise(events) for label, events in samples.items()}, indent=1))
    if options.plot is not None:
        _plot(samples, options.plot)


if __name__ == "__main__":
    main()
