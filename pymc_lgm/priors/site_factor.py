"""B = I + W^½ K W^½ of a dense K = v C and a diagonal W, made and factorized compiled."""

from __future__ import annotations

import math

import numba
import numpy as np

from pymc_lgm.blas import factorize_upper
from pymc_lgm.linalg import Array

__all__ = ["cleared", "conditioned", "scaled"]

NOTHING = 1e-20
"""Beside a diagonal of 1 and up: far below what rounding leaves of that.

A length-scale that is short makes covariances of 1e-200. Their products are no normal numbers, with
which a processor is a hundred times slower: a factorization would take ten times as long.
"""


@numba.njit(cache=True, error_model="numpy")
def scaled(C: Array, diagonal: Array, variance: float, W: Array) -> Array:
    """B in the upper triangle of an array in column order, whose other one is not written."""
    n = len(W)
    root, B = np.sqrt(variance * W), np.empty((n, n)).T
    for j in range(n):
        for i in range(j):
            x = C[i, j] * root[i] * root[j]
            B[i, j] = 0.0 if abs(x) < NOTHING else x
        B[j, j] = 1.0 + variance * W[j] * diagonal[j]
    return B


@numba.njit(cache=True)
def cleared(C: Array, diagonal: Array) -> Array:
    """C, with zeros below the diagonal, in column order, for what is `NOTHING` beside that."""
    n, least = len(C), NOTHING * diagonal.min() if len(C) > 0 else 0.0
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
        trace += U[j, j]  # a NaN anywhere in its row reaches the diagonal
    return U, is_definite and math.isfinite(trace)
