"""All of a pass that is no matrix product, compiled: rows of pairs stay in cache, nothing is gathered twice.

Shapes: B events of N jets, M = N (N + 1) / 2 pairs i <= j at the position j (j + 1) / 2 + i, R = B M rows, P pair
width, F hidden width of the heads. Exponentials are left to numpy, whose loops are vectorised where LLVM's are
not: a gate arrives as exp(-x), which 1 / (1 + .) turns into a sigmoid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["Kernels", "features", "gate", "kernels", "silu"]

F32 = npt.NDArray[np.float32]
Index = npt.NDArray[np.intp]
Function = TypeVar("Function")
# sums may be reordered and fused, so that they are vectorised; infinities keep their meaning
ORDER = {"reassoc", "contract", "arcp", "nsz"}
EPSILON = np.float32(1e-6)  # of the RMS norm
ONE = np.float32(1)


def _jit(function: Function) -> Function:
    """Compiled at the first call, kept on disk; runs without the interpreter's lock."""
    return cast(Function, numba.njit(cache=True, nogil=True, fastmath=ORDER)(cast(Any, function)))


@_jit
def _normalise(row: F32, out: F32, width: int) -> None:
    """Of the module, not of `kernels`: numba keeps what calls it on disk only then."""
    total = np.float32(0)
    for p in range(width):
        total += row[p] * row[p]
    factor = ONE / np.float32(math.sqrt(total / np.float32(width) + EPSILON))
    for p in range(width):
        out[p] = row[p] * factor


class Kernels(NamedTuple):
    """Loops whose length is known when they are compiled: five times as fast as those where it is not."""

    embed: Callable[[F32, F32, F32, int, F32], None]
    open_sides: Callable[[F32, F32], None]
    triangle: Callable[[F32, int, F32], None]
    add_gated_and_normalise: Callable[[F32, F32, F32, F32], None]
    add_and_normalise: Callable[[F32, F32, F32], None]
    three_sides: Callable[[F32, F32, Index, int, F32], None]
    sum_of_silu: Callable[[F32, F32, F32, F32], None]


