"""The same labelled events with other inputs, to see whether a network could know more, or would know less.

    python workflow/inputs.py FILE --inputs no_mass -o no_mass.h5
    python workflow/inputs.py FILE --inputs graded_tag -o graded_tag.h5

no_mass     every jet is massless: its momentum stays
graded_tag  the b-tag is a number between 0 and 1 instead of one of them, as of a tagger whose score is not cut. It
            is drawn by the truth: a score x is normal, with width 1 and its mean at 0 for light jets, at CHARM for
            those of charm and at B for those of b quarks, and x > CUT is the tag that the jet has; the number is
            the logistic function of x - CUT, above 0.5 for tagged jets, so that the same events are selected. The
            files do not know charm: what is tagged and no b quark's counts as charm, the rest as light.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import awkward as ak
import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtr, ndtri

from pairton.errors import PairtonError
from pairton.events import Events
from pairton.events.objects import make_jets
from split import rewrite

__all__ = ["INPUTS", "change", "graded_tag", "no_mass"]

# Shares above CUT of the generator's card for jets of 70 GeV: 0.0025 of light ones, 0.14 of charm, 0.71 of b.
CUT, CHARM, B = 2.81, 1.74, 3.35

Random = np.random.Generator


def no_mass(events: Events, rng: Random) -> Events:
    jets = events.jets
    fields = {name: jets[name] for name in ("pt", "eta", "phi", "btag")}
    return events.replace(jets=make_jets(mass=ak.zeros_like(jets.pt), **fields))


def graded_tag(events: Events, rng: Random) -> Events:
    jets, counts = events.jets, events.n_jets
    tagged = np.asarray(ak.flatten(jets.btag)) > 0.5
    score = _normal(np.where(_of_b(events), B, np.where(tagged, CHARM, 0.0)), tagged, rng)
    fields = {name: jets[name] for name in ("pt", "eta", "phi", "energy")}
    return events.replace(jets=make_jets(btag=ak.unflatten(expit(score - CUT), counts), **fields))


def _of_b(events: Events) -> npt.NDArray[np.bool_]:
    """Whether a jet, flat, is that of a b quark."""
    assert events.truth is not None
    places = [k for k, slot in enumerate(events.topology.slots) if _product(slot.name) == "b"]
    jet = events.truth[:, places]
    first = np.cumsum(events.n_jets) - events.n_jets
    found = np.zeros(int(events.n_jets.sum()), dtype=bool)
    found[(first[:, None] + jet)[jet >= 0]] = True
    return found


def _product(name: str) -> str:
    """
    >>> _product("t1.W.q2"), _product("H.b1")
    ('q', 'b')
    """
    return name.rpartition(".")[2].rstrip("0123456789")


def _normal(mean: npt.NDArray[np.float64], above: npt.NDArray[np.bool_], rng: Random) -> npt.NDArray[np.float64]:
    """Of width 1, above or below CUT."""
    below = ndtr(CUT - mean)
    low, high = np.where(above, below, 0.0), np.where(above, 1.0, below)
    return np.asarray(mean + ndtri(low + (high - low) * rng.uniform(1e-9, 1 - 1e-9, size=len(mean))))


INPUTS: dict[str, Callable[[Events, Random], Events]] = {"no_mass": no_mass, "graded_tag": graded_tag}


def change(path: str, inputs: str, output: str, seed: int = 1) -> int:
    """Write all events with other inputs; returns how many there are."""
    rng = np.random.default_rng(seed)
    return rewrite([path], output, lambda events: INPUTS[inputs](events, rng))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--inputs", required=True, choices=INPUTS)
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    try:
        print(f"{options.output}: {change(options.file, options.inputs, options.output)} events")
    except PairtonError as error:
        parser.exit(2, f"inputs: {error}\n")


if __name__ == "__main__":
    main()
