"""A factor of a matrix to which something of low rank has been added, or taken from it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.priors import updated_loops as loops
from pymc_lgm.priors.precision_posterior import Factor

__all__ = ["UpdatedFactor"]


class UpdatedFactor:
    """A + V C Vᵀ = (R F)(R F)ᵀ with A = R Rᵀ, V of k columns and C symmetric, of any sign.

    With an orthonormal G, R⁻¹ V = G H, and E the Cholesky factor of I + H C Hᵀ, k × k,

        R⁻¹ (A + V C Vᵀ) R⁻ᵀ = I + G (E Eᵀ − I) Gᵀ = F Fᵀ,   F = I + G (E − I) Gᵀ,

    and F⁻¹ = I + G (E⁻¹ − I) Gᵀ. So no cancellation is in it but that of A + V C Vᵀ itself. O(n k²)
    beside k solutions with R. Made by `of`.
    """

    def __init__(self, factor: Factor, G: Array, E: Array, E_inverse: Array):
        self._factor, self._G, self._E, self._E_inverse = factor, G, E, E_inverse  # G by rows

    @classmethod
    def of(cls, factor: Factor, V: Array, C: Array) -> UpdatedFactor | None:
        """Of R, V (n, k) and C (k, k); ``None`` if the sum is not numerically positive definite."""
        G = np.array(factor.solve(V).T, order="C")
        E, E_inverse = np.zeros_like(C), np.zeros_like(C)
        return cls(factor, G, E, E_inverse) if loops.inner(G, C, E, E_inverse) else None

    @cached_property
    def log_determinant(self) -> float:
        """log|A + V C Vᵀ|."""
        return self._factor.log_determinant + 2.0 * float(np.log(np.diag(self._E)).sum())

    def _moved(self, x: Array, E: Array) -> Array:
        """(I + G (E − I) Gᵀ) x."""
        if not len(E):
            return x
        if x.ndim == 1:
            return loops.moved(self._G, E, x)
        inside = self._G @ x
        result: Array = x + self._G.T @ (E @ inside - inside)
        return result

    def solve(self, x: Array) -> Array:
        """F⁻¹ R⁻¹ x."""
        return self._moved(self._factor.solve(x), self._E_inverse)

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ F⁻ᵀ ξ."""
        return self._factor.solve_transposed(self._moved(xi, self._E_inverse.T))

    def multiply_transposed(self, x: Array) -> Array:
        """Fᵀ Rᵀ x."""
        return self._moved(self._factor.multiply_transposed(x), self._E.T)

    @cached_property
    def inverse_diagonal(self) -> Array:
        """Of A⁻¹ + Z (E⁻ᵀ E⁻¹ − I) Zᵀ, Z = R⁻ᵀ G."""
        Z = self._factor.solve_transposed(self._G.T)
        core = self._E_inverse.T @ self._E_inverse - np.eye(len(self._E))
        result: Array = self._factor.inverse_diagonal + ((Z @ core) * Z).sum(axis=1)
        return result
