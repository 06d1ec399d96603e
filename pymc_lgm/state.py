"""State: theta, f and what was computed from them, so that nothing is factorized twice.

The model is seen here through five functions of arrays, `LatentGaussian`:

    theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),   y_i | f_i, theta ~ p(y_i | f_i, theta).

A kernel gets a `State` and returns a `State`; a rejected proposal returns the same object.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.importance import Estimate
from pymc_lgm.linalg import Array, Covariance, PriorFactor, tally

__all__ = ["LatentGaussian", "LikelihoodAt", "State", "acceptance_probability"]


class LatentGaussian(Protocol):
    """A latent Gaussian model as functions of theta (p,) and f (n,), all float64."""

    @property
    def enters_cov(self) -> NDArray[np.bool_]:
        """Which of the p components of theta the covariance depends on."""

    @property
    def amplitudes(self) -> Array:
        """k (p,): K(theta + δ e_j) = exp(k_j δ) K(theta) for every δ; 0 where there is no such k_j.

        What `find_amplitudes` finds, or zeros: then every change of theta_j costs a factorization.
        """

    def mean(self, theta: Array) -> Array:
        """m(theta), shape (n,)."""

    def cov(self, theta: Array) -> Array:
        """K(theta), shape (n, n), a new array that the caller may overwrite."""

    def log_prior(self, theta: Array) -> float:
        """log p(theta) up to a constant."""

    def log_likelihood(self, f: Array, theta: Array) -> float:
        """ℓ(f, theta) = log p(y | f, theta)."""

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f, shape (N, n) -> (N,)."""

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ(f, theta) and g = ∂ℓ/∂f, shape (n,)."""

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Array, Array]:
        """ℓ, g, W = −∂²ℓ/∂f² and ∂³ℓ/∂f³, the last three of shape (n,)."""

    def site_log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ_i(f_i, theta) of each row of f, shape (N, n) -> (N, n): their sum is ℓ."""

    def probit_signs(self) -> Array | None:
        """s (n,) if ℓ = Σ log Φ(s_i f_i), ``None`` if not."""

    # Derivatives in theta, for targets with a gradient.

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩ for each j, shape (p,)."""

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m/∂theta_j, v⟩ for each j, shape (p,)."""

    def cov_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂K/∂theta_j, shape (n, n)."""

    def mean_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂m/∂theta_j, shape (n,)."""

    def log_prior_gradient(self, theta: Array) -> Array:
        """∂ log p(theta)/∂theta, shape (p,)."""

    def log_likelihood_theta_gradient(self, f: Array, theta: Array) -> Array:
        """∂ℓ/∂theta at fixed f, shape (p,)."""


@dataclass(frozen=True)
class LikelihoodAt:
    """The likelihood of a model at one theta, as a function of f: what approximations see."""

    model: LatentGaussian
    theta: Array

    def __call__(self, f: Array) -> tuple[float, Array, Array, Array]:
        """ℓ, g, W and ∂³ℓ/∂f³."""
        return self.model.likelihood_terms(f, self.theta)

    def sites(self, rows: Array) -> Array:
        """ℓ_i(f_i) of each row of f, shape (N, n)."""
        return self.model.site_log_likelihoods(rows, self.theta)

    @property
    def probit_signs(self) -> Array | None:
        """Its signs s if it is Σ log Φ(s_i f_i)."""
        return self.model.probit_signs()


