"""The log likelihood of a kinematic fit with its gradient and Hessian, for many fits at once.

    log L = sum log W(E_measured | E) + log W(MET_x | sum p_x) + log W(MET_y | sum p_y)
          - sum over resonances log [(m^2 - M^2)^2 + M^2 width^2]

The directions of measured objects are fixed. The parameters of a neutrino are s, the squared invariant mass of the
neutrino and its lepton, and its eta and phi. Together with the four-momentum of the lepton they give its momentum.
The narrow peak of the W then lies along one parameter, so the maximum is easy to find.

Shapes: F fits (the last axis), V measured objects, K neutrinos, L = V + K leaves, D parameters: V energies, then
s, eta and phi of each neutrino, then free masses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pairton.kinematics.decays import Decay
from pairton.kinematics.transfer_functions import Response

__all__ = ["BREIT_WIGNER", "NORMAL", "UNUSED", "Problem"]

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

UNUSED, NORMAL, BREIT_WIGNER = range(3)  # shape of a resonance in the likelihood
LOG_2PI = float(np.log(2 * np.pi))
METRIC = np.array([-1.0, -1.0, -1.0, 1.0])[:, None]


@dataclass(frozen=True)
class Problem:
    """The data of many fits of one decay; parameters are passed as (D, F)."""

    decay: Decay
    direction: Floats  # (V, 3, F): unit vectors
    measured: Floats  # (V, F): energies
    response: Response
    met: Floats  # (2, F)
    met_sigma: Floats  # (F,)
    eta_sigma: float = 0.0  # width of the prior of each neutrino's eta; 0: no prior
    shapes: tuple[int, ...] = ()  # of the resonances; empty: all Breit-Wigner

    def take(self, fits: Index) -> Problem:
        """Some of the fits."""
        return replace(
            self,
            direction=self.direction.take(fits, axis=-1),  # unlike [..., fits], it keeps the last axis contiguous
            measured=self.measured.take(fits, axis=-1),
            response=self.response.take(fits),
            met=self.met.take(fits, axis=-1),
            met_sigma=self.met_sigma[fits],
        )

    def with_shapes(self, shapes: Sequence[int]) -> Problem:
        """The same with other shapes of resonances: a normal distribution pulls to the mass from any distance."""
        return replace(self, shapes=tuple(shapes))

    def smooth(self) -> Problem:
        """The same with transfer functions of one component, which have fewer maxima."""
        return replace(self, response=self.response.smooth())

    def shape(self, resonance: int) -> int:
        return self.shapes[resonance] if self.shapes else BREIT_WIGNER

    # -- momenta -------------------------------------------------------------------------------------------

    def leaves(self, parameters: Floats) -> Floats:
        """(L, 4, F): px, py, pz, energy of the leaves."""
        decay, n = self.decay, self.decay.n_visible
        result = np.empty((n + len(decay.neutrinos), 4, parameters.shape[1]))
        energy = parameters[:n]
        result[:n, :3] = _momentum(decay, energy)[:, None] * self.direction
        result[:n, 3] = energy
        for k, lepton in enumerate(decay.partners):
            s, eta, phi = parameters[n + 3 * k : n + 3 * k + 3]
            axis = _axis(eta, phi)
            opening = (result[lepton] * METRIC * axis).sum(axis=0)
            result[n + k] = axis * (0.5 * s / opening)
        return result

    def masses_squared(self, leaves: Floats) -> list[Floats]:
        """The squared masses (F,) of the resonances."""
        found = []
        for resonance in self.decay.resonances:
            p = leaves[list(resonance.leaves)].sum(axis=0)
            found.append((p * p * METRIC).sum(axis=0))
        return found

    @staticmethod
    def neutrino(momentum: Floats, lepton: Floats) -> Floats:
        """The parameters (3, F) of a neutrino, from its momentum (3, F) and that of its lepton (4, F)."""
        x, y, z = momentum
        pt = np.maximum(np.hypot(x, y), 1e-3)
        energy = np.sqrt(pt * pt + z * z)
        s = 2 * (energy * lepton[3] - (momentum * lepton[:3]).sum(axis=0))
        return np.stack([np.maximum(s, 1.0), np.arcsinh(z / pt), np.arctan2(y, x)])

    # -- the likelihood ------------------------------------------------------------------------------------

    def value(self, parameters: Floats) -> Floats:
        """(F,): log L."""
        n, leaves = self.decay.n_visible, self.leaves(parameters)
        total = self.response.log_density(parameters[:n], self.measured).sum(axis=0)
        squares = self.masses_squared(leaves)
        for k, resonance in enumerate(self.decay.resonances):
            if self.shape(k) == UNUSED:
                continue
            mass = self._mass(k, parameters)
            off, per = squares[k] - mass * mass, (mass * resonance.mass.width) ** 2
            total -= np.log(off * off + per) if self.shape(k) == BREIT_WIGNER else 0.5 * off * off / per
        if self.decay.neutrinos:
            away = (leaves[n:, :2].sum(axis=0) - self.met) / self.met_sigma
            total -= 0.5 * (away * away).sum(axis=0) + LOG_2PI + 2 * np.log(self.met_sigma)
            if self.eta_sigma:
                for k in range(len(self.decay.neutrinos)):
                    total -= 0.5 * (parameters[n + 3 * k + 1] / self.eta_sigma) ** 2
        return np.asarray(total)

    def _mass(self, resonance: int, parameters: Floats) -> Floats | float:
        """The expected mass of a resonance: a number, or a free mass (F,)."""
        known = self.decay.resonances[resonance]
        return known.mass.mass if known.free < 0 else parameters[self.decay.first_free + known.free]

    def derivatives(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Gradient (D, F) and Hessian (D, D, F) of -log L; only the lower triangle of the Hessian is filled."""
        decay, n = self.decay, self.decay.n_visible
        d, fits = decay.n_parameters, parameters.shape[1]
        gradient, hessian = np.zeros((d, fits)), np.zeros((d, d, fits))
        first, second = self.response.derivatives(parameters[:n], self.measured)
        gradient[:n] -= first
        hessian[range(n), range(n)] -= second
        leaves = self.leaves(parameters)
        motion = _Motion(self, parameters, leaves)
        pull = np.zeros_like(leaves)  # (L, 4, F): derivative of -log L by the momentum of each leaf
        for k in range(len(decay.resonances)):
            if self.shape(k) != UNUSED:
                self._add_resonance(k, parameters, leaves, motion, pull, gradient, hessian)
        if decay.neutrinos:
            self._add_met(leaves, motion, pull, parameters, gradient, hessian)
        motion.add(pull, gradient, hessian)
        return gradient, hessian

    def _add_resonance(
        self,
        k: int,
        parameters: Floats,
        leaves: Floats,
        motion: _Motion,
        pull: Floats,
        gradient: Floats,
        hessian: Floats,
    ) -> None:
        """Add the term of one resonance; the part through `pull` is added later by `_Motion.add`."""
        resonance = self.decay.resonances[k]
        inside = list(resonance.leaves)
        p = leaves[inside].sum(axis=0)  # (4, F)
        lowered = p * METRIC
        at, moves = motion.of(inside)
        slopes = [2 * (move * lowered).sum(axis=0) for move in moves]  # of the squared mass
        mass, width = self._mass(k, parameters), resonance.mass.width
        off, per = (p * lowered).sum(axis=0) - mass * mass, (mass * width) ** 2
        if self.shape(k) == BREIT_WIGNER:
            whole = off * off + per
            by_s, by_ss = 2 * off / whole, 2 / whole
        else:
            by_s, by_ss = off / per, 1 / per + 0 * off
        pull[inside] += 2 * by_s * lowered
        for i, row in enumerate(at):
            scaled, turned = by_ss * slopes[i], moves[i] * METRIC * (2 * by_s)
            for j in range(i + 1):
                column = at[j]
                hessian[max(row, column), min(row, column)] += scaled * slopes[j] + (turned * moves[j]).sum(axis=0)
        if resonance.free < 0:
            return
        last = self.decay.first_free + resonance.free
        if self.shape(k) == BREIT_WIGNER:
            by_m = 2 * mass * (width**2 - 2 * off)  # of `whole`
            gradient[last] += by_m / whole
            hessian[last, last] += (8 * mass**2 - 4 * off + 2 * width**2) / whole
            mixed = -4 * mass / whole
        else:
            ratio = off / mass**2
            gradient[last] -= mass * ratio * (2 + ratio) / width**2
            hessian[last, last] += (4 + 6 * ratio + 3 * ratio**2) / width**2
            mixed = -2 * (1 + ratio) / (mass * width**2)
        for i, row in enumerate(at):
            hessian[last, row] += mixed * slopes[i]

    def _add_met(
        self,
        leaves: Floats,
        motion: _Motion,
        pull: Floats,
        parameters: Floats,
        gradient: Floats,
        hessian: Floats,
    ) -> None:
        """Add the terms of the missing energy, except those through `pull`, and the prior of eta."""
        n, neutrinos = self.decay.n_visible, range(len(self.decay.neutrinos))
        per = 1 / self.met_sigma**2
        pull[n:, :2] += (leaves[n:, :2].sum(axis=0) - self.met) * per
        at = [row for k in neutrinos for row in motion.rows(k)]
        moves = [move[:2] for k in neutrinos for move in motion.neutrino_moves(k)]
        for i, row in enumerate(at):
            scaled = moves[i] * per
            for j in range(i + 1):
                column = at[j]
                hessian[max(row, column), min(row, column)] += (scaled * moves[j]).sum(axis=0)
        if self.eta_sigma:
            for k in neutrinos:
                row = n + 3 * k + 1
                gradient[row] += parameters[row] / self.eta_sigma**2
                hessian[row, row] += 1 / self.eta_sigma**2


