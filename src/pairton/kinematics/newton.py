"""Damped Newton steps for many small problems at once, within bounds.

Each fit has its own damping: it grows where a step does not help and shrinks where one does. The Hessian may be
indefinite: pivots of its LDL decomposition that are not positive enough are replaced, so that every step goes
uphill. The result of a fit depends on that fit alone, never on those beside it.

Shapes: F fits, the last axis; D parameters.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Objective", "maximise", "solve"]

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

FIRST_DAMPING = 1e-2
DAMPING = (1e-9, 1e9)
SMALLER, LARGER = 0.2, 6.0
LEAST_PIVOT = 1e-3  # in units of the scales
PRECISE = 1e-5  # of log L: what another step must promise
FEWER = 0.8  # share of the fits that are not done: below it the others are left out
AT_ONCE = 2500  # fits: their arrays stay in the cache
QUICK = 12  # steps after which the fits that are not done are put together


class Objective(Protocol):
    """What is maximised."""

    def value(self, parameters: Floats) -> Floats: ...

    def derivatives(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Gradient (D, F) and Hessian (D, D, F) of minus the value; of the latter the lower triangle."""

    def take(self, fits: Index) -> Any: ...


def maximise(
    objective: Objective, start: Floats, lower: Floats, upper: Floats, scale: Floats, steps: int
) -> tuple[Floats, Floats]:
    """Parameters (D, F) at a maximum, and the value there (F,).

    start, lower, upper   (D, F)
    scale                 (D, F): how far a parameter may be expected to move
    steps                 at most; fewer where the last step promised less than 1e-5
    """
    best = np.clip(start, lower, upper)
    value = np.full(best.shape[1], -np.inf)
    damping = np.full(best.shape[1], FIRST_DAMPING)
    going = np.arange(best.shape[1])
    for some in (min(steps, QUICK), steps - QUICK):  # first all fits, then the slow ones together
        left = []
        for rows in np.split(going, range(AT_ONCE, len(going), AT_ONCE)):
            if some <= 0 or not len(rows):
                continue
            bounds = (part.take(rows, axis=1) for part in (lower, upper, scale))
            climb = _Climb(objective.take(rows), best.take(rows, axis=1), damping[rows], *bounds)
            left.append(rows[climb.run(some)])
            best[:, rows], value[rows], damping[rows] = climb.best, climb.value, climb.damping
        going = np.concatenate(left) if left else going[:0]
    return best, value


class _Climb:
    """Some fits on their way to a maximum."""

    def __init__(
        self, problem: Any, start: Floats, damping: Floats, lower: Floats, upper: Floats, scale: Floats
    ) -> None:
        self.best, self.damping = start, damping
        self.value: Floats = problem.value(start)
        self._problem, self._lower, self._upper, self._weight = problem, lower, upper, 1 / scale**2

    def run(self, steps: int) -> Index:
        """Make steps; returns the fits that promise more."""
        problem, low, high, weight = self._problem, self._lower, self._upper, self._weight
        here, value, damping = self.best.copy(), self.value.copy(), self.damping
        active, going = np.arange(len(value)), np.ones(len(value), dtype=bool)
        for _ in range(steps):
            gradient, hessian = problem.derivatives(here)
            _hold(here, low, high, gradient, hessian)
            for k, row in enumerate(weight):
                hessian[k, k] += damping * row
            move = solve(hessian, -gradient, LEAST_PIVOT * weight)
            trial = np.clip(here + move, low, high)
            found = problem.value(trial)
            better = (found > value) & going
            np.copyto(here, trial, where=better)
            np.copyto(value, found, where=better)
            damping = np.where(going, np.clip(damping * np.where(better, SMALLER, LARGER), *DAMPING), damping)
            going &= (-0.5 * (move * gradient).sum(axis=0) > PRECISE) & (damping < DAMPING[1])
            left = np.count_nonzero(going)
            if left <= FEWER * len(active):
                self.best[:, active], self.value[active], self.damping[active] = here, value, damping
                (rows,) = np.nonzero(going)
                active, value, damping, going = active[rows], value[rows], damping[rows], going[rows]
                if not left:
                    break
                here, low, high, weight = (part.take(rows, axis=1) for part in (here, low, high, weight))
                problem = problem.take(rows)
        if len(active):
            self.best[:, active], self.value[active], self.damping[active] = here, value, damping
        return active[going]


def _hold(here: Floats, low: Floats, high: Floats, gradient: Floats, hessian: Floats) -> None:
    """Parameters at a bound that the gradient leads beyond stay there."""
    at_bound = (here <= low) & (gradient > 0) | (here >= high) & (gradient < 0)
    for k in np.flatnonzero(at_bound.any(axis=1)):
        fits = at_bound[k]
        gradient[k, fits] = 0
        hessian[k, : k + 1, fits] = 0
        hessian[k:, k, fits] = 0
        hessian[k, k, fits] = 1


def solve(matrix: Floats, right: Floats, least: Floats) -> Floats:
    """x (D, F) of A x = b for A (D, D, F), of which the lower triangle is read and overwritten.

    Where A is not positive definite, pivots are replaced by their absolute value, and by `least` (D, F) where that
    is smaller still.

    >>> matrix = np.array([[[2.0], [0.0]], [[0.0], [-4.0]]])
    >>> solve(matrix, np.array([[2.0], [4.0]]), np.full((2, 1), 1e-3)).ravel().tolist()
    [1.0, 1.0]
    """
    d = len(matrix)
    x = right.copy()
    for k in range(d):
        for j in range(k):  # row k of L, times the pivots
            for i in range(j):
                matrix[k, j] -= matrix[k, i] * matrix[j, i]
        for j in range(k):
            scaled = matrix[k, j] / matrix[j, j]
            matrix[k, k] -= scaled * matrix[k, j]
            matrix[k, j] = scaled
            x[k] -= scaled * x[j]
        np.maximum(np.abs(matrix[k, k]), least[k], out=matrix[k, k])
    for k in reversed(range(d)):
        x[k] /= matrix[k, k]
        for j in range(k + 1, d):
            x[k] -= matrix[j, k] * x[j]
    return x
