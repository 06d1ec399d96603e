"""A prior of banded precision conditioned on Gaussian sites: A = Q + W has the same band."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.priors import bands
from pymc_lgm.priors.base import Prior
from pymc_lgm.priors.by_covariance import ByCovariance

__all__ = ["BandedPosterior"]


class Banded(Prior, Protocol):
    """T (f − m) ~ N(0, I)."""

    T: Array

    @property
    def log_determinant(self) -> float:
        """log|K|."""

    @property
    def covariance_on_band(self) -> Array:
        """K where the band of Q is."""

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂Q⟩ + vᵀ ∂m."""


class BandedPosterior(ByCovariance):
    """The same conditioned on precisions W ≥ 0, a diagonal: Σ⁻¹ = A = Q + W: see `Posterior`.

    Made by `BandedPrior.condition`, of the factor L of A. O(n b) a column and verb, where nothing
    else is said.
    """

    prior: Banded

    def __init__(self, prior: Banded, W: Array, factor: Array):
        super().__init__(W)
        self.prior, self._L = prior, factor

    @property
    def log_determinant(self) -> float:
        """log|B| = log|K| + log|A|."""
        return self.prior.log_determinant + 2.0 * float(np.log(self._L[0]).sum())

    def covariance_times(self, x: Array) -> Array:
        """Σ x = L⁻ᵀ L⁻¹ x."""
        return self.multiply(bands.solve(self._L, x))

    def spread(self, x: Array) -> float:
        """xᵀ Σ x = |L⁻¹ x|²."""
        half = bands.solve(self._L, x)
        return float(half @ half)

    def multiply(self, xi: Array) -> Array:
        """L⁻ᵀ ξ."""
        return bands.solve(self._L, xi, transposed=True)

    def solve(self, d: Array) -> Array:
        """Lᵀ d."""
        return bands.multiply_transposed(self._L, d)

    @cached_property
    def _sigma(self) -> Array:
        """Σ where the band of A is: O(n b²)."""
        sigma: Array = bands.inverse_on_band(self._L)
        return sigma

    @property
    def variances(self) -> Array:
        """Σ_ii."""
        result: Array = self._sigma[0]
        return result

    @property
    def site_covariances(self) -> Array:
        """Σ_ii, shape (n, 1, 1)."""
        return self.variances[:, None, None]

    def block(self, index: NDArray[np.intp]) -> Array:
        """Σ of some f_i: a column of Σ for each."""
        columns = np.zeros((self.prior.n, index.size), order="F")
        columns[index, np.arange(index.size)] = 1.0
        half = bands.solve(self._L, columns)
        result: Array = half.T @ half
        return result

    # Derivatives in theta

    def differentiable(self) -> BandedPosterior:
        """Nothing is to be made ready."""
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂m by ∂Q, for O(n b²).

        ∂K = −K ∂Q K, and R = Q − Q Σ Q is K R K = K − Σ to ∂Q. With ẑ = K a it is

            ⟨½ (K − Σ) − ½ ẑ ẑᵀ − K v ẑᵀ, ∂Q⟩ + (a + v)ᵀ ∂m.
        """
        z, width = self.prior.covariance_times(a), len(self._L)
        M = 0.5 * (self.prior.covariance_on_band - self._sigma - bands.outer(z, z, width))
        if v is not None:
            Kv = self.prior.covariance_times(v)
            M -= 0.5 * (bands.outer(Kv, z, width) + bands.outer(z, Kv, width))
        return self.prior.vjp(M, a if v is None else a + v)
