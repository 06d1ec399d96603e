"""A sparse matrix A by its rows, with a pattern that does not change and columns that may be full.

A maps effects x to linear predictors, one per row. The *numbers* of a row are its elements for the
x_j that it reads. An x_j that every row reads, as a coefficient of a basis function or of a
covariate, has a full column. So A consists of a dense D, with the full columns, and of each row's
*own* numbers. BLAS computes products with D, and loops over the rows compute products with the own
numbers. By hand, for 1000 rows of 30 full columns BLAS takes 0.15 of the time of the loops.

The posterior precision of x is P = Q + Aᵀ diag(w) A. Its inverse S is known only at the *pairs* of
elements that some row reads, which is all that a_iᵀ S a_i and its derivatives need.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array

__all__ = [
    "Numbers",
    "Rows",
    "add_gram",
    "add_products",
    "add_weighted_rows",
    "add_weighted_rows_of_pairs",
    "bilinear_forms",
]

Index = NDArray[np.intp]

FULL = 8
"""Smallest number of full columns for which BLAS is used.

Its calls and copies take some 20 to 40 microseconds more than the loops if A is small. By hand,
with 1000 rows that have one number of their own, BLAS takes 1.3 of the time of the loops for four
full columns, 0.9 for five, 0.5 for eight and 0.2 for thirty. With 100 such rows it takes 1.9 for
eight, and 0.5 for thirty.
"""


FEW = 4
"""Largest number of columns of x that are multiplied one after another.

An inner loop over so few columns costs more than it saves. By hand, for rows of 2 to 20 numbers,
one column after another takes 0.4 to 0.8 of the time of the inner loop if there is one column, 0.9
to 1.6 for three or four, and 1.3 to 2.6 for twelve.
"""


class Numbers(NamedTuple):
    """The numbers of A: D of the full columns, shape (E, d), and the own numbers, row by row."""

    D: Array
    own: Array


class Rows:
    """The pattern of A in compressed rows, and products with A for numbers of that pattern.

    Parameters
    ----------
    starts : ndarray of int, shape (E + 1,)
        The start of each row.
    columns : ndarray of int
        The element of x that each number multiplies. No row has an element twice.
    N : int
        Length of x.

    Attributes
    ----------
    first, second : ndarray of int
        The pairs of elements that some row reads. Pairs of two full columns come first, then each
        other element with each full column, then the pairs of each row's own elements, in the order
        of the function `add_gram`.

    Notes
    -----
    The methods take the numbers of A as `split` returns them, and ``pairs``: the place of each of
    these pairs in the array that has the elements of P or S.
    """

    def __init__(self, starts: Index, columns: Index, N: int):
        self.N, self.E = N, starts.size - 1
        self.full = _full_columns(starts, columns, N)
        is_full = np.isin(columns, self.full)
        # Where the numbers of D are among those of A: a row per row of A, in the order of `full`.
        at, row_of = np.flatnonzero(is_full), np.repeat(np.arange(self.E), np.diff(starts))
        place = np.zeros(N, dtype=np.intp)
        place[self.full] = np.arange(self.full.size)
        at = at[np.lexsort((place[columns[at]], row_of[at]))]
        self._at_full = at.reshape(self.E, self.full.size)
        self._is_whole = np.array_equal(at, np.arange(columns.size))
        self._at_own, self._no_column = np.flatnonzero(~is_full), np.zeros((self.E, 0))
        self._columns = columns[self._at_own]
        self._starts = np.concatenate([[0], np.cumsum(~is_full)])[starts].astype(np.intp)
        self._row_of = np.repeat(np.arange(self.E), np.diff(self._starts))
        self._others = np.unique(self._columns)
        self._triangle = np.tril_indices(self.full.size)
        own = [self._columns[a:b] for a, b in pairwise(self._starts)]
        triangles = [(row, *np.tril_indices(row.size)) for row in own]
        a, b = self._triangle
        d = self.full.size
        across = self._others.size if d else 0
        end = a.size + across * d
        self._of_full, self._across = slice(a.size), slice(a.size, end)
        self._of_own = slice(end, None)
        others = self._others[:across]
        self.first: Index = np.concatenate(
            [self.full[a], np.repeat(others, d), *(row[i] for row, i, _ in triangles)]
        )
        self.second: Index = np.concatenate(
            [self.full[b], np.tile(self.full, across), *(row[j] for row, _, j in triangles)]
        )

    def split(self, A: Array) -> Numbers:
        """The numbers of A, given row by row."""
        if not self.full.size:
            return Numbers(self._no_column, A)
        if self._is_whole:
            return Numbers(A.reshape(self.E, -1), A[:0])
        return Numbers(A[self._at_full], A[self._at_own])

    def scaled(self, A: Numbers, scale: Array) -> Numbers:
        """The numbers of A diag(s)."""
        return Numbers(A.D * scale[self.full], A.own * scale[self._columns])

    def times(self, A: Numbers, x: Array, out: Array) -> None:
        """Add A x to ``out``, for x of shape (N, k)."""
        D, own = A
        if own.size:
            times(self._starts, self._columns, own, x, out)
        if D.size:
            out += D @ x[self.full]

    def times_transposed(self, A: Numbers, g: Array, out: Array) -> None:
        """Add Aᵀ g to ``out``, for g of shape (E, k)."""
        D, own = A
        if own.size:
            times_transposed(self._starts, self._columns, own, g, out)
        if D.size:
            out[self.full] += D.T @ g

    def add_gram(self, A: Numbers, weights: Array, pairs: Index, out: Array) -> None:
        """Add Aᵀ diag(w) A to the elements of P's lower triangle."""
        D, own = A
        if own.size:
            add_gram(self._starts, own, weights, pairs[self._of_own], out)
        if D.size:
            weighted = weights[:, None] * D
            out[pairs[self._of_full]] += (D.T @ weighted)[self._triangle]
            if own.size:
                both = np.zeros((self.N, self.full.size))
                times_transposed(self._starts, self._columns, own, weighted, both)
                out[pairs[self._across]] += both[self._others].ravel()

    def quadratic_forms(self, A: Numbers, pairs: Index, S: Array) -> Array:
        """a_iᵀ S a_i for each row, with a symmetric S known at the pairs."""
        D, own = A
        forms = quadratic_forms(self._starts, own, pairs[self._of_own], S)
        if D.size:
            of_full, across = self._blocks(pairs, S)
            product = D @ of_full
            if own.size:
                times(self._starts, self._columns, 2.0 * own, across, product)
            forms += np.einsum("ij,ij->i", product, D)
        return forms

    def add_weighted_rows(
        self, A: Numbers, weights: Array, pairs: Index, S: Array, out: Array
    ) -> None:
        """Add w_i (A S)_ij, half the derivative of Σ_i w_i a_iᵀ S a_i, for each number A_ij."""
        D, own = A
        of_own = np.zeros(own.size)
        if own.size:
            at = pairs[self._of_own]
            add_weighted_rows(self._starts, own, weights, at, S, of_own)
        if D.size:
            of_full, across = self._blocks(pairs, S)
            product = D @ of_full
            if own.size:
                times(self._starts, self._columns, own, across, product)
                rows = weights[self._row_of]
                of_own += rows * np.einsum("kj,kj->k", D[self._row_of], across[self._columns])
            out[self._at_full] += weights[:, None] * product
        out[self._at_own] += of_own

    def _blocks(self, pairs: Index, S: Array) -> tuple[Array, Array]:
        """S at pairs of full columns, (d, d), and at other elements with full columns, (N, d)."""
        d, (below, beside) = self.full.size, self._triangle
        block, rest = np.empty((d, d)), np.zeros((self.N, d))
        block[below, beside] = block[beside, below] = S[pairs[self._of_full]]
        rest[self._others] = S[pairs[self._across]].reshape(-1, d)
        return block, rest


