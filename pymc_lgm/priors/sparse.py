"""Algebra of sparse symmetric matrices: the pattern of a factor once, its numbers at each theta.

A = L Lᵀ, with L in compressed columns in an order in which it has few elements. What a verb costs
is the elements of L, or the sum of their squares by column: n log n and n^1.5 for a map of n areas.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from numpy.typing import NDArray
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu

from pymc_lgm.linalg import Array

__all__ = ["Pattern", "SparseFactor", "fill_reducing_order"]

Index = NDArray[np.intp]


def fill_reducing_order(neighbors: csc_array) -> Index:
    """An order in which the factor has few elements: that of minimum degree (Liu 1985).

    Parameters
    ----------
    neighbors : sparse array, shape (n, n)
        Symmetric; where it has a number two elements are joined.

    Returns
    -------
    ndarray of int, shape (n,)
        Which element comes first, second, and so on.
    """
    n = neighbors.shape[0]
    # Only the pattern matters: with this diagonal no pivot is looked for.
    joined = (abs(neighbors) > 0).astype(np.float64)
    dominant = csc_array(joined + (joined.sum(axis=0).max() + 1.0) * eye_array(n))
    factor = splu(
        dominant,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return np.argsort(factor.perm_c).astype(np.intp)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a symmetric matrix and its factor have elements: made by `of`, once a model.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        Which element of x is the i-th of the factor's order.
    rows, columns : ndarray of int, shape (q,)
        Elements of the lower triangle of A, in the factor's order, each column's together.
    starts, below : ndarray of int
        Of L, in compressed columns: where each column starts, (n + 1,), and the rows of its
        elements, the diagonal first.
    place : ndarray of int, shape (q,)
        Which element of L each of A is.
    """

    order: Index
    rows: Index
    columns: Index
    starts: Index
    below: Index
    place: Index

    @classmethod
    def of(cls, A: csc_array, order: Index | None = None) -> Pattern:
        """The pattern of a symmetric sparse array, whose diagonal counts whether there or not."""
        n = A.shape[0]
        order = fill_reducing_order(A) if order is None else order
        there = csc_array(abs(A) + eye_array(n))[order][:, order].tocoo()
        lower = there.row >= there.col
        rows, columns = there.row[lower].astype(np.intp), there.col[lower].astype(np.intp)
        sort = np.lexsort((rows, columns))
        rows, columns = rows[sort], columns[sort]
        by_row = np.lexsort((columns, rows))
        row_starts = np.searchsorted(rows[by_row], np.arange(n + 1)).astype(np.intp)
        starts, below = _fill(row_starts, columns[by_row], n)
        # Rows of a column of L increase: each element of A is found by (column, row).
        key = np.repeat(np.arange(n), np.diff(starts)) * n + below
        place = np.searchsorted(key, columns * n + rows).astype(np.intp)
        return cls(order, rows, columns, starts, below, place)

    @property
    def n(self) -> int:
        """Rows of A."""
        return self.order.size

    @cached_property
    def back(self) -> Index:
        """Where the i-th element of x is in the factor's order."""
        return np.argsort(self.order)

    @cached_property
    def _both(self) -> tuple[Index, Index]:
        """Rows and columns of the elements, in the order of x."""
        return self.order[self.rows], self.order[self.columns]

    def elements(self, A: csc_array) -> Array:
        """The elements of a symmetric sparse array with this pattern, shape (q,)."""
        rows, columns = self._both
        return np.asarray(csc_array(A)[rows, columns]).ravel()

    @cached_property
    def diagonal(self) -> Index:
        """Which elements are the diagonal's, in the order of x, shape (n,)."""
        found: Index = np.flatnonzero(self.rows == self.columns)[self.back]
        return found

    def scales(self, e: Array) -> Array:
        """e_i e_j of each element."""
        rows, columns = self._both
        result: Array = e[rows] * e[columns]
        return result

    def times(self, values: Array, x: Array) -> Array:
        """A x, of a vector or of columns."""
        rows, columns = self._both
        off = rows != columns
        A = csc_array((values, (rows, columns)), shape=(self.n, self.n))
        above = csc_array((values[off], (columns[off], rows[off])), shape=(self.n, self.n))
        result: Array = A @ x + above @ x
        return result

    def factorize(self, values: Array) -> SparseFactor | None:
        """L of A with these elements; ``None`` if A is not numerically positive definite."""
        L = np.zeros(self.below.size)
        L[self.place] = values
        return SparseFactor(self, L) if _cholesky(self.starts, self.below, L) else None


@dataclass(frozen=True, eq=False)
class SparseFactor:
    """A = L Lᵀ, up to the order: x is in the order of the model, ξ in that of the factor.

    Attributes
    ----------
    pattern : Pattern
    L : ndarray
        Elements of L, as ``pattern.below`` has them.
    """

    pattern: Pattern
    L: Array

    @property
    def log_determinant(self) -> float:
        """log|A|."""
        return 2.0 * float(np.log(self.L[self.pattern.starts[:-1]]).sum())

    def solve(self, x: Array) -> Array:
        """L⁻¹ x."""
        y = _columns(x[self.pattern.order])
        _solve(self.pattern.starts, self.pattern.below, self.L, y)
        return y.reshape(x.shape)

    def solve_transposed(self, xi: Array) -> Array:
        """L⁻ᵀ ξ."""
        y = _columns(xi)
        _solve_transposed(self.pattern.starts, self.pattern.below, self.L, y)
        return y[self.pattern.back].reshape(xi.shape)

    def multiply(self, xi: Array) -> Array:
        """L ξ."""
        y = _columns(xi)
        _multiply(self.pattern.starts, self.pattern.below, self.L, y)
        return y[self.pattern.back].reshape(xi.shape)

    def multiply_transposed(self, x: Array) -> Array:
        """Lᵀ x."""
        y = _columns(x[self.pattern.order])
        _multiply_transposed(self.pattern.starts, self.pattern.below, self.L, y)
        return y.reshape(x.shape)

    @cached_property
    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii, by Takahashi's equations: no element of A⁻¹ outside the pattern of L."""
        S = _takahashi(self.pattern.starts, self.pattern.below, self.L)
        result: Array = S[self.pattern.starts[:-1]][self.pattern.back]
        return result


