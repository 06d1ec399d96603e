"""Dense linear algebra: LAPACK in place, failures as values, counted operations.

`factorize` makes a `CholeskyFactor` by O(n³) operations. A product or a solve with it takes O(n²).
A factor is LAPACK's array times a number that is stored separately, so scaling its matrix is free.
If a matrix is not positive definite, the result is ``None`` and not an exception: inside a chain
the proposal is then rejected.

`tally` counts O(n³) operations as the papers do (a Cholesky factorization is one), and proposals
that were rejected after a numerical failure. It counts separately in each context.
"""

from __future__ import annotations

import math

from contextvars import ContextVar
from functools import cached_property
from typing import Any

import numba
import numpy as np

from numpy.typing import NDArray
from scipy.linalg import blas, lapack

__all__ = ["Array", "CholeskyFactor", "Tally", "factorize", "gram", "on_device", "tally"]

Array = NDArray[np.float64]

LOG_2PI = float(np.log(2 * np.pi))

ROWS = 2048
"""Rows of a tall array that are weighted at a time, so that the weighted copy is small. By hand,
the time of `gram` for 20 000 rows is about the same with 128 to 32 768."""

BLOCK = 64
"""Rows of a triangle that are mirrored or inverted at a time. By hand, the inverse of a triangle
with 400 or 1000 rows takes the same time with 32 to 128, and up to a fifth more with 256."""

DEVICE: ContextVar[Any] = ContextVar("device", default=None)
"""Replacement of LAPACK for large matrices, or ``None``; `on_device.use_device` sets it."""


class _InContext[Value]:
    """An attribute that has a value for each context."""

    def __init__(self, name: str, default: Value):
        self.value = ContextVar(name, default=default)

    def __get__(self, tally: Tally, kind: type[Tally]) -> Value:
        return self.value.get()

    def __set__(self, tally: Tally, value: Value) -> None:
        self.value.set(value)


class Tally:
    """Counts of operations and failures in the current context since its start.

    Each thread has its own context, and so has each task of an event loop: chains that run in turns
    count their own operations.

    Attributes
    ----------
    cubic_ops : int
        Number of O(n³) operations: Cholesky factorizations, inverses, n × n products.
    numerical_rejections : int
        Number of proposals rejected after a numerical failure: a covariance that is not positive
        definite, a NaN or +inf from the model, a trajectory with values that are not finite.
    without_prior : ndarray or None
        The last theta at which f has no prior that can be computed; ``None`` if there was none.
    """

    __slots__ = ()
    cubic_ops = _InContext("cubic_ops", 0)
    numerical_rejections = _InContext("numerical_rejections", 0)
    without_prior = _InContext[Array | None]("without_prior", None)


tally = Tally()


class CholeskyFactor:
    """A triangular factor of a positive definite matrix A = L Lᵀ, with products and solves.

    Parameters
    ----------
    packed : ndarray, shape (n, n), Fortran order
        L in the lower triangle, or Lᵀ in the upper one. The strict other triangle is never read.
    lower : bool
        Which triangle has the factor.
    log_variance : float
        log v: the matrix is v A, and its factor √v L.

    Notes
    -----
    Every method takes a vector (n,) or a matrix (n, N) of columns, and returns a new array. The
    cost is O(n²) per column. BLAS reads only one triangle, so ``packed`` is the output of LAPACK,
    and no n × n array is copied or cleared.
    """

    def __init__(self, packed: Array, lower: bool = True, log_variance: float = 0.0):
        self._packed = packed
        self._lower = lower
        self._scale = bounded_exp(0.5 * log_variance)
        self._log_variance = log_variance

    @cached_property
    def log_determinant(self) -> float:
        """log|A|."""
        log_determinant = 2.0 * float(np.log(self._packed.diagonal()).sum())
        return log_determinant + self.n * self._log_variance

    @property
    def triangle(self) -> tuple[Array, bool, float]:
        """The stored triangle, whether it is the lower one, and its scale, for compiled loops."""
        return self._packed, self._lower, self._scale

    def times(self, log_variance: float) -> CholeskyFactor:
        """The factor of v A, v = e^log_variance. Both share one array."""
        return CholeskyFactor(self._packed, self._lower, log_variance)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, log_determinant={self.log_determinant:.6g})"

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self._packed.shape[0])

    def multiply(self, x: Array) -> Array:
        """L x, which maps whitened variables to latent ones."""
        return self._product(x, transposed=not self._lower)

    def multiply_transposed(self, x: Array) -> Array:
        """Lᵀ x, which maps a gradient in f to a gradient in ν."""
        return self._product(x, transposed=self._lower)

    def solve(self, x: Array) -> Array:
        """L⁻¹ x, which maps latent variables to whitened ones."""
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
        # Columns of one triangle are rows of the other.
        _mirror(packed if self._lower else packed.T, 1.0 / self._scale**2)
        return packed.T if self._lower else packed

    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii = Σ_k (L⁻¹)_ki², shape (n,): half of the work of A⁻¹."""
        tally.cubic_ops += 1
        packed = _inverse_triangle(self._packed, self._lower)
        result: Array = _squares(packed.T, self._lower)
        result /= self._scale**2
        return result

    def inverse_factor(self) -> Array:
        """L⁻¹, a lower triangular array: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        packed = _inverse_triangle(self._packed, self._lower)
        B: Array = np.tril(packed) if self._lower else np.triu(packed).T
        B /= self._scale
        return B

    def dense(self) -> Array:
        """Return L as an ordinary lower triangular array (a copy; for tests and plots)."""
        dense: Array = np.tril(self._packed) if self._lower else np.triu(self._packed).T
        dense *= self._scale
        return dense

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


