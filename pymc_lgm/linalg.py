"""Dense Gaussian algebra: LAPACK in place, failures as values, operations counted.

The prior N(m, K) enters every kernel through one object, `CholeskyFactor`, and its verbs: L x,
L⁻¹ x, Lᵀ x, L⁻ᵀ x, K x, log|K|, log N(z; 0, K). Making one is the O(n³) work of a sampler, using
one is O(n²). A matrix that is not positive definite gives ``None``, never an exception: inside a
chain it is a rejected proposal.

`tally` counts, for the current thread, the O(n³) operations as the papers do (a Cholesky
factorization is one) and the proposals that were lost to numerical failure.
"""

from __future__ import annotations

import threading

from typing import Any

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import blas, lapack

__all__ = ["CholeskyFactor", "Tally", "factorize", "tally"]

Array = NDArray[np.float64]

LOG_2PI = float(np.log(2 * np.pi))


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
    """The lower Cholesky factor L of a covariance K = L Lᵀ, and what kernels do with it.

    Parameters
    ----------
    packed : ndarray, shape (n, n), Fortran order
        L in the lower triangle. The strict upper triangle is never read.

    Notes
    -----
    Every verb takes a vector (n,) or a matrix (n, N) of columns and returns a new array; the
    cost is O(n²) a column. BLAS reads only the lower triangle, so ``packed`` is what LAPACK left
    behind: no n × n array is copied or cleared.
    """

    def __init__(self, packed: Array):
        self._packed = packed
        diagonal = packed.diagonal()
        self.log_determinant: float = 2.0 * float(np.log(diagonal).sum())
        """log|K|."""

    def __repr__(self) -> str:
        return f"CholeskyFactor(n={self.n}, log_determinant={self.log_determinant:.6g})"

    @property
    def n(self) -> int:
        """Number of latent variables."""
        return int(self._packed.shape[0])

    def multiply(self, x: Array) -> Array:
        """L x: whitened variables into latent ones."""
        return self._product(x, trans=0)

    def multiply_transposed(self, x: Array) -> Array:
        """Lᵀ x: a gradient in f into a gradient in ν."""
        return self._product(x, trans=1)

    def solve(self, x: Array) -> Array:
        """L⁻¹ x: latent variables into whitened ones."""
        return self._solution(x, trans=0)

    def solve_transposed(self, x: Array) -> Array:
        """L⁻ᵀ x: with `solve`, K⁻¹ x = L⁻ᵀ L⁻¹ x."""
        return self._solution(x, trans=1)

    def covariance_times(self, x: Array) -> Array:
        """K x = L Lᵀ x."""
        return self.multiply(self.multiply_transposed(x))

    def log_density(self, z: Array) -> float:
        """log N(z; 0, K) = −½ |L⁻¹ z|² − ½ log|K| − ½ n log 2π."""
        nu = self.solve(z)
        return -0.5 * (float(nu @ nu) + self.log_determinant + self.n * LOG_2PI)

    def dense(self) -> Array:
        """Return L as an ordinary lower triangular array (a copy; for tests and plots)."""
        return np.tril(self._packed)

    def _product(self, x: Array, trans: int) -> Array:
        if x.ndim == 1:
            return _float_array(blas.dtrmv(self._packed, x, lower=1, trans=trans))
        return _float_array(blas.dtrmm(1.0, self._packed, x, lower=1, trans_a=trans))

    def _solution(self, x: Array, trans: int) -> Array:
        if x.ndim == 1:
            return _float_array(blas.dtrsv(self._packed, x, lower=1, trans=trans))
        return _float_array(blas.dtrsm(1.0, self._packed, x, lower=1, trans_a=trans))


def factorize(K: Array) -> CholeskyFactor | None:
    """Factorize a covariance in place: K = L Lᵀ.

    Parameters
    ----------
    K : ndarray, shape (n, n)
        Symmetric; **overwritten**. Row and column order do equally well: a symmetric matrix is
        its own transpose, so neither is copied.

    Returns
    -------
    CholeskyFactor or None
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
    tally.cubic_ops += 1
    column_major = K.T if K.flags.c_contiguous else K
    packed, info = lapack.dpotrf(column_major, lower=1, overwrite_a=1, clean=0)
    # OpenBLAS compares a pivot with zero, which a NaN passes: look at the diagonal, which a NaN
    # anywhere in its row reaches.
    if info != 0 or not np.isfinite(packed.diagonal().sum()):
        return None
    return CholeskyFactor(packed)


def _float_array(x: Any) -> Array:
    """Give SciPy's untyped result its type."""
    result: Array = x
    return result
