"""A scaled covariance to which something of low rank has been added: K = E A⁻¹ E + C S Cᵀ."""

from __future__ import annotations

import math

from functools import cached_property
from typing import NamedTuple

import numba
import numpy as np

from numpy.typing import NDArray
from scipy.linalg import lapack

from pymc_lgm.gaussian.posterior import Factor
from pymc_lgm.linalg import Array

__all__ = ["APART", "PivotedColumns", "UpdatedFactor", "divided", "eliminated", "orthonormal"]

# Loops


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


# The factor


APART = 1e3
"""Times that an |e_i| may be smaller than the largest for C_i / e_i to be as good as C_i: three of
sixteen digits."""


class PivotedColumns:
    """C = C' F with columns that are divided by e_i without a loss: see `UpdatedFactor`. Of `of`.

    Attributes
    ----------
    rows : ndarray, shape (r, n)
        C', by rows: r is the rank of C.
    F : ndarray, shape (r, k)
    pivots : ndarray of int, shape (r,)
        C'_p is lower triangular, with ones on its diagonal.
    D : ndarray, shape (r,)
        The e of the pivots.
    Y : ndarray, shape (r, n)
        E⁻¹ C' D, by rows: no element is above one.
    """

    def __init__(self, e: Array, rows: Array, F: Array, pivots: NDArray[np.intp]):
        self.rows, self.F, self.pivots, self.D = rows, F, pivots, e[pivots]
        self.is_zero_elsewhere = bool(np.count_nonzero(e) < e.size - np.count_nonzero(self.D == 0))
        self.Y, self._inverse = np.empty_like(rows), np.empty_like(e)
        divided(rows, e, pivots, self.Y, self._inverse)

    @classmethod
    def of(cls, C: Array, e: Array) -> PivotedColumns:
        """Of C (n, k) and e (n,)."""
        order = _by_peaks(C, e)
        rows = np.array(C.T[order], order="C")
        F = np.zeros((C.shape[1], C.shape[1]))
        pivots = np.zeros(C.shape[1], dtype=np.intp)
        rank = eliminated(rows, e, F, pivots)
        return cls(e, rows[:rank], F[:rank, np.argsort(order)], pivots[:rank])

    def apart(self, z: Array) -> tuple[Array, Array]:
        """ψ and ẑ with z = E ψ + C' ẑ and ψ zero at the pivots."""
        of_pivots = self._through(z[self.pivots])
        return self.divided(z - self.rows.T @ of_pivots), of_pivots

    def divided(self, x: Array) -> Array:
        """E⁻¹ x, and zero at the pivots."""
        return _scaled(self._inverse, x)

    def joined(self, psi: Array, of_pivots: Array) -> Array:
        """The transpose of `apart`."""
        result = self.divided(psi)
        of_pivots = of_pivots - self.rows @ result
        result[self.pivots] += self._through(of_pivots, transposed=True)
        return result

    def _through(self, x: Array, *, transposed: bool = False) -> Array:
        """C'_p⁻¹ x or C'_p⁻ᵀ x."""
        C = self.rows[:, self.pivots].T
        return _through(C, x, lower=True, transposed=transposed)


