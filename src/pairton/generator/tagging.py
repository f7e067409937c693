"""The flavour of jets, from hadrons near them, and random tags and scores with the efficiencies of the card."""

from __future__ import annotations

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.events.matching import nearest
from pairton.generator.card import BTag
from pairton.generator.pythia_record import Record

__all__ = ["flavours", "holds_quark", "padded", "tags"]

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


def padded(values: Floats, counts: npt.NDArray[np.integer]) -> Floats:
    """(events, largest count): flat values, ordered by event, padded with NaN."""
    mask = np.arange(counts.max(initial=0)) < counts[:, None]
    wide = np.full(mask.shape, np.nan)
    wide[mask] = values
    return wide


def flavours(jets: ak.Array, record: Record, settings: BTag) -> npt.NDArray[np.int64]:
    """The flavour of each jet, flat: that of the heaviest quark of any hadron within the cone."""
    counts = ak.to_numpy(ak.num(jets, axis=1))
    eta, phi = (padded(ak.to_numpy(ak.flatten(jets[name])), counts) for name in ("eta", "phi"))
    flavour = np.full(eta.shape, LIGHT, dtype=np.int64)
    pt = np.hypot(record.px, record.py)
    for kind, quark in ((C, 4), (B, 5)):  # b last, to override c
        found = np.flatnonzero(holds_quark(record.code, quark) & (pt > settings.hadron_pt))
        n_hadrons = np.bincount(record.event[found], minlength=len(counts))
        hadron_eta = np.arcsinh(record.pz[found] / pt[found])
        hadron_phi = np.arctan2(record.py[found], record.px[found])
        flavour[nearest(n_hadrons, hadron_eta, hadron_phi, eta, phi, settings.cone) >= 0] = kind
    return np.asarray(flavour[np.isfinite(eta)])


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
        "tagbin": 1 + (quantile[:, None] < settings.working_points[flavour]).sum(axis=1),
        "flavour": CODES[flavour],
    }
    counts = ak.to_numpy(ak.num(jets, axis=1))
    return {name: ak.unflatten(values.astype(np.float64), counts) for name, values in columns.items()}
