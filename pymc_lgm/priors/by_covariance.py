"""What follows for a posterior from Σ x, xᵀ Σ x and a root of Σ, however they are computed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from pymc_lgm.linalg import LOG_2PI, Array
from pymc_lgm.priors.base import Prior
from pymc_lgm.priors.precision import Precision, SiteBlocks, rooted

__all__ = ["ByCovariance"]


class ByCovariance(ABC):
    """Verbs of a `Posterior` whose draws are a root A of Σ times ξ₁, and no noise beside it."""

    prior: Prior

    def __init__(self, W: Precision):
        self.precision, self._W = W, rooted(W)

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log|B|."""

    @property
    @abstractmethod
    def variances(self) -> Array:
        """Σ_ii, shape (n,)."""

    @property
    @abstractmethod
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W."""

    @abstractmethod
    def covariance_times(self, x: Array) -> Array:
        """Σ x."""

    @abstractmethod
    def spread(self, x: Array) -> float:
        """xᵀ Σ x."""

    @abstractmethod
    def multiply(self, xi: Array) -> Array:
        """A ξ."""

    @abstractmethod
    def solve(self, d: Array) -> Array:
        """A⁻¹ d."""

    def dual(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W Σ b."""
        return b - self._W.times(self.covariance_times(b))

    def center(self, nu: Array) -> tuple[Array, Array]:
        """ẑ = Σ ν, and a = ν − W ẑ: K a would have the rounding of a times the variances of K."""
        z = self.covariance_times(nu)
        return nu - self._W.times(z), z

    def precision_times(self, x: Array) -> Array:
        """W x."""
        return self._W.times(x)

    def square(self, d: Array) -> float:
        """dᵀ Σ⁻¹ d = dᵀ K⁻¹ d + dᵀ W d."""
        nu = self.prior.solve(d)
        return float(nu @ nu + d @ self._W.times(d))

    @property
    def shares(self) -> Array:
        """1 − (W Σ)_ii."""
        if isinstance(self.precision, SiteBlocks):
            return 1.0 - self.precision.diagonal(self.precision.values @ self.site_covariances)
        return np.asarray(1.0 - self.precision * self.variances)

    # Draws

    @property
    def coordinates_shape(self) -> tuple[int, int]:
        """Of one draw's coordinates: f has r degrees of freedom."""
        return 1, self.prior.rank

    def deviations(self, xi: Array) -> Array:
        """A ξ₁."""
        return self.multiply(xi[0])

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same, and L⁻¹ of them."""
        deviations = self.deviations(xi)
        return deviations, self.prior.solve(deviations)

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """ξ₁ = A⁻¹ of a deviation: nothing is left to be drawn."""
        return self.solve(deviation)[None]

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
