"""Loops of a factor to which something of low rank has been added: see `updated`."""

from __future__ import annotations

import math

import numba
import numpy as np

from pymc_lgm.linalg import Array

__all__ = ["inner", "moved"]


@numba.njit(cache=True, error_model="numpy")
def inner(G: Array, C: Array, E: Array, E_inverse: Array) -> bool:
    """Rows of G made orthonormal, one after another and twice; E, and whether there is one.

    A row that is nothing beside what those before it have of it becomes zero, as if it were not.
    """
    k = len(G)
    H = np.zeros((k, k))
    for j in range(k):
        length = math.sqrt(_product(G[j], G[j]))
        for _ in range(2):
            for i in range(j):
                along = _product(G[i], G[j])
                H[i, j] += along
                _add(-along, G[i], G[j])
        H[j, j] = math.sqrt(_product(G[j], G[j]))
        if not H[j, j] > 1e-15 * length:
            H[j, j] = 0.0
        for i in range(G.shape[1]):
            G[j, i] *= 1.0 / H[j, j] if H[j, j] > 0.0 else 0.0
    B = H @ C @ H.T
    for j in range(k):
        for i in range(j, k):
            total = B[i, j] + (1.0 if i == j else 0.0)
            for h in range(j):
                total -= E[i, h] * E[j, h]
            if i > j:
                E[i, j] = total / E[j, j]
            elif 0.0 < total < np.inf:
                E[j, j] = math.sqrt(total)
            else:
                return False
    for j in range(k):
        for i in range(j, k):
            total = 1.0 if i == j else 0.0
            for h in range(j, i):
                total -= E[i, h] * E_inverse[h, j]
            E_inverse[i, j] = total / E[i, i]
    return True


@numba.njit(cache=True)
def moved(G: Array, E: Array, x: Array) -> Array:
    """x + Gᵀ (E − I) G x, G by rows."""
    y, k = x.copy(), len(G)
    inside = np.empty(k)
    for j in range(k):
        inside[j] = _product(G[j], x)
    for j in range(k):
        total = -inside[j]
        for i in range(k):
            total += E[j, i] * inside[i]
        _add(total, G[j], y)
    return y


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def _product(x: Array, y: Array) -> float:
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@numba.njit(cache=True)
def _add(share: float, x: Array, y: Array) -> None:
    """y += share x."""
    for i in range(x.size):
        y[i] += share * x[i]
