"""Compiled algebra of a dense prior and a diagonal W: B = I + W^½ K W^½ = Uᵀ U, K = v C.

Products with K use the upper triangle of C, or L. Rows (N, n) are N vectors.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from pymc_lgm.compile.loops.blas import factorize_upper, multiply, solve, symmetric_times
from pymc_lgm.linalg import Array

__all__ = ["alpha", "cleared", "conditioned", "deviations", "of_evidence", "quad_form", "scaled"]

NOTHING = 1e-20
"""Smaller elements of B count as 0, since its diagonal is at least 1 and has rounding error 1e-16.

A short length-scale makes covariances of 1e-200, whose products are subnormal. A processor is a
hundred times slower with subnormal numbers, and a factorization would take ten times as long.
"""


@numba.njit(cache=True, error_model="numpy")
def scaled(C: Array, diagonal: Array, variance: float, W: Array) -> Array:
    """B in the upper triangle of an array in column order; the lower triangle is not written."""
    n = len(W)
    root, B = np.empty(n), np.empty((n, n)).T
    for j in range(n):
        root[j] = math.sqrt(variance * W[j])
        for i in range(j):
            x = C[i, j] * root[i] * root[j]
            B[i, j] = 0.0 if abs(x) < NOTHING else x
        B[j, j] = 1.0 + variance * W[j] * diagonal[j]
    return B


@numba.njit(cache=True)
def cleared(C: Array, least: float) -> Array:
    """Set elements of C below the diagonal to 0 if they are less than ``least``.

    C is in column order, and is changed in place.
    """
    n = len(C)
    for j in range(n):
        for i in range(j + 1, n):
            C[i, j] = 0.0 if abs(C[i, j]) < least else C[i, j]
    return C


@numba.njit(cache=True, error_model="numpy")
def conditioned(C: Array, diagonal: Array, variance: float, W: Array) -> tuple[Array, bool]:
    """U, and whether B could be factorized: one O(n³) operation."""
    U, trace = scaled(C, diagonal, variance, W), 0.0
    is_definite = factorize_upper(U)
    for j in range(len(W)):
        trace += U[j, j]  # a NaN anywhere in a row reaches the diagonal
    return U, is_definite and math.isfinite(trace)


@numba.njit(cache=True, inline="always")
def as_row(x: Array) -> Array:
    """A copy of a vector as an array (1, n)."""
    row = np.empty((1, len(x)))
    for i in range(len(x)):
        row[0, i] = x[i]
    return row


@numba.njit(cache=True, error_model="numpy")
def alpha(C: Array, variance: float, U: Array, root: Array, b: Array) -> Array:
    """(I + W K)⁻¹ b = b − W^½ B⁻¹ W^½ K b, for a vector."""
    n = len(b)
    r = symmetric_times(variance, C, as_row(b))
    for i in range(n):
        r[0, i] *= root[i]
    solve(U, False, True, r)
    solve(U, False, False, r)
    out = np.empty(n)
    for i in range(n):
        out[i] = b[i] - root[i] * r[0, i]
    return out


@numba.njit(cache=True, error_model="numpy")
def quad_form(C: Array, variance: float, U: Array, root: Array, x: Array) -> float:
    """xᵀ Σ x = xᵀ K x − |U⁻ᵀ W^½ K x|²."""
    n, total = len(x), 0.0
    r = symmetric_times(variance, C, as_row(x))
    for i in range(n):
        total += x[i] * r[0, i]
        r[0, i] *= root[i]
    solve(U, False, True, r)
    for i in range(n):
        total -= r[0, i] ** 2
    return total


@numba.njit(cache=True, error_model="numpy")
def deviations(
    L: Array, scale: float, lower: bool, U: Array, root: Array, xi: Array
) -> tuple[Array, Array]:
    """Rows L v of N(0, Σ), and v, from coordinates (2, n, N): Matheron's rule.

    u = L ξ₁ is a draw from the prior and r = W^½ u + ξ₂ has covariance B, so that

        u − K W^½ B⁻¹ r = L v,   v = ξ₁ − Lᵀ W^½ B⁻¹ r,

    is independent of r with covariance K − K W^½ B⁻¹ W^½ K = Σ.
    """
    _, n, N = xi.shape
    r, v = np.empty((N, n)), np.empty((N, n))
    for k in range(N):
        for i in range(n):
            v[k, i] = r[k, i] = xi[0, i, k]
    multiply(L, lower, not lower, r)
    for k in range(N):
        for i in range(n):
            r[k, i] = root[i] * scale * r[k, i] + xi[1, i, k]
    solve(U, False, True, r)
    solve(U, False, False, r)
    for k in range(N):
        for i in range(n):
            r[k, i] *= root[i] * scale
    multiply(L, lower, lower, r)
    for k in range(N):
        for i in range(n):
            v[k, i] -= r[k, i]
            r[k, i] = scale * v[k, i]
    multiply(L, lower, not lower, r)
    return r, v


@numba.njit(cache=True)
def of_evidence(inverse: Array, root: Array, left: Array, a: Array) -> Array:
    """b aᵀ − ½ W^½ B⁻¹ W^½ with b = ``left``, the factor of ∂K in the gradient of an evidence."""
    n = len(root)
    M = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            M[i, j] = left[i] * a[j] - 0.5 * root[i] * root[j] * inverse[i, j]
    return M
