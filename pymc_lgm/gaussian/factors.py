"""Factors A = R Rᵀ of precisions: see `pymc_lgm.priors.precision_posterior.Factor`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scipy.linalg import solve_triangular

from pymc_lgm.linalg import Array
from pymc_lgm.priors.precision_posterior import Factor

__all__ = ["BlockFactor", "DiagonalFactor", "UpdatedFactor"]


@dataclass(frozen=True, eq=False)
class DiagonalFactor:
    """A = diag(s⁻²).

    Attributes
    ----------
    sd : ndarray, shape (n,)
        s.
    """

    sd: Array

    @cached_property
    def log_determinant(self) -> float:
        """log|A|."""
        return -2.0 * float(np.log(self.sd).sum())

    @property
    def inverse_diagonal(self) -> Array:
        """s²."""
        return self.sd**2

    def solve(self, x: Array) -> Array:
        """R⁻¹ x = s x."""
        return (self.sd * x.T).T

    solve_transposed = solve

    def multiply(self, xi: Array) -> Array:
        """R ξ = ξ / s."""
        return (xi.T / self.sd).T

    multiply_transposed = multiply


@dataclass(frozen=True, eq=False)
class BlockFactor:
    """A⁻¹ is block-diagonal with blocks L Lᵀ, so that R = L⁻ᵀ.

    Attributes
    ----------
    L : ndarray, shape (B, b, b)
        Lower triangular. With B = 1 each block is this one.
    n : int
        B b, or a multiple of b.
    """

    L: Array
    n: int

    @cached_property
    def log_determinant(self) -> float:
        """log|A|."""
        total = float(np.log(np.diagonal(self.L, axis1=1, axis2=2)).sum())
        return -2.0 * total * (self.n // (len(self.L) * self.L.shape[1]))

    @property
    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii."""
        squares = np.einsum("bij,bij->bi", self.L, self.L)
        return np.broadcast_to(squares, (self.n // self.L.shape[1], self.L.shape[1])).ravel()

    def solve(self, x: Array) -> Array:
        """R⁻¹ x = Lᵀ x."""
        return self._times(self.L.swapaxes(1, 2), x)

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ ξ = L ξ."""
        return self._times(self.L, xi)

    def multiply(self, xi: Array) -> Array:
        """R ξ = L⁻ᵀ ξ."""
        return self._solved(xi, transposed=True)

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ x = L⁻¹ x."""
        return self._solved(x, transposed=False)

    def _times(self, L: Array, x: Array) -> Array:
        of_blocks = x.reshape(self.n // L.shape[1], L.shape[1], -1)
        return np.asarray(L @ of_blocks).reshape(x.shape)

    def _solved(self, x: Array, *, transposed: bool) -> Array:
        b = self.L.shape[1]
        of_blocks = x.reshape(self.n // b, b, -1)
        if len(self.L) == 1:  # all right-hand sides at once
            columns = of_blocks.swapaxes(0, 1).reshape(b, -1)
            solved = solve_triangular(self.L[0], columns, lower=True, trans=transposed)
            return solved.reshape(b, len(of_blocks), -1).swapaxes(0, 1).reshape(x.shape)
        L = self.L.swapaxes(1, 2) if transposed else self.L
        return np.asarray(np.linalg.solve(L, of_blocks)).reshape(x.shape)


class UpdatedFactor:
    """A factor of A + U S Uᵀ by one of A = R Rᵀ, for U of few columns. Made by `of`.

    With R⁻¹ U = G H, G of orthonormal columns, and N Nᵀ = I + H S Hᵀ,

        A + U S Uᵀ = R C Cᵀ Rᵀ,   C = I + G (N − I) Gᵀ,   C⁻¹ = I + G (N⁻¹ − I) Gᵀ.

    S may have negative eigenvalues, as long as the sum is positive definite.
    """

    def __init__(self, factor: Factor, G: Array, N: Array):
        self.base, self._G, self._N = factor, G, N

    @classmethod
    def of(cls, factor: Factor, U: Array, S: Array) -> UpdatedFactor | None:
        """Of R, U (n, k), S (k, k); ``None`` if the sum is not numerically positive definite."""
        G, H = np.linalg.qr(factor.solve(U))
        try:
            N = np.linalg.cholesky(np.eye(len(S)) + H @ S @ H.T)
        except np.linalg.LinAlgError:
            return None
        return cls(factor, G, N) if np.isfinite(N).all() else None

    @cached_property
    def log_determinant(self) -> float:
        """log|A + U S Uᵀ| = log|A| + 2 log|N|."""
        return self.base.log_determinant + 2.0 * float(np.log(np.diag(self._N)).sum())

    @cached_property
    def less(self) -> tuple[Array, Array]:
        """Z, shape (n, k), and D with (A + U S Uᵀ)⁻¹ = A⁻¹ − Z D Zᵀ."""
        inverse = solve_triangular(self._N, np.eye(len(self._N)), lower=True)
        return self.base.solve_transposed(self._G), np.eye(len(inverse)) - inverse.T @ inverse

    @property
    def inverse_diagonal(self) -> Array:
        """Of (A + U S Uᵀ)⁻¹."""
        Z, D = self.less
        result: Array = self.base.inverse_diagonal - np.einsum("ij,jk,ik->i", Z, D, Z)
        return result

    def solve(self, x: Array) -> Array:
        """C⁻¹ R⁻¹ x."""
        return self._along(self.base.solve(x), self._inverse)

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ C⁻ᵀ ξ."""
        return self.base.solve_transposed(self._along(xi, self._inverse.T))

    def multiply(self, xi: Array) -> Array:
        """R C ξ."""
        return self.base.multiply(self._along(xi, self._N))

    def multiply_transposed(self, x: Array) -> Array:
        """Cᵀ Rᵀ x."""
        return self._along(self.base.multiply_transposed(x), self._N.T)

    @cached_property
    def _inverse(self) -> Array:
        inverse: Array = solve_triangular(self._N, np.eye(len(self._N)), lower=True)
        return inverse

    def _along(self, y: Array, N: Array) -> Array:
        """(I + G (N − I) Gᵀ) y."""
        along = self._G.T @ y
        result: Array = y + self._G @ (N @ along - along)
        return result
