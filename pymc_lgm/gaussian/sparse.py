"""Sparse Cholesky factors: their pattern is found once, and their values at each theta.

A = L Lᵀ, with L in compressed columns, in an order in which L has few elements. Solving costs as
many operations as L has elements, n log n for a map of n areas. Factorizing costs the sum over
columns of their squared numbers of elements, n^1.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu

from pymc_lgm.gaussian import sparse_loops as loops
from pymc_lgm.gaussian import supernodes
from pymc_lgm.linalg import Array

__all__ = ["Pattern", "SparseFactor", "SparseRoot", "fill_reducing_order"]

Index = NDArray[np.intp]

DENSE = 64
"""Fewest dense last columns of L that LAPACK factorizes as one matrix, a supernode.

With packing and unpacking, LAPACK is as fast as the loop at 40 columns, twice as fast at 64, seven
times at 200, and 23 times at 400. If 14 000 sparse columns come before 200 dense ones, supernodes
take five times as long as the loop and LAPACK.
"""

MANY = 8
"""Fewest right-hand sides that are solved in blocks, by BLAS.

By hand, with counts in space and time (230 000 elements of L), milliseconds of the loop and of
blocks: 8 columns 3.8 and 1.5, 16 columns 7.4 and 2.0, 32 columns 13 and 3.0; 4 columns 2.2 and 1.8.
"""

HEAVY = 30
"""Multiplications per element of L from which on columns are factorized in blocks, by BLAS.

A dense end does not count, since LAPACK factorizes it either way. By hand, milliseconds of a factor
and of its inverse, by columns and in blocks: a map of 1936 areas (23) 0.42 + 0.95 and 0.52 + 1.2,
of 4900 (36) 1.9 + 4.4 and 1.6 + 3.3; squared neighborhoods of 400 areas (31) 0.18 + 0.36 and 0.14 +
0.20; counts in space and time, 144 areas by 15 periods (110) 8.8 + 23 and 3.0 + 4.7. With one
right-hand side, a solve in blocks takes twice as long on these maps, and two thirds as long on the
last.
"""


def fill_reducing_order(neighbors: csc_array) -> Index:
    """The minimum degree order, in which the factor has few elements (Liu 1985).

    Parameters
    ----------
    neighbors : sparse array, shape (n, n)
        Symmetric. Two elements are neighbors if the entry is not 0.

    Returns
    -------
    ndarray of int, shape (n,)
        The first element, the second, and so on.
    """
    n = neighbors.shape[0]
    # Only the pattern matters. With a dominant diagonal SuperLU needs no pivoting.
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
    """The pattern of a symmetric matrix A and its factor L, made by `of` once per model.

    If L is factorized in blocks, it is stored in blocks: see `pymc_lgm.gaussian.supernodes`. Its
    columns are in an order in which supernodes are long, and some of its elements are zero. This
    changes no coordinate ξ: they keep the order they had before.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        The element of x that is the i-th in the factor's order.
    rows, columns : ndarray of int, shape (q,)
        Elements of the lower triangle of A, in the factor's order, column by column.
    starts, below : ndarray of int
        L in compressed columns: the start of each column, (n + 1,), and the rows of its elements,
        the diagonal first.
    place : ndarray of int, shape (q,)
        The position of each element of A in the array of the elements of L.
    coordinates : ndarray of int, shape (n,), optional
        The coordinate ξ that is the i-th in the factor's order; by default ξ has that order.
    """

    order: Index
    rows: Index
    columns: Index
    starts: Index
    below: Index
    place: Index
    coordinates: Index | None = None

    @classmethod
    def of(cls, A: csc_array, order: Index | None = None) -> Pattern:
        """The pattern of a symmetric sparse array and its whole diagonal."""
        order = fill_reducing_order(A) if order is None else order
        rows, columns, starts, below = _filled(A, order)
        if not _is_heavy(starts):
            return cls(order, rows, columns, starts, below, _places(starts, below, rows, columns))
        post = supernodes.postorder(starts, below)
        order = order[post]
        rows, columns, starts, below = _filled(A, order)
        starts, below = supernodes.relax(starts, below)
        in_blocks, _ = supernodes.places(starts, supernodes.find_supernodes(starts, below))
        place = in_blocks[_places(starts, below, rows, columns)]
        return cls(order, rows, columns, starts, below, place, post)

    @property
    def size(self) -> int:
        """Number of elements of L."""
        return self.below.size

    @property
    def n(self) -> int:
        """Number of rows of A."""
        return self.order.size

    @cached_property
    def tail(self) -> int:
        """The first of the dense last columns of L, or n if these are fewer than `DENSE`.

        A dense block of A, such as the precision of a process, comes last in this order.
        """
        return _tail(self.starts)

    @cached_property
    def supernodes(self) -> Index:
        """Where each supernode begins."""
        found: Index = supernodes.find_supernodes(self.starts, self.below)
        return found

    @cached_property
    def blocks(self) -> Index | None:
        """The same; ``None`` if L has too few elements for a factorization in blocks to pay."""
        return None if self.coordinates is None else self.supernodes

    @cached_property
    def _stored(self) -> tuple[Index, int]:
        """Where the diagonal of L is stored, in the factor's order, and the size of the array."""
        if self.blocks is None:
            return self.starts[:-1], self.below.size
        in_blocks, size = supernodes.places(self.starts, self.blocks)
        return in_blocks[self.starts[:-1]], size

    @property
    def of_diagonal(self) -> Index:
        """The position of the diagonal of L among its stored elements, shape (n,)."""
        return self._stored[0]

    @cached_property
    def of_coordinates(self) -> Index | None:
        """The position of the i-th coordinate ξ in the factor's order; ``None`` if that is i."""
        return None if self.coordinates is None else np.argsort(self.coordinates)

    @cached_property
    def back(self) -> Index:
        """The position of the i-th element of x in the factor's order."""
        return np.argsort(self.order)

    @cached_property
    def places(self) -> tuple[Index, Index]:
        """Rows and columns of the elements, in the order of x, each of shape (q,)."""
        return self.order[self.rows], self.order[self.columns]

    @cached_property
    def lower(self) -> tuple[Index, Index]:
        """Rows and columns of the elements in the lower triangle, in the order of x."""
        rows, columns = self.places
        return np.maximum(rows, columns), np.minimum(rows, columns)

    def elements(self, A: csc_array) -> Array:
        """The elements of a symmetric sparse array with this pattern, shape (q,)."""
        rows, columns = self.places
        return np.asarray(csc_array(A)[rows, columns]).ravel()

    @cached_property
    def diagonal(self) -> Index:
        """The positions of the diagonal among the elements, in the order of x, shape (n,)."""
        found: Index = np.flatnonzero(self.rows == self.columns)[self.back]
        return found

    def factorize(self, values: Array) -> SparseFactor | None:
        """L of A with these elements; ``None`` if A is not numerically positive definite."""
        L = np.zeros(self._stored[1])
        L[self.place] = values
        if self.blocks is not None:
            done = supernodes.cholesky(self.starts, self.below, self.blocks, L)
            return SparseFactor(self, L) if done else None
        if not loops.cholesky(self.starts, self.below, L, self.tail):
            return None
        if self.tail < self.n:
            packed = L[self.starts[self.tail] :]
            square, _ = lapack.dtpttr(self.n - self.tail, packed, uplo="L")
            square, info = lapack.dpotrf(square, lower=1, overwrite_a=1, clean=0)
            if info != 0 or not np.isfinite(square.diagonal()).all():
                return None
            packed[:], _ = lapack.dtrttp(square, uplo="L")
        return SparseFactor(self, L)


