"""Loops of a covariance to which something of low rank has been added: see `updated`."""

from __future__ import annotations

import math

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array

__all__ = ["divided", "eliminated", "orthonormal"]

ROUNDING = 1e-15
"""Share of its terms below which a difference is taken for zero: a few rounding errors."""


@numba.njit(cache=True, error_model="numpy")
def eliminated(C: Array, e: Array, F: Array, pivots: NDArray[np.intp]) -> int:
    """Columns of C, here its rows, become C' with C = C' F, by elimination; the rank is returned.

    The pivot of a column is where |C_i / e_i| is largest, an e_i of zero first. There C' is one,
    and zero in all later columns. A column that is nothing beside those before it is left out.
    """
    rank = 0
    for column in range(len(C)):
        for j in range(rank):
            share = C[column, pivots[j]]
            F[j, column] = share
            for i in range(e.size):
                step = share * C[j, i]
                size = abs(C[column, i]) + abs(step)
                C[column, i] -= step
                if abs(C[column, i]) <= ROUNDING * size:
                    C[column, i] = 0.0
            C[column, pivots[j]] = 0.0
        pivot = _largest(C[column], e)
        if pivot < 0:
            continue
        F[rank, column] = C[column, pivot]
        for i in range(e.size):
            C[rank, i] = C[column, i] / F[rank, column]
        pivots[rank] = pivot
        rank += 1
    return rank


@numba.njit(cache=True, error_model="numpy")
def _largest(c: Array, e: Array) -> int:
    """Where |c_i / e_i| is largest, and of several e_i of zero |c_i|; −1 if c is zero."""
    found, largest, among_zeros = -1, 0.0, False
    for i in range(c.size):
        if c[i] == 0.0 or (among_zeros and e[i] != 0.0):
            continue
        size = abs(c[i]) if e[i] == 0.0 else abs(c[i] / e[i])
        if size > largest or (e[i] == 0.0 and not among_zeros):
            found, largest, among_zeros = i, size, e[i] == 0.0
    return found


@numba.njit(cache=True, error_model="numpy")
def divided(C: Array, e: Array, pivots: NDArray[np.intp], Y: Array, inverse: Array) -> None:
    """Y = E⁻¹ C' D, by rows; and E⁻¹, zero at the pivots. One e of zero over another one is one."""
    for j in range(len(C)):
        d = e[pivots[j]]
        for i in range(e.size):
            ratio = 1.0 if e[i] == 0.0 else d / e[i]
            Y[j, i] = 0.0 if C[j, i] == 0.0 else C[j, i] * ratio
    for i in range(e.size):
        inverse[i] = 1.0 / e[i]
    for pivot in pivots:
        inverse[pivot] = 0.0


@numba.njit(cache=True, error_model="numpy")
def orthonormal(G: Array, H: Array) -> bool:
    """Rows of G made orthonormal, one after another and twice: Gᵀ was Gᵀ H; whether it can be."""
    for j in range(len(G)):
        length = math.sqrt(_product(G[j], G[j]))
        for _ in range(2):
            for i in range(j):
                along = _product(G[i], G[j])
                H[i, j] += along
                for c in range(G.shape[1]):
                    G[j, c] -= along * G[i, c]
        H[j, j] = math.sqrt(_product(G[j], G[j]))
        if not (H[j, j] > ROUNDING * length and H[j, j] < np.inf):
            return False
        for c in range(G.shape[1]):
            G[j, c] *= 1.0 / H[j, j]
    return True


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def _product(x: Array, y: Array) -> float:
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total
