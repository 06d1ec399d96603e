"""Dense Gaussian algebra: LAPACK in place, failures as values, operations counted.

The prior N(m, K) enters every kernel through one object, `PriorFactor`, and its verbs: L x,
L⁻¹ x, Lᵀ x, K x, log|K|, log N(z; 0, K), and conditioning on diagonal precisions. Making one is the
O(n³) work of a sampler, using one is O(n²), and multiplying K by a number is free: a factor is the
array that LAPACK made, times a number that is kept apart. A matrix that is not positive definite
gives ``None``, never an exception: inside a chain it is a rejected proposal.

`tally` counts, for the current thread, the O(n³) operations as the papers do (a Cholesky
factorization is one) and the proposals that were lost to numerical failure.
"""

from __future__ import annotations

import math
import threading

from collections.abc import Iterable

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import blas, lapack

__all__ = ["CholeskyFactor", "Covariance", "PriorFactor", "Tally", "factorize", "tally"]

Array = NDArray[np.float64]

LOG_2PI = float(np.log(2 * np.pi))

BLOCK = 64
"""Rows of a triangle that are looked at, or inverted, together."""

ROUNDING = 0.5 * float(np.finfo(float).eps)
"""u: the largest relative error of rounding a number."""


class Tally(threading.local):
    """What sampling has spent and lost in this thread since it was started.

    Attributes
    ----------
    cubic_ops : int
        O(n³) operations: Cholesky factorizations, inverses, n × n products.
    numerical_rejections : int
        Proposals rejected because something could not be computed: a covariance that is not
        positive definite, a NaN or +inf from the model, a trajectory that left the numbers.
    """

    cubic_ops: int = 0
    numerical_rejections: int = 0


tally = Tally()


