"""Compiled loops over the rows of a sparse A, and for families."""

from __future__ import annotations

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array

__all__ = [
    "add_gram",
    "add_products",
    "add_weighted_rows",
    "add_weighted_rows_of_pairs",
    "bilinear_forms",
    "gram_vjp",
    "inverse_of_lower",
    "quadratic_forms",
    "times_transposed",
]

Index = NDArray[np.intp]


@numba.njit(cache=True)
def add_gram(starts: Index, data: Array, weights: Array, pairs: Index, out: Array) -> None:
    """Add Aᵀ diag(w) A to the elements of a lower triangle.

    ``pairs`` has the element for each pair of numbers of a row, (0, 0), (1, 0), (1, 1), (2, 0), …
    """
    t = 0
    for i in range(weights.size):
        for a in range(starts[i], starts[i + 1]):
            weighted = weights[i] * data[a]
            for b in range(starts[i], a + 1):
                out[pairs[t]] += weighted * data[b]
                t += 1


@numba.njit(cache=True)
def quadratic_forms(starts: Index, data: Array, pairs: Index, S: Array) -> Array:
    """a_iᵀ S a_i for each row of A, with a symmetric S known at the pairs of numbers of a row."""
    out = np.zeros(starts.size - 1)
    t = 0
    for i in range(out.size):
        for a in range(starts[i], starts[i + 1]):
            total = 0.0
            for b in range(starts[i], a):
                total += data[b] * S[pairs[t]]
                t += 1
            out[i] += data[a] * (2.0 * total + data[a] * S[pairs[t]])
            t += 1
    return out


@numba.njit(cache=True)
def add_products(
    starts: Index,
    columns: Index,
    data: Array,
    rows: Index,
    weights: Array,
    pairs: Index,
    out: Array,
) -> None:
    """Add w_k (a_i a_jᵀ + a_j a_iᵀ) for rows (i, j) of A, ``rows`` (K, 2), to a lower triangle.

    ``pairs`` has the element for each number of row i with each number of row j.
    """
    t = 0
    for k in range(len(rows)):
        for a in range(starts[rows[k, 0]], starts[rows[k, 0] + 1]):
            weighted = weights[k] * data[a]
            for b in range(starts[rows[k, 1]], starts[rows[k, 1] + 1]):
                twice = 2.0 if columns[a] == columns[b] else 1.0
                out[pairs[t]] += twice * weighted * data[b]
                t += 1


@numba.njit(cache=True)
def bilinear_forms(starts: Index, data: Array, rows: Index, pairs: Index, S: Array) -> Array:
    """a_iᵀ S a_j for rows (i, j) of A, ``rows`` (K, 2): see `quadratic_forms`."""
    out = np.zeros(len(rows))
    t = 0
    for k in range(len(rows)):
        for a in range(starts[rows[k, 0]], starts[rows[k, 0] + 1]):
            for b in range(starts[rows[k, 1]], starts[rows[k, 1] + 1]):
                out[k] += data[a] * data[b] * S[pairs[t]]
                t += 1
    return out


@numba.njit(cache=True)
def times_transposed(starts: Index, columns: Index, data: Array, g: Array, out: Array) -> None:
    """Add Aᵀ g for g of shape (E, k)."""
    for i in range(starts.size - 1):
        for t in range(starts[i], starts[i + 1]):
            for c in range(g.shape[1]):
                out[columns[t], c] += data[t] * g[i, c]


@numba.njit(cache=True)
def add_weighted_rows(
    starts: Index, data: Array, weights: Array, pairs: Index, S: Array, out: Array
) -> None:
    """Add w_i (A S)_ij for each number A_ij, with S as in `quadratic_forms`."""
    t = 0
    for i in range(weights.size):
        for a in range(starts[i], starts[i + 1]):
            for b in range(starts[i], a + 1):
                out[a] += weights[i] * data[b] * S[pairs[t]]
                if b < a:
                    out[b] += weights[i] * data[a] * S[pairs[t]]
                t += 1


@numba.njit(cache=True)
def add_weighted_rows_of_pairs(
    starts: Index, data: Array, rows: Index, weights: Array, pairs: Index, S: Array, out: Array
) -> None:
    """Add w_k times row j of A S to the numbers of row i, and row i to those of row j."""
    t = 0
    for k in range(len(rows)):
        for a in range(starts[rows[k, 0]], starts[rows[k, 0] + 1]):
            for b in range(starts[rows[k, 1]], starts[rows[k, 1] + 1]):
                out[a] += weights[k] * data[b] * S[pairs[t]]
                out[b] += weights[k] * data[a] * S[pairs[t]]
                t += 1


@numba.njit(cache=True)
def gram_vjp(T: Array, E: Array, out: Array) -> None:
    """Add ∂⟨E, TᵀT⟩/∂T in bands, where E has the lower triangle, each element once."""
    width, n = T.shape
    for j in range(n):
        for d in range(width):
            r = j + d
            if r >= n:
                continue
            for other in range(width):
                k = r - other
                if k < 0:
                    continue
                if k >= j and k - j < width:
                    out[d, j] += T[other, k] * E[k - j, j]
                if k <= j and j - k < width:
                    out[d, j] += T[other, k] * E[j - k, k]


@numba.njit(cache=True)
def inverse_of_lower(N: Array) -> Array:
    """N⁻¹ of a small lower triangular N."""
    k = len(N)
    out = np.zeros((k, k))
    for j in range(k):
        out[j, j] = 1.0 / N[j, j]
        for i in range(j + 1, k):
            total = 0.0
            for m in range(j, i):
                total -= N[i, m] * out[m, j]
            out[i, j] = total / N[i, i]
    return out