def _full_columns(starts: Index, columns: Index, N: int) -> Index:
    """The elements that every row reads, in the order of the first row; none if below `FULL`."""
    E = starts.size - 1
    first = columns[: starts[1]] if E else columns[:0]
    full: Index = first[np.bincount(columns, minlength=N)[first] == E]
    return full if full.size >= FULL else full[:0]


# Loops over the rows of a sparse A


@numba.njit(cache=True)
def times(starts: Index, columns: Index, values: Array, x: Array, y: Array) -> None:
    """y += A x, with A in compressed rows."""
    if x.shape[1] <= FEW:
        for c in range(x.shape[1]):
            for i in range(starts.size - 1):
                total = 0.0
                for p in range(starts[i], starts[i + 1]):
                    total += values[p] * x[columns[p], c]
                y[i, c] += total
        return
    for i in range(starts.size - 1):
        for p in range(starts[i], starts[i + 1]):
            for c in range(x.shape[1]):
                y[i, c] += values[p] * x[columns[p], c]


@numba.njit(cache=True)
def add_gram(starts: Index, data: Array, weights: Array, pairs: Index, out: Array) -> None:
    """Add Aᵀ diag(w) A to the elements of a lower triangle.

    ``pairs`` has the place in ``out`` for each pair of numbers of a row: (0, 0), (1, 0), (1, 1),
    (2, 0), …
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

    ``pairs`` has the place in ``out`` for each number of row i with each number of row j.
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
    if g.shape[1] <= FEW:
        for c in range(g.shape[1]):
            for i in range(starts.size - 1):
                for t in range(starts[i], starts[i + 1]):
                    out[columns[t], c] += data[t] * g[i, c]
        return
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
