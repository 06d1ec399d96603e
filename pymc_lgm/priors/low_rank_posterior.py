"""A prior of low rank conditioned on Gaussian sites."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import LOG_2PI, Array, CholeskyFactor, tally
from pymc_lgm.priors.base import Prior
from pymc_lgm.priors.dense import DensePrior
from pymc_lgm.priors.precision import Precision, SiteBlocks, gathered, rooted

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


class LowRankPosterior:
    """The same conditioned on precisions W ≥ 0, through B_r = I + Vᵀ W V, V = U L.

    Σ = V B_r⁻¹ Vᵀ, |B_r| = |I + W^½ K W^½|: see `Posterior`.
    """

    def __init__(self, prior: Factored, W: Precision, B: CholeskyFactor):
        self.prior, self.precision, self._B = prior, W, B
        self._W, self._V = rooted(W), prior.root

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._B.log_determinant

    @property
    def coordinates_shape(self) -> tuple[int, int]:
        """Of one draw's coordinates: f has r degrees of freedom."""
        return 1, self.prior.rank

    def covariance_times(self, x: Array) -> Array:
        """V B_r⁻¹ Vᵀ x."""
        result: Array = self._V @ self._B.inverse_times(self._V.T @ x)
        return result

    def dual(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W Σ b."""
        return b - self._W.times(self.covariance_times(b))

    def precision_times(self, x: Array) -> Array:
        """W x."""
        return self._W.times(x)

    def spread(self, x: Array) -> float:
        """xᵀ Σ x."""
        half = self._B.solve(self._V.T @ x)
        return float(half @ half)

    def square(self, d: Array) -> float:
        """dᵀ Σ⁻¹ d = |L⁻¹ Uᵀ d|² + dᵀ W d."""
        nu = self.prior.solve(d)
        return float(nu @ nu + d @ self._W.times(d))

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

    @property
    def shares(self) -> Array:
        """1 − (W Σ)_ii."""
        if isinstance(self.precision, SiteBlocks):
            return 1.0 - self.precision.diagonal(self.precision.values @ self.site_covariances)
        result: Array = 1.0 - self.precision * self.variances
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

    # Draws: A = V L_B⁻ᵀ, and no noise beside it

    def deviations(self, xi: Array) -> Array:
        """A ξ₁."""
        result: Array = self._V @ self._B.solve_transposed(xi[0])
        return result

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """ξ₁ = A⁻¹ of a deviation: nothing is left to be drawn."""
        return self.solve(deviation)[None]

    def multiply(self, xi: Array) -> Array:
        """A ξ."""
        result: Array = self._V @ self._B.solve_transposed(xi)
        return result

    def solve(self, d: Array) -> Array:
        """A⁻¹ d = L_Bᵀ L⁻¹ Uᵀ d."""
        return self._B.multiply_transposed(self.prior.solve(d))

    # The sites as noisy data

    def seen(self, f: Array, center: Array) -> Array:
        """W^½ (f − center)."""
        return self._W.root_times(f - center)

    def given(self, r: Array) -> Array:
        """K W^½ B⁻¹ r = Σ W^½ r."""
        return self.covariance_times(self._W.root_times(r))

    def log_density_of_data(self, r: Array) -> float:
        """log N(r; 0, B), B⁻¹ = I − W^½ Σ W^½."""
        square = float(r @ r) - self.spread(self._W.root_times(r))
        return -0.5 * (square + self.log_determinant + r.size * LOG_2PI)

    def unexplained(self, r: Array) -> Array:
        """B⁻¹ r."""
        return r - self._W.root_times(self.given(r))

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