@dataclass(frozen=True, eq=False)
class SparseRoot:
    """A = L Lᵀ, up to the order: x is in the order of the model, ξ in that of the pattern.

    Attributes
    ----------
    pattern : Pattern
    L : ndarray
        Elements of L, in the order of ``pattern.below``, or in blocks if it has ``blocks``.
    """

    pattern: Pattern
    L: Array

    @cached_property
    def log_determinant(self) -> float:
        """log|A|."""
        return 2.0 * float(np.log(self.L[self.pattern.of_diagonal]).sum())

    def solve(self, x: Array) -> Array:
        """L⁻¹ x."""
        y = _columns(x[self.pattern.order])
        self._solve(y)
        return self._listed(y).reshape(x.shape)

    def _coordinates(self, xi: Array) -> Array:
        """A copy as columns. The length is checked here, since compiled loops check no bounds."""
        if len(xi) != self.pattern.n:
            raise ValueError(f"{len(xi)} coordinates of a vector that has {self.pattern.n}")
        return _columns(xi if self.pattern.coordinates is None else xi[self.pattern.coordinates])

    def _listed(self, y: Array) -> Array:
        """Columns in the factor's order as coordinates ξ."""
        of = self.pattern.of_coordinates
        return y if of is None else y[of]

    def solve_transposed(self, xi: Array) -> Array:
        """L⁻ᵀ ξ."""
        y = self._coordinates(xi)
        self._solve_transposed(y)
        return y[self.pattern.back].reshape(xi.shape)

    def multiply(self, xi: Array) -> Array:
        """L ξ."""
        y = self._coordinates(xi)
        self._multiply(y)
        return y[self.pattern.back].reshape(xi.shape)

    def multiply_transposed(self, x: Array) -> Array:
        """Lᵀ x."""
        y = _columns(x[self.pattern.order])
        self._multiply_transposed(y)
        return self._listed(y).reshape(x.shape)

    def _solve(self, y: Array) -> None:
        """y ← L⁻¹ y."""
        loops.solve(self.pattern.starts, self.pattern.below, self.L, y)

    def _solve_transposed(self, y: Array) -> None:
        """y ← L⁻ᵀ y."""
        loops.solve_transposed(self.pattern.starts, self.pattern.below, self.L, y)

    def _multiply(self, y: Array) -> None:
        """y ← L y."""
        loops.multiply(self.pattern.starts, self.pattern.below, self.L, y)

    def _multiply_transposed(self, y: Array) -> None:
        """y ← Lᵀ y."""
        loops.multiply_transposed(self.pattern.starts, self.pattern.below, self.L, y)


