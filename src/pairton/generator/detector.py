"""The detector: particles are propagated to the calorimeter, and become towers and muons.

Arrays are flat over a batch of events; `event` is the event that each entry belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pairton.generator.card import Calorimeter, Card, Field, in_region

__all__ = ["Momenta", "Particles", "detect", "joined", "lognormal", "propagate", "towers"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LIGHT = 0.299792458  # GeV per tesla and metre


@dataclass(frozen=True)
class Momenta:
    """Four-momenta in GeV, ordered by event."""

    event: Ints
    px: Floats
    py: Floats
    pz: Floats
    energy: Floats

    def __getitem__(self, where: npt.NDArray[Any]) -> Self:
        return type(self)(*(getattr(self, column.name)[where] for column in fields(self)))

    @property
    def pt(self) -> Floats:
        return np.asarray(np.hypot(self.px, self.py))

    @property
    def eta(self) -> Floats:
        return np.asarray(np.arcsinh(self.pz / np.maximum(self.pt, 1e-9)))

    @property
    def phi(self) -> Floats:
        return np.asarray(np.arctan2(self.py, self.px))


@dataclass(frozen=True)
class Particles(Momenta):
    """Stable particles of a batch, with production points in metres."""

    code: Ints  # PDG
    charge: Floats  # in units of the proton's
    x: Floats
    y: Floats
    z: Floats


def propagate(particles: Particles, field: Field) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Eta and phi of the point where each particle leaves the cylinder, and whether it does.

    Neutral particles fly straight. Charged ones follow a helix to the barrel or to the endcap, whichever comes
    first. Particles produced outside are lost.
    """
    px, py, pz, pt = particles.px, particles.py, particles.pz, particles.pt
    x, y, z = particles.x, particles.y, particles.z
    inside = (np.hypot(x, y) < field.radius) & (np.abs(z) < field.half_length) & (pt > 1e-6)
    pt = np.maximum(pt, 1e-6)

    # s is the path length in the transverse plane; z grows by pz/pt per metre of s.
    climb = pz / pt
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        s_end = np.where(climb != 0, (np.copysign(field.half_length, climb) - z) / climb, np.inf)

    # Straight: (r + s u)^2 = R^2.
    ux, uy = px / pt, py / pt
    along = x * ux + y * uy
    reach = along**2 + field.radius**2 - x**2 - y**2
    s_line = -along + np.sqrt(np.maximum(reach, 0.0))

    # Bent: turning angle a = k s with curvature k (signed, clockwise for positive charge and field).
    k = -LIGHT * field.tesla * particles.charge / pt
    bent = np.abs(k) > 1e-9
    k_safe = np.where(bent, k, 1.0)
    s = np.minimum(np.where(bent, _arc(x, y, ux, uy, k_safe, field.radius), s_line), s_end)
    reaches = inside & np.isfinite(s)
    s = np.where(reaches, s, 0.0)
    a = k * s
    # Displacement after turning by a: (sin a / k) u + ((1 - cos a) / k) n, n = u turned left.
    forth = np.where(bent, np.sin(a) / k_safe, s)
    left = np.where(bent, 2 * np.sin(a / 2) ** 2 / k_safe, 0.0)
    x_out = x + forth * ux - left * uy
    y_out = y + forth * uy + left * ux
    z_out = z + climb * s
    r_out = np.maximum(np.hypot(x_out, y_out), 1e-9)
    eta = np.arcsinh(z_out / r_out)
    return eta, np.arctan2(y_out, x_out), reaches


def _arc(x: Floats, y: Floats, ux: Floats, uy: Floats, k: Floats, radius: float) -> Floats:
    """Path length to the barrel along a circle of curvature k from (x, y) in the direction (ux, uy), or inf."""
    # Centre c = r + n/k; the point at turning angle a is c + (1/k)(sin a u - cos a n), so that
    # |r(a)|^2 = c^2 + 1/k^2 + (2/k)(sin a c.u - cos a c.n) = R^2, i.e. q sin(a - b) = h.
    nx, ny = -uy, ux
    cx, cy = x + nx / k, y + ny / k
    c_u, c_n = cx * ux + cy * uy, cx * nx + cy * ny
    q = np.hypot(c_u, c_n)
    h = (radius**2 - q**2 - 1 / k**2) * k / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = h / q
    meets = np.abs(ratio) <= 1
    base = np.arctan2(c_n, c_u)
    first = np.arcsin(np.clip(ratio, -1, 1))
    turn = 2 * np.pi
    sense = np.sign(k)
    # First positive path length a/k of the two families of solutions.
    one = np.mod(sense * (base + first), turn)
    two = np.mod(sense * (base + np.pi - first), turn)
    return np.where(meets, np.minimum(one, two) / np.abs(k), np.inf)