class UpdatedFactor:
    """A factor of the inverse of K = E A⁻¹ E + C S Cᵀ, A = R Rᵀ, E = diag(e), C of k columns.

    S is symmetric, of any sign, as long as K is positive definite. Where an e_i is next to zero,
    E⁻¹ C has no digits that a difference would leave, and where it is zero there is no E⁻¹. So the
    columns are eliminated first: C = C' F, where C' is one at a pivot of each column, the element
    whose e is smallest beside its C, and zero there in all later columns. With D the e of the
    pivots, Y = E⁻¹ C' D has no element above one. With Rᵀ Y = G H, G orthonormal, J = D H⁻¹ and
    N Nᵀ = F S Fᵀ + J Jᵀ,

        K = L Lᵀ,   L = E R⁻ᵀ (I − G Gᵀ) + C' N Gᵀ,

    since E R⁻ᵀ G = C' J. Given z = L ν the columns' part of z is that of the pivots, so that the
    rest is divided by no e of theirs: see `multiply_transposed`. O(n k²) beside k products with R.

    As a `Factor` of K⁻¹ its root is L⁻ᵀ. Made by `of`.
    """

    def __init__(self, factor: Factor, e: Array, C: PivotedColumns, inner: _Inner):
        self._factor, self._e, self._C, self._core = factor, e, C, inner.core
        self._G, self._H, self._J, self._N = inner.G, inner.H, inner.J, inner.N

    @classmethod
    def of(cls, factor: Factor, e: Array, C: Array, S: Array) -> UpdatedFactor | None:
        """Of R, e (n,), C (n, k), S (k, k); ``None`` if K is not numerically positive definite."""
        columns = PivotedColumns.of(C, e)
        if columns.is_zero_elsewhere:
            return None
        G = np.array(factor.multiply_transposed(columns.Y.T).T, order="C")
        H = np.zeros((len(G), len(G)))
        if not orthonormal(G, H):
            return None
        core, D = columns.F @ S @ columns.F.T, columns.D
        J = D[:, None] * _through(H, np.eye(len(H)))
        N = _upper_root(core + J @ J.T)
        if N is None:
            return None
        # Columns of such a sign that L does not depend on the choice of the pivots.
        N *= np.where(D < 0.0, -1.0, 1.0)
        return cls(factor, e, columns, _Inner(core, G, H, J, N))

    @cached_property
    def log_determinant(self) -> float:
        """log|K⁻¹| = log|A| − 2 (Σ log|e_i| + log|H| + log|N|), over i that are no pivots."""
        rest = np.delete(self._e, self._C.pivots)
        inner = np.log(np.diag(self._H)) + np.log(np.abs(np.diag(self._N)))
        return self._factor.log_determinant - 2.0 * float(np.log(np.abs(rest)).sum() + inner.sum())

    def solve(self, x: Array) -> Array:
        """Lᵀ x."""
        y = self._factor.solve(_scaled(self._e, x))
        result: Array = y + self._G.T @ (self._N.T @ (self._C.rows @ x) - self._G @ y)
        return result

    def solve_transposed(self, xi: Array) -> Array:
        """L ξ."""
        along = self._G @ xi
        rest = self._factor.solve_transposed(xi - self._G.T @ along)
        result: Array = _scaled(self._e, rest) + self._C.rows.T @ (self._N @ along)
        return result

    def multiply_transposed(self, x: Array) -> Array:
        """L⁻¹ x.

        With ψ and ẑ of `PivotedColumns.apart`, x = E (ψ + Y c) + C' (ẑ − D c) for every c. That of
        L is orthogonal to Y: Yᵀ A (ψ + Y c) = 0.
        """
        psi, of_pivots = self._C.apart(x)
        y = self._factor.multiply_transposed(psi)
        along = self._G @ y
        inner = _through(self._N, of_pivots + self._J @ along)
        result: Array = y + self._G.T @ (inner - along)
        return result

    def multiply(self, x: Array) -> Array:
        """L⁻ᵀ x: the transpose of `multiply_transposed`."""
        along = self._G @ x
        inner = _through(self._N, along, transposed=True)
        y = self._factor.multiply(x + self._G.T @ (self._J.T @ inner - along))
        return self._C.joined(y, inner)

    @cached_property
    def inverse_diagonal(self) -> Array:
        """K_ii."""
        own, C = self._e**2 * self._factor.inverse_diagonal, self._C.rows
        result: Array = own + np.einsum("ji,jk,ki->i", C, self._core, C)
        return result

    def diagonal(self, of_A: Array) -> Array:
        """(K⁻¹)_ii, by the diagonal of A: the squared lengths of the columns of L⁻¹."""
        along = self._factor.multiply(self._G.T)
        inner = _through(self._N, self._J @ along.T)
        squares = of_A - np.square(along).sum(axis=1) + np.square(inner).sum(axis=0)
        result, pivots = self._C.divided(self._C.divided(squares)), self._C.pivots
        columns = np.zeros((self._e.size, pivots.size))
        columns[pivots, np.arange(pivots.size)] = 1.0
        result[pivots] = np.square(self.multiply_transposed(columns)).sum(axis=0)
        return result


class _Inner(NamedTuple):
    """Of k × k, and G: see `UpdatedFactor`."""

    core: Array  # F S Fᵀ
    G: Array  # by rows
    H: Array
    J: Array
    N: Array


def _by_peaks(C: Array, e: Array) -> NDArray[np.intp]:
    """An order of columns: as they are, but first those that some e next to zero makes large.

    A column that is as small as e where e is small, as that of a covariate that φ is multiplied by,
    may have its pivot anywhere. There it would be taken from another column in multiples of 1/e,
    under which the rest of that is lost.
    """
    size = np.abs(e)
    if size.min(initial=np.inf) * APART >= size.max(initial=0.0):
        return np.arange(C.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(C) / size[:, None]
        ratios[np.isnan(ratios)] = 0.0
        typical = np.array([np.median(ratio[ratio > 0.0]) for ratio in ratios.T if ratio.any()])
        peaks = np.zeros(C.shape[1])
        peaks[ratios.any(axis=0)] = ratios.max(axis=0)[ratios.any(axis=0)] / typical
        peaks[np.isnan(peaks)] = 1.0
    return np.argsort(-peaks, kind="stable")


def _upper_root(X: Array) -> Array | None:
    """N, upper triangular, with N Nᵀ = X; ``None`` if X is not numerically positive definite."""
    try:
        N: Array = np.linalg.cholesky(X[::-1, ::-1])[::-1, ::-1].copy()
    except np.linalg.LinAlgError:
        return None
    return N if np.isfinite(N).all() else None


def _through(A: Array, x: Array, *, lower: bool = False, transposed: bool = False) -> Array:
    """A⁻¹ x or A⁻ᵀ x of a triangular array of few rows, by LAPACK itself."""
    if not len(A):
        return x.copy()
    solution: Array = lapack.dtrtrs(A, x, lower=lower, trans=transposed)[0]
    return solution


def _scaled(e: Array, x: Array) -> Array:
    return e * x if x.ndim == 1 else e[:, None] * x