@dataclass(frozen=True, eq=False)
class State:
    """A point (theta, f) of the chain with the prior's factor and the densities there.

    Attributes
    ----------
    model : LatentGaussian
    theta : ndarray, shape (p,)
        Hyper-parameters on the unconstrained scale.
    f : ndarray, shape (n,)
        Latent variables.
    mean : ndarray, shape (n,)
        m(theta).
    prior : PriorFactor
        The factor L of K(theta).
    log_likelihood, log_prior : float
        ℓ(f, theta) and log p(theta).
    approximation : GaussianApproximation, optional
        q(f) at this theta, kept for as long as theta stays.
    approximated_by : tuple
        The search and the start that made it: another needs an approximation of its own.
    estimate : Estimate, optional
        Of p(y | theta), by the importance draws that f was one of.
    """

    model: LatentGaussian
    theta: Array
    f: Array
    mean: Array
    prior: PriorFactor
    log_likelihood: float
    log_prior: float
    approximation: GaussianApproximation | None = None
    approximated_by: tuple[object, object] = (None, None)
    estimate: Estimate | None = None

    @classmethod
    def at(cls, model: LatentGaussian, theta: Array, f: Array) -> State | None:
        """Compute everything at (theta, f); ``None`` where the density is zero or undefined."""
        prior_at = _prior_at(model, theta)
        return None if prior_at is None else _complete(model, theta, *prior_at, lambda *_: f)

    def with_theta(
        self, theta: Array, latent: Callable[[Array, PriorFactor], Array]
    ) -> State | None:
        """Move to another theta, with f computed from the prior there.

        Parameters
        ----------
        theta : ndarray, shape (p,)
        latent : callable (mean, prior) -> f
            What is held fixed says how f follows: ``lambda m, L: f`` holds f,
            ``lambda m, L: m + L.multiply(nu)`` holds ν.

        Returns
        -------
        State or None
            ``None`` where theta has no prior density, K cannot be factorized or the likelihood
            is zero. One O(n³) operation, none if theta changes the covariance by a factor, or
            not at all.
        """
        prior_at = self.prior_at(theta)
        return None if prior_at is None else _complete(self.model, theta, *prior_at, latent)

    def prior_at(self, theta: Array) -> tuple[float, Array, Covariance] | None:
        """log p, m and K at another theta; K is factorized if it is a multiple of this state's."""
        k = self.model.amplitudes
        moved = self.model.enters_cov & (theta != self.theta)
        if not moved.any():
            return _prior_at(self.model, theta, self.prior)
        if (moved & (k == 0.0)).any():
            return _prior_at(self.model, theta)
        return _prior_at(self.model, theta, self.prior.with_log_variance(float(k @ theta)))

    def complete(
        self,
        theta: Array,
        log_prior: float,
        mean: Array,
        covariance: Covariance,
        latent: Callable[[Array, PriorFactor], Array],
    ) -> State | None:
        """`with_theta`, continued from what `prior_at` gave: factorizes K in place."""
        return _complete(self.model, theta, log_prior, mean, covariance, latent)

    def with_f(self, f: Array, log_likelihood: float | None = None) -> State | None:
        """Move to another f at the same theta: O(n), plus the likelihood if it is not given."""
        if log_likelihood is None:
            log_likelihood = self.log_likelihood_at(f)
        if log_likelihood == -math.inf:
            return None
        return replace(self, f=f, log_likelihood=log_likelihood)

    def log_likelihood_at(self, f: Array, theta: Array | None = None) -> float:
        """ℓ(f, theta), by default at this theta; −inf, and counted, where it cannot be computed."""
        return _checked(self.model.log_likelihood(f, self.theta if theta is None else theta))

    def log_likelihoods_at(self, rows: Array, theta: Array | None = None) -> Array:
        """`log_likelihood_at` of each row of f, shape (N, n) -> (N,)."""
        values = self.model.log_likelihoods(rows, self.theta if theta is None else theta)
        lost = ~(values < math.inf)  # NaN, too
        if lost.any():
            tally.numerical_rejections += int(lost.sum())
            values = np.where(lost, -math.inf, values)
        return values


def _prior_at(
    model: LatentGaussian, theta: Array, covariance: Covariance | None = None
) -> tuple[float, Array, Covariance] | None:
    # Cheapest first: a theta outside its prior's support never pays for a covariance.
    log_prior = _checked(model.log_prior(theta))
    if log_prior == -math.inf:
        return None
    covariance = covariance or _covariance(model, theta)
    if not 0.0 < covariance.variance < math.inf:
        tally.numerical_rejections += 1
        return None
    return log_prior, model.mean(theta), covariance


def _covariance(model: LatentGaussian, theta: Array) -> Covariance:
    """K(theta), written as exp(k·theta) K(theta with its amplitudes at 0).

    What is factorized is the same wherever the amplitudes are, so the factor is a function of theta
    to the last bit, whether it was computed there or scaled.
    """
    k = model.amplitudes
    if not k.any():
        return Covariance(model.cov(theta))
    return Covariance(model.cov(np.where(k == 0.0, theta, 0.0)), float(k @ theta))


def _complete(
    model: LatentGaussian,
    theta: Array,
    log_prior: float,
    mean: Array,
    covariance: Covariance,
    latent: Callable[[Array, PriorFactor], Array],
) -> State | None:
    prior = covariance if isinstance(covariance, PriorFactor) else covariance.factorize()
    if prior is None:
        tally.numerical_rejections += 1
        return None
    f = latent(mean, prior)
    log_likelihood = _checked(model.log_likelihood(f, theta))
    if log_likelihood == -math.inf:
        return None
    return State(model, theta, f, mean, prior, log_likelihood, log_prior)


def _checked(log_density: float) -> float:
    """A log density as a number that can be compared: NaN and +inf become −inf and are counted."""
    if math.isnan(log_density) or log_density == math.inf:
        tally.numerical_rejections += 1
        return -math.inf
    return log_density


def acceptance_probability(log_ratio: float) -> float:
    """min(1, exp(log_ratio)): what a kernel accepts with; 0 where the ratio is not a number."""
    return 0.0 if math.isnan(log_ratio) else math.exp(min(0.0, log_ratio))