class CholeskyFactor:
    """A triangular factor of a positive definite matrix A = L Lᵀ, and what kernels do with it.

    Parameters
    ----------
    packed : ndarray, shape (n, n), Fortran order
        L in the lower triangle, or Lᵀ in the upper one. The strict other triangle is never read.
    lower : bool
        Which of the two.
    log_variance : float
        log v: the matrix is v A, and its factor √v L.

    Notes
    -----
    Every verb takes a vector (n,) or a matrix (n, N) of columns and returns a new array; the
    cost is O(n²) a column. BLAS reads only one triangle, so ``packed`` is what LAPACK left
    behind: no n × n array is copied or cleared.
    """

    def __init__(self, packed: Array, lower: bool = True, log_variance: float = 0.0):
        self._packed = packed
        self._lower = lower
        self._scale = _exp(0.5 * log_variance)
        log_determinant = 2.0 * float(np.log(packed.diagonal()).sum())
        self.log_determinant: float = log_determinant + self.n * log_variance
        """log|A|."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, log_determinant={self.log_determinant:.6g})"

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self._packed.shape[0])

    def multiply(self, x: Array) -> Array:
        """L x: whitened variables into latent ones."""
        return self._product(x, transposed=not self._lower)

    def multiply_transposed(self, x: Array) -> Array:
        """Lᵀ x: a gradient in f into a gradient in ν."""
        return self._product(x, transposed=self._lower)

    def solve(self, x: Array) -> Array:
        """L⁻¹ x: latent variables into whitened ones."""
        return self._solution(x, transposed=not self._lower)

    def solve_transposed(self, x: Array) -> Array:
        """L⁻ᵀ x."""
        return self._solution(x, transposed=self._lower)

    def inverse_times(self, x: Array) -> Array:
        """A⁻¹ x = L⁻ᵀ L⁻¹ x."""
        return self.solve_transposed(self.solve(x))

    def log_density(self, z: Array) -> float:
        """log N(z; 0, A) = −½ |L⁻¹ z|² − ½ log|A| − ½ n log 2π."""
        nu = self.solve(z)
        return -0.5 * (float(nu @ nu) + self.log_determinant + self.n * LOG_2PI)

    def inverse(self) -> Array:
        """A⁻¹ = L⁻ᵀ L⁻¹ as a symmetric array: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        packed = _inverse_triangle(self._packed, self._lower)
        packed, _ = lapack.dlauum(packed, lower=self._lower, overwrite_c=1)
        packed /= self._scale**2
        rows: Array = packed if self._lower else packed.T  # of the lower triangle
        for start in range(0, self.n, BLOCK):
            stop = start + BLOCK
            corner = np.tril(rows[start:stop, start:stop])
            rows[start:stop, start:stop] = corner + np.tril(corner, -1).T
            rows[start:stop, stop:] = rows[stop:, start:stop].T
        return rows

    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii = Σ_k (L⁻¹)_ki², shape (n,): half of the O(n³) operation that A⁻¹ is."""
        tally.cubic_ops += 1
        packed = _inverse_triangle(self._packed, self._lower)
        rows = packed.T if self._lower else packed  # of L⁻ᵀ, in the upper triangle
        result = np.empty(self.n)
        for start in range(0, self.n, BLOCK):  # the other triangle is seen in small blocks only
            stop = start + BLOCK
            corner, rest = np.triu(rows[start:stop, start:stop]), rows[start:stop, stop:]
            squares = np.einsum("ik,ik->i", corner, corner) + np.einsum("ik,ik->i", rest, rest)
            result[start:stop] = squares
        result /= self._scale**2
        return result

    def _inverse_factor(self) -> Array:
        """L⁻¹, lower triangular: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        packed = _inverse_triangle(self._packed, self._lower)
        packed /= self._scale
        B: Array = np.tril(packed) if self._lower else np.triu(packed).T
        return B

    def multiply_vjp(self, x: Array, g: Array) -> Array:
        """∂(gᵀ L x)/∂A, a symmetric array: what a change of A does to L x. Two O(n³) operations.

        With u = Lᵀ g and b_i the rows of L⁻¹, the symmetric part of Σ_i u_i b_iᵀ c_i where
        c_i = Σ_{k<i} x_k b_k + ½ x_i b_i: eq. (10) of Murray (2016), *Differentiation of the
        Cholesky decomposition*, for L̄ = tril(g xᵀ), whose Φ(Lᵀ L̄) is Φ(u xᵀ).
        """
        B, C = self._inverse_and_sums(x)
        tally.cubic_ops += 1
        C *= self.multiply_transposed(g)[:, None]
        product = blas.dtrmm(1.0, B, C, lower=1, trans_a=1)
        result: Array = 0.5 * (product + product.T)
        return result

    def multiply_jvp(self, x: Array, changes: Iterable[Array]) -> Array:
        """dL x for each change dA of A, as columns: one O(n³) operation and one for each.

        dL = L Φ(L⁻¹ dA L⁻ᵀ), §3.1 of Murray (2016), so dL x = L w with w_i = b_i dA c_iᵀ in the
        letters of `multiply_vjp`.
        """
        B, C = self._inverse_and_sums(x)
        columns = []
        for dA in changes:
            tally.cubic_ops += 1
            columns.append(np.einsum("ij,ij->i", blas.dtrmm(1.0, B, dA, lower=1), C))
        return self.multiply(np.column_stack(columns))

    def information(self, changes: Iterable[Array]) -> tuple[Array, Array]:
        """tr(A⁻¹ dA_j), shape (p,), and ½ tr(A⁻¹ dA_j A⁻¹ dA_k), shape (p, p).

        The latter is the Fisher information of N(0, A). One O(n³) operation and one for each
        change; keeps p products of n × n.
        """
        inverse = self.inverse()
        traces, products, pairs = [], [], []
        for dA in changes:
            tally.cubic_ops += 1
            product = inverse @ dA
            traces.append(np.trace(product))
            products.append(product.ravel())
            transposed = product.T.ravel()
            pairs.append([0.5 * float(other @ transposed) for other in products])
        p = len(products)
        information = [[pairs[max(j, k)][min(j, k)] for k in range(p)] for j in range(p)]
        return np.array(traces), np.array(information)

    def dense(self) -> Array:
        """Return L as an ordinary lower triangular array (a copy; for tests and plots)."""
        dense: Array = np.tril(self._packed) if self._lower else np.triu(self._packed).T
        dense *= self._scale
        return dense

    def _inverse_and_sums(self, x: Array) -> tuple[Array, Array]:
        """B = L⁻¹ and C with rows c_i = Σ_{k<i} x_k b_k + ½ x_i b_i, both lower triangular."""
        B = self._inverse_factor()
        terms = x[:, None] * B
        return B, np.cumsum(terms, axis=0) - 0.5 * terms

    def _product(self, x: Array, transposed: bool) -> Array:
        result: Array
        if x.ndim == 1:
            result = blas.dtrmv(self._packed, x, lower=self._lower, trans=transposed)
        else:
            result = blas.dtrmm(1.0, self._packed, x, lower=self._lower, trans_a=transposed)
        result *= self._scale
        return result

    def _solution(self, x: Array, transposed: bool) -> Array:
        result: Array
        if x.ndim == 1:
            result = blas.dtrsv(self._packed, x, lower=self._lower, trans=transposed)
        else:
            result = blas.dtrsm(1.0, self._packed, x, lower=self._lower, trans_a=transposed)
        result /= self._scale
        return result


