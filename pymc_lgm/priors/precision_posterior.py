"""A prior of sparse precision conditioned on Gaussian sites, by a factor of A = K⁻¹ + W."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.priors.base import Prior
from pymc_lgm.priors.by_covariance import ByCovariance

__all__ = ["Factor", "PrecisionPosterior", "Sparse"]


class Factor(Protocol):
    """A = R Rᵀ. x is in the order of f; ξ need not be."""

    @property
    def log_determinant(self) -> float:
        """log|A|."""

    @property
    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii."""

    def solve(self, x: Array) -> Array:
        """R⁻¹ x."""

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ ξ."""

    def multiply(self, xi: Array) -> Array:
        """R ξ."""

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ x."""


class Sparse(Prior, Protocol):
    """A prior whose precision, plus a diagonal, has a `Factor`."""

    @property
    def log_determinant(self) -> float:
        """log|K|."""


class PrecisionPosterior(ByCovariance):
    """The same conditioned on precisions W ≥ 0, a diagonal: Σ⁻¹ = A = K⁻¹ + W: see `Posterior`."""

    prior: Sparse

    def __init__(self, prior: Sparse, W: Array, factor: Factor):
        super().__init__(W)
        self.prior, self.factor = prior, factor

    @property
    def log_determinant(self) -> float:
        """log|B| = log|K| + log|A|."""
        return self.prior.log_determinant + self.factor.log_determinant

    def covariance_times(self, x: Array) -> Array:
        """Σ x = R⁻ᵀ R⁻¹ x."""
        return self.multiply(self.factor.solve(x))

    def spread(self, x: Array) -> float:
        """xᵀ Σ x = |R⁻¹ x|²."""
        half = self.factor.solve(x)
        return float(half @ half)

    def multiply(self, xi: Array) -> Array:
        """R⁻ᵀ ξ."""
        return self.factor.solve_transposed(xi)

    def solve(self, d: Array) -> Array:
        """Rᵀ d."""
        return self.factor.multiply_transposed(d)

    @property
    def variances(self) -> Array:
        """Σ_ii."""
        return self.factor.inverse_diagonal

    @property
    def site_covariances(self) -> Array:
        """Σ_ii, shape (n, 1, 1)."""
        return self.variances[:, None, None]

    def block(self, index: NDArray[np.intp]) -> Array:
        """Σ of some f_i: a column of Σ for each."""
        columns = np.zeros((self.prior.n, index.size), order="F")
        columns[index, np.arange(index.size)] = 1.0
        half = self.factor.solve(columns)
        result: Array = half.T @ half
        return result
