"""Large jets from towers and muons: anti-kt clustering, soft drop, N-subjettiness, and a parametrised tagger."""

from __future__ import annotations

import awkward as ak
import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict

from pairton.events.matching import nearest
from pairton.generator.card import FatJets, Jets
from pairton.generator.detector import Momenta
from pairton.generator.jets import calibrated, cluster, directions, import_fastjet, softest
from pairton.generator.pythia import OUTGOING, RESONANCE, Record

__all__ = ["classes", "find_fatjets", "scores"]

Ints = npt.NDArray[np.int64]

CLASSES = ("top", "wz", "hbb", "other")  # as the rows of efficiencies
CODES = np.array([6, 24, 25, 0])  # their PDG codes in the column `flavour`
CLASS_OF = {23: 1, 24: 1, 25: 2, 6: 0}  # |PDG code| of a resonance -> class; a top overrides its W
ALL = 10.0  # a radius that no jet reaches: all constituents make one jet again
TINY = 1e-9


def find_fatjets(inputs: Momenta, n_events: int, settings: FatJets, jets: Jets) -> ak.Array:
    """Large jets of `n_events` events after the scale of jets and cuts, by falling pT.

    Fields: pt, eta, phi, energy; msoftdrop, the mass after soft drop; tau21 and tau32, ratios of N-subjettiness
    with kt axes.
    """
    fastjet = import_fastjet()
    least = softest(jets.scale, settings.pt, settings.abs_eta)
    sequence = cluster(inputs, n_events, settings.radius)
    raw, parts = sequence.inclusive_jets(min_pt=least), ak.flatten(sequence.constituents(min_pt=least))
    columns = dict.fromkeys(("msoftdrop", "tau21", "tau32"), np.zeros(0))
    if len(parts):
        again = fastjet.ClusterSequence(parts, fastjet.JetDefinition(fastjet.cambridge_algorithm, ALL))
        drop = settings.soft_drop
        groomed = again.exclusive_jets_softdrop_grooming(beta=drop.beta, symmetry_cut=drop.cut, R0=settings.radius)
        tau = np.maximum(
            again.njettiness("NormalizedMeasure", "KT_Axes", [1, 2, 3], R0=settings.radius).to_numpy(), 0.0
        )
        ratios = np.divide(tau[:, 1:], tau[:, :-1], out=np.zeros((len(tau), 2)), where=tau[:, :-1] > TINY)
        columns = dict(zip(columns, (groomed.msoftdrop.to_numpy(), *ratios.T), strict=True))
    for name, values in columns.items():
        raw = ak.with_field(raw, ak.unflatten(np.asarray(values), ak.num(raw)), name)
    found = calibrated(raw, jets.scale, settings.pt, settings.abs_eta)
    return ak.with_field(found, found.msoftdrop * found.pt / found.raw, "msoftdrop")


def classes(jets: ak.Array, record: Record, radius: float) -> Ints:
    """The class of each large jet, flat: the heaviest particle that is merged in it, with all its quarks.

    A quark belongs to the nearest large jet within the radius.
    """
    hard = np.abs(record.status)
    quark = np.flatnonzero(hard == OUTGOING)
    quark = quark[record.mother[quark] >= 0]
    event, n_events = record.event[quark], len(record)
    counts = np.bincount(event, minlength=n_events)
    rank = np.arange(len(quark)) - (np.cumsum(counts) - counts)[event]
    eta, phi = np.full((2, n_events, counts.max(initial=0)), np.nan)
    eta[event, rank], phi[event, rank] = record.eta[quark], record.phi[quark]
    n_jets = np.asarray(ak.num(jets), dtype=np.int64)
    _, jet_eta, jet_phi = directions(jets)
    claim = nearest(n_jets, jet_eta.astype(np.float32), jet_phi.astype(np.float32), eta, phi, radius)[event, rank]
    claim = np.where(np.abs(record.code[quark]) <= 5, claim, -1)  # leptons leave a particle incomplete

    low, high = np.full(len(hard), len(claim)), np.full(len(hard), -1)  # first and last jet of all quarks below
    at, up = np.arange(len(quark)), record.mother[quark]
    while len(at):
        np.minimum.at(low, up, claim[at])
        np.maximum.at(high, up, claim[at])
        at, up = at[record.mother[up] >= 0], record.mother[up][record.mother[up] >= 0]
    first, found = np.cumsum(n_jets) - n_jets, np.full(n_jets.sum(), len(CLASSES) - 1)
    for code, row in CLASS_OF.items():
        whole = (hard == RESONANCE) & (np.abs(record.code) == code) & (low == high) & (low >= 0)
        found[first[record.event[whole]] + low[whole]] = row
    return found


def scores(jets: ak.Array, record: Record, settings: FatJets, rng: np.random.Generator) -> dict[str, ak.Array]:
    """Per large jet: `top_score`, `wz_score`, `hbb_score`, and `flavour` (6, 24, 25; 0 for others)."""
    found = classes(jets, record, settings.radius)
    columns = {
        f"{name}_score": points.score(found, rng.random(len(found)), CLASSES.index(name))
        for name, points in asdict(settings.taggers).items()
    }
    columns["flavour"] = CODES[found].astype(np.float64)
    return {name: ak.unflatten(values, ak.num(jets)) for name, values in columns.items()}
