"""Compiled loops over the elements of sparse matrices and their factors, column by column."""

from __future__ import annotations

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array

__all__ = [
    "cholesky",
    "fill",
    "multiply",
    "multiply_transposed",
    "solve",
    "solve_transposed",
    "takahashi",
]

Index = NDArray[np.intp]

FEW = 4
"""Most right-hand sides that are solved one after another: inner loops over so few cost more."""


@numba.njit(cache=True)
def fill(row_starts: Index, columns: Index, n: int) -> tuple[Index, Index]:
    """The pattern of L: each of its rows has the elimination tree's paths from a row of A.

    Liu (1990), *The role of elimination trees in sparse factorization*, SIAM J. Matrix Anal. 11.
    """
    parent, ancestor = np.full(n, -1, dtype=np.intp), np.full(n, -1, dtype=np.intp)
    for k in range(n):
        for p in range(row_starts[k], row_starts[k + 1]):
            i = columns[p]
            while i != -1 and i < k:
                above = ancestor[i]
                ancestor[i] = k
                if above == -1:
                    parent[i] = k
                i = above
    row, mark = np.empty(n, dtype=np.intp), np.full(n, -1, dtype=np.intp)
    starts = np.zeros(n + 1, dtype=np.intp)
    for k in range(n):
        for t in range(_write_row(k, row_starts, columns, parent, mark, row)):
            starts[row[t] + 1] += 1
    for k in range(n):
        starts[k + 1] += starts[k]
    below, end = np.empty(starts[n], dtype=np.intp), starts[:-1].copy()
    mark[:] = -1
    for k in range(n):
        for t in range(_write_row(k, row_starts, columns, parent, mark, row)):
            below[end[row[t]]] = k
            end[row[t]] += 1
    return starts, below


@numba.njit(cache=True)
def _write_row(
    k: int, row_starts: Index, columns: Index, parent: Index, mark: Index, row: Index
) -> int:
    """Write the columns of row k of L into ``row``, and return how many they are.

    ``mark`` has the last row in which each column was found, so that no column comes twice.
    """
    mark[k] = k
    row[0], count = k, 1
    for p in range(row_starts[k], row_starts[k + 1]):
        i = columns[p]
        while mark[i] != k:
            mark[i] = k
            row[count] = i
            count += 1
            i = parent[i]
    return count


@numba.njit(cache=True)
def cholesky(starts: Index, below: Index, L: Array, tail: int) -> bool:
    """Factorize A, stored in L, in place, each column from those on its left.

    The columns from ``tail`` on become the Schur complement, which the caller factorizes.
    """
    n = starts.size - 1
    work = np.zeros(n)
    # A linked list for each row j has the columns whose next element is in it.
    head, after, at = np.full(n, -1), np.full(n, -1), np.zeros(n, dtype=np.intp)
    for j in range(n):
        begin, end = starts[j], starts[j + 1]
        for p in range(begin, end):
            work[below[p]] = L[p]
        k = head[j]
        while k != -1:
            following, here = after[k], at[k]
            factor, stop = L[here], starts[k + 1]
            for p in range(here, stop):
                work[below[p]] -= factor * L[p]
            here += 1
            at[k] = here
            if here < stop:
                row = below[here]
                after[k] = head[row]
                head[row] = k
            k = following
        if j >= tail:
            for p in range(begin, end):
                L[p] = work[below[p]]
            continue
        if not 0.0 < work[j] < np.inf:
            return False
        pivot = np.sqrt(work[j])
        L[begin] = pivot
        for p in range(begin + 1, end):
            L[p] = work[below[p]] / pivot
        if begin + 1 < end:
            row = below[begin + 1]
            at[j] = begin + 1
            after[j] = head[row]
            head[row] = j
    return True


