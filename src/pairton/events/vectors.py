"""Four-vectors in numpy, for all kinematics outside the network.

Units are GeV and radians; arrays may have any shape. `p4` is (..., 4): px, py, pz, energy.
Rounding can make a squared mass negative. The mass is then negative too: m = sign(m^2) sqrt(|m^2|).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["cartesian", "energy_of", "mass_of", "pair_products", "polar"]

Floats = npt.NDArray[np.float64]


def energy_of(pt: npt.ArrayLike, eta: npt.ArrayLike, mass: npt.ArrayLike) -> Floats:
    """The energy, in double precision so that `mass_of` recovers the mass.

    >>> energy_of(30.0, 0.0, 40.0).item()
    50.0
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mass = np.asarray(mass, np.float64)
        return np.asarray(np.sqrt(_momentum(pt, eta) ** 2 + mass * np.abs(mass)))


def mass_of(pt: npt.ArrayLike, eta: npt.ArrayLike, energy: npt.ArrayLike) -> Floats:
    """The inverse of `energy_of`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _signed_root(np.asarray(energy, np.float64) ** 2 - _momentum(pt, eta) ** 2)


def cartesian(pt: npt.ArrayLike, eta: npt.ArrayLike, phi: npt.ArrayLike, energy: npt.ArrayLike) -> Floats:
    """px, py, pz and energy (..., 4)."""
    pt, eta, phi, energy = (np.asarray(values, np.float64) for values in (pt, eta, phi, energy))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.stack([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), energy], axis=-1)


def polar(p4: npt.NDArray[Any]) -> dict[str, Floats]:
    """pt, eta, phi and mass of p4 (..., 4).

    >>> {name: value.item() for name, value in polar(np.array([3.0, 0.0, 0.0, 5.0])).items()}
    {'pt': 3.0, 'eta': 0.0, 'phi': 0.0, 'mass': 4.0}
    """
    x, y, z, energy = np.moveaxis(np.asarray(p4, np.float64), -1, 0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        pt = np.asarray(np.hypot(x, y))
        eta, phi = np.asarray(np.arcsinh(z / pt)), np.asarray(np.arctan2(y, x))
        return {"pt": pt, "eta": eta, "phi": phi, "mass": _signed_root(energy**2 - pt**2 - z**2)}


def pair_products(p4: npt.NDArray[Any]) -> Floats:
    """(..., N, N): Minkowski products of objects p4 (..., N, 4). Summed over a set, they give its squared mass."""
    return np.asarray((p4 * [-1.0, -1.0, -1.0, 1.0]) @ np.swapaxes(p4, -1, -2))


def _momentum(pt: npt.ArrayLike, eta: npt.ArrayLike) -> Floats:
    return np.asarray(np.asarray(pt, np.float64) * np.cosh(np.asarray(eta, np.float64)))


def _signed_root(square: npt.NDArray[Any]) -> Floats:
    return np.asarray(np.sign(square) * np.sqrt(np.abs(square)))