@lru_cache(maxsize=8)
def kernels(width: int, hidden: int) -> Kernels:
    """For pairs of one width P and heads of one width F."""

    @_jit
    def embed(z: F32, jets: F32, bias: F32, n_jets: int, out: F32) -> None:
        """z_ij + y_i + y_j + bias in place, normalised in `out`: z (R, P), jets (B N, P)."""
        row = 0
        for first in range(0, jets.shape[0], n_jets):
            for j in range(n_jets):
                for i in range(j + 1):
                    one, two, target = jets[first + i], jets[first + j], z[row]
                    for p in range(width):
                        target[p] += one[p] + two[p] + bias[p]
                    _normalise(target, out[row], width)
                    row += 1

    @_jit
    def open_sides(sides: F32, gates: F32) -> None:
        """sides * sigmoid(gate) in place: (R, 2 P), gates as exp(-x) (R, 3 P), whose last third is for later."""
        for row in range(sides.shape[0]):
            side, closed = sides[row], gates[row]
            for p in range(2 * width):
                side[p] /= ONE + closed[p]

    @_jit
    def triangle(sides: F32, n_jets: int, out: F32) -> None:
        """t_ij = sum_k (a_ik c_jk + c_ik a_jk), normalised: a and c side by side (R, 2 P) -> out (R, P)."""
        for start in range(0, out.shape[0], n_jets * (n_jets + 1) // 2):
            for j in range(n_jets):
                for i in range(j + 1):
                    total = out[start + j * (j + 1) // 2 + i]
                    for p in range(width):
                        total[p] = np.float32(0)
                    for k in range(n_jets):
                        ik = sides[start + (k * (k + 1) // 2 + i if k > i else i * (i + 1) // 2 + k)]
                        jk = sides[start + (k * (k + 1) // 2 + j if k > j else j * (j + 1) // 2 + k)]
                        for p in range(width):
                            total[p] += ik[p] * jk[width + p] + ik[width + p] * jk[p]
                    _normalise(total, total, width)

    @_jit
    def add_gated_and_normalise(z: F32, update: F32, gates: F32, out: F32) -> None:
        """z + update * sigmoid(gate) in place, normalised in `out`; the gate is the last third of exp(-gates)."""
        for row in range(z.shape[0]):
            target, more, closed = z[row], update[row], gates[row]
            for p in range(width):
                target[p] += more[p] / (ONE + closed[2 * width + p])
            _normalise(target, out[row], width)

    @_jit
    def add_and_normalise(z: F32, update: F32, out: F32) -> None:
        """z + update in place, normalised in `out`."""
        for row in range(z.shape[0]):
            target, more = z[row], update[row]
            for p in range(width):
                target[p] += more[p]
            _normalise(target, out[row], width)

    @_jit
    def three_sides(pair: F32, side: F32, triplets: Index, n_pairs: int, out: F32) -> None:
        """pair_ij + side_il + side_jl: (R, F) each, triplets (C, 3) rows of an event -> out (B C, F)."""
        count = triplets.shape[0]
        for event in range(out.shape[0] // count):
            start = event * n_pairs
            for c in range(count):
                ij, total = pair[start + triplets[c, 0]], out[event * count + c]
                il, jl = side[start + triplets[c, 1]], side[start + triplets[c, 2]]
                for p in range(hidden):
                    total[p] = ij[p] + il[p] + jl[p]

    @_jit
    def sum_of_silu(negative: F32, exponential: F32, weight: F32, out: F32) -> None:
        """weight . silu(x) of every row, where negative = - x and exponential = exp(- x): (R, F) -> (R,)."""
        for row in range(out.shape[0]):
            x, e = negative[row], exponential[row]
            total = np.float32(0)
            for p in range(hidden):
                total += weight[p] * x[p] / (ONE + e[p])
            out[row] = -total

    return Kernels(
        embed, open_sides, triangle, add_gated_and_normalise, add_and_normalise, three_sides, sum_of_silu
    )


@_jit
def gate(negative: F32, exponential: F32, value: F32) -> None:
    """value * silu(x) in place, where negative = - x and exponential = exp(- x); all flat."""
    for p in range(value.shape[0]):
        value[p] *= -negative[p] / (ONE + exponential[p])


@_jit
def silu(negative: F32, exponential: F32, out: F32) -> None:
    """silu(x), where negative = - x and exponential = exp(- x); all flat."""
    for p in range(out.shape[0]):
        out[p] = -negative[p] / (ONE + exponential[p])


@_jit
def features(jets: F32, single: F32, pair: F32) -> None:
    """What `pairton.network.features` says: jets (B, N, 5) -> single (B N, 4) and pair (R, 9)."""
    n_jets = jets.shape[1]
    row = 0
    for event in range(jets.shape[0]):
        for j in range(n_jets):
            two = jets[event, j]
            y = single[event * n_jets + j]
            y[0], y[1], y[2], y[3] = _log(two[3]), _log(two[0]), abs(two[1]), two[4]
            for i in range(j + 1):
                one = jets[event, i]
                d_eta, d_phi = one[1] - two[1], one[2] - two[2]
                d_phi -= 2 * math.pi * round(d_phi / (2 * math.pi))
                first, second = _log(one[0]), _log(two[0])
                x = pair[row]
                x[0], x[1] = abs(d_eta), abs(d_phi)
                x[2] = math.sqrt(d_eta * d_eta + d_phi * d_phi + 1e-12)
                x[3] = math.cos(d_phi)
                x[4] = _log_mass(one, two)
                x[5], x[6] = first + second, abs(first - second)
                square = (one[0] - two[0]) ** 2 + 2 * one[0] * two[0] * (1 + x[3])
                x[7] = 0.5 * math.log(max(square, 1.0)) - 4.5
                x[8] = 1 if i == j else 0
                row += 1


@_jit
def _log(energy: float) -> float:
    return math.log(max(energy, 1e-3)) - 4.5


@_jit
def _log_mass(one: F32, two: F32) -> float:
    p_1 = float(one[0]) * math.cosh(min(max(float(one[1]), -10.0), 10.0))
    p_2 = float(two[0]) * math.cosh(min(max(float(two[1]), -10.0), 10.0))
    excess_1, excess_2 = float(one[3]) - p_1, float(two[3]) - p_2
    masses = excess_1 * (float(one[3]) + p_1) + excess_2 * (float(two[3]) + p_2)
    energies = p_1 * excess_2 + p_2 * excess_1 + excess_1 * excess_2
    d_eta = min(max(float(one[1]) - float(two[1]), -20.0), 20.0)
    half_eta, half_phi = math.sinh(0.5 * d_eta), math.sin(0.5 * (float(one[2]) - float(two[2])))
    angles = 2 * half_eta * half_eta + 2 * half_phi * half_phi
    square = masses + 2 * (energies + float(one[0]) * float(two[0]) * angles)
    return 0.5 * math.log(max(square, 1.0)) - 4.5
