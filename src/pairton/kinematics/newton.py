"""The Levenberg-Marquardt algorithm within bounds, with exact Hessians, for many small fits at once.

Each fit has its own damping, which grows after a step that does not help and shrinks after one that does. The
Hessian may be indefinite: a modified LDL decomposition replaces pivots that are not positive enough, so that every
step goes uphill. The result of a fit does not depend on the other fits of the batch.

Shapes: F fits (the last axis), D parameters.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Objective", "maximise", "solve"]

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

FIRST_DAMPING = 1e-2
DAMPING = (1e-9, 1e9)  # range
SMALLER, LARGER = 0.2, 6.0  # factors on the damping
LEAST_PIVOT = 1e-3  # in units of 1 / scale^2
PRECISE = 1e-5  # a fit is done if another step is expected to raise log L by less
FEWER = 0.8  # fits that are done are removed from the arrays when at most this share is left
AT_ONCE = 2500  # fits whose arrays fit in the cache
QUICK = 12  # after so many steps, the unfinished fits of all blocks are put together


class Objective(Protocol):
    """A function to maximise."""

    def value(self, parameters: Floats) -> Floats: ...

    def derivatives(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Gradient (D, F) and lower triangle of the Hessian (D, D, F) of minus the value."""

    def take(self, fits: Index) -> Any: ...


def maximise(
    objective: Objective, start: Floats, lower: Floats, upper: Floats, scale: Floats, steps: int
) -> tuple[Floats, Floats]:
    """Parameters (D, F) at a maximum, and the value there (F,).

    start          (D, F)
    lower, upper   (D, F): bounds
    scale          (D, F): typical size of a change of each parameter
    steps          the largest number of steps; a fit stops earlier when a step is expected to gain less than 1e-5
    """
    best = np.clip(start, lower, upper)
    value = np.full(best.shape[1], -np.inf)
    damping = np.full(best.shape[1], FIRST_DAMPING)
    going = np.arange(best.shape[1])
    for some in (min(steps, QUICK), steps - QUICK):  # first all fits, then the unfinished ones together
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
    """A block of fits that is being maximised."""

    def __init__(
        self, problem: Any, start: Floats, damping: Floats, lower: Floats, upper: Floats, scale: Floats
    ) -> None:
        self.best, self.damping = start, damping
        self.value: Floats = problem.value(start)
        self._problem, self._lower, self._upper, self._weight = problem, lower, upper, 1 / scale**2

    def run(self, steps: int) -> Index:
        """Make steps; returns the fits that are not finished."""
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
    """Keep parameters at a bound if the gradient points beyond it."""
    at_bound = (here <= low) & (gradient > 0) | (here >= high) & (gradient < 0)
    for k in np.flatnonzero(at_bound.any(axis=1)):
        fits = at_bound[k]
        gradient[k, fits] = 0
        hessian[k, : k + 1, fits] = 0
        hessian[k:, k, fits] = 0
        hessian[k, k, fits] = 1


def solve(matrix: Floats, right: Floats, least: Floats) -> Floats:
    """Solve A x = b for x (D, F); only the lower triangle of A (D, D, F) is read, and it is overwritten.

    Every pivot is replaced by its absolute value, but at least `least` (D, F), in case A is not positive definite.

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
