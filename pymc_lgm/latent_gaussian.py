"""A latent Gaussian model as functions of arrays, the interface of the numeric code.

theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),   y_i | f_i, theta ~ p(y_i | f_i, theta).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.sites import Effects
from pymc_lgm.compile.loops.callbacks import LogDensity
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.base import GaussianModel
from pymc_lgm.linalg import Array

__all__ = ["LatentGaussian"]


class LatentGaussian(GaussianModel, Protocol):
    """A latent Gaussian model as functions of theta (p,) and f (n,), all float64."""

    def prior(self, theta: Array) -> Prior | None:
        """N(m(theta), K(theta)); ``None`` if it cannot be computed."""

    def has_latents(self, prior: Prior) -> bool:
        """Whether the parts of f can be drawn given f at theta; if not, theta has density 0."""

    def log_prior(self, theta: Array) -> float:
        """log p(theta) up to a constant."""

    def log_likelihood(self, f: Array, theta: Array) -> float:
        """ℓ(f, theta) = log p(y | f, theta)."""

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f, shape (N, n) -> (N,)."""

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ(f, theta) and g = ∂ℓ/∂f, shape (n,)."""

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Any, Array]:
        """ℓ, g, W = −∂²ℓ/∂f² and ∂³ℓ/∂f³, each (n,) except ℓ; W has blocks if there are sets."""

    def curvature_gradient(self, f: Array, theta: Array, M: Array) -> Array:
        """∂/∂f of Σ_g ⟨M_g, W_g(f)⟩, shape (n,), for blocks M (G, s, s), if there are sets."""

    def site_log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ_i(f_i, theta) of each row of f, shape (N, n) -> (N, n) or (N, G); they sum to ℓ."""

    @property
    def sets(self) -> NDArray[np.intp] | None:
        """Sets of f_i that observations read, shape (G, s); ``None`` if each reads one f_i."""

    @property
    def classes(self) -> bool:
        """Whether the sets are classes, with a curvature diag(π) − π πᵀ."""

    def probit_signs(self) -> Array | None:
        """s, shape (n,), if ℓ = Σ log Φ(s_i f_i), else ``None``."""

    def effects(self, theta: Array) -> Effects | None:
        """Observation-level random effects that are integrated out of ℓ, if there are any."""

    # Derivatives in theta, for targets with a gradient.

    def log_prior_gradient(self, theta: Array) -> Array:
        """∂ log p(theta)/∂theta, shape (p,)."""

    @property
    def prior_density(self) -> LogDensity:
        """log p(theta) and its gradient for compiled loops; always the same object."""

    @property
    def theta_in_likelihood(self) -> bool:
        """Whether ℓ depends on theta at fixed f."""

    def log_likelihood_theta_gradient(self, f: Array, theta: Array) -> Array:
        """∂ℓ/∂theta at fixed f, shape (p,)."""

    def log_likelihoods_theta_gradient(self, rows: Array, theta: Array, weights: Array) -> Array:
        """∂/∂theta of Σ_k w_k ℓ(f_k, theta) at fixed rows f_k, shape (p,)."""

    def likelihood_terms_vjp(self, f: Array, theta: Array, v: Array, u: Array) -> Array:
        """∂/∂theta of ℓ + ⟨v, g⟩ + ⟨u, W⟩ at fixed f, shape (p,)."""