def _columns(x: Array) -> Array:
    """A copy, two-dimensional."""
    return np.array(x, dtype=np.float64, order="C").reshape(len(x), -1)


@numba.njit(cache=True)
def _fill(row_starts: Index, columns: Index, n: int) -> tuple[Index, Index]:
    """The columns of L, by the elimination tree: a row of L is the tree's paths from a row of A.

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
    starts = np.zeros(n + 1, dtype=np.intp)
    mark = np.full(n, -1, dtype=np.intp)
    for once in range(2):
        if once == 1:
            for k in range(n):
                starts[k + 1] += starts[k]
            below = np.empty(starts[n], dtype=np.intp)
            end = starts[:-1].copy()
            mark[:] = -1
        else:
            below, end = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        for k in range(n):
            mark[k] = k
            if once == 0:
                starts[k + 1] += 1
            else:
                below[end[k]] = k
                end[k] += 1
            for p in range(row_starts[k], row_starts[k + 1]):
                i = columns[p]
                while mark[i] != k:
                    mark[i] = k
                    if once == 0:
                        starts[i + 1] += 1
                    else:
                        below[end[i]] = k
                        end[i] += 1
                    i = parent[i]
    return starts, below


@numba.njit(cache=True)
def _cholesky(starts: Index, below: Index, L: Array) -> bool:
    """A in the place of L becomes L, column by column from those on its left."""
    n = starts.size - 1
    work = np.zeros(n)
    # Columns whose next element is in row j are a list: its head, and what follows each.
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
def _solve(starts: Index, below: Index, L: Array, x: Array) -> None:
    for j in range(starts.size - 1):
        x[j] /= L[starts[j]]
        for p in range(starts[j] + 1, starts[j + 1]):
            for c in range(x.shape[1]):
                x[below[p], c] -= L[p] * x[j, c]


@numba.njit(cache=True)
def _solve_transposed(starts: Index, below: Index, L: Array, x: Array) -> None:
    for j in range(starts.size - 2, -1, -1):
        for p in range(starts[j] + 1, starts[j + 1]):
            for c in range(x.shape[1]):
                x[j, c] -= L[p] * x[below[p], c]
        x[j] /= L[starts[j]]


@numba.njit(cache=True)
def _multiply(starts: Index, below: Index, L: Array, x: Array) -> None:
    for j in range(starts.size - 2, -1, -1):
        for p in range(starts[j] + 1, starts[j + 1]):
            for c in range(x.shape[1]):
                x[below[p], c] += L[p] * x[j, c]
        x[j] *= L[starts[j]]


@numba.njit(cache=True)
def _multiply_transposed(starts: Index, below: Index, L: Array, x: Array) -> None:
    for j in range(starts.size - 1):
        x[j] *= L[starts[j]]
        for p in range(starts[j] + 1, starts[j + 1]):
            for c in range(x.shape[1]):
                x[j, c] += L[p] * x[below[p], c]


@numba.njit(cache=True)
def _takahashi(starts: Index, below: Index, L: Array) -> Array:
    """(L Lᵀ)⁻¹ where L has elements, each column from those after it.

    With Σ = (L Lᵀ)⁻¹, Σ_ij = (δ_ij / L_jj − Σ_{k > j} L_kj Σ_ik) / L_jj for i ≥ j. All Σ_ik that
    column j asks for are in the pattern, since the rows of a column of L are all joined.
    Takahashi, Fagan and Chen (1973); Erisman and Tinney (1975).
    """
    n = starts.size - 1
    S = np.zeros(L.size)
    total, mine = np.zeros(n), np.zeros(n, dtype=np.bool_)
    for j in range(n - 1, -1, -1):
        begin, end = starts[j], starts[j + 1]
        for p in range(begin + 1, end):
            mine[below[p]] = True
            total[below[p]] = 0.0
        for p in range(begin + 1, end):
            k, share = below[p], L[p]
            total[k] += share * S[starts[k]]
            of_k = 0.0
            for q in range(starts[k] + 1, starts[k + 1]):
                i = below[q]
                if mine[i]:
                    total[i] += share * S[q]
            # What of column k is below it belongs to L_ij, too: Σ is symmetric.
            r = p + 1
            for q in range(starts[k] + 1, starts[k + 1]):
                if r == end:
                    break
                if below[q] == below[r]:
                    of_k += L[r] * S[q]
                    r += 1
            total[k] += of_k
        diagonal = 1.0 / L[begin]
        for p in range(begin + 1, end):
            S[p] = -total[below[p]] / L[begin]
            diagonal -= L[p] * S[p]
            mine[below[p]] = False
        S[begin] = diagonal / L[begin]
    return S
