"""A matrix A by its rows, with a pattern that does not change: full columns, and sparse rows.

A row of A has a number for each element of x that it reads. Elements that every row reads, such as
coefficients of basis functions and of covariates, have full columns: A = (D, own), where own is
sparse. BLAS computes products with D. Loops over the rows compute the others, and products with an
S that is known at the pairs of elements that a row reads. With 1000 counts of a process with 30
basis functions, D is all of A, and a draw took 3.4 ms, with loops alone 10.4 ms.
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
"""Fewest full columns for BLAS.

Its calls and copies take 20 microseconds more than the loops if A is small. With 1000 rows that
have one number of their own, both took the same time for four to six full columns, and BLAS a third
of the time for ten. With 100 rows and ten columns the loops took 22 microseconds, and BLAS 33.
"""


FEW = 4
"""Most columns of x that are multiplied one after another: inner loops over so few cost more."""


class Numbers(NamedTuple):
    """The numbers of A: D of the full columns, shape (E, d), and the others, row by row."""

    D: Array
    own: Array


class Rows:
    """The pattern of A in compressed rows.

    Parameters
    ----------
    starts : ndarray of int, shape (E + 1,)
        The start of each row.
    columns : ndarray of int
        The element of x that each number multiplies; no element twice in a row.
    N : int
        Length of x.

    Attributes
    ----------
    first, second : ndarray of int
        The pairs of elements that any row reads, which P has to have. The methods below expect
        their places, ``pairs``, and the numbers of A as `split` gives them. Pairs of two full
        columns come first, then each other element with each full column, then the pairs of the own
        elements of each row as in `add_gram`.
    """

    def __init__(self, starts: Index, columns: Index, N: int):
        self.N, self.E = N, starts.size - 1
        self.full = _full_columns(starts, columns, N)
        is_full = np.isin(columns, self.full)
        # The numbers of D, a row for each of A, in the order of `full`.
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
        """Add A x for x of shape (N, k)."""
        D, own = A
        if own.size:
            times(self._starts, self._columns, own, x, out)
        if D.size:
            out += D @ x[self.full]

    def times_transposed(self, A: Numbers, g: Array, out: Array) -> None:
        """Add Aᵀ g for g of shape (E, k)."""
        D, own = A
        if own.size:
            times_transposed(self._starts, self._columns, own, g, out)
        if D.size:
            out[self.full] += D.T @ g

    def add_gram(self, A: Numbers, weights: Array, pairs: Index, out: Array) -> None:
        """Add Aᵀ diag(w) A to the elements of a lower triangle."""
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
        """Add w_i (A S)_ij for each number A_ij."""
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
        """S for two full columns, (d, d), and for each element and a full column, (N, d)."""
        d, (below, beside) = self.full.size, self._triangle
        block, rest = np.empty((d, d)), np.zeros((self.N, d))
        block[below, beside] = block[beside, below] = S[pairs[self._of_full]]
        rest[self._others] = S[pairs[self._across]].reshape(-1, d)
        return block, rest


def _full_columns(starts: Index, columns: Index, N: int) -> Index:
    """The elements that every row reads, in the order of the first row; none if they are few."""
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