class SparseFactor(SparseRoot):
    """L with its fill: the inverse is known where L has elements, and many columns are solved fast.

    Without fill, columns of L with the same rows are not supernodes.
    """

    @cached_property
    def _blocks(self) -> tuple[Index, Index, Index, Array]:
        """The pattern, where supernodes begin, and L in blocks."""
        of = self.pattern
        L = self.L
        if of.blocks is None:
            L = supernodes.to_blocks(of.starts, of.supernodes, L)
        return of.starts, of.below, of.supernodes, L

    def _solve(self, y: Array) -> None:
        if self.pattern.blocks is None and y.shape[1] < MANY:
            super()._solve(y)
        else:
            supernodes.solve(*self._blocks, y)

    def _solve_transposed(self, y: Array) -> None:
        if self.pattern.blocks is None and y.shape[1] < MANY:
            super()._solve_transposed(y)
        else:
            supernodes.solve_transposed(*self._blocks, y)

    def _multiply(self, y: Array) -> None:
        if self.pattern.blocks is None:
            super()._multiply(y)
        else:
            supernodes.multiply(*self._blocks, y)

    def _multiply_transposed(self, y: Array) -> None:
        if self.pattern.blocks is None:
            super()._multiply_transposed(y)
        else:
            supernodes.multiply_transposed(*self._blocks, y)

    @cached_property
    def inverse(self) -> Array:
        """A⁻¹ on the pattern of L, stored as L is, by Takahashi's equations."""
        pattern, S = self.pattern, np.empty(self.L.size)  # of NumPy, which asks for large pages
        if pattern.blocks is not None:
            supernodes.takahashi(*self._blocks, S)
            return S
        if pattern.tail < pattern.n:
            begin, m = pattern.starts[pattern.tail], pattern.n - pattern.tail
            square, _ = lapack.dtpttr(m, self.L[begin:], uplo="L")
            square, _ = lapack.dpotri(square, lower=1, overwrite_c=1)
            S[begin:], _ = lapack.dtrttp(square, uplo="L")
        return loops.takahashi(pattern.starts, pattern.below, self.L, S, pattern.tail)

    @property
    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii."""
        result: Array = self.inverse[self.pattern.of_diagonal][self.pattern.back]
        return result

    @property
    def log_determinant_slopes(self) -> Array:
        """∂ log|A| by each element of A's lower triangle, in the order of the pattern."""
        pattern = self.pattern
        once = pattern.rows == pattern.columns
        result: Array = np.where(once, 1.0, 2.0) * self.inverse[pattern.place]
        return result


def _columns(x: Array) -> Array:
    """A two-dimensional copy."""
    return np.array(x, dtype=np.float64, order="C").reshape(len(x), -1)


def _filled(A: csc_array, order: Index) -> tuple[Index, Index, Index, Index]:
    """The elements of A in an order, and the columns of L: see `Pattern`."""
    n = A.shape[0]
    there = csc_array(abs(A) + eye_array(n))[order][:, order].tocoo()
    lower = there.row >= there.col
    rows, columns = there.row[lower].astype(np.intp), there.col[lower].astype(np.intp)
    sort = np.lexsort((rows, columns))
    rows, columns = rows[sort], columns[sort]
    by_row = np.lexsort((columns, rows))
    row_starts = np.searchsorted(rows[by_row], np.arange(n + 1)).astype(np.intp)
    starts, below = loops.fill(row_starts, columns[by_row], n)
    return rows, columns, starts, below


def _places(starts: Index, below: Index, rows: Index, columns: Index) -> Index:
    """The positions in L of elements of A."""
    # The rows in a column of L increase, so a search by (column, row) finds an element of A.
    n = starts.size - 1
    key = np.repeat(np.arange(n), np.diff(starts)) * n + below
    return np.searchsorted(key, columns * n + rows).astype(np.intp)


def _tail(starts: Index) -> int:
    """See `Pattern.tail`."""
    n = starts.size - 1
    is_full = np.diff(starts) == n - np.arange(n)
    m = n if is_full.all() else int(np.argmin(is_full[::-1]))
    return n - m if m >= DENSE else n


def _is_heavy(starts: Index) -> bool:
    """Whether L has enough elements for a factorization in blocks to pay."""
    heights = np.diff(starts).astype(np.float64)
    return bool((heights[: _tail(starts)] ** 2).sum() > HEAVY * heights.sum())
