"""The flavour of jets, from hadrons near them, and random tags and scores with the efficiencies of the card."""

from __future__ import annotations

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.generator.card import BTag
from pairton.generator.pythia_record import Record

__all__ = ["delta_r", "flavours", "holds_quark", "padded", "tags"]

Floats = npt.NDArray[np.float64]

B, C, LIGHT = 0, 1, 2
CODES = np.array([5, 4, 0])


def holds_quark(code: npt.NDArray[np.int64], quark: int) -> npt.NDArray[np.bool_]:
    """Whether PDG codes are those of hadrons with a valence quark of that flavour.

    >>> holds_quark(np.array([511, -5122, 5, 421, 5503, 10513, 21]), 5).tolist()
    [True, True, False, False, False, True, False]
    """
    code = np.abs(code)
    digits = [code // 10 % 10, code // 100 % 10, code // 1000 % 10]
    hadron = (code > 100) & (code < 1_000_000) & (digits[0] > 0)  # a zero there marks a diquark
    return np.asarray(hadron & np.any([digit == quark for digit in digits], axis=0))


def padded(event: npt.NDArray[np.int64], values: Floats, n_events: int) -> Floats:
    """(events, largest count): flat values, ordered by event, padded with NaN."""
    counts = np.bincount(event, minlength=n_events)
    wide = np.full((n_events, int(counts.max(initial=0))), np.nan)
    first = np.cumsum(counts) - counts
    wide[event, np.arange(len(event)) - first[event]] = values
    return wide


def delta_r(eta1: Floats, phi1: Floats, eta2: Floats, phi2: Floats) -> Floats:
    """(B, n1, n2): delta R between two padded sets."""
    deta = eta1[:, :, None] - eta2[:, None, :]
    dphi = np.abs(phi1[:, :, None] - phi2[:, None, :]) % (2 * np.pi)
    return np.asarray(np.hypot(deta, np.minimum(dphi, 2 * np.pi - dphi)), dtype=np.float64)


def flavours(jets: ak.Array, record: Record, settings: BTag) -> npt.NDArray[np.int64]:
    """The flavour of each jet, flat: that of the heaviest quark of any hadron within the cone."""
    counts = ak.to_numpy(ak.num(jets, axis=1))
    event = np.repeat(np.arange(len(counts)), counts)
    eta, phi = (padded(event, ak.to_numpy(ak.flatten(jets[name])), len(counts)) for name in ("eta", "phi"))
    real = np.arange(eta.shape[1]) < counts[:, None]
    flavour = np.full(eta.shape, LIGHT, dtype=np.int64)
    pt = np.hypot(record.px, record.py)
    for kind, quark in ((C, 4), (B, 5)):  # b last, to override c
        found = np.flatnonzero(holds_quark(record.code, quark) & (pt > settings.hadron_pt))
        at = record.event[found]
        hadron_eta = padded(at, np.arcsinh(record.pz[found] / pt[found]), len(counts))
        hadron_phi = padded(at, np.arctan2(record.py[found], record.px[found]), len(counts))
        near = delta_r(eta, phi, hadron_eta, hadron_phi) < settings.cone  # NaN is never near
        flavour[near.any(axis=2)] = kind
    return np.asarray(flavour[real])


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
        "score": settings.score(flavour, quantile),
        "tagbin": 1 + (quantile[:, None] < settings.points[flavour]).sum(axis=1),
        "flavour": CODES[flavour],
    }
    counts = ak.to_numpy(ak.num(jets, axis=1))
    return {name: ak.unflatten(values.astype(np.float64), counts) for name, values in columns.items()}
