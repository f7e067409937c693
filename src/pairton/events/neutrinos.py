"""Neutrino momenta from masses and missing energy: one from the mass of its W, two from intersecting ellipses.

The names are those of a leptonic top, t -> b W, W -> l nu, but any such chain with two known masses can be solved.

One neutrino. Its transverse momentum pT is the missing one. The mass M of the W gives, with a = (M^2 - m_l^2) / 2
+ pT_l . pT and A = E_l^2 - pz_l^2,

    A pz^2 - 2 a pz_l pz + E_l^2 pT^2 - a^2 = 0,    pz = (a pz_l +- E_l sqrt(a^2 - A pT^2)) / A.

Two neutrinos (after Betchart, Demina, Harel, arXiv:1305.1878). The masses M of the W and m of the top constrain
the momentum of each neutrino to an ellipse. Both constraints are linear in its momentum p and energy E:

    E_l E - p_l . p = alpha = (M^2 - m_l^2) / 2
    E_b E - p_b . p = beta = (m^2 - M^2 - m_b^2) / 2 - (E_b E_l - p_b . p_l)

Eliminating E gives a plane n . p = c, in which E = |p| is an ellipse. In the transverse plane, the ellipse of the
first neutrino and the ellipse of (missing momentum - second neutrino) intersect in up to four points.

Neutrinos are massless. Shapes: n events, m of them, k points. p4 is (..., 4): px, py, pz, energy; GeV.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["OneNeutrino", "TwoNeutrinos", "nearest_mass", "neutrino_ellipse", "one_neutrino", "two_neutrinos"]

MOST = 4  # largest number of points in which two ellipses intersect
# Search for the closest approach of two ellipses:
GRID, PARTS = 16, 4  # grid points per angle; the grid has PARTS x PARTS parts, each with one starting point
FIRST, KEPT, STEPS = 3, 4, 15  # steps from every starting point; best points kept; steps from these
BLOCK = 4096  # events at once
ON_CIRCLE = 1e-3  # largest distance of a root from the unit circle, before it is refined
SAME = 1e-6  # tolerance of a solution: relative to the missing momentum, plus this many GeV
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class OneNeutrino(NamedTuple):
    """Both solutions, the one of smaller |pz| first. NaN if an input is NaN."""

    p4: Floats  # (..., 2, 4)
    real: Bools  # (...): False if the solutions are complex; both are then the real part


class TwoNeutrinos(NamedTuple):
    """Solutions by rising mass of the system of both tops; NaN after the last solution."""

    p4: Floats  # (n, 4 solutions, 2 neutrinos, 4)
    n_real: npt.NDArray[np.int64]  # (n,): number of real solutions; if 0, the first is the closest approach
    mismatch: Floats  # (n,): |sum of the neutrinos' pT - missing pT| of the first solution, GeV


def one_neutrino(lepton: npt.ArrayLike, met: npt.ArrayLike, mass: npt.ArrayLike) -> OneNeutrino:
    """The neutrino of a W, from its lepton and the missing transverse momentum.

    lepton   p4 (..., 4)
    met      px, py (..., 2)
    mass     of the W, GeV (...)

    >>> lepton, met = np.array([0.0, 40.0, 30.0, 50.0]), np.array([64.0, 0.0])
    >>> found = one_neutrino(lepton, met, 80.0)
    >>> found.p4[:, 2].round(6).tolist(), bool(found.real)
    ([0.0, 120.0], True)
    """
    lepton, met, mass = (np.asarray(values, np.float64) for values in (lepton, met, mass))
    x, y, z, energy = np.moveaxis(lepton, -1, 0)
    square = energy**2 - z**2
    a = (mass**2 - square + x**2 + y**2) / 2 + x * met[..., 0] + y * met[..., 1]
    inside = a**2 - square * (met**2).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle, half = a * z / square, energy * np.sqrt(np.maximum(inside, 0)) / square
    sign = np.where(middle < 0, -1, 1)
    pz = np.stack([middle - sign * half, middle + sign * half], axis=-1)  # the second is the larger one
    return OneNeutrino(_massless(met[..., None, :], pz), np.asarray(inside >= 0))


def nearest_mass(visible: npt.ArrayLike, neutrinos: npt.ArrayLike, mass: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """(...): index of the neutrino (..., k, 4) that, added to `visible` (..., 4), has the mass nearest to `mass`.

    >>> both = one_neutrino([0.0, 40.0, 30.0, 50.0], [64.0, 0.0], 80.0).p4  # pz of 0 and 120 GeV
    >>> nearest_mass([0.0, 90.0, 30.0, 110.0], both, 172.5).item()
    1
    """
    total = np.asarray(visible, np.float64)[..., None, :] + np.asarray(neutrinos, np.float64)
    away = np.abs(np.sqrt(np.maximum(_square(total), 0)) - np.asarray(mass, np.float64)[..., None])
    return np.asarray(np.where(np.isnan(away), np.inf, away).argmin(axis=-1))


def neutrino_ellipse(
    lepton: npt.ArrayLike, b: npt.ArrayLike, w_mass: npt.ArrayLike, top_mass: npt.ArrayLike
) -> tuple[Floats, Bools]:
    """The ellipse of possible neutrino momenta of a leptonic top: p = H (cos t, sin t, 1).

    lepton, b          p4 (..., 4)
    w_mass, top_mass   GeV (...)

    Returns H (..., 3, 3), and whether the ellipse exists (...). It does not if m(b l) is too large for the two
    masses. H is then the single point for the smallest top mass that is possible.
    """
    lepton, b, w_mass, top_mass = (np.asarray(v, np.float64) for v in (lepton, b, w_mass, top_mass))
    p_l, e_l, p_b, e_b = lepton[..., :3], lepton[..., 3], b[..., :3], b[..., 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = (w_mass**2 - _square(lepton)) / 2
        beta = (top_mass**2 - w_mass**2 - _square(b)) / 2 - (e_b * e_l - _dot(p_b, p_l))
        normal = (e_b / e_l)[..., None] * p_l - p_b
        size = np.sqrt(_dot(normal, normal))
        normal = normal / size[..., None]
        c = (beta - alpha * e_b / e_l) / size  # distance of the plane from the origin
        along = p_l - _dot(p_l, normal)[..., None] * normal
        first = along / np.sqrt(_dot(along, along))[..., None]
        second = np.cross(normal, first)
        # on the plane, p = c normal + s first + t second, and E = lam + kappa s
        kappa, slope = _dot(p_l, first) / e_l, _dot(p_l, normal) / e_l
        rest = 1 - kappa**2
        # t^2 + rest (s - centre)^2 = radius^2, where radius^2 = (alpha / E_l + slope c)^2 / rest - c^2
        offset = alpha / e_l
        real = (offset + slope * c) ** 2 / rest - c**2 >= 0
        root = np.sqrt(rest)
        # a smaller |c| belongs to another top mass; at |c| root = offset + slope c, the ellipse is a point
        nearest = np.where(c > 0, offset / (root - slope), -offset / (root + slope))
        c = np.where(real, c, nearest)
        lam = offset + slope * c
        radius = np.sqrt(np.where(real, np.maximum(lam**2 / rest - c**2, 0), 0))
        centre = c[..., None] * normal + (kappa * lam / rest)[..., None] * first
        axes = (radius / root)[..., None] * first, radius[..., None] * second
    return np.stack([*axes, centre], axis=-1), np.asarray(real)


def two_neutrinos(
    leptons: npt.ArrayLike,
    bs: npt.ArrayLike,
    met: npt.ArrayLike,
    w_mass: npt.ArrayLike,
    top_mass: npt.ArrayLike,
    *,
    closest: bool = True,
) -> TwoNeutrinos:
    """The neutrinos of two leptonic tops.

    leptons, bs        p4 (n, 2, 4), one per top
    met                px, py (n, 2)
    w_mass, top_mass   GeV, one per top (n, 2), or one for both

    If the ellipses do not intersect, the result is their closest approach: all masses are right, and the sum of
    the neutrinos' transverse momenta is as near to the missing one as possible (`mismatch`), or NaN without
    `closest`. NaN if an input is NaN.
    """
    leptons, bs, met = (np.asarray(values, np.float64) for values in (leptons, bs, met))
    n = len(leptons)
    h, real = neutrino_ellipse(leptons, bs, w_mass, top_mass)  # (n, 2, 3, 3)
    p4 = np.full((n, MOST, 2, 4), np.nan)
    n_real, mismatch = np.zeros(n, dtype=np.int64), np.full(n, np.nan)
    known = np.isfinite(h).all(axis=(1, 2, 3)) & np.isfinite(met).all(axis=1)
    (rows,) = np.nonzero(known & real.all(axis=1))
    angle, found = _intersections(h[rows], met[rows])
    momenta = _at(h[rows], angle)  # (m, 4, 2, 3)
    p4[rows] = np.where(found[:, :, None, None], _with_energy(momenta), np.nan)
    n_real[rows] = found.sum(axis=1)
    (rows,) = np.nonzero(known & (n_real == 0) & closest)
    for block in np.split(rows, range(BLOCK, len(rows), BLOCK)):
        p4[block, 0] = _with_energy(_closest(h[block], met[block]))
    total = p4.sum(axis=2) + (leptons + bs).sum(axis=1)[:, None]
    mass = np.where(np.isfinite(p4).all(axis=(2, 3)), _square(total), np.inf)
    p4 = np.take_along_axis(p4, np.argsort(mass, axis=1, kind="stable")[:, :, None, None], axis=1)
    mismatch[known] = np.hypot(*(p4[known, 0, :, :2].sum(axis=1) - met[known]).T)
    return TwoNeutrinos(p4, n_real, mismatch)


# -- two ellipses ------------------------------------------------------------------------------------------


def _at(h: Floats, angle: Floats) -> Floats:
    """(m, k, 2, 3): points of both ellipses h (m, 2, 3, 3) at angles (m, k, 2)."""
    unit = np.stack([np.cos(angle), np.sin(angle), np.ones_like(angle)], axis=-1)
    return np.asarray(np.einsum("mjxu,mkju->mkjx", h, unit))


def _slopes(h: Floats, angle: Floats) -> Floats:
    """(m, k, 2, 2): derivatives of the transverse part of `_at` with respect to the angles."""
    unit = np.stack([-np.sin(angle), np.cos(angle)], axis=-1)
    return np.asarray(np.einsum("mjxu,mkju->mkjx", h[:, :, :2, :2], unit))


def _intersections(h: Floats, met: Floats) -> tuple[Floats, Bools]:
    """Angles (m, 4, 2) on both ellipses whose transverse momenta add up to met, and which are solutions (m, 4).

    A point u = (cos, sin, 1) of the first ellipse is v = K u in the frame in which the second one is the unit
    circle, so that v_1^2 + v_2^2 - v_3^2 = 0. With z = exp(i angle), this is a polynomial of degree four. Its
    roots on the unit circle are the solutions.
    """
    first, second = _projected(h[:, 0]), _projected(h[:, 1])
    turned = np.zeros((len(h), 3, 3))
    turned[:, [0, 1, 2], [0, 1, 2]] = -1, -1, 1
    turned[:, :2, 2] = met
    with np.errstate(all="ignore"):
        inverse, flat = _inverse(second)
        k = inverse @ turned @ first  # (m, 3, 3)
        q = np.einsum("mru,r,mrw->muw", k, [1.0, 1.0, -1.0], k)  # u q u = 0
        q = q / np.abs(q).max(axis=(1, 2), keepdims=True)
    good = np.isfinite(q).all(axis=(1, 2)) & ~flat
    q = np.where(good[:, None, None], q, np.eye(3))
    # u q u = c0 + Re(c1 z) + Re(c2 z^2)
    c0 = (q[:, 0, 0] + q[:, 1, 1]) / 2 + q[:, 2, 2]
    c1 = 2 * (q[:, 0, 2] - 1j * q[:, 1, 2])
    c2 = (q[:, 0, 0] - q[:, 1, 1]) / 2 - 1j * q[:, 0, 1]
    c2 = np.where(np.abs(c2) < 1e-14, 1e-14, c2)  # for two circles, the other roots are far away
    companion = np.zeros((len(h), MOST, MOST), dtype=complex)
    companion[:, [1, 2, 3], [0, 1, 2]] = 1
    companion[:, :, 3] = -np.stack([c2.conj(), c1.conj(), 2 * c0, c1], axis=1) / c2[:, None]
    roots = np.linalg.eigvals(companion)
    near = np.abs(np.abs(roots) - 1) < ON_CIRCLE
    angle = np.angle(np.where(near, roots, 1))
    for _ in range(3):  # Newton's method removes rounding errors of the roots
        z = np.exp(1j * angle)
        value = c0[:, None] + (c1[:, None] * z + c2[:, None] * z**2).real
        slope = -(c1[:, None] * z + 2 * c2[:, None] * z**2).imag
        angle -= np.clip(np.divide(value, slope, out=np.zeros_like(value), where=slope != 0), -0.1, 0.1)
    unit = np.stack([np.cos(angle), np.sin(angle), np.ones_like(angle)], axis=-1)  # (m, 4, 3)
    image = np.einsum("mru,mku->mkr", np.where(good[:, None, None], k, 0), unit)
    both = np.stack([angle, np.arctan2(image[..., 1], image[..., 0])], axis=-1)
    for _ in range(2):  # Newton's method in both angles
        away = _at(h, both)[..., :2].sum(axis=2) - met[:, None]  # (m, 4, 2)
        slope_x, slope_y = np.moveaxis(_slopes(h, both), -1, 0)  # (m, 4, 2 ellipses)
        det = slope_x[..., 0] * slope_y[..., 1] - slope_x[..., 1] * slope_y[..., 0]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            x, y = away[..., 0] / det, away[..., 1] / det
            step = np.stack(
                [slope_y[..., 1] * x - slope_x[..., 1] * y, slope_x[..., 0] * y - slope_y[..., 0] * x], axis=-1
            )
        both = both - np.where(np.abs(step) < 0.1, step, 0)
    missed = np.abs(_at(h, both)[..., :2].sum(axis=2) - met[:, None]).max(axis=-1)
    right = near & good[:, None] & (missed < SAME * (1 + np.abs(met).max(axis=1))[:, None])
    return both, right & ~_repeated(angle, right)


def _repeated(angle: Floats, right: Bools) -> Bools:
    """(m, 4): solutions that repeat an earlier one."""
    same = np.abs(np.angle(np.exp(1j * (angle[:, :, None] - angle[:, None])))) < 1e-9
    earlier = np.tri(MOST, k=-1, dtype=bool)
    return np.asarray((same & earlier & right[:, None]).any(axis=2))


def _projected(h: Floats) -> Floats:
    """(m, 3, 3): transverse projection of an ellipse, in homogeneous coordinates."""
    flat = h.copy()
    flat[:, 2] = 0, 0, 1
    return flat


def _inverse(h: Floats) -> tuple[Floats, Bools]:
    """Inverses of projected ellipses, and which have none because their projection is a line."""
    size = np.abs(h[:, :2, :2]).max(axis=(1, 2))
    flat = np.abs(np.linalg.det(h[:, :2, :2])) <= 1e-12 * size**2
    safe = np.where(flat[:, None, None], np.eye(3), h)
    return np.linalg.inv(safe), flat


def _closest(h: Floats, met: Floats) -> Floats:
    """(m, 2, 3): points of two ellipses whose sum of transverse momenta is nearest to met.

    The minimisation over both angles starts at the best point of each part of a grid, since there may be several
    minima.
    """
    m, part = len(h), GRID // PARTS
    angles = np.arange(GRID) * (2 * np.pi / GRID)
    grid = _at(h, np.broadcast_to(angles[None, :, None], (m, GRID, 2)))[..., :2]  # (m, GRID, 2, 2)
    away = grid[:, :, None, 0] + grid[:, None, :, 1] - met[:, None, None]  # (m, GRID, GRID, 2)
    parts = _dot(away, away).reshape(m, PARTS, part, PARTS, part).swapaxes(2, 3)
    best = parts.reshape(m, PARTS**2, part**2).argmin(axis=2)  # (m, starts)
    row, column = np.divmod(np.arange(PARTS**2), PARTS)
    angle = np.stack([angles[row * part + best // part], angles[column * part + best % part]], axis=-1)
    for steps, kept in ((FIRST, KEPT), (STEPS, 1)):
        angle = _descend(h, met, angle, steps)
        missed = _at(h, angle)[..., :2].sum(axis=2) - met[:, None]
        best = np.argsort(_dot(missed, missed), axis=1, kind="stable")[:, :kept]
        angle = np.take_along_axis(angle, best[..., None], axis=1)
    return np.asarray(_at(h, angle)[:, 0])


def _descend(h: Floats, met: Floats, angle: Floats, steps: int) -> Floats:
    """Minimise the distance from angles (m, k, 2) with Newton's method, damped if a step leads upwards."""
    damping = np.full(angle.shape[:2], 1e-3)
    points = _at(h, angle)[..., :2]  # (m, k, 2 ellipses, 2)
    missed = points.sum(axis=2) - met[:, None]
    for _ in range(steps):
        slope = _slopes(h, angle)
        gradient = _dot(slope, missed[:, :, None])  # (m, k, 2)
        hessian = slope @ np.swapaxes(slope, -1, -2)
        scale = hessian[..., 0, 0] + hessian[..., 1, 1]
        bend = h[:, None, :, :2, 2] - points
        a, d = np.moveaxis(hessian[..., [0, 1], [0, 1]] + _dot(bend, missed[:, :, None]), -1, 0)
        b = hessian[..., 0, 1]
        shift = np.maximum(0, np.hypot((a - d) / 2, b) - (a + d) / 2) + damping * scale + 1e-12
        a, d = a + shift, d + shift  # makes both eigenvalues positive
        first, second = np.moveaxis(gradient, -1, 0)
        step = np.stack([b * second - d * first, b * first - a * second], axis=-1) / (a * d - b**2)[..., None]
        trial = _at(h, angle + step)[..., :2]
        missed_then = trial.sum(axis=2) - met[:, None]
        better = _dot(missed_then, missed_then) <= _dot(missed, missed)
        angle = np.where(better[..., None], angle + step, angle)
        points = np.where(better[..., None, None], trial, points)
        missed = np.where(better[..., None], missed_then, missed)
        damping = np.where(better, damping / 10, damping * 10)
    return angle


# -- four-vectors ------------------------------------------------------------------------------------------


def _dot(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> Floats:
    return np.asarray((one * other).sum(axis=-1))


def _square(p4: npt.NDArray[Any]) -> Floats:
    return np.asarray(p4[..., 3] ** 2 - (p4[..., :3] ** 2).sum(axis=-1))


def _with_energy(momentum: npt.NDArray[Any]) -> Floats:
    """Massless p4 (..., 4) of a momentum (..., 3)."""
    return np.concatenate([momentum, np.sqrt((momentum**2).sum(axis=-1, keepdims=True))], axis=-1)


def _massless(transverse: Floats, pz: Floats) -> Floats:
    """p4 (..., 4) of px, py (..., 2) and pz (...)."""
    both = np.broadcast_to(transverse, (*pz.shape, 2))
    return _with_energy(np.concatenate([both, pz[..., None]], axis=-1))