def lognormal(mean: Floats, sigma: Floats, normal: Floats) -> Floats:
    """Log-normal numbers with a given mean and standard deviation, from standard normal ones."""
    width = np.sqrt(np.log1p((sigma / mean) ** 2))
    return np.asarray(mean * np.exp(width * normal - width**2 / 2), dtype=np.float64)


def towers(
    event: Ints, eta: Floats, phi: Floats, energy: Floats, calorimeter: Calorimeter, rng: np.random.Generator
) -> Momenta:
    """Sum energies per tower, smear them and cut on them; positions are uniform within each tower."""
    grid = calorimeter.grid
    ring = np.searchsorted(grid.edges, np.abs(eta), side="right") - 1
    ok = (ring >= 0) & (ring < len(grid.n_phi)) & (energy > 0)
    event, eta, phi, energy, ring = event[ok], eta[ok], phi[ok], energy[ok], ring[ok]
    around = grid.n_phi[ring]
    sector = np.minimum(((phi + np.pi) / (2 * np.pi) * around).astype(np.int64), around - 1)
    # One number per tower, from event, side, ring and sector.
    most = int(grid.n_phi.max())
    key = ((event * 2 + (eta >= 0)) * len(grid.n_phi) + ring) * most + sector
    key, where = np.unique(key, return_inverse=True)
    total = np.asarray(np.bincount(where, weights=energy, minlength=len(key)), dtype=np.float64)

    key, sector = np.divmod(key, most)
    key, ring = np.divmod(key, len(grid.n_phi))
    event, side = np.divmod(key, 2)
    low, high = grid.edges[ring], grid.edges[ring + 1]
    middle = (low + high) / 2
    measured = lognormal(total, calorimeter.sigma(middle, total), rng.standard_normal(len(total)))
    noise = calorimeter.significance * calorimeter.sigma(middle, measured)
    in_eta, in_phi = rng.random((2, len(total)))
    kept = (measured >= calorimeter.threshold) & (measured >= noise)

    eta = np.where(side == 1, 1.0, -1.0) * (low + in_eta * (high - low))
    phi = (sector + in_phi) / grid.n_phi[ring] * 2 * np.pi - np.pi
    pt = measured / np.cosh(eta)
    return Momenta(event, pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), pt * np.cosh(eta))[kept]


def _muons(particles: Particles, card: Card, rng: np.random.Generator) -> Momenta:
    """Muons that the tracker finds, smeared."""
    muons = particles[np.abs(particles.code) == 13]
    pt = muons.pt
    covered, (efficiency, constant, slope) = in_region(card.muons.regions, np.abs(muons.eta))
    uniform, normal = rng.random(len(pt)), rng.standard_normal(len(pt))
    kept = covered & (pt > card.muons.pt) & (uniform < efficiency)
    factor = lognormal(np.ones_like(pt), np.hypot(constant, slope * pt), normal)
    return Momenta(muons.event, *(factor * part for part in (muons.px, muons.py, muons.pz, muons.energy)))[kept]


def detect(particles: Particles, card: Card, rng: np.random.Generator) -> Momenta:
    """The inputs of the jet finder: towers of both calorimeters, and muons."""
    eta, phi, reaches = propagate(particles, card.field)
    codes, where = np.unique(np.abs(particles.code), return_inverse=True)
    shares = card.shares(codes)[where]
    parts = []
    for calorimeter, share in zip((card.ecal, card.hcal), shares.T, strict=True):
        hit = reaches & (share > 0)
        deposit = (particles.energy * share)[hit]
        parts.append(towers(particles.event[hit], eta[hit], phi[hit], deposit, calorimeter, rng))
    parts.append(_muons(particles, card, rng))
    return joined(parts)


def joined(parts: Sequence[Momenta]) -> Momenta:
    """Concatenate momenta, ordered by event."""
    event = np.concatenate([part.event for part in parts])
    order = np.argsort(event, kind="stable")
    names = ("px", "py", "pz", "energy")
    return Momenta(event, *(np.concatenate([getattr(part, name) for part in parts]) for name in names))[order]
