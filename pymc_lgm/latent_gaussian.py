"""A latent Gaussian model as functions of arrays: what the numeric code sees of it.

theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),   y_i | f_i, theta ~ p(y_i | f_i, theta).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.gaussian import Effects
from pymc_lgm.callbacks import LogDensity
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.protocols import GaussianModel
from pymc_lgm.linalg import Array

__all__ = ["LatentGaussian"]


class LatentGaussian(GaussianModel, Protocol):
    """A latent Gaussian model as functions of theta (p,) and f (n,), all float64."""

    def prior(self, theta: Array) -> Prior | None:
        """N(m(theta), K(theta)); ``None`` where that is no number."""

    def has_latents(self, prior: Prior) -> bool:
        """Whether what f is made of can be drawn given f there; if not, theta has no density."""

    def log_prior(self, theta: Array) -> float:
        """log p(theta) up to a constant."""

    def log_likelihood(self, f: Array, theta: Array) -> float:
        """ℓ(f, theta) = log p(y | f, theta)."""

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f, shape (N, n) -> (N,)."""

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ(f, theta) and g = ∂ℓ/∂f, shape (n,)."""

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Any, Array]:
        """ℓ, g, W = −∂²ℓ/∂f² and ∂³ℓ/∂f³, the last three of shape (n,); W in blocks if in sets."""

    def curvature_gradient(self, f: Array, theta: Array, M: Array) -> Array:
        """∂/∂f of Σ_g ⟨M_g, W_g(f)⟩, shape (n,): of blocks M (G, s, s), where there are sets."""

    def site_log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ_i(f_i, theta) of each row of f, shape (N, n) -> (N, n) or (N, G): their sum is ℓ."""

    @property
    def sets(self) -> NDArray[np.intp] | None:
        """Which f_i an observation reads together, shape (G, s); ``None`` if it reads one."""

    @property
    def classes(self) -> bool:
        """Whether they are classes, with a curvature diag(π) − π πᵀ."""

    def probit_signs(self) -> Array | None:
        """s (n,) if ℓ = Σ log Φ(s_i f_i), ``None`` if not."""

    def effects(self, theta: Array) -> Effects | None:
        """Effects, one per observation, that ℓ has been integrated over."""

    # Derivatives in theta, for targets with a gradient.

    def log_prior_gradient(self, theta: Array) -> Array:
        """∂ log p(theta)/∂theta, shape (p,)."""

    @property
    def prior_density(self) -> LogDensity:
        """log p(theta) and its gradient, for compiled loops: always the same object."""

    @property
    def theta_in_likelihood(self) -> bool:
        """Whether ℓ depends on theta at fixed f."""

    def log_likelihood_theta_gradient(self, f: Array, theta: Array) -> Array:
        """∂ℓ/∂theta at fixed f, shape (p,)."""

    def log_likelihoods_theta_gradient(self, rows: Array, theta: Array, weights: Array) -> Array:
        """∂/∂theta of Σ_k w_k ℓ(f_k, theta) at fixed rows f_k, shape (p,)."""

    def likelihood_terms_vjp(self, f: Array, theta: Array, v: Array, u: Array) -> Array:
        """∂/∂theta of ℓ + ⟨v, g⟩ + ⟨u, W⟩ at fixed f, shape (p,)."""
