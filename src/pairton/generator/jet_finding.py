"""Jets from towers and muons: anti-kt clustering, energy scale, cuts."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import MissingExtraError
from pairton.generator.card import Jets
from pairton.generator.detector import Momenta

__all__ = ["find_jets", "scale"]

Floats = npt.NDArray[np.float64]


def _fastjet() -> Any:
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
    fastjet = _fastjet()
    counts = np.bincount(inputs.event, minlength=n_events)
    columns = {"px": inputs.px, "py": inputs.py, "pz": inputs.pz, "E": inputs.energy}
    ragged = ak.unflatten(ak.zip(columns, with_name="Momentum4D"), counts)
    definition = fastjet.JetDefinition(fastjet.antikt_algorithm, settings.radius)
    # The scale only raises pT, so softer jets cannot pass the cut.
    floor = _softest(settings)
    raw = fastjet.ClusterSequence(ragged, definition).inclusive_jets(min_pt=floor)
    event = np.repeat(np.arange(n_events), np.asarray(ak.num(raw, axis=1)))
    px, py, pz, energy = (np.asarray(ak.flatten(raw[name])) for name in ("px", "py", "pz", "E"))
    pt = np.hypot(px, py)
    eta, phi = np.arcsinh(pz / pt), np.arctan2(py, px)
    factor = scale(pt, eta, settings.scale)
    raw_pt, pt, energy = pt, factor * pt, factor * energy
    kept = np.flatnonzero((pt > settings.pt) & (np.abs(eta) < settings.abs_eta))
    kept = kept[np.lexsort((-pt[kept], event[kept]))]
    jets = {"pt": pt[kept], "eta": eta[kept], "phi": phi[kept], "energy": energy[kept], "raw": raw_pt[kept]}
    return ak.unflatten(ak.zip(jets), np.bincount(event[kept], minlength=n_events))


def _softest(settings: Jets) -> float:
    """The lowest raw pT that the scale can lift over the cut: pT'^2 = a^2 pT + pT^2."""
    most = max(abs(settings.scale[0] + settings.scale[1] * eta) for eta in (0.0, settings.abs_eta))
    pt: npt.NDArray[np.float64] = np.sqrt(most**4 / 4 + settings.pt**2) - most**2 / 2
    return 0.999 * float(pt)