class _Motion:
    """Derivatives of the momenta of leaves by the parameters.

    The momentum of a neutrino is q(eta, phi) exp(t), with q = (cos phi, sin phi, sinh eta, cosh eta) and t = log
    pT, which is a function of s, eta, phi and the energy of the lepton. A "move" is the derivative (4, F) of a
    momentum by a parameter; "slopes" and "bends" are first and second derivatives of a number.
    """

    def __init__(self, problem: Problem, parameters: Floats, leaves: Floats) -> None:
        self.decay, self.leaves = problem.decay, leaves
        n = problem.decay.n_visible
        energy, momentum = parameters[:n], _momentum(problem.decay, parameters[:n])
        self._visible = np.ones_like(leaves[:n])
        self._visible[:, :3] = (energy / momentum)[:, None] * problem.direction
        bend = -np.square(problem.decay.masses)[:, None] / momentum**3  # second derivative of |p| by E
        self._bend = {v: bend[v] * problem.direction[v] for v in range(n) if problem.decay.masses[v]}
        self._neutrinos = [self._neutrino(k, parameters) for k in range(len(problem.decay.neutrinos))]

    def rows(self, k: int) -> list[int]:
        """Parameters that change the momentum of neutrino k: the energy of its lepton, s, eta and phi."""
        first = self.decay.n_visible + 3 * k
        return [self.decay.partners[k], first, first + 1, first + 2]

    def neutrino_moves(self, k: int) -> list[Floats]:
        """The moves of neutrino k by each parameter of `rows`."""
        return self._neutrinos[k][0]

    def _neutrino(self, k: int, parameters: Floats) -> tuple[list[Floats], list[list[Floats]], list[Floats]]:
        """Moves by E, s, eta and phi; second and first derivatives of t by the same."""
        n, lepton = self.decay.n_visible, self.decay.partners[k]
        s, eta, phi = parameters[n + 3 * k : n + 3 * k + 3]
        x, y, z, _ = self.leaves[lepton]
        p, nu = parameters[lepton], self.leaves[n + k]
        lepton_pt = np.hypot(x, y)
        # t = log s - log k + ..., with k = cosh(delta eta) - cos(delta phi)
        sinh, cosh = np.sinh(eta), np.cosh(eta)
        lepton_sinh = z / lepton_pt
        lepton_cosh = np.sqrt(1 + lepton_sinh**2)
        sine, cosine = np.sin(phi), np.cos(phi)
        d_cosh = cosh * lepton_cosh - sinh * lepton_sinh
        d_sinh = sinh * lepton_cosh - cosh * lepton_sinh
        d_cos = (cosine * x + sine * y) / lepton_pt
        d_sin = (sine * x - cosine * y) / lepton_pt
        per = 1 / (d_cosh - d_cos)
        by_eta, by_phi = -d_sinh * per, -d_sin * per
        slopes = [-1 / p, 1 / s, by_eta, by_phi]
        zero = np.zeros_like(p)
        bends = [
            [1 / p**2],
            [zero, -1 / s**2],
            [zero, zero, by_eta**2 - d_cosh * per],
            [zero, zero, by_eta * by_phi, by_phi**2 - d_cos * per],
        ]
        moves = [nu * slope for slope in slopes]
        moves[2][2] += nu[3]
        moves[2][3] += nu[2]
        moves[3][0] -= nu[1]
        moves[3][1] += nu[0]
        return moves, bends, slopes

    def of(self, leaves: Sequence[int]) -> tuple[list[int], list[Floats]]:
        """The parameters that change the summed momentum of some leaves, and the moves."""
        n = self.decay.n_visible
        moves = {leaf: self._visible[leaf] for leaf in leaves if leaf < n}
        for leaf in leaves:
            if leaf >= n:
                for row, move in zip(self.rows(leaf - n), self._neutrinos[leaf - n][0], strict=True):
                    moves[row] = moves[row] + move if row in moves else move
        return list(moves), list(moves.values())

    def add(self, pull: Floats, gradient: Floats, hessian: Floats) -> None:
        """Add the terms through `pull` (L, 4, F), the derivatives of -log L by the momenta of leaves."""
        n = self.decay.n_visible
        gradient[:n] += (pull[:n] * self._visible).sum(axis=1)
        for v, bend in self._bend.items():
            hessian[v, v] += (pull[v, :3] * bend).sum(axis=0)
        for k, (moves, bends, slopes) in enumerate(self._neutrinos):
            force, nu = pull[n + k], self.leaves[n + k]
            rows = self.rows(k)
            whole = (force * nu).sum(axis=0)
            turned = [None, None, force[2] * nu[3] + force[3] * nu[2], force[1] * nu[0] - force[0] * nu[1]]
            for i, row in enumerate(rows):
                gradient[row] += (force * moves[i]).sum(axis=0)
                for j in range(i + 1):
                    term = whole * (slopes[i] * slopes[j] + bends[i][j])
                    if turned[i] is not None:
                        term += slopes[j] * turned[i]
                    if turned[j] is not None:
                        term += slopes[i] * turned[j]
                    if i == j == 2:
                        term += force[2] * nu[2] + force[3] * nu[3]
                    if i == j == 3:
                        term -= force[0] * nu[0] + force[1] * nu[1]
                    hessian[max(row, rows[j]), min(row, rows[j])] += term


def _momentum(decay: Decay, energy: Floats) -> Floats:
    """(V, F): |p| of the measured leaves."""
    return np.sqrt(energy**2 - np.square(decay.masses)[:, None])


def _axis(eta: Floats, phi: Floats) -> Floats:
    """(4, F): a massless momentum of unit pT."""
    return np.stack([np.cos(phi), np.sin(phi), np.sinh(eta), np.cosh(eta)])
