"""Starting points and bounds of the fits of a decay.

KLFitter has one start: the measured energies, the measured value of a free mass, and the missing energy as the
transverse momentum of the neutrino. Its pz is the better of the two solutions that give the W its mass, or 0 if
there is none. The likelihood has several maxima, since each resonance may be on its peak or in its tail. So
`several` also starts from the other pz, and from points to which all resonances, or a single one, were first
pulled to their masses.

Shapes: F fits, D parameters, V measured objects, n starts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pairton.events.neutrinos import one_neutrino, two_neutrinos
from pairton.kinematics.decays import Decay
from pairton.kinematics.newton import maximise, solve
from pairton.kinematics.objective import BREIT_WIGNER, NORMAL, UNUSED, Problem

__all__ = ["Limits", "fit", "limits", "log_volume", "standard_deviations"]

Floats = npt.NDArray[np.float64]

DEVIATIONS = 7.0  # an energy E is fitted within E +- 7 sqrt(E)
LEAST_ENERGY = 0.5  # GeV
FREE_MASS = (100 / 172.5, 1000 / 172.5)  # bounds of a free mass, relative to its expected value: those of KLFitter
NEUTRINO_BOUNDS = ((1.0, 1e7), (-8.0, 8.0), (-1e3, 1e3))  # of s, eta, phi
NEUTRINO_SCALES = (300.0, 0.5, 0.5)
MASS_SCALE = 10.0
PULL_STEPS, STEPS = 15, 60
WIDEST = 3.0  # largest width of the likelihood in any direction that `log_volume` uses, in units of the scales
MARGIN = 10.0  # without neutrinos, a pulled start whose log L is lower by more than this is dropped

Limits = tuple[Floats, Floats, Floats]


def limits(problem: Problem) -> Limits:
    """Lower and upper bounds of the parameters and their scales, (D, F) each."""
    decay, energy = problem.decay, problem.measured
    fits = energy.shape[1]
    least = np.maximum(LEAST_ENERGY, 1.001 * np.array(decay.masses))[:, None]
    low = np.maximum(energy - DEVIATIONS * np.sqrt(energy), least)
    high = np.maximum(energy + DEVIATIONS * np.sqrt(energy), least)
    r = problem.response
    sigma = np.sqrt((r.a2[0] * energy + r.b2[0]) * energy + r.c2[0])
    lower, upper, scale = [low], [high], [sigma]
    for _ in decay.neutrinos:
        for (below, above), unit in zip(NEUTRINO_BOUNDS, NEUTRINO_SCALES, strict=True):
            for parts, value in ((lower, below), (upper, above), (scale, unit)):
                parts.append(np.full((1, fits), value))
    for _, expected in decay.free:
        least_mass, largest_mass = (factor * expected.mass for factor in FREE_MASS)
        for parts, value in ((lower, least_mass), (upper, largest_mass), (scale, MASS_SCALE)):
            parts.append(np.full((1, fits), value))
    return np.concatenate(lower), np.concatenate(upper), np.concatenate(scale)


def fit(problem: Problem, several: bool, more: Floats | None = None) -> tuple[Floats, Floats]:
    """The best parameters (D, F) and log L there (F,).

    several   use several starts; False: only that of KLFitter
    more      further starts (D, n, F); only used with `several`
    """
    bounds = limits(problem)
    begin = _measured(problem, bounds, several)
    best, value = _follow(problem, bounds, begin, np.ones(begin.shape[1:], dtype=bool))
    if not several:
        return best, value
    starts = _pulled(problem, bounds, begin)
    if more is not None:
        starts = np.concatenate([starts, more], axis=1)
    promising = np.ones(starts.shape[1:], dtype=bool)
    if not problem.decay.neutrinos:
        promising = _values(problem, bounds, starts) > value - MARGIN
    other, other_value = _follow(problem, bounds, starts, promising)
    better = other_value > value
    return np.where(better, other, best), np.where(better, other_value, value)


def log_volume(problem: Problem, parameters: Floats) -> Floats:
    """(F,): log of the integral of L over the parameters, minus log L at its maximum (D, F).

    Laplace's method: L is replaced by a normal distribution with the curvature at the maximum.
    """
    gradient, hessian = problem.derivatives(parameters)
    _, _, scale = limits(problem)
    solve(hessian, gradient, (WIDEST * scale) ** -2)  # leaves the pivots on the diagonal
    pivots = np.diagonal(hessian)  # (F, D)
    return np.asarray(0.5 * (np.log(2 * np.pi) - np.log(pivots)).sum(axis=1))


def standard_deviations(problem: Problem, parameters: Floats) -> Floats:
    """(D, F): of each parameter at the maximum (D, F), from the curvature of log L.

    A direction in which log L is flat or rises counts with the largest width that `log_volume` uses.
    """
    _, hessian = problem.derivatives(parameters)
    least = (WIDEST * limits(problem)[2]) ** -2
    found = np.empty_like(parameters)
    for k in range(len(parameters)):
        unit = np.zeros_like(parameters)
        unit[k] = 1
        found[k] = np.sqrt(solve(hessian.copy(), unit, least)[k])
    return found


def _follow(
    problem: Problem, bounds: Limits, starts: Floats, wanted: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Maximise from the `wanted` (n, F) starts (D, n, F); the best parameters (D, F), and log L there (F,)."""
    start, row = np.nonzero(wanted)
    lower, upper, scale = (part.take(row, axis=1) for part in bounds)
    ends = np.repeat(starts[:, :1], starts.shape[1], axis=1)
    value = np.full(wanted.shape, -np.inf)
    if len(row):
        found, at_end = maximise(
            problem.take(row), np.ascontiguousarray(starts[:, start, row]), lower, upper, scale, STEPS
        )
        ends[:, start, row] = found
        value[start, row] = np.where(np.isfinite(at_end), at_end, -np.inf)
    best, every = value.argmax(axis=0), np.arange(wanted.shape[1])
    return ends[:, best, every], value[best, every]