class Covariance:
    """A prior covariance K before its factorization: what a mode search needs of it.

    Parameters
    ----------
    K : ndarray, shape (n, n)
        Symmetric, in row or column order; taken over, not copied.
    log_variance : float
        log v: the covariance is v K.
    """

    def __init__(self, K: Array, log_variance: float = 0.0):
        # A symmetric matrix is its own transpose, so row order is column order.
        self._K = K.T if K.flags.c_contiguous else K
        self._K_diagonal = K.diagonal().copy()
        self._log_variance = log_variance
        self.variance = _exp(log_variance)
        """v. 0 or inf if it cannot be represented."""

    @property
    def n(self) -> int:
        """Number of latent variables."""
        return int(self._K.shape[0])

    @property
    def diagonal(self) -> Array:
        """K_ii, shape (n,)."""
        return self.variance * self._K_diagonal

    def covariance_times(self, x: Array) -> Array:
        """K x, for a vector or for columns. Reads the upper triangle only."""
        product = blas.dsymv if x.ndim == 1 else blas.dsymm
        result: Array = product(self.variance, self._K, x, lower=0)
        return result

    def condition(self, W: Array) -> CholeskyFactor | None:
        """Factorize B = I + W^½ K W^½, the O(n³) part of conditioning on precisions W ≥ 0.

        (K⁻¹ + W)⁻¹ = K − K W^½ B⁻¹ W^½ K and |K⁻¹ + W| = |B| / |K|: K is never inverted, and B
        has no eigenvalue below 1. One O(n³) operation.

        ``None`` where n u W_i K_ii is not below 1, u = 1.1e-16: there (K⁻¹ + W)⁻¹_ii ≤ 1/W_i is
        less than the rounding errors of the difference from K_ii, and what follows from it, an
        evidence too, is any number.
        """
        W = self.variance * W
        gain = W * self._K_diagonal
        if not (self.n * ROUNDING * gain < 1.0).all():
            return None
        root = np.sqrt(W)
        B = self._K * root[:, None]
        B *= root
        np.fill_diagonal(B, 1.0 + gain)
        return _factor(B, lower=False)

    def dual(self, B: CholeskyFactor, W: Array, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W^½ B⁻¹ W^½ K b with the B of `condition`: O(n²).

        With b = ν it is K⁻¹ E[z] for z ~ N(0, K) times exp(νᵀz − ½ zᵀ W z).
        """
        root = np.sqrt(W)
        result: Array = b - root * B.inverse_times(root * self.covariance_times(b))
        return result

    def inverse_diagonal(self) -> Array:
        """(K⁻¹)_ii, shape (n,), 0 if K is not positive definite: two O(n³) operations."""
        factor = factorize(self._K.copy(order="F"), self._log_variance)
        return np.zeros(self.n) if factor is None else factor.inverse_diagonal()

    def factorize(self) -> PriorFactor | None:
        """Factorize in place; ``None`` if K is not numerically positive definite."""
        return factorize(self._K, self._log_variance)


class PriorFactor(CholeskyFactor, Covariance):
    """The factor of a prior covariance, which still knows the covariance.

    LAPACK writes L over the lower triangle and leaves K's strict upper one: with the diagonal
    kept aside, one n × n array holds both.
    """

    def __init__(self, packed: Array, diagonal: Array, log_variance: float = 0.0):
        CholeskyFactor.__init__(self, packed, log_variance=log_variance)
        Covariance.__init__(self, packed, log_variance)
        self._K_diagonal = diagonal
        self._root_diagonal = packed.diagonal().copy()

    def with_log_variance(self, log_variance: float) -> PriorFactor:
        """The factor of another multiple, e^log_variance, of the matrix that was factorized: O(n).

        Both share that matrix's array. No error accumulates, and the factor is to the last bit what
        a factorization with this ``log_variance`` gives.
        """
        return PriorFactor(self._packed, self._K_diagonal, log_variance)

    def covariance_times(self, x: Array) -> Array:
        """K x, to the last bit as before the factorization: a restored chain repeats itself."""
        in_place = np.einsum("ii->i", self._packed)
        in_place[:] = self._K_diagonal
        try:
            return super().covariance_times(x)
        finally:
            in_place[:] = self._root_diagonal


def factorize(K: Array, log_variance: float = 0.0) -> PriorFactor | None:
    """Factorize a covariance in place: K = L Lᵀ.

    Parameters
    ----------
    K : ndarray, shape (n, n)
        Symmetric; **overwritten**. Row and column order do equally well: a symmetric matrix is
        its own transpose, so neither is copied.
    log_variance : float
        log v: the covariance is v K.

    Returns
    -------
    PriorFactor or None
        ``None`` if K is not numerically positive definite or holds a NaN.

    Notes
    -----
    One O(n³) operation (n³/3 multiplications), counted in `tally` whether it succeeds or not.

    Examples
    --------
    >>> import numpy as np
    >>> factor = factorize(np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> factor.multiply(np.array([1.0, 1.0]))
    array([2., 3.])
    >>> factorize(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    True
    """
    column_major = K.T if K.flags.c_contiguous else K
    diagonal = column_major.diagonal().copy()
    factor = _factor(column_major, lower=True)
    return None if factor is None else PriorFactor(factor._packed, diagonal, log_variance)


def _factor(A: Array, lower: bool) -> CholeskyFactor | None:
    """Factorize in place, in one triangle, and count."""
    tally.cubic_ops += 1
    packed, info = lapack.dpotrf(A, lower=lower, overwrite_a=1, clean=0)
    # OpenBLAS compares a pivot with zero, which a NaN passes: look at the diagonal, which a NaN
    # anywhere in its row reaches.
    if info != 0 or not np.isfinite(packed.diagonal().sum()):
        return None
    return CholeskyFactor(packed, lower)


def _inverse_triangle(packed: Array, lower: bool, out: Array | None = None) -> Array:
    """L⁻¹ in the same triangle of a new array, by halves that two products join.

    Half of the time of LAPACK's dtrtri at n = 400: OpenBLAS multiplies at full speed, and inverts
    a triangle at that only where it is small.
    """
    n = len(packed)
    # Not empty: arithmetic on the other triangle would warn of what it happens to hold.
    out = np.zeros((n, n), order="F") if out is None else out
    if n <= BLOCK:
        out[:] = lapack.dtrtri(packed, lower=lower)[0]
        return out
    first, second = slice(n // 2), slice(n // 2, n)
    # [A 0; M C]⁻¹ = [A⁻¹ 0; −C⁻¹ M A⁻¹ C⁻¹], and its transpose.
    before, after = (second, first) if lower else (first, second)
    left = _inverse_triangle(packed[before, before], lower, out[before, before])
    right = _inverse_triangle(packed[after, after], lower, out[after, after])
    product = blas.dtrmm(-1.0, right, packed[before, after], side=1, lower=lower)
    out[before, after] = blas.dtrmm(1.0, left, product, lower=lower, overwrite_b=1)
    return out


def _exp(x: float) -> float:
    return math.exp(x) if x < 709.0 else math.inf
