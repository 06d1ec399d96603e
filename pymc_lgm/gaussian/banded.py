"""A prior with a banded precision: a series in which each element depends on few before it.

In an autoregression or a random walk, x_t = c_t + Σ_k ρ_k x_{t−k} + σ_t ε_t. Divided by σ_t, all
rows together are T x = u + ε with a lower triangular T of few diagonals, so that

    m = T⁻¹ u,   K⁻¹ = Q = TᵀT,   K = T⁻¹ T⁻ᵀ.

T is the whitening map, so no matrix has to be factorized, and no n × n array is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.gaussian import bands
from pymc_lgm.gaussian.bands import BandFactor, WhitenerFactor
from pymc_lgm.gaussian.base import Functions, PrecisionPosterior, Prior, StatePrior
from pymc_lgm.gaussian.sites import Precision, SiteBlocks
from pymc_lgm.linalg import Array, tally

__all__ = ["BandedModel", "BandedPosterior", "BandedPrior"]


@dataclass(eq=False)
class BandedModel:
    """A series T f = u + ε as functions of theta.

    Attributes
    ----------
    functions : Functions
        Their ``cov`` is T in bands, (b + 1, n), and their ``mean`` is u, (n,).
    enters_cov : ndarray of bool, shape (p,)
        Whether T depends on each component of theta.
    """

    functions: Functions
    enters_cov: NDArray[np.bool_]

    def vjp(self, theta: Array, of_T: Array, of_u: Array) -> Array:
        """⟨of_T, ∂T⟩ + ⟨of_u, ∂u⟩, shape (p,), from derivatives of a number in T and in u."""
        return self.functions.cov_vjp(theta, of_T) + self.functions.mean_vjp(theta, of_u)


class BandedPosterior(PrecisionPosterior):
    """A `BandedPrior` conditioned on a diagonal W. P = Q + W has the band of Q."""

    prior: BandedPrior
    factor: BandFactor

    @property
    def variances(self) -> Array:
        """Σ_ii."""
        return self.factor.inverse_diagonal

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂m, R = (K + W⁻¹)⁻¹, from ∂Q: O(n b²).

        ∂K = −K ∂Q K and R = Q − Q Σ Q, so ⟨R, ∂K⟩ = −⟨K − Σ, ∂Q⟩. With ẑ = K a the gradient is

            ⟨½ (K − Σ) − ½ ẑ ẑᵀ − K v ẑᵀ, ∂Q⟩ + (a + v)ᵀ ∂m.
        """
        z, width = self.prior.covariance_times(a), len(self.factor.T)
        M = 0.5 * (
            self.prior.covariance_on_band - self.factor.inverse_on_band - bands.outer(z, z, width)
        )
        if v is not None:
            Kv = self.prior.covariance_times(v)
            M -= 0.5 * (bands.outer(Kv, z, width) + bands.outer(z, Kv, width))
        return self.prior.vjp(M, a if v is None else a + v)


class BandedPrior(StatePrior):
    """f ~ N(m, K) with T (f − m) ~ N(0, I), made by `at`. A method costs O(n b²) or less.

    It is a `StatePrior` with the identity for V, so that x = z = f − m.
    """

    allows_negative_sites = True

    def __init__(self, model: BandedModel, theta: Array, whitener: WhitenerFactor, mean: Array):
        super().__init__(mean, theta)
        self.model, self._whitener, self.T = model, whitener, whitener.T

    @classmethod
    def at(cls, model: BandedModel, theta: Array) -> BandedPrior | None:
        """The prior at a theta; ``None`` if T or m is not finite, or if T has no inverse."""
        whitener = WhitenerFactor.of(model.functions.cov(theta))
        return None if whitener is None else cls._of(model, theta, whitener)

    def moved(self, theta: Array) -> BandedPrior | None:
        """The prior at another theta, with the same T if T does not depend on what has changed."""
        if (self.model.enters_cov & (theta != self.theta)).any():
            return self.at(self.model, theta)
        return self._of(self.model, theta, self._whitener)

    @classmethod
    def _of(cls, model: BandedModel, theta: Array, whitener: WhitenerFactor) -> BandedPrior | None:
        mean = whitener.mean(model.functions.mean(theta))
        return None if mean is None else cls(model, theta, whitener, mean)

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether both priors share T."""
        return isinstance(other, BandedPrior) and other._whitener is self._whitener

    @property
    def variances(self) -> Array:
        """K_ii, shape (n,)."""
        return self._whitener.inverse_diagonal

    @property
    def precisions(self) -> Array:
        """Q_ii."""
        result: Array = self._whitener.product[0]
        return result

    @property
    def log_determinant(self) -> float:
        """log|K|."""
        return -self._whitener.log_determinant

    def expand(self, x: Array) -> Array:
        """V x."""
        return x

    def expand_transposed(self, g: Array) -> Array:
        """Vᵀ g."""
        return g

    def state(self, z: Array) -> Array:
        """x."""
        return z

    def multiply(self, xi: Array) -> Array:
        """T⁻¹ ξ."""
        return bands.solve(self.T, xi)

    def multiply_transposed(self, g: Array) -> Array:
        """T⁻ᵀ g."""
        return bands.solve_transposed(self.T, g)

    def solve(self, z: Array) -> Array:
        """T z."""
        return bands.multiply(self.T, z)

    def inverse_times(self, z: Array) -> Array:
        """TᵀT z."""
        return bands.multiply_transposed(self.T, bands.multiply(self.T, z))

    def condition(self, W: Precision) -> BandedPosterior | None:
        """Factorize Q + W: O(n b²), counted as one operation."""
        if isinstance(W, SiteBlocks):
            raise NotImplementedError("A banded precision does not take sites of several f_i.")
        tally.cubic_ops += 1
        P = self._whitener.product.copy()
        P[0] += W
        L = bands.cholesky(P)
        return None if L is None else BandedPosterior(self, W, BandFactor(L))

    # Derivatives in theta

    @property
    def covariance_on_band(self) -> Array:
        """K on the band of Q."""
        return self._whitener.inverse_on_band

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂Q⟩ + vᵀ ∂m, with a symmetric M on the band."""
        return self.model.vjp(self.theta, *self._whitener.vjp(2.0 * M, self.mean, v))

    def log_density_gradient(self, f: Array) -> Array:
        """⟨½ (K − z zᵀ), ∂Q⟩ + zᵀ Q ∂m."""
        z = f - self.mean
        M = 0.5 * (self.covariance_on_band - bands.outer(z, z, len(self.T)))
        return self.vjp(M, self.inverse_times(z))

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """gᵀ ∂f for f = T⁻¹ (u + ν), with ∂f = T⁻¹ (∂u − ∂T f)."""
        of_u = self.multiply_transposed(g)
        of_T = -bands.outer(of_u, self.mean + self.multiply(nu), len(self.T))
        return self.model.vjp(self.theta, of_T, of_u)
