"""Jets from towers and muons: anti-kt clustering, energy scale and cuts; then their flavour and their tags."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import MissingExtraError
from pairton.events.matching import nearest
from pairton.generator.card import BTag, Jets
from pairton.generator.detector import Momenta
from pairton.generator.pythia import Record

__all__ = [
    "calibrated",
    "cluster",
    "directions",
    "find_jets",
    "flavours",
    "has_near",
    "holds_quark",
    "import_fastjet",
    "scale",
    "softest",
    "tags",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Directions = tuple[Ints, Floats, Floats]  # event, eta and phi of entries that are ordered by event

B, C, LIGHT = 0, 1, 2
CODES = np.array([5, 4, 0])
MOMENTUM = ("px", "py", "pz", "E")


def import_fastjet() -> Any:
    try:
        import fastjet
    except ImportError as error:
        raise MissingExtraError("generate", "fastjet") from error
    fastjet._swig.ClusterSequence.set_fastjet_banner_stream(None)  # do not print its banner to stdout
    return fastjet


def scale(pt: Floats, eta: Floats, terms: tuple[float, float]) -> Floats:
    """Calibration factor, from the momentum of a jet of towers to that of its particles.

    >>> scale(np.array([25.0]), np.array([0.0]), (3.0, -0.2)).round(3).tolist()
    [1.166]
    """
    return np.asarray(np.sqrt((terms[0] + terms[1] * np.abs(eta)) ** 2 / pt + 1.0))


def find_jets(inputs: Momenta, n_events: int, settings: Jets) -> ak.Array:
    """Jets of `n_events` events after scale and cuts, by falling pT: pt, eta, phi, energy, and `raw`, the pT
    before the scale."""
    sequence = cluster(inputs, n_events, settings.radius)
    raw = sequence.inclusive_jets(min_pt=softest(settings.scale, settings.pt, settings.abs_eta))
    return calibrated(raw, settings.scale, settings.pt, settings.abs_eta)


def cluster(inputs: Momenta, n_events: int, radius: float) -> Any:
    """FastJet's anti-kt clustering of `n_events` events."""
    fastjet = import_fastjet()
    columns = {"px": inputs.px, "py": inputs.py, "pz": inputs.pz, "E": inputs.energy}
    counts = np.bincount(inputs.event, minlength=n_events)
    ragged = ak.unflatten(ak.zip(columns, with_name="Momentum4D"), counts)
    return fastjet.ClusterSequence(ragged, fastjet.JetDefinition(fastjet.antikt_algorithm, radius))


def calibrated(raw: ak.Array, terms: tuple[float, float], least_pt: float, abs_eta: float) -> ak.Array:
    """Jets of the clustering after scale and cuts, by falling pT: pt, eta, phi, energy, `raw`, the pT before the
    scale, and further fields."""
    event = np.repeat(np.arange(len(raw)), np.asarray(ak.num(raw, axis=1)))
    jets = Momenta(event, *(np.asarray(ak.flatten(raw[name])) for name in MOMENTUM))
    eta, factor = jets.eta, scale(jets.pt, jets.eta, terms)
    pt = factor * jets.pt
    kept = np.flatnonzero((pt > least_pt) & (np.abs(eta) < abs_eta))
    kept = kept[np.lexsort((-pt[kept], event[kept]))]
    stored = {"pt": pt, "eta": eta, "phi": jets.phi, "energy": factor * jets.energy, "raw": jets.pt}
    further = {name: np.asarray(ak.flatten(raw[name])) for name in ak.fields(raw) if name not in MOMENTUM}
    flat = ak.zip({name: values[kept] for name, values in {**stored, **further}.items()})
    return ak.unflatten(flat, np.bincount(event[kept], minlength=len(raw)))


def softest(terms: tuple[float, float], least_pt: float, abs_eta: float) -> float:
    """The lowest raw pT that the scale, which only raises pT, can lift over the cut: pT'^2 = a^2 pT + pT^2."""
    most = max(abs(terms[0] + terms[1] * eta) for eta in (0.0, abs_eta))
    return 0.999 * float(np.sqrt(most**4 / 4 + least_pt**2) - most**2 / 2)


def directions(jets: ak.Array) -> Directions:
    """Event, eta and phi of ragged objects."""
    event = np.repeat(np.arange(len(jets)), ak.to_numpy(ak.num(jets, axis=1)))
    return event, ak.to_numpy(ak.flatten(jets.eta)), ak.to_numpy(ak.flatten(jets.phi))


def has_near(one: Directions, other: Directions, n_events: int, radius: float) -> Bools:
    """Which entries of one have an entry of the other within the radius, in the same event."""
    counts, others = (np.bincount(entries[0], minlength=n_events) for entries in (one, other))
    mask = np.arange(counts.max(initial=0)) < counts[:, None]
    eta, phi = np.full((2, *mask.shape), np.nan)
    eta[mask], phi[mask] = one[1:]
    other_eta, other_phi = (values.astype(np.float32) for values in other[1:])
    return np.asarray((nearest(others, other_eta, other_phi, eta, phi, radius) >= 0)[mask])


# -- flavour and tags --------------------------------------------------------------------------------------


def holds_quark(code: Ints, quark: int) -> Bools:
    """Whether PDG codes are those of hadrons with a valence quark of that flavour.

    >>> holds_quark(np.array([511, -5122, 5, 421, 5503, 10513, 21]), 5).tolist()
    [True, True, False, False, False, True, False]
    """
    code = np.abs(code)
    digits = [code // 10 % 10, code // 100 % 10, code // 1000 % 10]
    hadron = (code > 100) & (code < 1_000_000) & (digits[0] > 0)  # a zero there marks a diquark
    return np.asarray(hadron & np.any([digit == quark for digit in digits], axis=0))


def flavours(jets: ak.Array, record: Record, settings: BTag) -> Ints:
    """The flavour of each jet, flat: that of the heaviest quark of any hadron within the cone."""
    flavour = np.full(ak.count(jets.eta), LIGHT, dtype=np.int64)
    for kind, quark in ((C, 4), (B, 5)):  # b last, to override c
        at = np.flatnonzero(holds_quark(record.code, quark) & (record.pt > settings.hadron_pt))
        hadrons = record.event[at], record.eta[at], record.phi[at]
        flavour[has_near(directions(jets), hadrons, len(jets), settings.cone)] = kind
    return flavour


def tags(jets: ak.Array, record: Record, settings: BTag, rng: np.random.Generator) -> dict[str, ak.Array]:
    """Per jet: `btag` (0 or 1), `score`, `tagbin` (number of working points passed plus one), `flavour` (5, 4, 0).

    One random number per jet determines all of them, so a jet that passes a working point passes every looser one.
    """
    pt, eta = (ak.to_numpy(ak.flatten(jets[name])) for name in ("pt", "eta"))
    flavour = flavours(jets, record, settings)
    quantile = rng.random(len(pt))
    quantile[np.abs(eta) > settings.abs_eta] = 1.0
    columns = {
        "btag": quantile < settings.efficiency(flavour, pt),
        "score": settings.points.score(flavour, quantile),
        "tagbin": 1 + (quantile[:, None] < settings.working_points[flavour]).sum(axis=1),
        "flavour": CODES[flavour],
    }
    return {name: ak.unflatten(values.astype(np.float64), ak.num(jets)) for name, values in columns.items()}
