"""A prior of low rank conditioned on Gaussian sites."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array, CholeskyFactor, tally
from pymc_lgm.priors.base import Prior
from pymc_lgm.priors.by_covariance import ByCovariance
from pymc_lgm.priors.dense import DensePrior
from pymc_lgm.priors.precision import Precision, SiteBlocks, gathered

__all__ = ["LowRankPosterior"]


class Factored(Prior, Protocol):
    """f = c + V ξ, V = U L."""

    basis: Array
    reduced: DensePrior

    @property
    def root(self) -> Array:
        """V, shape (E, r)."""

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K_w⟩ + vᵀ ∂c, M of shape (r, r)."""


class LowRankPosterior(ByCovariance):
    """The same conditioned on precisions W ≥ 0, through B_r = I + Vᵀ W V, V = U L.

    Σ = V B_r⁻¹ Vᵀ, |B_r| = |I + W^½ K W^½|: see `Posterior`.
    """

    prior: Factored

    def __init__(self, prior: Factored, W: Precision, B: CholeskyFactor):
        super().__init__(W)
        self.prior, self._B, self._V = prior, B, prior.root

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._B.log_determinant

    def covariance_times(self, x: Array) -> Array:
        """V B_r⁻¹ Vᵀ x."""
        result: Array = self._V @ self._B.inverse_times(self._V.T @ x)
        return result

    def spread(self, x: Array) -> float:
        """xᵀ Σ x."""
        half = self._B.solve(self._V.T @ x)
        return float(half @ half)

    @cached_property
    def _half(self) -> Array:
        """L_B⁻¹ Vᵀ, shape (r, E): one O(n³) operation or less."""
        tally.cubic_ops += 1
        return self._B.solve(np.asfortranarray(self._V.T))

    @cached_property
    def variances(self) -> Array:
        """Σ_ii."""
        result: Array = np.einsum("ij,ij->j", self._half, self._half)
        return result

    @cached_property
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W, (G, s, s)."""
        if not isinstance(self.precision, SiteBlocks):
            return self.variances[:, None, None]
        half = gathered(self.precision.sets, np.ascontiguousarray(self._half.T))
        blocks = half @ half.swapaxes(1, 2)
        return np.where(self.precision.filling, np.eye(blocks.shape[1]), blocks)

    def block(self, index: NDArray[np.intp]) -> Array:
        """Σ of some f_i."""
        half = self._half[:, index]
        result: Array = half.T @ half
        return result

    def multiply(self, xi: Array) -> Array:
        """A ξ, A = V L_B⁻ᵀ."""
        result: Array = self._V @ self._B.solve_transposed(xi)
        return result

    def solve(self, d: Array) -> Array:
        """A⁻¹ d = L_Bᵀ L⁻¹ Uᵀ d."""
        return self._B.multiply_transposed(self.prior.solve(d))

    # Derivatives in theta

    def differentiable(self) -> LowRankPosterior:
        """Nothing is to be made ready."""
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂c, where Uᵀ R U = L⁻ᵀ (I − B_r⁻¹) L⁻¹."""
        prior, U = self.prior, self.prior.basis
        explained = np.eye(prior.rank) - self._B.inverse()
        tally.cubic_ops += 1
        L = prior.reduced.factor
        R = L.solve_transposed(
            np.asfortranarray(L.solve_transposed(np.asfortranarray(explained)).T)
        )
        inside = U.T @ a
        total = a if v is None else a + v
        left = 0.5 * inside if v is None else 0.5 * inside + U.T @ v
        return prior.vjp(np.outer(left, inside) - 0.5 * R, total)
