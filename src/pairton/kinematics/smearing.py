"""Two neutrinos from smeared measurements: a weighted mean of the solutions for many values of what was measured.

The energies of leptons and b jets and the mass of the W are drawn many times from what they may have been, the
missing momentum follows, and the ellipses of `pairton.events.neutrinos` are intersected each time. Of the
solutions of a draw, the one with the smallest mass of the pair is taken. Its weight is the density of both m(b l)
in decays t -> b W, W -> l nu. The answer is the weighted mean, in the way of CMS (arXiv:1811.06625), here of the
neutrinos' four-momenta: a mean of momenta alone would be too short, and the tops too light.

Shapes: n events, m of them, D draws. p4 is (..., 4): px, py, pz, energy; GeV.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from pairton.events.neutrinos import two_neutrinos
from pairton.events.splits import uniform
from pairton.kinematics.transfer_functions import Transfer, response

__all__ = ["DRAWS", "mass_density", "smeared_neutrinos"]

DRAWS = 100  # per event
SEED = 2  # differs from those of splits and folds, so that nothing depends on an event's split
NUMBERS = 9  # random numbers per draw: component and pull of four objects, and the mass of the W
W_WIDTH = 0.026  # relative to the mass of the W; its tails, beyond 6 half widths, are not drawn
BLOCK = 32768  # draws at once
SMALLEST = 0.2  # energy of a smeared object, relative to the measured one

Floats = npt.NDArray[np.float64]


def mass_density(mass: npt.ArrayLike, w_mass: npt.ArrayLike, top_mass: npt.ArrayLike) -> Floats:
    """The density of m(b l) at leading order, for massless b and l; 0 above the largest possible mass.

    With x = m^2 / (m_t^2 - m_W^2) and f the share of longitudinal W bosons, it is proportional to
    m (2 f x (1 - x) + (1 - f) (1 - x)^2).

    >>> mass_density([0.0, 100.0, 160.0], 80.4, 172.5).round(4).tolist()
    [0.0, 0.0019, 0.0]
    """
    mass, w_mass, top_mass = (np.asarray(values, np.float64) for values in (mass, w_mass, top_mass))
    largest = top_mass**2 - w_mass**2
    x, f = mass**2 / largest, top_mass**2 / (top_mass**2 + 2 * w_mass**2)
    shape = 2 * f * x * (1 - x) + (1 - f) * (1 - x) ** 2
    return np.asarray(np.where(x < 1, shape * mass / largest, 0.0))


def smeared_neutrinos(
    leptons: Floats,
    bs: Floats,
    met: Floats,
    w_mass: npt.ArrayLike,
    top_mass: npt.ArrayLike,
    ids: npt.NDArray[np.uint64],
    transfer: Transfer,
    draws: int = DRAWS,
) -> Floats:
    """p4 (n, 2, 4) of the neutrinos; NaN if an input is NaN, or if no draw has a solution.

    leptons, bs        p4 (n, 2, 4), one per top
    met                px, py (n, 2)
    w_mass, top_mass   GeV, one per top (2,) or (n, 2), or one for both
    ids                (n, 2): of the events; the random numbers of an event follow from its id
    """
    p4, n = np.full((len(leptons), 2, 4), np.nan), len(leptons)
    # The same numbers belong to the same objects, whichever top is called the first, and in every variation.
    order = np.argsort(np.arctan2(leptons[..., 1], leptons[..., 0]), axis=1, kind="stable")  # (n, 2)
    leptons, bs = (np.take_along_axis(values, order[..., None], axis=1) for values in (leptons, bs))
    objects = np.concatenate([leptons, bs], axis=1)
    masses = [
        np.take_along_axis(np.broadcast_to(np.asarray(mass, np.float64), (n, 2)), order, axis=1)
        for mass in (w_mass, top_mass)
    ]
    (known,) = np.nonzero(np.isfinite(objects).all(axis=(1, 2)) & np.isfinite(met).all(axis=1))
    size = max(1, BLOCK // draws)
    for rows in np.split(known, range(size, len(known), size)):
        w, top = (mass[rows] for mass in masses)
        p4[rows] = _mean(objects[rows], met[rows], w, top, _random(ids[rows], draws), transfer)
    return np.take_along_axis(p4, order[..., None], axis=1)  # an exchange of two is its own inverse


def _mean(objects: Floats, met: Floats, w_mass: Floats, top_mass: Floats, u: Floats, transfer: Transfer) -> Floats:
    """(m, 2, 4): the weighted mean; objects (m, 4, 4) are leptons and b jets, u (m, D, NUMBERS)."""
    moved = objects[:, None] * _factors(objects, transfer, u[..., :4], u[..., 4:8])[..., None]  # (m, D, 4, 4)
    missing = met[:, None] - (moved - objects[:, None])[..., :2].sum(axis=2)
    w = w_mass[:, None] * (1 + W_WIDTH / 2 * np.tan(0.9 * np.pi * (u[..., 8:] - 0.5)))
    top = np.broadcast_to(top_mass[:, None], w.shape)
    leptons, bs = moved[:, :, :2], moved[:, :, 2:]
    flat = [values.reshape(-1, *values.shape[2:]) for values in (leptons, bs, missing, w, top)]
    found = two_neutrinos(*flat, closest=False)
    momenta = found.p4[:, 0].reshape(*u.shape[:2], 2, 4)
    real = (found.n_real > 0).reshape(u.shape[:2])
    pair = leptons + bs
    mass = np.sqrt(np.maximum(pair[..., 3] ** 2 - (pair[..., :3] ** 2).sum(axis=-1), 0))  # (m, D, 2)
    weight = np.where(real, mass_density(mass, w, top).prod(axis=-1), 0)[..., None, None]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(real[..., None, None], weight * momenta, 0).sum(axis=1) / weight.sum(axis=1))


def _random(ids: npt.NDArray[np.uint64], draws: int) -> Floats:
    """(m, D, NUMBERS): pseudo-random numbers in (0, 1), the same for the same ids."""
    words = np.empty((len(ids), draws * NUMBERS, 3), dtype=np.uint64)
    words[..., :2], words[..., 2] = ids[:, None], np.arange(draws * NUMBERS, dtype=np.uint64)
    numbers = uniform(words.reshape(-1, 3), SEED).reshape(len(ids), draws, NUMBERS)
    return np.clip(numbers, 1e-9, 1 - 1e-9)


def _factors(objects: Floats, transfer: Transfer, component: Floats, pull: Floats) -> Floats:
    """(m, D, 4): true over measured energy of objects (m, 4, 4), drawn from the transfer functions."""
    eta = np.abs(np.arcsinh(objects[..., 2] / np.hypot(objects[..., 0], objects[..., 1]))).T
    own = response([transfer.lepton] * 2 + [transfer.b] * 2, eta)  # components (G, 4, m)
    edges = np.cumsum(own.share, axis=0) / own.share.sum(axis=0)
    which = (np.moveaxis(component, 2, 0) > edges[:-1, ..., None]).sum(axis=0)  # (4, m, D)
    scale, offset, a2, b2, c2 = (
        np.take_along_axis(values[..., None], which[None], axis=0)[0]
        for values in (own.scale, own.offset, own.a2, own.b2, own.c2)
    )
    measured = objects[..., 3].T[..., None]
    sigma = np.sqrt(a2 * measured**2 + b2 * measured + c2)
    true = (measured - offset - sigma * ndtri(np.moveaxis(pull, 2, 0))) / scale
    return np.moveaxis(np.maximum(true / measured, SMALLEST), 0, 2)