def _values(problem: Problem, bounds: Limits, starts: Floats) -> Floats:
    """(n, F): log L at starts (D, n, F)."""
    lower, upper, _ = bounds
    return np.array([problem.value(np.clip(starts[:, k], lower, upper)) for k in range(starts.shape[1])])


def _measured(problem: Problem, bounds: Limits, several: bool) -> Floats:
    """(D, n, F): measured energies with every solution for the neutrinos, or only with the best one."""
    decay, fits = problem.decay, problem.measured.shape[1]
    base = np.zeros((decay.n_parameters, fits))
    base[: decay.n_visible] = problem.measured
    base[decay.first_free :] = np.clip(_free_masses(problem), *(b[decay.first_free :] for b in bounds[:2]))
    begin = []
    for momenta in _neutrinos(problem, several):
        begin.append(base.copy())
        for k, momentum in enumerate(momenta):
            at = decay.n_visible + 3 * k
            begin[-1][at : at + 3] = problem.neutrino(momentum, _leaf(problem, decay.partners[k]))
    starts = np.stack(begin, axis=1)
    if several:
        return starts
    chosen = _values(problem, bounds, starts).argmax(axis=0)
    return starts[:, chosen, np.arange(fits)][:, None]


def _pulled(problem: Problem, bounds: Limits, begin: Floats) -> Floats:
    """(D, m, F): starts in which resonances were pulled to their masses, close to the measured energies."""
    d, n, fits = begin.shape
    rows = np.tile(np.arange(fits), n)
    tiled = problem.take(rows).smooth()
    lower, upper, scale = (part.take(rows, axis=1) for part in bounds)
    found = []
    for shapes in _pulled_shapes(problem.decay):
        pulled, _ = maximise(tiled.with_shapes(shapes), begin.reshape(d, -1), lower, upper, scale, PULL_STEPS)
        found.append(pulled.reshape(begin.shape))
    return np.concatenate(found, axis=1) if found else begin[:, :0]


def _pulled_shapes(decay: Decay) -> list[tuple[int, ...]]:
    """Which resonances to pull to their masses: all, and for at most one neutrino also each one alone.

    Resonances of a lepton and its neutrino are not pulled alone: they have their masses from the start.
    """
    count = len(decay.resonances)
    patterns = [(BREIT_WIGNER,) * count, (NORMAL,) * count] if count else []
    if count > 1 and len(decay.neutrinos) < 2:
        pairs = [{lepton, decay.n_visible + k} for k, lepton in enumerate(decay.partners)]
        alone = [k for k in range(count) if set(decay.resonances[k].leaves) not in pairs]
        patterns += [tuple(NORMAL if k == other else UNUSED for other in range(count)) for k in alone]
    return patterns


