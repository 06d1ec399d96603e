"""A factor of a precision of e φ, by that of φ."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.priors.precision_posterior import Factor

__all__ = ["ScaledFactor"]


class ScaledFactor:
    """E⁻¹ A E⁻¹ = (E⁻¹ R)(E⁻¹ R)ᵀ with A = R Rᵀ and a diagonal E: no factorization.

    Parameters
    ----------
    factor : Factor
        R.
    e : ndarray, shape (n,)
        The diagonal of E, with no zero.
    """

    def __init__(self, factor: Factor, e: Array):
        self._factor, self._e = factor, e

    @cached_property
    def log_determinant(self) -> float:
        """log|A| − 2 log|E|."""
        return self._factor.log_determinant - 2.0 * float(np.log(np.abs(self._e)).sum())

    @property
    def inverse_diagonal(self) -> Array:
        """e_i² (A⁻¹)_ii."""
        result: Array = self._e**2 * self._factor.inverse_diagonal
        return result

    def solve(self, x: Array) -> Array:
        """R⁻¹ E x."""
        return self._factor.solve(self._times(self._e, x))

    def solve_transposed(self, xi: Array) -> Array:
        """E R⁻ᵀ ξ."""
        return self._times(self._e, self._factor.solve_transposed(xi))

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ E⁻¹ x."""
        return self._factor.multiply_transposed(self._times(1.0 / self._e, x))

    @staticmethod
    def _times(e: Array, x: Array) -> Array:
        return e * x if x.ndim == 1 else e[:, None] * x