def factorize(A: Array, *, lower: bool = True) -> CholeskyFactor | None:
    """Factorize a symmetric matrix in place: A = L Lᵀ.

    Parameters
    ----------
    A : ndarray, shape (n, n)
        **Overwritten** in one triangle; the other is not read. The array may be in row or column
        order. Neither is copied, since a symmetric matrix is its own transpose.
    lower : bool
        Which triangle is used, in column order.

    Returns
    -------
    CholeskyFactor or None
        ``None`` if A is not numerically positive definite or contains a NaN.

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
    tally.cubic_ops += 1
    device = DEVICE.get()
    if device is not None and len(A) >= device.rows:
        factor: CholeskyFactor | None = device.factorize(A, lower)
        return factor
    A = A.T if A.flags.c_contiguous else A
    packed, info = lapack.dpotrf(A, lower=lower, overwrite_a=1, clean=0)
    # OpenBLAS compares a pivot with zero, and a NaN passes this test. A NaN anywhere in a row makes
    # the diagonal element of that row NaN, so the diagonal is tested.
    if info != 0 or not np.isfinite(packed.diagonal().sum()):
        return None
    return CholeskyFactor(packed, lower)


def on_device(C: Array) -> Any:
    """A symmetric matrix as `on_device.OnDevice`; ``None`` if no device is in use for its size."""
    device = DEVICE.get()
    return None if device is None or len(C) < device.rows else device.put(C)


def gram(A: Array, weights: Array) -> Array:
    """Lower triangle of Aᵀ diag(w) A, shape (m, m), for A of shape (n, m) and w ≥ 0.

    It takes n m² operations. `ROWS` rows are weighted at a time, since a weighted copy of A would
    be as large as A. The weighted rows have the memory order of A, and BLAS reads either order
    without a copy.
    """
    product = np.zeros((A.shape[1], A.shape[1]), order="F")
    root = np.sqrt(weights)[:, None]
    trans = int(A.flags.f_contiguous)
    for i in range(0, len(A), ROWS):
        part = root[i : i + ROWS] * A[i : i + ROWS]
        part = part if trans else part.T
        product = blas.dsyrk(1.0, part, 1.0, product, trans=trans, lower=1, overwrite_c=1)
    return product


def _inverse_triangle(packed: Array, lower: bool, out: Array | None = None) -> Array:
    """L⁻¹ in the same triangle of a new array, by recursive halving.

    It takes half the time of LAPACK's dtrtri at n = 400, because OpenBLAS is fast at products, but
    inverts only small triangles fast.
    """
    n = len(packed)
    # The other triangle is arbitrary, and arithmetic on it might warn.
    out = np.empty((n, n), order="F") if out is None else out
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


@numba.njit(cache=True)
def _squares(A: Array, upper: bool) -> Array:
    """Sums of squares along the rows of an upper triangle, or down the columns of a lower one."""
    n = len(A)
    sums = np.empty(n)
    for i in range(n):
        sums[i] = 0.0
        if upper:
            for j in range(i, n):
                sums[i] += A[i, j] ** 2
        else:
            for j in range(i + 1):
                sums[j] += A[i, j] ** 2
    return sums


@numba.njit(cache=True)
def _mirror(A: Array, scale: float) -> None:
    """Scale the lower triangle and copy it to the upper one, by blocks that fit in the cache."""
    n = len(A)
    for low in range(0, n, BLOCK):
        for left in range(0, low + 1, BLOCK):
            for i in range(low, min(low + BLOCK, n)):
                for j in range(left, min(left + BLOCK, i + 1)):
                    A[i, j] *= scale
                    A[j, i] = A[i, j]


def bounded_exp(x: float) -> float:
    """e^x, or inf if it overflows."""
    return math.exp(x) if x < 709.0 else math.inf