def _leaf(problem: Problem, leaf: int) -> Floats:
    """(4, F): the measured four-momentum of a leaf, with the mass that the decay gives it."""
    energy = np.maximum(problem.measured[leaf], 1.001 * problem.decay.masses[leaf])
    momentum = np.sqrt(energy**2 - problem.decay.masses[leaf] ** 2)
    return np.concatenate([problem.direction[leaf] * momentum, energy[None]])


def _free_masses(problem: Problem) -> Floats:
    """(free masses, F): the mean measured mass of resonances without neutrinos; else the expected mass."""
    decay, fits = problem.decay, problem.measured.shape[1]
    found = np.empty((len(decay.free), fits))
    for k, (_, expected) in enumerate(decay.free):
        seen = [r for r in decay.resonances if r.free == k and max(r.leaves) < decay.n_visible]
        if not seen:
            found[k] = expected.mass
            continue
        p4 = [np.sum([_leaf(problem, v) for v in resonance.leaves], axis=0) for resonance in seen]
        found[k] = np.mean([np.sqrt(np.maximum(p[3] ** 2 - (p[:3] ** 2).sum(axis=0), 0)) for p in p4], axis=0)
    return found


# -- neutrinos ---------------------------------------------------------------------------------------------


def _neutrinos(problem: Problem, several: bool) -> list[list[Floats]]:
    """For each start, the momenta (3, F) of all neutrinos."""
    decay = problem.decay
    if not decay.neutrinos:
        return [[]]
    met = problem.met / len(decay.neutrinos)
    each = [_one(problem, k, met, several) for k in range(len(decay.neutrinos))]
    shared = [list(momenta) for momenta in zip(*each, strict=True)]
    return [*_two(problem), *shared] if len(decay.neutrinos) == 2 and several else shared


def _one(problem: Problem, k: int, met: Floats, several: bool) -> tuple[Floats, Floats]:
    """Two momenta (3, F) of one neutrino.

    They are the two solutions for pz if these are real. Otherwise pz is 0, or with `several` first the real part
    of the solutions, then 0.
    """
    lepton = _leaf(problem, problem.decay.partners[k])
    solved = one_neutrino(lepton.T, met.T, _mass_with_lepton(problem.decay, k))
    first, second = np.moveaxis(solved.p4[..., :3], (1, 2), (0, 1))  # (3, F) each
    flat = np.concatenate([met, np.zeros((1, met.shape[1]))])
    return np.where(solved.real | several, first, flat), np.where(solved.real, second, flat)


def _mass_with_lepton(decay: Decay, k: int) -> float:
    pair = {decay.partners[k], decay.n_visible + k}
    return next((r.mass.mass for r in decay.resonances if set(r.leaves) == pair), 80.4)


def _two(problem: Problem) -> list[list[Floats]]:
    """Solutions for two neutrinos, where their ellipses intersect; none unless both have W and top masses."""
    decay = problem.decay
    leptons, rest, masses = [], [], []
    for k in range(2):
        pair = {decay.partners[k], decay.n_visible + k}
        above = [r for r in decay.resonances if pair < set(r.leaves) and decay.n_visible + 1 - k not in r.leaves]
        if not above:
            return []
        parent = min(above, key=lambda r: len(r.leaves))
        leptons.append(_leaf(problem, decay.partners[k]).T)
        rest.append(np.sum([_leaf(problem, v) for v in parent.leaves if v not in pair], axis=0).T)
        masses.append((_mass_with_lepton(decay, k), parent.mass.mass))
    w_mass, top_mass = np.array(masses).T
    found = two_neutrinos(
        np.stack(leptons, axis=1), np.stack(rest, axis=1), problem.met.T, w_mass, top_mass
    ).p4  # (F, 4, 2, 4)
    known = np.asarray(np.isfinite(found).all(axis=(2, 3)))
    first = np.where(known[:, :1, None, None], found[:, :1], np.ones(4))
    found = np.where(known[:, :, None, None], found, first)
    return [[found[:, n, k, :3].T for k in range(2)] for n in range(found.shape[1])]
