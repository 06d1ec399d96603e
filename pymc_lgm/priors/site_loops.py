"""The algebra of a dense prior and a diagonal W, compiled: B = I + W^½ K W^½ = Uᵀ U, K = v C.

K times anything is made of the upper triangle of C, or of L: rows (N, n) are N vectors.
"""

from __future__ import annotations

import numba
import numpy as np

from pymc_lgm.blas import multiply, solve, symmetric_times
from pymc_lgm.linalg import Array

__all__ = ["deviations", "dual", "of_evidence", "spread"]


@numba.njit(cache=True, error_model="numpy")
def dual(C: Array, variance: float, U: Array, root: Array, b: Array) -> Array:
    """(I + W K)⁻¹ b = b − W^½ B⁻¹ W^½ K b, of a vector."""
    n = len(b)
    r = symmetric_times(variance, C, b.copy().reshape(1, n))
    for i in range(n):
        r[0, i] *= root[i]
    solve(U, False, True, r)
    solve(U, False, False, r)
    out = np.empty(n)
    for i in range(n):
        out[i] = b[i] - root[i] * r[0, i]
    return out


@numba.njit(cache=True, error_model="numpy")
def spread(C: Array, variance: float, U: Array, root: Array, x: Array) -> float:
    """xᵀ Σ x = xᵀ K x − |U⁻ᵀ W^½ K x|²."""
    n, total = len(x), 0.0
    r = symmetric_times(variance, C, x.copy().reshape(1, n))
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
    """b aᵀ − ½ W^½ B⁻¹ W^½, b = ``left``: what ∂K is multiplied by in the slope of an evidence."""
    n = len(root)
    M = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            M[i, j] = left[i] * a[j] - 0.5 * root[i] * root[j] * inverse[i, j]
    return M
