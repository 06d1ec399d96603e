"""A prior of fewer degrees of freedom than elements, conditioned on Gaussian sites."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array, CholeskyFactor, tally
from pymc_lgm.priors.base import Prior
from pymc_lgm.priors.by_covariance import ByCovariance
from pymc_lgm.priors.precision import Precision, SiteBlocks, gathered

__all__ = ["RootPosterior", "Rooted"]


class Rooted(Prior, Protocol):
    """f = c + V ξ."""

    @property
    def root(self) -> Array:
        """V, shape (E, r)."""


class RootPosterior(ByCovariance):
    """f = c + V ξ conditioned on precisions W ≥ 0, through B_r = I + Vᵀ W V.

    Σ = V B_r⁻¹ Vᵀ, |B_r| = |I + W^½ K W^½|: see `Posterior`.
    """

    prior: Rooted

    def __init__(self, prior: Rooted, W: Precision, B: CholeskyFactor):
        super().__init__(W)
        self.prior, self._B = prior, B

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._B.log_determinant

    def covariance_times(self, x: Array) -> Array:
        """V B_r⁻¹ Vᵀ x."""
        return self.prior.multiply(self._B.inverse_times(self.prior.multiply_transposed(x)))

    def spread(self, x: Array) -> float:
        """xᵀ Σ x."""
        half = self._B.solve(self.prior.multiply_transposed(x))
        return float(half @ half)

    @cached_property
    def _half(self) -> Array:
        """L_B⁻¹ Vᵀ, shape (r, E): one O(n³) operation or less."""
        tally.cubic_ops += 1
        return self._B.solve(np.asfortranarray(self.prior.root.T))

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
        return self.prior.multiply(self._B.solve_transposed(xi))

    def solve(self, d: Array) -> Array:
        """A⁻¹ d = L_Bᵀ L⁻¹ Uᵀ d."""
        return self._B.multiply_transposed(self.prior.solve(d))