@numba.njit(cache=True)
def solve(starts: Index, below: Index, L: Array, x: Array) -> None:
    """x ← L⁻¹ x."""
    if x.shape[1] <= FEW:
        for c in range(x.shape[1]):
            for j in range(starts.size - 1):
                here = x[j, c] / L[starts[j]]
                x[j, c] = here
                for p in range(starts[j] + 1, starts[j + 1]):
                    x[below[p], c] -= L[p] * here
        return
    for j in range(starts.size - 1):
        for c in range(x.shape[1]):
            x[j, c] /= L[starts[j]]
        for p in range(starts[j] + 1, starts[j + 1]):
            for c in range(x.shape[1]):
                x[below[p], c] -= L[p] * x[j, c]


@numba.njit(cache=True)
def solve_transposed(starts: Index, below: Index, L: Array, x: Array) -> None:
    """x ← L⁻ᵀ x."""
    if x.shape[1] <= FEW:
        for c in range(x.shape[1]):
            for j in range(starts.size - 2, -1, -1):
                here = x[j, c]
                for p in range(starts[j] + 1, starts[j + 1]):
                    here -= L[p] * x[below[p], c]
                x[j, c] = here / L[starts[j]]
        return
    for j in range(starts.size - 2, -1, -1):
        for p in range(starts[j] + 1, starts[j + 1]):
            for c in range(x.shape[1]):
                x[j, c] -= L[p] * x[below[p], c]
        for c in range(x.shape[1]):
            x[j, c] /= L[starts[j]]


@numba.njit(cache=True)
def multiply(starts: Index, below: Index, L: Array, x: Array) -> None:
    """x ← L x."""
    for j in range(starts.size - 2, -1, -1):
        for p in range(starts[j] + 1, starts[j + 1]):
            for c in range(x.shape[1]):
                x[below[p], c] += L[p] * x[j, c]
        for c in range(x.shape[1]):
            x[j, c] *= L[starts[j]]


@numba.njit(cache=True)
def multiply_transposed(starts: Index, below: Index, L: Array, x: Array) -> None:
    """x ← Lᵀ x."""
    for j in range(starts.size - 1):
        for c in range(x.shape[1]):
            x[j, c] *= L[starts[j]]
        for p in range(starts[j] + 1, starts[j + 1]):
            for c in range(x.shape[1]):
                x[j, c] += L[p] * x[below[p], c]


@numba.njit(cache=True)
def takahashi(starts: Index, below: Index, L: Array, S: Array, tail: int) -> Array:
    """Write (L Lᵀ)⁻¹ on the pattern of L into S, each column from those after it.

    S already has the columns from ``tail`` on.

    With Σ = (L Lᵀ)⁻¹, Σ_ij = (δ_ij / L_jj − Σ_{k > j} L_kj Σ_ik) / L_jj for i ≥ j. All Σ_ik that
    column j needs are in the pattern, because L has elements for all pairs of rows of a column.
    Takahashi, Fagan and Chen (1973); Erisman and Tinney (1975).
    """
    n = starts.size - 1
    # ``total`` of a row that is not in column j is never read.
    total, mine = np.zeros(n), np.zeros(n)
    for j in range(tail - 1, -1, -1):
        begin, end = starts[j], starts[j + 1]
        for p in range(begin + 1, end):
            mine[below[p]] = L[p]
            total[below[p]] = 0.0
        for p in range(begin + 1, end):
            k, share = below[p], L[p]
            # Σ is symmetric: elements of column k below its diagonal add to the total of k, too.
            of_k = share * S[starts[k]]
            for q in range(starts[k] + 1, starts[k + 1]):
                i = below[q]
                total[i] += share * S[q]
                of_k += mine[i] * S[q]
            total[k] += of_k
        diagonal = 1.0 / L[begin]
        for p in range(begin + 1, end):
            S[p] = -total[below[p]] / L[begin]
            diagonal -= L[p] * S[p]
            mine[below[p]] = 0.0
        S[begin] = diagonal / L[begin]
    return S
