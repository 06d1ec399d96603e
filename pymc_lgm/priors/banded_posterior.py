"""A prior of banded precision conditioned on Gaussian sites: A = Q + W has the same band."""

from __future__ import annotations

from typing import Protocol

from pymc_lgm.linalg import Array
from pymc_lgm.priors import bands
from pymc_lgm.priors.band_factors import BandFactor
from pymc_lgm.priors.precision_posterior import PrecisionPosterior, Sparse

__all__ = ["BandedPosterior"]


class Banded(Sparse, Protocol):
    """T (f − m) ~ N(0, I)."""

    T: Array

    @property
    def covariance_on_band(self) -> Array:
        """K where the band of Q is."""

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂Q⟩ + vᵀ ∂m."""


class BandedPosterior(PrecisionPosterior):
    """The same conditioned on precisions W ≥ 0, a diagonal, for the same band: see `Posterior`."""

    prior: Banded
    factor: BandFactor

    # Derivatives in theta

    def differentiable(self) -> BandedPosterior:
        """Nothing is to be made ready."""
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂m by ∂Q, for O(n b²).

        ∂K = −K ∂Q K, and R = Q − Q Σ Q is K R K = K − Σ to ∂Q. With ẑ = K a it is

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
