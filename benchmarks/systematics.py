"""How far the probabilities and masses of a model move under systematic variations, with their bands as a figure.

    python benchmarks/systematics.py FILE [--model ttbar_semilep] [--events 2000] [--other NAME=FILE] [-o band.png]

The variations are of jets in memory: energies times 1.01 and 0.99, energies smeared by a tenth, and one in twenty
b-tags lost; the missing energy follows. Other samples, such as one of another tune, are compared with the first.
"""

from __future__ import annotations

import argparse
from typing import Any

import awkward as ak
import numpy as np

import pairton
from pairton.events import Events

LOST = 0.05  # share of b-tags
SMEARED = 0.1  # of the energy
EDGES = np.linspace(300, 1000, 15)


def varied(events: Events) -> dict[str, ak.Array]:
    """Name -> jets."""
    jets, rng = events.jets, np.random.default_rng(1)
    counts = ak.num(jets)
    total = int(ak.sum(counts))

    def scaled(factor: Any) -> ak.Array:
        return ak.with_field(ak.with_field(jets, jets.pt * factor, "pt"), jets.energy * factor, "energy")

    keep = ak.unflatten(rng.random(total) > LOST, counts)
    untagged = jets
    for field in {"btag", "tagbin", "score"} & set(ak.fields(jets)):
        untagged = ak.with_field(untagged, ak.where(keep, jets[field], 0 * jets[field]), field)
    smear = ak.unflatten(np.clip(rng.normal(1, SMEARED, total), 0.5, 1.5), counts)
    return {"JES +1 %": scaled(1.01), "JES -1 %": scaled(0.99), "JER": scaled(smear), "b-tags -5 %": untagged}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--model", default="ttbar_semilep")
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--other", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("-o", "--output", help="a figure of m(tt) with its band")
    given = parser.parse_args()
    model = pairton.load_model(given.model)

    def read(path: str) -> Events:
        return next(pairton.iterate(path, topology=model.topology, chunk=2 * given.events)).select()[
            : given.events
        ]

    events = read(given.file)
    nominal = pairton.reconstruct(events, model, variations=varied(events))
    found = {"nominal": nominal, **nominal.variations}
    for name, _, path in (text.partition("=") for text in given.other):
        found[name] = pairton.reconstruct(read(path), model)
    print("| | events | mean P(event) | right | median m(t) / GeV | median m(tt) / GeV |")
    print("| --- | --- | --- | --- | --- | --- |")
    counts = {}
    for name, each in found.items():
        good = each.status == pairton.Status.OK
        truth = each.events.truth
        assert truth is not None
        right = (each.assignment == truth).all(axis=1)  # of several equal orders, that of falling pT counts
        for symmetry in model.topology.symmetries:
            right |= (each.assignment == truth[:, symmetry]).all(axis=1)
        mass, pair = np.asarray(each.t.mass[good][:, 0]), np.asarray(each.tt.mass[good])
        numbers = np.nanmedian(mass), np.nanmedian(pair)
        chance, share = each.event_probability[good].mean(), right[good].mean()
        print(f"| {name} | {good.sum()} | {chance:.4f} | {share:.4f} | {numbers[0]:.1f} | {numbers[1]:.1f} |")
        counts[name] = np.histogram(pair, EDGES)[0] / good.sum()
    if given.output:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(6, 4))
        every = np.array(list(counts.values()))
        axis.stairs(every.max(axis=0), EDGES, baseline=every.min(axis=0), fill=True, alpha=0.4, label="variations")
        axis.stairs(counts["nominal"], EDGES, color="black", label="nominal")
        axis.set(xlabel="m(tt) / GeV", ylabel="share of events", xlim=(EDGES[0], EDGES[-1]))
        axis.legend()
        figure.savefig(given.output, bbox_inches="tight", dpi=110)


if __name__ == "__main__":
    main()
