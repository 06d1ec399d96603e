"""A prior with a banded precision: a series in which each element depends on few before it.

In an autoregression or a random walk, x_t = c_t + Σ_k ρ_k x_{t−k} + σ_t ε_t. Divided by σ_t, all
rows together are T x = u + ε with a lower triangular T of few diagonals, so that

    m = T⁻¹ u,   K⁻¹ = Q = TᵀT,   K = T⁻¹ T⁻ᵀ.

T is the whitening map, so no matrix has to be factorized, and no n × n array is needed.
"""

from __future__ import annotations

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.gaussian import bands
from pymc_lgm.gaussian.bands import BandFactor, WhitenerFactor
from pymc_lgm.gaussian.base import Functions, PrecisionPosterior, Prior, StatePrior
from pymc_lgm.gaussian.sites import Precision, SiteBlocks
from pymc_lgm.linalg import Array, tally

__all__ = ["BandedModel", "BandedPosterior", "BandedPrior"]


class BandedModel:
    """T and m of the series T f = u + ε as functions of theta, with derivatives, also of Q = TᵀT.

    T is in bands (b + 1, n); it is NaN if there is none at theta. A ``vjp`` is
    ⟨∂·/∂theta_j, M⟩ for each j, shape (p,), with M on the band.

    Parameters
    ----------
    functions : Functions
        T in the place of K, and u in the place of m.
    enters_cov : ndarray of bool, shape (p,)
        Whether T depends on each component of theta.
    """

    def __init__(self, functions: Functions, enters_cov: NDArray[np.bool_]):
        self._functions, self.enters_cov = functions, enters_cov
        self.whitener = functions.cov
        self.whitener_vjp = functions.cov_vjp

    def precision_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂Tᵀ T + Tᵀ ∂T, M⟩ = ⟨∂T, 2 T M⟩."""
        return self.whitener_vjp(theta, 2.0 * bands.product_on_band(self.whitener(theta), M))

    def mean(self, theta: Array) -> Array:
        """T⁻¹ u."""
        return bands.solve(self.whitener(theta), self._functions.mean(theta))

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m, v⟩ = ⟨∂u − ∂T m, T⁻ᵀ v⟩."""
        T = self.whitener(theta)
        w = bands.solve_transposed(T, v)
        of_T = self.whitener_vjp(theta, bands.outer(w, self.mean(theta), len(T)))
        return self._functions.mean_vjp(theta, w) - of_T


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
        z, width = self.prior.covariance_times(a), len(self.factor.L)
        M = 0.5 * (
            self.prior.covariance_on_band - self.factor.inverse_on_band - bands.outer(z, z, width)
        )
        if v is not None:
            Kv = self.prior.covariance_times(v)
            M -= 0.5 * (bands.outer(Kv, z, width) + bands.outer(z, Kv, width))
        return self.prior.vjp(M, a if v is None else a + v)


class BandedPrior(StatePrior):
    """f ~ N(m, K) with T (f − m) ~ N(0, I), made by `at`. V is the identity, and x is z.

    A method costs O(n b²) or less.
    """

    allows_negative_sites = True

    def __init__(self, model: BandedModel, theta: Array, whitener: WhitenerFactor):
        super().__init__(model.mean(theta), theta)
        self.model, self._whitener, self.T = model, whitener, whitener.T

    @classmethod
    def at(cls, model: BandedModel, theta: Array) -> BandedPrior | None:
        """The prior at a theta; ``None`` if T or m is not finite, or if T has no inverse."""
        T = np.asfortranarray(model.whitener(theta))
        if not (np.isfinite(T).all() and (T[0] > 0.0).all()):
            return None
        return cls._finite(cls(model, theta, WhitenerFactor(T)))

    def moved(self, theta: Array) -> BandedPrior | None:
        """The prior at another theta, with the same T if T does not depend on what has changed."""
        if (self.model.enters_cov & (theta != self.theta)).any():
            return self.at(self.model, theta)
        return self._finite(BandedPrior(self.model, theta, self._whitener))

    @staticmethod
    def _finite(prior: BandedPrior) -> BandedPrior | None:
        return prior if np.isfinite(prior.mean).all() else None

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
        return self._whitener.covariance_on_band

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂Q⟩ + vᵀ ∂m, with a symmetric M on the band."""
        return self.model.precision_vjp(self.theta, M) + self.model.mean_vjp(self.theta, v)

    def log_density_gradient(self, f: Array) -> Array:
        """⟨½ (K − z zᵀ), ∂Q⟩ + zᵀ Q ∂m."""
        z = f - self.mean
        M = 0.5 * (self.covariance_on_band - bands.outer(z, z, len(self.T)))
        return self.vjp(M, self.inverse_times(z))

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """gᵀ ∂f for f = m + T⁻¹ ν, with ∂(T⁻¹ ν) = −T⁻¹ ∂T T⁻¹ ν."""
        M = -bands.outer(self.multiply_transposed(g), self.multiply(nu), len(self.T))
        return self.model.whitener_vjp(self.theta, M) + self.model.mean_vjp(self.theta, g)
