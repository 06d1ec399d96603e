"""Gaussian vectors with linear constraints Cᵀ x = 0: coordinates, and factors of the rest.

The coordinates are those of an orthonormal basis E of the constraint space, x = E z. E is the
end of a product of Householder reflections, one per constraint, so that E z costs O(n k) and no
n × n array is made (Golub and Van Loan 2013, section 5.2).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from scipy.linalg import lapack

from pymc_lgm.gaussian.posterior import Factor
from pymc_lgm.linalg import Array

__all__ = ["ConstrainedFactor", "Constraints", "ScaledFactor"]


class Constraints:
    """The space Cᵀ x = 0, by H = I − V T Vᵀ with C = H (R, 0): E is all columns of H but k.

    Parameters
    ----------
    C : ndarray, shape (n, k)
        A column per constraint, linearly independent.

    Attributes
    ----------
    n, k : int
    V, T : ndarray, shape (n, k) and (k, k)
        The product of reflections H in compact form (Schreiber and Van Loan 1989).
    log_volume : float
        ½ log|Cᵀ C|.
    """

    def __init__(self, C: Array):
        self.n, self.k = C.shape
        packed, tau = np.zeros((self.n, 0)), np.zeros(0)
        if self.k:
            packed, tau, _, _ = lapack.dgeqrf(C)
        with np.errstate(divide="ignore"):
            self.log_volume = float(np.log(np.abs(np.diagonal(packed)[: self.k])).sum())
        V = self.V = np.tril(packed, -1)
        V[np.arange(self.k), np.arange(self.k)] = 1.0
        VV = V.T @ V
        T = self.T = np.diag(tau[: self.k])
        for j in range(1, self.k):
            T[:j, j] = -tau[j] * (T[:j, :j] @ VV[:j, j])

    def extend(self, z: Array) -> Array:
        """E z, of a vector or of columns: (n − k, ...) -> (n, ...)."""
        y = np.concatenate([np.zeros((self.k, *z.shape[1:])), z])
        result: Array = y - self.V @ (self.T @ (self.V.T @ y))
        return result

    def reduce(self, x: Array) -> Array:
        """Eᵀ x, of a vector or of columns: (n, ...) -> (n − k, ...)."""
        return self._turned_back(x)[self.k :]

    def _turned_back(self, x: Array) -> Array:
        """Hᵀ x."""
        result: Array = x - self.V @ (self.T.T @ (self.V.T @ x))
        return result

    @cached_property
    def normals(self) -> Array:
        """Orthonormal columns that span C's, (n, k)."""
        y = np.eye(self.n, self.k)
        result: Array = y - self.V @ (self.T @ (self.V.T @ y))
        return result


class ConstrainedFactor:
    """Eᵀ A E of a precision A = R Rᵀ, for x = E z: a `Factor` whose ξ has k elements fewer than x.

    With y = Rᵀ x the constraints are Kᵀ y = 0, K = R⁻¹ C, and y is standard normal in that space:
    y = F ξ with the coordinates F of `Constraints`.

    Parameters
    ----------
    base : Factor
        A factor of A, which is positive definite.
    C : ndarray, shape (n, k)
        With orthonormal columns.
    """

    def __init__(self, base: Factor, C: Array):
        self.base, self._space = base, Constraints(base.solve(C))

    @property
    def log_determinant(self) -> float:
        """log|Eᵀ A E| = log|A| + log|Cᵀ A⁻¹ C|."""
        return self.base.log_determinant + 2.0 * self._space.log_volume

    @cached_property
    def less(self) -> tuple[Array, Array]:
        """Z, shape (n, k), and D = I with E (Eᵀ A E)⁻¹ Eᵀ = A⁻¹ − Z D Zᵀ."""
        return self.base.solve_transposed(self._space.normals), np.eye(self._space.k)

    @property
    def inverse_diagonal(self) -> Array:
        """Variances of x."""
        Z, _ = self.less
        result: Array = self.base.inverse_diagonal - np.einsum("ij,ij->i", Z, Z)
        return result

    def solve(self, x: Array) -> Array:
        """Fᵀ R⁻¹ x."""
        return self._space.reduce(self.base.solve(x))

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ F ξ."""
        return self.base.solve_transposed(self._space.extend(xi))

    def multiply(self, xi: Array) -> Array:
        """R F ξ."""
        return self.base.multiply(self._space.extend(xi))

    def multiply_transposed(self, x: Array) -> Array:
        """Fᵀ Rᵀ x."""
        return self._space.reduce(self.base.multiply_transposed(x))


class ScaledFactor:
    """A/s² by a factor of A.

    Parameters
    ----------
    base : Factor
    scale : float
        s.
    rank : int
        Elements of ξ.
    """

    def __init__(self, base: Factor, scale: float, rank: int):
        self.base, self._scale, self._rank = base, scale, rank

    @property
    def log_determinant(self) -> float:
        """log|A| − 2 r log s."""
        return self.base.log_determinant - 2.0 * self._rank * float(np.log(self._scale))

    @property
    def inverse_diagonal(self) -> Array:
        """Times s²."""
        return self._scale**2 * self.base.inverse_diagonal

    def solve(self, x: Array) -> Array:
        """Times s."""
        return self._scale * self.base.solve(x)

    def solve_transposed(self, xi: Array) -> Array:
        """Times s."""
        return self._scale * self.base.solve_transposed(xi)

    def multiply(self, xi: Array) -> Array:
        """Over s."""
        return self.base.multiply(xi) / self._scale

    def multiply_transposed(self, x: Array) -> Array:
        """Over s."""
        return self.base.multiply_transposed(x) / self._scale
